"""Dead letters: executions out of tries, and what a person decides about them, one or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Unpack
from uuid import UUID

from msgspec.structs import replace

from daybell.client.filters import Sweep, resolve_filter, sweep_pages
from daybell.client.requests import Filters, Id, read_id
from daybell.core.execution import Execution
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.view import ExecutionFilter, Page, Total
from daybell.errors import Conflict, UsageError
from daybell.store.outcomes import Revival
from daybell.store.protocol import Store

Step = Callable[[int], object]  # told how many more were seen to


def silently(_: int) -> None:
    """For those who need not be told."""


class DeadLetters:
    """The verbs of `Client` for dead executions that no person has decided on.

    Those for many take ids, or filters; with neither, all.
    """

    store: Store
    tenant: str

    async def dead_letters(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[Execution]:
        """Dead letters, newest first."""
        where = await self._letters(filters)
        return await self.store.list_executions(self.tenant, where, limit=limit, cursor=cursor)

    async def count_dead_letters(self, **filters: Unpack[Filters]) -> Total:
        """How many there are."""
        return await self._count([await self._letters(filters)])

    async def _letters(self, filters: Filters) -> ExecutionFilter:
        check_no_status(filters)
        where = await resolve_filter(self.store, self.tenant, filters)
        return replace(where, dead_letters=True)

    async def _count(self, wheres: Sequence[ExecutionFilter]) -> Total:
        raise NotImplementedError  # see `Bulk`

    async def discard(self, id: Id) -> None:
        """Take an execution off the dead-letter list. It stays in history."""
        (was_listed,) = await self.store.discard(self.tenant, [read_id(id)])
        if not was_listed:
            found = await self.store.get_execution(self.tenant, read_id(id))
            raise Conflict(
                f"execution {id} is not on the dead-letter list; it is {found.execution.state}"
            )

    async def retry_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        sweep: Sweep | None = None,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> Counter[Revival]:
        """Run many again, their tries counted anew; answers how many went which way."""
        answers: Counter[Revival] = Counter()
        async for some in self._chosen(ids, filters, sweep):
            answers.update(await self.store.revive(self.tenant, some))
            on_step(len(some))
        return answers

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        sweep: Sweep | None = None,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> tuple[int, int]:
        """Take many off the list; answers how many were on it, and how many were not."""
        listed = seen = 0
        async for some in self._chosen(ids, filters, sweep):
            listed += sum(await self.store.discard(self.tenant, some))
            seen += len(some)
            on_step(len(some))
        return listed, seen - listed

    async def _chosen(
        self, ids: Iterable[Id] | None, filters: Filters, sweep: Sweep | None
    ) -> AsyncGenerator[Sequence[UUID]]:
        """The ids, in batches that a store takes."""
        if ids is not None:
            wanted = [read_id(id) for id in ids]
            for start in range(0, len(wanted), PAGE_ITEMS_MAX):
                yield wanted[start : start + PAGE_ITEMS_MAX]
            return
        where = await self._letters(filters)
        async for page in sweep_pages(self.store, self.tenant, [where], sweep):
            yield [one.id for one in page]


def check_no_status(filters: Filters) -> None:
    """Refuse a status: a dead letter has the one, and another would find nothing."""
    if filters.get("status") is not None:
        raise UsageError("dead letters are all dead; leave status out", field="status")

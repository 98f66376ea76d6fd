"""Dead letters: executions out of tries, and what a person decides about them, one or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from uuid import UUID

from daybell.client.requests import Id, read_id
from daybell.core.execution import Execution
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.view import ExecutionFilter, Page, Total
from daybell.errors import Conflict
from daybell.store.outcomes import Revival
from daybell.store.protocol import Store

Step = Callable[[int], object]  # told how many more were seen to


def silently(_: int) -> None:
    """For those who need not be told."""


class DeadLetters:
    """The verbs of `Client` for dead executions that no person has decided on.

    Those for many take ids, or which they are: of a job, in a queue, or, with neither, all.
    """

    store: Store
    tenant: str

    async def dead_letters(
        self,
        *,
        job: str | None = None,
        queue: str | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[Execution]:
        """Dead letters, newest first."""
        where = ExecutionFilter(dead_letters=True, job=job, queue=queue)
        return await self.store.list_executions(self.tenant, where, limit=limit, cursor=cursor)

    async def count_dead_letters(
        self, *, job: str | None = None, queue: str | None = None
    ) -> Total:
        """How many there are."""
        where = ExecutionFilter(dead_letters=True, job=job, queue=queue)
        return (await self.store.count_executions(self.tenant, where)).total

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
        job: str | None = None,
        queue: str | None = None,
        on_step: Step = silently,
    ) -> Counter[Revival]:
        """Run many again, their tries counted anew; answers how many went which way."""
        answers: Counter[Revival] = Counter()
        async for some in self._chosen(ids, job, queue):
            answers.update(await self.store.revive(self.tenant, some))
            on_step(len(some))
        return answers

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        job: str | None = None,
        queue: str | None = None,
        on_step: Step = silently,
    ) -> tuple[int, int]:
        """Take many off the list; answers how many were on it, and how many were not."""
        listed = seen = 0
        async for some in self._chosen(ids, job, queue):
            listed += sum(await self.store.discard(self.tenant, some))
            seen += len(some)
            on_step(len(some))
        return listed, seen - listed

    async def _chosen(
        self, ids: Iterable[Id] | None, job: str | None, queue: str | None
    ) -> AsyncGenerator[Sequence[UUID]]:
        """The ids, in batches that a store takes."""
        if ids is not None:
            wanted = [read_id(id) for id in ids]
            for start in range(0, len(wanted), PAGE_ITEMS_MAX):
                yield wanted[start : start + PAGE_ITEMS_MAX]
            return
        cursor = None
        while True:
            # Pages go by id, so what leaves the list does not shift the rest.
            page = await self.dead_letters(
                job=job, queue=queue, limit=PAGE_ITEMS_MAX, cursor=cursor
            )
            yield [one.id for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return

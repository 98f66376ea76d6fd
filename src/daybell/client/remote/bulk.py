"""Many executions at once over HTTP, and dead letters: one request, whatever their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, Unpack
from uuid import UUID

from daybell.client.bulk import Retrial, retryable, unfinished
from daybell.client.dead_letters import Step, check_no_status, silently
from daybell.client.filters import fix_bounds
from daybell.client.remote import reading, writing
from daybell.client.remote.transport import Transport
from daybell.client.requests import Filters, Id, read_id
from daybell.core.execution import Execution, ExecutionDetail
from daybell.core.limits import ENQUEUE_BATCH_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.view import Counts, ExecutionFilter, Health, Page, Total, read_pages, total_of
from daybell.errors import Conflict
from daybell.store.outcomes import Cancellation, Revival

W = TypeVar("W", bound=StrEnum)


class Bulk:
    """The verbs of `Client` for all executions that filters let through, and for dead letters."""

    transport: Transport

    async def execution(self, id: Id) -> ExecutionDetail:
        raise NotImplementedError  # see `RemoteClient`

    async def health(self) -> Health:
        raise NotImplementedError  # see `Overview`

    async def _counts(self, asked: dict[str, Any]) -> Counts:
        raise NotImplementedError  # see `Executions`

    async def executions(
        self, *, limit: int, cursor: str | None, **filters: Unpack[Filters]
    ) -> Page[Execution]:
        raise NotImplementedError  # see `Executions`

    async def count_cancellable(self, **filters: Unpack[Filters]) -> Total:
        """How many `cancel_many` would cancel."""
        where = unfinished(writing.read(filters))
        if where.content is not None:
            return await self._count_found({**filters, "status": _words(where)})
        return (await self._counts(writing.parameters(filters, where.states))).total

    async def cancel_many(
        self, *, on_step: Step = silently, **filters: Unpack[Filters]
    ) -> Counter[Cancellation]:
        """Cancel what has not ended; answers how many went which way."""
        where = unfinished(writing.read(filters))
        fixed = await fix_bounds(self, filters)
        body = {"filter": writing.filters(fixed, where.states)}
        return await self._sweep("/executions/cancel", body, Cancellation, on_step)

    async def count_retryable(self, *, force: bool = False, **filters: Unpack[Filters]) -> Total:
        """How many `retry_many` would run again."""
        totals: list[Total] = []
        for where in retryable(writing.read(filters), force=force):
            if where.content is None:
                letters = {"dead_letters": True} if where.dead_letters else {}
                asked = writing.parameters(filters, where.states) | letters
                totals.append((await self._counts(asked)).total)
            elif where.dead_letters:
                totals.append(await self.count_dead_letters(**{**filters, "status": None}))
            else:
                totals.append(await self._count_found({**filters, "status": _words(where)}))
        return total_of(totals)

    async def _count_found(self, filters: Filters) -> Total:
        read = partial(self.executions, limit=PAGE_ITEMS_MAX, **filters)
        return Total(sum([len(some) async for some in read_pages(lambda at: read(cursor=at))]))

    async def retry_many(
        self, *, force: bool = False, on_step: Step = silently, **filters: Unpack[Filters]
    ) -> Counter[Retrial]:
        """Run ended ones again, each as `retry` would; answers how many went which way."""
        retryable(writing.read(filters), force=force)  # says what is wrong with it
        body = {"filter": writing.filters(await fix_bounds(self, filters)), "force": force}
        return await self._sweep("/executions/retry", body, Retrial, on_step, once=True)

    async def _sweep(
        self,
        path: str,
        body: dict[str, Any],
        words: type[W],
        on_step: Step,
        *,
        once: bool = False,
    ) -> Counter[W]:
        """Ask until the server has gone through all that a filter lets through."""
        answers: Counter[W] = Counter()
        cursor: str | None = ""
        while cursor is not None:
            asked = {**body, **({"cursor": cursor} if cursor else {})}
            read = partial(_counted, words=words)
            matched, some, cursor = await self.transport.post(path, asked, once=once, read=read)
            answers += some
            on_step(matched)
        return answers

    # Dead letters.

    async def dead_letters(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[Execution]:
        """Dead letters, newest first."""
        check_no_status(filters)
        asked = {**writing.parameters(filters), "limit": limit, "cursor": cursor}
        read = reading.page_of(reading.execution)
        return await self.transport.get("/dead-letters", asked, read=read)

    async def count_dead_letters(self, **filters: Unpack[Filters]) -> Total:
        """How many there are."""
        check_no_status(filters)
        if writing.read(filters).content is not None:
            read = partial(self.dead_letters, limit=PAGE_ITEMS_MAX, **filters)
            found = [len(some) async for some in read_pages(lambda at: read(cursor=at))]
            return Total(sum(found))
        counts = await self._counts({**writing.parameters(filters), "dead_letters": True})
        return counts.total

    async def discard(self, id: Id) -> None:
        """Take an execution off the dead-letter list. It stays in history."""
        listed, _ = await self.discard_dead_letters([id])
        if not listed:
            found = await self.execution(id)
            raise Conflict(
                f"execution {id} is not on the dead-letter list; it is {found.execution.state}"
            )

    async def retry_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> Counter[Revival]:
        """Run many again, their tries counted anew; answers how many went which way."""
        answers: Counter[Revival] = Counter()
        for body in _chosen(ids, await fix_bounds(self, filters)):
            answers += await self._sweep("/dead-letters/retry", body, Revival, on_step)
        return answers

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        on_step: Step = silently,
        **filters: Unpack[Filters],
    ) -> tuple[int, int]:
        """Take many off the list; answers how many were on it, and how many were not."""
        answers: Counter[Discarded] = Counter()
        for body in _chosen(ids, await fix_bounds(self, filters)):
            answers += await self._sweep("/dead-letters/discard", body, Discarded, on_step)
        return answers[Discarded.DISCARDED], answers[Discarded.NOT_LISTED]


class Discarded(StrEnum):
    """What became of one that was to be discarded."""

    DISCARDED = "discarded"
    NOT_LISTED = "not_listed"


def _words(where: ExecutionFilter) -> list[str]:
    return [str(state) for state in sorted(where.states or ())]


def _chosen(ids: Iterable[Id] | None, filters: Filters) -> Iterator[dict[str, Any]]:
    """Bodies that name ids, as many at a time as a request takes, or which they are."""
    if ids is None:
        check_no_status(filters)
        yield {"filter": writing.filters(filters)}
        return
    wanted: Sequence[UUID] = [read_id(id) for id in ids]
    for start in range(0, len(wanted), ENQUEUE_BATCH_MAX):
        yield {"ids": [str(id) for id in wanted[start : start + ENQUEUE_BATCH_MAX]]}


def _counted(of: reading.Wire, words: type[W]) -> tuple[int, Counter[W], str | None]:
    """How many there were, how many went which way, and where the next request continues."""
    counts = Counter({word: int(of[word]) for word in words if of.get(word)})
    return int(of["matched"]), counts, of.get("next_cursor")

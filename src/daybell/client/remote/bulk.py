"""Many executions at once over HTTP, and dead letters: one request, whatever their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, Unpack
from uuid import UUID

from daybell.client.bulk import Retrial, retryable, unfinished
from daybell.client.dead_letters import Step, silently
from daybell.client.remote import reading, writing
from daybell.client.remote.transport import Transport
from daybell.client.requests import Filters, Id, read_filter, read_id
from daybell.core.execution import Execution, ExecutionDetail
from daybell.core.limits import ENQUEUE_BATCH_MAX, PAGE_ITEMS_DEFAULT
from daybell.core.view import Counts, Page, Total, total_of
from daybell.errors import Conflict
from daybell.store.outcomes import Cancellation, Revival

W = TypeVar("W", bound=StrEnum)


class Bulk:
    """The verbs of `Client` for all executions that filters let through, and for dead letters."""

    transport: Transport

    async def execution(self, id: Id) -> ExecutionDetail:
        raise NotImplementedError  # see `RemoteClient`

    async def _counts(self, asked: dict[str, Any]) -> Counts:
        raise NotImplementedError  # see `Executions`

    async def count_cancellable(self, **filters: Unpack[Filters]) -> Total:
        """How many `cancel_many` would cancel."""
        where = unfinished(read_filter(**filters))
        return (await self._counts(writing.of_filter(where))).total

    async def cancel_many(
        self, *, on_step: Step = silently, **filters: Unpack[Filters]
    ) -> Counter[Cancellation]:
        """Cancel what has not ended; answers how many went which way."""
        where = unfinished(read_filter(**filters))
        body = {"filter": writing.of_filter(where)}
        read = partial(_counted, words=Cancellation)
        matched, answers = await self.transport.post("/executions/cancel", body, read=read)
        on_step(matched)
        return answers

    async def count_retryable(self, *, force: bool = False, **filters: Unpack[Filters]) -> Total:
        """How many `retry_many` would run again."""
        counts: list[Counts] = []
        for where in retryable(read_filter(**filters), force=force):
            letters = {"dead_letters": True} if where.dead_letters else {}
            counts.append(await self._counts(writing.of_filter(where) | letters))
        return total_of(counts)

    async def retry_many(
        self, *, force: bool = False, on_step: Step = silently, **filters: Unpack[Filters]
    ) -> Counter[Retrial]:
        """Run ended ones again, each as `retry` would; answers how many went which way."""
        where = read_filter(**filters)
        retryable(where, force=force)  # says what is wrong with it
        body = {"filter": writing.of_filter(where), "force": force}
        read = partial(_counted, words=Retrial)
        path = "/executions/retry"
        matched, answers = await self.transport.post(path, body, once=True, read=read)
        on_step(matched)
        return answers

    # Dead letters.

    async def dead_letters(
        self,
        *,
        job: str | None = None,
        queue: str | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[Execution]:
        """Dead letters, newest first."""
        asked = {**_which(job, queue), "limit": limit, "cursor": cursor}
        read = reading.page_of(reading.execution)
        return await self.transport.get("/dead-letters", asked, read=read)

    async def count_dead_letters(
        self, *, job: str | None = None, queue: str | None = None
    ) -> Total:
        """How many there are."""
        counts = await self._counts({**_which(job, queue), "dead_letters": True})
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
        job: str | None = None,
        queue: str | None = None,
        on_step: Step = silently,
    ) -> Counter[Revival]:
        """Run many again, their tries counted anew; answers how many went which way."""
        answers: Counter[Revival] = Counter()
        for body in _chosen(ids, job, queue):
            read = partial(_counted, words=Revival)
            matched, some = await self.transport.post("/dead-letters/retry", body, read=read)
            answers += some
            on_step(matched)
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
        listed = others = 0
        for body in _chosen(ids, job, queue):
            some = await self.transport.post("/dead-letters/discard", body, read=_discarded)
            listed += some[0]
            others += some[1]
            on_step(sum(some))
        return listed, others


def _which(job: str | None, queue: str | None) -> dict[str, Any]:
    said = {"job_id": job, "queue": queue}
    return {key: value for key, value in said.items() if value is not None}


def _chosen(
    ids: Iterable[Id] | None, job: str | None, queue: str | None
) -> Iterator[dict[str, Any]]:
    """Bodies that name ids, as many at a time as a request takes, or which they are."""
    if ids is None:
        yield {"filter": _which(job, queue)}
        return
    wanted: Sequence[UUID] = [read_id(id) for id in ids]
    for start in range(0, len(wanted), ENQUEUE_BATCH_MAX):
        yield {"ids": [str(id) for id in wanted[start : start + ENQUEUE_BATCH_MAX]]}


def _counted(of: reading.Wire, words: type[W]) -> tuple[int, Counter[W]]:
    """How many there were, and how many went which way; ways that nothing went are left out."""
    return int(of["matched"]), Counter({word: int(of[word]) for word in words if of.get(word)})


def _discarded(of: reading.Wire) -> tuple[int, int]:
    return int(of.get("discarded", 0)), int(of.get("not_listed", 0))

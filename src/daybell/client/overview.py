"""All that goes on, at a glance: queues, workers, rates, and what died last."""

from __future__ import annotations

from typing import Final

import msgspec

from daybell.core.execution import Execution
from daybell.core.instant import Instant
from daybell.core.view import Activity, ExecutionFilter, Queue
from daybell.core.worker import Worker
from daybell.store.protocol import Store

LETTERS_MAX: Final = 50  # that are looked at; nobody reads more of them at a glance


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two looks, per second."""

    enqueued: float
    finished: float | None  # None: a queue was too long to be counted
    failed: float  # attempts


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a tenant's work."""

    activity: Activity
    queues: tuple[Queue, ...]
    workers: tuple[Worker, ...]  # those that live
    letters: tuple[Execution, ...]  # dead letters, the last to die first
    has_more_letters: bool = False
    rates: Rates | None = None  # None: there was no earlier look to compare with

    @property
    def now(self) -> Instant:
        return self.activity.now

    @property
    def unfinished(self) -> int:
        return sum(one.queued + one.scheduled + one.running + one.waiting for one in self.queues)

    @property
    def is_counted(self) -> bool:
        """True if that is exact."""
        return not any(one.at_least for one in self.queues)


class Overviews:
    """The verb of `Client` for a look at everything."""

    store: Store
    tenant: str

    async def overview(self, *, earlier: Overview | None = None) -> Overview:
        """Look at everything; rates are those since an earlier look.

        That is four statements. They read what is unfinished, and of the rest only the last
        seconds and a page of dead letters.
        """
        since = None if earlier is None else earlier.activity
        activity = await self.store.activity(self.tenant, since=since)
        queues = await self.store.list_queues(self.tenant)
        workers = await self.store.list_workers(self.tenant)
        dead = ExecutionFilter(dead_letters=True)
        page = await self.store.list_executions(self.tenant, dead, limit=LETTERS_MAX)
        seen = Overview(
            activity=activity,
            queues=tuple(queues),
            workers=tuple(workers),
            letters=tuple(sorted(page.items, key=_died_at, reverse=True)),
            has_more_letters=page.next_cursor is not None,
        )
        rates = None if earlier is None else rates_between(earlier, seen)
        return msgspec.structs.replace(seen, rates=rates)


def rates_between(earlier: Overview, later: Overview) -> Rates | None:
    """What must have happened in between, per second.

    Nobody counts what has finished: it is what was enqueued and is not there any more. What the
    store did not see come (a bulk of old ids, dead letters that were revived) shows as growth.
    """
    seconds = later.now - earlier.now
    if seconds <= 0:
        return None
    is_counted = earlier.is_counted and later.is_counted
    grown = later.unfinished - earlier.unfinished if is_counted else 0
    enqueued = max(later.activity.enqueued, grown)
    return Rates(
        enqueued=enqueued / seconds,
        finished=(enqueued - grown) / seconds if is_counted else None,
        failed=later.activity.failed / seconds,
    )


def _died_at(letter: Execution) -> Instant:
    return letter.finished_at or letter.run_at

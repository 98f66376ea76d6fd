"""Events for observers, and the observer that reports the ends of workflow runs.

Observers decide nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.execution import TERMINAL, Claimed, Execution, State
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.schedule import Firing
from daybell.core.units import Instant, Seconds
from daybell.core.views import ExecutionFilter, read_pages
from daybell.engine.loop import Clock, Loop
from daybell.errors import Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.engine")


class Started(msgspec.Struct, frozen=True, gc=False):
    """An execution is about to run here."""

    claimed: Claimed


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An attempt has ended and the store knows. With a verdict, not as the worker asked for."""

    claimed: Claimed
    transition: Transition
    verdict: Verdict | None = None


class RunBegun(msgspec.Struct, frozen=True, gc=False):
    """A workflow's run is in the store, and out of this worker's hands."""

    claimed: Claimed


class RunEnded(msgspec.Struct, frozen=True, gc=False):
    """A workflow's run has ended with a node that ended here, or as it began here. It is told a
    moment later, and only where somebody looks for it: `daybell dev` and `daybell worker`.
    """

    run: Execution


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """The reaper took an execution out of a dead worker's hands."""

    claimed: Claimed
    transition: Transition


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A scheduler has advanced a schedule, so long after the time that it stood at."""

    firing: Firing
    late: Seconds
    job: str


Observer = Callable[[Any], None]


class Events:
    """Where observers listen. Without any, a fact costs nothing, not even its making."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._curious: list[Observer] = []  # those who hear of what goes as it should, too

    def observe(self, observer: Observer, *, only_trouble: bool = False) -> None:
        """Tell this observer of everything, or only of what is not a start or a plain success.

        That a run has begun is never plain, nor is the end of a node: it may have ended with that.
        """
        self._observers.append(observer)
        if not only_trouble:
            self._curious.append(observer)

    @property
    def is_heard(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self._observers)

    @property
    def is_followed(self) -> bool:
        """True if an observer wants starts and plain successes, too."""
        return bool(self._curious)

    def emit(self, kind: Callable[..., Any], *facts: object, is_plain: bool = False) -> None:
        """Tell everybody whom it concerns. One observer's error is logged and hurts nobody."""
        observers = self._curious if is_plain else self._observers
        if not observers:
            return
        event = kind(*facts)
        for observer in observers:
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed on %s", type(event).__name__)


# Telling of the ends of workflows' runs, which are nobody's work.
#
# A run ends in the store, with the report of its last node, or as it begins: mapped over an empty
# list, for instance. So whoever has ended a node, or begun a run, looks a moment later whether
# that was all. As long as nodes of a run end one after the other, nobody looks: a chain of a
# thousand costs one look, and so does a fan of ten thousand.

QUIET_SECONDS: Final = 0.25  # since the last end of a node, before its run is looked at
# What follows the end of a node may take a few transactions, so the run ends a little later.
AFTER_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 60.0
ASKED_MAX: Final = 20  # dead runs in a look, of which it is asked who ended their last nodes

_RunKey = tuple[str, UUID]  # its tenant, and itself


class RunEndObserver:
    """Observes beginnings of runs and ends of nodes, and emits `RunEnded` where these ended one.

    Of several processes that have ended nodes of one run, the last tells its end. If two did so at
    nearly the same time, both may, but that a run is dead is told by one: by whom its last node
    ended, as the store has it. If many are dead at once, they are not asked about one by one: two
    who tell of the same cost less than that.
    """

    def __init__(self, store: Store, *, events: Events, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._heard: dict[_RunKey, Instant] = {}  # when they began, or a node of theirs ended here
        self._only_begun: set[_RunKey] = set()  # those of which no node has ended here
        self._ended: dict[_RunKey, set[UUID]] = {}  # nodes that ended here
        self.loop = Loop("run ends", self.tick, interval=IDLE_SECONDS, clock=clock)

    def __call__(self, event: object) -> None:
        if isinstance(event, RunBegun):
            key = event.claimed.tenant, event.claimed.id
            self._only_begun.add(key)
            self._hear(key)
        if not isinstance(event, Ended | WorkerLost):
            return
        move = event.transition
        verdict = event.verdict if isinstance(event, Ended) else None
        if move.run is None or (verdict is not None and verdict.ruling is not Ruling.CANCELLED):
            return
        if move.target in TERMINAL or verdict is not None:
            key = event.claimed.tenant, move.run
            self._only_begun.discard(key)
            ours = self._ended.setdefault(key, set())
            if len(ours) < PAGE_ITEMS_MAX:  # of more nodes, nobody asks which was the last
                ours.add(move.id)
            self._hear(key)

    @property
    def has_heard(self) -> bool:
        """Whether there are runs to be looked at."""
        return bool(self._heard)

    def _hear(self, key: _RunKey) -> None:
        is_first = not self._heard
        self._heard[key] = self._clock.now()
        if is_first:
            self.loop.wake()

    async def tick(self, *, quiet: Seconds = QUIET_SECONDS) -> Seconds | None:
        """Look at the runs of which nothing was heard for so long."""
        until = self._clock.now() - quiet
        settled = {run: at for run, at in self._heard.items() if at <= until}
        by_tenant: dict[str, list[UUID]] = defaultdict(list)
        for tenant, run in settled:
            by_tenant[tenant].append(run)
        for tenant, ids in by_tenant.items():
            for start in range(0, len(ids), PAGE_ITEMS_MAX):
                await self._look(tenant, ids[start : start + PAGE_ITEMS_MAX], settled)
        next_at = min(self._heard.values(), default=inf) + quiet
        return None if next_at == inf else max(0.0, next_at - self._clock.now())

    async def _look(
        self, tenant: str, ids: Sequence[UUID], settled: dict[_RunKey, Instant]
    ) -> None:
        where = ExecutionFilter(ids=frozenset(ids), states=TERMINAL)
        pages = read_pages(
            lambda cursor: self._store.list_executions(
                tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor
            )
        )
        runs = [run async for page in pages for run in page]
        dead = [run for run in runs if run.state is State.DEAD]
        asked = dead if len(dead) <= ASKED_MAX else []
        elsewhere = {run.id for run in asked if await self._is_told_elsewhere(run)}
        # Only now: had this raised, they would still be there to be looked at.
        for key in ((tenant, id) for id in ids):
            if self._heard.get(key) == settled[key]:
                del self._heard[key]
        for run in sorted(runs, key=_finished_at):
            if run.id not in elsewhere:
                self._tell(run, heard=settled[tenant, run.id])
        for key in ((tenant, id) for id in ids):
            self._only_begun.discard(key)
            if key not in self._heard:
                self._ended.pop(key, None)

    async def _is_told_elsewhere(self, run: Execution) -> bool:
        """Whether its last node ended in another process, which looks at it, too."""
        where = ExecutionFilter(parent=run.id, states=TERMINAL)
        page = await self._store.list_executions(run.tenant, where, limit=PAGE_ITEMS_MAX)
        last = max(page.items, key=lambda one: (_finished_at(one), one.id), default=None)
        if last is None or last.worker is None or page.next_cursor is not None:
            return False  # it cannot be said
        # Who looked so long after that node's end has seen that the run had ended.
        is_seen = _finished_at(run) < _finished_at(last) + QUIET_SECONDS
        return is_seen and last.id not in self._ended.get((run.tenant, run.id), ())

    def _tell(self, run: Execution, *, heard: Instant) -> None:
        # Who has only begun it has ended it only then: else, whoever ended its last node tells.
        patience = 0.0 if (run.tenant, run.id) in self._only_begun else AFTER_SECONDS
        if _finished_at(run) > heard + patience:
            return  # somebody else has ended it since
        self._events.emit(RunEnded, run, is_plain=run.state is State.SUCCEEDED)
        if run.node is not None and run.parent is not None:
            # It was a node itself, and perhaps the last of its run.
            self._heard.setdefault((run.tenant, run.parent), heard)


def _finished_at(run: Execution) -> Instant:
    return run.finished_at or 0.0


@asynccontextmanager
async def observe_run_ends(store: Store, *, events: Events, clock: Clock) -> AsyncGenerator[None]:
    """Tell the observers of this process how runs end, as long as this lasts."""
    ends = RunEndObserver(store, events=events, clock=clock)
    events.observe(ends, only_trouble=True)
    ends.loop.start()
    try:
        yield
    finally:
        await ends.loop.stop()
        with suppress(Unavailable):
            while ends.has_heard:  # an inner run leads on to the one around it
                await ends.tick(quiet=0.0)

"""Events for observers, and the observer that reports the ends of workflow runs."""

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
    """An execution is about to run in this worker."""

    claimed: Claimed


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of an attempt is written; the verdict tells how it differs from the request."""

    claimed: Claimed
    transition: Transition
    verdict: Verdict | None = None


class RunBegun(msgspec.Struct, frozen=True, gc=False):
    """A workflow run is in the store, and needs no worker."""

    claimed: Claimed


class RunEnded(msgspec.Struct, frozen=True, gc=False):
    """A workflow run has ended with an end or a start in this process. Emitted a moment later, by
    `daybell dev` and `daybell worker`.
    """

    run: Execution


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """The reaper requeued or ended an execution of a dead worker."""

    claimed: Claimed
    transition: Transition


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A scheduler has advanced a schedule, `late` seconds after its tick."""

    firing: Firing
    late: Seconds
    job: str


Observer = Callable[[Any], None]


class Events:
    """A list of observers. Without observers, events are not even created."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._curious: list[Observer] = []  # observers of plain events, too

    def observe(self, observer: Observer, *, only_trouble: bool = False) -> None:
        """Add an observer of all events, or of all but starts and plain successes.

        The start of a run and the end of a node are never plain: the run may have ended with them.
        """
        self._observers.append(observer)
        if not only_trouble:
            self._curious.append(observer)

    @property
    def is_heard(self) -> bool:
        """True if there are observers."""
        return bool(self._observers)

    @property
    def is_followed(self) -> bool:
        """True if an observer follows starts and plain successes."""
        return bool(self._curious)

    def emit(self, kind: Callable[..., Any], *facts: object, is_plain: bool = False) -> None:
        """Create an event and pass it to the observers. Their errors are logged."""
        observers = self._curious if is_plain else self._observers
        if not observers:
            return
        event = kind(*facts)
        for observer in observers:
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed on %s", type(event).__name__)


# Ends of workflow runs.
#
# A run ends in the store: with the report of its last node, or at its start, for instance if it
# is mapped over an empty list. A process that started a run or ended a node checks a moment later
# if the run has ended. It waits until no more nodes of the run end, so a chain of a thousand nodes
# costs one check, and so does a fan of ten thousand.

QUIET_SECONDS: Final = 0.25  # after the last end of a node, until the run is checked
# A run may end a few transactions after its last node.
AFTER_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 60.0
ASKED_MAX: Final = 20  # dead runs in a check, for which the last node is looked up

_RunKey = tuple[str, UUID]  # tenant and id


class RunEndObserver:
    """Observes starts of runs and ends of nodes, and emits `RunEnded` if a run ended with them.

    Among processes that ended nodes of a run, the last one reports its end. After nearly
    simultaneous ends, several may. For a dead run, the store decides which process ended its last
    node; if many are dead at once, duplicate reports cost less than these queries.
    """

    def __init__(self, store: Store, *, events: Events, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._heard: dict[_RunKey, Instant] = {}  # the last start or end of a node in this process
        self._only_begun: set[_RunKey] = set()  # runs without ends of nodes in this process
        self._ended: dict[_RunKey, set[UUID]] = {}  # nodes that ended in this process
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
            if len(ours) < PAGE_ITEMS_MAX:  # the last node of larger runs is not looked up
                ours.add(move.id)
            self._hear(key)

    @property
    def has_heard(self) -> bool:
        """True if there are runs to check."""
        return bool(self._heard)

    def _hear(self, key: _RunKey) -> None:
        is_first = not self._heard
        self._heard[key] = self._clock.now()
        if is_first:
            self.loop.wake()

    async def tick(self, *, quiet: Seconds = QUIET_SECONDS) -> Seconds | None:
        """Check the runs that have been quiet for so long."""
        until = self._clock.now() - quiet
        settled = {run: at for run, at in self._heard.items() if at <= until}
        by_tenant: dict[str, list[UUID]] = defaultdict(list)
        for tenant, run in settled:
            by_tenant[tenant].append(run)
        for tenant, ids in by_tenant.items():
            for start in range(0, len(ids), PAGE_ITEMS_MAX):
                await self._check(tenant, ids[start : start + PAGE_ITEMS_MAX], settled)
        next_at = min(self._heard.values(), default=inf) + quiet
        return None if next_at == inf else max(0.0, next_at - self._clock.now())

    async def _check(
        self, tenant: str, ids: Sequence[UUID], settled: dict[_RunKey, Instant]
    ) -> None:
        where = ExecutionFilter(ids=frozenset(ids), states=TERMINAL)
        pages = read_pages(
            lambda cursor: self._store.catalog.list_executions(
                tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor
            )
        )
        runs = [run async for page in pages for run in page]
        dead = [run for run in runs if run.state is State.DEAD]
        asked = dead if len(dead) <= ASKED_MAX else []
        elsewhere = {run.id for run in asked if await self._is_told_elsewhere(run)}
        # Forget runs only after the last query: an error leaves them for the next tick.
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
        """Return True if its last node ended in another process, which checks it, too."""
        where = ExecutionFilter(parent=run.id, states=TERMINAL)
        page = await self._store.catalog.list_executions(run.tenant, where, limit=PAGE_ITEMS_MAX)
        last = max(page.items, key=lambda one: (_finished_at(one), one.id), default=None)
        if last is None or last.worker is None or page.next_cursor is not None:
            return False
        # A check this long after the node's end has found the run ended.
        is_seen = _finished_at(run) < _finished_at(last) + QUIET_SECONDS
        return is_seen and last.id not in self._ended.get((run.tenant, run.id), ())

    def _tell(self, run: Execution, *, heard: Instant) -> None:
        # A process that only started the run has ended it only at its start.
        patience = 0.0 if (run.tenant, run.id) in self._only_begun else AFTER_SECONDS
        if _finished_at(run) > heard + patience:
            return  # another process ended it later
        self._events.emit(RunEnded, run, is_plain=run.state is State.SUCCEEDED)
        if run.node is not None and run.parent is not None:
            # It was a node, perhaps the last one of its run.
            self._heard.setdefault((run.tenant, run.parent), heard)


def _finished_at(run: Execution) -> Instant:
    return run.finished_at or 0.0


@asynccontextmanager
async def observe_run_ends(store: Store, *, events: Events, clock: Clock) -> AsyncGenerator[None]:
    """Report ends of runs to the observers of this process, until the context ends."""
    ends = RunEndObserver(store, events=events, clock=clock)
    events.observe(ends, only_trouble=True)
    ends.loop.start()
    try:
        yield
    finally:
        await ends.loop.stop()
        with suppress(Unavailable):
            while ends.has_heard:  # an inner run leads to its parent
                await ends.tick(quiet=0.0)

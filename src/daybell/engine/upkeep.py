"""Upkeep: requeue the executions of dead workers, elect a leader, and remove old rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import groupby
from math import inf
from typing import Final, Protocol
from uuid import UUID

from daybell.core.execution import Lost
from daybell.core.lifecycle import Ruling, after_loss
from daybell.core.limits import REAP_BATCH_MAX
from daybell.core.subscription import OUTBOX_BATCH_MAX, dispatches
from daybell.core.units import Seconds
from daybell.core.views import DEFAULT_RETENTION, Retention, SweepKind
from daybell.core.worker import LEASE_SECONDS, UPKEEP
from daybell.engine.alerts import Alerts
from daybell.engine.events import Events, WorkerLost
from daybell.engine.execute import is_suspect, probation_seconds
from daybell.engine.loop import AGAIN, JUMP_SECONDS, Clock, Loop
from daybell.engine.scheduler import Scheduler
from daybell.engine.worker import Worker
from daybell.errors import DaybellError, ExecutionNotFound, Unavailable
from daybell.store.protocol import Store

reaper_logger = logging.getLogger("daybell.reaper")


class Reaper:
    """Finds dead workers, and decides about their executions.

    Workers cannot renew while the store is away. So after an absence, and after a jump of the
    store's clock, workers get the time of a lease before they count as dead. For the time before
    its own first look, the reaper uses the record of other processes in the store
    (`core.worker.Watch`), where the times of short-lived processes add up.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        events: Events,
        lease: Seconds = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._lease = lease
        self._is_store_away = False
        self._heard_at = clock.monotonic()
        # The store's time of the first look, or of the first after an absence. A clock that cannot
        # jump needs none.
        self._since = -inf if clock.steady_since() == -inf else inf
        self.is_any_waiting = False  # executions at a gate, at the last look
        self.is_any_overdue = False  # waits for events, at the last look

    async def tick(self) -> Seconds | None:
        try:
            return await self._tick()
        except Unavailable:
            self._is_store_away = True
            raise

    async def _tick(self) -> Seconds | None:
        sent = self._clock.monotonic()
        # In a shorter absence a worker misses at most one renewal.
        was_away = self._is_store_away and sent - self._heard_at > self._lease / 3
        is_first = self._since == inf
        losses = await self._store.queue.lost(
            limit=REAP_BATCH_MAX,
            since=max(self._since, self._clock.steady_since()),
            not_after=-inf if was_away else inf if is_first else self._clock.now() + JUMP_SECONDS,
            record_every=self._lease / 2,
        )
        if is_first or was_away or self._clock.monotonic() - sent > self._lease / 3:
            # During a slow answer the clock may have jumped, too.
            self._since = losses.now
        self._is_store_away, self._heard_at = False, sent
        self._clock.correct(losses.now, sent)
        self.is_any_waiting = losses.is_any_waiting
        self.is_any_overdue = losses.is_any_overdue
        moved, lost = 0, losses.executions
        for (tenant, worker), group in groupby(sorted(lost, key=_owner), key=_owner):
            moved += await self._reap(tenant, worker, list(group))
        return AGAIN if moved and len(lost) >= REAP_BATCH_MAX else None

    async def _reap(self, tenant: str, worker: UUID, lost: list[Lost]) -> int:
        proven = await self._proven(tenant, lost)
        moves = [
            after_loss(
                entry.claimed,
                max_crashes=entry.max_crashes,
                retry=entry.retry,
                is_begun=entry.ran is not None,
                is_excused=entry.is_excused,
                is_sole=entry.is_sole,
                is_proven=entry.claimed.id in proven,
            )
            for entry in lost
        ]
        verdicts = await self._store.queue.apply(
            tenant, worker=worker, transitions=moves, wait=False
        )
        left = {
            (verdict.id, verdict.attempt)
            for verdict in verdicts
            if verdict.ruling is not Ruling.CANCELLED  # moved, too: it has ended
        }
        for entry, move in zip(lost, moves, strict=True):
            if (move.id, move.attempt) not in left:
                self._events.emit(WorkerLost, entry.claimed, move)
        moved = len(moves) - len(left)
        if moved:
            reaper_logger.warning(
                "worker %s is gone; %d executions were taken from it", worker, moved
            )
        return moved

    async def _proven(self, tenant: str, lost: list[Lost]) -> set[UUID]:
        """Return suspects that had outlived their probation, unless all had: the others are more
        likely to have crashed the worker.
        """
        begun = {
            one.claimed.id: one.ran
            for one in lost
            if one.ran is not None and is_suspect(one.claimed)
        }
        proven = set[UUID]()
        for id, ran in begun.items() if len(begun) > 1 else ():
            with suppress(ExecutionNotFound):
                if ran > probation_seconds(await self._store.catalog.get_execution(tenant, id)):
                    proven.add(id)
        return proven if len(proven) < len(begun) else set()


def _owner(lost: Lost) -> tuple[str, UUID]:
    return lost.claimed.tenant, lost.worker


# The leader: one process that does upkeep. A change of leader delays upkeep, never an execution.

leader_logger = logging.getLogger("daybell.leader")

LEADER_TERM_SECONDS: Final = 15.0
DUTY_SECONDS: Final = 3600.0
DUTY_PAUSE_SECONDS: Final = 0.1  # the least between rounds of a duty, for other statements

Duty = Callable[[], Awaitable[bool]]  # returns True if there is more to do


class Leader:
    """Competes for the leadership, and does its duties periodically while it leads."""

    def __init__(self, store: Store, *, holder: UUID, clock: Clock, duties: Sequence[Duty]) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._duties = tuple(duties)
        self._due_at = clock.monotonic()
        self.epoch: int | None = None  # None: another process leads

    async def tick(self) -> Seconds | None:
        leadership = await self._store.admin.lead(
            UPKEEP, holder=self._holder, lease=LEADER_TERM_SECONDS
        )
        if leadership is None:
            self.epoch = None
            return None
        if self.epoch != leadership.epoch:
            leader_logger.info("leading, epoch %d", leadership.epoch)
            self.epoch = leadership.epoch
        started = self._clock.monotonic()
        if started >= self._due_at:
            more = [await duty() for duty in self._duties]
            if any(more):
                # A store that is busy takes longer, and gets longer pauses.
                took = self._clock.monotonic() - started
                return min(max(DUTY_PAUSE_SECONDS, took), LEADER_TERM_SECONDS / 3)
            self._due_at = self._clock.monotonic() + DUTY_SECONDS
        return None

    async def resign(self) -> None:
        """Give up the leadership."""
        if self.epoch is not None:
            await self._store.admin.resign(UPKEEP, holder=self._holder)
            self.epoch = None


# Removal of old rows, a bounded number at a time.

janitor_logger = logging.getLogger("daybell.janitor")


class Janitor:
    """Removes history after the retention time, and prepares storage for the next days."""

    def __init__(self, store: Store, policy: Retention) -> None:
        self._store = store
        self._policy = policy

    async def clean(self) -> bool:
        """Remove one batch; return True if there is more."""
        swept = await self._store.upkeep(sweeps=(SweepKind.RETAIN,), policy=self._policy)
        removed = swept.removed
        rows = removed.executions + removed.attempts + removed.ticks + removed.workers
        rows += removed.gates + removed.jobs
        if rows or removed.partitions:
            janitor_logger.info("removed %d old rows and %d whole days", rows, removed.partitions)
        if not removed.is_complete:
            return True
        for one in (await self._store.upkeep(sweeps=(SweepKind.RECOUNT,))).miscounts:
            janitor_logger.error(
                "gate %s of tenant %s counted %d inside instead of %d; corrected, please report"
                " this",
                one.gate,
                one.tenant,
                one.counted,
                one.inside,
            )
        return False


# Outgoing events: the deliveries of each, enqueued by the leader.

outbox_logger = logging.getLogger("daybell.outbox")

OUTBOX_SECONDS: Final = 1.0  # while there are subscriptions


class Outbox:
    """Enqueues the deliveries of events, each once, whatever processes do so at the same time."""

    def __init__(self, store: Store, *, mint: Callable[[], UUID]) -> None:
        self._store = store
        self._mint = mint

    async def tick(self) -> Seconds | None:
        work = await self._store.admin.outbox_work()
        for one in dispatches(work, self._mint):
            try:
                await self._store.admin.dispatch(one)
            except Unavailable:
                raise
            except DaybellError as error:
                outbox_logger.error("no deliveries for tenant %s: %s", one.tenant, error)
                return OUTBOX_SECONDS
        return AGAIN if len(work.events) >= OUTBOX_BATCH_MAX else OUTBOX_SECONDS


# A process of the cluster: workers, scheduler and upkeep.

logger = logging.getLogger("daybell.engine")

# An idle worker makes less than two statements a second: a claim, and a renewal every five seconds.
SWEEP_SECONDS: Final = 3.0
ADMIT_SECONDS: Final = 20.0  # and after every sweep that finds waiting executions
EXPIRE_SECONDS: Final = 20.0
FOLD_SECONDS: Final = 10.0
ALERT_SECONDS: Final = 10.0
BATCH_MAX: Final = 1000
RUNS_MAX: Final = 100
ADVANCE_ROUNDS: Final = 100


def sweep_seconds(lease: Seconds) -> Seconds:
    """Return the interval of sweeps for dead workers: several per lease."""
    return min(SWEEP_SECONDS, lease / 5)


class Upkeep:
    """The sweeps that every process does: reaping, admission, expiry, and as the leader, removal.

    `lease` is that of the workers.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        lease: Seconds = LEASE_SECONDS,
        policy: Retention = DEFAULT_RETENTION,
    ) -> None:
        self._store = store
        self.reaper = Reaper(store, clock=clock, events=events, lease=lease)
        self.janitor = Janitor(store, policy)
        self.alerts = Alerts(store, mint=mint)
        self.outbox = Outbox(store, mint=mint)
        self.leader = Leader(store, holder=mint(), clock=clock, duties=[self.janitor.clean])
        self._admission = Loop("admit", self._admit, interval=ADMIT_SECONDS, clock=clock)
        self._expiry = Loop("expire", self._expire, interval=EXPIRE_SECONDS, clock=clock)
        self._loops = (
            Loop("reap", self._reap, interval=sweep_seconds(lease), clock=clock),
            self._admission,
            self._expiry,
            Loop("fold", self._fold, interval=FOLD_SECONDS, clock=clock),
            Loop("alert", self._alert, interval=ALERT_SECONDS, clock=clock),
            Loop("lead", self.leader.tick, interval=LEADER_TERM_SECONDS / 2, clock=clock),
        )

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self._loops:
            await loop.stop()
        try:
            await self.leader.resign()
        except Unavailable as error:
            logger.warning("could not resign, the leadership will end by itself: %s", error)

    async def _reap(self) -> Seconds | None:
        """Reap, and wake the sweeps for gates and expired waits if the reaper found any. These have
        their own loops, because locks may delay them.
        """
        pause = await self.reaper.tick()
        if self.reaper.is_any_waiting:
            self._admission.wake()
        if self.reaper.is_any_overdue:
            self._expiry.wake()
        return pause

    async def _admit(self) -> Seconds | None:
        """Admit due executions at gates, and continue runs that a dead worker left unfinished."""
        for _ in range(ADVANCE_ROUNDS):
            swept = await self._store.upkeep(RUNS_MAX, sweeps=(SweepKind.ADVANCE,))
            if not swept.advanced:
                break
        return await self._sweep(SweepKind.ADMIT)

    async def _fold(self) -> Seconds | None:
        """Add what has ended to the statistics, in the process that leads. With subscriptions, also
        enqueue the outgoing events.
        """
        if self.leader.epoch is None:
            return None
        folded = (await self._store.upkeep(BATCH_MAX, sweeps=(SweepKind.FOLD,))).folded
        pause = await self.outbox.tick() if folded.is_told else None
        return AGAIN if folded.has_more else pause

    async def _alert(self) -> Seconds | None:
        """Evaluate the alert rules, in the process that leads."""
        return None if self.leader.epoch is None else await self.alerts.tick()

    async def _expire(self) -> Seconds | None:
        """Expire executions and waits for events, independent of workers that would claim them."""
        return await self._sweep(SweepKind.EXPIRE)

    async def _sweep(self, sweep: SweepKind) -> Seconds | None:
        swept = await self._store.upkeep(BATCH_MAX, sweeps=(sweep,))
        return AGAIN if swept.is_full(BATCH_MAX) else None


class Watcher(Protocol):
    """A part of a process that publishes events of its surroundings."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class Process:
    """Workers, a scheduler and upkeep on one store."""

    def __init__(
        self,
        *,
        workers: Sequence[Worker] = (),
        upkeep: Upkeep | None = None,
        scheduler: Scheduler | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.watchers = tuple(watchers)
        self.workers = tuple(workers)
        self.upkeep = upkeep
        self.scheduler = scheduler

    async def start(self, *, patiently: bool = False) -> None:
        """Start all, or none. If the store is away, raise Unavailable or wait for it."""
        try:
            for worker in self.workers:
                await (worker.start_patiently() if patiently else worker.start())
            # After the workers: their first claims do not queue behind the sweeps.
            if self.upkeep is not None:
                self.upkeep.start()
            if self.scheduler is not None:
                self.scheduler.start()
            for watcher in self.watchers:
                watcher.start()
        except BaseException:
            await self.stop()
            raise

    def wake(self) -> None:
        """Trigger a claim."""
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Drain the workers first, so that others can take returned executions early."""
        for watcher in self.watchers:
            await watcher.stop()
        if self.scheduler is not None:
            await self.scheduler.stop()
        try:
            await asyncio.gather(*(worker.stop() for worker in self.workers))
        finally:
            if self.upkeep is not None:
                await self.upkeep.stop()

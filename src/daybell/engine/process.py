"""A process in the cluster: workers, scheduler and upkeep, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from daybell.core.units import Seconds
from daybell.core.views import Retention
from daybell.core.worker import LEASE_SECONDS
from daybell.engine.clock import Clock
from daybell.engine.events import Events
from daybell.engine.loop import AGAIN, Loop
from daybell.engine.scheduler import Scheduler
from daybell.engine.upkeep import LEADER_TERM_SECONDS, Janitor, Leader, Reaper
from daybell.engine.worker import Worker
from daybell.errors import Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.engine")

# An idle worker should ask its database for next to nothing: with a claim a second and a renewal
# in five, these make less than two statements a second.
SWEEP_SECONDS: Final = 3.0
ADMIT_SECONDS: Final = 20.0  # and after every sweep that finds something waiting
EXPIRE_SECONDS: Final = 20.0
BATCH_MAX: Final = 1000
RUNS_MAX: Final = 100
ADVANCE_ROUNDS: Final = 100
DEFAULT_RETENTION: Final = Retention()


def sweep_seconds(lease: Seconds) -> Seconds:
    """How often to look for the dead: where leases are short, a few times in each."""
    return min(SWEEP_SECONDS, lease / 5)


class Upkeep:
    """What any node does for all: reaping, admission, expiry, and, if it leads, cleaning up.

    `lease` is that of the workers.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        retention: Retention = DEFAULT_RETENTION,
        lease: Seconds = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self.reaper = Reaper(store, clock=clock, events=events, lease=lease)
        self.janitor = Janitor(store, retention)
        self.leader = Leader(store, holder=mint(), clock=clock, duties=[self.janitor.clean])
        self._admission = Loop("admit", self._admit, interval=ADMIT_SECONDS, clock=clock)
        self._expiry = Loop("expire", self._expire, interval=EXPIRE_SECONDS, clock=clock)
        self._loops = (
            Loop("reap", self._reap, interval=sweep_seconds(lease), clock=clock),
            self._admission,
            self._expiry,
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
        """Look for the dead, and in passing for what waits at gates, or has waited long enough for
        an event. Those have loops of their own, because what they need may be locked for a while,
        and the dead are not to lie about meanwhile.
        """
        pause = await self.reaper.tick()
        if self.reaper.is_any_waiting:
            self._admission.wake()
        if self.reaper.is_any_overdue:
            self._expiry.wake()
        return pause

    async def _admit(self) -> Seconds | None:
        """Let delayed executions through their gates when their time has come, and go on with runs
        of workflows whose helpers have died in the middle of something.
        """
        for _ in range(ADVANCE_ROUNDS):
            if not await self._store.advance_runs(limit=RUNS_MAX):
                break
        return AGAIN if await self._store.admit(limit=BATCH_MAX) >= BATCH_MAX else None

    async def _expire(self) -> Seconds | None:
        """End what is too late to start, also where no worker asks for it, and waits for events
        whose time is over.
        """
        return AGAIN if await self._store.expire(limit=BATCH_MAX) >= BATCH_MAX else None


class Process:
    """Workers, a scheduler and upkeep on one store."""

    def __init__(
        self,
        *,
        workers: Sequence[Worker] = (),
        upkeep: Upkeep | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.workers = tuple(workers)
        self.upkeep = upkeep
        self.scheduler = scheduler

    async def start(self, *, patiently: bool = False) -> None:
        """Start all, or none: raises Unavailable if the store is away, or waits for it."""
        try:
            for worker in self.workers:
                await (worker.start_patiently() if patiently else worker.start())
            # After them: the first claim does not queue for a connection behind the sweeps.
            if self.upkeep is not None:
                self.upkeep.start()
            if self.scheduler is not None:
                self.scheduler.start()
        except BaseException:
            await self.stop()
            raise

    def wake(self) -> None:
        """Something may be there to claim."""
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Drain the workers first: what they give back, others can take while the rest ends."""
        if self.scheduler is not None:
            await self.scheduler.stop()
        try:
            await asyncio.gather(*(worker.stop() for worker in self.workers))
        finally:
            if self.upkeep is not None:
                await self.upkeep.stop()

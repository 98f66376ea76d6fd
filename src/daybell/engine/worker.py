"""A worker: dispatcher, executor, completer, reporter and heartbeat under one lease.

When the lease is lost, everything in this worker's hands is somebody else's: it stops its own work,
reports nothing, and begins anew under a new id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.job import DEFAULT_TENANT
from daybell.core.lifecycle import Transition, after_release
from daybell.core.worker import NewWorker
from daybell.engine.clock import Clock
from daybell.engine.completer import Completer
from daybell.engine.dispatcher import POLL_SECONDS, Dispatcher
from daybell.engine.events import Events
from daybell.engine.executor import Executor, Stop
from daybell.engine.handlers import Handlers
from daybell.engine.heartbeat import Heartbeat
from daybell.engine.leases import Leases
from daybell.engine.loop import Loop
from daybell.engine.queues import Queues
from daybell.engine.reporter import SHOWN_AFTER_SECONDS, Reporter
from daybell.errors import Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

LEASE_SECONDS: Final = 15.0
DRAIN_SECONDS: Final = 30.0
# A worker that could not renew stops its work this long before the lease can end.
MARGIN: Final = 0.2


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    name: str = "worker"
    tenant: str = DEFAULT_TENANT
    queues: str = ""  # as `Queues.parse` reads it; empty: the default queue
    kinds: tuple[str, ...] = ("task",)
    concurrency: int = 100
    lease: Seconds = LEASE_SECONDS
    drain_timeout: Seconds = DRAIN_SECONDS
    host: str = ""
    pid: int = 0
    version: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class Worker:
    """Claims and runs executions until it is told to stop."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        options: WorkerOptions,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._mint = mint
        self._events = events
        self._handlers = handlers
        self._queues = Queues.parse(options.queues)
        self.is_draining = asyncio.Event()
        self._restart: asyncio.Task[None] | None = None
        self._assemble()

    def _assemble(self) -> None:
        """Make the parts, under a new id."""
        options, clock, store = self._options, self._clock, self._store
        self.id = self._mint()
        self._leases = Leases()
        tenant, worker = options.tenant, self.id
        self.completer = Completer(
            store, leases=self._leases, events=self._events, tenant=tenant, worker=worker
        )
        self.executor = Executor(
            self._handlers, clock=clock, finish=self._finish, freed=self._freed
        )
        self.dispatcher = Dispatcher(
            store,
            self.executor,
            queues=self._queues,
            kinds=options.kinds,
            concurrency=options.concurrency,
            leases=self._leases,
            clock=clock,
            mint=self._mint,
            events=self._events,
            tenant=tenant,
            worker=worker,
        )
        self.heartbeat = Heartbeat(
            store,
            self.executor,
            lease=options.lease,
            leases=self._leases,
            clock=clock,
            on_drain=self.is_draining.set,
            on_lost=self._lost,
            tenant=tenant,
            worker=worker,
        )
        self.reporter = Reporter(store, self.executor, clock=clock, tenant=tenant, worker=worker)
        self._claims = Loop("claim", self.dispatcher.tick, interval=POLL_SECONDS, clock=clock)
        self._finishes = Loop("finish", self.completer.tick, interval=60.0, clock=clock)
        self._renewals = Loop("renew", self._beat, interval=options.lease / 3, clock=clock)
        self._reports = Loop(
            "report", self.reporter.tick, interval=SHOWN_AFTER_SECONDS, clock=clock
        )
        self.dispatcher.wake = self._claims.wake
        self.completer.wake = self._finishes.wake

    async def start(self) -> None:
        """Register and begin to claim. Raises Unavailable if the store is away."""
        options = self._options
        renewal = await self._store.register(
            options.tenant,
            NewWorker(
                id=self.id,
                name=options.name,
                host=options.host,
                pid=options.pid,
                version=options.version,
                queues=self._queues.names,
                kinds=options.kinds,
                labels=options.labels,
                capacity=options.concurrency,
            ),
            lease=options.lease,
        )
        self._clock.correct(renewal.now)
        for loop in (self._renewals, self._finishes, self._reports, self._claims):
            loop.start()

    def wake(self) -> None:
        """Something may be there to claim."""
        self._claims.wake()

    async def stop(self) -> None:
        """Drain: claim no more, let what runs end, give the rest back, and say goodbye."""
        if self._restart is not None:
            await asyncio.gather(self._restart, return_exceptions=True)
        unstarted = self.dispatcher.close()
        await self._claims.stop()
        for claimed in [*unstarted, *self.dispatcher.close()]:
            self.completer.add(claimed, after_release(claimed))
        try:
            await asyncio.wait_for(self.executor.wait(), self._options.drain_timeout)
        except TimeoutError:
            logger.warning("%d executions did not end in time and go back", len(self.executor))
            self.executor.stop_all(Stop.RELEASE)
            await self.executor.wait()
        await self._reports.stop()
        await self._flush()
        await self._renewals.stop()
        try:
            await self._store.retire(self._options.tenant, self.id)
        except Unavailable as error:
            logger.warning("could not say goodbye, the lease will end by itself: %s", error)

    async def _flush(self) -> None:
        """Send what has ended; while the lease can still hold, also through a store's absence."""
        deadline = self._clock.monotonic() + self._options.lease
        while len(self.completer) and self._clock.monotonic() < deadline:
            await self._finishes.pass_once()
        await self._finishes.stop()

    def _finish(self, claimed: Claimed, move: Transition) -> None:
        self.completer.add(claimed, move)

    def _freed(self) -> None:
        self.dispatcher.fill()

    async def _beat(self) -> Seconds | None:
        try:
            return await self.heartbeat.tick()
        except Unavailable:
            silent = self._clock.monotonic() - self.heartbeat.renewed_at
            if silent > self._options.lease * (1 - MARGIN):
                logger.error("no renewal for %.1f s: stopping before the lease ends", silent)
                self._lost()
            raise

    def _lost(self) -> None:
        """The lease is gone or as good as gone: stop, report nothing, begin anew."""
        if self._restart is None:
            logger.error("worker %s lost its lease; what it ran is given to others", self.id)
            self._restart = asyncio.get_running_loop().create_task(self._begin_anew())

    async def _begin_anew(self) -> None:
        self.dispatcher.close()
        self.executor.stop_all(Stop.ABANDON)
        await asyncio.gather(
            self._claims.stop(), self._finishes.stop(), self._reports.stop(), self._renewals.stop()
        )
        await self.executor.wait()
        self._assemble()
        again = Loop("register", self._register_again, interval=3600.0, clock=self._clock)
        again.start()
        await again.until_first()
        await again.stop()
        self._restart = None

    async def _register_again(self) -> Seconds | None:
        await self.start()
        return None

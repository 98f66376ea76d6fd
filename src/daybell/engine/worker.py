"""A worker: dispatcher, executor, completer, reporter and heartbeat under one lease.

An `Incarnation` is all of that under one id and one lease. When the lease is lost, other workers
may run its executions: it stops its attempts, and `Worker` replaces it. The fence rejects its late
reports.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.flow import LimitChange
from daybell.core.job import DEFAULT_TENANT
from daybell.core.placement import Site, seat_of
from daybell.core.units import Seconds
from daybell.core.worker import LEASE_SECONDS, SHARED, NewWorker
from daybell.engine.attempt import (
    GRACE_SECONDS,
    AttemptHost,
    Fence,
    Handlers,
    Recorder,
    Stop,
    TraceReader,
)
from daybell.engine.claim import POLL_SECONDS, Dispatcher, Placement, Queues, TaskRouting
from daybell.engine.events import Events
from daybell.engine.execute import Executor
from daybell.engine.lease import Heartbeat, Leases, Pacemaker
from daybell.engine.loop import Clock, Loop
from daybell.engine.report import SHOWN_AFTER_SECONDS, Completer, Reporter
from daybell.engine.tenants import SharedStore, TenantTurns
from daybell.errors import LeaseLost, Unavailable
from daybell.store.protocol import Store

DRAIN_SECONDS: Final = 30.0


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a worker."""

    name: str = "worker"
    tenant: str = DEFAULT_TENANT
    queues: str = ""  # in the syntax of `Queues.parse`; empty: the default queue
    kinds: tuple[str, ...] = ("task",)
    concurrency: int = 100
    ahead: Seconds = 0.0  # minimum time span of executions to claim ahead
    lease: Seconds = LEASE_SECONDS
    poll: Seconds = POLL_SECONDS  # between two claims that find nothing, without a wake-up
    drain_timeout: Seconds = DRAIN_SECONDS
    host: str = ""
    pid: int = 0
    version: str = ""
    # Task names, each with its queue, for other workers; None: not published.
    tasks: dict[str, str] | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    resources: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    has_near: bool = False  # tasks of its code prefer the worker of their parent
    # The tenants of a worker under SHARED; none: all.
    tenants: tuple[str, ...] = ()


# Detection of tasks that block the event loop, for instance with a long computation or a blocking
# call. A thread watches the loop from outside: if it has not turned for a while, the current task
# is the cause.

logger = logging.getLogger("daybell.worker")

_PACKAGE: Final = str(Path(__file__).parents[1])

BLOCKED_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.1
FRAMES_MAX: Final = 8
ADVICE: Final = " Make it a plain `def` (it will run in a thread), or await what it waits for."
STUCK_SECONDS: Final = 60.0  # after this time the loop counts as dead


class LoopWatch:
    """Watches the running event loop. `claimed_of` returns the execution of a task; `on_stuck` ends
    the process, if it may.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        claimed_of: Callable[[asyncio.Task[object]], Claimed | None],
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        self._on_stuck = on_stuck
        self._clock = clock
        self._find_claimed = claimed_of
        self._turned_at = clock.monotonic()
        self._is_asked = False
        self._is_warned = False
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.blocked = 0  # number of detections

    def start(self) -> None:
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, ident), name="daybell-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()

    def look(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        """Check the loop once, from the thread."""
        stood: Seconds = self._clock.monotonic() - self._turned_at
        if stood >= BLOCKED_SECONDS and self._is_asked and not self._is_warned:
            self._is_warned = True
            self.blocked += 1
            self._warn(loop, ident, stood)
        if stood >= STUCK_SECONDS and self._is_asked and self._on_stuck is not None:
            logger.error("the event loop has stood still for %.0f s; the process ends", stood)
            self._on_stuck()
        if not self._is_asked:
            self._is_asked = True
            self._turned_at = self._clock.monotonic()
            loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        """Note that the loop turns."""
        self._turned_at = self._clock.monotonic()
        self._is_asked = self._is_warned = False

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._is_stopped.wait(LOOK_SECONDS):
            try:
                self.look(loop, ident)
            except RuntimeError:
                return  # the loop is closed

    def _warn(self, loop: asyncio.AbstractEventLoop, ident: int, stood: Seconds) -> None:
        task = asyncio.current_task(loop)
        claimed = None if task is None else self._find_claimed(task)
        frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]
        where = "".join(traceback.format_list(_user_frames(frame)[-FRAMES_MAX:]))
        logger.warning(
            "%s has blocked the event loop for %.1f s; everything else waits.%s It is here:\n%s",
            _describe_job(claimed),
            stood,
            ADVICE if claimed is None or claimed.kind == "task" else "",
            where,
        )


def _describe_job(claimed: Claimed | None) -> str:
    if claimed is None:
        return "something"
    if claimed.kind == "task":
        return f"the task {claimed.job!r}"
    return f"the job {claimed.job!r} ({claimed.kind})"


def _user_frames(frame: FrameType | None) -> list[traceback.FrameSummary]:
    """Return the frames after the last one of this package, or the whole stack."""
    stack = traceback.extract_stack(frame)
    ours = [place for place, each in enumerate(stack) if each.filename.startswith(_PACKAGE)]
    return stack[ours[-1] + 1 :] if ours and ours[-1] + 1 < len(stack) else stack


PARTING_SECONDS: Final = 0.5  # for reports of a lost lease when the worker stops


class Incarnation:
    """A worker under one id and one lease, from its registration until the lease is lost or left.

    Parts are created in the order of their dependencies. Where two depend on each other, the
    earlier one gets a function that calls the later one.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        options: WorkerOptions,
        *,
        queues: Queues,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        pacemaker: Pacemaker | None,
        replaces: UUID | None,  # an id with a lease that was given up because of the store
        announce: Callable[[UUID], None] | None,  # called before the registration
        on_registered: Callable[[], Awaitable[None]],
        on_drain: Callable[[], None],
        on_lost: Callable[[Incarnation, asyncio.Task[None]], None],
        on_stuck: Callable[[], None] | None,  # ends the process
        on_tenant: Callable[[str], None] | None,
    ) -> None:
        self.id = worker = mint()
        self.is_registered = self.is_lost = False
        self._is_announced = self._is_over = self._is_excused = False
        self._store = store
        self._options = options
        self._queues = queues
        self._clock = clock
        self._pacemaker = pacemaker
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._replaces = replaces
        self._announce = announce
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._on_stuck = on_stuck
        self._mint = mint
        self._events = events
        tenant = options.tenant
        self.leases = Leases(on_named=self._claim_again)
        self._tenants: TenantTurns | None = None
        if tenant == SHARED:
            store = self._share(on_tenant)
        self._routings: dict[str, TaskRouting] = {}
        self.recorder = Recorder(
            store, tenant=tenant, worker=worker, clock=clock, stop_stale=self._stop_stale
        )
        self.reporter = Reporter(store, clock=clock, tenant=tenant, worker=worker)
        self.completer = self._make_completer()
        self.executor = self._make_executor(handlers)
        self.dispatcher = self._make_dispatcher()
        self.heartbeat = self._make_heartbeat(on_drain)
        self._claims = Loop("claim", self._claim, interval=options.poll, clock=clock)
        self._finishes = Loop("finish", self.completer.tick, interval=60.0, clock=clock)
        self._renewals = Loop("renew", self._beat, interval=options.lease / 3, clock=clock)
        reports = Loop("report", self._report, interval=SHOWN_AFTER_SECONDS, clock=clock)
        self._loops = [self._renewals, self._finishes, reports, self._claims]
        if pacemaker is None:
            watch = Loop("watch", self.heartbeat.watch, interval=options.lease, clock=clock)
            self._loops.append(watch)

    def _share(self, on_tenant: Callable[[str], None] | None) -> Store:
        """Let several tenants take turns. Return the store for the other parts."""
        self._tenants = TenantTurns(
            self._store,
            self._options.tenants,
            queues=self._queues.names,
            clock=self._clock,
            on_tenant=on_tenant,
        )
        shared = SharedStore(self._store, known=self.leases.known, on_ends=self._note_ends)
        self._store = cast("Store", shared)
        return self._store

    def _make_completer(self) -> Completer:
        return Completer(
            self._store,
            tenant=self._options.tenant,
            worker=self.id,
            leases=self.leases,
            events=self._events,
            write=self.reporter.write,
            wake=lambda: self._finishes.wake(),
            on_returned=self.claim_soon,  # the claim learns when it is due
            on_written=lambda: self.dispatcher.make_room(),
        )

    def _routing_of(self, tenant: str) -> TaskRouting:
        routing = self._routings.get(tenant)
        if routing is None:
            routing = TaskRouting(self._store, tenant=tenant, clock=self._clock)
            self._routings[tenant] = routing
        return routing

    def _make_executor(self, handlers: Handlers) -> Executor:
        store, worker = self._store, self.id
        host = AttemptHost(
            self._clock,
            mask=handlers.mask,
            settings=lambda: handlers.settings,
            begin=partial(store.queue.begin, worker),
            pause=lambda claimed, pause: store.catalog.change_limit(
                claimed.tenant, pause.name, LimitChange(pause=pause.seconds, of=claimed.id)
            ),
            recorder=self.recorder,
            expand=lambda claimed, plan: store.runs.expand(
                claimed.tenant, worker=worker, claimed=claimed, plan=plan
            ),
            read_trace=TraceReader(store).read,
        )
        return Executor(
            handlers,
            worker=worker,
            host=host,
            clock=self._clock,
            finish=self.completer.add,
            freed=self._fill,
            write=self.reporter.write,
            announce=self.reporter.announce,
            route=lambda claimed, lacking: self._routing_of(claimed.tenant).delay(claimed, lacking),
            lose=self._lose_late,
        )

    def _make_dispatcher(self) -> Dispatcher:
        options, completer = self._options, self.completer
        return Dispatcher(
            self._store,
            self.executor,
            tenant=options.tenant,
            worker=self.id,
            queues=self._queues,
            placement=Placement(
                self._store,
                site=Site(
                    labels=options.labels, resources=options.resources, seat=seat_of(self.id)
                ),
                has_near=options.has_near,
                kinds=options.kinds,
                clock=self._clock,
            ),
            concurrency=options.concurrency,
            ahead=options.ahead,
            poll=options.poll,
            leases=self.leases,
            clock=self._clock,
            mint=self._mint,
            events=self._events,
            elsewhere=self._routing_of,
            tenants=self._tenants,
            wake=lambda: self._claims.wake(),
            room=lambda: completer.room,
            give_back=completer.give_back,
            lose=self._lose_late,
        )

    def _make_heartbeat(self, on_drain: Callable[[], None]) -> Heartbeat:
        return Heartbeat(
            self._store,
            self.executor,
            tenant=self._options.tenant,
            worker=self.id,
            lease=self._options.lease,
            leases=self.leases,
            clock=self._clock,
            on_drain=on_drain,
            on_lost=self.lose,
            on_end=self._end_process,
        )

    # --- from the registration to the end -----------------------------------------------------

    async def start(self) -> None:
        """Register and start to claim. Raises Unavailable if the store is away."""
        options = self._options
        if self._announce is not None and not self._is_announced:
            self._is_announced = True
            self._announce(self.id)  # before the registration: the process may die at any moment
        if self._pacemaker is not None:
            await self._pacemaker.open()  # before there is a lease to renew
        sent = self._clock.monotonic()
        renewal = await self._store.queue.register(
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
                resources=options.resources,
                capacity=options.concurrency,
                tasks=options.tasks,
                tenants=options.tenants,
            ),
            lease=options.lease,
            replaces=self._replaces,
        )
        self.is_registered = True
        self._clock.correct(renewal.now, sent)
        self.heartbeat.accept_registration(sent)
        for loop in self._loops:
            loop.start()
        if self._pacemaker is not None:
            self._event_loop = asyncio.get_running_loop()
            self._pacemaker.start(self.heartbeat)
        await self._on_registered()

    def start_soon(self) -> None:
        """Start as soon as the store is available."""
        self._renewals.start()  # registers, then starts the other loops

    async def drain(self) -> None:
        """Stop claiming, wait for running attempts, return the rest, and report all ends."""
        self.claim_no_more()
        await self._claims.stop()
        self.claim_no_more()  # once more, for the executions of the last claim
        await self._return_unanswered()
        if not await self._wait(within=self._options.drain_timeout):
            logger.warning("returned %d execution(s) that did not end in time", len(self.executor))
            self.executor.stop_all(Stop.RELEASE)
            # A limited wait: a thread in C code does not react to a stop.
            if not await self._wait(within=GRACE_SECONDS):
                self.executor.abandon()
        await self._flush()

    def claim_no_more(self) -> None:
        """Return unstarted executions; running attempts continue."""
        for claimed in self.dispatcher.close():
            self.completer.give_back(claimed)

    async def stop_loops(self) -> None:
        """Wait for calls under way, and make no others."""
        beating = [] if self._pacemaker is None else [self._pacemaker.stop()]
        await asyncio.gather(*(loop.stop() for loop in self._loops), *beating)

    async def leave(self) -> None:
        """Retire from the store, so that no process waits for the lease to end."""
        if not self.is_registered or self.is_lost:
            return
        tenant, leases = self._options.tenant, self.leases.known()
        try:
            if leases:  # claims without an answer
                await self._store.queue.release(tenant, worker=self.id, leases=leases)
            await self._store.queue.retire(tenant, self.id)
        except Unavailable as error:
            logger.warning("could not retire; the lease will end by itself: %s", error)

    async def _return_unanswered(self) -> None:
        """Return the executions of a claim without an answer. The claim may still be under way, so
        `leave` repeats this.
        """
        leases = self.dispatcher.unanswered
        if leases and self.is_registered and not self.is_lost:
            with suppress(Unavailable):
                await self._store.queue.release(self._options.tenant, worker=self.id, leases=leases)

    async def _wait(self, *, within: Seconds) -> bool:
        """Wait for running attempts; False after the timeout."""
        try:
            await asyncio.wait_for(self.executor.wait(), within)
        except TimeoutError:
            return False
        return True

    async def _flush(self) -> None:
        """Report all ends, waiting for an absent store until the lease may have ended.

        After `sys.exit()` in a task the event loop has ended, and nothing is sent.
        """
        deadline = self._clock.monotonic() + self._options.lease
        while len(self.completer) and not self.is_lost and self._clock.monotonic() < deadline:
            if not self._finishes.is_running:
                return
            await self._finishes.pass_once()

    # --- a lost lease -------------------------------------------------------------------------

    def lose(self, *, is_store_away: bool = False) -> None:
        """Stop all work: the lease is lost, or about to end.

        Ends are still reported, and may come too late. If the store was away, stopped attempts are
        returned uncharged when it is back; the registration of the next incarnation names this id,
        so that the reaper does not charge them, either.
        """
        if self.is_lost:
            return
        self.is_lost = True
        why = "the store is away" if is_store_away else "other workers may run its executions"
        logger.error("worker %s lost its lease; %s", self.id, why)
        unstarted = self.dispatcher.close()
        self.recorder.close()
        if is_store_away:
            self._is_excused = self.executor.hands_back = True
            for claimed in unstarted:
                self.completer.give_back(claimed)
        self.executor.detach_lease_free()
        self._loops.remove(self._finishes)
        draining = asyncio.get_running_loop().create_task(self._drain_old_lease())
        self.executor.stop_all(Stop.ABANDON)
        self._on_lost(self, draining)

    @property
    def excused(self) -> UUID | None:
        """The id that the next incarnation names in its registration."""
        if not self.is_registered:  # it had no executions
            return self._replaces
        return self.id if self._is_excused else None

    async def wait_for_stopped(self) -> None:
        """Wait for the attempts of a lost lease, then abandon the remaining ones."""
        if not await self._wait(within=GRACE_SECONDS):
            self._end_process()
            self.executor.abandon()

    async def _drain_old_lease(self) -> None:
        """Report ends of a lost lease: possibly no other worker has these executions yet."""
        try:
            await self.executor.wait()
            await self.executor.wait_for_detached()
            while len(self.completer) and self._finishes.is_running:
                await self._finishes.pass_once()
        except asyncio.CancelledError:  # by a worker that stops; then the store may be closed
            await self._finishes.stop()
            raise
        await self._finishes.stop()

    def end(self) -> Coroutine[Any, Any, None]:
        """Stop renewals; await the result to stop the loops, which may take long."""
        self._is_over = True
        return self.stop_loops()

    def _end_process(self) -> None:
        """End the process before the lease does. Called in the pacemaker's thread, if any."""
        if len(self.executor) and self._on_stuck is not None:
            logger.error("%d executions cannot be stopped; the process ends", len(self.executor))
            self._on_stuck()

    # --- calls between the parts --------------------------------------------------------------

    def claim_soon(self) -> None:
        """Trigger a claim: there may be new work."""
        if self._tenants is not None:
            self._tenants.wake()
        self._claims.wake()

    def _note_ends(self, tenant: str) -> None:
        """Claim again for a tenant that was at its quota."""
        if self._tenants is not None and self._tenants.note_ends(tenant):
            self._claims.wake()

    def renew_soon(self) -> None:
        """Trigger a renewal."""
        if self._pacemaker is None:
            self._renewals.wake()
        else:
            self._pacemaker.wake()

    def _claim_again(self) -> None:
        """Claim after a renewal. Called in the pacemaker's thread, if there is one."""
        if self._event_loop is None:
            self._claims.wake()
        else:
            self._event_loop.call_soon_threadsafe(self._claims.wake)

    def _fill(self) -> None:
        self.dispatcher.fill()

    def _stop_stale(self, fence: Fence) -> None:
        self.executor.stop({fence}, Stop.STALE)

    def _lose_late(self) -> None:
        """Handle the end of the lease before the watch does."""
        self.lose(is_store_away=self.heartbeat.is_store_late())

    async def _claim(self) -> Seconds | None:
        try:
            return await self.dispatcher.tick()
        except LeaseLost:
            self.lose()
            return None

    async def _report(self) -> Seconds | None:
        await self.reporter.write([run for run in self.executor if run.started is not None])
        return None

    async def _beat(self) -> Seconds | None:
        if self._is_over:
            return None
        if self.is_registered:
            return None if self._pacemaker is not None else await self.heartbeat.tick()
        try:
            await self.start()
        except LeaseLost:  # registered long ago, but the answer was lost
            self.lose()
        return None


class Worker:
    """Claims and runs executions until it is stopped, with one incarnation after the other.

    Without a pacemaker, the event loop renews the lease. `on_stuck` ends the process, if it may,
    when attempts of a lost lease do not stop. `announce` is called with every id, `on_tenant` with
    every tenant that a worker of several tenants finds.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        options: WorkerOptions,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        pacemaker: Pacemaker | None = None,
        on_stuck: Callable[[], None] | None = None,
        announce: Callable[[UUID], None] | None = None,
        on_tenant: Callable[[str], None] | None = None,
    ) -> None:
        self._announce = announce
        self._on_tenant = on_tenant
        self._pacemaker = pacemaker
        self._on_stuck = on_stuck
        self._store = store
        self._options = options
        self._clock = clock
        self._mint = mint
        self._events = events
        self._handlers = handlers
        self._queues = Queues.parse(options.queues)
        self.is_draining = asyncio.Event()
        self.has_registered = asyncio.Event()  # for the first time
        self._restart: asyncio.Task[None] | None = None
        self._draining: dict[asyncio.Task[None], Incarnation] = {}  # with a lost lease
        self._is_stopping = False
        self._ending: set[asyncio.Task[None]] = set()  # loops of lost leases
        self._stop_listening: Callable[[], Awaitable[None]] | None = None
        self._loop_watch: LoopWatch | None = None
        self.current = self._incarnate()

    def _incarnate(self, *, replaces: UUID | None = None) -> Incarnation:
        return Incarnation(
            self._store,
            self._handlers,
            self._options,
            queues=self._queues,
            clock=self._clock,
            mint=self._mint,
            events=self._events,
            pacemaker=self._pacemaker,
            replaces=replaces,
            announce=self._announce,
            on_registered=self._listen,
            on_drain=self.is_draining.set,
            on_lost=self._replace_lost,
            on_stuck=self._on_stuck,
            on_tenant=self._on_tenant,
        )

    @property
    def id(self) -> UUID:
        """The current id."""
        return self.current.id

    @property
    def executor(self) -> Executor:
        """The attempts under the current lease."""
        return self.current.executor

    async def start(self) -> None:
        """Register and start to claim. Raises Unavailable if the store is away."""
        await self.current.start()

    async def start_patiently(self) -> None:
        """Start, or if the store is away, start when it is available."""
        try:
            await self.start()
        except Unavailable as error:
            logger.warning("cannot register yet; trying again: %s", error)
            self.current.start_soon()

    def claim_no_more(self) -> None:
        """Return unstarted executions; running attempts continue."""
        self.current.claim_no_more()

    def wake(self) -> None:
        """Trigger a claim."""
        self.current.claim_soon()

    def _find_claimed(self, task: asyncio.Task[object]) -> Claimed | None:
        return next((run.claimed for run in self.executor if run.task is task), None)

    async def _listen(self) -> None:
        """Watch the event loop, and listen for notifications; polling works without them."""
        self.has_registered.set()
        if self._loop_watch is None:
            self._loop_watch = LoopWatch(
                clock=self._clock, claimed_of=self._find_claimed, on_stuck=self._on_stuck
            )
            self._loop_watch.start()
        if self._stop_listening is None:
            try:
                self._stop_listening = await self._store.listen(
                    self._options.tenant,
                    self._queues.names,
                    self.wake,
                    ask=lambda: self.current.renew_soon(),
                )
            except Unavailable as error:
                logger.warning("no notifications of executions, polling every second: %s", error)

    async def stop(self) -> None:
        """Drain: stop claiming, wait for running attempts, return the rest, and retire."""
        self._is_stopping = True
        if self._restart is not None:
            await asyncio.gather(self._restart, return_exceptions=True)
        last = self.current
        await last.drain()
        await self._wait_for_old_leases()
        await last.stop_loops()
        await self._wait_for_old_leases()  # the last one may have been lost meanwhile
        await asyncio.gather(*self._ending)
        if self._pacemaker is not None:
            await self._pacemaker.close()
        if self._stop_listening is not None:
            await self._stop_listening()
            self._stop_listening = None
        if self._loop_watch is not None:
            self._loop_watch.stop()
            self._loop_watch = None
        await last.leave()

    async def _wait_for_old_leases(self) -> None:
        """Wait for detached attempts, and for a moment for other reports."""
        if not self._draining:
            return
        is_detached = any(old.executor.is_detached for old in self._draining.values())
        timeout = self._options.drain_timeout if is_detached else PARTING_SECONDS
        draining = list(self._draining)
        await asyncio.wait(draining, timeout=timeout)
        for task in draining:
            task.cancel()
        await asyncio.gather(*draining, return_exceptions=True)

    def _replace_lost(self, old: Incarnation, draining: asyncio.Task[None]) -> None:
        """Replace an incarnation that has lost its lease."""
        self._draining[draining] = old
        draining.add_done_callback(self._draining.pop)
        if not self._is_stopping:
            self._restart = asyncio.get_running_loop().create_task(self._replace(old))

    async def _replace(self, old: Incarnation) -> None:
        await old.wait_for_stopped()
        # Not awaited: a call without an answer would delay the registration, which excuses the
        # executions of the old lease.
        ending = asyncio.get_running_loop().create_task(old.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        self._restart = None
        if not self._is_stopping:
            self.current = self._incarnate(replaces=old.excused)
            self.current.start_soon()

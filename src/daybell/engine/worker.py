"""A worker: dispatcher, executor, completer, reporter and heartbeat under one lease.

An `Incarnation` is all of that under one id and one lease. When the lease is lost, other workers
may run its executions: it stops its own work, and `Worker` replaces it by another one. The ends
that the old one still reports are fenced, as every report.
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
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.job import DEFAULT_TENANT
from daybell.core.units import Seconds
from daybell.core.worker import LEASE_SECONDS, NewWorker
from daybell.engine.attempt import GRACE_SECONDS, AttemptHost, Fence, Handlers, Recorder, Stop
from daybell.engine.claim import POLL_SECONDS, Dispatcher, Queues, TaskRouting
from daybell.engine.events import Events
from daybell.engine.execute import Executor
from daybell.engine.lease import Heartbeat, Leases, Pacemaker
from daybell.engine.loop import Clock, Loop
from daybell.engine.report import SHOWN_AFTER_SECONDS, Completer, Reporter
from daybell.errors import LeaseLost, Unavailable
from daybell.store.protocol import Store

# How a worker works.

DRAIN_SECONDS: Final = 30.0


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    name: str = "worker"
    tenant: str = DEFAULT_TENANT
    queues: str = ""  # as `Queues.parse` reads it; empty: the default queue
    kinds: tuple[str, ...] = ("task",)
    concurrency: int = 100
    ahead: Seconds = 0.0  # for so long at least, what starts is claimed ahead
    lease: Seconds = LEASE_SECONDS
    drain_timeout: Seconds = DRAIN_SECONDS
    host: str = ""
    pid: int = 0
    version: str = ""
    # The queue that each is meant for, by name; None: others are not told.
    tasks: dict[str, str] | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])


# Noticing a task that blocks the event loop, and naming it.
#
# One coroutine that computes for seconds or calls a blocking function stops every other task of
# its worker, heartbeats included. A thread looks at the loop from outside: if it has not turned
# for a while, whatever runs in it at that moment is the one.

logger = logging.getLogger("daybell.worker")

_PACKAGE: Final = str(Path(__file__).parents[1])

BLOCKED_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.1
FRAMES_MAX: Final = 8
ADVICE: Final = " Make it a plain `def` (it will run in a thread), or await what it waits for."
STUCK_SECONDS: Final = 60.0  # after which nobody hopes for the loop any more


class LoopWatch:
    """Watches the running event loop. `claimed_of` tells what a task executes; `on_stuck` ends
    the process, where it may.
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
        self._claimed_of = claimed_of
        self._turned_at = clock.monotonic()
        self._is_asked = False
        self._is_warned = False
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.blocked = 0  # how often it was found blocked

    def start(self) -> None:
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, ident), name="daybell-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()

    def look(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        """One look from outside."""
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
        """In the loop: it turns."""
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
        claimed = None if task is None else self._claimed_of(task)
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
    """The part of a stack that begins with the user's code; all of it if none is in it."""
    stack = traceback.extract_stack(frame)
    ours = [place for place, each in enumerate(stack) if each.filename.startswith(_PACKAGE)]
    return stack[ours[-1] + 1 :] if ours and ours[-1] + 1 < len(stack) else stack


PARTING_SECONDS: Final = 0.5  # for what a lost lease has left to tell, when the worker stops


class Incarnation:
    """A worker under one id and one lease, from its registration until the lease is lost or left.

    Parts are made in the order of their needs. Where two need each other, the earlier one is given
    a method of this class that calls the later one.
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
        replaces: UUID | None,  # an id whose lease was given up because of the store
        announce: Callable[[UUID], None] | None,  # called before the store knows the id
        on_registered: Callable[[], Awaitable[None]],
        on_drain: Callable[[], None],
        on_lost: Callable[[Incarnation, asyncio.Task[None]], None],
        on_stuck: Callable[[], None] | None,  # ends the process
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
        self.recorder = Recorder(
            store, tenant=tenant, worker=worker, clock=clock, stop_stale=self._stop_stale
        )
        self.reporter = Reporter(store, clock=clock, tenant=tenant, worker=worker)
        self.completer = self._make_completer()
        routing = TaskRouting(store, tenant=tenant, clock=clock)
        self.executor = self._make_executor(handlers, routing)
        self.dispatcher = self._make_dispatcher(routing)
        self.heartbeat = self._make_heartbeat(on_drain)
        self._claims = Loop("claim", self._claim, interval=POLL_SECONDS, clock=clock)
        self._finishes = Loop("finish", self.completer.tick, interval=60.0, clock=clock)
        self._renewals = Loop("renew", self._beat, interval=options.lease / 3, clock=clock)
        reports = Loop("report", self._report, interval=SHOWN_AFTER_SECONDS, clock=clock)
        self._loops = [self._renewals, self._finishes, reports, self._claims]
        if pacemaker is None:
            watch = Loop("watch", self.heartbeat.watch, interval=options.lease, clock=clock)
            self._loops.append(watch)

    def _make_completer(self) -> Completer:
        return Completer(
            self._store,
            tenant=self._options.tenant,
            worker=self.id,
            leases=self.leases,
            events=self._events,
            write=self.reporter.write,
            wake=self._finish_soon,
            on_returned=self.claim_soon,  # to learn when it is due
            on_written=self._make_room,
        )

    def _make_executor(self, handlers: Handlers, routing: TaskRouting) -> Executor:
        store, tenant, worker = self._store, self._options.tenant, self.id
        host = AttemptHost(
            self._clock,
            mask=handlers.mask,
            settings=lambda: handlers.settings,
            begin=partial(store.begin, worker),
            recorder=self.recorder,
            expand=lambda claimed, plan: store.expand(
                tenant, worker=worker, claimed=claimed, plan=plan
            ),
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
            route=routing.delay,
            lose=self._lose_late,
        )

    def _make_dispatcher(self, routing: TaskRouting) -> Dispatcher:
        options, completer = self._options, self.completer
        return Dispatcher(
            self._store,
            self.executor,
            tenant=options.tenant,
            worker=self.id,
            queues=self._queues,
            kinds=options.kinds,
            concurrency=options.concurrency,
            ahead=options.ahead,
            leases=self.leases,
            clock=self._clock,
            mint=self._mint,
            events=self._events,
            elsewhere=routing,
            wake=self.claim_soon,
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
        """Register and begin to claim. Raises Unavailable if the store is away."""
        options = self._options
        if self._announce is not None and not self._is_announced:
            self._is_announced = True
            self._announce(self.id)  # before the store knows of it: it may be over at any moment
        if self._pacemaker is not None:
            await self._pacemaker.open()  # before there is a lease to renew
        sent = self._clock.monotonic()
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
                tasks=options.tasks,
            ),
            lease=options.lease,
            replaces=self._replaces,
        )
        self.is_registered = True
        self._clock.correct(renewal.now, sent)
        self.heartbeat.registered(sent)
        for loop in self._loops:
            loop.start()
        if self._pacemaker is not None:
            self._event_loop = asyncio.get_running_loop()
            self._pacemaker.start(self.heartbeat)
        await self._on_registered()

    def start_soon(self) -> None:
        """Start as soon as the store is there."""
        self._renewals.start()  # registers, then starts the rest

    async def drain(self) -> None:
        """Claim no more, let running attempts end, return the rest, and report all ends."""
        self.claim_no_more()
        await self._claims.stop()
        self.claim_no_more()  # and what the last claim brought
        await self._return_unanswered()
        if not await self._wait(within=self._options.drain_timeout):
            left = len(self.executor)
            what = "execution" if left == 1 else "executions"
            logger.warning("%d %s did not end in time: back to the queue", left, what)
            self.executor.stop_all(Stop.RELEASE)
            # Not for ever: a thread deep in C does not notice a stop.
            if not await self._wait(within=GRACE_SECONDS):
                self.executor.abandon()
        await self._flush()

    def claim_no_more(self) -> None:
        """Let running attempts go on, and return executions that have not started."""
        for claimed in self.dispatcher.close():
            self.completer.give_back(claimed)

    async def stop_loops(self) -> None:
        """Let calls that are under way end, on the store and in the pacemaker; make no others."""
        beating = [] if self._pacemaker is None else [self._pacemaker.stop()]
        await asyncio.gather(*(loop.stop() for loop in self._loops), *beating)

    async def leave(self) -> None:
        """Retire from the store, so that no process waits for the lease to end."""
        if not self.is_registered or self.is_lost:
            return
        tenant, leases = self._options.tenant, self.leases.known()
        try:
            if leases:  # claims without an answer
                await self._store.release(tenant, worker=self.id, leases=leases)
            await self._store.retire(tenant, self.id)
        except Unavailable as error:
            logger.warning("could not say goodbye, the lease will end by itself: %s", error)

    async def _return_unanswered(self) -> None:
        """Return the executions of the last claim, if only its answer was lost. The claim may still
        be under way, so `leave` does this once more.
        """
        leases = self.dispatcher.unanswered
        if leases and self.is_registered and not self.is_lost:
            with suppress(Unavailable):
                await self._store.release(self._options.tenant, worker=self.id, leases=leases)

    async def _wait(self, *, within: Seconds) -> bool:
        """Wait for running attempts; False if they take longer than that."""
        try:
            await asyncio.wait_for(self.executor.wait(), within)
        except TimeoutError:
            return False
        return True

    async def _flush(self) -> None:
        """Report all ends; while the lease can still hold, also through a store's absence.

        Where a task has ended the event loop with `sys.exit()`, nothing is sent any more.
        """
        deadline = self._clock.monotonic() + self._options.lease
        while len(self.completer) and not self.is_lost and self._clock.monotonic() < deadline:
            if not self._finishes.is_running:
                return
            await self._finishes.pass_once()

    # --- a lost lease -------------------------------------------------------------------------

    def lose(self, *, is_store_away: bool = False) -> None:
        """Stop all work: the lease is gone, or as good as gone.

        Ends of attempts are still reported, and may come too late. If the store was away, no task
        is to blame: stopped attempts go back uncharged when the store is there. The registration
        of the next incarnation names this id, so that a reaper that comes first does not charge
        them, either.
        """
        if self.is_lost:
            return
        self.is_lost = True
        why = "the store is away" if is_store_away else "what it ran is given to others"
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
        """The id that the registration of the next incarnation names."""
        if not self.is_registered:  # it held nothing
            return self._replaces
        return self.id if self._is_excused else None

    async def wait_for_stopped(self) -> None:
        """Wait for the attempts of a lost lease; abandon those that do not end."""
        if not await self._wait(within=GRACE_SECONDS):
            self._end_process()
            self.executor.abandon()

    async def _drain_old_lease(self) -> None:
        """Report the ends of attempts of a lost lease: no other worker may have them yet."""
        await self.executor.wait()
        await self.executor.wait_for_detached()
        while len(self.completer) and self._finishes.is_running:
            await self._finishes.pass_once()
        await self._finishes.stop()

    def end(self) -> Coroutine[Any, Any, None]:
        """Beat no more from now on; answers the rest of the work, which may take long."""
        self._is_over = True
        return self.stop_loops()

    def _end_process(self) -> None:
        """The lease can end any moment; called in the thread of the pacemaker, if there is one."""
        if len(self.executor) and self._on_stuck is not None:
            logger.error("%d executions cannot be stopped; the process ends", len(self.executor))
            self._on_stuck()

    # --- calls between the parts --------------------------------------------------------------

    def claim_soon(self) -> None:
        """Claim now rather than later."""
        self._claims.wake()

    def renew_soon(self) -> None:
        """Renew now rather than later."""
        if self._pacemaker is None:
            self._renewals.wake()
        else:
            self._pacemaker.wake()

    def _claim_again(self) -> None:
        """The renewal has an answer; called in the thread of the pacemaker, if there is one."""
        if self._event_loop is None:
            self._claims.wake()
        else:
            self._event_loop.call_soon_threadsafe(self._claims.wake)

    def _finish_soon(self) -> None:
        self._finishes.wake()

    def _make_room(self) -> None:
        self.dispatcher.make_room()

    def _fill(self) -> None:
        self.dispatcher.fill()

    def _stop_stale(self, fence: Fence) -> None:
        self.executor.stop({fence}, Stop.STALE)

    def _lose_late(self) -> None:
        """The time of the lease is over, and the watch has not said so yet."""
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
        except LeaseLost:  # registered before, but the answer was lost, and much time with it
            self.lose()
        return None


class Worker:
    """Claims and runs executions until it is stopped: one incarnation after the other.

    Without a pacemaker the lease is renewed by the event loop itself. `on_stuck` ends the process,
    where it may, if attempts go on that are not this worker's any more. `announce` is called with
    every id.
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
    ) -> None:
        self._announce = announce
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
        self._restart: asyncio.Task[None] | None = None
        self._draining: dict[asyncio.Task[None], Incarnation] = {}  # after a lost lease
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
            on_lost=self._lost,
            on_stuck=self._on_stuck,
        )

    @property
    def id(self) -> UUID:
        """The id under which it is registered now."""
        return self.current.id

    @property
    def executor(self) -> Executor:
        """The attempts that run under the current lease."""
        return self.current.executor

    async def start(self) -> None:
        """Register and begin to claim. Raises Unavailable if the store is away."""
        await self.current.start()

    async def start_patiently(self) -> None:
        """The same; if the store is away, as soon as it is there."""
        try:
            await self.start()
        except Unavailable as error:
            logger.warning("cannot register yet; trying again: %s", error)
            self.current.start_soon()

    def claim_no_more(self) -> None:
        """Let running attempts go on, and return executions that have not started."""
        self.current.claim_no_more()

    def wake(self) -> None:
        """Something may be there to claim."""
        self.current.claim_soon()

    def _renew_soon(self) -> None:
        """A renewal may have news."""
        self.current.renew_soon()

    def _claimed_of(self, task: asyncio.Task[object]) -> Claimed | None:
        return next((run.claimed for run in self.executor if run.task is task), None)

    async def _listen(self) -> None:
        """Watch the event loop, and be woken by news; without them, polling finds executions a
        little later.
        """
        if self._loop_watch is None:
            self._loop_watch = LoopWatch(
                clock=self._clock, claimed_of=self._claimed_of, on_stuck=self._on_stuck
            )
            self._loop_watch.start()
        if self._stop_listening is None:
            try:
                self._stop_listening = await self._store.listen(
                    self._options.tenant, self._queues.names, self.wake, ask=self._renew_soon
                )
            except Unavailable as error:
                logger.warning("cannot hear of new executions, asking every second: %s", error)

    async def stop(self) -> None:
        """Drain: claim no more, let running attempts end, return the rest, and retire."""
        self._is_stopping = True
        if self._restart is not None:
            await asyncio.gather(self._restart, return_exceptions=True)
        last = self.current
        await last.drain()
        await self._wait_for_old_leases()
        await last.stop_loops()
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
        """Wait for attempts that go on without a lease, and a moment for ends to be reported."""
        if not self._draining:
            return
        is_detached = any(old.executor.is_detached for old in self._draining.values())
        timeout = self._options.drain_timeout if is_detached else PARTING_SECONDS
        await asyncio.wait(self._draining, timeout=timeout)
        for task in list(self._draining):
            task.cancel()

    def _lost(self, old: Incarnation, draining: asyncio.Task[None]) -> None:
        """Replace an incarnation that has lost its lease, and is draining."""
        self._draining[draining] = old
        draining.add_done_callback(self._draining.pop)
        if not self._is_stopping:
            self._restart = asyncio.get_running_loop().create_task(self._replace(old))

    async def _replace(self, old: Incarnation) -> None:
        await old.wait_for_stopped()
        # Not waited for: a call without an answer would delay the registration, and with it the
        # news that no task is to blame.
        ending = asyncio.get_running_loop().create_task(old.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        self._restart = None
        if not self._is_stopping:
            self.current = self._incarnate(replaces=old.excused)
            self.current.start_soon()

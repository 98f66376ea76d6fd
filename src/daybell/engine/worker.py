"""A worker: dispatcher, executor, completer, reporter and heartbeat under one lease.

When the lease is lost, everything in this worker's hands is somebody else's: it stops its own work
and begins anew under a new id. What it still has to tell is fenced, as every report.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.job import DEFAULT_TENANT
from daybell.core.units import Seconds
from daybell.core.worker import LEASE_SECONDS, NewWorker
from daybell.core.workflow.run import Plan
from daybell.engine.attempt import GRACE_SECONDS, AttemptHost, Fence, Handlers, Recorder, Stop
from daybell.engine.claim import POLL_SECONDS, Dispatcher, Queues, TaskRouting
from daybell.engine.clock import Clock
from daybell.engine.events import Events
from daybell.engine.execute import Executor
from daybell.engine.lease import Heartbeat, Leases, Pacemaker
from daybell.engine.loop import Loop
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
    """The parts of a worker under one id and one lease, and the loops around them.

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
        register: Callable[[], Awaitable[None]],
        on_drain: Callable[[], None],
        on_lost: Callable[..., None],
        on_end: Callable[[Incarnation], None],
    ) -> None:
        self.id = worker = mint()
        self.is_registered = self.is_lost = self.is_over = False
        self._pacemaker = pacemaker
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._register = register
        self.lose: Callable[..., None] = partial(on_lost, self)
        tenant = options.tenant
        self.leases = Leases(on_named=self._claim_again)
        self.recorder = Recorder(
            store, tenant=tenant, worker=worker, clock=clock, stop_stale=self._stop_stale
        )
        self.reporter = Reporter(store, clock=clock, tenant=tenant, worker=worker)
        self.completer = Completer(
            store,
            leases=self.leases,
            events=events,
            tenant=tenant,
            worker=worker,
            write=self.reporter.write,
            wake=self._finish_soon,
            on_returned=self.claim_soon,  # to learn when it is due
            on_written=self._make_room,
        )
        routing = TaskRouting(store, tenant=tenant, clock=clock)
        self.executor = Executor(
            handlers,
            worker=worker,
            host=AttemptHost(
                clock,
                mask=handlers.mask,
                settings=lambda: handlers.settings,
                begin=partial(store.begin, worker),
                recorder=self.recorder,
                expand=partial(_expand, store, tenant, worker),
            ),
            clock=clock,
            finish=self.completer.add,
            freed=self._fill,
            write=self.reporter.write,
            announce=self.reporter.announce,
            route=routing.delay,
            lose=self._lose_late,
        )
        self.dispatcher = Dispatcher(
            store,
            self.executor,
            queues=queues,
            kinds=options.kinds,
            concurrency=options.concurrency,
            ahead=options.ahead,
            leases=self.leases,
            clock=clock,
            mint=mint,
            events=events,
            elsewhere=routing,
            tenant=tenant,
            worker=worker,
            wake=self.claim_soon,
            room=lambda: self.completer.room,
            give_back=self.completer.give_back,
            lose=self._lose_late,
        )
        self.heartbeat = Heartbeat(
            store,
            self.executor,
            lease=options.lease,
            leases=self.leases,
            clock=clock,
            on_drain=on_drain,
            on_lost=self.lose,
            on_end=partial(on_end, self),
            tenant=tenant,
            worker=worker,
        )
        self.claims = Loop("claim", self._claim, interval=POLL_SECONDS, clock=clock)
        self.finishes = Loop("finish", self.completer.tick, interval=60.0, clock=clock)
        self.renewals = Loop("renew", self._beat, interval=options.lease / 3, clock=clock)
        reports = Loop("report", self._report, interval=SHOWN_AFTER_SECONDS, clock=clock)
        self.loops = [self.renewals, self.finishes, reports, self.claims]
        if pacemaker is None:
            watch = Loop("watch", self.heartbeat.watch, interval=options.lease, clock=clock)
            self.loops.append(watch)

    def registered(self, sent: Seconds) -> None:
        """The registration that was sent then is answered: begin to work."""
        self.is_registered = True
        self.heartbeat.registered(sent)
        for loop in self.loops:
            loop.start()
        if self._pacemaker is not None:
            self._event_loop = asyncio.get_running_loop()
            self._pacemaker.start(self.heartbeat)

    async def stop_loops(self) -> None:
        """Let what is under way end, on the store and in the pacemaker, and begin nothing more."""
        beating = [] if self._pacemaker is None else [self._pacemaker.stop()]
        await asyncio.gather(*(loop.stop() for loop in self.loops), *beating)

    def claim_soon(self) -> None:
        """Claim now rather than later."""
        self.claims.wake()

    def _claim_again(self) -> None:
        """The renewal has an answer; called in the thread of the pacemaker, if there is one."""
        if self._event_loop is None:
            self.claims.wake()
        else:
            self._event_loop.call_soon_threadsafe(self.claims.wake)

    def _finish_soon(self) -> None:
        self.finishes.wake()

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
        if self.is_over:
            return None
        if self.is_registered:
            return None if self._pacemaker is not None else await self.heartbeat.tick()
        try:
            await self._register()
        except LeaseLost:  # registered before, but the answer was lost, and much time with it
            self.lose()
        return None


def _expand(
    store: Store, tenant: str, worker: UUID, claimed: Claimed, plan: Plan
) -> Awaitable[bool]:
    return store.expand(tenant, worker=worker, claimed=claimed, plan=plan)


class Worker:
    """Claims and runs executions until it is told to stop.

    Without a pacemaker the lease is renewed by the event loop itself. `on_stuck` ends the process,
    where it may, if work goes on that is not this worker's any more. `announce` is told every id.
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
        self._announced: UUID | None = None
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
        self._seeing_off: dict[asyncio.Task[None], Executor] = {}  # of leases that were lost
        self._is_stopping = False
        self._ending: set[asyncio.Task[None]] = set()  # loops of leases that were lost
        self._replaces: UUID | None = None  # the id whose lease was given up because of the store
        self._stop_listening: Callable[[], Awaitable[None]] | None = None
        self._loop_watch: LoopWatch | None = None
        self.current = self._assemble()

    def _assemble(self) -> Incarnation:
        """Make the parts, under a new id."""
        return Incarnation(
            self._store,
            self._handlers,
            self._options,
            queues=self._queues,
            clock=self._clock,
            mint=self._mint,
            events=self._events,
            pacemaker=self._pacemaker,
            register=self.start,
            on_drain=self.is_draining.set,
            on_lost=self._lost,
            on_end=self._at_the_end,
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
        options = self._options
        if self._announce is not None and self._announced != self.id:
            self._announced = self.id
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
        self._replaces = None
        self._clock.correct(renewal.now, sent)
        self.current.registered(sent)
        if self._loop_watch is None:
            self._loop_watch = LoopWatch(
                clock=self._clock, claimed_of=self._claimed_of, on_stuck=self._on_stuck
            )
            self._loop_watch.start()
        await self._listen()

    async def start_patiently(self) -> None:
        """The same; if the store is away, as soon as it is there."""
        try:
            await self.start()
        except Unavailable as error:
            logger.warning("cannot register yet; trying again: %s", error)
            self.current.renewals.start()  # registers, then starts the rest

    def wake(self) -> None:
        """Something may be there to claim."""
        self.current.claims.wake()

    def _ask(self) -> None:
        """A renewal may have news."""
        if self._pacemaker is None:
            self.current.renewals.wake()
        else:
            self._pacemaker.wake()

    def _claimed_of(self, task: asyncio.Task[object]) -> Claimed | None:
        return next((run.claimed for run in self.current.executor if run.task is task), None)

    async def _listen(self) -> None:
        """Be woken by news; without them, polling finds what there is a little later."""
        if self._stop_listening is None:
            try:
                self._stop_listening = await self._store.listen(
                    self._options.tenant, self._queues.names, self.wake, ask=self._ask
                )
            except Unavailable as error:
                logger.warning("cannot hear of new executions, asking every second: %s", error)

    async def stop(self) -> None:
        """Drain: claim no more, let what runs end, give the rest back, and say goodbye."""
        self._is_stopping = True
        if self._restart is not None:
            await asyncio.gather(self._restart, return_exceptions=True)
        self.claim_no_more()
        await self.current.claims.stop()
        self.claim_no_more()  # and what the last claim brought
        await self._give_back_unanswered()
        if not await self._ended(within=self._options.drain_timeout):
            left = len(self.current.executor)
            what = "execution" if left == 1 else "executions"
            logger.warning("%d %s did not end in time: back to the queue", left, what)
            self.current.executor.stop_all(Stop.RELEASE)
            await self._end_of_stopped()
        await self._flush()
        await self._end_of_seen_off()
        await self.current.stop_loops()
        await asyncio.gather(*self._ending)
        if self._pacemaker is not None:
            await self._pacemaker.close()
        if self._stop_listening is not None:
            await self._stop_listening()
            self._stop_listening = None
        if self._loop_watch is not None:
            self._loop_watch.stop()
            self._loop_watch = None
        await self._leave()

    async def _end_of_seen_off(self) -> None:
        """Wait for what goes on without a lease, and a moment for what is still to be told."""
        if not self._seeing_off:
            return
        is_detached = any(executor.is_detached for executor in self._seeing_off.values())
        timeout = self._options.drain_timeout if is_detached else PARTING_SECONDS
        await asyncio.wait(self._seeing_off, timeout=timeout)
        for task in list(self._seeing_off):
            task.cancel()

    async def _give_back_unanswered(self) -> None:
        """What the last claim has taken, if only its answer was lost, does not wait for the rest.
        The claim may still be under way, so it is looked for once more in the end.
        """
        leases = self.current.dispatcher.unanswered
        if leases and self.current.is_registered and not self.current.is_lost:
            with suppress(Unavailable):
                await self._store.release(self._options.tenant, worker=self.id, leases=leases)

    async def _leave(self) -> None:
        """Say goodbye, so that nobody has to wait for the lease to end."""
        if not self.current.is_registered or self.current.is_lost:
            return
        tenant, leases = self._options.tenant, self.current.leases.known()
        try:
            if leases:  # claims without an answer
                await self._store.release(tenant, worker=self.id, leases=leases)
            await self._store.retire(tenant, self.id)
        except Unavailable as error:
            logger.warning("could not say goodbye, the lease will end by itself: %s", error)

    async def _flush(self) -> None:
        """Send what has ended; while the lease can still hold, also through a store's absence.

        Where a task has ended the event loop with `sys.exit()`, nothing sends any more.
        """
        deadline = self._clock.monotonic() + self._options.lease
        while (
            len(self.current.completer)
            and not self.current.is_lost
            and self._clock.monotonic() < deadline
        ):
            if not self.current.finishes.is_running:
                return
            await self.current.finishes.pass_once()

    def claim_no_more(self) -> None:
        """Let what runs go on, and give back what has not started."""
        for claimed in self.current.dispatcher.close():
            self.current.completer.give_back(claimed)

    async def _ended(self, *, within: Seconds) -> bool:
        """Wait for what runs; False if it takes longer than that."""
        try:
            await asyncio.wait_for(self.current.executor.wait(), within)
        except TimeoutError:
            return False
        return True

    async def _end_of_stopped(self) -> None:
        """Wait for what was stopped, but not for ever: a thread deep in C hears of nothing."""
        if not await self._ended(within=GRACE_SECONDS):
            self.current.executor.abandon()

    def _lost(self, life: Incarnation, *, is_store_away: bool = False) -> None:
        """The lease is gone or as good as gone: stop what runs, and begin anew.

        What had ended before is still told, for what that is worth. If it was the store that was
        away, no task is to blame: what was stopped here goes back uncharged when it is there. The
        next registration names this id, so that a reaper that comes first charges nothing, either.
        """
        if life.is_lost:
            return
        life.is_lost = True
        why = "the store is away" if is_store_away else "what it ran is given to others"
        logger.error("worker %s lost its lease; %s", life.id, why)
        unstarted = life.dispatcher.close()
        life.recorder.close()
        if life.is_registered:  # else it held nothing, and another id may still be named
            self._replaces = life.id if is_store_away else None
        if is_store_away:
            life.executor.hands_back = True
            for claimed in unstarted:
                life.completer.give_back(claimed)
        loop = asyncio.get_running_loop()
        life.executor.detach_lease_free()
        life.loops.remove(life.finishes)
        seeing_off = loop.create_task(self._see_off(life))
        self._seeing_off[seeing_off] = life.executor
        seeing_off.add_done_callback(self._seeing_off.pop)
        life.executor.stop_all(Stop.ABANDON)
        if not self._is_stopping:
            self._restart = loop.create_task(self._begin_anew())

    async def _see_off(self, life: Incarnation) -> None:
        """Have told what the executions of a lost lease lead to: nobody may have them yet."""
        await life.executor.wait()
        await life.executor.wait_for_detached()
        while len(life.completer) and life.finishes.is_running:
            await life.finishes.pass_once()
        await life.finishes.stop()

    def _at_the_end(self, life: Incarnation) -> None:
        """The lease can end any moment; in the thread of the pacemaker, if there is one."""
        if not life.is_over and len(life.executor) and self._on_stuck is not None:
            logger.error("%d executions cannot be stopped; the process ends", len(life.executor))
            self._on_stuck()

    async def _begin_anew(self) -> None:
        if not await self._ended(within=GRACE_SECONDS):
            self._at_the_end(self.current)
            self.current.executor.abandon()
        # Not waited for: a call without an answer would delay the registration, and with it the
        # news that no task is to blame.
        ending = asyncio.get_running_loop().create_task(self.current.stop_loops())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        self._restart = None
        if not self._is_stopping:
            self.current.is_over = True
            self.current = self._assemble()
            # It registers as soon as the store is there, then starts the rest.
            self.current.renewals.start()

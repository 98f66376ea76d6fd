"""Execution of claimed attempts: resolve, begin, perform, conclude; and suspects, which may have
crashed their workers.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID
from zlib import crc32

import msgspec

from daybell.core import lifecycle
from daybell.core.execution import Claimed, DescribedError, ExecutionDetail, Failure, Outcome, State
from daybell.core.flow import LimitPause
from daybell.core.lifecycle import SUSPECT_CRASHES, Transition
from daybell.core.limits import PROGRESS_MESSAGE_CHARS_MAX
from daybell.core.monitoring import observers
from daybell.core.retry import Retry, read_retry_time
from daybell.core.units import Seconds
from daybell.engine.attempt import (
    GRACE_SECONDS,
    Attempt,
    AttemptHost,
    Fence,
    Handler,
    Handlers,
    Stop,
)
from daybell.engine.loop import Clock
from daybell.errors import RetryLater, Suspended, Unavailable, UsageError, is_permanent

logger = logging.getLogger("daybell.worker")

T = TypeVar("T")

# Records that a suspect starts, with the answer to "is it the only one?". Returns the length of its
# probation; None: another worker has it.
Announce: TypeAlias = Callable[[Attempt, Callable[[], bool]], Awaitable[Seconds | None]]
# Returns the delay for an execution that another worker can run; None: there is none.
Route: TypeAlias = Callable[[Claimed, str], Awaitable[Seconds | None]]

UNKNOWN_JOB_SECONDS_MAX: Final = 60.0
COMMIT_SECONDS: Final = 1.0  # until an uncommitted attempt runs again
SUSPECT_SECONDS: Final = 1.0  # until a returned suspect can be claimed
SUSPENDING_MAX: Final = 10_000  # jobs that are remembered; then it starts over
PROVEN_SECONDS: Final = 0.01  # after its probation, until others start: timers are coarse


class OutcomeRules:
    """The transition after each way to end an attempt, by `core.lifecycle`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def after_stop(
        self, run: Attempt, error: BaseException | None = None, *, hands_back: bool = False
    ) -> Transition | None:
        """Decide after a stop; None: nothing is reported."""
        assert run.stop is not None
        ran = self._ran(run)
        match run.stop:
            case Stop.TIMEOUT:
                late = TimeoutError(f"it did not end within its timeout of {self.timeout(run):g} s")
                late.__cause__ = error  # shows where the task was
                if isinstance(error, DescribedError):
                    error.__traceback__ = None  # of this process, not of the task
                return self.after_error(run, late, timed_out=True)
            case Stop.CANCEL:
                return lifecycle.after_cancel(run.claimed, ran=ran)
            case Stop.RELEASE | Stop.STALE if self._is_used_up(run):
                return lifecycle.after_interruption(run.claimed, ran=ran)
            case Stop.ABANDON if not hands_back or self._is_used_up(run):
                return None
            case Stop.RELEASE | Stop.ABANDON | Stop.STALE:
                move = lifecycle.after_release(run.claimed, ran=ran)
                return msgspec.structs.replace(move, checkpoint=run.checkpoint)

    @staticmethod
    def _is_used_up(run: Attempt) -> bool:
        """True if it has started and must not start again."""
        return run.started is not None and run.handler is not None and run.handler.starts_once

    def after_retry_later(self, run: Attempt, asked: RetryLater) -> Transition:
        """Decide after the task asked for a later attempt."""
        try:
            delay, at = read_retry_time(asked)
        except UsageError as error:
            return self.after_error(run, error)
        ran = run.ran(self._clock)
        return lifecycle.after_retry_later(
            run.claimed,
            delay=delay,
            at=at,
            ran=ran,
            reason=run.mask(asked.reason)[:PROGRESS_MESSAGE_CHARS_MAX] if asked.reason else None,
            checkpoint=run.checkpoint,
        )

    def after_suspension(self, run: Attempt, asked: Suspended) -> Transition:
        """Decide after the task suspended itself until a time or an event.

        Its crashes are forgotten: a function that got this far does not crash its workers, and may
        lose some in months.
        """
        ran = run.ran(self._clock)
        claimed = msgspec.structs.replace(run.claimed, crashes=0)
        if asked.at is None and asked.delay is None:
            return lifecycle.after_wait(claimed, ran=ran, checkpoint=run.checkpoint)
        return lifecycle.after_retry_later(
            claimed,
            delay=asked.delay or 0.0,
            at=asked.at,
            ran=ran,
            reason=asked.reason,
            checkpoint=run.checkpoint,
        )

    def after_error(
        self, run: Attempt, error: BaseException, *, timed_out: bool = False
    ) -> Transition:
        """Decide after an error."""
        failure = Failure.from_exception(error, mask=run.mask)
        return lifecycle.after_failure(
            run.claimed,
            self._policy(run),
            error=failure.to_json(),
            kinds=failure.names,
            ran=run.ran(self._clock),
            jitter=self._clock.jitter(),
            timed_out=timed_out,
            permanent=run.is_hopeless or is_permanent(error),
            checkpoint=run.checkpoint,
            retry_after=error.retry_after if isinstance(error, DescribedError) else None,
            exception=error,
            report=partial(self._report_mistake, run),
        )

    def after_return(self, run: Attempt, delay: Seconds) -> Transition:
        """Return it for another worker."""
        return lifecycle.after_release(run.claimed, delay=delay, ran=self._ran(run))

    def _ran(self, run: Attempt) -> Seconds | None:
        return None if run.started is None else run.ran(self._clock)

    def _report_mistake(self, run: Attempt, mistake: Exception) -> None:
        """Log an error of a retry function, also in the log of the execution unless the task runs
        in its own process.
        """
        failed = Failure.from_exception(mistake, mask=run.mask)
        said = f"its retry function failed, so the default wait is used: {failed.type}"
        said = f"{said}: {failed.message}" if failed.message else said
        logger.warning("%s (execution %s of %s)", said, run.claimed.id, run.claimed.job)

    @staticmethod
    def timeout(run: Attempt) -> Seconds | None:
        """Return the timeout of the attempt."""
        if run.claimed.timeout is not None:
            return run.claimed.timeout
        return None if run.handler is None else run.handler.timeout

    @staticmethod
    def _policy(run: Attempt) -> Retry:
        policy = Retry() if run.handler is None else run.handler.retry
        if run.claimed.retries is None:
            return policy
        return msgspec.structs.replace(policy, retries=run.claimed.retries)


class Executor:
    """Starts, stops and concludes attempts."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        worker: UUID,
        host: AttemptHost,
        clock: Clock,
        finish: Callable[[Claimed, Transition, Attempt], None],  # reports an end
        freed: Callable[[], None],  # called when a slot is free
        write: Callable[[list[Attempt]], Awaitable[None]],  # writes reports
        announce: Announce,
        route: Route,
        lose: Callable[[], None],  # called after `held_until`
    ) -> None:
        self._handlers = handlers
        self._worker = worker
        self._clock = clock
        self._finish = finish
        self._freed = freed
        self._host = host
        self._outcomes = OutcomeRules(clock)
        self._write = write
        self._announce = announce
        self._route = route
        self._lose = lose
        self.held_until: Seconds = inf  # end of the lease, monotonic; set by the heartbeat
        self.hands_back = False  # abandoned attempts are returned when the store is back
        self._runs: dict[Attempt, None] = {}  # in the order of starts
        self._unstarted: deque[Attempt] = (
            deque()
        )  # of those: for a task that runs one after another
        self._has_starter = False
        self._suspending: set[str] = set()  # jobs of which an attempt had to wait
        self._detached: dict[Attempt, None] = {}  # running without a lease
        self._is_idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._runs))

    def on_probation(self) -> list[Attempt]:
        """Return the suspects whose probation has not ended."""
        now = self._clock.monotonic()
        return [
            run
            for run in self._runs
            if is_suspect(run.claimed) and (run.proven_at is None or now < run.proven_at)
        ]

    def start(self, claimed: Claimed) -> Attempt:
        """Start an attempt in the next turn of the event loop."""
        run = Attempt(claimed, self._host)
        self._runs[run] = None
        if claimed.job in self._suspending:
            # An explicit name saves a fifth of the cost: asyncio would format "Task-12345".
            run.loop = loop = asyncio.get_running_loop()
            run.task = asyncio.Task(self._execute(run), loop=loop, name=claimed.job)
            return run
        self._unstarted.append(run)
        if not self._has_starter:
            self._start_unstarted()
        return run

    def _start_unstarted(self) -> None:
        self._has_starter = bool(self._unstarted)
        if self._has_starter:
            asyncio.Task(self._run_unstarted(), loop=asyncio.get_running_loop(), name="start")

    async def _run_unstarted(self) -> None:
        """Run attempts one after another, up to the first that suspends: this is its task from then
        on. A task for each would cost more than all other work of the worker on a short attempt.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        loop.call_soon(self._start_unstarted)  # when this task has ended or suspended
        while self._unstarted and not task.cancelling():  # by the task function before
            run = self._unstarted.popleft()
            run.task, run.loop = task, loop
            task.set_name(run.claimed.job)
            context, work = copy_context(), self._execute(run)
            try:
                waiting = context.run(work.send, None)
            except StopIteration:
                continue
            if len(self._suspending) >= SUSPENDING_MAX:
                self._suspending.clear()
            self._suspending.add(run.claimed.job)
            await _resume(work, context, waiting)
            return

    def stop(self, fences: Collection[Fence], why: Stop) -> int:
        """Stop running attempts, and return the number of newly stopped ones.

        Each ends with its task, or is abandoned if the task does not react.
        """
        return sum(self._stop(run, why) for run in self if run.fence in fences)

    def _stop(self, run: Attempt, why: Stop) -> bool:
        if run.stop is not None:
            return False
        run.stop = why
        # A task that is cancelled before its first step would never conclude.
        if run.started is not None and run.task is not None:
            run.task.cancel()
        if why in (Stop.TIMEOUT, Stop.CANCEL, Stop.STALE):  # the worker handles the other reasons
            if run.timer is not None:
                run.timer.cancel()
            loop = asyncio.get_running_loop()
            grace = GRACE_SECONDS if run.handler is None else run.handler.grace
            run.timer = loop.call_later(max(GRACE_SECONDS, grace + 1.0), self._abandon, run)
        return True

    def stop_all(self, why: Stop) -> None:
        for run in self:
            if not self._stop(run, why) and why is Stop.ABANDON:
                run.stop = why  # an earlier reason does not matter any more

    def detach_lease_free(self) -> bool:
        """Let attempts that need no lease continue without one; return False if there are none.

        They hold no slots. Their ends are reported, and may come too late.
        """
        for run in self:
            if run.stop is None and run.handler is not None and run.handler.goes_on:
                logger.warning("%s (%s) continues without a lease", run.claimed.id, run.claimed.job)
                del self._runs[run]
                self._detached[run] = None
        if not self._runs:
            self._is_idle.set()
        return bool(self._detached)

    def abandon(self) -> None:
        """Conclude stopped attempts that are still running."""
        for run in self:
            if run.stop is not None:
                self._abandon(run)

    def _abandon(self, run: Attempt) -> None:
        """Conclude an attempt as if it had ended when it was stopped. It may go on, but holds no
        slot, and its end is ignored.
        """
        claimed = run.claimed
        logger.error("%s (%s) was stopped and goes on running", claimed.id, claimed.job)
        try:
            # Without a lease nothing is reported: the execution is kept until the lease ends.
            move = None if run.stop is Stop.ABANDON else self._classify_stop(run)
        except BaseException as error:
            move = self._internal_error(run, error)
        self._conclude(run, move)

    async def wait(self) -> None:
        """Wait until no attempt runs, except abandoned and detached ones."""
        while self._runs:
            self._is_idle.clear()
            await self._is_idle.wait()

    @property
    def is_detached(self) -> bool:
        """True while a detached attempt runs."""
        return bool(self._detached)

    async def wait_for_detached(self) -> None:
        """Wait until all detached attempts have ended."""
        while self._detached:
            await asyncio.wait([run.task for run in self._detached if run.task is not None])

    # --- the stages of an attempt: resolve, begin, perform, classify, conclude ----------------

    async def _execute(self, run: Attempt) -> None:
        """Take an attempt through its stages."""
        try:
            handler = self._handlers.find(run.claimed)
            if handler is None:
                handler = await self._handlers.ask(run.claimed)
            self._check_lease()
            if run.stop is not None:
                move = self._classify_stop(run)
            elif handler is None:
                move = await self._classify_unknown(run)
            else:
                run.handler = handler
                move = self._begin(run) or await self._perform(run, handler)
        except BaseException as error:
            # `_perform` classifies the errors of tasks: this is an error of the worker.
            move = self._internal_error(run, error)
        run.is_over = True
        if run.pauses is not None:
            await _await_despite_cancellation(self._host.pause_limits(run))
        if run.transaction is not None:
            await _await_despite_cancellation(run.undo())
        self._conclude(run, move)
        run.task = None

    def _begin(self, run: Attempt) -> Transition | None:
        """Start the timeout, unless the attempt is cancelled or expired."""
        claimed = run.claimed
        if claimed.cancel_requested:
            return lifecycle.after_cancel(claimed)
        if claimed.expires_at is not None and lifecycle.is_expired(claimed, now=self._clock.now()):
            return lifecycle.after_expiry(claimed)
        run.started = self._clock.monotonic()
        if (timeout := self._outcomes.timeout(run)) is not None:
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(timeout, self._stop, run, Stop.TIMEOUT)
        return None

    def _check_lease(self) -> None:
        """Stop everything if the process stood still until the lease may have ended."""
        if self._clock.monotonic() >= self.held_until:
            self._lose()

    async def _record_suspect(self, run: Attempt) -> Transition | None:
        """Record that a suspect starts, which clears the others if the worker is lost. Return a
        transition if it cannot start.
        """
        try:
            probation = await self._announce(run, lambda: self._is_alone(run))
        except Unavailable:
            probation = None
        self._check_lease()
        if run in self._detached:
            run.stop = Stop.ABANDON  # detached before its start
        if run.stop is not None:
            raise asyncio.CancelledError
        if probation is None:
            return lifecycle.after_release(run.claimed, delay=SUSPECT_SECONDS)
        run.started = self._clock.monotonic()  # not before: rates count from here
        run.proven_at = run.started + probation
        asyncio.get_running_loop().call_later(probation + PROVEN_SECONDS, self._freed)
        return None

    def _is_alone(self, run: Attempt) -> bool:
        """Return True if it is the only suspect in this worker."""
        return not any(is_suspect(other.claimed) for other in self._runs if other is not run)

    async def _perform(self, run: Attempt, handler: Handler) -> Transition | None:
        """Run the handler, and classify its end."""
        try:
            # Inlined `is_suspect`: a call would cost more than the comparison.
            is_suspected = run.claimed.crashes >= lifecycle.SUSPECT_CRASHES
            if is_suspected and (back := await self._record_suspect(run)):
                return back
            if observers.active:
                result = await self._run_observed(run, handler)
            else:
                result = await handler.run(run)
            if result is not None:
                result = run.mask_json(result)
        except BaseException as error:  # SystemExit, too: a task does not end its worker
            return await self._classify_error(run, error)
        if run.stop is not None:
            # A stopped task may return early, with its work half done.
            return self._classify_stop(run)
        log = None if run.log is None else run.take_log()
        move = lifecycle.after_success(
            run.claimed, result=result, ran=run.ran(self._clock), log=log
        )
        return move if run.transaction is None else await self._commit(run, move)

    async def _run_observed(self, run: Attempt, handler: Handler) -> str | None:
        read = self._host.read_trace
        try:
            trace = None if read is None else await read(run.claimed)
        except Unavailable:
            trace = None
        with observers.running(run.claimed, trace, run.mask):
            return await handler.run(run)

    async def _classify_error(self, run: Attempt, error: BaseException) -> Transition | None:
        """Decide after an error, by the first row that matches:

        - `RetryLater`: retried later, even if the attempt was stopped;
        - `Suspended`, not stopped: waits without a worker;
        - any error after a stop: decided by the stop, since a task may raise anything then;
        - any error for lack of something that another worker has: returned for that worker;
        - any other error: failed.
        """
        if isinstance(error, RetryLater):
            move = self._outcomes.after_retry_later(run, error)
            if error.limit is not None and move.target is State.SCHEDULED:
                delay = move.delay if move.at is None else max(0.0, move.at - self._clock.now())
                run.report(pause=LimitPause(error.limit, delay or 0.0))
            return move
        if run.stop is None and isinstance(error, Suspended):
            return self._outcomes.after_suspension(run, error)
        back = None
        if run.lacking is not None:
            back = await _await_despite_cancellation(self._return_to_others(run))
        if run.stop is not None:  # possibly during the return
            return self._classify_stop(run, error)
        return back or self._outcomes.after_error(run, error)

    def _classify_stop(self, run: Attempt, error: BaseException | None = None) -> Transition | None:
        return self._outcomes.after_stop(run, error, hands_back=self.hands_back)

    async def _classify_unknown(self, run: Attempt) -> Transition:
        """Return an execution of an unknown job: to another worker, or to the queue with a growing
        delay.
        """
        run.lacking = self._handlers.lacking(run.claimed)
        if (back := await self._return_to_others(run)) is not None:
            return back
        delay = min(2.0 ** min(run.claimed.attempt, 10), UNKNOWN_JOB_SECONDS_MAX)
        claimed = run.claimed
        if claimed.node is None:
            lacking = f"this worker has no task {claimed.job!r}"
        else:
            lacking = f"this worker has no task for node {claimed.node} of {claimed.job!r}"
        logger.warning("%s; returned execution %s for %.0f s", lacking, claimed.id, delay)
        return lifecycle.after_unknown(claimed, delay=delay)

    async def _return_to_others(self, run: Attempt) -> Transition | None:
        """Return an execution that another worker can run; None if there is no such worker."""
        if run.lacking is None:
            return None
        delay = await self._route(run.claimed, run.lacking)
        return None if delay is None else self._outcomes.after_return(run, delay)

    async def _write_reports(self, run: Attempt) -> None:
        """Write reports and logs before the end, as the completer does."""
        if run.has_news or (run.log is not None and run.log.unwritten):
            with suppress(Unavailable):  # then the commit will fail, too
                await self._write([run])

    async def _commit(self, run: Attempt, move: Transition) -> Transition:
        """Write the end in the task's transaction. After a failure, the attempt runs again."""
        assert run.transaction is not None
        await self._write_reports(run)
        ending = run.transaction.finish(run.claimed.tenant, worker=self._worker, move=move)
        try:
            # A stop comes too late: the answer of the commit is needed.
            run.is_written = await _await_despite_cancellation(ending)
        except Unavailable as error:
            logger.warning("the commit of %s has no answer: %s", run.claimed.id, error)
        except Exception as error:
            # The server rejected the commit: a constraint, a trigger, a result that is too large,
            # or a failed statement of the task.
            return msgspec.structs.replace(self._outcomes.after_error(run, error), log=move.log)
        if run.is_written:
            return move
        # If it was committed after all, or another worker has it, this report is stale; if a
        # cancel was requested, it ends as cancelled.
        released = lifecycle.after_release(run.claimed, delay=COMMIT_SECONDS, ran=move.ran)
        return msgspec.structs.replace(released, log=move.log)

    def _internal_error(self, run: Attempt, error: BaseException) -> Transition:
        logger.exception("running %s failed in the worker itself", run.claimed.job)
        run.handler = None  # its retry policy may be the cause
        return self._outcomes.after_error(run, error)

    def _conclude(self, run: Attempt, move: Transition | None) -> None:
        if run.timer is not None:
            run.timer.cancel()
        is_detached = bool(self._detached) and run in self._detached
        known = self._detached if is_detached else self._runs
        if known.pop(run, run) is not None:
            return  # it was abandoned
        if move is not None and (run.stop is not Stop.ABANDON or self.hands_back):
            self._finish(run.claimed, move, run)
            if observers.active:
                observers.note_end(run.claimed, move.target, move.outcome)
        if not is_detached:
            self._freed()
        if not self._runs:
            self._is_idle.set()


@types.coroutine
def _resume(
    work: Coroutine[Any, Any, None], context: Context, waiting: Any
) -> Generator[Any, Any, None]:
    """Go on with a coroutine that has suspended, in its own context."""
    while True:
        try:
            value = yield waiting
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, value)
        try:
            waiting = context.run(step)
        except StopIteration:
            return


async def _await_despite_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, in spite of cancellations."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def is_suspect(claimed: Claimed) -> bool:
    """Return True if it may be the cause of its workers' crashes."""
    return claimed.crashes >= lifecycle.SUSPECT_CRASHES


# Suspects: executions that lost their workers repeatedly.
#
# One of them may crash its workers; the others were its neighbours. Group tests find the culprit:
#
# - Suspects run side by side in groups. The size of a group falls with the number of crashes:
#   first as many as there are slots, up to a limit, then a few, then one. A culprit among dozens is
#   alone after at most two losses more than it would take alone.
# - The loss of a worker counts for each started suspect of the group, but none ends dead by it.
#   Only a suspect that was alone, by the worker's record in the store, can end dead. That record is
#   made before it starts, and withdrawn before another one starts beside it.
# - A suspect is on probation until it has run longer than before its earlier losses. After that it
#   blocks no others, and a loss counts only for those on probation (`engine.upkeep.Reaper`). In
#   the record it still counts as company.
# - The suspect with the most crashes goes first. Among equals the order changes with the attempt.
#
# Other workers, which may be idle, do not see suspects that wait here. So these are returned after
# a while, which doubles each time.

# The number of suspects on probation at a time, by their crashes; one if they have more.
SUSPECT_GROUP_SIZES: Final = {SUSPECT_CRASHES: 32, SUSPECT_CRASHES + 1: 6}
# Added to the longest earlier run: starts are recorded late, and run times vary.
PROBATION_SECONDS: Final = 3.0
SUSPECTS_HELD_MAX: Final = 1000  # waiting suspects
SUSPECT_HOLD_SECONDS: Final = 2.0  # the first wait, before a suspect is returned
DOUBLINGS_MAX: Final = 4
SUSPECT_RETURN_STEPS: Final = 20  # different delays of returned suspects
SUSPECT_YIELD_SECONDS: Final = 0.02  # lets idle workers claim first


def group_size(claimed: Claimed) -> int:
    """Return how many suspects like this one may be on probation at a time."""
    return SUSPECT_GROUP_SIZES.get(claimed.crashes, 1)


def probation_seconds(detail: ExecutionDetail) -> Seconds:
    """Return how long an execution has to run to outlive its earlier losses."""
    lengths = [
        one.ended_at - one.started_at
        for one in detail.attempts
        if one.outcome is Outcome.LOST and one.started_at is not None
    ]
    return max([0.0, *lengths]) + PROBATION_SECONDS


class Suspects:
    """The suspects that wait in a worker."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._waiting: dict[UUID, tuple[Claimed, Seconds]] = {}  # with the time of their return
        self._returned = 0
        self._is_any = False  # suspects are here, or were at the last check

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Claimed]:
        return (claimed for claimed, _ in self._waiting.values())

    def add(self, claimed: Claimed) -> Seconds | None:
        """Add a suspect; if too many wait, return the delay for returning it instead."""
        self._is_any = True
        if len(self._waiting) >= SUSPECTS_HELD_MAX:
            return self._delay()
        until = self._clock.monotonic() + SUSPECT_HOLD_SECONDS * _hold_factor(claimed)
        self._waiting[claimed.id] = claimed, until
        return None

    def next(self) -> Claimed | None:
        """Remove and return the suspect to start, unless it has to wait for probations."""
        if not self._waiting:
            return None
        first = min((claimed for claimed, _ in self._waiting.values()), key=_suspect_order)
        tested = [run.claimed for run in self._executor.on_probation()]
        if len(tested) >= min(map(group_size, (first, *tested))):
            return None
        del self._waiting[first.id]
        return first

    def take_stranded(self) -> list[tuple[Claimed, Seconds]]:
        """Remove the suspects to return, each with its delay."""
        if not self._waiting:
            return []
        now = self._clock.monotonic()
        late = [claimed for claimed, until in self._waiting.values() if until <= now]
        for claimed in late:
            del self._waiting[claimed.id]
        return [(claimed, self._delay()) for claimed in late]

    @property
    def patience(self) -> Seconds:
        """The delay of this worker's claims in favour of workers that could start suspects."""
        self._is_any = self._is_any and bool(self._waiting or self._executor.on_probation())
        return SUSPECT_YIELD_SECONDS if self._is_any else 0.0

    def clear(self) -> list[Claimed]:
        """Remove and return all waiting suspects."""
        left = [claimed for claimed, _ in self._waiting.values()]
        self._waiting.clear()
        return left

    def _delay(self) -> Seconds:
        """Return a varying delay, so that one worker does not claim them all again."""
        self._returned = (self._returned + 1) % SUSPECT_RETURN_STEPS
        return SUSPECT_SECONDS * (1 + self._returned / SUSPECT_RETURN_STEPS)


def _suspect_order(claimed: Claimed) -> tuple[int, int]:
    return -claimed.crashes, crc32(claimed.id.bytes, claimed.attempt)


def _hold_factor(claimed: Claimed) -> int:
    """Return a factor that doubles with each return."""
    times = claimed.attempt - claimed.failures - claimed.crashes - 1
    return 2 ** min(max(0, times), DOUBLINGS_MAX)

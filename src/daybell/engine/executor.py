"""Running claimed executions: resolve, begin, perform, conclude.

One task per execution, so that each has a context of its own and can be stopped by itself. What an
execution leads to is decided in `core.lifecycle`; here is only what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from daybell.core import lifecycle
from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.lifecycle import Transition
from daybell.engine.clock import Clock
from daybell.engine.endings import Endings
from daybell.engine.handlers import Handlers
from daybell.engine.run import GRACE_SECONDS, Fence, Host, Run, Stop
from daybell.errors import RetryLater, Suspended, Unavailable

logger = logging.getLogger("daybell.worker")

T = TypeVar("T")

# Puts on record that a suspect begins, and whether it is the only one here, which is asked for.
# Answers how long its probation is; None: it is not this worker's any more.
Announce: TypeAlias = Callable[[Run, Callable[[], bool]], Awaitable[Seconds | None]]

UNKNOWN_JOB_SECONDS_MAX: Final = 60.0
COMMIT_SECONDS: Final = 1.0  # until what was not committed is run again
SUSPECT_SECONDS: Final = 1.0  # until a suspect that had to go back is looked at again
PROVEN_SECONDS: Final = 0.01  # after its probation, until others are started: timers are coarse


class Executor:
    """Starts, stops and concludes runs.

    `finish` is given what each led to, `freed` is told of every end.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        worker: UUID,
        host: Host,
        clock: Clock,
        finish: Callable[[Claimed, Transition, Run], None],
        freed: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._worker = worker
        self._clock = clock
        self._finish = finish
        self._freed = freed
        self._host = host
        self._endings = Endings(host, clock)
        self.write: Callable[[list[Run]], Awaitable[None]] = _nowhere  # set by who knows how
        self.announce: Announce = _unheard  # likewise
        # After how long somebody else can have what lacks something here; None: nobody can.
        self.elsewhere: Callable[[Claimed, str], Awaitable[Seconds | None]] = _not_elsewhere
        self.held_until: Seconds = inf  # by the lease; kept by the heartbeat, monotonic
        self.lose: Callable[[], None] = _nothing  # told when it is later than that
        self.hands_back = False  # what is abandoned, when the store can be told
        self._runs: dict[Run, None] = {}  # in the order of their starts
        self._loose: dict[Run, None] = {}  # go on without a lease
        self._is_idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs))

    def on_probation(self) -> list[Run]:
        """Suspects that have not yet outlived the losses of their earlier workers."""
        now = self._clock.monotonic()
        return [
            run
            for run in self._runs
            if is_suspect(run.claimed) and (run.proven_at is None or now < run.proven_at)
        ]

    def start(self, claimed: Claimed) -> None:
        """Run it, from the next turn of the event loop on."""
        run = Run(claimed, self._host)
        self._runs[run] = None
        # Named at once: to make up "Task-12345" for each takes a fifth of its making.
        loop = asyncio.get_running_loop()
        run.task = asyncio.Task(self._execute(run), loop=loop, name=claimed.job)

    def stop(self, fences: Collection[Fence], why: Stop) -> int:
        """Stop these, as far as they are here and not stopped already: so many.

        Each ends when its task does, or is forsaken if that does not hear.
        """
        return sum(self._stop(run, why) for run in self if run.fence in fences)

    def _stop(self, run: Run, why: Stop) -> bool:
        if run.stop is not None:
            return False
        run.stop = why
        # A task that is cancelled before its first step never takes it, and would never end here.
        if run.started is not None and run.task is not None:
            run.task.cancel()
        if why in (
            Stop.TIMEOUT,
            Stop.CANCEL,
            Stop.STALE,
        ):  # of the others, the whole worker takes care
            if run.timer is not None:
                run.timer.cancel()
            loop = asyncio.get_running_loop()
            grace = GRACE_SECONDS if run.handler is None else run.handler.grace
            run.timer = loop.call_later(max(GRACE_SECONDS, grace + 1.0), self._forsake, run)
        return True

    def stop_all(self, why: Stop) -> None:
        for run in self:
            if not self._stop(run, why) and why is Stop.ABANDON:
                run.stop = why  # whatever it was stopped for before, nobody wants to hear of it

    def let_go(self) -> bool:
        """Have what may go on without a lease do so, apart from the rest; False: there is none.

        It holds no slot any more. What it leads to is still told, for what that is worth.
        """
        for run in self:
            if run.stop is None and run.handler is not None and run.handler.goes_on:
                logger.warning("%s (%s) goes on", run.claimed.id, run.claimed.job)
                del self._runs[run]
                self._loose[run] = None
        if not self._runs:
            self._is_idle.set()
        return bool(self._loose)

    def forsake(self) -> None:
        """Conclude all that was stopped and goes on all the same."""
        for run in self:
            if run.stop is not None:
                self._forsake(run)

    def _forsake(self, run: Run) -> None:
        """Conclude it as if it had ended when it was told to. It may go on, but no longer holds a
        slot, and what it does is not heard of any more.
        """
        claimed = run.claimed
        logger.error("%s (%s) was stopped and goes on running", claimed.id, claimed.job)
        try:
            # What was abandoned and is at work here is nobody else's before the lease has ended.
            move = (
                None
                if run.stop is Stop.ABANDON
                else self._endings.stopped(run, hands_back=self.hands_back)
            )
        except BaseException as error:
            move = self._bungled(run, error)
        self._conclude(run, move)

    async def wait(self) -> None:
        """Until nothing runs any more, apart from what was forsaken or let go."""
        while self._runs:
            self._is_idle.clear()
            await self._is_idle.wait()

    @property
    def is_loose(self) -> bool:
        """Whether something that was let go still runs."""
        return bool(self._loose)

    async def wait_for_loose(self) -> None:
        """Until what was let go has ended."""
        while self._loose:
            await asyncio.wait([run.task for run in self._loose if run.task is not None])

    async def _execute(self, run: Run) -> None:
        try:
            handler = self._handlers.find(run.claimed)
            if handler is None:
                handler = await self._handlers.ask(run.claimed)
            self._look_at_lease()
            if run.stop is None:
                run.handler = handler
                back = await self._pass_on(run) if handler is None else None
                move = back or self._begin(run) or await self._perform(run)
            else:
                move = self._endings.stopped(run, hands_back=self.hands_back)
        except BaseException as error:
            # The task's own errors are dealt with in _perform: this one is ours.
            move = self._bungled(run, error)
        run.is_over = True
        if run.transaction is not None:
            await _regardless(run.undo())
        self._conclude(run, move)

    async def _pass_on(self, run: Run) -> Transition:
        """A job unknown here goes back for others; if nobody has it, later and later."""
        run.lacking = self._handlers.lacking(run.claimed)
        if (back := await self._to_others(run)) is not None:
            return back
        delay = min(2.0 ** min(run.claimed.attempt, 10), UNKNOWN_JOB_SECONDS_MAX)
        claimed = run.claimed
        if claimed.node is None:
            lacking = f"no task here is called {claimed.job!r}"
        else:
            lacking = f"no task here is what node {claimed.node} of {claimed.job!r} runs"
        logger.warning("%s; execution %s goes back for %.0f s", lacking, claimed.id, delay)
        return lifecycle.after_unknown(claimed, delay=delay)

    async def _to_others(self, run: Run) -> Transition | None:
        """Give back what somebody else can run; None: nobody is known to, or nothing is lacking."""
        if run.lacking is None:
            return None
        delay = await self.elsewhere(run.claimed, run.lacking)
        if delay is None:
            return None
        ran = None if run.started is None else run.ran(self._clock)
        return lifecycle.after_release(run.claimed, delay=delay, ran=ran)

    def _begin(self, run: Run) -> Transition | None:
        """Start the clock, unless it is too late or no longer wanted."""
        claimed = run.claimed
        if claimed.cancel_requested:
            return lifecycle.after_cancel(claimed)
        if claimed.expires_at is not None and lifecycle.is_expired(claimed, now=self._clock.now()):
            return lifecycle.after_expiry(claimed)
        run.started = self._clock.monotonic()
        if (timeout := self._endings.timeout(run)) is not None:
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(timeout, self._stop, run, Stop.TIMEOUT)
        return None

    def _look_at_lease(self) -> None:
        """If the process stood still, what it holds may be in other hands. That is found out before
        anything is begun, and stops all that is here.
        """
        if self._clock.monotonic() >= self.held_until:
            self.lose()

    async def _put_on_record(self, run: Run) -> Transition | None:
        """Should its worker be lost, it is known that this one had begun, and others had not."""
        try:
            probation = await self.announce(run, lambda: self._is_alone(run))
        except Unavailable:
            probation = None
        self._look_at_lease()
        if run in self._loose:
            run.stop = Stop.ABANDON  # it may go on without a lease, but it has not begun
        if run.stop is not None:
            raise asyncio.CancelledError
        if probation is None:
            return lifecycle.after_release(run.claimed, delay=SUSPECT_SECONDS)
        run.proven_at = self._clock.monotonic() + probation
        asyncio.get_running_loop().call_later(probation + PROVEN_SECONDS, self._freed)
        return None

    def _is_alone(self, run: Run) -> bool:
        """Whether it is the only suspect here."""
        return not any(is_suspect(other.claimed) for other in self._runs if other is not run)

    async def _perform(self, run: Run) -> Transition | None:
        assert run.handler is not None
        try:
            # Written out, as a call would cost more than the comparison: see `is_suspect`.
            is_suspected = run.claimed.crashes >= lifecycle.SUSPECT_CRASHES
            if is_suspected and (back := await self._put_on_record(run)):
                return back
            result = await run.handler.run(run)
            if result is not None:
                result = run.mask_json(result)
        except RetryLater as asked:
            return self._endings.put_off(run, asked)
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: a task does not end its worker. What was stopped
            # may raise anything on its way out, and means the stop by it.
            if run.stop is None and isinstance(error, Suspended):
                return self._endings.suspended(run, error)
            back = await _regardless(self._to_others(run)) if run.lacking is not None else None
            if run.stop is None:
                return back or self._endings.failed(run, error)
            return self._endings.stopped(run, error, hands_back=self.hands_back)
        if run.stop is not None:
            # It may have returned because it was told to, with half of its work done.
            return self._endings.stopped(run, hands_back=self.hands_back)
        log = None if run.log is None else run.last_words()
        move = lifecycle.after_success(
            run.claimed, result=result, ran=run.ran(self._clock), log=log
        )
        return move if run.transaction is None else await self._commit(run, move)

    async def _tell(self, run: Run) -> None:
        """What it has shown and said goes before its end, as in the completer."""
        if run.has_news or (run.log is not None and run.log.unwritten):
            with suppress(Unavailable):  # then the commit will not be made, either
                await self.write([run])

    async def _commit(self, run: Run, move: Transition) -> Transition:
        """Make the end in the task's own transaction. What cannot be made there is run again."""
        assert run.transaction is not None
        await self._tell(run)
        ending = run.transaction.finish(run.claimed.tenant, worker=self._worker, move=move)
        try:
            # A stop comes too late now. Not to hear the answer would be the worst of all.
            run.is_written = await _regardless(ending)
        except Unavailable as error:
            logger.warning("the commit of %s has no answer: %s", run.claimed.id, error)
        except Exception as error:
            # The server has answered, so nothing was committed: a constraint, a trigger, a result
            # that is too large, a statement of the task's own that has broken the transaction.
            return msgspec.structs.replace(self._endings.failed(run, error), log=move.log)
        if run.is_written:
            return move
        # If it was made after all, or is in other hands, this comes too late and says so; if
        # cancelling was requested, it ends as cancelled.
        released = lifecycle.after_release(run.claimed, delay=COMMIT_SECONDS, ran=move.ran)
        return msgspec.structs.replace(released, log=move.log)

    def _bungled(self, run: Run, error: BaseException) -> Transition:
        logger.exception("running %s failed in the worker itself", run.claimed.job)
        run.handler = None  # so that its policy, which may be what failed, is not asked again
        return self._endings.failed(run, error)

    def _conclude(self, run: Run, move: Transition | None) -> None:
        if run.timer is not None:
            run.timer.cancel()
        is_loose = run in self._loose
        if run not in self._runs and not is_loose:
            return  # it was forsaken
        del (self._loose if is_loose else self._runs)[run]
        if move is not None and (run.stop is not Stop.ABANDON or self.hands_back):
            self._finish(run.claimed, move, run)
        if not is_loose:
            self._freed()
        if not self._runs:
            self._is_idle.set()


async def _regardless(work: Coroutine[Any, Any, T]) -> T:
    """Wait for this to its end, whoever cancels."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


async def _nowhere(runs: list[Run]) -> None:
    del runs


def is_suspect(claimed: Claimed) -> bool:
    """Whether it may be what kills its workers."""
    return claimed.crashes >= lifecycle.SUSPECT_CRASHES


async def _unheard(run: Run, is_alone: Callable[[], bool]) -> Seconds | None:
    del run, is_alone
    return 0.0


async def _not_elsewhere(claimed: Claimed, lacking: str) -> Seconds | None:
    del claimed, lacking
    return None


def _nothing() -> None:
    pass

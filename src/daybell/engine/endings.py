"""What runs lead to: from what happened to a decision of `core.lifecycle`."""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from daybell.core import lifecycle
from daybell.core.failure import Described, Failure
from daybell.core.instant import Seconds
from daybell.core.lifecycle import Transition
from daybell.core.limits import PROGRESS_MESSAGE_CHARS_MAX
from daybell.core.retry import Retry, when
from daybell.engine.clock import Clock
from daybell.engine.run import Host, Run, Stop
from daybell.errors import RetryLater, Suspended, UsageError, is_permanent

logger = logging.getLogger("daybell.worker")


class Endings:
    """What the runs of a worker lead to."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def stopped(
        self, run: Run, error: BaseException | None = None, *, hands_back: bool = False
    ) -> Transition | None:
        """It has ended because it was told to; None: nobody wants to hear of it."""
        assert run.stop is not None
        ran = None if run.started is None else run.ran(self._clock)
        match run.stop:
            case Stop.TIMEOUT:
                late = TimeoutError(f"it did not end within its timeout of {self.timeout(run):g} s")
                late.__cause__ = error  # which shows where it was
                if isinstance(error, Described):
                    error.__traceback__ = None  # not where it was, but where we were
                return self.failed(run, late, timed_out=True)
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
    def _is_used_up(run: Run) -> bool:
        """Whether it has begun, and must not begin again."""
        return run.started is not None and run.handler is not None and run.handler.starts_once

    def put_off(self, run: Run, asked: RetryLater) -> Transition:
        """It has asked for another time."""
        try:
            delay, at = when(asked)
        except UsageError as error:
            return self.failed(run, error)
        ran = run.ran(self._clock)
        return lifecycle.after_retry_later(
            run.claimed,
            delay=delay,
            at=at,
            ran=ran,
            reason=run.mask(asked.reason)[:PROGRESS_MESSAGE_CHARS_MAX] if asked.reason else None,
            checkpoint=run.checkpoint,
        )

    def suspended(self, run: Run, asked: Suspended) -> Transition:
        """It waits for a time or an event, without a worker.

        What has come so far in good order is not what kills its workers. It may go on for months,
        and each of them may lose some.
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

    def failed(self, run: Run, error: BaseException, *, timed_out: bool = False) -> Transition:
        """It has raised this."""
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
            retry_after=error.retry_after if isinstance(error, Described) else None,
            exception=error,
            report=partial(self._report_mistake, run),
        )

    def _report_mistake(self, run: Run, mistake: Exception) -> None:
        """Log that a retry function failed. The execution's own log has it, too, unless the task
        runs in a process of its own.
        """
        failed = Failure.from_exception(mistake, mask=run.mask)
        said = f"its retry function failed, so the default wait is used: {failed.type}"
        said = f"{said}: {failed.message}" if failed.message else said
        logger.warning("%s (execution %s of %s)", said, run.claimed.id, run.claimed.job)

    @staticmethod
    def timeout(run: Run) -> Seconds | None:
        """How long it may run."""
        if run.claimed.timeout is not None:
            return run.claimed.timeout
        return None if run.handler is None else run.handler.timeout

    @staticmethod
    def _policy(run: Run) -> Retry:
        policy = Retry() if run.handler is None else run.handler.retry
        if run.claimed.retries is None:
            return policy
        return msgspec.structs.replace(policy, retries=run.claimed.retries)

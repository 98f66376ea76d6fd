"""The life of an execution: its transitions, and the decision after each event.

`TRANSITIONS` is the whole state machine. For each event, a function decides the transition that a
worker or the reaper requests. The store makes it if (execution, attempt, lease) still holds. The
functions do not know the time: a wait is a delay, which the store adds to its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed, Outcome, State
from daybell.core.retry import Report, Retry
from daybell.core.units import Instant, Seconds
from daybell.errors import IllegalTransition


class Occasion(StrEnum):
    """An event in the life of an execution."""

    DUE = "due"
    RELEASED = "released"  # its slot, dependency or event has come
    RULED_OUT = "ruled_out"  # its dependency has failed
    CLAIMED = "claimed"
    EXPIRED = "expired"
    SUCCEEDED = "succeeded"
    RETRYING = "retrying"
    EXHAUSTED = "exhausted"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    SNOOZED = "snoozed"
    WAITED = "waited"
    CANCELLED = "cancelled"
    REVIVED = "revived"


# After so many crashes an execution is suspected of crashing its workers. Its start is recorded
# before it begins, and with it the fact that it is the only suspect: see `engine.execute.Suspects`.
SUSPECT_CRASHES: Final = 2
COMPANY_CRASHES_MAX: Final = 4  # beyond `max_crashes`, for suspects that ran beside others
# Reasons of states.
FOR_SLEEP: Final = "sleep"  # scheduled by a `sleep` step
FOR_STEP: Final = "step_retry"  # scheduled for the retry of a failed step
FOR_EVENT: Final = "event"  # waiting for the event of a `wait` step
EXPIRED: Final = "expired"  # skipped: not started in time
UNKNOWN_TASK: Final = "unknown_task"  # scheduled: the worker has no such task

_S = State
_E = Occasion

TRANSITIONS: Final[Mapping[tuple[State, Occasion], State]] = {
    (_S.SCHEDULED, _E.DUE): _S.QUEUED,
    (_S.RETRYING, _E.DUE): _S.QUEUED,
    (_S.WAITING, _E.RELEASED): _S.QUEUED,
    (_S.WAITING, _E.RULED_OUT): _S.SKIPPED,
    (_S.QUEUED, _E.CLAIMED): _S.RUNNING,
    (_S.QUEUED, _E.EXPIRED): _S.SKIPPED,
    (_S.WAITING, _E.EXPIRED): _S.SKIPPED,
    (_S.SCHEDULED, _E.EXPIRED): _S.SKIPPED,  # retried later than it may start
    (_S.RETRYING, _E.EXPIRED): _S.SKIPPED,
    (_S.RUNNING, _E.EXPIRED): _S.SKIPPED,  # claimed, but too old to start
    (_S.RUNNING, _E.SUCCEEDED): _S.SUCCEEDED,
    (_S.RUNNING, _E.RETRYING): _S.RETRYING,
    (_S.RUNNING, _E.EXHAUSTED): _S.DEAD,
    (_S.RUNNING, _E.LOST): _S.QUEUED,
    (_S.RUNNING, _E.HANDED_BACK): _S.QUEUED,
    (_S.RUNNING, _E.SNOOZED): _S.SCHEDULED,
    (_S.RUNNING, _E.WAITED): _S.WAITING,
    (_S.RUNNING, _E.CANCELLED): _S.CANCELLED,
    (_S.WAITING, _E.CANCELLED): _S.CANCELLED,
    (_S.SCHEDULED, _E.CANCELLED): _S.CANCELLED,
    (_S.QUEUED, _E.CANCELLED): _S.CANCELLED,
    (_S.RETRYING, _E.CANCELLED): _S.CANCELLED,
    (_S.DEAD, _E.REVIVED): _S.QUEUED,
}


def target(source: State, event: Occasion) -> State:
    """Return the next state. Raises IllegalTransition for a move that is not in the table."""
    try:
        return TRANSITIONS[source, event]
    except KeyError:
        raise IllegalTransition(f"an execution that is {source} cannot be {event}") from None


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A decided move of a running execution, for `Store.apply`; the first three fields are its
    guard.
    """

    id: UUID
    attempt: int
    lease: UUID
    target: State
    outcome: Outcome
    failures: int
    crashes: int
    gate: str | None = None
    delay: Seconds = 0.0  # until the next claim
    at: Instant | None = None  # instead of delay
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    ran: Seconds | None = None  # duration of the task; None: it was not started
    checkpoint: str | None = None  # for the next attempt; None: unchanged
    log: str | None = None  # the last part of the log
    # Of an end: the last progress, if no report had it; None: unchanged. A move back removes it.
    progress: float | None = None
    note: str | None = None
    schedule: UUID | None = None
    run: UUID | None = None  # the run of a node
    node: str | None = None


class Ruling(StrEnum):
    """The reason why a transition was not simply made."""

    STALE = "stale"  # another process moved it first; nothing was written
    CANCELLED = "cancelled"  # it ended as cancelled, as requested before
    BUSY = "busy"  # locked by another transaction, and the caller did not wait
    REFUSED = "refused"  # this row cannot be stored; others were


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer to one transition that was not simply made."""

    id: UUID
    attempt: int
    ruling: Ruling
    detail: str = ""
    current: int | None = None  # of a stale one: the current attempt; None: gone


def after_success(
    claimed: Claimed, *, result: str | None, ran: Seconds, log: str | None = None
) -> Transition:
    """Decide after the task returned."""
    return Transition(  # positional for speed: this is the most frequent end
        claimed.id,
        claimed.attempt,
        claimed.lease,
        State.SUCCEEDED,
        Outcome.SUCCEEDED,
        claimed.failures,
        claimed.crashes,
        claimed.gate,
        result=result,
        ran=ran,
        log=log,
        schedule=claimed.schedule,
        run=None if claimed.node is None else claimed.parent,
        node=claimed.node,
    )


def after_failure(
    claimed: Claimed,
    policy: Retry,
    *,
    error: str,
    kinds: Sequence[str],
    ran: Seconds,
    jitter: float,
    timed_out: bool = False,
    permanent: bool = False,
    checkpoint: str | None = None,
    retry_after: Seconds | None = None,
    exception: BaseException | None = None,
    report: Report | None = None,
) -> Transition:
    """Decide after an error or a timeout. `kinds` are the dotted class names of the exception, most
    specific first. The policy decides the next attempt, which is not before `retry_after`. A wait
    function of the policy gets the `exception`; its own errors go to `report`.

    For a lost worker see `after_loss`.
    """
    failures = claimed.failures + 1
    outcome = Outcome.TIMED_OUT if timed_out else Outcome.FAILED
    if permanent or not (timed_out or policy.allows(kinds)):
        reason, delay = "permanent", None
    else:
        reason = "retries_used_up"
        delay = policy.delay(failures, jitter=jitter, error=exception, report=report)
    return _move(
        claimed,
        State.DEAD if delay is None else State.RETRYING,
        outcome,
        failures=failures,
        delay=0.0 if delay is None else max(delay, retry_after or 0.0),
        error=error,
        reason=reason if delay is None else None,
        ran=ran,
        checkpoint=checkpoint,
    )


def after_retry_later(
    claimed: Claimed,
    *,
    delay: Seconds = 0.0,
    at: Instant | None = None,
    ran: Seconds,
    reason: str | None = None,
    checkpoint: str | None = None,
) -> Transition:
    """Decide after the task asked for a later attempt, which is not a failure."""
    return _move(
        claimed,
        State.SCHEDULED,
        Outcome.RELEASED,
        delay=delay,
        at=at,
        ran=ran,
        reason=reason,
        checkpoint=checkpoint,
    )


def after_wait(claimed: Claimed, *, ran: Seconds, checkpoint: str | None = None) -> Transition:
    """Decide after the task suspended itself until an event, which is not a failure. If the event
    came after the `wait` step was recorded, `apply` releases the execution at once.
    """
    return _move(
        claimed,
        State.WAITING,
        Outcome.RELEASED,
        ran=ran,
        reason=FOR_EVENT,
        checkpoint=checkpoint,
    )


def after_unknown(claimed: Claimed, *, delay: Seconds) -> Transition:
    """Return it uncharged, because the worker has no such task."""
    return _move(claimed, State.SCHEDULED, Outcome.RELEASED, delay=delay, reason=UNKNOWN_TASK)


def after_release(
    claimed: Claimed, *, delay: Seconds = 0.0, ran: Seconds | None = None
) -> Transition:
    """Return it uncharged, started or not."""
    return _move(claimed, State.QUEUED, Outcome.RELEASED, delay=delay, ran=ran)


def after_loss(
    claimed: Claimed,
    *,
    max_crashes: int,
    retry: bool = True,
    is_begun: bool = True,
    is_excused: bool = False,
    is_sole: bool = True,
    is_proven: bool = False,
) -> Transition:
    """Decide after the worker's lease ended while it held this execution.

    Crashes are counted apart from failures: after `max_crashes` the execution counts as the cause,
    and a person decides. `retry=False` (`on_lost="dead"`) allows one start at most.

    - An excused worker stopped because the store was late: no charge.
    - A suspect that had not started, by the record, is not charged.
    - A suspect that had outlived its earlier losses beside others that had not (`is_proven`) is not
      charged.
    - A suspect that was not alone may be innocent: its crashes can exceed the limit, up to a point.
    """
    if is_excused and retry:
        return after_release(claimed)
    is_suspect = claimed.crashes >= SUSPECT_CRASHES
    if is_suspect and (not is_begun or (is_proven and retry)):
        return after_release(claimed)
    crashes = claimed.crashes + 1
    is_blamed = is_sole or not is_suspect or crashes >= max_crashes + COMPANY_CRASHES_MAX
    error = _loss_error(f"the worker that ran attempt {claimed.attempt} stopped renewing its lease")
    if retry and (crashes < max_crashes or not is_blamed):
        move = _move(claimed, State.QUEUED, Outcome.LOST, error=error)
    else:
        move = _move(claimed, State.DEAD, Outcome.LOST, error=error, reason="worker_lost")
    return msgspec.structs.replace(move, crashes=crashes)


def after_interruption(claimed: Claimed, *, ran: Seconds | None = None) -> Transition:
    """End an attempt that the worker stopped and that must not start again (`on_lost="dead"`)."""
    error = _loss_error(f"attempt {claimed.attempt} was cut short because its worker was stopped")
    return _move(claimed, State.DEAD, Outcome.LOST, error=error, reason="worker_lost", ran=ran)


def after_cancel(claimed: Claimed, *, ran: Seconds | None = None) -> Transition:
    """Decide after the task stopped on request."""
    return _move(claimed, State.CANCELLED, Outcome.CANCELLED, ran=ran)


def after_expiry(claimed: Claimed) -> Transition:
    """Skip an execution that was claimed too late."""
    return _move(claimed, State.SKIPPED, Outcome.RELEASED, reason=EXPIRED)


def is_expired(claimed: Claimed, *, now: Instant) -> bool:
    """Return True if it is too late to start."""
    return claimed.expires_at is not None and claimed.expires_at <= now


def _loss_error(message: str) -> str:
    """Return the error of a lost worker, in the form of `core.execution.Failure`."""
    return msgspec.json.encode({"type": "WorkerLost", "message": message}).decode()


def _move(
    claimed: Claimed,
    state: State,
    outcome: Outcome,
    *,
    failures: int | None = None,
    delay: Seconds = 0.0,
    at: Instant | None = None,
    error: str | None = None,
    reason: str | None = None,
    ran: Seconds | None = None,
    checkpoint: str | None = None,
) -> Transition:
    return Transition(
        id=claimed.id,
        attempt=claimed.attempt,
        lease=claimed.lease,
        gate=claimed.gate,
        target=state,
        outcome=outcome,
        failures=claimed.failures if failures is None else failures,
        crashes=claimed.crashes,
        delay=delay,
        at=at,
        error=error,
        reason=reason,
        ran=ran,
        checkpoint=checkpoint,
        schedule=claimed.schedule,
        run=None if claimed.node is None else claimed.parent,
        node=claimed.node,
    )

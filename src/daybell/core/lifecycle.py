"""The life of an execution: which moves exist, and what each event leads to.

`TRANSITIONS` is the whole state machine. Below it, one function per event decides the move a
worker or the reaper asks the store for; the store then makes the move if (execution, attempt,
lease) still holds, and nothing else. Nobody here knows the time: a wait is a delay, and the
store, whose clock is the only one that counts, adds it to its own now.
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
    """What can happen to an execution."""

    DUE = "due"
    RELEASED = "released"  # what it waited for is there
    RULED_OUT = "ruled_out"  # what it waited for will not come
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


# What has lost so many workers is suspected of killing them. Its start is on record before it
# begins, so that of all suspects in a worker only those are counted as lost that had begun; and
# whether it was the only one, because otherwise another may be to blame: see
# `engine.execute.Suspects`.
SUSPECT_CRASHES: Final = 2
COMPANY_CRASHES_MAX: Final = 4  # beyond `max_crashes`, that other suspects may be to blame for
FOR_SLEEP: Final = "sleep"  # why something is scheduled: a `sleep` step asked for it
FOR_STEP: Final = "step_retry"  # the same: one of its steps failed, and is tried again
FOR_EVENT: Final = "event"  # why something is waiting: for what a `wait` step asked for
EXPIRED: Final = "expired"  # why something was skipped: nobody started it in time
UNKNOWN_TASK: Final = "unknown_task"  # why something is put off: who took it has no such task

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
    (_S.SCHEDULED, _E.EXPIRED): _S.SKIPPED,  # it put itself off for longer than it has
    (_S.RETRYING, _E.EXPIRED): _S.SKIPPED,
    (_S.RUNNING, _E.EXPIRED): _S.SKIPPED,  # claimed ahead, and found too old before it was started
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
    """Where an event leads. Raises IllegalTransition where the table has no such move."""
    try:
        return TRANSITIONS[source, event]
    except KeyError:
        raise IllegalTransition(f"an execution that is {source} cannot be {event}") from None


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A decided move of a running execution, for `Store.apply`. The first three fields are its
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
    delay: Seconds = 0.0  # for a way back: how long until it may be claimed again
    at: Instant | None = None  # the same as a moment; wins over delay
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    ran: Seconds | None = None  # how long the task ran; None: it was never started
    checkpoint: str | None = None  # for the next attempt; None leaves what is there
    log: str | None = None  # the last part of what the attempt said
    schedule: UUID | None = None
    run: UUID | None = None  # of a node: whom its end concerns
    node: str | None = None


class Ruling(StrEnum):
    """What `Store.apply` says of a transition that was not simply made."""

    STALE = "stale"  # somebody else moved it first; nothing was written
    CANCELLED = "cancelled"  # it ended, but as cancelled, because that had been asked for
    BUSY = "busy"  # locked by another transaction and the caller did not want to wait
    REFUSED = "refused"  # the store cannot keep this row; its neighbours were not hurt


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer for one transition that was not simply made."""

    id: UUID
    attempt: int
    ruling: Ruling
    detail: str = ""
    current: int | None = None  # of a stale one: the attempt that the execution is at; None: gone


def after_success(
    claimed: Claimed, *, result: str | None, ran: Seconds, log: str | None = None
) -> Transition:
    """The task returned."""
    return Transition(  # by position: this is made for every execution that ends well
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
    """The task raised, or ran out of time. `kinds` are the exception's dotted class names, most
    special first. Another try comes when the policy says, but not before `retry_after`. A policy
    with a function of its own gets the `exception`, and a mistake in it goes to `report`.

    A lost worker is another matter: see `after_loss`.
    """
    failures = claimed.failures + 1
    outcome = Outcome.TIMED_OUT if timed_out else Outcome.FAILED
    if permanent or not (timed_out or policy.allows(kinds)):
        reason, delay = "permanent", None
    else:
        reason = "retries_used_up"
        delay = policy.delay(failures, jitter=jitter, error=exception, report=report)
    if delay is None:
        move = _move(claimed, State.DEAD, outcome, error=error, reason=reason, ran=ran)
    else:
        delay = max(delay, retry_after or 0.0)
        move = _move(claimed, State.RETRYING, outcome, delay=delay, error=error, ran=ran)
    return msgspec.structs.replace(move, failures=failures, checkpoint=checkpoint)


def after_retry_later(
    claimed: Claimed,
    *,
    delay: Seconds = 0.0,
    at: Instant | None = None,
    ran: Seconds,
    reason: str | None = None,
    checkpoint: str | None = None,
) -> Transition:
    """The task asked to be run again later. That is no failure and is not counted as one."""
    move = _move(claimed, State.SCHEDULED, Outcome.RELEASED, delay=delay, ran=ran, reason=reason)
    return msgspec.structs.replace(move, at=at, checkpoint=checkpoint)


def after_wait(
    claimed: Claimed, *, ran: Seconds, checkpoint: str | None = None, log: str | None = None
) -> Transition:
    """The task waits for an event, which its `wait` step says; nothing is held meanwhile. That is
    no failure. If the event has come since that was recorded, `apply` lets it go on at once.
    """
    move = _move(claimed, State.WAITING, Outcome.RELEASED, ran=ran, reason=FOR_EVENT)
    return msgspec.structs.replace(move, checkpoint=checkpoint, log=log)


def after_unknown(claimed: Claimed, *, delay: Seconds) -> Transition:
    """The worker does not know the task: others may, a little later. Nothing is charged."""
    return _move(claimed, State.SCHEDULED, Outcome.RELEASED, delay=delay, reason=UNKNOWN_TASK)


def after_release(
    claimed: Claimed, *, delay: Seconds = 0.0, ran: Seconds | None = None
) -> Transition:
    """The worker gives it back, started or not, because it drains. Nothing is charged."""
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
    """The worker's lease ended while it held this execution.

    Such an end is counted apart from failures: after `max_crashes` of them the execution is
    taken to be what kills its workers, and a person decides. `retry=False` (`on_lost="dead"`)
    promises at most one start. A suspect that has not begun, by the record, had no part in it, and
    one that had outlived its earlier losses beside others that had not (`is_proven`) had hardly
    any. One that was not the only suspect there may be innocent: its crashes can exceed the limit,
    but not without end.
    No execution is charged if the worker is excused: it stopped because the store was late.
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
    """The worker had to stop it before its end, and it must not be started a second time
    (`on_lost="dead"`).
    """
    error = _loss_error(f"attempt {claimed.attempt} was cut short because its worker was stopped")
    return _move(claimed, State.DEAD, Outcome.LOST, error=error, reason="worker_lost", ran=ran)


def after_cancel(
    claimed: Claimed, *, ran: Seconds | None = None, error: str | None = None
) -> Transition:
    """The task stopped because it was asked to."""
    return _move(claimed, State.CANCELLED, Outcome.CANCELLED, error=error, ran=ran)


def after_expiry(claimed: Claimed) -> Transition:
    """It was claimed too late to be worth starting."""
    return _move(claimed, State.SKIPPED, Outcome.RELEASED, reason=EXPIRED)


def is_expired(claimed: Claimed, *, now: Instant) -> bool:
    """Whether it is too late to start it."""
    return claimed.expires_at is not None and claimed.expires_at <= now


def _loss_error(message: str) -> str:
    """The error that a lost worker leaves behind, in the form of `core.execution.Failure`."""
    return msgspec.json.encode({"type": "WorkerLost", "message": message}).decode()


def _move(
    claimed: Claimed,
    state: State,
    outcome: Outcome,
    *,
    delay: Seconds = 0.0,
    error: str | None = None,
    reason: str | None = None,
    ran: Seconds | None = None,
) -> Transition:
    return Transition(
        id=claimed.id,
        attempt=claimed.attempt,
        lease=claimed.lease,
        gate=claimed.gate,
        target=state,
        outcome=outcome,
        failures=claimed.failures,
        crashes=claimed.crashes,
        delay=delay,
        error=error,
        reason=reason,
        ran=ran,
        schedule=claimed.schedule,
        run=None if claimed.node is None else claimed.parent,
        node=claimed.node,
    )

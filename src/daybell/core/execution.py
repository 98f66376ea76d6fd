"""One occurrence of a job, from the moment it is asked for to its end.

Four shapes of the same thing, each with only what its reader needs: `NewExecution` (asked for),
`Claimed` (in a worker's hands), `Execution` (looked at by a person), `Attempt` (one try, once
it has ended). Times are `Instant`s of the store's clock; arguments, results and errors are JSON
text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant, Seconds
from daybell.core.priority import Priority


class State(StrEnum):
    """What an execution is doing; CONTRACT words, seen by everybody."""

    WAITING = "waiting"  # not ready: a slot, a dependency or an event is missing
    SCHEDULED = "scheduled"  # its time is in the future: delayed, asleep, or put off
    QUEUED = "queued"  # may be claimed now
    RETRYING = "retrying"  # failed; the wait before the next try is not over
    RUNNING = "running"  # in the hands of one worker, under its lease
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # out of tries, or not to be retried; a person decides
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # a rule said no: overlap, a missed time, expiry, an upstream failure


TERMINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED})
# In lists, in place of arguments that are too large for them: arguments are an object otherwise.
LEFT_OUT: Final = "null"
# Not started and not finished: what the filter `status=pending` means.
PENDING: Final = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED, State.RETRYING})
# Where a way back keeps its reason: what it waits for, or why it has put itself off.
AWAY: Final = frozenset({State.WAITING, State.SCHEDULED})


def reason_in(state: State, reason: str | None) -> str | None:
    """The reason as people see it: why it was away is over when it is due. The row keeps it until
    its next move, so that a claim need not write it.
    """
    return None if state in (State.QUEUED, State.RUNNING) else reason


class Outcome(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"  # its worker's lease ended
    CANCELLED = "cancelled"
    RELEASED = "released"  # given back, not charged: a drain, a sleep, a lost answer, an expiry


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution as it is asked for. The id is made by the caller, so that asking twice
    creates one.
    """

    id: UUID
    job: str
    args: str = "{}"
    queue: str | None = None  # None here and below: what the job says
    priority: Priority | None = None
    delay: Seconds | None = None  # counted by the store's clock; neither delay nor at: now
    at: Instant | None = None
    expires_in: Seconds | None = None  # not started this long after its time: skipped
    unique_key: str | None = None  # one unfinished execution of a job per key
    retries: int | None = None
    timeout: Seconds | None = None
    gate: str | None = None  # waits for a slot of this gate
    scheduled_for: Instant | None = None  # the tick's nominal time
    schedule: UUID | None = None
    own_gate: bool = False  # its schedule has an overlap gate of its own, beside the job's
    parent: UUID | None = None  # the execution whose task enqueued this one
    force: bool = False  # whatever the job's overlap rule says
    awaits: bool = False  # begins when the job's dependencies let it, if it has any

    @property
    def is_plain(self) -> bool:
        """Whether it uses none of the rarer fields; stores take a shorter way for such rows."""
        return self.scheduled_for is None and self.schedule is None and self._has_no_wishes

    @property
    def is_plain_tick(self) -> bool:
        """The same of what a schedule has fired."""
        return self.queue is None and self.priority is None and self._has_no_wishes

    @property
    def _has_no_wishes(self) -> bool:
        return (
            self.delay is None
            and self.at is None
            and self.expires_in is None
            and self.unique_key is None
            and self.retries is None
            and self.timeout is None
            and self.gate is None
            and self.parent is None
            and not self.force
        )


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: the new execution, or the one that already holds the unique
    key.
    """

    id: UUID
    created: bool = True
    skipped: bool = False  # by its job's overlap rule; only a tick's execution is recorded so
    at_gate: bool = False  # new, and its job's overlap rule was asked: it may have to wait
    state: State | None = None  # as the answer of a server tells it


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An execution in the hands of a worker. `(id, attempt)` names this one start; `lease` the
    claim it came with.
    """

    id: UUID
    # Starts at 1, rises whenever the execution goes back to be claimed again: the fencing token.
    attempt: int
    lease: UUID
    tenant: str
    job: str
    version: int
    kind: str  # what its lane says: the job's needs
    queue: str
    priority: Priority
    args: str
    failures: int  # what the retry policy counts; a release or a deploy adds nothing
    crashes: int  # attempts whose worker was lost
    created_at: Instant
    run_at: Instant
    expires_at: Instant | None = None
    scheduled_for: Instant | None = None
    retries: int | None = None  # overrides the job's policy
    timeout: Seconds | None = None
    checkpoint: str | None = None  # what an earlier attempt left behind
    gate: str | None = None  # a slot to hand on when it ends
    cancel_requested: bool = False
    schedule: UUID | None = None  # to be told when it ends
    previous_success: Instant | None = None  # the last tick of that schedule that succeeded
    node: str | None = None  # of the run that is its parent: the label
    parent: UUID | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One ended try."""

    attempt: int
    outcome: Outcome
    worker: UUID | None
    started_at: Instant | None  # None: it was claimed but never started
    ended_at: Instant
    error: str | None = None


class AttemptSpan(msgspec.Struct, frozen=True, gc=False):
    """An attempt as a chart shows it: ended or not, and without its error."""

    attempt: int
    outcome: Outcome | None  # None here and as its end: it goes on
    worker: UUID | None
    started_at: Instant | None
    ended_at: Instant | None


class Execution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution as a person sees it."""

    id: UUID
    tenant: str
    job: str
    version: int
    state: State
    queue: str
    priority: Priority
    args: str
    attempt: int
    failures: int
    crashes: int
    created_at: Instant
    run_at: Instant
    scheduled_for: Instant | None = None
    expires_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    worker: UUID | None = None
    unique_key: str | None = None
    retries: int | None = None
    timeout: Seconds | None = None
    gate: str | None = None
    schedule: UUID | None = None
    parent: UUID | None = None
    node: str | None = None  # which node of a workflow it is; the run is its parent
    outcome: Outcome | None = None  # of the last attempt, once finished
    result: str | None = None
    error: str | None = None  # of the last attempt that failed
    reason: str | None = None  # why it is dead, skipped or waiting, as one word
    progress: float | None = None  # 0 to 100
    note: str | None = None  # what the task said with its progress
    checkpoint: str | None = None
    cancel_requested_at: Instant | None = None
    is_discarded: bool = False  # dead, and a person has decided to leave it so
    # Of a list: large values are left out. Arguments are then "null", the others None.
    truncated: bool = False


class ExecutionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with the attempts that have ended, oldest first; the final one included."""

    execution: Execution
    attempts: tuple[Attempt, ...]

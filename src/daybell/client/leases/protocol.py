"""The protocol of remote workers: the bodies of its requests, and the engine's types as JSON.

The server and the store over HTTP use the same structs, so that they cannot differ. Values that
the worker does not look into pass as they are, as `msgspec.Raw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from daybell.client import wire
from daybell.core import lifecycle, payload
from daybell.core.event import NewStep, Step, StepKind
from daybell.core.execution import (
    Claimed,
    Failure,
    Line,
    NewLogPart,
    Outcome,
    Priority,
    State,
    join_lines,
    line_text,
)
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.limits import (
    APPLY_BATCH_MAX,
    ARGS_BYTES_MAX,
    CLAIM_BATCH_MAX,
    DURATION_SECONDS_MAX,
    NAME_CHARS_MAX,
    PROGRESS_MESSAGE_CHARS_MAX,
    RECORD_BATCH_MAX,
    RESULT_BYTES_MAX,
)
from daybell.core.units import Instant, to_datetime
from daybell.core.worker import LEASE_SECONDS, Claim, Renewal, Report
from daybell.errors import UsageError

WAIT_SECONDS_MAX: Final = 30.0  # of a claim that finds nothing
LEASE_SECONDS_MAX: Final = 300.0
LEASE_SECONDS_MIN: Final = 0.5
QUEUES_MAX: Final = 100  # of one worker
LEASES_MAX: Final = 10_000  # claims that one worker holds executions of
REQUEST_BYTES: Final = 1024 * 1024  # of reports in one request, about

Raws: TypeAlias = Raw | UnsetType
Length: TypeAlias = Annotated[float, Meta(ge=0, le=DURATION_SECONDS_MAX)]  # in seconds
LeaseLength: TypeAlias = Annotated[
    float,
    Meta(
        ge=LEASE_SECONDS_MIN,
        le=LEASE_SECONDS_MAX,
        description="Seconds without a renewal, until the worker counts as dead.",
    ),
]
Names: TypeAlias = Annotated[
    list[Annotated[str, Meta(max_length=NAME_CHARS_MAX)]], Meta(max_length=QUEUES_MAX)
]
Shown: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Reason: TypeAlias = Annotated[str, Meta(max_length=PROGRESS_MESSAGE_CHARS_MAX)]
LeaseIds: TypeAlias = Annotated[list[UUID], Meta(max_length=LEASES_MAX)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class LeaseBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A body of a worker."""


class WorkerRegistration(LeaseBody):
    """A worker that registers."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)] = "worker"
    queues: Names = msgspec.field(default_factory=lambda: ["default"])
    kinds: Names = msgspec.field(default_factory=lambda: ["task"])
    concurrency: Annotated[int, Meta(ge=1, le=100_000)] = 1
    lease: LeaseLength = LEASE_SECONDS
    worker_id: Annotated[
        UUID | None, Meta(description="Made by `daybell worker`; the server makes one otherwise.")
    ] = None
    replaces: Annotated[
        UUID | None,
        Meta(description="The id under which it stopped all its work because the server was away."),
    ] = None
    host: Shown = ""
    pid: Number = 0
    version: Shown = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    tasks: dict[str, str] | None = None


class ClaimBody(LeaseBody):
    """A claim."""

    lease_id: Annotated[
        UUID, Meta(description="Made for this claim. The same one again: the same executions.")
    ]
    queues: Annotated[Names | None, Meta(description="With an empty list, only wait for news.")] = (
        None
    )
    kinds: Names = msgspec.field(default_factory=lambda: ["task"])
    limit: Annotated[
        int,
        Meta(ge=0, le=CLAIM_BATCH_MAX, description="0: only wait until there is something to do."),
    ] = 1
    wait: Annotated[
        float,
        Meta(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for an execution."),
    ] = 0.0
    is_first: Annotated[
        bool,
        Meta(description="This lease_id was never sent before: the server may answer from memory."),
    ] = False


class LeaseRenewal(LeaseBody):
    """A renewal."""

    lease_ids: Annotated[
        LeaseIds,
        Meta(
            description="Those of all claims, answered or not, except those whose executions have"
            " all ended. What the worker holds under another one is given to others."
        ),
    ] = msgspec.field(default_factory=list[UUID])
    lease: LeaseLength = LEASE_SECONDS


class Fenced(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a worker says about an attempt that it holds."""

    execution_id: UUID
    attempt: Number
    lease_id: UUID


class ResultError(LeaseBody):
    """The error of an attempt."""

    type: str = "Error"
    message: str = ""
    traceback: str = ""
    names: Annotated[
        list[str], Meta(description="Class and base classes, which rules for retries may name.")
    ] = msgspec.field(default_factory=list[str])


class AttemptEnd(Fenced):
    """The end of an attempt."""

    outcome: Outcome
    result: Annotated[Raws, Meta(description="Any JSON.")] = UNSET
    error: ResultError | None = None
    is_permanent: Annotated[bool, Meta(description="A retry cannot help.")] = False
    delay: Annotated[
        Length | None,
        Meta(description="Seconds until the next attempt; at least, if the job's rule decides."),
    ] = None
    at: wire.Time | None = None
    status: Annotated[
        State | None, Meta(description="Left out: it follows from the outcome and the job.")
    ] = None
    reason: Reason | None = None
    ran: Length | None = None
    checkpoint: Raws = UNSET
    log: list[Line] = msgspec.field(default_factory=list[Line])
    forgets_crashes: bool = False


class ResultsReport(LeaseBody):
    """Ended attempts."""

    results: Annotated[list[AttemptEnd], Meta(min_length=1, max_length=APPLY_BATCH_MAX)]


class AttemptProgress(Fenced):
    """The progress of a running attempt."""

    ran: Length = 0.0
    progress: Annotated[float, Meta(ge=0, le=100)] | None = None
    message: Reason | None = None
    checkpoint: Raws = UNSET


class ProgressBody(LeaseBody):
    """Progress of running attempts."""

    reports: Annotated[list[AttemptProgress], Meta(max_length=APPLY_BATCH_MAX)] = msgspec.field(
        default_factory=list[AttemptProgress]
    )
    sole_suspect: Annotated[
        UUID | UnsetType | None,
        Meta(
            description="The only execution here that is suspected of crashing its workers; null:"
            " there is none, or several."
        ),
    ] = UNSET


class LogLines(Fenced):
    """A part of a log."""

    number: Annotated[
        int, Meta(ge=1, le=2**31 - 2, description="From 1. A repeated part is stored once.")
    ]
    lines: Annotated[
        list[Line],
        Meta(min_length=1, description="[seconds since 1970, level, logger or empty, text]"),
    ]


class LogReport(LeaseBody):
    """Parts of logs."""

    parts: Annotated[list[LogLines], Meta(min_length=1, max_length=APPLY_BATCH_MAX)]


class StepRecord(Fenced):
    """A step of a durable function."""

    n: Number
    name: str
    kind: StepKind
    result: Raws = UNSET
    error: str | None = None
    failures: Number = 0
    is_done: bool = True
    ran: Length | None = None
    delay: Length | None = None
    event: str | None = None
    match: Raws = UNSET
    timeout: Length | None = None


class StepsReport(LeaseBody):
    """Steps to record; or the execution whose steps are to be read."""

    steps: Annotated[list[StepRecord], Meta(max_length=RECORD_BATCH_MAX)] = msgspec.field(
        default_factory=list[StepRecord]
    )
    recall: Annotated[UUID | None, Meta(description="An execution that the worker holds.")] = None


class Departure(LeaseBody):
    """The end of a worker in good order."""

    lease_ids: Annotated[
        LeaseIds | None,
        Meta(description="Release only what is held under these. Left out: everything."),
    ] = None
    is_over: Annotated[bool, Meta(description="The worker ends; false: it goes on.")] = True


class DetailsRequest(LeaseBody):
    """What a worker needs to know of an execution that it holds."""

    execution_id: UUID
    secrets: Annotated[
        list[str], Meta(max_length=100, description="Names that its arguments or its job refer to.")
    ] = msgspec.field(default_factory=list[str])


# The engine's types as JSON, and back.


def optional_time(at: Instant | None) -> Any:
    """Return a time for an answer."""
    return None if at is None else to_datetime(at)


def optional_instant(at: Any) -> Instant | None:
    """Return a time of an answer."""
    return None if at is None else at.timestamp()


def raw_of(text: str | None) -> Raws:
    """Return JSON text as it is; unset for none."""
    return UNSET if text is None else Raw(text.encode())


def text_of(raw: Raws) -> str | None:
    """Return JSON text as it is."""
    return None if raw is UNSET else bytes(raw).decode()


def checked_text(raw: Raws, what: str, bytes_max: int) -> str | None:
    """Return JSON text of a worker that can be stored. Raises UsageError."""
    if raw is UNSET:
        return None
    text = bytes(raw).decode()
    value = payload.decode(text, what=what)
    # Written anew, if it may hold what a store cannot keep.
    return payload.encode(value, what=what, bytes_max=bytes_max) if "\\u" in text else text


def lease_answer(worker: UUID, renewal: Renewal) -> wire.WorkerLease:
    return wire.WorkerLease(
        worker_id=worker,
        status=renewal.state,
        now=to_datetime(renewal.now),
        lease_until=to_datetime(renewal.lease_until),
        cancel=[wire.HeldAttempt(id, attempt) for id, attempt in renewal.cancel],
        returned=renewal.returned,
    )


def renewal_of(answer: wire.WorkerLease) -> Renewal:
    return Renewal(
        now=answer.now.timestamp(),
        lease_until=answer.lease_until.timestamp(),
        state=answer.status,
        cancel=tuple((one.execution_id, one.attempt) for one in answer.cancel),
        returned=answer.returned,
    )


def claim_answer(claim: Claim) -> wire.LeaseClaim:
    return wire.LeaseClaim(
        lease_id=claim.lease,
        now=to_datetime(claim.now),
        executions=[claimed_answer(one) for one in claim.executions],
        next_due=optional_time(claim.next_due),
        is_limited=claim.is_limited,
    )


def claim_of(answer: wire.LeaseClaim, tenant: str) -> Claim:
    lease = answer.lease_id
    return Claim(
        lease=lease,
        now=optional_instant(answer.now) or 0.0,
        executions=[claimed_of(one, lease, tenant) for one in answer.executions],
        next_due=optional_instant(answer.next_due),
        is_limited=answer.is_limited,
    )


def claimed_answer(one: Claimed) -> wire.ClaimedExecution:
    return wire.ClaimedExecution(
        execution_id=one.id,
        attempt=one.attempt,
        job=one.job,
        version=one.version,
        kind=one.kind,
        queue=one.queue,
        priority=one.priority.label,  # pyright: ignore[reportArgumentType]
        args=Raw(one.args.encode()),
        failures=one.failures,
        crashes=one.crashes,
        created_at=to_datetime(one.created_at),
        run_at=to_datetime(one.run_at),
        expires_at=optional_time(one.expires_at),
        scheduled_for=optional_time(one.scheduled_for),
        retries=one.retries,
        timeout=one.timeout,
        checkpoint=raw_of(one.checkpoint),
        cancel_requested=one.cancel_requested,
        previous_success=optional_time(one.previous_success),
        node=one.node,
        parent_id=one.parent,
        is_limited=one.is_limited,
    )


def claimed_of(one: wire.ClaimedExecution, lease: UUID, tenant: str) -> Claimed:
    """Return an execution as the engine has it. Its gate and schedule stay with the server."""
    return Claimed(
        id=one.execution_id,
        attempt=one.attempt,
        lease=lease,
        tenant=tenant,
        job=one.job,
        version=one.version,
        kind=one.kind,
        queue=one.queue,
        priority=Priority[one.priority.upper()],
        args=bytes(one.args).decode(),
        failures=one.failures,
        crashes=one.crashes,
        created_at=one.created_at.timestamp(),
        run_at=one.run_at.timestamp(),
        expires_at=optional_instant(one.expires_at),
        scheduled_for=optional_instant(one.scheduled_for),
        retries=one.retries,
        timeout=one.timeout,
        checkpoint=text_of(one.checkpoint),
        cancel_requested=one.cancel_requested,
        previous_success=optional_instant(one.previous_success),
        node=one.node,
        parent=one.parent_id,
        is_limited=one.is_limited,
    )


_LINES: Final = msgspec.json.Decoder(list[Line])


def read_lines(text: str) -> list[Line]:
    """Return the lines of a stored log, which are JSON each."""
    joined = text.replace("\n", ",")
    return _LINES.decode(f"[{joined}]")


def write_lines(lines: Iterable[Line]) -> str:
    """Return lines in the form in which they are stored."""
    return join_lines(line_text(one.at, one.level, one.source, one.message) for one in lines)


def end_of(move: Transition) -> AttemptEnd:
    """Return a decided move as a worker reports it."""
    error = None if move.error is None else Failure.of_kept(move.error)
    return AttemptEnd(
        execution_id=move.id,
        attempt=move.attempt,
        lease_id=move.lease,
        outcome=move.outcome,
        status=move.target,
        result=raw_of(move.result),
        error=None
        if error is None
        else ResultError(
            type=error.type,
            message=error.message,
            traceback=error.traceback,
            names=list(error.names),
        ),
        delay=move.delay or None,
        at=optional_time(move.at),
        reason=move.reason,
        ran=move.ran,
        checkpoint=raw_of(move.checkpoint),
        log=[] if move.log is None else read_lines(move.log),
        forgets_crashes=move.crashes == 0,
    )


_STATES: Final[Mapping[Outcome, frozenset[State]]] = {
    Outcome.SUCCEEDED: frozenset({State.SUCCEEDED}),
    Outcome.FAILED: frozenset({State.RETRYING, State.DEAD}),
    Outcome.TIMED_OUT: frozenset({State.RETRYING, State.DEAD}),
    Outcome.LOST: frozenset({State.DEAD}),
    Outcome.CANCELLED: frozenset({State.CANCELLED}),
    Outcome.RELEASED: frozenset({State.QUEUED, State.SCHEDULED, State.WAITING, State.SKIPPED}),
}
FAILED: Final = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})


def check_end(end: AttemptEnd) -> None:
    """Refuse an outcome that does not lead to its status. Raises UsageError."""
    states = _STATES[end.outcome]
    if end.status is not None and end.status not in states:
        known = ", ".join(sorted(states))
        raise UsageError(
            f"the outcome {end.outcome} does not lead to {end.status}, but to {known}",
            field="status",
        )
    if end.outcome in FAILED and end.error is None:
        raise UsageError(f"the outcome {end.outcome} takes an error", field="error")


def move_of(
    end: AttemptEnd, claimed: Claimed | None, definition: JobDefinition | None, *, jitter: float
) -> Transition:
    """Return the move that a reported end stands for. What a worker cannot know, or must not
    decide, is that of the claim: gate, schedule, run and counts. Without a claim, the attempt is
    not the worker's any more; the store answers whether it was ended by it.
    """
    check_end(end)
    result = checked_text(end.result, "result", RESULT_BYTES_MAX)
    checkpoint = checked_text(end.checkpoint, "checkpoint", ARGS_BYTES_MAX)
    failure = _failure(end)
    target = end.status
    reason = end.reason
    failures = 0 if claimed is None else claimed.failures
    delay = end.delay or 0.0
    if end.outcome in FAILED:
        failures += 1
        if target is None and claimed is not None and definition is not None:
            assert failure is not None
            retry = definition.retry
            if claimed.retries is not None:
                retry = msgspec.structs.replace(retry, retries=claimed.retries)
            ruled = lifecycle.after_failure(
                claimed,
                retry,
                error="",
                kinds=failure.names,
                ran=0.0,
                jitter=jitter,
                timed_out=end.outcome is Outcome.TIMED_OUT,
                permanent=end.is_permanent,
                retry_after=end.delay,
            )
            target, reason, delay = ruled.target, ruled.reason, ruled.delay
    elif target is None:
        target = _DEFAULTS.get(end.outcome)
        if end.outcome is Outcome.RELEASED and (end.delay or end.at):
            target = State.SCHEDULED
    is_node = claimed is not None and claimed.node is not None
    return Transition(
        id=end.execution_id,
        attempt=end.attempt,
        lease=end.lease_id,
        target=target or State.DEAD,
        outcome=end.outcome,
        failures=failures,
        crashes=0 if claimed is None or end.forgets_crashes else claimed.crashes,
        gate=None if claimed is None else claimed.gate,
        delay=delay,
        at=optional_instant(end.at),
        result=result,
        error=None if failure is None else failure.to_json(),
        reason=reason,
        ran=end.ran,
        checkpoint=checkpoint,
        log=write_lines(end.log) if end.log else None,
        schedule=None if claimed is None else claimed.schedule,
        run=claimed.parent if claimed is not None and is_node else None,
        node=None if claimed is None else claimed.node,
    )


_DEFAULTS: Final = {
    Outcome.SUCCEEDED: State.SUCCEEDED,
    Outcome.LOST: State.DEAD,
    Outcome.CANCELLED: State.CANCELLED,
    Outcome.RELEASED: State.QUEUED,
}


def _failure(end: AttemptEnd) -> Failure | None:
    if end.error is None:
        return None
    error = end.error
    return Failure(
        type=error.type,
        message=error.message,
        traceback=error.traceback,
        names=tuple(error.names),
    )


def verdict_answer(verdict: Verdict) -> wire.ReportVerdict:
    return wire.ReportVerdict(
        execution_id=verdict.id,
        attempt=verdict.attempt,
        ruling=verdict.ruling.value,
        detail=verdict.detail,
        current_attempt=verdict.current,
    )


def verdict_of(answer: wire.ReportVerdict) -> Verdict:
    return Verdict(
        id=answer.execution_id,
        attempt=answer.attempt,
        ruling=Ruling(answer.ruling),
        detail=answer.detail,
        current=answer.current_attempt,
    )


def progress_of(report: Report) -> AttemptProgress:
    return AttemptProgress(
        execution_id=report.id,
        attempt=report.attempt,
        lease_id=report.lease,
        ran=report.ran,
        progress=report.progress,
        message=report.note,
        checkpoint=raw_of(report.checkpoint),
    )


def report_of(one: AttemptProgress) -> Report:
    return Report(
        id=one.execution_id,
        attempt=one.attempt,
        lease=one.lease_id,
        ran=one.ran,
        progress=one.progress,
        note=one.message,
        checkpoint=checked_text(one.checkpoint, "checkpoint", ARGS_BYTES_MAX),
    )


def log_lines_of(part: NewLogPart) -> LogLines:
    return LogLines(
        execution_id=part.id,
        attempt=part.attempt,
        lease_id=part.lease,
        number=part.number,
        lines=read_lines(part.text),
    )


def log_part_of(one: LogLines) -> NewLogPart:
    return NewLogPart(
        one.execution_id, one.attempt, one.lease_id, one.number, write_lines(one.lines)
    )


def step_record_of(step: NewStep) -> StepRecord:
    return StepRecord(
        execution_id=step.id,
        attempt=step.attempt,
        lease_id=step.lease,
        n=step.n,
        name=step.name,
        kind=step.kind,
        result=raw_of(step.result),
        error=step.error,
        failures=step.failures,
        is_done=step.is_done,
        ran=step.ran,
        delay=step.delay,
        event=step.event,
        match=UNSET if step.match == "{}" else raw_of(step.match),
        timeout=step.timeout,
    )


def new_step_of(one: StepRecord) -> NewStep:
    return NewStep(
        id=one.execution_id,
        attempt=one.attempt,
        lease=one.lease_id,
        n=one.n,
        name=one.name,
        kind=one.kind,
        result=checked_text(one.result, "result", RESULT_BYTES_MAX),
        error=one.error,
        failures=one.failures,
        is_done=one.is_done,
        ran=one.ran,
        delay=one.delay,
        event=one.event,
        match=checked_text(one.match, "match", ARGS_BYTES_MAX) or "{}",
        timeout=one.timeout,
    )


def step_answer(step: Step | None) -> wire.RecordedStep | None:
    if step is None:
        return None
    return wire.RecordedStep(
        n=step.n,
        name=step.name,
        kind=step.kind,
        result=raw_of(step.result),
        error=step.error,
        failures=step.failures,
        wake_at=optional_time(step.wake_at),
        started_at=to_datetime(step.started_at),
        finished_at=optional_time(step.finished_at),
        is_done=step.is_done,
    )


def step_of(answer: wire.RecordedStep | None) -> Step | None:
    if answer is None:
        return None
    return Step(
        n=answer.n,
        name=answer.name,
        kind=answer.kind,
        result=text_of(answer.result),
        error=answer.error,
        failures=answer.failures,
        wake_at=optional_instant(answer.wake_at),
        started_at=answer.started_at.timestamp(),
        finished_at=optional_instant(answer.finished_at),
        is_done=answer.is_done,
    )

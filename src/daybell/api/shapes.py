"""What answers look like, for the OpenAPI document. They are made by client/wire.py, and nothing
checks them again on their way out; the tests compare the two.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from daybell.api.dependency_shapes import WaitsFor
from daybell.api.event_schema import Step
from daybell.api.rules import Id
from daybell.api.run_shapes import Outcome, Status, WorkflowRun
from daybell.core.limits import LIST_VALUE_BYTES_MAX

Time = str
JobStatus = Literal[
    "paused",
    "running",
    "retrying",
    "queued",
    "waiting",
    "scheduled",
    "succeeded",
    "dead",
    "cancelled",
    "skipped",
    "manual",
    "deleted",
]
Word = Literal["critical", "high", "normal", "low"]


# Of items of lists.
TRUNCATED: Any = Field(
    description=f"The list leaves values of more than {LIST_VALUE_BYTES_MAX:,} bytes out: they are"
    " null here, and complete at `link`."
)
LINK: Any = Field(description="If `truncated`: the path of the complete item.")


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str
    message: str


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["urn:daybell:problem:job-not-found"])
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    execution_id: Id | None = Field(None, description="The execution that is in the way.")
    quota: str | None = Field(None, description="The quota that is used up.")


class LastExecution(BaseModel):
    """An execution beside its job."""

    execution_id: Id
    job: str
    version: int
    tenant: str
    status: Status
    reason: str | None
    queue: str
    priority: Word
    args: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    attempt: int
    failures: int
    crashes: int
    created_at: Time
    run_at: Time
    scheduled_for: Time | None
    expires_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    cancel_requested_at: Time | None
    worker_id: Id | None
    unique_key: str | None
    retries: int | None
    timeout: float | None
    parent_id: Id | None
    node: str | None = Field(description="Its label in the workflow's run that it is a part of.")
    workflow_id: Id | None = Field(description="That run.")
    schedule_id: Id | None
    progress: float | None
    note: str | None
    outcome: str | None
    result: Any
    error: Any
    is_discarded: bool
    truncated: bool = TRUNCATED
    link: str | None = LINK


class Execution(LastExecution):
    """An execution without its attempts."""

    job_id: Id


class Attempt(BaseModel):
    """One ended try."""

    attempt: int
    outcome: Outcome
    worker_id: Id | None
    started_at: Time | None
    ended_at: Time
    error: Any


class Moment(BaseModel):
    """Something that happened to an execution."""

    at: Time
    event: str
    attempt: int | None = None
    worker_id: Id | None = None
    node: str | None = Field(None, description="Of a workflow's run: the node it happened to.")
    status: Status | None = Field(None, description="Of its end (`ended`): as what it ended.")
    step: str | None = Field(
        None, description="Of a durable function: the step, or the event or decision it waits for."
    )
    n: int | None = Field(None, description="The place of that step in the order of calls.")
    until: Time | None = Field(None, description="Of a sleep or a wait.")


class ExecutionDetail(Execution):
    """An execution with its ended attempts, and what happened to it, oldest first."""

    attempts: list[Attempt]
    timeline: list[Moment]
    workflow: WorkflowRun | None = Field(description="Of a workflow's run: its nodes.")
    steps: list[Step]


class ExecutionPage(BaseModel):
    """A page of executions, newest first."""

    items: list[Execution]
    next_cursor: str | None


class LogLine(BaseModel):
    """A line that a task said or printed."""

    at: Time
    attempt: int
    level: str
    source: str
    message: str


class LogPage(BaseModel):
    """Lines of a log, in their order. From `end_cursor` on is what is said later."""

    items: list[LogLine]
    next_cursor: str | None
    end_cursor: str | None


class Why(BaseModel):
    """Why an execution has not run, or not ended."""

    execution_id: Id
    status: Status
    reason: str = Field(examples=["no_worker"])
    detail: str
    next_at: Time | None = None


class Enqueued(BaseModel):
    """The answer to a trigger: a new execution, or the one that holds the unique key."""

    execution_id: Id
    status: Status
    created: bool


class EnqueuedItem(BaseModel):
    """One of many."""

    execution_id: Id
    created: bool


class EnqueuedMany(BaseModel):
    """The answer to a bulk enqueue, in the order of what was sent."""

    count: int
    created: int
    items: list[EnqueuedItem]


class Cancelled(BaseModel):
    """The answer to a cancel: it has ended, or was asked to."""

    execution_id: Id
    status: Status
    cancel_requested: bool


class Retried(BaseModel):
    """The answer to a retry: the execution that runs now, itself or a new one."""

    execution_id: Id
    status: Status
    created: bool


class Counts(BaseModel):
    """How many went which way; a way that none went is left out. With `next_cursor`, a search by
    content has more to read: send the request again with it as `cursor`.
    """

    matched: int
    cancelled: int | None = None
    requested: int | None = None
    finished: int | None = None
    unknown: int | None = None
    revived: int | None = None
    renewed: int | None = None
    key_held: int | None = None
    over_quota: int | None = None
    changed: int | None = None
    refused: int | None = None
    needs_force: int | None = None
    not_retryable: int | None = None
    discarded: int | None = None
    not_listed: int | None = None
    next_cursor: str | None = None


class StateCounts(BaseModel):
    """Executions by state; of the states in `at_least` there may be more."""

    executions: dict[str, int]
    at_least: list[str]


class Schedule(BaseModel):
    """A schedule of a job."""

    schedule_id: Id
    name: str
    rule: Any
    description: str | None
    args: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    delay: float | None
    is_reboot: bool
    since: Time | None = Field(description="Of one after other jobs: what they did since counts.")
    next_run_at: Time | None
    last_run_at: Time | None
    last_success_at: Time | None
    is_declared: bool
    overlap_by: Literal["schedule", "job"] = Field(
        description="Whose unfinished execution the overlap rule looks at: one of this schedule,"
        " or any of the job that passes the job's gate."
    )
    is_paused: bool
    fired: int
    skipped: int
    missed: int
    failures: int
    truncated: bool = Field(
        description="The list leaves its large `args` out. `GET /jobs/{job}` has them."
    )


class JobVersion(BaseModel):
    """A job at one of its versions."""

    job_id: Id
    name: str
    version: int
    tenant: str
    kind: str
    task: str | None
    command: Any
    shell: bool | None
    env: dict[str, Any] | None
    http: Any
    sql: dict[str, Any] | None
    notify: dict[str, Any] | None
    workflow: dict[str, Any] | None
    queue: str
    priority: Word
    retry: dict[str, Any]
    timeout: float | None
    expires: float | None
    max_crashes: int
    on_lost: Literal["retry", "dead"]
    store_result: bool
    description: str
    user_id: str | None
    settings: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    args: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    schedules: list[Any]
    overlap: Literal["skip", "queue", "queue_all", "replace", "allow"] | None
    misfire: dict[str, Any]
    pause_after_failures: int | None
    dependencies: list[str]
    on_dependency_failure: Literal["wait", "skip", "run"]
    template: dict[str, Any] | None
    source: str
    once: bool = Field(description="Made to run one time: it is deleted with its last execution.")
    author: str
    created_at: Time
    is_current: bool
    paused_at: Time | None
    pause_note: str
    truncated: bool = TRUNCATED
    link: str | None = LINK


class FieldChange(BaseModel):
    """A field of a request for the job that is not as it was; null: it is not said."""

    field: str
    before: Any
    after: Any


class ListedVersion(JobVersion):
    """A version of a job, and what it says otherwise than the one before it."""

    changes: list[FieldChange]


class Job(JobVersion):
    """A job with what it does now."""

    status: JobStatus
    progress: float | None
    started_at: Time | None
    next_run_at: Time | None
    schedules: list[Schedule]
    last_execution: LastExecution | None
    waits_for: list[WaitsFor] = Field(
        description="How its dependencies stand. Empty in lists of jobs: ask for the job alone."
    )


class NewJobAnswer(Job):
    """A job that was created, and the execution of one that runs once, now."""

    execution_id: Id | None = None
    warnings: list[str] = []


class ChangedJob(Job):
    """A job that was changed."""

    warnings: list[str] = []


class AppliedJob(BaseModel):
    """What declaring a job has done, or would do. `before` and `after` are requests."""

    action: Literal["created", "changed", "unchanged"]
    before: dict[str, Any] | None
    after: dict[str, Any]
    job: Job | None
    warnings: list[str]


class JobWarnings(BaseModel):
    """What looks wrong with a job."""

    items: list[str]
    next_cursor: str | None


class JobPage(BaseModel):
    """A page of jobs, by name."""

    items: list[Job]
    next_cursor: str | None


class JobVersions(BaseModel):
    """A page of a job's versions, newest first."""

    items: list[ListedVersion]
    next_cursor: str | None


class Deleted(BaseModel):
    """The answer to a job's end: how many unfinished executions were cancelled."""

    job_id: Id
    name: str
    status: Literal["deleted"]
    cancelled: int
    warnings: list[str]  # who needs the job, and whether code brings it back


class Filled(BaseModel):
    """A tick that was, or would be, run again."""

    scheduled_for: Time
    schedule: str
    execution_id: Id | None
    created: bool


class Backfill(BaseModel):
    """What a backfill has done, or would do."""

    backfill_id: Id | None
    job: str
    dry_run: bool
    ticks: int
    created: int
    items: list[Filled]

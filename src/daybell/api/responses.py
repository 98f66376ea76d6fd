"""Response models for the OpenAPI document; client/wire.py builds the responses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from daybell.api.requests import Id
from daybell.api.schema import Step
from daybell.core.limits import LIST_VALUE_BYTES_MAX

# What answers say of a workflow's run, for the OpenAPI document.

ExecutionStatus = Literal[
    "waiting",
    "scheduled",
    "queued",
    "retrying",
    "running",
    "succeeded",
    "dead",
    "cancelled",
    "skipped",
]
Outcome = Literal["succeeded", "failed", "timed_out", "lost", "cancelled", "released"]

_RUN_EXAMPLE: dict[str, Any] = {
    "nodes": [
        {
            "name": "extract",
            "status": "succeeded",
            "reason": None,
            "execution_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f67",
            "kind": "task",
            "task": "extract",
            "job": None,
            "rule": "all_success",
            "ready_at": "2026-11-16T08:59:58+00:00",
            "started_at": "2026-11-16T09:00:00+00:00",
            "finished_at": "2026-11-16T09:00:04+00:00",
            "items": None,
            "run_at": None,
            "waits": [],
            "attempts": [
                {
                    "attempt": 1,
                    "outcome": "failed",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:00+00:00",
                    "ended_at": "2026-11-16T09:00:01+00:00",
                },
                {
                    "attempt": 2,
                    "outcome": "succeeded",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:03+00:00",
                    "ended_at": "2026-11-16T09:00:04+00:00",
                },
            ],
        },
        {
            "name": "transform",
            "status": "running",
            "reason": None,
            "execution_id": None,
            "kind": "command",
            "task": None,
            "job": None,
            "rule": "all_success",
            "ready_at": "2026-11-16T09:00:04+00:00",
            "started_at": "2026-11-16T09:00:04+00:00",
            "finished_at": None,
            "items": {"total": 40, "ended": 12, "failed": 0},
            "run_at": None,
            "waits": [],
            "attempts": [],
        },
    ],
    "edges": [{"from": "extract", "to": "transform", "when": "result.rows > 0"}],
    "progress": {"ended": 1, "total": 2},
    "failed": [],
    "fail_fast": False,
    "max_running": 4,
}


class ItemCounts(BaseModel):
    """How far a mapped node is."""

    total: int
    ended: int
    failed: int


class NodeAttempt(BaseModel):
    """A try at a node: a bar of a chart. Its error is with the node's execution."""

    attempt: int
    outcome: Outcome | None = Field(description="null: it goes on.")
    worker_id: Id | None
    started_at: str | None = Field(description="null: it was claimed, and has not started.")
    ended_at: str | None


class NodeWait(BaseModel):
    """What a node waits for, or a node inside of it: `approve` or `signal` its execution."""

    execution_id: Id
    node: str = Field(description="Its own name: of an item, or in a run inside of this one.")
    kind: Literal["event", "approval"]
    name: str
    match: dict[str, Any] = Field(description="What the event's data must say.")
    until: str | None


class RunNode(BaseModel):
    """A node of a run, with the times that a chart needs."""

    name: str
    status: ExecutionStatus
    reason: str | None = Field(
        description="Why it did not run, or its error in short. Of one that was begun and has not"
        " ended: why it is away, such as `event`, `sleep` or `step_retry`. `quota`: it, or some of"
        " its items, wait for room in the tenant's quota `queued`."
    )
    execution_id: Id | None
    kind: str | None
    task: str | None
    job: str | None
    rule: str
    ready_at: str | None = Field(description="Since then it waited for room, or a worker.")
    started_at: str | None
    finished_at: str | None
    items: ItemCounts | None
    run_at: str | None = Field(description="Of one that was begun and waits: not before then.")
    waits: list[NodeWait] = Field(
        description="Events and decisions that it waits for. The first 1,000 of a run."
    )
    attempts: list[NodeAttempt] = Field(
        description="The newest 20 of each node, oldest first; fewer if more than a thousand nodes"
        " have begun. None of a mapped node: ask for its items as executions."
    )


class RunEdge(BaseModel):
    """A node that waits for another."""

    from_: str = Field(alias="from")
    to: str
    when: str | None


class RunProgress(BaseModel):
    """How many nodes have ended."""

    ended: int
    total: int


class WorkflowRun(BaseModel):
    """A run's nodes, those that come first before the others, and its edges."""

    model_config = ConfigDict(json_schema_extra={"examples": [_RUN_EXAMPLE]})

    nodes: list[RunNode]
    edges: list[RunEdge]
    progress: RunProgress
    failed: list[str] = Field(
        description="Nodes that failed, also in a run that succeeded since others dealt with it."
    )
    fail_fast: bool
    max_running: int | None


# What answers say of a job's dependencies, for the OpenAPI document.


class WaitsFor(BaseModel):
    """How one dependency of a job stands."""

    job: str
    is_met: bool = Field(description="Whether the job need not wait for it.")
    detail: str


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
    status: ExecutionStatus
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
    status: ExecutionStatus | None = Field(
        None, description="Of its end (`ended`): as what it ended."
    )
    step: str | None = Field(
        None, description="Of a durable function: the step, or the event or decision it waits for."
    )
    n: int | None = Field(None, description="The place of that step in the order of calls.")
    until: Time | None = Field(None, description="Of a sleep or a wait.")


class ExecutionDetail(LastExecution):
    """An execution with its ended attempts, and what happened to it, oldest first."""

    job_id: Id
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
    status: ExecutionStatus
    reason: str = Field(examples=["no_worker"])
    detail: str
    next_at: Time | None = None


class Enqueued(BaseModel):
    """The answer to a trigger: a new execution, or the one that holds the unique key."""

    execution_id: Id
    status: ExecutionStatus
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
    status: ExecutionStatus
    cancel_requested: bool


class Retried(BaseModel):
    """The answer to a retry: the execution that runs now, itself or a new one."""

    execution_id: Id
    status: ExecutionStatus
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


class JobState(BaseModel):
    """The fields of a job that change while it runs."""

    status: JobStatus
    progress: float | None
    started_at: Time | None
    next_run_at: Time | None
    schedules: list[Schedule]
    last_execution: LastExecution | None
    waits_for: list[WaitsFor] = Field(
        description="How its dependencies stand. Empty in lists of jobs: ask for the job alone."
    )


class Job(JobState, JobVersion):
    """A job with what it does now."""


class NewJobAnswer(JobState, JobVersion):
    """A job that was created, and the execution of one that runs once, now."""

    execution_id: Id | None = None
    warnings: list[str] = []


class ChangedJob(JobState, JobVersion):
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


# What answers look like, continued: queues, workers, schedules, access.


class Health(BaseModel):
    """Whether a process, or its store, is well."""

    status: Literal["ok", "ready", "unavailable"]
    error: str | None = None


class Worker(BaseModel):
    """A worker."""

    worker_id: Id
    name: str
    tenant: str
    state: Literal["live", "draining", "dead"]
    host: str
    pid: int
    version: str
    queues: list[str]
    kinds: list[str]
    labels: dict[str, str]
    capacity: int
    running: int
    started_at: Time
    renewed_at: Time
    lease_until: Time


class Workers(BaseModel):
    """A page of workers, oldest first."""

    items: list[Worker]
    next_cursor: str | None


class Drained(BaseModel):
    """The answer to a drain."""

    worker_id: Id
    state: Literal["draining"]


class Queue(BaseModel):
    """A queue with its numbers; those that `at_least` names may be larger."""

    name: str
    is_paused: bool
    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    oldest_run_at: Time | None
    at_least: list[str]


class Queues(BaseModel):
    """A page of queues, by name."""

    items: list[Queue]
    next_cursor: str | None


class QueueState(BaseModel):
    """The answer to a pause or a resume."""

    name: str
    is_paused: bool


class Purged(BaseModel):
    """The answer to a purge."""

    name: str
    cancelled: int


class Scaling(BaseModel):
    """How much work a queue has, for those who start workers by it (KEDA reads `value`). Numbers
    that `at_least` names may be larger.
    """

    queue: str
    value: int
    queued: int
    running: int
    workers: int
    capacity: int
    is_paused: bool
    at_least: list[str]


class Preview(BaseModel):
    """What a schedule means, and when it fires."""

    description: str
    next: list[Time]


class Rates(BaseModel):
    """What happened lately, per second. `finished` is null if a queue has too many to count."""

    enqueued: float
    finished: float | None
    failed: float


class Totals(BaseModel):
    """All queues together; numbers that `at_least` names may be larger."""

    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    at_least: list[str]


class Stats(BaseModel):
    """All that goes on, at a glance."""

    now: Time
    totals: Totals
    queues: list[Queue]
    workers: list[Worker]
    rates: Rates | None
    dead_letters: list[LastExecution]
    has_more_dead_letters: bool


class Leader(BaseModel):
    """Who does what one node should do."""

    role: str
    holder_id: Id
    epoch: int
    until: Time


class Status(BaseModel):
    """The store's time, and who does the upkeep."""

    now: Time
    leaders: list[Leader]


class Quotas(BaseModel):
    """How much a tenant may use; null: as much as it likes."""

    jobs: int | None
    queued: int | None
    per_minute: int | None
    running: int | None


class Tenant(BaseModel):
    """A tenant."""

    name: str
    created_at: Time
    quotas: Quotas


class Tenants(BaseModel):
    """A page of tenants, by name."""

    items: list[Tenant]
    next_cursor: str | None


class Key(BaseModel):
    """A key, without its secret."""

    key_id: Id
    tenant: str
    name: str
    role: Literal["viewer", "operator", "admin", "superadmin", "worker"]
    jobs: list[str] | None
    queues: list[str] | None
    actions: list[str] | None
    hint: str
    created_at: Time
    created_by: str
    expires_at: Time | None
    used_at: Time | None
    revoked_at: Time | None


class NewKeyAnswer(Key):
    """A key with its secret, which is shown this once."""

    token: str


class Keys(BaseModel):
    """A page of keys, newest first."""

    items: list[Key]
    next_cursor: str | None


class Secret(BaseModel):
    """A secret, without its value."""

    name: str
    tenant: str
    version: int
    key_id: str
    created_at: Time
    updated_at: Time
    author: str


class SecretPage(BaseModel):
    """A page of secrets, by name."""

    items: list[Secret]
    next_cursor: str | None


class DeletedSecret(BaseModel):
    """The answer to a delete."""

    name: str
    status: Literal["deleted"]


class Entry(BaseModel):
    """An entry of the audit log."""

    entry_id: Id
    tenant: str
    at: Time
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    source: str


class Entries(BaseModel):
    """A page of the audit log, newest first."""

    items: list[Entry]
    next_cursor: str | None


class AuditBreak(BaseModel):
    """The first place where the chain does not hold. Without an `entry_id`, entries are missing."""

    number: int
    entry_id: Id | None
    problem: str


class AuditCheck(BaseModel):
    """The result of checking a part of the audit log. `head` is the last entry that was checked,
    `NUMBER:HASH`; `unchained` entries are older than the chain.
    """

    entries: int
    unchained: int
    head: str
    broken: AuditBreak | None
    next_cursor: str | None


class Template(BaseModel):
    """A job with blanks."""

    name: str
    version: int
    tenant: str
    description: str
    parameters: dict[str, dict[str, Any]]
    job: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    author: str
    created_at: Time
    updated_at: Time
    truncated: bool = TRUNCATED
    link: str | None = LINK


class TemplatePage(BaseModel):
    """A page of templates, by name."""

    items: list[Template]
    next_cursor: str | None


class DeletedTemplate(BaseModel):
    """The answer to a template's end."""

    name: str
    status: Literal["deleted"]

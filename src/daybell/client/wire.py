"""The answers of Daybell: one struct per thing, for Python, HTTP, OpenAPI and `--json` alike.

Ids end in `_id`, times are datetimes in UTC, lengths of time are seconds. Values such as arguments
and results are parsed. `client/answers.py` makes the structs; the API encodes them, and the client
over HTTP decodes them.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from daybell.core import payload
from daybell.core.access import Action, KeyKind, Role, Scope
from daybell.core.event import StepKind
from daybell.core.execution import Outcome, Priority, State
from daybell.core.job import JobDefinition, NewTemplate
from daybell.core.limits import LIST_VALUE_BYTES_MAX
from daybell.core.options import Keep, PlainOptions
from daybell.core.retry import Retry
from daybell.core.schedule import OverlapBy
from daybell.core.views import Total
from daybell.core.worker import WorkerState

T = TypeVar("T")

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
Label: TypeAlias = Literal["critical", "high", "normal", "low"]  # of a priority
JobWord: TypeAlias = Literal[
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
StepStatus: TypeAlias = Literal["done", "failed", "sleeping", "waiting", "timed_out"]
Truncated: TypeAlias = Annotated[
    bool,
    Meta(
        description=f"The list leaves values of more than {LIST_VALUE_BYTES_MAX:,} bytes out: they"
        " are null here, and complete at `link`."
    ),
]
Link: TypeAlias = Annotated[
    str | None, Meta(description="If `truncated`: the path of the complete item.")
]
Args: TypeAlias = Annotated[
    dict[str, Any] | None, Meta(description="Null if the list leaves it out.")
]
AtLeast: TypeAlias = Annotated[
    list[str], Meta(description="The numbers that are a lower bound: counting ended early.")
]


def encode(content: Any) -> bytes:
    """Write an answer as JSON."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        # Half a surrogate pair, in arguments that were sent so. Only escapes can carry it.
        plain = msgspec.to_builtins(content)
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def format_json(answer: object) -> str:
    """Return an answer as JSON in lines, for people."""
    return msgspec.json.format(encode(answer), indent=2).decode()


def decode(raw: bytes, kind: type[T]) -> T:
    """Read an answer from JSON."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        raise
    except ValueError:
        # Half a surrogate pair, which only this reads.
        return msgspec.convert(json.loads(raw), kind, str_keys=True)


def parts_of(kind: Any) -> list[Any]:
    """Return the types of a union, such as [list] of `Annotated[list[str], …]`."""
    if get_origin(kind) is Annotated:
        return parts_of(get_args(kind)[0])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return [part for one in get_args(kind) for part in parts_of(one)]
    return [get_origin(kind) or kind]


# Executions.


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution without its attempts."""

    execution_id: UUID
    job_id: UUID
    job: str
    version: int
    tenant: str
    status: State
    reason: str | None
    queue: str
    priority: Label
    args: Args
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
    worker_id: UUID | None
    unique_key: str | None
    retries: int | None
    timeout: float | None
    parent_id: UUID | None
    node: Annotated[
        str | None, Meta(description="Its label in the workflow's run that it is a part of.")
    ]
    workflow_id: Annotated[UUID | None, Meta(description="That run.")]
    schedule_id: UUID | None
    progress: float | None
    note: str | None
    outcome: Outcome | None
    result: Any
    error: Any
    checkpoint: Any
    is_discarded: bool
    truncated: Truncated
    link: Link


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that has ended."""

    attempt: int
    outcome: Outcome
    worker_id: UUID | None
    started_at: Annotated[
        Time | None, Meta(description="Null: it was claimed, and has not started.")
    ]
    ended_at: Time
    error: Any


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to an execution."""

    at: Time
    event: str
    attempt: int | None = None
    worker_id: UUID | None = None
    type: Annotated[
        str | None, Meta(description="Of its creation by an event (`fired`): the event's type.")
    ] = None
    event_id: Annotated[str | None, Meta(description="And its id.")] = None
    node: Annotated[
        str | None, Meta(description="Of a workflow's run: the node it happened to.")
    ] = None
    status: Annotated[State | None, Meta(description="Of its end (`ended`): its last state.")] = (
        None
    )
    step: Annotated[
        str | None,
        Meta(description="Of a durable function: the step, or the event or decision it waits for."),
    ] = None
    n: Annotated[int | None, Meta(description="The place of that step in the order of calls.")] = (
        None
    )
    until: Annotated[Time | None, Meta(description="Of a sleep or a wait.")] = None


class FiringEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The event that fired an execution."""

    event_id: str
    source: str
    type: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one call of a durable function."""

    n: Annotated[int, Meta(description="Its place in the order of calls.")]
    name: str
    kind: StepKind
    status: StepStatus
    failures: int
    started_at: Time
    finished_at: Time | None
    wake_at: Annotated[
        Time | None, Meta(description="When a sleep, or the time for an event, is over.")
    ]
    result: Any
    is_result_left_out: bool
    error: Any


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a mapped node."""

    total: int
    ended: int
    failed: int


class NodeAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a node: a bar of a chart. Its error is with the node's execution."""

    attempt: int
    outcome: Annotated[Outcome | None, Meta(description="Null: it has not ended.")]
    worker_id: UUID | None
    started_at: Annotated[
        Time | None, Meta(description="Null: it was claimed, and has not started.")
    ]
    ended_at: Time | None


class NodeWait(msgspec.Struct, frozen=True, kw_only=True):
    """An event or a decision that a node, or a node inside of it, waits for: `approve` or `signal`
    its execution.
    """

    execution_id: UUID
    node: Annotated[
        str, Meta(description="Its own name: of an item, or in a run inside of this one.")
    ]
    kind: Literal["event", "approval"]
    name: str
    match: Annotated[dict[str, Any], Meta(description="What the event's data must contain.")]
    until: Time | None
    resume: Annotated[str, Meta(description="How to end the wait, in words.")]


class RunNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a run, with the times that a chart needs."""

    name: str
    status: State
    reason: Annotated[
        str | None,
        Meta(
            description="Why it did not run, or its error in short. Of a node that has started and"
            " not ended: why it is away, such as `event`, `sleep` or `step_retry`. `quota`: it, or"
            " some of its items, wait for room in the tenant's quota `queued`."
        ),
    ]
    execution_id: UUID | None
    kind: Annotated[
        str | None, Meta(description="Null: the definition of the workflow does not exist anymore.")
    ]
    task: str | None
    job: str | None
    rule: str
    note: Annotated[str, Meta(description="Its reason, or what it waits for, in words.")]
    ready_at: Annotated[
        Time | None, Meta(description="Since then it waited for room, or a worker.")
    ]
    started_at: Time | None
    finished_at: Time | None
    items: ItemCounts | None
    run_at: Annotated[
        Time | None, Meta(description="Of a node that has started and waits: not before then.")
    ]
    waits: Annotated[
        list[NodeWait],
        Meta(description="Events and decisions that it waits for. The first 1,000 of a run."),
    ]
    attempts: Annotated[
        list[NodeAttempt],
        Meta(
            description="The newest 20 of each node, oldest first; fewer if more than a thousand"
            " nodes have started. None of a mapped node: ask for its items as executions."
        ),
    ]

    @property
    def is_begun(self) -> bool:
        """True if it has an execution, or items that have."""
        return self.execution_id is not None or self.items is not None


class RunEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A node that waits for another."""

    from_: str = msgspec.field(name="from")
    to: str
    when: Annotated[str | None, Meta(description="A condition on the result of `from`.")]


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The number of nodes that have ended."""

    ended: int
    total: int


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a run, parents before their children, and its edges."""

    nodes: list[RunNode]
    edges: list[RunEdge]
    progress: RunProgress
    failed: Annotated[
        list[str],
        Meta(
            description="Nodes that failed, also in a run that succeeded since other nodes handled"
            " the failure."
        ),
    ]
    fail_fast: bool
    max_running: int | None


class ExecutionDetail(Execution, frozen=True, kw_only=True):
    """An execution with its ended attempts, and what happened to it, oldest first."""

    attempts: list[Attempt]
    timeline: list[Moment]
    fired_by: Annotated[
        FiringEvent | None, Meta(description="The event that fired it, as long as it is kept.")
    ]
    workflow: Annotated[WorkflowRun | None, Meta(description="Of a workflow's run: its nodes.")]
    steps: list[Step]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a task logged or printed."""

    at: Time
    attempt: int
    level: str
    source: str
    message: str


class FoundLine(LogLine, frozen=True, kw_only=True):
    """A log line that a search found, with its execution."""

    execution_id: UUID
    job: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a log, in their order. Later lines follow `end_cursor`."""

    items: list[LogLine]
    next_cursor: str | None
    end_cursor: str | None


class RemedyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that does the same as a command."""

    method: str
    path: Annotated[str, Meta(examples=["/api/v1/queues/mail/resume"])]
    body: dict[str, Any] | None


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change that removes a cause."""

    label: Annotated[str, Meta(examples=["resume queue mail"])]
    command: Annotated[str, Meta(examples=["daybell queues resume mail"])]
    request: Annotated[
        RemedyRequest | None, Meta(description="Null: only the command does it, such as a start.")
    ]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An execution in the gate that another one waits for."""

    execution_id: UUID
    job: str
    status: State
    url: str


class NearestWorker(msgspec.Struct, frozen=True, kw_only=True):
    """The live worker that lacks least of what an execution needs."""

    worker_id: UUID
    name: str
    lacks: Annotated[list[str], Meta(description="In sentences. Empty: it can take it.")]


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time from the moment at which an execution was wanted until its end."""

    code: Annotated[
        str,
        Meta(
            description="`delay`: not due yet. `dependency`, `limit`, `slot`, `worker`: waited for"
            " these. `run`: its attempts. `retry`, `sleep`, `event`: between attempts. `lost`: an"
            " attempt whose worker was lost. `start`: before the first of several attempts."
        ),
    ]
    seconds: float


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why an execution has not run, or not ended."""

    execution_id: UUID
    status: State
    code: Annotated[str, Meta(description="A stable word.", examples=["no_worker"])]
    detail: str
    next_at: Annotated[Time | None, Meta(description="When that may change by itself.")]
    lack: Annotated[
        str | None,
        Meta(
            description="What has to be started, resumed or deployed for it, or for a node of a"
            " workflow's run. Null: nothing."
        ),
    ]
    actions: Annotated[list[Remedy], Meta(description="Changes of the situation, best first.")]
    holders: Annotated[list[Holder], Meta(description="Of its gate, oldest first; at most 10.")]
    nearest_worker: Annotated[NearestWorker | None, Meta(description="Of one that is due.")]
    ahead: Annotated[
        int | None,
        Meta(description="Others before it, at its gate or in its queue. Null: it is in no line."),
    ]
    at_least: Annotated[bool, Meta(description="True: there may be more than `ahead`.")]
    estimated_start: Annotated[
        Time | None,
        Meta(description="At the rate of starts of its queue in the last ten minutes."),
    ]
    delays: Annotated[
        list[Delay],
        Meta(description="Of one that has ended: the parts of its time, which add up."),
    ]


class QueueNeed(msgspec.Struct, frozen=True, kw_only=True):
    """Due executions that need the same of a worker."""

    needs: Annotated[str, Meta(examples=["task", "command", "sql:warehouse"])]
    queued: int
    at_least: Annotated[bool, Meta(description="True: there may be more.")]
    oldest_run_at: Time
    workers: Annotated[int, Meta(description="Live ones that take the queue and offer it.")]


class QueueWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why the due executions of a queue are not taken."""

    queue: str
    code: Annotated[
        str,
        Meta(
            description="`queue_paused`, `no_worker`, `draining`, `no_worker_of_kind`, `quota`,"
            " `resources_busy`, `workers_busy`, `due` or `empty`."
        ),
    ]
    detail: str
    next_at: Annotated[
        Time | None, Meta(description="When all that is due has started, at the current rate.")
    ]
    actions: list[Remedy]
    needs: list[QueueNeed]
    workers: Annotated[int, Meta(description="Live ones that take it.")]
    capacity: int
    running: Annotated[int, Meta(description="Executions of these workers, of any queue.")]
    starts_per_second: Annotated[float | None, Meta(description="In the last ten minutes.")]


class Enqueued(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a trigger or a retry: a new execution, or the one that existed before."""

    execution_id: UUID
    status: State
    created: bool


class EnqueuedItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One of many executions that were enqueued."""

    execution_id: UUID
    created: bool


class EnqueuedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a bulk enqueue, in the order of the request."""

    count: int
    created: int
    items: list[EnqueuedItem]


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a cancel: it has ended, or was asked to stop."""

    execution_id: UUID
    status: State
    cancel_requested: bool


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The number of executions by outcome, without outcomes that have none. With `next_cursor`, a
    search by content has more to read: send the request again with it as `cursor`.
    """

    matched: int
    cancelled: int = 0
    requested: int = 0
    finished: int = 0
    unknown: int = 0
    revived: int = 0
    renewed: int = 0
    key_held: int = 0
    over_quota: int = 0
    changed: int = 0
    refused: int = 0
    needs_force: int = 0
    not_retryable: int = 0
    discarded: int = 0
    not_listed: int = 0
    at_least: Annotated[bool, Meta(description="`matched` is a lower bound.")] = False
    next_cursor: str | None = None


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one job with one fingerprint of an error."""

    job: str
    job_id: UUID
    fingerprint: Annotated[
        str | None,
        Meta(
            description="The same for errors that differ in numbers, ids and quoted parts only."
            " null: no error, but a reason."
        ),
    ]
    error: Annotated[str, Meta(description="The class of the error, or the reason.")]
    message: Annotated[str, Meta(description="Of the newest, its first line.")]
    count: int
    first_seen: Time
    last_seen: Time
    execution_id: Annotated[UUID, Meta(description="The newest.")]
    q: Annotated[str | None, Meta(description="The query that selects them for bulk requests.")]


class StateCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Executions by state; of the states in `at_least` there may be more."""

    executions: dict[State, int]
    at_least: list[State]
    estimate: (
        Annotated[int, Meta(description="About how many there are in all states, if asked for.")]
        | UnsetType
    ) = UNSET

    @property
    def total(self) -> Total:
        """All of them together."""
        return Total(sum(self.executions.values()), is_exact=not self.at_least)

    def of(self, state: State) -> Total:
        """The number of one state."""
        return Total(self.executions.get(state, 0), is_exact=state not in self.at_least)


# Jobs.


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a job."""

    schedule_id: UUID
    tenant: str
    job: str
    name: str
    rule: Any
    description: str | None
    args: Args
    next_run_at: Time | None
    last_run_at: Time | None
    last_success_at: Time | None
    is_declared: bool
    overlap_by: Annotated[
        OverlapBy,
        Meta(
            description="Whose unfinished execution the overlap rule looks at: one of this"
            " schedule, or any of the job that passes the job's gate."
        ),
    ]
    is_paused: bool
    is_reboot: bool
    delay: float | None
    since: Annotated[
        Time | None, Meta(description="Of one after other jobs: what they did since counts.")
    ]
    fired: int
    skipped: int
    missed: int
    failures: int
    truncated: Annotated[
        bool,
        Meta(
            description="The list leaves its large `args` out. `GET /jobs/{job}/schedules` has"
            " them."
        ),
    ]


class JobVersion(PlainOptions, frozen=True):
    """A job at one of its versions."""

    job_id: UUID
    name: str
    version: int
    tenant: str
    kind: str
    priority: Label
    retry: dict[str, Any]
    settings: Args
    args: Args
    schedules: list[Any]
    misfire: dict[str, Any]
    dependencies: list[str]
    template: dict[str, Any] | None
    author: str
    created_at: Time
    is_current: bool
    paused_at: Time | None
    pause_note: str
    truncated: Truncated
    link: Link
    task: str | None = None
    command: Any = None
    shell: bool | None = None
    env: dict[str, Any] | None = None
    http: Any = None
    sql: dict[str, Any] | None = None
    notify: dict[str, Any] | None = None
    workflow: dict[str, Any] | None = None
    signature: (
        Annotated[
            dict[str, Any], Meta(description="The JSON Schema of the arguments of its function.")
        ]
        | None
    ) = None

    @property
    def definition(self) -> JobDefinition:
        """The definition, as the store keeps it. That of a `Job` has the rules of its schedules,
        in which a cron H is a number.
        """
        fields = {name: getattr(self, name) for name in _DEFINITION}
        retry = Retry.from_json(_text(self.retry))
        fields |= {
            "priority": Priority.parse(self.priority),
            "settings": _text(self.settings),
            "args": _text(self.args),
            "schedules": tuple(
                json.dumps(one, sort_keys=True, separators=(",", ":")) for one in self._rules()
            ),
            "misfire": json.dumps(self.misfire, sort_keys=True) if self.misfire else "",
            "template": "" if self.template is None else _text(self.template),
            "signature": "" if self.signature is None else _text(self.signature),
        }
        del fields["retry"]
        return msgspec.structs.replace(msgspec.convert(fields, JobDefinition), retry=retry)

    def _rules(self) -> list[Any]:
        """The rules that the job declares."""
        return self.schedules


def _text(value: Any) -> str:
    """The JSON text that a value was read from."""
    return payload.encode(value, what="the answer", bytes_max=sys.maxsize)


_DEFINITION: Final = frozenset(field.name for field in msgspec.structs.fields(JobDefinition))


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a job."""

    job_id: UUID
    job: str
    schema: Annotated[
        dict[str, Any] | None,
        Meta(
            description="JSON Schema of the arguments, by name. Null: a command or another job"
            " without code, or a task that no worker has declared."
        ),
    ]


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the request for the job that differs; null: it is not there."""

    field: str
    before: Any
    after: Any


class ListedVersion(JobVersion, frozen=True, kw_only=True):
    """A version of a job, and how it differs from the one before it."""

    changes: list[FieldChange]


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """One dependency of a job."""

    job: str
    is_met: Annotated[bool, Meta(description="True: the job does not wait for it.")]
    detail: str


class Job(JobVersion, frozen=True, kw_only=True):
    """A job with what it does now."""

    status: JobWord
    progress: float | None
    started_at: Time | None
    next_run_at: Time | None
    schedules: Annotated[
        list[Schedule],
        Meta(
            description="The schedules that the job declares, and the next 20 of those made at run"
            " time. `GET /jobs/{job}/schedules` lists all."
        ),
    ]
    has_more_schedules: Annotated[
        bool, Meta(description="True if not all schedules are shown here.")
    ]
    last_execution: Execution | None
    waits_for: Annotated[
        list[WaitsFor],
        Meta(description="Its dependencies. Empty in lists of jobs: ask for the job alone."),
    ]
    execution_id: Annotated[
        UUID | UnsetType,
        Meta(description="Of a creation: the execution of a job that runs once, now."),
    ] = UNSET
    warnings: Annotated[
        list[str] | UnsetType, Meta(description="Of a creation or a change: what looks wrong.")
    ] = UNSET

    def _rules(self) -> list[Any]:
        """The rules that the job declares, without those that follow from its dependencies."""
        if not self.is_current:
            return self.schedules  # the rules of an older version
        return [one.rule for one in self.schedules if one.is_declared and "after" not in one.rule]


class AppliedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What declaring a job has done, or would do. `before` and `after` are requests."""

    action: Literal["created", "changed", "unchanged"]
    before: dict[str, Any] | None
    after: dict[str, Any]
    job: Job | None
    warnings: list[str]


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the deletion of a job."""

    job_id: UUID
    name: str
    status: Literal["deleted"]
    cancelled: Annotated[int, Meta(description="Its unfinished executions, which are cancelled.")]
    warnings: Annotated[
        list[str], Meta(description="Jobs that need it, and whether code brings it back.")
    ]


class BackfilledTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that was, or would be, run again."""

    scheduled_for: Time
    schedule: str
    execution_id: UUID | None
    created: bool


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill has done, or would do."""

    backfill_id: UUID | None
    job: str
    dry_run: bool
    ticks: int
    created: int
    items: list[BackfilledTick]


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A job with blanks."""

    name: str
    version: int
    tenant: str
    description: str
    parameters: dict[str, dict[str, Any]]
    job: Args
    author: str
    created_at: Time
    updated_at: Time
    truncated: Truncated
    link: Link

    @property
    def template(self) -> NewTemplate:
        """The template as a request describes it."""
        names = ("name", "description", "parameters", "job")
        return NewTemplate.parse({name: getattr(self, name) for name in names})


# Alerts.


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert rule."""

    name: str
    version: int
    tenant: str
    on: Annotated[str, Meta(description="The condition.")]
    job: Annotated[str | None, Meta(description="The jobs that it watches; null: all.")]
    queue: Annotated[str | None, Meta(description="The queues that it watches; null: all.")]
    to: Annotated[list[Any], Meta(description="The addresses of its messages.")]
    count: int
    rate: float
    within: Annotated[float, Meta(description="Seconds.")]
    grace: Annotated[float | None, Meta(description="Seconds; null: learnt, or not used.")]
    factor: float
    repeat: Annotated[float | None, Meta(description="Seconds; null: messages do not repeat.")]
    message_queue: str
    description: str
    silenced_until: Time | None
    silence_reason: str
    author: str
    created_at: Time
    updated_at: Time


class AlertTest(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that sends the test of an alert rule or a subscription."""

    name: str
    execution_id: UUID
    job: str


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A subject that meets, or met, the condition of an alert rule."""

    incident_id: UUID
    tenant: str
    rule: str
    subject: str
    detail: str
    opened_at: Time
    notified_at: Annotated[Time | None, Meta(description="The last message; null: none yet.")]
    closed_at: Time | None
    acknowledged_at: Time | None
    acknowledged_by: str


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the acknowledgement of an incident."""

    incident_id: UUID
    rule: str
    subject: str
    status: Literal["acknowledged"]


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver of outgoing events, and the events that it receives."""

    name: str
    version: int
    tenant: str
    url: Annotated[Any, Meta(description="The address; text, or a reference to a secret.")]
    secret: Annotated[str | None, Meta(description="The secret that signs; null: no signature.")]
    types: Annotated[list[str], Meta(description="Types of events, or beginnings; none: all.")]
    status: Annotated[
        list[Literal["succeeded", "dead", "cancelled", "skipped", "retrying", "lost"]],
        Meta(description="Status of executions; none: all."),
    ]
    job: Annotated[str | None, Meta(description="The jobs that it is about; null: all.")]
    queue: Annotated[str | None, Meta(description="The queues that it is about; null: all.")]
    message_queue: Annotated[str, Meta(description="The queue of the deliveries.")]
    description: str
    delivery_job: Annotated[str, Meta(description="The job whose executions are the deliveries.")]
    author: str
    created_at: Time
    updated_at: Time


class ExportPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a repeated export. Retention keeps what it has not written yet."""

    name: str
    tenant: str
    until: Annotated[Time, Meta(description="What ended before is written.")]
    author: str
    updated_at: Time


class DeletedName(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the deletion of a record, such as a template, or a secret."""

    name: str
    status: Literal["deleted"]


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """A tick of a schedule, on record or to come."""

    at: Time
    decision: Annotated[
        Literal["fired", "skipped", "missed", "upcoming"],
        Meta(description="`missed` stands for all ticks from `at` to `until`."),
    ]
    reason: str | None = None
    until: Time | None = None
    count: int = 1
    execution_id: UUID | None = None


class ExplainedTick(Fire, frozen=True, kw_only=True):
    """A tick on record, and the decision about it in a sentence."""

    schedule: Annotated[str, Meta(description="The name of the schedule.")]
    detail: str


class ScheduleWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why a schedule does not fire before its next time."""

    schedule_id: UUID
    name: str
    code: Annotated[
        str,
        Meta(
            description="`scheduled`, `calendar`, `not_started`, `paused`, `dependencies`,"
            " `fixed_delay`, `reboot`, `event`, `ended`, `due` or `no_scheduler`."
        ),
    ]
    detail: str
    next_at: Time | None
    actions: list[Remedy]


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run now."""

    job_id: UUID
    job: str
    status: JobWord
    code: Annotated[
        str,
        Meta(
            description="`deleted` or `paused`; else the code of its most telling unfinished"
            " execution; else that of its next schedule, or `manual`."
        ),
    ]
    detail: str
    next_at: Annotated[Time | None, Meta(description="When that may change by itself.")]
    next_run_at: Time | None
    actions: list[Remedy]
    schedules: list[ScheduleWhy]
    executions: Annotated[
        list[Why], Meta(description="Unfinished ones; of those that wait for the same, one.")
    ]
    ticks: Annotated[list[ExplainedTick], Meta(description="The last ten, newest first.")]


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its ticks in a range, in the order of time."""

    schedule_id: UUID
    job: str
    name: str
    description: str | None
    is_paused: bool
    fires: list[Fire]
    has_more: Annotated[bool, Meta(description="There are more than 500; ask for a shorter range.")]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a schedule, and when it fires, in its own time zone."""

    description: str
    next: list[Annotated[str, Meta(extra_json_schema={"format": "date-time"})]]
    warnings: list[str] | UnsetType = UNSET


# Events.


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event on record. The other names are those of CloudEvents."""

    event_id: str
    source: str
    type: str
    data: Any
    time: Time | None
    received_at: Time
    execution_id: Annotated[UUID | None, Meta(description="Only for this one: a signal.")]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an event."""

    event_id: str
    created: Annotated[
        bool, Meta(description="False: it was on record already, and nothing was done.")
    ]
    resumed: Annotated[int, Meta(description="The number of executions that waited for it.")]
    executions: Annotated[list[UUID], Meta(description="The executions of the jobs that it fired.")]
    execution_id: Annotated[
        UUID | None, Meta(description="The execution that it is for, if for one alone.")
    ]
    node: Annotated[
        str | None,
        Meta(
            description="The node of a workflow's run that it was passed on to, if sent to the run."
        ),
    ]


class PublishedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to a batch of events, in their order."""

    items: list[Published]


# Workers, queues and the whole at a glance.


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker."""

    worker_id: UUID
    name: str
    tenant: str
    state: WorkerState
    host: str
    pid: int
    version: str
    queues: list[str]
    kinds: list[str]
    tasks: Annotated[
        dict[str, str] | None,
        Meta(description="The tasks of its app, each with a hash. Null: it does not report them."),
    ]
    labels: dict[str, str]
    resources: dict[str, float]
    capacity: int
    running: int
    started_at: Time
    renewed_at: Time
    lease_until: Time
    shared: Annotated[
        bool,
        Meta(
            description="It serves other tenants, too: `running` counts the executions of this one,"
            " and `capacity` is for all."
        ),
    ] = False


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a drain."""

    worker_id: UUID
    state: Literal["draining"]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its numbers; those that `at_least` names may be larger."""

    name: str
    is_paused: bool
    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    oldest_run_at: Time | None
    at_least: AtLeast

    def number(self, name: str) -> Total:
        """One of its numbers, as far as it is known."""
        return Total(getattr(self, name), is_exact=name not in self.at_least)


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a pause or a resume."""

    name: str
    is_paused: bool


class LimitNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a limit."""

    limit: Annotated[int | None, Meta(description="How many run at a time; null: any number.")]
    rates: Annotated[list[str], Meta(description="How many start in a time, such as 100/m.")]


class LimitKey(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a limit's key."""

    key: Annotated[str, Meta(description="The value; empty: the limit has no key.")]
    running: Annotated[int, Meta(description="Executions that have the limit.")]
    waiting: Annotated[int, Meta(description="Executions that wait for it.")]
    tokens: Annotated[
        int | None, Meta(description="How many may start now; null: the limit has no rate.")
    ]
    next_at: Annotated[
        Time | None,
        Meta(description="When the next one may start; null: when one ends, or is resumed."),
    ]
    paused_until: Time | None
    is_paused: bool
    holders: Annotated[list[UUID], Meta(description="The first of those that have it.")]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on how many executions run at a time, or start in a time."""

    name: str
    limit: Annotated[int | None, Meta(description="How many run at a time; null: any number.")]
    rates: Annotated[list[str], Meta(description="How many start in a time, such as 100/m.")]
    declared: Annotated[LimitNumbers, Meta(description="The numbers of the jobs that use it.")]
    is_paused: bool
    paused_until: Annotated[
        Time | None, Meta(description="Null with `is_paused`: until it is resumed.")
    ]
    running: Annotated[int, Meta(description="Executions that have the limit.")]
    waiting: Annotated[int, Meta(description="Executions that wait for it.")]
    keys: Annotated[int, Meta(description="Values of its key that are in use.")]
    next_at: Annotated[Time | None, Meta(description="The next known time at which one may start.")]
    at_least: Annotated[list[str], Meta(description="Numbers that may be larger.")]
    buckets: Annotated[
        list[LimitKey],
        Meta(description="Values of its key, most waiting first; only of a single limit."),
    ]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a purge."""

    name: str
    cancelled: int


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a queue has, to start workers by it (KEDA reads `value`)."""

    queue: str
    value: int
    queued: int
    running: int
    workers: int
    capacity: int
    is_paused: bool
    at_least: AtLeast


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What happened lately, per second."""

    enqueued: float
    finished: Annotated[
        float | None, Meta(description="Null if a queue has too many executions to count.")
    ]
    failed: float


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together; numbers that `at_least` names may be larger."""

    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    at_least: AtLeast


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers, rates and the last dead letters."""

    now: Time
    totals: Totals
    queues: list[Queue]
    workers: list[Worker]
    rates: Rates | None
    dead_letters: list[Execution]
    has_more_dead_letters: bool


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics by steps of time: value number `n` is about the step that begins at `since` and `n`
    times `step` seconds.
    """

    job: str | None
    queue: str | None
    since: Time
    until: Time
    step: int
    series: Annotated[
        dict[str, list[float | None]],
        Meta(description="By metric; null: there is no percentile of nothing."),
    ]
    totals: Annotated[
        dict[str, float | None], Meta(description="By metric, of all steps together.")
    ]
    at_least: AtLeast


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of durations, in seconds; null: there are none."""

    p50: float | None
    p95: float | None
    p99: float | None


class PeriodStats(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a length of time."""

    success_rate: Annotated[
        float | None,
        Meta(description="Of those that succeeded or are dead; null: there are none."),
    ]
    counts: dict[str, int]
    run: Annotated[Percentiles, Meta(description="Run times of attempts.")]
    delay: Annotated[
        Percentiles, Meta(description="From when an attempt could start to its start.")
    ]


class JobStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has done, compared with the same length of time before."""

    job: str
    job_id: UUID
    since: Time
    until: Time
    current: PeriodStats
    previous: PeriodStats
    trend: Annotated[
        dict[str, float | None],
        Meta(description="The relative change by metric: 0.5 is half as much again."),
    ]


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The elected leader of a role."""

    role: str
    holder_id: UUID
    epoch: int
    until: Time


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The store's time, and the leaders."""

    now: Time
    leaders: list[Leader]


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a process, or of its store."""

    status: Literal["ok", "ready", "unavailable"]
    error: str | None = None


# Access.


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tenant may use; null: there is no limit."""

    jobs: int | None
    queued: int | None
    per_minute: int | None
    running: int | None


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: Time
    quotas: Quotas
    keep: Annotated[
        Keep, Meta(description="Seconds for which ended executions of its jobs are kept.")
    ] = Keep()
    weight: Annotated[
        float, Meta(description="Its part of the workers that serve several tenants.")
    ] = 1.0


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    key_id: UUID
    tenant: str
    name: str
    role: Role
    jobs: list[str] | None
    queues: list[str] | None
    actions: list[Action] | None
    hint: Annotated[str, Meta(description="How its token begins.")]
    kind: Annotated[
        KeyKind,
        Meta(
            description="key, session (of a browser), login (a link that opens a session), or hook"
            " (the address of a job)."
        ),
    ]
    parent_id: Annotated[UUID | None, Meta(description="The key that it ends with.")]
    created_at: Time
    created_by: str
    expires_at: Time | None
    used_at: Time | None
    revoked_at: Time | None

    @property
    def scope(self) -> Scope | None:
        """The limits of the key within its role; None: it has none."""
        found = Scope(
            jobs=tuple(self.jobs or ()),
            queues=tuple(self.queues or ()),
            actions=tuple(self.actions or ()),
        )
        return None if found == Scope() else found


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook of a job, without its token."""

    hook_id: UUID
    job: str
    name: str
    event: Annotated[str, Meta(description="The events that its requests become.")]
    hint: Annotated[str, Meta(description="How its token begins.")]
    signature: Annotated[
        str | None, Meta(description="github, stripe, standard or hmac; null: it is not signed.")
    ]
    secret: Annotated[str | None, Meta(description="The name of the secret that signs.")]
    header: Annotated[str | None, Meta(description="Of hmac.")]
    algorithm: Annotated[str | None, Meta(description="Of hmac: sha256, sha512 or sha1.")]
    encoding: Annotated[str | None, Meta(description="Of hmac: hex or base64.")]
    created_at: Time
    created_by: str
    expires_at: Time | None
    used_at: Time | None
    revoked_at: Time | None


class NewHookAnswer(Hook, frozen=True, kw_only=True):
    """A new hook, or a hook with its new token, which is shown this once."""

    token: str
    path: Annotated[str, Meta(description="Where its sender posts to.")]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller is and may do here."""

    tenant: str
    role: Role
    jobs: Annotated[list[str] | None, Meta(description="The scope of the key; null: all jobs.")]
    queues: list[str] | None
    actions: Annotated[
        list[Action],
        Meta(description="What the caller may do now, by role, scope and `read_only`."),
    ]
    key_id: Annotated[UUID | None, Meta(description="The key that the session ends with.")]
    name: Annotated[str | None, Meta(description="Of the key. null: no key is needed here.")]
    expires_at: Time | None
    csrf_token: Annotated[
        str | None,
        Meta(description="To send as X-CSRF-Token with changes. null: there is no cookie."),
    ]
    read_only: Annotated[bool, Meta(description="This server refuses changes.")]
    version: Annotated[str, Meta(description="Of Daybell, on this server.")]


class EndedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the end of a session."""

    status: Literal["ended"]


class NewKeyAnswer(Key, frozen=True, kw_only=True):
    """A key with its secret, which is shown this once."""

    token: str


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value."""

    name: str
    tenant: str
    version: int
    key_id: Annotated[str, Meta(description="Of the key that seals it.")]
    created_at: Time
    updated_at: Time
    author: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log."""

    entry_id: UUID
    tenant: str
    at: Time
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    source: str


class AuditBreak(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the chain does not hold. Without an `entry_id`, entries are missing."""

    number: int
    entry_id: UUID | None
    problem: str


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a part of the audit log. `head` is the last entry that was checked,
    `NUMBER:HASH`.
    """

    entries: int
    head: str
    broken: AuditBreak | None
    next_cursor: str | None


# Leases of remote workers.


class HeldAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that a worker holds."""

    execution_id: UUID
    attempt: int


class WorkerLease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a worker, after its registration or a renewal."""

    worker_id: UUID
    status: Annotated[WorkerState, Meta(description="`draining`: claim no more, then leave.")]
    now: Time
    lease_until: Time
    cancel: Annotated[list[HeldAttempt], Meta(description="Attempts to stop.")]
    returned: Annotated[
        int, Meta(description="Executions under leases that it did not name; others get them.")
    ]


class ClaimedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An execution that a worker has claimed. `execution_id`, `attempt` and the `lease_id` of the
    claim are the fence of all that it reports. Optional fields are left out if they have no value.
    """

    execution_id: UUID
    attempt: int
    job: str
    version: int
    kind: str
    queue: str
    priority: Label
    args: Annotated[msgspec.Raw, Meta(description="The arguments, an object.")]
    failures: int
    crashes: int
    created_at: Time
    run_at: Time
    expires_at: Time | None = None
    scheduled_for: Time | None = None
    retries: int | None = None
    timeout: Annotated[float | None, Meta(description="Seconds; else as the job says.")] = None
    checkpoint: msgspec.Raw | UnsetType = UNSET
    cancel_requested: bool = False
    previous_success: Time | None = None
    node: str | None = None
    parent_id: UUID | None = None
    is_limited: Annotated[
        bool, Meta(description="It holds a slot of a limit of its job: start it at once.")
    ] = False


class LeaseClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a claim."""

    lease_id: UUID
    executions: list[ClaimedExecution]
    now: Annotated[Time | None, Meta(description="The store's time; not with `limit: 0`.")] = None
    next_due: Annotated[
        Time | None, Meta(description="When the next execution is due, if that is known.")
    ] = None
    is_limited: Annotated[bool, Meta(description="The tenant's quota allows no more now.")] = False
    is_due: Annotated[
        bool, Meta(description="The answer to `limit: 0`: there may be something to claim.")
    ] = False
    has_news: Annotated[
        bool, Meta(description="Renew now: something is to be cancelled, or the worker to drain.")
    ] = False


class ReportVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the store said to a result that was not simply written."""

    execution_id: UUID
    attempt: int
    ruling: Annotated[
        Literal["stale", "cancelled", "busy", "refused"],
        Meta(
            description="`stale`: the worker does not hold this attempt any more, nothing was"
            " written; `cancelled`: it was, whatever was reported; `refused`: this result cannot be"
            " stored."
        ),
    ]
    detail: str
    current_attempt: int | None


class ReportVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """The results that were not simply written; all others were."""

    items: list[ReportVerdict]


class StaleReports(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts that the worker does not hold any more; stop them."""

    stale: list[HeldAttempt]


class LogReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The number of parts of logs that arrived."""

    parts: int


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A step on record. `result` is left out if it has none."""

    n: int
    name: str
    kind: StepKind
    started_at: Time
    is_done: bool
    failures: int = 0
    result: msgspec.Raw | UnsetType = UNSET
    error: str | None = None
    wake_at: Time | None = None
    finished_at: Time | None = None


class RecordedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps on record, in the order of the request. Null: the worker does not hold the
    execution any more, and nothing was written for it.
    """

    items: list[RecordedStep | None]


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gave back."""

    released: int


class RunBegun(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a workflow's run has begun; false: the worker does not hold it any more."""

    is_begun: bool


class HeldDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs to know of an execution that it holds."""

    definition: Annotated[msgspec.Raw, Meta(description="The job, at the version claimed.")]
    attempts: list[Attempt]
    secrets: dict[str, str]


# Errors.


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one field."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong (RFC 9457)."""

    type: Annotated[str, Meta(examples=["urn:daybell:problem:unknown-job"])]
    code: Annotated[
        str,
        Meta(examples=["unknown-job"], description="Stable, for programs; `type` ends with it."),
    ]
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    execution_id: Annotated[UUID | None, Meta(description="The execution that is in the way.")] = (
        None
    )
    quota: Annotated[str | None, Meta(description="The quota that is used up.")] = None

"""Request bodies as models: jobs, executions, templates, events, tenants and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    RootModel,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from daybell.api.requests import (
    AgoBound,
    Args,
    Body,
    Bound,
    Delay,
    Duration,
    Id,
    Name,
    PriorityWord,
    QueueName,
    Searched,
    StatusWord,
    TenantName,
    Text,
    Time,
    TimeLimit,
    UniqueKey,
    When,
    checked_by,
    validation_error,
)
from daybell.client.declarations import read_template
from daybell.client.job_fields import (
    CHOICES,
    OF_COMMAND,
    read_choice,
    read_kind,
    read_made_from,
    read_retries,
    require_choice,
)
from daybell.client.requests import ARGS_PREFIX
from daybell.core.access import PATTERNS_MAX, Action, Role
from daybell.core.event import check_words
from daybell.core.kinds.settings import read_env
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    COMMAND_CHARS_MAX,
    DEPENDENCIES_MAX,
    DESCRIPTION_CHARS_MAX,
    ENQUEUE_BATCH_MAX,
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
    EXECUTIONS_MAX,
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    MISFIRE_LIMIT_MAX,
    NAME_CHARS_MAX,
    PARAMETERS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    QUOTA_MAX,
    REDIRECTS_MAX,
    RETRIES_MAX,
    SEARCH_ARGS_MAX,
    SQL_ROWS_DEFAULT,
    SQL_ROWS_MAX,
    WORKFLOW_EDGES_MAX,
    WORKFLOW_NODES_MAX,
    check_name,
)
from daybell.core.retry import Retry
from daybell.core.when import Calendar, Misfire
from daybell.core.when.zone import Fold, Gap
from daybell.core.workflow.rules import Rule
from daybell.errors import UsageError

# Models of job kinds in request bodies, and of the graph of a workflow.

# For the document. Requests are read by `core/kinds`, which takes the same and says more clearly
# what is wrong.


CLOSED: Final = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """An object in the document, without other fields."""

    model_config = CLOSED


class SecretReference(Shown):
    """Stands for a secret's value, which only a worker sees."""

    secret: str = Field(description="The secret's name.", examples=["API_TOKEN"])


class Joined(Shown):
    """Stands for all of these as one text."""

    join: list[str | SecretReference] = Field(
        description="Texts, and what stands for them.",
        examples=[["Bearer ", {"secret": "API_TOKEN"}]],
    )


Words = str | SecretReference | Joined
W = TypeVar("W")  # what may stand for a text: more in a workflow than elsewhere


class CommandOf(BaseModel, Generic[W]):
    """A program to run."""

    model_config = CLOSED

    run: Annotated[str, Field(min_length=1, max_length=COMMAND_CHARS_MAX)] | list[W] = Field(
        description="A line, which is split into words as a shell would and run without one; or"
        " the words."
    )
    shell: bool = Field(False, description="Run the line by `sh -c`.")
    directory: str | None = Field(None, description="Where it runs; a path that begins with /.")
    env: dict[str, W] = Field({}, description="Variables of its environment.")
    stdin: W | None = Field(None, description="What it reads as its input.")
    success_codes: int | list[int] = Field(
        [0], description="Exit codes that mean success.", examples=[[0, 3]]
    )
    retry_codes: int | list[int] | None = Field(
        None, description="Exit codes that are tried again; by default all others."
    )
    grace: float | str = Field(
        5, description="How long it may take to end after SIGTERM, before SIGKILL."
    )
    output: Literal["text", "json"] = Field(
        "text", description="`json`: what it prints is JSON, and its result has it as data."
    )


class HttpRequestOf(BaseModel, Generic[W]):
    """A request to send."""

    model_config = CLOSED

    url: W = Field(description="Where to.", examples=["https://example.org/hook"])
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = Field(
        None, description="By default GET, or POST with a body."
    )
    headers: dict[str, W] = Field({}, description="Headers by name.")
    body: Any = Field(None, description="Text as it is; anything else is sent as JSON.")
    expect: int | str | list[int | str] = Field(
        "2xx", description='Statuses that mean success: 204, "2xx", or a list of them.'
    )
    redirects: bool | Annotated[int, Field(ge=0, le=REDIRECTS_MAX)] = Field(
        0, description="How many redirects are followed."
    )


class Statement(Shown):
    """A statement to run in a database."""

    connection: str = Field(
        description="The name that the workers' configuration has for it.", examples=["warehouse"]
    )
    statement: str = Field(
        description="The SQL; parameters are `:name`.",
        examples=["DELETE FROM events WHERE day < :day"],
    )
    parameters: dict[str, Any] = Field({}, description="What the statement is given, by name.")
    rows: Annotated[int, Field(ge=0, le=SQL_ROWS_MAX)] = Field(
        SQL_ROWS_DEFAULT, description="How many rows are kept as the result, at most."
    )


class MessageOf(BaseModel, Generic[W]):
    """A message to people."""

    model_config = CLOSED

    to: W | list[W] = Field(
        description="Addresses as apprise writes them: `mailto://…`, `slack://…`, `json://…`. They"
        " hold passwords: keep them as secrets.",
        examples=[[{"secret": "MAIL"}]],
    )
    title: str | W = Field("", description="What it is about.")
    body: str | W = Field("", description="What it says.")
    format: Literal["text", "markdown", "html"] = Field("text", description="What the body is.")


class Command(CommandOf[Words]):
    """A program to run."""


class HttpRequest(HttpRequestOf[Words]):
    """A request to send."""


class Message(MessageOf[Words]):
    """A message to people."""


class MadeFrom(Shown):
    """The template that a job was made from."""

    name: str = Field(description="The template's name.")
    version: int = Field(description="Its version then.")
    parameters: dict[str, Any] = Field(description="What it was given.")


class Described:
    """Has the document show a type in place of the one that is checked here."""

    def __init__(self, shown_as: Any) -> None:
        self._shown_as = TypeAdapter[Any](shown_as)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """What the document says."""
        return handler(self._shown_as.core_schema)


def _of_kind(kind: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None:
            _read(kind, {kind: value})
        return value

    return check


def _read(kind: str, fields: dict[str, Any]) -> None:
    try:
        read_kind(kind, fields)
    except UsageError as error:
        raise validation_error(error, field=with_field_path(error.field, kind)) from None


def _env(value: Any) -> Any:
    try:
        read_env(value)
    except UsageError as error:
        raise validation_error(error, field=error.field) from None
    return value


def with_field_path(field: str | None, kind: str) -> str:
    """Where something is in a request, of what a kind's rules call a field."""
    if field is None or field == "secret":
        return kind
    begin = field.partition(".")[0]
    return (
        field
        if begin == kind or (kind == "command" and begin in OF_COMMAND)
        else (f"{kind}.{field}")
    )


# What requests may say of a workflow, for the OpenAPI document. `core/workflow/graph.py` reads
# them.


class OutputReference(Shown):
    """Stands for the result of a node that comes before, which is an edge, too."""

    output: str = Field(description="The node's name.", examples=["extract"])
    path: str | None = Field(None, description="A part of the result.", examples=["rows.0"])


class ParamReference(Shown):
    """Stands for what a run is given."""

    param: str = Field(description="The parameter's name.", examples=["day"])
    path: str | None = Field(None, description="A part of it.")


class ItemReference(Shown):
    """Stands for the item that a mapped node runs for."""

    item: Literal[True]
    path: str | None = Field(None, description="A part of it.")


Reference = OutputReference | ParamReference | ItemReference


class NodeJoined(Shown):
    """Stands for all of these as one text."""

    join: list[str | SecretReference | Reference] = Field(
        description="Texts, and what stands for them.",
        examples=[["https://example.org/", {"output": "list", "path": "id"}]],
    )


NodeWords = str | SecretReference | NodeJoined | Reference


class NodeCommand(CommandOf[NodeWords]):
    """A program to run."""


class NodeHttpRequest(HttpRequestOf[NodeWords]):
    """A request to send."""


class NodeMessage(MessageOf[NodeWords]):
    """A message to people."""


class Edge(Shown):
    """One node waits for another, and perhaps for what that answered."""

    from_: str = Field(alias="from", description="The node that comes first.")
    to: str = Field(description="The node that waits.")
    when: str | None = Field(
        None,
        description="A condition on the first one's result; not met, it counts as skipped.",
        examples=["result.rows > 0 and result.kind in ['full', 'part']"],
    )


class Param(Shown):
    """What a run of the workflow may be given. Without a `default` it must be given."""

    name: str = Field(description="Letters, digits and _.", examples=["day"])
    default: Any = Field(None, description="Any JSON. It may be null; left out, there is none.")


class Node(Shown):
    """One thing to run. Its values may refer to results: `{"output": "extract", "path": "rows.0"}`,
    to parameters of the run: `{"param": "day"}`, and in a mapped node `{"item": true}`.
    """

    name: str = Field(description="What other nodes and people call it.")
    task: str | None = Field(None, description="A task of an app.")
    command: str | list[NodeWords] | NodeCommand | None = None
    http: NodeWords | NodeHttpRequest | None = None
    sql: Statement | None = None
    notify: NodeMessage | None = None
    job: str | None = Field(None, description="Another job by its name; perhaps a workflow.")
    args: dict[str, Any] | None = Field(None, description="Of a task or a job.")
    shell: bool | None = None
    env: dict[str, NodeWords] | None = None
    queue: str | None = Field(None, description="By default the task's, or the workflow's.")
    priority: Literal["critical", "high", "normal", "low"] | None = None
    retries: int | dict[str, Any] | None = None
    backoff: str | dict[str, Any] | None = None
    timeout: float | str | None = None
    rule: Rule | None = Field(
        None, description="What it wants of the nodes before it; by default that all succeed."
    )
    map: list[Any] | dict[str, Any] | None = Field(
        None,
        description="It runs once for each item of this list, result or parameter.",
        examples=[{"output": "extract", "path": "files"}],
    )
    max_items: int | None = Field(
        None,
        ge=1,
        le=MAP_ITEMS_MAX,
        description=f"Of a mapped node: the longest list that it takes; {MAP_ITEMS_DEFAULT:,} by"
        " default. A longer one fails the node.",
    )
    branch: list[str] | None = Field(
        None,
        description="Of a task: the nodes that it chooses among. It returns the name of one, or a"
        " list of names; the others are skipped.",
        examples=[["full", "part"]],
    )


class Workflow(Shown):
    """Nodes and what they wait for. A reference to a result is an edge, too."""

    nodes: Annotated[list[Node], Field(min_length=1, max_length=WORKFLOW_NODES_MAX)]
    edges: Annotated[list[tuple[str, str] | Edge], Field(max_length=WORKFLOW_EDGES_MAX)] = Field([])
    params: Annotated[list[str | Param], Field(max_length=PARAMETERS_MAX)] = Field(
        [],
        description="What a run is given as `args`. A text is the name of one that must be given.",
        examples=[[{"name": "day"}, {"name": "limit", "default": 10}]],
    )
    fail_fast: bool = Field(False, description="Start nothing more once a node has failed.")
    max_running: int | None = Field(None, ge=1, description="So many nodes at a time, at most.")


# What the fields of a job mean, for the OpenAPI document.

JOB_MEANINGS: Final[Mapping[str, str]] = {
    "task": "Runs a task of an app, by its name there.",
    "command": "Runs a program: a line, which is split as a shell would and run without one, the"
    " words, or an object with `run` and more. Only on workers that allow commands.",
    "shell": "Of a command: run its line by `sh -c`.",
    "env": "Of a command: variables of its environment. A value may stand for a secret.",
    "http": "Sends a request: an address, or an object with `url` and more.",
    "sql": "Runs a statement in a database that workers know by name.",
    "notify": "Tells people: by mail, chat or webhook.",
    "workflow": "Runs a graph: `nodes`, each of which is one of the above or another job, and"
    " `edges` between them. Its `params` are what `args` may give a run.",
    "template": "Makes the job from a template, by its name; what is said beside it wins.",
    "parameters": "What the template is given, by name.",
    "made_from": "The template that the rest came from: a note for people, in what `PUT` answers"
    " as `after`.",
    "source": "What the job belongs to, for whoever tidies up: `apply` for jobs of files.",
    "schedule": 'When it runs: a cron expression, {"cron", "tz", "jitter"}, {"every", "mode"},'
    ' {"at"}, {"delay"}, {"rrule"}, {"after_any": [jobs]}, a list of these, or "manual". Left out'
    " of a new job: once, now. In a change, what it does not name (tz, calendar, jitter, start_at"
    " and others) stays; null resets it.",
    "args": "What it is called with, by name; whether the task takes them shows when it runs. A"
    " value in them may stand for a secret.",
    "queue": "The queue that its executions wait in; by default `default`, or that of the task.",
    "priority": "critical, high, normal (or medium), or low: which goes first in its queue.",
    "retries": "How often it is tried again after a failure.",
    "backoff": 'How long to wait before each of these tries: "exponential", "fixed", or an object'
    " with base, factor, cap, delay, delays, jitter.",
    "timeout": "How long one try may take, as seconds or text such as `5m`; then it"
    " is stopped, and counts as failed.",
    "expires": "Not started this long after its time, it is skipped.",
    "max_crashes": "How many workers may die of it before it is dead.",
    "on_lost": "When its worker died: `retry` runs it again, `dead` leaves that to a person.",
    "store_result": "Whether what it returns is kept.",
    "description": "For people.",
    "user_id": "Whose it is, by your own account; to list jobs by.",
    "overlap": "When it is time and the one before has not ended: `skip` the new one, `queue` it"
    " (and skip a second), `queue_all`, `replace` the one before, or `allow` both.",
    "misfire": "Of ticks that nobody was there for: `fire_once` runs the latest, `skip` none,"
    " `fire_all` each.",
    "misfire_limit": "With `fire_all`: how many at most, the latest of them.",
    "misfire_within": "With `fire_all`: none that is older.",
    "misfire_grace": "How late a tick may be before it counts as missed.",
    "pause_after_failures": "So many dead executions in a row pause the job.",
    "calendar": 'Days on which it does not fire: {"country": "DE"}, and more in the guide.',
    "dst": "When clocks change: what becomes of a time that does not exist (`gap`), or that comes"
    " twice (`fold`).",
    "start_at": "It does not fire before; a time, or a date in its zone.",
    "end_at": "It does not fire after.",
    "max_executions": "After firing so often, it fires no more.",
    "jitter": "Each tick is up to so much later, to spread the load.",
    "dependencies": "Jobs that must have succeeded before it runs: with a schedule, their latest"
    " executions that were due at its time; without one, since it ran last, which fires it.",
    "on_dependency_failure": "What becomes of it when a dependency has failed for good: it waits"
    " on, this time is skipped, or it runs all the same.",
}


def describe_job(schema: dict[str, Any]) -> None:
    """Add to a model's schema what its fields mean."""
    for name, meaning in JOB_MEANINGS.items():
        schema["properties"][name]["description"] = meaning


IDS_MAX: Final = ENQUEUE_BATCH_MAX
USER_CHARS_MAX: Final = 200
LABEL_MAX: Final = NAME_CHARS_MAX + 20  # with the number of an item


def _misfire(value: Any) -> None:
    Misfire.parse(value)


def _dst(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, word in value.items():
        known = _DST[name]
        if word not in known:
            error = UsageError(f"{name} must be {_join_words(known)}")
            raise validation_error(error, field=f"dst.{name}")
    return value


def _join_words(words: Sequence[str]) -> str:
    *most, last = map(repr, words)
    return f"{', '.join(most)} or {last}"


_DST: Final[Mapping[str, tuple[str, ...]]] = {"gap": get_args(Gap), "fold": get_args(Fold)}
Dst = Annotated[
    dict[Literal["gap", "fold"], str],
    AfterValidator(_dst),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {name: {"enum": list(words)} for name, words in _DST.items()},
            "additionalProperties": False,
        }
    ),
]
Overlap = Literal["skip", "queue", "queue_all", "replace", "allow"]


class JobFields(BaseModel):
    """The fields of a job: first its kind, which is one of task, command, http, sql, notify,
    template and workflow, then its options.
    """

    model_config = ConfigDict(json_schema_extra=describe_job)

    # True if a line is a part of a command, of which the rest is in the stored job.
    has_parts: ClassVar[bool] = False

    task: Text | None = None
    # Before the command, which is read with them.
    shell: bool | None = None
    env: Annotated[dict[str, Any], AfterValidator(_env), Described(dict[str, Words])] | None = None
    command: Annotated[Any, Described(str | list[Words] | Command | None)] = None
    http: Annotated[Any, AfterValidator(_of_kind("http")), Described(str | HttpRequest | None)] = (
        None
    )
    sql: Annotated[Any, AfterValidator(_of_kind("sql")), Described(Statement | None)] = None
    notify: Annotated[Any, AfterValidator(_of_kind("notify")), Described(Message | None)] = None
    template: (
        Annotated[
            Text,
            checked_by(lambda value: check_name(value, what="template")),
            Field(max_length=NAME_CHARS_MAX),
        ]
        | None
    ) = None
    parameters: dict[str, Any] | None = None
    made_from: Annotated[dict[str, Any], checked_by(read_made_from), Described(MadeFrom)] | None = (
        None
    )
    # Read by the client alone: large ones take their time.
    workflow: Annotated[Any, Described(Workflow | None)] = None

    schedule: When | None = None
    args: Args | None = None
    queue: QueueName | None = None
    priority: PriorityWord | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    backoff: (
        Annotated[
            str | dict[str, Any],
            checked_by(lambda value: Retry.parse(read_retries({"backoff": value})["retries"])),
            Field(
                description='"exponential" or "fixed", or an object with base, factor, cap, delay,'
                " delays, jitter.",
                examples=[{"backoff": "fixed", "delay": "30s"}],
            ),
        ]
        | None
    ) = None
    timeout: TimeLimit | None = None
    expires: TimeLimit | None = None
    max_crashes: Annotated[int, Field(ge=1, le=RETRIES_MAX)] | None = None
    on_lost: Literal["retry", "dead"] | None = None
    store_result: bool | None = None
    description: Annotated[Text, Field(max_length=DESCRIPTION_CHARS_MAX)] | None = None
    user_id: Annotated[Text, Field(max_length=USER_CHARS_MAX)] | None = None
    overlap: Overlap | None = None
    misfire: Annotated[str | dict[str, Any], checked_by(_misfire)] | None = None
    misfire_limit: Annotated[int, Field(ge=1, le=MISFIRE_LIMIT_MAX)] | None = None
    misfire_within: Duration | None = None
    misfire_grace: Duration | None = None
    pause_after_failures: Annotated[int, Field(ge=1, le=RETRIES_MAX)] | None = None
    calendar: Annotated[dict[str, Any], checked_by(Calendar.parse)] | None = None
    dst: Dst | None = None
    start_at: Text | None = None
    end_at: Text | None = None
    max_executions: Annotated[int, Field(ge=1, le=EXECUTIONS_MAX)] | None = None
    jitter: Duration | None = None
    dependencies: Annotated[list[Name], Field(max_length=DEPENDENCIES_MAX)] | None = None
    on_dependency_failure: Literal["wait", "skip", "run"] | None = None

    source: Annotated[Text, Field(max_length=NAME_CHARS_MAX, examples=["apply:nightly"])] | None = (
        None
    )

    later: ClassVar[Mapping[str, str]] = {
        "labels": "labels of jobs",
        "requires": "choosing workers by label",
        "resources": "limits by resource",
        "concurrency": "limits on how many run at a time",
        "rate": "limits on how many start in a time",
        "cache": "keeping results",
        "notifications": "telling somebody how it went",
    }

    @field_validator("command")
    @classmethod
    def _check_command(cls, value: Any, info: ValidationInfo) -> Any:
        """A command with its shell: what cannot be split may be fine for that."""
        if value is not None and not (cls.has_parts and isinstance(value, str | list)):
            beside = {name: info.data.get(name) for name in OF_COMMAND}
            _read("command", {"command": value, **beside})
        return cast("Any", value)

    def options(self) -> dict[str, Any]:
        """What was said, as the client takes it."""
        return {
            name: getattr(self, name)
            for name in JobFields.model_fields
            if name in self.model_fields_set
        }


class NewJob(JobFields, Body):
    """A job to be created."""

    name: Name
    unique_key: (
        Annotated[UniqueKey, Field(description="Of the one execution of a job without a schedule.")]
        | None
    ) = None
    tenant: (
        Annotated[TenantName, Field(description="Another tenant; for a superadmin's key.")] | None
    ) = None

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        require_choice(given)

    def options(self) -> dict[str, Any]:
        """What was said; null says the same as nothing."""
        return {name: value for name, value in super().options().items() if value is not None}


class DeclaredJob(JobFields, Body):
    """All that a job is. Without a schedule it never runs by itself."""

    name: Annotated[Name, Field(description="As in the address, if it is said.")] | None = None

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        require_choice(given)


class JobChange(JobFields, Body):
    """What is to change about a job. What is not named stays; null is back to the default."""

    has_parts: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, str]] = {
        "name": "cannot be changed; create another job with this name",
    }

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        if read_choice(given) is None:
            for name in CHOICES:
                if name in given and given[name] is None:
                    raise UsageError(
                        f"a job runs something, and there is no default for that; leave {name} out,"
                        " or say what it runs instead",
                        field=name,
                    )


class ExecutionOptions(BaseModel):
    """Options of one execution, in place of those of its job."""

    args: Args | None = None
    delay: Delay | None = None
    at: Time | None = None
    expires: TimeLimit | None = None
    priority: PriorityWord | None = None
    queue: QueueName | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    timeout: TimeLimit | None = None
    unique_key: UniqueKey | None = None
    force: Annotated[bool, Field(description="Whatever the job's overlap rule says.")] = False


class Trigger(ExecutionOptions, Body):
    """How one execution differs from what its job says."""


class Item(ExecutionOptions, Body):
    """One execution of a bulk enqueue."""

    job: Annotated[str, Field(description="The name of its job.")]


class Items(RootModel[Annotated[list[Item], Field(min_length=1, max_length=ENQUEUE_BATCH_MAX)]]):
    """Executions to be enqueued, all or nothing."""


class Pause(Body):
    """Why a job is paused."""

    note: Annotated[Text, Field(max_length=PAUSE_NOTE_CHARS_MAX)] = ""


class Nothing(Body):
    """Nothing needs to be said."""


class Rollback(Body):
    """Which version is to be the current one again."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]


class BackfillRequest(Body):
    """Which ticks are to be run."""

    since: Bound
    until: Bound
    only: Literal["missing", "failed", "all"] = "missing"
    order: Literal["oldest", "newest"] = "oldest"
    concurrency: Annotated[int, Field(ge=1, le=BACKFILL_CONCURRENCY_MAX)] = 1
    dry_run: bool = False


class Force(Body):
    """Whether one that succeeded is run again, too."""

    force: bool = False


class Again(Body):
    """The same, and of a workflow's run with which node to begin."""

    force: bool = False
    from_: Annotated[Text, Field(max_length=LABEL_MAX)] | None = Field(
        None, alias="from", examples=["load"]
    )


SweepCursor = Annotated[
    str, Field(max_length=100, description="next_cursor of the answer before, to go on with it.")
]


class FilterFields(BaseModel):
    """Conditions that executions and dead letters are selected by."""

    job_id: Annotated[Text, Field(description="A job's id or name.")] | None = None
    job: Annotated[Text, Field(description="The same.")] | None = None
    queue: Text | None = None
    worker_id: Annotated[Text, Field(description="A worker's id or name.")] | None = None
    since: AgoBound | None = None
    until: AgoBound | None = None
    args: (
        Annotated[
            dict[str, str | int | float | bool | None],
            Field(
                description="Arguments by name or dotted path; `arg.NAME` beside this means the"
                " same.",
                min_length=1,
                max_length=SEARCH_ARGS_MAX,
                examples=[{"order_id": 42}],
            ),
        ]
        | None
    ) = None
    unique_key: UniqueKey | None = None
    error: (
        Annotated[
            Searched, Field(description="The class of its error, or a part of the error's text.")
        ]
        | None
    ) = None
    ended_since: AgoBound | None = None
    ended_until: AgoBound | None = None

    @field_validator("args", "unique_key", "error", "ended_since", "ended_until", mode="before")
    @classmethod
    def _refuse_nothing(cls, value: Any) -> Any:
        """Refuse to search for nothing: it would mean all that there are."""
        if value is None or value == {}:
            message = "restricts nothing, and would mean all that there are; leave it out for that"
            raise validation_error(UsageError(message))
        return value

    @model_validator(mode="before")
    @classmethod
    def _gather_args(cls, given: Any) -> Any:
        """Take `arg.NAME` as addresses have it."""
        if not isinstance(given, dict):
            return given
        said = cast("dict[str, Any]", given)
        named = {name: one for name, one in said.items() if name.startswith(ARGS_PREFIX)}
        if not named or not isinstance(said.get("args", {}), dict):
            return said
        args = {name.removeprefix(ARGS_PREFIX): one for name, one in named.items()}
        rest = {name: one for name, one in said.items() if name not in named}
        return {**rest, "args": {**said.get("args", {}), **args}}


class LetterFilter(FilterFields, Body):
    """Which dead letters; what is left out does not restrict."""


class ExecutionFilter(FilterFields, Body):
    """Which executions; what is left out does not restrict."""

    status: StatusWord | list[StatusWord] | None = None
    workflow_id: Id | None = None


class SelectionFields(BaseModel):
    """The executions that an operation is for."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: ExecutionFilter | None = None
    cursor: SweepCursor | None = None


class Selection(SelectionFields, Body):
    """Which executions: ids, or a filter. A filter that is empty means all that there are.

    With a filter by content, one request reads a bounded number of executions. If there are more,
    the answer has a `next_cursor`: send the same request again with it as `cursor`.
    """


class Retrial(SelectionFields, Body):
    """The same for a retry."""

    force: bool = False


class LetterSelection(Body):
    """Which dead letters: ids, or a filter. A filter that is empty means all that there are."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: LetterFilter | None = None
    cursor: SweepCursor | None = None


Quota = Annotated[int, Field(ge=0, le=QUOTA_MAX, description="null: no limit")]


class QuotaFields(BaseModel):
    """How much a tenant may use."""

    jobs: Quota | None = None
    queued: Quota | None = None
    per_minute: Quota | None = None
    running: Quota | None = None


class NewTenant(QuotaFields, Body):
    """A tenant to be created."""

    name: TenantName


class TenantChange(QuotaFields, Body):
    """What is to change about a tenant. What is not named stays; null is no limit."""


class NewKey(Body):
    """A key to be made."""

    name: Annotated[Text, Field(min_length=1, max_length=200, examples=["deploy"])]
    role: Role = Field(strict=False)
    expires: Annotated[TimeLimit, Field(examples=["90d"])] | None = None
    tenant: TenantName | None = None
    jobs: (
        Annotated[
            list[Text],
            Field(
                min_length=1,
                max_length=PATTERNS_MAX,
                description="Limit it to these jobs: names, or beginnings of names with a * after"
                " them.",
                examples=[["billing-*"]],
            ),
        ]
        | None
    ) = None
    queues: (
        Annotated[
            list[Text],
            Field(
                min_length=1,
                max_length=PATTERNS_MAX,
                description="Limit it to jobs and executions in these queues, in the same manner.",
                examples=[["mail"]],
            ),
        ]
        | None
    ) = None
    actions: (
        Annotated[
            list[Annotated[Action, Field(strict=False)]],
            Field(
                min_length=1,
                max_length=len(Action),
                description="Limit it to these actions, which its role must include.",
                examples=[["read", "trigger"]],
            ),
        ]
        | None
    ) = None


Selection.model_rebuild()
Retrial.model_rebuild()
LetterSelection.model_rebuild()


# What requests may say of a template.

TemplateName = Annotated[
    str,
    checked_by(lambda value: check_name(value, what="template")),
    Field(description="By which jobs name it.", examples=["backup"]),
]


class TemplateParameter(Shown):
    """A blank, and what may be put into it."""

    type: Literal["string", "integer", "number", "boolean", "array", "object", "secret"] = Field(
        "string", description="What it has to be; `secret` is a reference to one."
    )
    description: str = Field("", description="For people.")
    default: Any = Field(None, description="Without one it must be given.")
    choices: list[Any] = Field([], description="Nothing else, if there are any.")
    minimum: float | None = Field(None, description="Of a number; of a text or a list: its size.")
    maximum: float | None = Field(None, description="Of a number; of a text or a list: its size.")


class TemplateFields(BaseModel):
    """What a template says."""

    description: (
        Annotated[Text, Field(max_length=DESCRIPTION_CHARS_MAX, description="For people.")] | None
    ) = None
    parameters: (
        Annotated[
            dict[str, Any],
            Described(dict[str, str | TemplateParameter]),
            Field(
                max_length=PARAMETERS_MAX,
                description="The blanks by name: a type, or an object with `type` and more.",
            ),
        ]
        | None
    ) = None
    job: Annotated[
        dict[str, Any],
        Field(
            description="As in a request to create a job, without a name, and with"
            ' `{"parameter": "NAME"}` where a value goes.'
        ),
    ]

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        known = {name: given[name] for name in cls.model_fields if given.get(name) is not None}
        if isinstance(known.get("job"), Mapping):  # else that is told
            read_template({"name": "template", **known})

    def said(self) -> dict[str, Any]:
        """What was said, as the client takes it."""
        return self.model_dump(exclude_none=True)


class NewTemplate(TemplateFields, Body):
    """A template to be created."""

    name: TemplateName


class DeclaredTemplate(TemplateFields, Body):
    """All that a template is."""

    name: TemplateName | None = None


# What requests and answers about events say, for the OpenAPI document.

NOTE_CHARS_MAX: Final = 2_000
SPEC: Final = "1.0"


def _check_word(what: str, chars_max: int) -> Any:
    return checked_by(lambda value: check_words(value, what=what, field=what, chars_max=chars_max))


EventId = Annotated[str, _check_word("id", EVENT_ID_CHARS_MAX)]
EventSource = Annotated[str, _check_word("source", EVENT_SOURCE_CHARS_MAX)]
EventName = Annotated[str, _check_word("type", EVENT_NAME_CHARS_MAX)]


class CloudEvent(Body):
    """An event, as CloudEvents 1.0 has it in JSON. `id` and `source` name it: one that is sent
    twice counts once.
    """

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[EventId, Field(description="Left out: a new one.")] | None = None
    source: Annotated[EventSource, Field(description="Left out: daybell.")] | None = None
    type: Annotated[EventName, Field(description="Its name, which is waited for.")]
    time: Time | None = None
    subject: Annotated[Text, Field(description="Taken, and not kept.")] | None = None
    dataschema: Annotated[Text, Field(description="Taken, and not kept.")] | None = None
    datacontenttype: Annotated[Text, Field(examples=["application/json"])] | None = None
    data: Annotated[Any, Field(description="Any JSON.")] = None


class Signal(Body):
    """An event for one execution alone."""

    name: EventName
    data: Annotated[Any, Field(description="Any JSON.")] = None


class Decision(Body):
    """What a person has decided. Who they are is known by their key."""

    name: Annotated[Name, Field(description="As `wait_for_approval` names it.")] = "approval"
    approved: bool = True
    note: Annotated[Text, Field(max_length=NOTE_CHARS_MAX)] | None = None

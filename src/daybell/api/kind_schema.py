"""Models of job kinds in request bodies, and of the graph of a workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from daybell.api.requests import Body, Text, checked_by, validation_error
from daybell.client.jobs import OF_COMMAND, read_kind, read_made_from
from daybell.core.kinds.command import read_env
from daybell.core.limits import (
    COMMAND_CHARS_MAX,
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    NAME_CHARS_MAX,
    PARAMETERS_MAX,
    REDIRECTS_MAX,
    SQL_ROWS_DEFAULT,
    SQL_ROWS_MAX,
    WORKFLOW_EDGES_MAX,
    WORKFLOW_NODES_MAX,
    check_name,
)
from daybell.core.workflow.rules import Rule
from daybell.errors import UsageError

# For the document. Requests are read by `core/kinds`, which takes the same and says more clearly
# what is wrong.


class Shown(BaseModel):
    """What the document shows of an object: there are no other fields."""

    model_config = ConfigDict(extra="forbid")


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


class CommandOf(Shown, Generic[W]):
    """A program to run."""

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


class HttpRequestOf(Shown, Generic[W]):
    """A request to send."""

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


class MessageOf(Shown, Generic[W]):
    """A message to people."""

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


class KindFields(Body):
    """What a job runs: one of task, command, http, sql, notify and template, and what goes with
    it.
    """

    # Whether a line is part of a command of which the rest is known elsewhere.
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

    @field_validator("command")
    @classmethod
    def _check_command(cls, value: Any, info: ValidationInfo) -> Any:
        """A command with its shell: what cannot be split may be fine for that."""
        if value is not None and not (cls.has_parts and isinstance(value, str | list)):
            beside = {name: info.data.get(name) for name in OF_COMMAND}
            _read("command", {"command": value, **beside})
        return cast("Any", value)


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

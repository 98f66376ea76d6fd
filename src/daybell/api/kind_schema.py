"""What requests may say of what a job runs: checked by the rules of each kind, and described for
the OpenAPI document.
"""

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

from daybell.api.body import Body
from daybell.api.rules import Text, by, refused
from daybell.client.fields import read_made_from
from daybell.client.kinds import OF_COMMAND, read_kind
from daybell.core.kinds.command import read_env
from daybell.core.limits import (
    COMMAND_CHARS_MAX,
    NAME_CHARS_MAX,
    REDIRECTS_MAX,
    SQL_ROWS_DEFAULT,
    SQL_ROWS_MAX,
    check_name,
)
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
        raise refused(error, field=placed(error.field, kind)) from None


def _env(value: Any) -> Any:
    try:
        read_env(value)
    except UsageError as error:
        raise refused(error, field=error.field) from None
    return value


def placed(field: str | None, kind: str) -> str:
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
            by(lambda value: check_name(value, what="template")),
            Field(max_length=NAME_CHARS_MAX),
        ]
        | None
    ) = None
    parameters: dict[str, Any] | None = None
    made_from: Annotated[dict[str, Any], by(read_made_from), Described(MadeFrom)] | None = None

    @field_validator("command")
    @classmethod
    def _check_command(cls, value: Any, info: ValidationInfo) -> Any:
        """A command with its shell: what cannot be split may be fine for that."""
        if value is not None and not (cls.has_parts and isinstance(value, str | list)):
            beside = {name: info.data.get(name) for name in OF_COMMAND}
            _read("command", {"command": value, **beside})
        return cast("Any", value)

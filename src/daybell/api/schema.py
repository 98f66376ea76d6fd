"""Request bodies as models: jobs, executions, templates, events, tenants and keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    RootModel,
    TypeAdapter,
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
    checked_by,
    validation_error,
)
from daybell.client.declarations import read_template
from daybell.client.requests import ARGS_PREFIX
from daybell.core.access import PATTERNS_MAX, Action, Role
from daybell.core.event import check_words
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    DESCRIPTION_CHARS_MAX,
    ENQUEUE_BATCH_MAX,
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
    NAME_CHARS_MAX,
    PARAMETERS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    QUOTA_MAX,
    RETRIES_MAX,
    SEARCH_ARGS_MAX,
    check_name,
)
from daybell.errors import UsageError

CLOSED: Final = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """An object in the document, without other fields."""

    model_config = CLOSED


class Described:
    """Has the document show a type in place of the one that is checked here."""

    def __init__(self, shown_as: Any) -> None:
        self._shown_as = TypeAdapter[Any](shown_as)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """What the document says."""
        return handler(self._shown_as.core_schema)


IDS_MAX: Final = ENQUEUE_BATCH_MAX
USER_CHARS_MAX: Final = 200
LABEL_MAX: Final = NAME_CHARS_MAX + 20  # with the number of an item


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

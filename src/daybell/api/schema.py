"""What requests may say, as models: each field is checked by the rule that the domain has for it.

The values stay as they were written; the client reads them once more. So what a model lets through
is what the client takes, and all that is wrong is found at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    RootModel,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from daybell.api.body import Body
from daybell.api.graph_schema import Workflow
from daybell.api.kind_schema import Described, KindFields
from daybell.api.meanings import describe_job
from daybell.api.rules import (
    AgoBound,
    Args,
    Bound,
    Delay,
    Duration,
    Id,
    Limit,
    Name,
    QueueName,
    Searched,
    StatusWord,
    TenantName,
    Text,
    Time,
    UniqueKey,
    When,
    Word,
    by,
    refused,
)
from daybell.client.fields import retries_of
from daybell.client.kinds import CHOICES, choice_of, chosen
from daybell.client.requests import ARGS_PREFIX
from daybell.core.access import PATTERNS_MAX, Action, Role
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    DEPENDENCIES_MAX,
    DESCRIPTION_CHARS_MAX,
    ENQUEUE_BATCH_MAX,
    EXECUTIONS_MAX,
    MISFIRE_LIMIT_MAX,
    NAME_CHARS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    QUOTA_MAX,
    RETRIES_MAX,
    SEARCH_ARGS_MAX,
)
from daybell.core.retry import Retry
from daybell.core.when import Calendar, Misfire
from daybell.core.when.zone import Fold, Gap
from daybell.errors import UsageError

IDS_MAX: Final = ENQUEUE_BATCH_MAX
USER_CHARS_MAX: Final = 200
LABEL_MAX: Final = NAME_CHARS_MAX + 20  # with the number of an item


def _misfire(value: Any) -> None:
    Misfire.parse(value)


def _dst(value: Mapping[str, str]) -> Mapping[str, str]:
    for name, word in value.items():
        known = _DST[name]
        if word not in known:
            error = UsageError(f"{name} must be {_either(known)}")
            raise refused(error, field=f"dst.{name}")
    return value


def _either(words: Sequence[str]) -> str:
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


class JobFields(KindFields):
    """What may be said of a job, and changed."""

    model_config = ConfigDict(json_schema_extra=describe_job)

    # Read by the client alone: large ones take their time.
    workflow: Annotated[Any, Described(Workflow | None)] = None

    schedule: When | None = None
    args: Args | None = None
    queue: QueueName | None = None
    priority: Word | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    backoff: (
        Annotated[
            str | dict[str, Any],
            by(lambda value: Retry.parse(retries_of({"backoff": value})["retries"])),
            Field(
                description='"exponential" or "fixed", or an object with base, factor, cap, delay,'
                " delays, jitter.",
                examples=[{"backoff": "fixed", "delay": "30s"}],
            ),
        ]
        | None
    ) = None
    timeout: Limit | None = None
    expires: Limit | None = None
    max_crashes: Annotated[int, Field(ge=1, le=RETRIES_MAX)] | None = None
    on_lost: Literal["retry", "dead"] | None = None
    store_result: bool | None = None
    description: Annotated[Text, Field(max_length=DESCRIPTION_CHARS_MAX)] | None = None
    user_id: Annotated[Text, Field(max_length=USER_CHARS_MAX)] | None = None
    overlap: Overlap | None = None
    misfire: Annotated[str | dict[str, Any], by(_misfire)] | None = None
    misfire_limit: Annotated[int, Field(ge=1, le=MISFIRE_LIMIT_MAX)] | None = None
    misfire_within: Duration | None = None
    misfire_grace: Duration | None = None
    pause_after_failures: Annotated[int, Field(ge=1, le=RETRIES_MAX)] | None = None
    calendar: Annotated[dict[str, Any], by(Calendar.parse)] | None = None
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

    def options(self) -> dict[str, Any]:
        """What was said, as the client takes it."""
        return {
            name: getattr(self, name)
            for name in JobFields.model_fields
            if name in self.model_fields_set
        }


class NewJob(JobFields):
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
        choice_of(given)

    def options(self) -> dict[str, Any]:
        """What was said; null says the same as nothing."""
        return {name: value for name, value in super().options().items() if value is not None}


class DeclaredJob(JobFields):
    """All that a job is. Without a schedule it never runs by itself."""

    name: Annotated[Name, Field(description="As in the address, if it is said.")] | None = None

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        choice_of(given)


class JobChange(JobFields):
    """What is to change about a job. What is not named stays; null is back to the default."""

    has_parts: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, str]] = {
        "name": "cannot be changed; create another job with this name",
    }

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        if chosen(given) is None:
            for name in CHOICES:
                if name in given and given[name] is None:
                    raise UsageError(
                        f"a job runs something, and there is no default for that; leave {name} out,"
                        " or say what it runs instead",
                        field=name,
                    )


class Trigger(Body):
    """How one execution differs from what its job says."""

    args: Args | None = None
    delay: Delay | None = None
    at: Time | None = None
    expires: Limit | None = None
    priority: Word | None = None
    queue: QueueName | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    timeout: Limit | None = None
    unique_key: UniqueKey | None = None
    force: Annotated[bool, Field(description="Whatever the job's overlap rule says.")] = False


class Item(Trigger):
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


class Again(Force):
    """The same, and of a workflow's run with which node to begin."""

    from_: Annotated[Text, Field(max_length=LABEL_MAX)] | None = Field(
        None, alias="from", examples=["load"]
    )


SweepCursor = Annotated[
    str, Field(max_length=100, description="next_cursor of the answer before, to go on with it.")
]


class Selection(Body):
    """Which executions: ids, or a filter. A filter that is empty means all that there are.

    With a filter by content, one request reads a bounded number of executions. If there are more,
    the answer has a `next_cursor`: send the same request again with it as `cursor`.
    """

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: ExecutionFilter | None = None
    cursor: SweepCursor | None = None


class Retrial(Selection):
    """The same for a retry."""

    force: bool = False


class LetterFilter(Body):
    """Which dead letters; what is left out does not restrict."""

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
            raise refused(UsageError(message))
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


class ExecutionFilter(LetterFilter):
    """Which executions; what is left out does not restrict."""

    status: StatusWord | list[StatusWord] | None = None
    workflow_id: Id | None = None


class LetterSelection(Body):
    """Which dead letters: ids, or a filter. A filter that is empty means all that there are."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: LetterFilter | None = None
    cursor: SweepCursor | None = None


Quota = Annotated[int, Field(ge=0, le=QUOTA_MAX, description="null: no limit")]


class QuotaFields(Body):
    """How much a tenant may use."""

    jobs: Quota | None = None
    queued: Quota | None = None
    per_minute: Quota | None = None
    running: Quota | None = None


class NewTenant(QuotaFields):
    """A tenant to be created."""

    name: TenantName


class TenantChange(QuotaFields):
    """What is to change about a tenant. What is not named stays; null is no limit."""


class NewKey(Body):
    """A key to be made."""

    name: Annotated[Text, Field(min_length=1, max_length=200, examples=["deploy"])]
    role: Role = Field(strict=False)
    expires: Annotated[Limit, Field(examples=["90d"])] | None = None
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

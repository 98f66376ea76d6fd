"""What requests may say, as models: each field is checked by the rule that the domain has for it.

The values stay as they were written; the client reads them once more. So what a model lets through
is what the client takes, and all that is wrong is found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator, ConfigDict, Field, RootModel
from pydantic_core import PydanticCustomError

from daybell.api.body import NOT_YET, Body
from daybell.api.meanings import describe_job
from daybell.client.requests import read_bound, read_id, read_time
from daybell.client.when import read_schedules
from daybell.core.access import Role
from daybell.core.duration import parse_duration, parse_limit
from daybell.core.limits import (
    BACKFILL_CONCURRENCY_MAX,
    DEPENDENCIES_MAX,
    DESCRIPTION_CHARS_MAX,
    ENQUEUE_BATCH_MAX,
    EXECUTIONS_MAX,
    MISFIRE_LIMIT_MAX,
    PAUSE_NOTE_CHARS_MAX,
    QUOTA_MAX,
    RETRIES_MAX,
    check_key,
    check_name,
)
from daybell.core.priority import Priority
from daybell.core.retry import Retry
from daybell.core.when import Calendar, Misfire
from daybell.errors import UsageError, shown

IDS_MAX: Final = ENQUEUE_BATCH_MAX
USER_CHARS_MAX: Final = 200


def by(check: Callable[[Any], object]) -> AfterValidator:
    """Let through what a rule of the domain lets through."""

    def run(value: Any) -> Any:
        try:
            check(value)
        except UsageError as error:
            raise PydanticCustomError("usage", "{message}", {"message": str(error)}) from None
        return value

    return AfterValidator(run)


def plain(value: str) -> str:
    """Refuse what not every store can keep in a text."""
    if "\0" in value:
        raise UsageError(f"{shown(value)} contains a NUL character")
    return value


def _schedule(value: Any) -> None:
    for one in cast("list[Any]", value if isinstance(value, list) else [value]):
        if not isinstance(one, str):
            given: Mapping[str, Any] = one
            if "event" in given:
                raise UsageError(f"{NOT_YET}: schedules that wait for an event")
            if set(given) == {"delay"}:  # counts from the store's now, which is asked later
                parse_duration(given["delay"], what="delay")
                continue
        read_schedules(one)


def _misfire(value: Any) -> None:
    Misfire.parse(value)


Text = Annotated[str, by(plain)]
Name = Annotated[str, by(lambda value: check_name(value, what="job"))]
QueueName = Annotated[str, by(lambda value: check_name(value, what="queue"))]
TenantName = Annotated[str, by(lambda value: check_name(value, what="tenant"))]
UniqueKey = Annotated[str, by(check_key)]
Id = Annotated[str, by(read_id), Field(json_schema_extra={"format": "uuid"})]
Duration = Annotated[
    float | str,
    by(lambda value: parse_duration(value, what="duration")),
    Field(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=["5m"]),
]
Limit = Annotated[
    float | str,
    by(lambda value: parse_limit(value, what="duration")),
    Field(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=[3600]),
]
Time = Annotated[
    str,
    by(lambda value: read_time(value, "time")),
    Field(description="ISO 8601 with an offset.", examples=["2030-12-24T18:00:00+01:00"]),
]
Bound = Annotated[
    str,
    by(lambda value: read_bound(value, "time")),
    Field(description="ISO 8601 with an offset, or a date.", examples=["2026-11-15"]),
]
Word = Annotated[
    str, by(Priority.parse), Field(description="critical, high, normal (or medium), low")
]
Args = Annotated[dict[str, Any], Field(description="What it is called with, by name.")]
When = Annotated[
    str | dict[str, Any] | Annotated[list[str | dict[str, Any]], Field(min_length=1)],
    by(_schedule),
    Field(
        description='A cron expression, {"cron", "tz", "jitter"}, {"every", "mode"}, {"at"},'
        ' {"delay"}, {"rrule"}, a list of these, or "manual".',
        examples=["0 0 * * *", {"every": "5m", "mode": "delay"}],
    ),
]
Dst = Literal["shift", "skip", "first", "second", "both"]
Overlap = Literal["skip", "allow", "queue", "queue_all", "replace"]


class JobFields(Body):
    """What may be said of a job, and changed."""

    model_config = ConfigDict(json_schema_extra=describe_job)

    schedule: When | None = None
    args: Args | None = None
    queue: QueueName | None = None
    priority: Word | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] | None = None
    backoff: (
        Annotated[
            str | dict[str, Any],
            by(lambda value: Retry.parse(backoff_of(None, value))),
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
    dst: dict[Literal["gap", "fold"], Dst] | None = None
    start_at: Text | None = None
    end_at: Text | None = None
    max_executions: Annotated[int, Field(ge=1, le=EXECUTIONS_MAX)] | None = None
    jitter: Duration | None = None
    dependencies: Annotated[list[Name], Field(max_length=DEPENDENCIES_MAX)] | None = None

    later: ClassVar[Mapping[str, str]] = {
        "command": "jobs that run a command",
        "shell": "jobs that run a command",
        "http": "jobs that send a request",
        "sql": "jobs that run a statement",
        "notify": "jobs that tell somebody",
        "workflow": "workflows",
        "template": "templates",
        "parameters": "templates",
        "labels": "labels of jobs",
        "requires": "choosing workers by label",
        "resources": "limits by resource",
        "concurrency": "limits on how many run at a time",
        "rate": "limits on how many start in a time",
        "cache": "keeping results",
        "env": "jobs that run a command",
        "notifications": "telling somebody how it went",
        "on_dependency_failure": "waiting for dependencies",
    }

    def options(self) -> dict[str, Any]:
        """What was said, as the client takes it."""
        given = {
            name: getattr(self, name)
            for name in JobFields.model_fields
            if name in self.model_fields_set and name not in ("retries", "backoff")
        }
        if self.model_fields_set & {"retries", "backoff"}:
            given["retries"] = backoff_of(self.retries, self.backoff)
        return given


class NewJob(JobFields):
    """A job to be created."""

    name: Name
    task: Annotated[Text, Field(description="The task that it runs, as a worker knows it.")]
    unique_key: (
        Annotated[UniqueKey, Field(description="Of the one execution of a job without a schedule.")]
        | None
    ) = None
    tenant: (
        Annotated[TenantName, Field(description="Another tenant; for a superadmin's key.")] | None
    ) = None

    def options(self) -> dict[str, Any]:
        """What was said; null says the same as nothing."""
        return {name: value for name, value in super().options().items() if value is not None}


class JobChange(JobFields):
    """What is to change about a job. What is not named stays; null is back to the default."""

    fixed: ClassVar[Mapping[str, str]] = {
        "name": "cannot be changed; create another job with this name",
        "task": "cannot be changed; create another job for this task",
    }


class Trigger(Body):
    """How one execution differs from what its job says."""

    args: Args | None = None
    delay: Duration | None = None
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


class Selection(Body):
    """Which executions: ids, or a filter. A filter that is empty means all that there are."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: ExecutionFilter | None = None


class Retrial(Selection):
    """The same for a retry."""

    force: bool = False


class ExecutionFilter(Body):
    """Which executions; what is left out does not restrict."""

    job_id: Annotated[Text, Field(description="A job's id or name.")] | None = None
    status: str | list[str] | None = None
    queue: Text | None = None
    worker_id: Id | None = None
    workflow_id: Id | None = None
    since: Bound | None = None
    until: Bound | None = None


class LetterSelection(Body):
    """Which dead letters: ids, or a filter. A filter that is empty means all that there are."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)] | None = None
    filter: LetterFilter | None = None


class LetterFilter(Body):
    """Which dead letters; what is left out does not restrict."""

    job_id: Annotated[Text, Field(description="A job's id or name.")] | None = None
    queue: Text | None = None


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


def backoff_of(retries: int | None, backoff: Any) -> Any:
    """A retry policy of what is said in two fields."""
    if backoff is None:
        return retries
    said: dict[str, Any] = (
        {"backoff": backoff}
        if isinstance(backoff, str)
        else dict(cast("Mapping[str, Any]", backoff))
    )
    return said if retries is None else {**said, "retries": retries}


Selection.model_rebuild()
Retrial.model_rebuild()
LetterSelection.model_rebuild()

"""The rules that values in requests keep: those of the domain, told in the way of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from daybell.api.body import NOT_YET
from daybell.client.requests import read_bound, read_id, read_time
from daybell.client.when import read_schedules
from daybell.core.duration import parse_delay, parse_duration, parse_limit
from daybell.core.execution import State
from daybell.core.limits import SEARCH_CHARS_MAX, check_key, check_name
from daybell.core.priority import Priority
from daybell.core.standing import MANUAL, PAUSED
from daybell.errors import UsageError, shown


def refused(error: UsageError, *, field: str | None = None) -> PydanticCustomError:
    """A refusal of the domain's. With a field, that is told as its place."""
    said = {"message": str(error)} if field is None else {"message": str(error), "field": field}
    return PydanticCustomError("usage", "{message}", said)


def by(check: Callable[[Any], object]) -> AfterValidator:
    """Let through what a rule of the domain lets through."""

    def run(value: Any) -> Any:
        try:
            check(value)
        except UsageError as error:
            raise refused(error) from None
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
                parse_delay(given["delay"])
                continue
        read_schedules(one)


Text = Annotated[str, by(plain)]
Name = Annotated[str, by(lambda value: check_name(value, what="job"))]
QueueName = Annotated[str, by(lambda value: check_name(value, what="queue"))]
TenantName = Annotated[str, by(lambda value: check_name(value, what="tenant"))]
UniqueKey = Annotated[str, by(check_key)]
Id = Annotated[str, by(read_id), Field(json_schema_extra={"format": "uuid"})]
# The client refuses other words, and names the right ones; these are for the document.
StatusWord = Annotated[str, Field(json_schema_extra={"enum": ["pending", *map(str, State)]})]
JobStatusWord = Annotated[
    str, Field(json_schema_extra={"enum": ["pending", *map(str, State), PAUSED, MANUAL]})
]
Duration = Annotated[
    float | str,
    by(lambda value: parse_duration(value, what="duration")),
    Field(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=["5m"]),
]
Delay = Annotated[
    float | str,
    by(parse_delay),
    Field(
        description='Text such as "90s", "1h30m" or "PT5M"; up to a day, also seconds.',
        examples=["10m"],
    ),
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
AgoBound = Annotated[
    str,
    by(lambda value: read_bound(value, "time", now=0.0)),
    Field(
        description='ISO 8601 with an offset, a date, or a length of time: "1h" is an hour ago.',
        examples=["1h", "2026-11-15"],
    ),
]
Searched = Annotated[str, by(plain), Field(min_length=1, max_length=SEARCH_CHARS_MAX)]
Word = Annotated[
    str, by(Priority.parse), Field(description="critical, high, normal (or medium), low")
]
Args = Annotated[dict[str, Any], Field(description="What it is called with, by name.")]
When = Annotated[
    str | dict[str, Any] | Annotated[list[str | dict[str, Any]], Field(min_length=1)],
    by(_schedule),
    Field(
        description='A cron expression, {"cron", "tz", "jitter"}, {"every", "mode"}, {"at"},'
        ' {"delay"}, {"rrule"}, {"after_any"}, a list of these, or "manual".',
        examples=["0 0 * * *", {"every": "5m", "mode": "delay"}],
    ),
]

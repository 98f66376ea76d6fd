"""After others: a schedule whose time comes when jobs have succeeded, whatever the clock says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from daybell.core.instant import Instant
from daybell.core.limits import DEPENDENCIES_MAX, check_name
from daybell.core.when.effort import Effort
from daybell.core.when.rule import Schedule
from daybell.errors import InvalidName, InvalidSchedule, shown

# How its JSON begins. The names of many jobs may be longer than other schedules.
JSON_START: Final = '{"after":'


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Schedule):
    """When each of these jobs has succeeded since the last time."""

    jobs: tuple[str, ...]

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return None

    def own_fields(self) -> dict[str, Any]:
        return {"after": list(self.jobs)}


class Named(Protocol):
    """A job in hand, such as a task."""

    @property
    def name(self) -> str: ...


Dependency = str | Named


def name_of(job: Dependency) -> str:
    """A job's name, which is what is kept of it."""
    return job if isinstance(job, str) else getattr(job, "name", cast("Any", job))


def after(*jobs: Dependency) -> After:
    """When each of these jobs has succeeded since the last time: `after("extract", "load")`."""
    if not jobs:
        raise InvalidSchedule(
            'after needs the name of at least one job, such as after("extract")', field="after"
        )
    if len(jobs) > DEPENDENCIES_MAX:
        raise InvalidSchedule(
            f"after names {len(jobs):,} jobs; the limit is {DEPENDENCIES_MAX:,}", field="after"
        )
    try:
        names = dict.fromkeys(check_name(name_of(job), what="job") for job in jobs)
    except InvalidName as error:
        raise InvalidSchedule(f"after: {error}", field="after") from None
    return After(jobs=tuple(names))


def read_after(value: object) -> After:
    """What `{"after": …}` stands for: a name, or a list of them."""
    if isinstance(value, str):
        return after(value)
    if not isinstance(value, list | tuple):
        raise InvalidSchedule(
            f'after {shown(value)} must be a list of names, such as ["extract"]', field="after"
        )
    return after(*cast("Iterable[str]", value))

"""After others: a schedule whose time comes when jobs have succeeded, whatever the clock says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from daybell.core.instant import Instant
from daybell.core.limits import DEPENDENCIES_MAX, check_name
from daybell.core.when.effort import Effort
from daybell.core.when.rule import Schedule
from daybell.errors import InvalidName, InvalidSchedule, shown

# How its JSON begins. The names of many jobs may be longer than other schedules.
JSON_START: Final = ('{"after":', '{"after_any":')


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Schedule):
    """When each of these jobs has succeeded since the last time, or any of them."""

    jobs: tuple[str, ...]
    is_any: bool = False

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return None

    def own_fields(self) -> dict[str, Any]:
        return {"after_any" if self.is_any else "after": list(self.jobs)}


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
    return After(jobs=_names(jobs, "after"))


def after_any(*jobs: Dependency) -> After:
    """When any of these jobs has succeeded since the last time: `after_any("orders", "returns")`.

    Unlike `after`, it may stand in a list beside other schedules, each of which fires the job.
    """
    return After(jobs=_names(jobs, "after_any"), is_any=True)


def _names(jobs: Sequence[Dependency], what: str) -> tuple[str, ...]:
    if not jobs:
        raise InvalidSchedule(
            f'{what} needs the name of at least one job, such as {what}("extract")', field=what
        )
    if len(jobs) > DEPENDENCIES_MAX:
        raise InvalidSchedule(
            f"{what} names {len(jobs):,} jobs; the limit is {DEPENDENCIES_MAX:,}", field=what
        )
    try:
        return tuple(dict.fromkeys(check_name(name_of(job), what="job") for job in jobs))
    except InvalidName as error:
        raise InvalidSchedule(f"{what}: {error}", field=what) from None


def read_after(value: object, *, is_any: bool = False) -> After:
    """Read what `{"after": …}` or `{"after_any": …}` has: a name, or a list of them."""
    what, read = ("after_any", after_any) if is_any else ("after", after)
    if isinstance(value, str):
        return read(value)
    if not isinstance(value, list | tuple):
        raise InvalidSchedule(
            f'{what} {shown(value)} must be a list of names, such as ["extract"]', field=what
        )
    return read(*cast("Iterable[str]", value))

"""Options that all kinds of schedule take, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict, cast

from daybell.core.duration import Duration, parse_duration
from daybell.core.instant import Instant
from daybell.core.limits import EXECUTIONS_MAX
from daybell.core.when.calendar import Calendar
from daybell.core.when.checks import Moment, check_keys, parse_moment
from daybell.core.when.zone import zone_named
from daybell.errors import InvalidSchedule, shown


class Options(TypedDict, total=False):
    """The keywords of every constructor."""

    tz: str
    jitter: Duration | None
    start_at: Moment | None
    end_at: Moment | None
    max_executions: int | None
    calendar: Calendar | Mapping[str, object] | None


OPTIONS: Final = ("tz", "jitter", "start_at", "end_at", "max_executions", "calendar")


def settled(options: Options) -> dict[str, Any]:
    """The options as a schedule keeps them."""
    given = cast("dict[str, Any]", {**options})
    check_keys(given, OPTIONS, what="schedule")
    tz = given.get("tz") or "UTC"
    if not isinstance(tz, str):
        raise InvalidSchedule(f"tz {shown(tz)} is not the name of a zone", field="tz")
    zone_named(tz)
    start_at = _optional_moment(given, "start_at", tz)
    end_at = _optional_moment(given, "end_at", tz)
    if start_at is not None and end_at is not None and end_at < start_at:
        raise InvalidSchedule("end_at is before start_at; it would never fire", field="end_at")
    jitter = given.get("jitter")
    return {
        "tz": tz,
        "jitter": parse_duration(jitter, what="jitter") or None if jitter is not None else None,
        "start_at": start_at,
        "end_at": end_at,
        "max_executions": _executions(given.get("max_executions")),
        "calendar": Calendar.parse(given.get("calendar")),
    }


def _optional_moment(given: Mapping[str, object], key: str, tz: str) -> Instant | None:
    value = given.get(key)
    zone = tz if "tz" in given else None
    return None if value is None else parse_moment(value, what=key, tz=zone)


def _executions(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= EXECUTIONS_MAX:
        raise InvalidSchedule(
            f"max_executions {shown(value)} is not a whole number in 1-{EXECUTIONS_MAX:,}",
            field="max_executions",
        )
    return value

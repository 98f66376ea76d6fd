"""Schedules that a job declares: reading, with the options that apply to all of them, and changes
that keep the options they do not name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from daybell.core.limits import SCHEDULES_MAX
from daybell.core.units import Duration, Instant, to_iso
from daybell.core.when import After, At, Manual, Misfire, Schedule, Union
from daybell.core.when.cursor import first_tick
from daybell.core.when.recurrence import way_out
from daybell.core.when.rule import Options, resolve_options
from daybell.core.when.zone import read_dst
from daybell.errors import InvalidSchedule, shown

When = Schedule | str | Mapping[str, Any]

# Options of a job that apply to each of its schedules without an own value.
OF_EACH: Final = ("tz", "calendar", "start_at", "end_at", "max_executions", "jitter", "dst")
_PLAIN: Final = ("calendar", "start_at", "end_at", "max_executions", "jitter")
# Beside these, an option of the schedule that is replaced is kept if both are of the same kind.
_KEPT: Final = (*OF_EACH, "mode", "anchor")
_KEPT_BY: Final = {"dst": ("cron", "rrule"), "mode": ("every",), "anchor": ("every",)}


def read_schedules(
    value: When | Sequence[When] | None,
    common: Mapping[str, Any],
    *,
    now: Instant | None = None,
    is_draft: bool = False,
) -> list[Schedule]:
    """Read the schedules of a job. `common` are the options that apply to each schedule without an
    own value. With `now`, a schedule that is over is refused. In a draft, a delay counts from any
    moment.
    """
    given = [value] if value is None or isinstance(value, Schedule | str | Mapping) else value
    if not isinstance(cast("object", given), Iterable) or isinstance(given, bytes):
        raise InvalidSchedule(
            f"schedule {shown(given)} is of type {type(given).__name__}; it takes a cron"
            ' expression, an object such as {"every": "5m"}, or a list of those',
            field="schedule",
        )
    how: dict[str, Any] = {"now": now, "is_draft": is_draft}
    read = [read_schedule(one, common, **how) for one in given if one is not None]
    schedules = [one for one in read if not isinstance(one, Manual)]
    if len(schedules) > SCHEDULES_MAX:
        raise InvalidSchedule(
            f"{len(schedules):,} schedules are too many for one job; the limit is"
            f" {SCHEDULES_MAX}. Others can be added at run time",
            field="schedule",
        )
    return schedules


def read_schedule(
    value: object,
    common: Mapping[str, Any] | None = None,
    *,
    now: Instant | None = None,
    is_draft: bool = False,
) -> Schedule:
    """Read one schedule. With `now`, a schedule that is over is refused."""
    said = {name: one for name, one in (common or {}).items() if one is not None}
    keys = _keys_of(value)
    tz = said.pop("tz", None)
    if tz is not None:
        value = _with_tz(value, tz)
    start = 0.0 if is_draft and now is None else now
    schedule = Schedule.parse(value, now=start if "delay" in keys else None)
    plain = {name: said[name] for name in _PLAIN if name in said}
    if plain and not (isinstance(schedule, Manual | After) or schedule.listens_to):
        if schedule.tz != "UTC":
            plain["tz"] = schedule.tz  # a time without an offset is one of its clock
        usual = resolve_options(cast("Options", plain))
        lacking = {name: usual[name] for name in _PLAIN if getattr(schedule, name) is None}
        schedule = schedule.replaced(**lacking)
    if "dst" in said:
        schedule = _with_dst(schedule, check_dst(said["dst"]))
    _check_span(schedule)
    if now is not None:
        check_future(schedule, now)
    return schedule


def _with_tz(value: object, tz: str) -> object:
    """Add a zone to a schedule that has times and none of its own."""
    if not has_times(value):
        return value
    said = value.to_dict() if isinstance(value, Schedule) else value
    if isinstance(said, str):
        said = {"cron": said}
    if not isinstance(said, Mapping) or _has_own_tz(given := cast("Mapping[str, Any]", said)):
        return value
    return {**given, "tz": given.get("tz") or tz}


def _has_own_tz(schedule: Mapping[str, Any]) -> bool:
    return "any" in schedule or "TZID" in str(schedule.get("rrule", "")).upper()


def check_dst(value: object) -> dict[str, str]:
    """Read the rules for changes of the clocks, and check their words."""
    given = read_dst(value)
    for name, words in (("gap", ("shift", "skip")), ("fold", ("first", "second", "both"))):
        if name in given and given[name] not in words:
            raise InvalidSchedule(
                f"{name} {shown(given[name])} is not one of {', '.join(words)}", field=f"dst.{name}"
            )
    return given


def _with_dst(schedule: Schedule, dst: dict[str, str]) -> Schedule:
    """Return the schedule with this rule, unless it has an unusual rule of its own."""
    if isinstance(schedule, Union):
        parts = tuple(_with_dst(part, dst) for part in schedule.parts)
        return schedule.replaced(parts=parts)
    if (getattr(schedule, "gap", None), getattr(schedule, "fold", None)) != ("shift", "first"):
        return schedule
    return Schedule.parse({**schedule.to_dict(), "dst": dst})


def _check_span(schedule: Schedule) -> None:
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end < start:
        raise InvalidSchedule(
            f"end_at {to_iso(end)} is before start_at {to_iso(start)}; it would never fire",
            field="end_at",
        )


def check_future(schedule: Schedule, now: Instant) -> None:
    """Refuse a schedule that never fires from now on."""
    if not schedule.has_times or first_tick(schedule, now) is not None:
        return
    if isinstance(schedule, At) and schedule.time <= now:
        raise InvalidSchedule(
            f"at {to_iso(schedule.time)} is in the past: it is {to_iso(int(now))}", field="at"
        )
    if schedule.end_at is not None and schedule.end_at <= now:
        raise InvalidSchedule(
            f"end_at {to_iso(schedule.end_at)} is in the past; it would never fire", field="end_at"
        )
    raise InvalidSchedule(
        f"the schedule never fires from now on: {schedule.describe()}{way_out(schedule)}",
        field="schedule",
    )


def split_dependencies(schedules: Sequence[Schedule]) -> tuple[list[str], list[Schedule]]:
    """Return the jobs that `after` names, and the other schedules. `after` beside other schedules
    is refused: each schedule of a list fires the job, and `after` would not.
    """
    found = [one.jobs for one in schedules if isinstance(one, After) and not one.is_any]
    jobs = list(dict.fromkeys(job for one in found for job in one))
    named = ", ".join(map(repr, jobs))
    if len(found) > 1:
        raise InvalidSchedule(
            "a list of schedules fires the job by each of them, and after takes all of its jobs"
            f" together; say after({named}) to wait for all of them, or after_any({named}) to be"
            " fired by any",
            field="schedule",
        )
    if found and len(schedules) > 1:
        raise InvalidSchedule(
            "after beside other schedules can be read in two ways; say"
            f" dependencies={jobs} in place of it to have each time wait for them, or"
            f" after_any({named}) to be fired by any of them, too",
            field="schedule",
        )
    rest = [one for one in schedules if not isinstance(one, After) or one.is_any]
    return jobs, rest


def read_misfire(
    misfire: object,
    *,
    limit: int | None = None,
    within: Duration | None = None,
    grace: Duration | None = None,
) -> str:
    """Read the rule for missed ticks, as JSON; empty for the default."""
    read = Misfire.parse(misfire)
    parts = {"limit": limit, "within": within, "grace": grace}
    given = {name: value for name, value in parts.items() if value is not None}
    said = (Misfire.parse({**read.to_dict(), **given}) if given else read).to_dict()
    return json.dumps(said, sort_keys=True) if said else ""


def _keys_of(value: object) -> Collection[str]:
    return cast("Mapping[str, Any]", value).keys() if isinstance(value, Mapping) else ()


def is_after(value: object) -> bool:
    """Return True for a schedule, in any form, that runs after all of other jobs."""
    return (isinstance(value, After) and not value.is_any) or "after" in _keys_of(value)


def is_after_any(value: object) -> bool:
    """Return True for a schedule, in any form, that any of other jobs fires, or a list with one."""
    if isinstance(value, list | tuple):
        return any(is_after_any(one) for one in cast("Sequence[object]", value))
    return (isinstance(value, After) and value.is_any) or "after_any" in _keys_of(value)


def is_fired_by_event(value: object) -> bool:
    """Return True for a schedule, in any form, that events or files fire."""
    if isinstance(value, Schedule):
        return value.listens_to is not None
    return not {"event", "file"}.isdisjoint(_keys_of(value))


def is_manual(value: object) -> bool:
    """Return True for the schedule, in any form, of a job that runs only when it is triggered."""
    is_word = isinstance(value, str) and value.strip().casefold() == "manual"
    return is_word or isinstance(value, Manual) or "manual" in _keys_of(value)


def has_times(value: object) -> bool:
    """Return True for a schedule, in any form, with times of its own."""
    return not (
        is_after(value) or is_after_any(value) or is_fired_by_event(value) or is_manual(value)
    )


def has_delay(value: object) -> bool:
    """Return True if a schedule, or one of a list, counts from now."""
    given = cast("Sequence[Any]", value if isinstance(value, list | tuple) else [value])
    return any(isinstance(one, Mapping) and "delay" in one for one in given)


def is_one_time(schedules: Sequence[str]) -> bool:
    """Return True if a job has schedules, and each is a single moment."""
    return bool(schedules) and all("at" in json.loads(one) for one in schedules)


def keep_options(new: Any, old: Sequence[Mapping[str, Any]], *, named: Collection[str]) -> Any:
    """Return new schedules with the options of the old ones that they do not name. An option of
    the job that is `named` beside them is not kept, and null in a schedule resets it.

    As many schedules as before take the place of each other in their order. Otherwise the old ones
    have to agree.
    """
    before = [one for one in old if has_times(one)]
    given = cast("Sequence[Any]", new if isinstance(new, list | tuple) else [new])
    items: list[Any] = [one.to_dict() if isinstance(one, Schedule) else one for one in given]
    places = [place for place, one in enumerate(items) if has_times(one)]
    for n, place in enumerate(places):
        sources = before[n : n + 1] if len(before) == len(places) else before
        items[place] = _with_kept(items[place], sources, named)
    return items


def _with_kept(new: object, old: Sequence[Mapping[str, Any]], named: Collection[str]) -> object:
    if isinstance(new, str):
        new = {"cron": new}
    if not isinstance(new, Mapping):
        return new  # refused when it is read
    item = dict(cast("Mapping[str, Any]", new))
    for name in _KEPT:
        kinds = _KEPT_BY.get(name, ())
        is_own = name == "tz" and _has_own_tz(item)
        if name in item or name in named or is_own or (kinds and not any(k in item for k in kinds)):
            continue
        found = [one.get(name) for one in old if not kinds or any(k in one for k in kinds)]
        if any(value != found[0] for value in found):
            raise InvalidSchedule(
                f"the schedules that are replaced differ in {name}; say it with the new one, or"
                f' "{name}": null for none',
                field=name,
            )
        if found and found[0] is not None:
            item[name] = found[0]
    return item


def check_not_manual(value: object, dependencies: Sequence[str]) -> None:
    """Refuse a job that runs only when it is triggered, and after other jobs."""
    is_list = isinstance(value, list | tuple)
    given = cast("Sequence[object]", value) if is_list else [value]
    if dependencies and any(is_manual(one) for one in given):
        raise InvalidSchedule(
            'a job whose schedule is "manual" runs only when it is triggered, and then waits for no'
            f' others; say "dependencies": [] with it, or {{"after": {json.dumps(dependencies)}}}'
            " in place of it",
            field="schedule",
        )


def without_times(
    name: str, dependencies: Sequence[str], *, fires_after: bool
) -> Literal["manual"] | None:
    """Return the schedule of a job whose times are taken away: None, if it `fires_after` its
    dependencies, as it did before or as the same change says.
    """
    if not dependencies:
        return "manual"
    if fires_after:
        return None
    raise InvalidSchedule(
        f"without its times, job {name} would run after those that it depends on; say"
        f' {{"after": {json.dumps(dependencies)}}} for that, or "dependencies": [] with it to have'
        " it run only when it is triggered",
        field="schedule",
    )

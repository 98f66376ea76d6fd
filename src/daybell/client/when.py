"""What people write about when a job runs, turned into what a store takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack, cast
from uuid import UUID, uuid5

import msgspec

from daybell.core.duration import Duration
from daybell.core.instant import Instant, to_iso
from daybell.core.job import JobDefinition
from daybell.core.limits import RETRIES_MAX, SCHEDULES_MAX
from daybell.core.overlap import Overlap
from daybell.core.resume import first_at
from daybell.core.schedule import NewSchedule
from daybell.core.when import (
    After,
    At,
    Calendar,
    Manual,
    Misfire,
    Reboot,
    Schedule,
    Union,
    after,
)
from daybell.core.when.checks import Moment, check_keys
from daybell.core.when.options import Options, settled
from daybell.core.when.recurrence import way_out
from daybell.core.when.zone import Fold, Gap
from daybell.errors import InvalidSchedule, UsageError, shown

When = Schedule | str | Mapping[str, Any]
Arguments = Mapping[str, Any]

# Names of schedules are made from this: the same job has the same ones on every machine.
NAMESPACE: Final = UUID("6b1f6a0e-5a5c-5d8e-9f43-2d8a1c7be0d4")

# What a job says for those of its schedules that do not say it themselves.
_COMMON: Final = ("jitter", "start_at", "end_at", "max_executions", "calendar")


class Dst(TypedDict, total=False):
    """What becomes of times that a change of the clocks leaves out, or has twice."""

    gap: Gap
    fold: Fold


class WhenOptions(TypedDict, total=False):
    """What a definition may say about when it runs; what is left out is as usual."""

    schedule: When | Sequence[When] | None  # None, and "manual": none
    args: Arguments | None  # what it is called with by a schedule, or by who says nothing else
    overlap: Literal["skip", "queue", "queue_all", "replace", "allow"] | None
    misfire: Literal["fire_once", "skip", "fire_all"] | Misfire | Mapping[str, Any] | None
    misfire_limit: int | None
    misfire_within: Duration | None
    misfire_grace: Duration | None
    pause_after_failures: int | None
    # For each schedule that does not say so itself:
    calendar: Calendar | Mapping[str, Any] | None
    dst: Dst | None
    start_at: Moment | None
    end_at: Moment | None
    max_executions: int | None
    jitter: Duration | None


def read_when(*, now: Instant | None = None, **options: Unpack[WhenOptions]) -> dict[str, Any]:
    """The fields of a definition about when it runs, without what it is called with. Jobs that it
    runs after are dependencies.
    """
    common = {name: options.get(name) for name in _COMMON}
    given = read_schedules(options.get("schedule"), now=now, dst=options.get("dst"), **common)
    schedules = [one for one in given if not isinstance(one, After)]
    jobs = [job for one in given if isinstance(one, After) for job in one.jobs]
    if jobs and schedules:
        raise InvalidSchedule(
            "after beside other schedules can be read in two ways; leave it out and say"
            f" dependencies={jobs} to have each time wait for them, or make two jobs",
            field="schedule",
        )
    if not schedules:
        for name in ("dst", *_COMMON):
            if options.get(name) is not None:
                raise UsageError(
                    f"{name} is about a schedule, and there is none; give one, or leave it out",
                    field=name,
                )
    limit = options.get("pause_after_failures")
    return {
        "dependencies": tuple(jobs),
        "schedules": tuple(schedule.to_json() for schedule in schedules),
        "overlap": read_overlap(options.get("overlap")),
        "misfire": read_misfire(
            options.get("misfire"),
            limit=options.get("misfire_limit"),
            within=options.get("misfire_within"),
            grace=options.get("misfire_grace"),
        ),
        "pause_after_failures": None if limit is None else _failures(limit),
    }


def _failures(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= RETRIES_MAX:
        raise UsageError(
            f"pause_after_failures={shown(value)} must be a whole number from 1 to {RETRIES_MAX:,}",
            field="pause_after_failures",
        )
    return value


def read_schedules(
    value: When | Sequence[When] | None,
    *,
    now: Instant | None = None,
    dst: Dst | None = None,
    **common: Any,
) -> list[Schedule]:
    """The schedules that a definition declares. With `now`, one that is over is refused.

    `common` are options that apply to each schedule that does not say so itself.
    """
    given = [value] if value is None or isinstance(value, Schedule | str | Mapping) else value
    if not isinstance(cast("object", given), Iterable) or isinstance(given, bytes):
        raise InvalidSchedule(
            f"schedule {shown(given)} is of type {type(given).__name__}; it takes a cron"
            ' expression, an object such as {"every": "5m"}, or a list of those',
            field="schedule",
        )
    read = [read_schedule(one, now=now, dst=dst, **common) for one in given if one is not None]
    schedules = [one for one in read if not isinstance(one, Manual)]
    if len(schedules) > SCHEDULES_MAX:
        raise InvalidSchedule(
            f"{len(schedules):,} schedules are too many for one job; the limit is"
            f" {SCHEDULES_MAX}. Others can be added at run time",
            field="schedule",
        )
    return schedules


def read_schedule(
    value: object, *, now: Instant | None = None, dst: Dst | None = None, **common: Any
) -> Schedule:
    """One schedule. With `now`, one that is over is refused."""
    is_delay = isinstance(value, Mapping) and "delay" in cast("Mapping[str, Any]", value)
    if isinstance(value, Mapping) and "event" in cast("Mapping[str, Any]", value):
        raise InvalidSchedule("jobs cannot be fired by events yet", field="event")
    schedule = Schedule.parse(cast("object", value), now=now if is_delay else None)
    said = {name: common[name] for name in _COMMON if common.get(name) is not None}
    own = {name: getattr(schedule, name) for name in _COMMON}
    if said and not isinstance(schedule, Manual | After):
        if schedule.tz != "UTC":
            said["tz"] = schedule.tz  # a time without an offset is one of its clock
        usual = settled(cast("Options", said))
        lacking = {name: usual[name] for name in _COMMON if own[name] is None}
        schedule = schedule.replaced(**lacking)
    if dst is not None:
        if not isinstance(cast("object", dst), Mapping):
            raise InvalidSchedule(
                f'dst {shown(dst)} is not an object such as {{"gap": "skip", "fold": "both"}}',
                field="dst",
            )
        check_keys(cast("Mapping[str, object]", dst), ("gap", "fold"), what="dst")
        schedule = _with_dst(schedule, dst)
    _check_span(schedule)
    if now is not None:
        _check_future(schedule, now)
    return schedule


def _with_dst(schedule: Schedule, dst: Dst) -> Schedule:
    """The same with this rule, where it has none of its own that differs from the usual one."""
    if isinstance(schedule, Union):
        parts = tuple(_with_dst(part, dst) for part in schedule.parts)
        return schedule.replaced(parts=parts)
    if (getattr(schedule, "gap", None), getattr(schedule, "fold", None)) != ("shift", "first"):
        return schedule
    changed = {**schedule.to_dict(), "dst": dict(dst)}
    return Schedule.parse(changed)


def _check_span(schedule: Schedule) -> None:
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end < start:
        raise InvalidSchedule(
            f"end_at {to_iso(end)} is before start_at {to_iso(start)}; it would never fire",
            field="end_at",
        )


def _check_future(schedule: Schedule, now: Instant) -> None:
    if isinstance(schedule, Manual | Reboot | After) or first_at(schedule, now) is not None:
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


def read_misfire(
    misfire: object,
    *,
    limit: int | None = None,
    within: Duration | None = None,
    grace: Duration | None = None,
) -> str:
    """What is done about missed ticks, as text; empty for the usual."""
    read = Misfire.parse(misfire)
    parts = {"limit": limit, "within": within, "grace": grace}
    given = {name: value for name, value in parts.items() if value is not None}
    if given:
        read = Misfire.parse({**read.to_dict(), **given})
    said = read.to_dict()
    return json.dumps(said, sort_keys=True) if said else ""


def read_overlap(value: object) -> Overlap | None:
    """An overlap rule; None: skip with a schedule, allow without."""
    if value is None:
        return None
    try:
        return Overlap(cast("Any", value))
    except ValueError:
        known = ", ".join(Overlap)
        raise UsageError(f"overlap {shown(value)} is not one of {known}", field="overlap") from None


def declared(definition: JobDefinition, *, tenant: str, now: Instant) -> tuple[NewSchedule, ...]:
    """The schedules that come with a definition, as they begin now."""
    if definition.fires_after:
        return (_after_others(definition, tenant=tenant, now=now),)
    is_single = len(definition.schedules) == 1
    return tuple(
        new_schedule(
            definition,
            Schedule.from_json(text),
            tenant=tenant,
            now=now,
            id=uuid5(NAMESPACE, f"{tenant}/{definition.name}/{position}"),
            name="" if is_single else str(position),
            is_declared=True,
        )
        for position, text in enumerate(definition.schedules)
    )


def is_after(value: object) -> bool:
    """Whether a schedule, in any form, is one that runs after other jobs."""
    keys = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else ()
    return isinstance(value, After) or "after" in keys


def check_not_manual(value: object, dependencies: Sequence[str]) -> None:
    """Refuse a job that would run by hand alone, and after others."""
    is_list = isinstance(value, list | tuple)
    given = cast("Sequence[object]", value) if is_list else [value]
    if dependencies and any(_is_manual(one) for one in given):
        raise InvalidSchedule(
            'a job whose schedule is "manual" runs only when it is triggered, and then waits for no'
            f' others; say "dependencies": [] with it, or {{"after": {json.dumps(dependencies)}}}'
            " in place of it",
            field="schedule",
        )


def without_times(
    old: JobDefinition, dependencies: Sequence[str], *, is_said: bool
) -> Literal["manual"] | None:
    """What becomes of a job whose times are taken away, with the dependencies that it has now:
    None, if it runs after them, as it did before or as is said in the same breath.
    """
    if not dependencies:
        return "manual"
    if is_said or old.fires_after:
        return None
    raise InvalidSchedule(
        f"without its times, job {old.name} would run after those that it depends on; say"
        f' {{"after": {json.dumps(dependencies)}}} for that, or "dependencies": [] with it to have'
        " it run only when it is triggered",
        field="schedule",
    )


def _is_manual(value: object) -> bool:
    keys = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else ()
    is_word = isinstance(value, str) and value.strip().casefold() == "manual"
    return is_word or isinstance(value, Manual) or "manual" in keys


def _after_others(definition: JobDefinition, *, tenant: str, now: Instant) -> NewSchedule:
    """The schedule of a job that is fired by what it depends on. What happened before does not."""
    new = new_schedule(
        definition,
        after(*definition.dependencies),
        tenant=tenant,
        now=now,
        id=uuid5(NAMESPACE, f"{tenant}/{definition.name}/after"),
        name="",
        is_declared=True,
    )
    return msgspec.structs.replace(new, since=now)


def added(
    definition: JobDefinition,
    schedule: Schedule,
    *,
    tenant: str,
    now: Instant,
    args: str,
    name: str | None,
) -> NewSchedule:
    """A schedule that is added at run time. Its name, or what it says, makes its id."""
    if name is None:
        digest = uuid5(NAMESPACE, f"{schedule.to_json()}\n{args}")
        name = f"auto-{digest.hex[:12]}"
    new = new_schedule(
        definition,
        schedule,
        tenant=tenant,
        now=now,
        id=uuid5(NAMESPACE, f"{tenant}/{definition.name}/+{name}"),
        name=name,
    )
    return msgspec.structs.replace(new, args=args)


def new_schedule(
    definition: JobDefinition,
    schedule: Schedule,
    *,
    tenant: str,
    now: Instant,
    id: UUID,
    name: str,
    is_declared: bool = False,
) -> NewSchedule:
    """A schedule of a job, as it begins now."""
    rule = schedule.bind(f"{tenant}/{definition.name}")
    return NewSchedule(
        id=id,
        job=definition.name,
        rule=rule.to_json(),
        next_at=first_at(rule, now),
        name=name,
        args=definition.args,
        misfire=definition.misfire,
        delay=rule.delay,
        is_reboot=rule.is_reboot,
        pause_after=definition.pause_after_failures,
        is_declared=is_declared,
    )

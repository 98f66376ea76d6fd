"""Readers of the options that decide when a job runs: schedules, misfire and overlap rules, and
dependencies on other jobs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypedDict, Unpack, cast
from uuid import UUID, uuid5

import msgspec

from daybell.client.context import ClientContext
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.job import JobDefinition, JobStatus, WaitsFor
from daybell.core.limits import DEPENDENCIES_MAX, RETRIES_MAX, SCHEDULES_MAX, check_name
from daybell.core.schedule import (
    Ended,
    NewSchedule,
    OnFailure,
    Overlap,
    OverlapBy,
    Upstream,
    any_jobs,
    is_held_up,
)
from daybell.core.units import Duration, Instant, to_iso
from daybell.core.when import After, At, Calendar, Manual, Misfire, Reboot, Schedule, Union, after
from daybell.core.when.cursor import first_tick
from daybell.core.when.recurrence import way_out
from daybell.core.when.rule import Options, name_of, resolve_options
from daybell.core.when.zone import Fold, Gap, Moment, check_keys
from daybell.errors import InvalidName, InvalidSchedule, JobNotFound, UsageError, shown
from daybell.store.protocol import Store

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
    jobs = _jobs_before(given)
    schedules = [one for one in given if not _is_after_all(one)]
    if all(isinstance(one, After) for one in schedules):
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
        "overlap": read_overlap(options.get("overlap")) or _overlap_of(schedules),
        "misfire": read_misfire(
            options.get("misfire"),
            limit=options.get("misfire_limit"),
            within=options.get("misfire_within"),
            grace=options.get("misfire_grace"),
        ),
        "pause_after_failures": None if limit is None else _failures(limit),
    }


def _is_after_all(schedule: Schedule) -> bool:
    return isinstance(schedule, After) and not schedule.is_any


def _jobs_before(schedules: Sequence[Schedule]) -> list[str]:
    """Return the jobs that `after` names. Refuse it beside other schedules: each schedule of a list
    fires the job, and it would not.
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
    return jobs


def _overlap_of(schedules: Sequence[Schedule]) -> Overlap | None:
    """The rule for a job that others fire: it waits for its turn, as no other time would come."""
    return Overlap.QUEUE if any(isinstance(one, After) for one in schedules) else None


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
        usual = resolve_options(cast("Options", said))
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
    if isinstance(schedule, Manual | Reboot | After) or first_tick(schedule, now) is not None:
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


def build_declared_schedules(
    definition: JobDefinition, *, tenant: str, now: Instant
) -> tuple[NewSchedule, ...]:
    """The schedules that come with a definition, as they begin now."""
    if definition.fires_after:
        return (_after_others(definition, tenant=tenant, now=now),)
    is_single = len(definition.schedules) == 1
    return tuple(
        build_schedule(
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
    """Whether a schedule, in any form, is one that runs after all of other jobs."""
    keys = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else ()
    return (isinstance(value, After) and not value.is_any) or "after" in keys


def is_one_time(schedules: Sequence[str]) -> bool:
    """True if a job has schedules, and each is a single moment."""
    return bool(schedules) and all("at" in json.loads(one) for one in schedules)


def is_after_any(value: object) -> bool:
    """True if a schedule, in any form, is fired by any of other jobs, or a list has such a one."""
    if isinstance(value, list | tuple):
        return any(is_after_any(one) for one in cast("Sequence[object]", value))
    keys = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else ()
    return (isinstance(value, After) and value.is_any) or "after_any" in keys


# Of a schedule that takes the place of another, these stay as they were unless it names them.
_KEPT: Final = ("tz", *_COMMON, "dst", "mode", "anchor")
_KEPT_BY: Final = {"dst": ("cron", "rrule"), "mode": ("every",), "anchor": ("every",)}


def keep_options(new: Any, old: Sequence[Schedule], *, named: Collection[str]) -> Any:
    """Return new schedules with the options of the old ones that they do not name. An option of
    the job that is `named` beside them is not kept, and null in a schedule resets it.

    As many schedules as before take the place of each other in their order. Otherwise the old ones
    have to agree.
    """
    before = [one.to_dict() for one in old if not isinstance(one, After | Manual)]
    given = cast("Sequence[Any]", new if isinstance(new, list | tuple) else [new])
    items: list[Any] = [one.to_dict() if isinstance(one, Schedule) else one for one in given]
    places = [place for place, one in enumerate(items) if _has_times(one)]
    for n, place in enumerate(places):
        sources = before[n : n + 1] if len(before) == len(places) else before
        items[place] = _with_kept(items[place], sources, named)
    return items


def _has_times(value: object) -> bool:
    return not (is_after(value) or is_after_any(value) or _is_manual(value))


def _with_kept(new: object, old: Sequence[dict[str, Any]], named: Collection[str]) -> object:
    if isinstance(new, str):
        new = {"cron": new}
    if not isinstance(new, Mapping):
        return new  # which is refused when it is read
    item = dict(cast("Mapping[str, Any]", new))
    for name in _KEPT:
        kinds = _KEPT_BY.get(name, ())
        is_own = name == "tz" and ("any" in item or "TZID" in str(item.get("rrule", "")).upper())
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
    """The schedule of a job that is fired by what it depends on."""
    return build_schedule(
        definition,
        after(*definition.dependencies),
        tenant=tenant,
        now=now,
        id=uuid5(NAMESPACE, f"{tenant}/{definition.name}/after"),
        name="",
        is_declared=True,
    )


def build_added_schedule(
    definition: JobDefinition,
    schedule: Schedule,
    *,
    tenant: str,
    now: Instant,
    args: str,
    name: str | None,
    overlap_by: OverlapBy = "schedule",
) -> NewSchedule:
    """A schedule that is added at run time. Its name, or what it says, makes its id."""
    if name is None:
        digest = uuid5(NAMESPACE, f"{schedule.to_json()}\n{args}")
        name = f"auto-{digest.hex[:12]}"
    new = build_schedule(
        definition,
        schedule,
        tenant=tenant,
        now=now,
        id=derive_schedule_id(tenant, definition.name, name),
        name=name,
    )
    return msgspec.structs.replace(new, args=args, own_gate=overlap_by == "schedule")


def derive_schedule_id(tenant: str, job: str, name: str) -> UUID:
    """The id of a schedule that was added at run time under this name."""
    return uuid5(NAMESPACE, f"{tenant}/{job}/+{name}")


def read_overlap_by(value: object) -> OverlapBy:
    """Read which executions the overlap rule compares those of a run-time schedule with."""
    if value not in ("schedule", "job"):
        raise UsageError(
            f'overlap_by {shown(value)} is not "schedule", for a gate of its own, or "job"',
            field="overlap_by",
        )
    return value


def build_schedule(
    definition: JobDefinition,
    schedule: Schedule,
    *,
    tenant: str,
    now: Instant,
    id: UUID,
    name: str,
    is_declared: bool = False,
) -> NewSchedule:
    """A schedule of a job, as it begins now. What other jobs did before does not fire it."""
    rule = schedule.bind(f"{tenant}/{definition.name}")
    return NewSchedule(
        id=id,
        job=definition.name,
        rule=rule.to_json(),
        next_at=first_tick(rule, now),
        name=name,
        args=definition.args,
        misfire=definition.misfire,
        delay=rule.delay,
        is_reboot=rule.is_reboot,
        pause_after=definition.pause_after_failures,
        is_declared=is_declared,
        since=now if isinstance(rule, After) else None,
    )


# Dependencies of a job: other jobs, by name. `core.schedule.may_begin` decides when it may run.


async def held_up_by(client: ClientContext, execution: Execution) -> list[tuple[str, str]]:
    """The jobs that keep an execution of a schedule waiting as things are now, each with how it
    stands, in words.
    """
    definition = (await client.store.get_job(client.tenant, execution.job)).definition
    at = execution.run_at if execution.scheduled_for is None else execution.scheduled_for
    asked = [(name, at) for name in definition.dependencies]
    policy = definition.on_dependency_failure
    found = zip(asked, await client.store.upstream(client.tenant, asked), strict=True)
    held = [(name, one) for (name, _), one in found if is_held_up(policy, one)]
    return [(name, await _words_of(client, name, one)) for name, one in held]


async def _words_of(client: ClientContext, name: str, one: Upstream) -> str:
    if one == Upstream():  # nothing is known of it
        try:
            await client.store.get_job(client.tenant, name)
        except JobNotFound:
            return "there is no such job any more; create it, or depend on it no longer"
    return _describe_upstream(one)


async def load_waits(store: Store, tenant: str, standing: JobStatus) -> tuple[WaitsFor, ...]:
    """How each dependency of a job stands: whether it has succeeded since the job was fired last,
    or, of one with times of its own, as its latest execution stands.
    """
    names = standing.job.definition.dependencies
    if not names:
        return ()
    following = [one for one in standing.schedules if one.since is not None]
    after = next((one for one in following if not any_jobs((one.rule,))), None)
    if after is None or after.since is None:
        now = (await store.health()).now
        stand = await store.upstream(tenant, [(name, now) for name in names])
        return tuple(
            WaitsFor(name, one.state is State.SUCCEEDED, str(one.state or "it has not run yet"))
            for name, one in zip(names, stand, strict=True)
        )
    ended = await store.ended_since(tenant, [(name, after.since) for name in names])
    # What ended before belongs to a round that is over: it may well have succeeded then.
    is_first = not after.fired and not after.skipped
    when = "yet" if is_first else f"since this job was fired last, at {to_iso(after.since)}"
    return tuple(_describe_wait(name, one, when) for name, one in zip(names, ended, strict=True))


def _describe_wait(name: str, one: Ended, when: str) -> WaitsFor:
    if one.succeeded_at is not None:
        return WaitsFor(name, True, f"succeeded at {to_iso(one.succeeded_at)}")
    not_met = f"has not succeeded {when}"
    if one.state is None:
        return WaitsFor(name, False, not_met)
    then = "; retry it, or let it run again" if one.state is State.DEAD else ""
    return WaitsFor(name, False, f"{not_met}, its last one is {one.state}{then}")


def _describe_upstream(one: Upstream) -> str:
    if one.is_behind:
        return "its schedule is still to fire"
    if one.state is None:
        failed = "what it did since has failed; retry it, or let it run again"
        return failed if one.has_newer_failure else "it has not run yet"
    if one.state in TERMINAL:
        return f"{one.state}; retry it, or let it run again"
    return str(one.state)


def read_dependencies(value: object, *, job: str, after: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of the jobs that a job depends on, with those that it runs after; one that is said
    twice counts once.
    """
    if value is None:
        value = ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(
            f'dependencies {shown(value)} must be a list of names, such as ["extract"]',
            field="dependencies",
        )
    given = [*cast("Sequence[Any]", value), *after]
    if len(given) > DEPENDENCIES_MAX:
        raise UsageError(
            f"{len(given):,} dependencies are too many; the limit is {DEPENDENCIES_MAX:,}",
            field="dependencies",
        )
    try:
        names = tuple(dict.fromkeys(check_name(name_of(one), what="job") for one in given))
    except InvalidName as error:
        raise UsageError(f"dependencies: {error}", field="dependencies") from None
    if job in names:
        raise UsageError(f"job {shown(job)} cannot depend on itself", field="dependencies")
    return names


def read_fired_by(schedules: Sequence[str], *, job: str) -> tuple[str, ...]:
    """Read the names of the jobs of which any fires a job, from its schedules as JSON."""
    names = any_jobs(schedules)
    if job in names:
        raise UsageError(f"job {shown(job)} cannot be fired by itself", field="schedule")
    return names


def read_on_failure(
    value: str, dependencies: Sequence[str], *, fired_by: Sequence[str] = ()
) -> OnFailure:
    """What becomes of a job when one that it depends on has failed. Where there are none it is
    refused: whoever wrote it believes that it does something. Jobs of which any fires it do so
    when they succeed; with "run", also when they fail.
    """
    if value not in tuple(OnFailure):
        raise UsageError(
            f"on_dependency_failure {shown(value)} is not one of {', '.join(OnFailure)}",
            field="on_dependency_failure",
        )
    policy = OnFailure(value)
    is_of_any = bool(fired_by) and policy is OnFailure.RUN
    if policy is not OnFailure.WAIT and not dependencies and not is_of_any:
        raise UsageError(
            f"on_dependency_failure={policy} is for a job that depends on others, and this one has"
            ' no dependencies; add them, as in dependencies=["extract"], or leave it out',
            field="on_dependency_failure",
        )
    return policy


async def check_dependencies(
    store: Store,
    tenant: str,
    definition: JobDefinition,
    *,
    beside: Iterable[JobDefinition] = (),
    is_dry: bool = False,
) -> None:
    """Refuse dependencies that do not exist, or that lead back to the job itself, and the same of
    jobs of which any fires it. Those `beside` it are defined together with it. If it is only
    tried, jobs of which any fires it need not be there.

    What others define at the same moment is not seen.
    """
    named = definition.dependencies if is_dry else definition.upstream
    if not named:
        return  # as it is with most, and an app has many
    together = {one.name: one for one in beside}
    paths: dict[str, tuple[str, ...]] = {}  # how each was come to
    missing: list[str] = []
    waiting = [(name, (definition.name,)) for name in named]
    while waiting:
        name, before = waiting.pop()
        if name in paths:
            continue
        paths[name] = (*before, name)
        if name == definition.name:
            raise UsageError(
                f"dependencies lead in a circle: {' -> '.join(map(shown, paths[name]))}",
                field="dependencies",
            )
        found = together.get(name)
        if found is None:
            try:
                found = (await store.get_job(tenant, name)).definition
            except JobNotFound:
                if len(before) == 1:  # others were deleted since, and are their job's concern
                    missing.append(name)
                continue
        waiting += [(other, paths[name]) for other in found.upstream]
    if missing:
        raise _missing(definition, [name for name in named if name in missing])


def _is_id(name: str) -> bool:
    with suppress(ValueError):
        return bool(UUID(name))
    return False


def _missing(definition: JobDefinition, names: Sequence[str]) -> UsageError:
    is_one = len(names) == 1
    jobs = "is no job" if is_one else "are no jobs"
    ids = [name for name in names if _is_id(name)]
    named = [name for name in names if name not in ids]
    which = [f"named {', '.join(map(shown, named))}"] if named else []
    which += [f"with the id {', '.join(ids)}"] if ids else []
    return UsageError(
        f"there {jobs} {' or '.join(which)} to depend on, as"
        f" {shown(definition.name)} does; create {'it' if is_one else 'them'} first",
        field="dependencies" if names[0] in definition.dependencies else "schedule",
    )

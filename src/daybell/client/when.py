"""Schedules of a job as they are stored, and its dependencies on other jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final
from uuid import UUID, uuid5

import msgspec

from daybell.client.context import ClientContext
from daybell.client.requests import Time, read_bound, read_id
from daybell.core.event import Event
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.job import JobDefinition, JobStatus, WaitsFor
from daybell.core.limits import CALENDAR_DAYS_MAX, FIRES_MAX, PAGE_ITEMS_DEFAULT
from daybell.core.schedule import (
    CalendarEntry,
    Ended,
    NewSchedule,
    OverlapBy,
    TickRecord,
    Upstream,
    any_jobs,
    is_held_up,
)
from daybell.core.schedule import Schedule as StoredSchedule
from daybell.core.units import Instant, to_iso
from daybell.core.views import Page
from daybell.core.when import After, Schedule, after
from daybell.core.when.cursor import first_tick
from daybell.core.when.event import check_event_args
from daybell.errors import JobNotFound, UsageError, shown
from daybell.store.protocol import Store

# Names of schedules are made from this: the same job has the same ones on every machine.
NAMESPACE: Final = UUID("6b1f6a0e-5a5c-5d8e-9f43-2d8a1c7be0d4")


def build_declared_schedules(
    definition: JobDefinition, *, tenant: str, now: Instant
) -> tuple[NewSchedule, ...]:
    """Return the schedules that a definition declares, as they start now."""
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


def _after_others(definition: JobDefinition, *, tenant: str, now: Instant) -> NewSchedule:
    """Return the schedule of a job that is fired by its dependencies."""
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
    """Return a schedule that is added at run time. Its name, or its content, makes its id."""
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
    if new.event is not None:
        check_event_args(args)
    return msgspec.structs.replace(new, args=args, own_gate=overlap_by == "schedule")


def derive_schedule_id(tenant: str, job: str, name: str) -> UUID:
    """Return the id of a schedule that was added at run time under this name."""
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
    """Return a schedule of a job, as it starts now. Earlier ends of other jobs do not fire it."""
    rule = schedule.bind(f"{tenant}/{definition.name}")
    event = rule.listens_to
    return NewSchedule(
        id=id,
        job=definition.name,
        rule=rule.to_json(),
        next_at=first_tick(rule, now),
        name=name,
        args=definition.called_args if event is None else definition.args,
        misfire=definition.misfire,
        delay=rule.delay,
        is_reboot=rule.is_reboot,
        pause_after=definition.pause_after_failures,
        is_declared=is_declared,
        since=now if isinstance(rule, After) else None,
        event=event,
    )


# Dependencies of a job: other jobs, by name. `core.schedule.may_begin` decides when it may run.


async def held_up_by(client: ClientContext, execution: Execution) -> list[tuple[str, str]]:
    """Return the jobs that keep an execution of a schedule waiting now, each with its state in
    words.
    """
    definition = (await client.store.catalog.get_job(client.tenant, execution.job)).definition
    at = execution.run_at if execution.scheduled_for is None else execution.scheduled_for
    asked = [(name, at) for name in definition.dependencies]
    policy = definition.on_dependency_failure
    found = zip(asked, await client.store.schedules.upstream(client.tenant, asked), strict=True)
    held = [(name, one) for (name, _), one in found if is_held_up(policy, one)]
    return [(name, await _words_of(client, name, one)) for name, one in held]


async def find_firing_event(client: ClientContext, execution: Execution) -> Event | None:
    """Return the event that fired an execution; None: none did, or it is no longer kept."""
    schedule, at = execution.schedule, execution.scheduled_for
    if schedule is None or at is None:
        return None
    (event,) = await client.store.runs.firing_events(client.tenant, schedule, [at])
    return event


async def _words_of(client: ClientContext, name: str, one: Upstream) -> str:
    if one == Upstream():  # nothing is known of it
        try:
            await client.store.catalog.get_job(client.tenant, name)
        except JobNotFound:
            return "there is no such job any more; create it, or depend on it no longer"
    return _describe_upstream(one)


async def load_waits(store: Store, tenant: str, standing: JobStatus) -> tuple[WaitsFor, ...]:
    """Return the state of each dependency of a job: its success since the job was fired last, or,
    for a job with times of its own, the state of the dependency's latest execution.
    """
    names = standing.job.definition.dependencies
    if not names:
        return ()
    following = [one for one in standing.schedules if one.since is not None]
    after = next((one for one in following if not any_jobs((one.rule,))), None)
    if after is None or after.since is None:
        now = (await store.health()).now
        stand = await store.schedules.upstream(tenant, [(name, now) for name in names])
        return tuple(
            WaitsFor(name, one.state is State.SUCCEEDED, str(one.state or "it has not run yet"))
            for name, one in zip(names, stand, strict=True)
        )
    ended = await store.schedules.ended_since(tenant, [(name, after.since) for name in names])
    # Earlier ends belong to a round that is over: the dependency may have succeeded then.
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


async def check_dependencies(
    store: Store,
    tenant: str,
    definition: JobDefinition,
    *,
    beside: Iterable[JobDefinition] = (),
    is_dry: bool = False,
) -> None:
    """Refuse dependencies that do not exist, or that lead back to the job itself, and the same of
    jobs of which any fires it. Those `beside` it are defined together with it. In a dry run, jobs
    of which any fires it need not exist.

    Definitions that other callers make at the same moment are not seen.
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
                found = (await store.catalog.get_job(tenant, name)).definition
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


# The calendar: ticks of all schedules in a range, on record and to come.

DAY: Final = 86_400.0


async def next_schedules(
    client: ClientContext, *, limit: int = PAGE_ITEMS_DEFAULT
) -> list[StoredSchedule]:
    """Return the schedules that fire next, earliest first."""
    return await client.store.schedules.next_schedules(client.tenant, limit=limit)


async def upcoming(
    client: ClientContext,
    *,
    since: Time | None = None,
    until: Time | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
) -> Page[CalendarEntry]:
    """Return a page of schedules with their ticks from `since` to before `until`: those on record,
    and those that will fire. The default is the day from now on.

    Times of schedules that depend on runs, such as fixed delays, are known one at a time.
    """
    now = (await client.store.health()).now
    begin = now if since is None else read_bound(since, "since", now=now)
    end = begin + DAY if until is None else read_bound(until, "until")
    if not 0 < end - begin <= CALENDAR_DAYS_MAX * DAY:
        raise UsageError(
            f"until must be after since, by {CALENDAR_DAYS_MAX} days at most", field="until"
        )
    after = None if cursor is None else read_id(cursor, "cursor")
    listed = await client.store.schedules.list_schedules(client.tenant, after=after, limit=limit)
    items: list[CalendarEntry] = []
    for one in listed:
        past: list[TickRecord] = []
        if begin < now:
            past = await client.store.schedules.list_ticks(
                client.tenant, one.id, limit=FIRES_MAX + 1, before=end
            )
        known = [tick for tick in past if (tick.until or tick.at) >= begin]
        future = list(islice(next_times(one, begin, end), FIRES_MAX + 1))
        items.append(
            CalendarEntry(
                schedule=one,
                past=tuple(known[:FIRES_MAX]),
                future=tuple(future[:FIRES_MAX]),
                has_more=max(len(known), len(future)) > FIRES_MAX,
            )
        )
    more = str(listed[-1].id) if len(listed) == limit else None
    return Page(items=tuple(items), next_cursor=more)


def next_times(schedule: StoredSchedule, begin: Instant, end: Instant) -> Iterator[Instant]:
    """Yield the times in a range at which a schedule will fire, unless it changes."""
    first = schedule.next_at
    if schedule.is_paused or first is None or first >= end:
        return
    if first >= begin:
        yield first
    if schedule.delay is not None:
        return
    rule = Schedule.from_json(schedule.rule)
    for tick in rule.ticks(max(first, math.nextafter(begin, -math.inf))):
        if tick >= end:
            return
        yield tick

"""Schedules: cursors, the atomic firing of ticks, and job dependencies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.checks import (
    OCCURRENCES_MAX,
    check_batch,
    check_limit,
    check_schedule_cursor,
    schedule_cursor,
)
from daybell.core.execution import TERMINAL, Enqueued, Execution, State
from daybell.core.lifecycle import Occasion, target
from daybell.core.schedule import (
    DEPENDENCIES,
    OVERLAP,
    UPSTREAM_FAILED,
    Decision,
    Dependent,
    Dependents,
    Due,
    Ended,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    Tick,
    TickRecord,
    Upstream,
    Waiting,
    gate_of,
    is_backfill,
    is_job_gate,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page, bytes_of, cut_page
from daybell.store.memory import progress
from daybell.store.memory.progress import charge
from daybell.store.memory.queue import create_all, keep_waiting, make_gate
from daybell.store.memory.tables import JobRow, Row, Tables, shown_state
from daybell.store.wakeups import Signal

# Firing: a cursor goes on, its ticks are recorded, their executions created, as one.


def fire_one(tables: Tables, firing: Firing, now: Instant) -> bool:
    """Advance one schedule, if its cursor still is where the caller saw it."""
    key = firing.tenant, firing.schedule
    schedule = tables.schedules.get(key)
    if schedule is None or schedule.is_paused or schedule.cursor != firing.expect:
        return False
    if any((*key, tick.at) in tables.ticks for tick in firing.missed):
        return False
    tables.moved_at[key] = max(now, firing.planned_at)
    if schedule.since is None:
        tables.schedules[key] = replace(schedule, next_at=firing.next_at)
    else:
        tables.schedules[key] = replace(schedule, since=firing.next_at)
    answers: list[Enqueued] = []
    records: list[TickRecord] = []
    ruled_out = 0
    for tick in firing.ticks:
        if (*key, tick.at) not in tables.ticks:
            if tick.execution is not None:
                check_batch([tick.execution])
                answers += create_all(tables, firing.tenant, [tick.execution], now)
                ruled_out += rule_out(tables, firing.tenant, tick, now)
            records.append(
                describe_tick(firing, tick, None if tick.execution is None else answers[-1])
            )
            tables.ticks[*key, tick.at] = records[-1]
    made = sum(one.created and not one.skipped for one in answers)
    charge(tables, firing.tenant, made - ruled_out, now, is_refused=False)
    count(tables, firing, records)
    end(tables, firing, records)
    begin_anew(tables, firing, answers, now)
    return True


def rule_out(tables: Tables, tenant: str, tick: Tick, now: Instant) -> bool:
    """Skip the execution of a tick that a rule said no to, whatever it waits for: its job may
    depend on nothing by now.
    """
    row = None if tick.ruled_out is None else tables.rows.get((tenant, tick.ruled_out))
    if row is None or row.execution.state in {State.RUNNING, *TERMINAL}:
        return False
    tables.put(keep_waiting(row, DEPENDENCIES))
    progress.end_unstarted(tables, row, Occasion.RULED_OUT, now, reason=tick.reason)
    return True


def describe_tick(firing: Firing, tick: Tick, answer: Enqueued | None) -> TickRecord:
    """A tick as it is kept: what the overlap rule did not let in was skipped."""
    is_skipped = answer is not None and answer.skipped
    return TickRecord(
        schedule=firing.schedule,
        at=tick.at,
        decision=Decision.SKIPPED if is_skipped else tick.decision,
        reason=OVERLAP if is_skipped else tick.reason,
        until=tick.until,
        execution=None if answer is None else answer.id,
        count=tick.count,
    )


def count(tables: Tables, firing: Firing, records: list[TickRecord]) -> None:
    # Read again: an execution that was replaced has told the schedule of its end. A fixed delay
    # does not begin with that, but with the end of what came in its place.
    schedule = tables.schedules[firing.tenant, firing.schedule]
    waits = schedule.delay is not None and firing.next_at is None
    fired = [record.at for record in records if record.decision is Decision.FIRED]
    skipped = [record for record in records if record.decision is Decision.SKIPPED]
    missed = [record.count for record in records if record.decision is Decision.MISSED]
    tables.schedules[firing.tenant, firing.schedule] = replace(
        schedule,
        next_at=None if waits else schedule.next_at,
        last_at=fired[-1] if fired else schedule.last_at,
        fired=schedule.fired + len(fired),
        skipped=schedule.skipped + len(skipped),
        missed=schedule.missed + sum(missed),
    )


def end(tables: Tables, firing: Firing, records: list[TickRecord]) -> None:
    """Let the schedule end that was to end with this, unless a tick of it was not fired."""
    schedule = tables.schedules[firing.tenant, firing.schedule]
    fired = sum(record.decision is Decision.FIRED for record in records)
    if fired < sum(tick.execution is not None for tick in firing.ticks):
        if firing.if_refused_at is not None:
            schedule = replace(schedule, next_at=firing.if_refused_at)
    elif firing.is_over:
        schedule = replace(schedule, next_at=None, delay=None)
    tables.schedules[firing.tenant, firing.schedule] = schedule


def begin_anew(tables: Tables, firing: Firing, answers: list[Enqueued], now: Instant) -> None:
    """Start a fixed delay again if nothing came of the firing whose end could do so."""
    schedule = tables.schedules[firing.tenant, firing.schedule]
    is_refused = bool(answers) and all(one.skipped or not one.created for one in answers)
    if is_refused and schedule.delay is not None and schedule.next_at is None:
        next_at = now + schedule.delay
        tables.schedules[firing.tenant, firing.schedule] = replace(schedule, next_at=next_at)
        tables.signals[Signal.SCHEDULES] = None


def put_schedules(
    tables: Tables, now: Instant, tenant: str, schedules: Sequence[NewSchedule]
) -> None:
    for new in schedules:
        make_gate(tables, tenant, gate_of(new.job))
        put_schedule(tables, tables.job(tenant, new.job), new, now)


def delete_schedules(tables: Tables, tenant: str, ids: Sequence[UUID]) -> int:
    found = {id for id in ids if (tenant, id) in tables.schedules}
    for id in found:
        del tables.schedules[tenant, id]
    return len(found)


def list_schedules(
    tables: Tables, tenant: str, job: str | None, ids: Collection[UUID] | None
) -> list[Schedule]:
    keys = tables.schedules if ids is None else {(tenant, id) for id in ids}
    found = [
        schedule
        for key in keys
        if (schedule := tables.schedules.get(key)) is not None
        and schedule.tenant == tenant
        and job in (None, schedule.job)
    ]
    return sorted(found, key=lambda schedule: schedule.id)


def list_job_schedules(
    tables: Tables, tenant: str, job: str, limit: int, cursor: str | None
) -> Page[Schedule]:
    check_limit(limit)
    after = check_schedule_cursor(cursor)
    tables.job(tenant, job)
    found = sorted(schedules_of(tables, tenant, job), key=lambda one: (one.name, one.id))
    return cut_page(
        (one for one in found if (one.name, one.id) > after),
        limit,
        size=lambda one: bytes_of(one.rule, one.args),
        cursor=lambda one: schedule_cursor(one.name, one.id),
    )


def due_schedules(
    tables: Tables, now: Instant, limit: int, free: bool, after: Schedule | None
) -> Due:
    check_limit(limit)  # what is free needs no saying: here, nobody holds anything for long
    coming = upcoming(tables)
    if after is not None:
        coming = [one for one in coming if (one[0], one[1].id) > (after.next_at, after.id)]
    due = [schedule for at, schedule in coming if at <= now][:limit]
    later = [at for at, _ in coming[len(due) :]]
    return Due(now=now, schedules=tuple(due), next_at=min(later, default=None))


def fire(tables: Tables, now: Instant, firings: Sequence[Firing]) -> list[bool]:
    return [fire_one(tables, firing, now) for firing in firings]


def rearm_schedules(tables: Tables, now: Instant, limit: int) -> int:
    check_limit(limit)
    idle = [s for s in tables.schedules.values() if waits_in_vain(tables, s)][:limit]
    for schedule in idle:
        assert schedule.delay is not None, "only a fixed delay waits for an end"
        key = schedule.tenant, schedule.id
        tables.schedules[key] = replace(schedule, next_at=now + schedule.delay)
        tables.moved_at[key] = now
        tables.signals[Signal.SCHEDULES] = None
    return len(idle)


def schedules_ahead(
    tables: Tables, now: Instant, by: Seconds, limit: int, after: UUID | None
) -> Due:
    check_limit(limit)
    found = [
        schedule
        for key, schedule in tables.schedules.items()
        if not schedule.is_paused
        and tables.moved_at[key] > now + by
        and (after is None or schedule.id > after)
    ]
    found.sort(key=lambda schedule: schedule.id)
    return Due(now=now, schedules=tuple(found[:limit]))


def turn_back(tables: Tables, turns: Sequence[ScheduleRewind]) -> list[bool]:
    return [turn_back_one(tables, turn) for turn in turns]


def pause_job(tables: Tables, now: Instant, tenant: str, name: str, note: str) -> None:
    progress.pause(tables, tenant, name, now, note)


def resume_job(
    tables: Tables, now: Instant, tenant: str, name: str, firings: Sequence[Firing]
) -> None:
    row = tables.job(tenant, name)
    tables.jobs[tenant, name] = replace(row, paused_at=None, pause_note="")
    for schedule in schedules_of(tables, tenant, name):
        tables.schedules[tenant, schedule.id] = replace(schedule, is_paused=False, failures=0)
    for firing in firings:
        fire_one(tables, firing, now)
    tables.signals[Signal.SCHEDULES] = None


def list_ticks(
    tables: Tables, tenant: str, schedule: UUID, limit: int, before: Instant | None
) -> list[TickRecord]:
    check_limit(limit)
    found = [
        tick
        for (owner, id, at), tick in tables.ticks.items()
        if (owner, id) == (tenant, schedule) and (before is None or at < before)
    ]
    return sorted(found, key=lambda tick: tick.at, reverse=True)[:limit]


def list_occurrences(
    tables: Tables,
    now: Instant,
    tenant: str,
    schedule: UUID,
    since: Instant,
    until: Instant,
    limit: int,
) -> list[Occurrence]:
    check_limit(limit, most=OCCURRENCES_MAX)
    found = [
        (one.scheduled_for, one.created_at, one.id, shown_state(one, now))
        for one in (row.execution for row in tables.rows.values())
        if (one.tenant, one.schedule) == (tenant, schedule)
        and one.scheduled_for is not None
        and since <= one.scheduled_for <= until
    ]
    return [
        Occurrence(scheduled_for=at, id=id, state=state)
        for at, _, id, state in sorted(found)[:limit]
    ]


def put_schedule(tables: Tables, job: JobRow, new: NewSchedule, now: Instant) -> None:
    """Create or replace one schedule of a job, which is paused with it."""
    key = job.current.tenant, new.id
    old = tables.schedules.get(key)
    schedule = Schedule(
        id=new.id,
        tenant=job.current.tenant,
        job=job.current.name,
        rule=new.rule,
        next_at=new.next_at,
        name=new.name,
        args=new.args,
        misfire=new.misfire,
        delay=new.delay,
        is_reboot=new.is_reboot,
        is_declared=new.is_declared,
        is_paused=job.paused_at is not None,
        since=new.since,
        own_gate=new.own_gate,
    )
    if old is not None:
        schedule = replace(
            schedule,
            last_at=old.last_at,
            succeeded_for=old.succeeded_for,
            fired=old.fired,
            skipped=old.skipped,
            missed=old.missed,
            failures=old.failures,
        )
    tables.schedules[key] = schedule
    tables.moved_at[key] = now
    tables.pause_after[key] = new.pause_after
    tables.signals[Signal.SCHEDULES] = None


def declare_schedules(
    tables: Tables, job: JobRow, schedules: Iterable[NewSchedule], now: Instant
) -> None:
    """Let these take the place of the schedules that came with an earlier definition."""
    new = [replace(schedule, is_declared=True) for schedule in schedules]
    kept = {schedule.id for schedule in new}
    for old in schedules_of(tables, job.current.tenant, job.current.name):
        if old.is_declared and old.id not in kept:
            del tables.schedules[old.tenant, old.id]
    for schedule in new:
        moved_at = now
        old = tables.schedules.get((job.current.tenant, schedule.id))
        if old is not None and old.rule == schedule.rule:
            # Its cursor may be at a tick that has not fired yet.
            schedule = replace(schedule, next_at=old.next_at, delay=old.delay, since=old.since)
            moved_at = tables.moved_at[old.tenant, old.id]
        put_schedule(tables, job, schedule, moved_at)


def remove_schedules(tables: Tables, tenant: str, job: str) -> None:
    for schedule in schedules_of(tables, tenant, job):
        del tables.schedules[tenant, schedule.id]


def schedules_of(tables: Tables, tenant: str, job: str) -> list[Schedule]:
    return [s for s in tables.schedules.values() if (s.tenant, s.job) == (tenant, job)]


def upcoming(tables: Tables) -> list[tuple[Instant, Schedule]]:
    """Schedules that will fire, with their time, earliest first."""
    found = [
        (schedule.next_at, schedule)
        for schedule in tables.schedules.values()
        if schedule.next_at is not None and not schedule.is_paused
    ]
    return sorted(found, key=lambda entry: (entry[0], entry[1].id))


def turn_back_one(tables: Tables, turn: ScheduleRewind) -> bool:
    """Set one cursor back, if it still is where the caller saw it."""
    key = turn.tenant, turn.schedule
    schedule = tables.schedules.get(key)
    if schedule is None or schedule.is_paused or schedule.next_at != turn.expect:
        return False
    missed = schedule.missed
    for (*owner, at), tick in list(tables.ticks.items()):
        if tuple(owner) != key or tick.decision is not Decision.MISSED:
            continue
        if at > turn.now:
            del tables.ticks[*key, at]
            missed -= tick.count
        elif turn.until is not None and tick.until is not None and tick.until > turn.now:
            tables.ticks[*key, at] = replace(tick, until=turn.until, count=turn.count)
            missed -= tick.count - turn.count
    tables.schedules[key] = replace(schedule, next_at=turn.next_at, missed=missed)
    tables.moved_at[key] = turn.now
    tables.signals[Signal.SCHEDULES] = None
    return True


def waits_in_vain(tables: Tables, schedule: Schedule) -> bool:
    """Whether a fixed delay waits for an end that will not come."""
    if schedule.delay is None or schedule.next_at is not None:
        return False
    return not any(
        (one.tenant, one.schedule) == (schedule.tenant, schedule.id)
        and one.state not in TERMINAL
        and not is_backfill(one.gate)
        for one in (row.execution for row in tables.live.values())
    )


# Jobs that depend on jobs: what waits, and how the others stand.


def dependents(tables: Tables, now: Instant, limit: int, after: UUID | None) -> Dependents:
    check_limit(limit)
    schedules = [
        Dependent.of(one, job.dependencies, job.on_dependency_failure)
        for one in tables.schedules.values()
        if one.since is not None and not one.is_paused
        for job in [tables.jobs[one.tenant, one.job].current.definition]
        if after is None or one.id > after
    ]
    waiting = [
        describe_waiting(tables, row.execution)
        for row in tables.live.values()
        if is_waiting(row) and row.execution.run_at <= now
        if after is None or row.execution.id > after
    ]
    return Dependents(
        now=now,
        schedules=tuple(sorted(schedules, key=lambda one: one.schedule.id)[:limit]),
        waiting=tuple(sorted(waiting, key=lambda one: one.id)[:limit]),
    )


def ended_since(tables: Tables, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Ended]:
    return [ended_of(tables, tenant, job, since) for job, since in jobs]


def upstream(tables: Tables, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
    return [upstream_of(tables, tenant, job, at) for job, at in jobs]


def release_dependents(tables: Tables, tenant: str, ids: Sequence[UUID]) -> int:
    found = still_waiting(tables, tenant, ids)
    for row in found:
        tables.put(replace(row, execution=released(row)))
    return len(found)


def rule_out_dependents(tables: Tables, now: Instant, tenant: str, ids: Sequence[UUID]) -> int:
    found = still_waiting(tables, tenant, ids)
    for row in found:
        progress.end_unstarted(tables, row, Occasion.RULED_OUT, now, reason=UPSTREAM_FAILED)
    return len(found)


def is_waiting(row: Row) -> bool:
    execution = row.execution
    return execution.state is State.WAITING and execution.reason == DEPENDENCIES


def still_waiting(tables: Tables, tenant: str, ids: Iterable[UUID]) -> list[Row]:
    found = [tables.rows.get((tenant, id)) for id in ids]
    return [row for row in found if row is not None and is_waiting(row)]


def released(row: Row) -> Execution:
    """An execution that its dependencies let go; it may have to wait for a slot."""
    execution = row.execution
    if execution.gate is not None and not row.has_slot:
        return replace(execution, reason=OVERLAP if is_job_gate(execution.gate) else "gate")
    return replace(execution, state=target(execution.state, Occasion.RELEASED), reason=None)


def describe_waiting(tables: Tables, execution: Execution) -> Waiting:
    definition = tables.jobs[execution.tenant, execution.job].current.definition
    return Waiting(
        tenant=execution.tenant,
        id=execution.id,
        job=execution.job,
        at=due_at(execution),
        dependencies=definition.dependencies,
        on_failure=definition.on_dependency_failure,
    )


def due_at(execution: Execution) -> Instant:
    """When it was to begin. Once an attempt has ended, only its creation tells."""
    if execution.scheduled_for is not None:
        return execution.scheduled_for
    return execution.run_at if execution.attempt == 1 else execution.created_at


def executions_of(tables: Tables, tenant: str, job: str) -> list[Execution]:
    """A job's own executions, as far as they count."""
    row = tables.jobs.get((tenant, job))
    if row is None or row.is_deleted:
        return []
    return [
        one
        for one in (row.execution for row in tables.rows.values())
        if (one.tenant, one.job) == (tenant, job) and one.node is None and not is_passed_over(one)
    ]


def is_passed_over(execution: Execution) -> bool:
    return execution.state is State.SKIPPED and execution.reason == OVERLAP


def failed_after(one: Execution, at: Instant) -> bool:
    """Whether it has failed for good, and was due later than this."""
    has_failed = one.state in TERMINAL and one.state is not State.SUCCEEDED
    return has_failed and due_at(one) > at and one.finished_at is not None and one.finished_at > at


def ended_of(tables: Tables, tenant: str, job: str, since: Instant) -> Ended:
    ended = sorted(
        (one.finished_at, one.id, one.state)
        for one in executions_of(tables, tenant, job)
        if one.finished_at is not None and one.finished_at > since and one.state in TERMINAL
    )
    succeeded = [at for at, _, state in ended if state is State.SUCCEEDED]
    return Ended(
        succeeded_at=succeeded[-1] if succeeded else None,
        ended_at=ended[-1][0] if ended else None,
        state=ended[-1][2] if ended else None,
    )


def upstream_of(tables: Tables, tenant: str, job: str, at: Instant) -> Upstream:
    found = executions_of(tables, tenant, job)
    by_then = [one for one in found if due_at(one) <= at]
    latest = max(by_then, key=lambda one: (due_at(one), one.id), default=None)
    state = None if latest is None else latest.state
    is_asked = state is None or (state in TERMINAL and state is not State.SUCCEEDED)
    return Upstream(
        state=state,
        has_newer_success=is_asked
        and any(one.state is State.SUCCEEDED and due_at(one) > at for one in found),
        has_newer_failure=state is None and any(failed_after(one, at) for one in found),
        is_behind=any(
            (one.tenant, one.job) == (tenant, job)
            and one.next_at is not None
            and one.next_at <= at
            and not one.is_paused
            for one in tables.schedules.values()
        ),
    )

"""Firing: a cursor goes on, its ticks are recorded, their executions created, as one."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import TERMINAL, Enqueued, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event
from daybell.core.overlap import OVERLAP
from daybell.core.schedule import Decision, Firing, Tick, TickRecord
from daybell.store.checks import check_batch
from daybell.store.memory import endings
from daybell.store.memory.enqueue import enqueue, waits
from daybell.store.memory.quotas import charge
from daybell.store.memory.tables import Tables
from daybell.store.wakeups import Signal


def fire(tables: Tables, firing: Firing, now: Instant) -> bool:
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
                answers += enqueue(tables, firing.tenant, [tick.execution], now)
                ruled_out += rule_out(tables, firing.tenant, tick, now)
            records.append(describe(firing, tick, None if tick.execution is None else answers[-1]))
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
    tables.put(waits(row, DEPENDENCIES))
    endings.end(tables, row, Event.RULED_OUT, now, reason=tick.reason)
    return True


def describe(firing: Firing, tick: Tick, answer: Enqueued | None) -> TickRecord:
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

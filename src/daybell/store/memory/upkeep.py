"""Upkeep: leader election, retention and health."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from daybell.core.checks import AUDIT_KEPT_SECONDS, KEY_KEPT_SECONDS, MINUTE_KEPT_SECONDS
from daybell.core.execution import TERMINAL
from daybell.core.limits import EVENT_SECONDS_KEPT, REPEAT_SECONDS_KEPT
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    JOB_AGAIN_SECONDS,
    JOB_UNUSED_SECONDS,
    Check,
    Health,
    Removed,
    Retention,
)
from daybell.core.worker import (
    Leadership,
    Presence,
    WorkerState,
    propose_leadership,
    release_leadership,
    request_leadership,
)
from daybell.store.memory.admin import (
    remove_entries,
    remove_keys,
    remove_requests,
)
from daybell.store.memory.catalog import delete
from daybell.store.memory.progress import remove_gates
from daybell.store.memory.queue import (
    held,
    is_dead_letter,
)
from daybell.store.memory.runs import remove_events, remove_steps
from daybell.store.memory.schedules import schedules_of
from daybell.store.memory.tables import JobRow, Row, Tables
from daybell.store.wakeups import Signal


def lead(
    tables: Tables, now: Instant, name: str, holder: UUID, lease: Seconds, since: Instant | None
) -> Leadership | None:
    asked = request_leadership(
        tables.seats.get(name),
        propose_leadership(name, holder, lease, now=now),
        since=since,
        present=present(tables, name),
        now=now,
    )
    tables.seats[name] = asked.seat
    if asked.presence is not None:
        forget_absent(tables, name, now)
        tables.presences[name, holder] = asked.presence
    if asked.is_reboot:
        reboot(tables, now)
    return asked.seat.leadership if asked.leads else None


def resign(tables: Tables, now: Instant, name: str, holder: UUID) -> None:
    seat = tables.seats.get(name)
    presence = tables.presences.pop((name, holder), None)
    if seat is not None:
        tables.seats[name] = release_leadership(seat, holder, presence, now=now)


def list_leaders(tables: Tables, now: Instant) -> list[Leadership]:
    leaderships = [seat.leadership for seat in tables.seats.values()]
    return sorted((one for one in leaderships if one.until > now), key=lambda one: one.name)


def retain(tables: Tables, now: Instant, policy: Retention) -> Removed:
    return Removed(
        executions=remove_executions(tables, now - policy.finished),
        attempts=remove_attempts(tables, now - policy.finished),
        ticks=remove_ticks(tables, now - policy.ticks),
        workers=remove_workers(tables, now - policy.workers),
        log_parts=remove_log_parts(tables, now - policy.finished),
        gates=remove_gates(tables),
        jobs=remove_jobs(tables, now, now - policy.finished),
        others=remove_requests(tables, now - REPEAT_SECONDS_KEPT)
        + remove_minutes(tables, now - MINUTE_KEPT_SECONDS)
        + remove_entries(tables, now - AUDIT_KEPT_SECONDS)
        + remove_keys(tables, now - KEY_KEPT_SECONDS)
        + remove_events(tables, now - EVENT_SECONDS_KEPT)
        + remove_steps(tables),
    )


def health(tables: Tables, now: Instant) -> Health:
    durability = Check(
        name="durability",
        is_ok=False,
        found="memory: nothing survives the process",
        advice="use SQLite or PostgreSQL for what must not be lost",
    )
    schema = Check(name="schema", is_ok=True, found="memory has none")
    return Health(product="memory", now=now, schema=0, checks=(schema, durability))


def forget_absent(tables: Tables, name: str, now: Instant) -> None:
    """Who has not asked in time is gone, even if the clock should be set back."""
    for holder, one in present(tables, name).items():
        if one.until <= now:
            del tables.presences[name, holder]


def present(tables: Tables, name: str) -> dict[UUID, Presence]:
    """Who has asked for a leadership and said since when he has been up."""
    return {holder: one for (asked, holder), one in tables.presences.items() if asked == name}


def reboot(tables: Tables, now: Instant) -> None:
    """Nobody was there before: what waits for that is due."""
    for key, schedule in list(tables.schedules.items()):
        if schedule.is_reboot:
            tables.schedules[key] = replace(schedule, next_at=now)
            tables.signals[Signal.SCHEDULES] = None


def remove_executions(tables: Tables, before: Instant) -> int:
    old = [row for row in tables.rows.values() if is_over(row, before)]
    for row in old:
        del tables.rows[row.key]
        tables.runs.pop(row.key, None)
    return len(old)


def is_over(row: Row, before: Instant) -> bool:
    execution = row.execution
    if execution.state not in TERMINAL or is_dead_letter(row):
        return False
    return execution.finished_at is not None and execution.finished_at < before


def remove_jobs(tables: Tables, now: Instant, before: Instant) -> int:
    """Remove jobs that are over and of which nothing is left, and delete those that ran once."""
    removed = 0
    for (tenant, name), job in list(tables.jobs.items()):
        key = tenant, name
        if job.over_at is None or job.over_at > before:
            continue
        is_used = is_job_used(tables, tenant, name)
        if not is_used and not job.is_deleted:
            others = (row for (owner, _), row in tables.jobs.items() if owner == tenant)
            is_used = any(names(row, name) for row in others if row is not job)
        if is_used:
            again = before + JOB_AGAIN_SECONDS
            tables.jobs[key] = replace(job, over_at=again, unused_at=None)
        elif job.unused_at is None:
            if not job.is_deleted:
                delete(tables, tenant, name, now)
            over_at = now + JOB_UNUSED_SECONDS
            tables.jobs[key] = replace(tables.jobs[key], over_at=over_at, unused_at=now)
        else:
            del tables.jobs[key]
            removed += 1
    return removed


def is_job_used(tables: Tables, tenant: str, name: str) -> bool:
    """True if a job has an execution, but for nodes that have ended, or a schedule to come."""
    executions = (
        row.execution.node is None or row.execution.state not in TERMINAL or is_dead_letter(row)
        for row in tables.rows.values()
        if (row.execution.tenant, row.execution.job) == (tenant, name)
    )
    return any(executions) or any(one.is_to_fire for one in schedules_of(tables, tenant, name))


def names(row: JobRow, name: str) -> bool:
    """True if a job's definition may name another job, as a workflow or a dependent does."""
    definition = row.versions[-1].definition
    can_name = definition.kind == "workflow" or definition.upstream
    return not row.is_deleted and bool(can_name) and f'"{name}' in definition.to_json()


def remove_attempts(tables: Tables, before: Instant) -> int:
    removed = 0
    for row in list(tables.rows.values()):
        kept = tuple(attempt for attempt in row.attempts if attempt.ended_at >= before)
        removed += len(row.attempts) - len(kept)
        tables.put(replace(row, attempts=kept))
    return removed


def remove_log_parts(tables: Tables, before: Instant) -> int:
    old = [key for key, (written_at, _) in tables.logs.items() if written_at < before]
    for key in old:
        del tables.logs[key]
    return len(old)


def remove_minutes(tables: Tables, before: Instant) -> int:
    old = [key for key in tables.minutes if key[1] * 60 < before]
    for key in old:
        del tables.minutes[key]
    return len(old)


def remove_ticks(tables: Tables, before: Instant) -> int:
    old = [key for key in tables.ticks if key[2] < before]
    for key in old:
        del tables.ticks[key]
    return len(old)


def remove_workers(tables: Tables, before: Instant) -> int:
    old = [
        key
        for key, worker in tables.workers.items()
        if worker.state is WorkerState.DEAD
        and worker.renewed_at < before
        and not held(tables, *key)
    ]
    for key in old:
        del tables.workers[key]
    tables.excused.difference_update(old)
    if old:
        gone = set(old)
        for lease in [one for one, key in tables.leases.items() if key in gone]:
            del tables.leases[lease]
    return len(old)

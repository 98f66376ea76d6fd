"""What an end sets off, and the ends of what no worker has begun."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.core.execution import Execution, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event, target
from daybell.core.overlap import is_backfill
from daybell.store.driving import node_end
from daybell.store.memory import gates
from daybell.store.memory.tables import Row, Tables, shown_state
from daybell.store.wakeups import Signal


def finish(tables: Tables, row: Row, now: Instant) -> None:
    """Keep an ended execution, tell its schedule and its run, and hand its slot on."""
    tables.put(replace(row, has_slot=False))
    tell(tables, row.execution, now)
    if row.execution.node is not None:
        tell_run(tables, row)
    if row.has_slot:
        gates.admit(tables, row.execution.tenant, row.execution.gate, now)


def tell_run(tables: Tables, row: Row) -> None:
    """Let a run hear of the end of a node, before the transaction is over."""
    execution = row.execution
    assert execution.parent is not None, "a node has a run"
    tables.ended.append(((execution.tenant, execution.parent), node_end(execution, row.attempts)))
    if execution.state is State.DEAD:  # if need be, the run is the dead letter
        discarded = replace(execution, is_discarded=True)
        tables.put(replace(row, execution=discarded, has_slot=False))


def tell(tables: Tables, ended: Execution, now: Instant) -> None:
    """Let the schedule that fired an execution know how it ended."""
    schedule = tables.schedule_of(ended)
    if schedule is None or is_backfill(ended.gate):
        return
    key = schedule.tenant, schedule.id
    if ended.state is State.SUCCEEDED:
        known = [at for at in (schedule.succeeded_for, ended.scheduled_for) if at is not None]
        schedule = replace(schedule, failures=0, succeeded_for=max(known, default=None))
    elif ended.state is State.DEAD:
        schedule = replace(schedule, failures=schedule.failures + 1)
    # What a newer one has replaced is not what a fixed delay waits for.
    at, last_at = ended.scheduled_for, schedule.last_at
    is_newest = at is None or last_at is None or at >= last_at
    if schedule.delay is not None and schedule.next_at is None and is_newest:
        schedule = replace(schedule, next_at=now + schedule.delay)
        tables.moved_at[key] = now
        tables.signals[Signal.SCHEDULES] = None
    tables.schedules[key] = schedule
    most = tables.pause_after[key]
    if ended.state is State.DEAD and most is not None and schedule.failures >= most:
        note = f"paused after {schedule.failures} failures in a row"
        pause(tables, schedule.tenant, schedule.job, now, note, again=False)


def pause(
    tables: Tables, tenant: str, name: str, now: Instant, note: str, *, again: bool = True
) -> None:
    """Stop a job's schedules. One that is paused gets the new note, if it is `again`."""
    row = tables.job(tenant, name)
    if row.paused_at is not None and not again:
        return
    paused_at = now if row.paused_at is None else row.paused_at
    tables.jobs[tenant, name] = replace(row, paused_at=paused_at, pause_note=note)
    for key, schedule in list(tables.schedules.items()):
        if (schedule.tenant, schedule.job) == (tenant, name):
            tables.schedules[key] = replace(schedule, is_paused=True)


def end(tables: Tables, row: Row, event: Event, now: Instant, *, reason: str | None = None) -> None:
    """End what has not started."""
    row = tables.rows[row.key]  # as it is by now: the end before this one may have given it a slot
    state = target(shown_state(row.execution, now), event)
    ended = replace(row.execution, state=state, finished_at=now, reason=reason)
    finish(tables, replace(row, execution=ended), now)

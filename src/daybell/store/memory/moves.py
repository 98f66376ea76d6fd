"""How an execution changes: the few moves that all operations of the memory store are made of.

Each asks the lifecycle's table, so that an illegal one raises instead of being written.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import (
    TERMINAL,
    Attempt,
    Enqueued,
    Execution,
    NewExecution,
    Outcome,
    State,
)
from daybell.core.instant import Instant, Seconds
from daybell.core.lifecycle import Event, Transition, target
from daybell.core.log import LAST
from daybell.errors import JobNotFound, UsageError, shown
from daybell.store.memory.tables import Row, Tables, shown_state

# What happened to a running execution, by where it went.
EVENTS: Final[dict[State, Event]] = {
    State.SUCCEEDED: Event.SUCCEEDED,
    State.DEAD: Event.EXHAUSTED,
    State.CANCELLED: Event.CANCELLED,
    State.SKIPPED: Event.EXPIRED,
    State.RETRYING: Event.RETRYING,
    State.QUEUED: Event.HANDED_BACK,
    State.SCHEDULED: Event.SNOOZED,
    State.WAITING: Event.WAITED,
}


def enqueue(tables: Tables, tenant: str, new: NewExecution, now: Instant) -> Enqueued:
    """Create one execution, unless its id or its unique key is there already."""
    job = tables.jobs.get((tenant, new.job))
    if job is None or job.is_deleted:
        raise JobNotFound(f"no job named {shown(new.job)}")
    if new.gate is not None and (tenant, new.gate) not in tables.gates:
        raise UsageError(f"no gate named {shown(new.gate)}; create it with set_gates", field="gate")
    if (tenant, new.id) in tables.rows:
        return Enqueued(new.id)
    holder = key_holder(tables, tenant, new.job, new.unique_key)
    if holder is not None:
        return Enqueued(holder, created=False)
    definition = job.current.definition
    run_at = due(now, new.delay or 0.0, new.at)
    state = State.SCHEDULED if run_at > now else State.QUEUED
    expires_in = definition.expires if new.expires_in is None else new.expires_in
    execution = Execution(
        id=new.id,
        tenant=tenant,
        job=new.job,
        version=job.current.version,
        state=state if new.gate is None else State.WAITING,
        reason=None if new.gate is None else "gate",
        queue=new.queue or definition.queue,
        priority=definition.priority if new.priority is None else new.priority,
        args=new.args,
        attempt=1,
        failures=0,
        crashes=0,
        created_at=now,
        run_at=run_at,
        expires_at=None if expires_in is None else run_at + expires_in,
        scheduled_for=new.scheduled_for,
        unique_key=new.unique_key,
        retries=new.retries,
        timeout=new.timeout,
        gate=new.gate,
        schedule=new.schedule,
        parent=new.parent,
    )
    tables.put(Row(execution=execution))
    return Enqueued(new.id)


def key_holder(tables: Tables, tenant: str, job: str, key: str | None) -> UUID | None:
    """The unfinished execution of the job that has this unique key."""
    if key is None:
        return None
    for row in tables.rows.values():
        held = row.execution
        name = held.tenant, held.job, held.unique_key
        if name == (tenant, job, key) and held.state not in TERMINAL:
            return held.id
    return None


def due(now: Instant, delay: Seconds, at: Instant | None) -> Instant:
    """When it may be claimed: never earlier than now."""
    return max(now, now + delay if at is None else at)


def start(row: Row, worker: UUID, lease: UUID, now: Instant) -> Row:
    """Put a due execution into a worker's hands."""
    running = target(shown_state(row.execution, now), Event.CLAIMED)
    return replace(row, execution=replace(row.execution, state=running, worker=worker), lease=lease)


def leave(tables: Tables, row: Row, move: Transition, now: Instant) -> None:
    """Take a running execution out of its worker's hands, to where the move says."""
    if row.execution.cancel_requested_at is not None:
        move = replace(
            move, target=State.CANCELLED, outcome=Outcome.CANCELLED, result=None, reason=None
        )
    state = target(row.execution.state, EVENTS[move.target])
    execution = replace(
        row.execution,
        state=state,
        failures=move.failures,
        crashes=move.crashes,
        error=move.error if move.error is not None else row.execution.error,
        checkpoint=move.checkpoint if move.checkpoint is not None else row.execution.checkpoint,
        started_at=row.execution.started_at if move.ran is None else now - move.ran,
        finished_at=now,
        outcome=move.outcome,
        result=move.result if state is State.SUCCEEDED else None,
        reason=move.reason,
    )
    if state is State.SUCCEEDED:
        execution = replace(execution, error=None)
    ended = replace(row, execution=execution, lease=None)
    if move.log is not None:
        tables.logs[(*row.key, move.attempt, LAST)] = now, move.log
    if state in TERMINAL:
        finish(tables, ended, now)
    else:
        # The log has this attempt's own error; the execution may still show an earlier one.
        log = replace(final_attempt(execution), error=move.error)
        logged = replace(ended, attempts=(*row.attempts, log))
        tables.put(back(logged, state, due(now, move.delay, move.at), now))


def finish(tables: Tables, row: Row, now: Instant) -> None:
    """Keep an ended execution, and hand its slot on."""
    tables.put(replace(row, has_slot=False))
    if row.has_slot:
        admit(tables, row.execution.tenant, row.execution.gate, now)


def back(row: Row, state: State, run_at: Instant, now: Instant) -> Row:
    """An execution whose attempt has ended, as it is when it can be claimed again."""
    if state is State.QUEUED and run_at > now:
        state = State.SCHEDULED
    execution = replace(
        row.execution,
        state=state,
        attempt=row.execution.attempt + 1,
        run_at=run_at,
        worker=None,
        started_at=None,
        finished_at=None,
        outcome=None,
        result=None,
        reason=row.execution.reason if state is State.WAITING else None,
        progress=None,
        note=None,
    )
    return replace(row, execution=execution)


def hand_back(tables: Tables, row: Row, now: Instant) -> None:
    """Give a running execution back, uncharged."""
    execution = row.execution
    assert row.lease is not None, "only a running execution can be handed back"
    move = Transition(
        id=execution.id,
        attempt=execution.attempt,
        lease=row.lease,
        target=State.QUEUED,
        outcome=Outcome.RELEASED,
        failures=execution.failures,
        crashes=execution.crashes,
    )
    leave(tables, row, move, now)


def final_attempt(execution: Execution) -> Attempt:
    """The last attempt of an execution, as the finished execution itself tells it."""
    assert execution.outcome is not None and execution.finished_at is not None, "it has not ended"
    return Attempt(
        attempt=execution.attempt,
        outcome=execution.outcome,
        worker=execution.worker,
        started_at=execution.started_at,
        ended_at=execution.finished_at,
        error=execution.error,
    )


def admit(
    tables: Tables, tenant: str, gate: str | None, now: Instant, limit: int | None = None
) -> int:
    """Let in what waits at a gate, is due and finds room; answer how many."""
    if gate is None:
        return 0
    at_gate = [
        r for r in tables.rows.values() if (r.execution.tenant, r.execution.gate) == (tenant, gate)
    ]
    room = tables.gates[tenant, gate] - sum(row.has_slot for row in at_gate)
    waiting = [row for row in at_gate if is_at_gate(row) and row.execution.run_at <= now]
    waiting.sort(key=lambda row: (row.execution.priority, row.execution.run_at, row.execution.id))
    admitted = waiting[: max(0, room if limit is None else min(room, limit))]
    for row in admitted:
        state = target(row.execution.state, Event.RELEASED)
        tables.put(
            replace(row, execution=replace(row.execution, state=state, reason=None), has_slot=True)
        )
    return len(admitted)


def is_at_gate(row: Row) -> bool:
    """Whether it waits for a slot, and not for something else with the slot in its hands."""
    return (
        row.execution.state is State.WAITING and row.execution.gate is not None and not row.has_slot
    )

"""How an execution changes: the few moves that all operations of the memory store are made of.

Each asks the lifecycle's table, so that an illegal one raises instead of being written.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import AWAY, TERMINAL, Attempt, Execution, Outcome, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event, Transition, target
from daybell.core.log import LAST
from daybell.store.memory import endings, waits
from daybell.store.memory.enqueue import due
from daybell.store.memory.tables import Row, Tables, shown_state
from daybell.store.wakeups import Signal

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
    elif move.target is State.WAITING and not waits.has_reason(tables, row, move.reason):
        move = replace(move, target=State.QUEUED, reason=None)
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
        endings.finish(tables, ended, now)
    else:
        # The log has this attempt's own error; the execution may still show an earlier one.
        log = replace(final_attempt(execution), error=move.error)
        logged = replace(ended, attempts=(*row.attempts, log))
        tables.put(back(logged, state, due(now, move.delay, move.at), now))
        if state is not State.WAITING:
            tables.signals[Signal.CLAIM] = None


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
        reason=row.execution.reason if state in AWAY else None,
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

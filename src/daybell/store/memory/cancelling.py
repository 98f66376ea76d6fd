"""Cancelling, by whomever."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.core.execution import TERMINAL, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event
from daybell.store.memory import endings, progress
from daybell.store.memory.tables import Row, Tables
from daybell.store.outcomes import Cancellation
from daybell.store.wakeups import Signal


def cancel(tables: Tables, row: Row | None, now: Instant) -> Cancellation:
    """End what has not started; ask what runs to end."""
    if row is None:
        return Cancellation.UNKNOWN
    execution = row.execution
    if execution.state in TERMINAL:
        return Cancellation.FINISHED
    if execution.state is not State.RUNNING and row.key not in tables.runs:
        endings.end(tables, row, Event.CANCELLED, now)
        return Cancellation.CANCELLED
    ask(tables, row, now)
    if execution.worker is None:
        return stop_run(tables, row, now)
    tables.signals[Signal.ASK] = None
    return Cancellation.REQUESTED


def ask(tables: Tables, row: Row, now: Instant) -> None:
    """Note that an execution is to end, unless that was asked for before."""
    asked_at = row.execution.cancel_requested_at or now
    tables.put(replace(row, execution=replace(row.execution, cancel_requested_at=asked_at)))


def stop_run(tables: Tables, row: Row, now: Instant) -> Cancellation:
    """Cancel the nodes of a run, and of the runs inside it. It may be over with that."""
    runs = [row.key]
    for key in runs:  # it grows: those inside come after those around them
        for child in progress.stop(tables, key):
            if child.execution.state is State.RUNNING and child.execution.worker is None:
                ask(tables, child, now)
                runs.append(child.key)
            else:
                cancel(tables, child, now)
    for key in reversed(runs):  # the end of one may be that of the run around it
        progress.settle(tables, now)
        progress.go_on(tables, key, (), now)
    progress.settle(tables, now)
    is_over = tables.rows[row.key].execution.state in TERMINAL
    return Cancellation.CANCELLED if is_over else Cancellation.REQUESTED

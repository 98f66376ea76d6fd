"""A small model of the queue, written apart from the stores: enqueue, claim, apply, leases, gates.

It has no jobs with overlap rules, schedules, workflows, steps, quotas, or tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from daybell.core.execution import (
    TERMINAL,
    Cancellation,
    Enqueued,
    NewExecution,
    Outcome,
    Priority,
    State,
)
from daybell.core.lifecycle import Ruling, Transition
from daybell.errors import LeaseLost, UsageError

CLAIMABLE = (State.QUEUED, State.SCHEDULED, State.RETRYING)


@dataclass
class Row:
    """An execution."""

    id: UUID
    job: str
    queue: str
    priority: Priority
    run_at: float
    key: str | None
    gate: str | None
    state: State
    attempt: int = 1
    failures: int = 0
    crashes: int = 0
    has_slot: bool = False
    worker: UUID | None = None
    lease: UUID | None = None
    outcome: Outcome | None = None
    result: str | None = None
    is_cancel_requested: bool = False
    ended: list[tuple[int, Outcome, UUID | None]] = field(default_factory=list)


@dataclass
class Model:
    """The queue."""

    now: Callable[[], float]
    rows: dict[UUID, Row] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    lease_ends: dict[UUID, float] = field(default_factory=dict)  # of live workers
    draining: set[UUID] = field(default_factory=set)
    dead: set[UUID] = field(default_factory=set)
    leases: set[UUID] = field(default_factory=set)  # of claims that took something

    def enqueue(self, executions: Sequence[NewExecution]) -> list[Enqueued]:
        if unknown := {new.gate for new in executions} - {None, *self.gates}:
            raise UsageError(f"no gates {unknown}")
        answers = [self._create(new) for new in executions]
        self.admit({new.gate for new in executions if new.gate})
        return answers

    def _create(self, new: NewExecution) -> Enqueued:
        if new.id in self.rows:
            return Enqueued(new.id)
        for row in self.rows.values():
            is_holder = (row.job, row.key) == (new.job, new.unique_key) and new.unique_key
            if is_holder and row.state not in TERMINAL:
                return Enqueued(row.id, created=False)
        run_at = self.now() + (new.delay or 0.0)
        state = State.SCHEDULED if run_at > self.now() else State.QUEUED
        self.rows[new.id] = Row(
            id=new.id,
            job=new.job,
            queue=new.queue or "default",
            priority=Priority.NORMAL if new.priority is None else new.priority,
            run_at=run_at,
            key=new.unique_key,
            gate=new.gate,
            state=State.WAITING if new.gate else state,
        )
        return Enqueued(new.id)

    def admit(self, gates: Iterable[str] | None = None) -> int:
        """Let in what waits at gates, is due and finds room."""
        count = 0
        for gate in list(self.gates if gates is None else gates):
            at_gate = [row for row in self.rows.values() if row.gate == gate]
            room = self.gates[gate] - sum(row.has_slot for row in at_gate)
            waiting = [
                row
                for row in at_gate
                if row.state is State.WAITING and not row.has_slot and row.run_at <= self.now()
            ]
            waiting.sort(key=lambda row: (row.priority, row.run_at, row.id))
            for row in waiting[: max(0, room)]:
                row.state, row.has_slot = State.QUEUED, True
                count += 1
        return count

    def set_gate(self, gate: str, capacity: int) -> None:
        self.gates[gate] = capacity
        self.admit([gate])

    def register(self, worker: UUID, lease: float) -> None:
        self.lease_ends[worker] = self.now() + lease

    def claim(self, worker: UUID, lease: UUID, queues: Sequence[str], limit: int) -> list[Row]:
        self._check_alive(worker)
        held = [row for row in self._held(worker) if row.lease == lease]
        if held or lease in self.leases or worker in self.draining:
            return held
        due = [
            row
            for row in self.rows.values()
            if row.state in CLAIMABLE and row.queue in queues and row.run_at <= self.now()
        ]
        due.sort(key=lambda row: (row.priority, queues.index(row.queue), row.run_at, row.id))
        for row in due[:limit]:
            row.state, row.worker, row.lease = State.RUNNING, worker, lease
            self.leases.add(lease)
        return due[:limit]

    def apply(self, worker: UUID, moves: Sequence[Transition]) -> list[tuple[UUID, int, Ruling]]:
        rulings = [(move.id, move.attempt, self._make(worker, move)) for move in moves]
        return [(id, attempt, ruling) for id, attempt, ruling in rulings if ruling is not None]

    def _make(self, worker: UUID, move: Transition) -> Ruling | None:
        row = self.rows.get(move.id)
        if row is None:
            return Ruling.STALE
        fence = row.state, row.attempt, row.lease, row.worker
        if fence != (State.RUNNING, move.attempt, move.lease, worker):
            for attempt, outcome, holder in row.ended:
                if (attempt, holder) == (move.attempt, worker):
                    if outcome is move.outcome:
                        return None
                    if outcome is Outcome.CANCELLED:
                        return Ruling.CANCELLED
            return Ruling.STALE
        row.failures, row.crashes = move.failures, move.crashes
        if row.is_cancel_requested:
            self._end(row, State.CANCELLED, Outcome.CANCELLED)
            return Ruling.CANCELLED
        if move.target in TERMINAL:
            row.result = move.result if move.target is State.SUCCEEDED else None
            self._end(row, move.target, move.outcome)
        else:
            self._send_back(row, move.target, move.outcome, self.now() + (move.delay or 0.0))
        return None

    def _end(self, row: Row, state: State, outcome: Outcome | None) -> None:
        if outcome is not None:
            row.ended.append((row.attempt, outcome, row.worker))
        row.state, row.outcome, row.lease = state, outcome, None
        if row.gate is not None and row.has_slot:
            row.has_slot = False
            self.admit([row.gate])

    def _send_back(self, row: Row, state: State, outcome: Outcome, run_at: float) -> None:
        row.ended.append((row.attempt, outcome, row.worker))
        if state is State.QUEUED and run_at > self.now():
            state = State.SCHEDULED
        row.state, row.run_at, row.worker, row.lease = state, run_at, None, None
        row.attempt += 1

    def cancel(self, ids: Sequence[UUID]) -> list[Cancellation]:
        return [self._cancel(self.rows.get(id)) for id in ids]

    def _cancel(self, row: Row | None) -> Cancellation:
        if row is None:
            return Cancellation.UNKNOWN
        if row.state in TERMINAL:
            return Cancellation.FINISHED
        if row.state is State.RUNNING:
            row.is_cancel_requested = True
            return Cancellation.REQUESTED
        self._end(row, State.CANCELLED, None)
        return Cancellation.CANCELLED

    def renew(self, worker: UUID, lease: float, leases: Sequence[UUID]) -> list[UUID]:
        """Answer which of its executions the worker is asked to cancel."""
        self._check_alive(worker)
        self.release(worker, {row.lease for row in self._held(worker)} - {*leases})
        self.lease_ends[worker] = self.now() + lease
        return sorted(row.id for row in self._held(worker) if row.is_cancel_requested)

    def release(self, worker: UUID, leases: Iterable[UUID | None]) -> int:
        rows = [row for row in self._held(worker) if row.lease in {*leases}]
        for row in rows:
            if row.is_cancel_requested:
                self._end(row, State.CANCELLED, Outcome.CANCELLED)
            else:
                self._send_back(row, State.QUEUED, Outcome.RELEASED, self.now())
        return len(rows)

    def lost(self) -> list[tuple[UUID, int]]:
        """Mark workers dead whose lease has ended; answer what dead workers hold."""
        self.dead |= {worker for worker, end in self.lease_ends.items() if end < self.now()}
        return sorted((row.id, row.attempt) for worker in self.dead for row in self._held(worker))

    def _held(self, worker: UUID) -> list[Row]:
        running = (row for row in self.rows.values() if row.state is State.RUNNING)
        return [row for row in running if row.worker == worker]

    def _check_alive(self, worker: UUID) -> None:
        if worker not in self.lease_ends or worker in self.dead:
            raise LeaseLost("unknown or dead")

    def shown_state(self, row: Row) -> State:
        is_due = row.state in (State.SCHEDULED, State.RETRYING) and row.run_at <= self.now()
        return State.QUEUED if is_due else row.state

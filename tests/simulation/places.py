"""The store of the simulation, and what is in it, seen from outside.

It is the real SQLite store in memory, which answers at once. Each seed has a database of its own.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from daybell.core.execution import Outcome, State
from daybell.core.schedule import Decision, Schedule, TickRecord
from daybell.core.worker import WorkerState
from daybell.store.codec import DECISIONS, OUTCOMES, STATES, WORKER_STATES
from daybell.store.sqlite.connection import IN_MEMORY
from daybell.store.sqlite.schedules import SCHEDULE_SQL
from daybell.store.sqlite.store import SqliteStore
from daybell.store.sqlite.upkeep import create_in_memory

TENANT = "default"
Clock = Callable[[], float]
TickKey = tuple[UUID, float]


class Seen(NamedTuple):
    """An execution as it is kept; times as the store has them."""

    id: UUID
    state: State
    attempt: int
    failures: int
    crashes: int
    run_at: float
    worker: UUID | None
    lease: UUID | None
    outcome: Outcome | None
    expires_at: float | None
    job: str
    unique_key: str | None
    gate: str | None
    has_slot: bool
    is_to_be_cancelled: bool
    is_discarded: bool
    result: str | None
    note: str | None
    checkpoint: str | None
    reason: str | None
    schedule: UUID | None
    scheduled_for: float | None
    parent: UUID | None
    node: str | None


class WorkerSeen(NamedTuple):
    """A worker as it is kept."""

    state: WorkerState
    lease_until: float


class Connection(sqlite3.Connection):
    """A connection whose commits fail when the disk is said to be full."""

    breaks_commit: Callable[[], bool] = staticmethod(lambda: False)

    def execute(self, statement: str, *args: Any) -> Any:
        if statement == "COMMIT" and self.breaks_commit():
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *args)


class Place:
    """A store, and its connection to look into it."""

    def __init__(self, clock: Clock) -> None:
        self._connection = sqlite3.connect(
            IN_MEMORY, isolation_level=None, cached_statements=512, factory=Connection
        )
        template().backup(self._connection)
        self.store: Any = SimulatedStore(self._connection, clock)
        self._changes = -1
        self._rows: dict[UUID, tuple[Any, ...]] = {}
        self._executions: dict[UUID, Seen] = {}
        self._changes_of_schedules = -1
        self._schedules: dict[UUID, Schedule] = {}

    @property
    def breaks_commit(self) -> Callable[[], bool]:
        return self._connection.breaks_commit

    @breaks_commit.setter
    def breaks_commit(self, breaks: Callable[[], bool]) -> None:
        self._connection.breaks_commit = breaks

    def executions(self) -> dict[UUID, Seen]:
        if self._changes != self._connection.total_changes:
            self._changes = self._connection.total_changes
            self._executions = {}
            known, self._rows = self._rows, {}
            for n, id, *row in sqlite3.Connection.execute(self._connection, _EXECUTIONS):
                before = known.get(n)
                if before is None or before[0] != row:
                    before = row, _read(UUID(bytes=id), *row)
                self._rows[n] = before
                self._executions[before[1].id] = before[1]
        return self._executions

    def workers(self) -> dict[UUID, WorkerSeen]:
        rows = self._connection.execute("SELECT id, state, lease_until FROM worker")
        return {UUID(bytes=id): WorkerSeen(WORKER_STATES[code], until) for id, code, until in rows}

    def attempt(self, id: UUID, attempt: int) -> tuple[Outcome, UUID | None] | None:
        """How an ended attempt that is not the final one ended, and whose it was."""
        row = self._connection.execute(_ATTEMPT, (id.bytes, attempt)).fetchone()
        return None if row is None else (OUTCOMES[row[0]], _id(row[1]))

    def schedules(self) -> dict[UUID, Schedule]:
        if self._changes_of_schedules != self._connection.total_changes:
            self._changes_of_schedules = self._connection.total_changes
            found = map(_schedule, self._connection.execute(SCHEDULE_SQL))
            self._schedules = {one.id: one for one in found}
        return self._schedules

    def ticks(self) -> dict[TickKey, TickRecord]:
        found = map(_tick, self._connection.execute(_TICKS))
        return {(tick.schedule, tick.at): tick for tick in found}

    def holders(self) -> dict[str, int]:
        """How many each gate counts inside it."""
        return {str(n): count for n, count in self._connection.execute(_HOLDERS)}

    def deliveries(self) -> list[tuple[UUID, UUID, int, str]]:
        """Each delivery, with the execution, the attempt and the type of its event, in order."""
        rows = self._connection.execute(_DELIVERIES)
        return [(UUID(bytes=id), UUID(about), attempt, type) for id, about, attempt, type in rows]

    def args(self, id: UUID) -> str:
        """The arguments of an execution."""
        return self._connection.execute(_ARGS, (id.bytes,)).fetchone()[0]

    def events(self) -> dict[str, list[tuple[UUID, Decision, UUID | None]]]:
        """By the id of each event: its ticks, with their schedule, decision and execution."""
        found: dict[str, list[tuple[UUID, Decision, UUID | None]]] = {}
        for event, schedule, decision, execution in self._connection.execute(_EVENTS):
            ticks = found.setdefault(event, [])
            if schedule is not None:
                ticks.append((UUID(bytes=schedule), DECISIONS[decision], _id(execution)))
        return found

    def ended_attempts(self) -> list[tuple[UUID, int, Outcome]]:
        """Each ended attempt that is not the final one."""
        rows = self._connection.execute(_ENDED_ATTEMPTS)
        return [(UUID(bytes=id), attempt, OUTCOMES[code]) for id, attempt, code in rows]

    def logs(self) -> dict[tuple[UUID, int, int], str]:
        rows = self._connection.execute(_LOGS)
        return {(UUID(bytes=id), attempt, number): text for id, attempt, number, text in rows}

    def close(self) -> None:
        self._connection.close()


_EXECUTIONS = """
SELECT e.n, e.id, e.state, attempt, failures, crashes, run_at, worker, lease, outcome, expires_at,
       job.name, unique_key, gate, slot, cancel_requested_at, is_discarded, result, note,
       checkpoint, reason, schedule, scheduled_for, parent, node
  FROM execution e JOIN job ON job.n = e.job ORDER BY e.n
"""
_DELIVERIES = """
SELECT e.id, json_extract(args, '$.data.execution_id'), json_extract(args, '$.data.attempt'),
       json_extract(args, '$.type')
  FROM execution e JOIN job ON job.n = e.job WHERE job.name GLOB 'events:*' ORDER BY e.n
"""
_ENDED_ATTEMPTS = """
SELECT e.id, a.attempt, a.outcome FROM attempt a JOIN execution e ON e.n = a.execution
  JOIN job ON job.n = e.job WHERE job.name NOT GLOB 'events:*'
"""
_ATTEMPT = """
SELECT a.outcome, a.worker FROM attempt a JOIN execution e ON e.n = a.execution
 WHERE e.id = ? AND a.attempt = ?
"""
_ARGS = "SELECT args FROM execution WHERE id = ?"
_EVENTS = """
SELECT e.id, t.schedule, t.decision, t.execution FROM event e LEFT JOIN tick t ON t.event = e.number
"""
_TICKS = "SELECT schedule, at, decision, reason, until, execution, count FROM tick"
_HOLDERS = "SELECT n, holders FROM gate"
_LOGS = """
SELECT e.id, log.attempt, number, text FROM log JOIN execution e ON e.n = log.execution
"""


def _read(id: UUID, state: int, *row: Any) -> Seen:
    attempt, failures, crashes, run_at, worker, lease, outcome, expires_at, job, key = row[:10]
    gate, slot, asked_at, is_discarded, *words = row[10:]
    result, note, checkpoint, reason, schedule, scheduled_for, parent, node = words
    return Seen(
        id,
        STATES[state],
        attempt,
        failures,
        crashes,
        run_at,
        _id(worker),
        _id(lease),
        OUTCOMES.get(outcome),
        expires_at,
        job,
        key,
        None if gate is None else str(gate),
        slot == 1,
        asked_at is not None,
        bool(is_discarded),
        result,
        note,
        checkpoint,
        reason,
        _id(schedule),
        scheduled_for,
        _id(parent),
        node,
    )


def _schedule(row: Any) -> Schedule:
    flags = map(bool, row[9:12])
    values: tuple[Any, ...] = (
        UUID(bytes=row[1]),
        TENANT,
        *row[2:9],
        *flags,
        *row[12:19],
        bool(row[19]),
    )
    return Schedule(*values)


def _tick(row: Any) -> TickRecord:
    schedule, at, decision, reason, until, execution, count = row
    return TickRecord(
        schedule=UUID(bytes=schedule),
        at=at,
        decision=DECISIONS[decision],
        reason=reason,
        until=until,
        execution=_id(execution),
        count=count,
    )


def _id(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


class SimulatedStore(SqliteStore):
    """The SQLite store in memory, on a connection that is given."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        super().__init__(IN_MEMORY, clock=clock)
        self._memory = connection
        self._open_in_memory()


@functools.cache
def template() -> sqlite3.Connection:
    """An empty database."""
    return create_in_memory(lambda: 0.0)

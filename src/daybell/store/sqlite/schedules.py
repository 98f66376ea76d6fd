"""Cursors and ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from daybell.core.execution import NewExecution
from daybell.core.instant import Instant
from daybell.core.schedule import Decision, Firing, NewSchedule, Schedule, TickRecord
from daybell.store.checks import check_batch, check_limit
from daybell.store.codes import DECISION_CODES, DECISIONS
from daybell.store.sqlite import enqueue
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import uuid_or_none

# Of the columns that `read_schedule` reads.
SCHEDULE_SQL: Final = """
SELECT s.tenant, s.id, j.name, s.rule, s.next_at, s.last_at, s.fired, s.is_paused
  FROM schedule s JOIN job j ON j.n = s.job
"""


class SqliteSchedules(Part):
    """See `protocol.Schedules`."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        await self._write(lambda tx: put_schedules(tx, tenant, schedules))

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        def operation(tx: Transaction) -> int:
            owner = tx.names.tenant(tx, tenant)
            rows = [(owner, id.bytes) for id in ids]
            return tx.executemany(_DELETE, rows).rowcount if rows else 0

        return await self._write(operation)

    async def list_schedules(self, tenant: str, *, job: str | None = None) -> list[Schedule]:
        return await self._read(lambda tx: list_schedules(tx, tenant, job))

    async def due_schedules(self, *, limit: int = 1000) -> list[Schedule]:
        check_limit(limit)
        return await self._read(lambda tx: due_schedules(tx, limit))

    async def next_tick(self) -> Instant | None:
        return await self._read(next_tick)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self._write(lambda tx: fire(tx, firings))

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        check_limit(limit)
        return await self._read(lambda tx: list_ticks(tx, tenant, schedule, limit, before))


_PUT: Final = """
INSERT INTO schedule (tenant, id, job, rule, next_at, is_paused) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE
   SET job = excluded.job, rule = excluded.rule, next_at = excluded.next_at,
       is_paused = excluded.is_paused
"""
_DELETE: Final = "DELETE FROM schedule WHERE tenant = ? AND id = ?"


def put_schedules(tx: Transaction, tenant: str, schedules: Sequence[NewSchedule]) -> None:
    owner = tx.names.tenant(tx, tenant)
    rows = [
        (
            owner,
            new.id.bytes,
            tx.names.current(tx, owner, new.job).job,
            new.rule,
            new.next_at,
            int(new.is_paused),
        )
        for new in schedules
    ]
    tx.executemany(_PUT, rows)


_LIST: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? ORDER BY s.id"
_LIST_OF_JOB: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? AND j.name = ? ORDER BY s.id"
_DUE: Final = f"""
{SCHEDULE_SQL} WHERE s.next_at <= ? AND s.next_at IS NOT NULL AND s.is_paused = 0
 ORDER BY s.next_at, s.id LIMIT ?
"""
_NEXT: Final = """
SELECT next_at FROM schedule WHERE next_at IS NOT NULL AND is_paused = 0 ORDER BY next_at LIMIT 1
"""


def list_schedules(tx: Transaction, tenant: str, job: str | None) -> list[Schedule]:
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_LIST, (owner,)) if job is None else tx.execute(_LIST_OF_JOB, (owner, job))
    return [read_schedule(tx, row) for row in rows.fetchall()]


def due_schedules(tx: Transaction, limit: int) -> list[Schedule]:
    return [read_schedule(tx, row) for row in tx.execute(_DUE, (tx.now, limit)).fetchall()]


def next_tick(tx: Transaction) -> Instant | None:
    row = tx.execute(_NEXT).fetchone()
    return row[0] if row else None


def read_schedule(tx: Transaction, row: Any) -> Schedule:
    tenant, id, job, rule, next_at, last_at, fired, is_paused = row
    return Schedule(
        id=UUID(bytes=id),
        tenant=tx.names.tenant_name(tx, tenant),
        job=job,
        rule=rule,
        next_at=next_at,
        last_at=last_at,
        fired=fired,
        is_paused=bool(is_paused),
    )


_TENANT: Final = "SELECT n FROM tenant WHERE name = ?"
_ADVANCE: Final = """
UPDATE schedule SET next_at = ? WHERE tenant = ? AND id = ? AND next_at = ? AND is_paused = 0
"""
_COUNT: Final = """
UPDATE schedule SET fired = fired + ?, last_at = ? WHERE tenant = ? AND id = ?
"""


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[bool]:
    """Advance each schedule whose cursor still is where the caller saw it."""
    answers: list[bool] = []
    to_create: dict[int, list[tuple[NewExecution, UUID, Instant]]] = {}
    for firing in firings:
        found = tx.execute(_TENANT, (firing.tenant,)).fetchone()
        key = found[0] if found else 0, firing.schedule.bytes
        advanced = tx.execute(_ADVANCE, (firing.next_at, *key, firing.expect)).rowcount == 1
        answers.append(advanced)
        if advanced:
            fired = record(tx, key[0], firing, to_create.setdefault(key[0], []))
            if fired:
                tx.execute(_COUNT, (len(fired), fired[-1], *key))
    for owner, ticks in to_create.items():
        create_executions(tx, owner, ticks)
    return answers


_RECORD: Final = """
INSERT INTO tick (tenant, schedule, at, decision, reason, until, execution)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def record(
    tx: Transaction,
    owner: int,
    firing: Firing,
    to_create: list[tuple[NewExecution, UUID, Instant]],
) -> list[Instant]:
    """Keep the ticks of one firing that are not on record; answer which of them were fired."""
    fired: list[Instant] = []
    for tick in firing.ticks:
        new = tick.execution
        row = (
            owner,
            firing.schedule.bytes,
            tick.at,
            DECISION_CODES[tick.decision],
            tick.reason,
            tick.until,
            None if new is None else new.id.bytes,
        )
        if tx.execute(_RECORD, row).rowcount == 0:
            continue
        if tick.decision is Decision.FIRED:
            fired.append(tick.at)
        if new is not None:
            to_create.append((new, firing.schedule, tick.at))
    return fired


_NAME_HOLDER: Final = """
UPDATE tick SET execution = ? WHERE tenant = ? AND schedule = ? AND at = ?
"""


def create_executions(
    tx: Transaction, owner: int, ticks: list[tuple[NewExecution, UUID, Instant]]
) -> None:
    """Create what ticks have fired; a tick whose key is held names the holder."""
    new = [execution for execution, _, _ in ticks]
    for execution in new:
        check_batch([execution])
    answers = enqueue.create(tx, owner, new)
    for answer, (_, schedule, at) in zip(answers, ticks, strict=True):
        if not answer.created:
            tx.execute(_NAME_HOLDER, (answer.id.bytes, owner, schedule.bytes, at))


_TICKS: Final = """
SELECT at, decision, reason, until, execution FROM tick
 WHERE tenant = ? AND schedule = ? AND at < ? ORDER BY at DESC LIMIT ?
"""


def list_ticks(
    tx: Transaction, tenant: str, schedule: UUID, limit: int, before: Instant | None
) -> list[TickRecord]:
    end = float("inf") if before is None else before
    rows = tx.execute(_TICKS, (tx.names.tenant(tx, tenant), schedule.bytes, end, limit))
    return [
        TickRecord(
            schedule=schedule,
            at=at,
            decision=DECISIONS[decision],
            reason=reason,
            until=until,
            execution=uuid_or_none(execution),
        )
        for at, decision, reason, until, execution in rows
    ]

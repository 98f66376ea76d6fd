"""Cursors: what is due, and who stops it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.overlap import gate_of
from daybell.core.schedule import (
    Decision,
    Due,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    TickRecord,
    TurnBack,
)
from daybell.store.checks import OCCURRENCES_MAX, check_limit
from daybell.store.codes import DECISION_CODES, DECISIONS, STATES
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.endings import pause
from daybell.store.sqlite.firing import fire
from daybell.store.sqlite.gates import make_gates
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import shown_state, uuid_or_none
from daybell.store.wakeups import Signal

# Of the columns that `read_schedule` reads.
SCHEDULE_SQL: Final = """
SELECT s.tenant, s.id, j.name, s.rule, s.next_at, s.name, s.args, s.misfire, s.delay, s.is_reboot,
       s.is_declared, s.is_paused, s.last_at, s.succeeded_for, s.fired, s.skipped, s.missed,
       s.failures, s.since, s.own_gate
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

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        return await self._read(lambda tx: list_schedules(tx, tenant, job, ids))

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        check_limit(limit)  # what is free needs no saying: here, nobody holds anything for long
        return await self._read(lambda tx: due_schedules(tx, limit, after))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self._write(lambda tx: fire(tx, firings))

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        return await self._write(lambda tx: rearm_schedules(tx, limit))

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        check_limit(limit)
        return await self._read(lambda tx: schedules_ahead(tx, by, limit, after))

    async def turn_back(self, turns: Sequence[TurnBack]) -> list[bool]:
        return await self._write(lambda tx: turn_back(tx, turns))

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        def operation(tx: Transaction) -> None:
            owner = tx.names.tenant(tx, tenant)
            pause(tx, tx.names.current(tx, owner, name).job, note)

        await self._write(operation)

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        await self._write(lambda tx: resume_job(tx, tenant, name, firings))

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        check_limit(limit)
        return await self._read(lambda tx: list_ticks(tx, tenant, schedule, limit, before))

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        check_limit(limit, most=OCCURRENCES_MAX)
        return await self._read(
            lambda tx: list_occurrences(tx, tenant, schedule, (since, until), limit)
        )


_IS_PAUSED: Final = "SELECT paused_at IS NOT NULL FROM job WHERE n = ?"
_PUT: Final = """
INSERT INTO schedule (tenant, id, job, rule, next_at, name, args, misfire, delay, is_reboot,
                      pause_after, is_declared, is_paused, since, moved_at, own_gate)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?15, ?16, ?17)
    ON CONFLICT (tenant, id) DO UPDATE
   SET job = excluded.job, rule = excluded.rule, name = excluded.name, args = excluded.args,
       next_at = iif(?14 AND rule = excluded.rule, next_at, excluded.next_at),
       delay = iif(?14 AND rule = excluded.rule, delay, excluded.delay),
       since = iif(?14 AND rule = excluded.rule, since, excluded.since),
       moved_at = iif(?14 AND rule = excluded.rule, moved_at, excluded.moved_at),
       misfire = excluded.misfire, is_reboot = excluded.is_reboot,
       pause_after = excluded.pause_after, is_declared = excluded.is_declared,
       is_paused = excluded.is_paused, own_gate = excluded.own_gate
"""
_DELETE: Final = "DELETE FROM schedule WHERE tenant = ? AND id = ?"


def put_schedules(tx: Transaction, tenant: str, schedules: Sequence[NewSchedule]) -> None:
    owner = tx.names.tenant(tx, tenant)
    by_job: dict[str, list[NewSchedule]] = {}
    for new in schedules:
        by_job.setdefault(new.job, []).append(new)
    for job, some in by_job.items():
        current = tx.names.current(tx, owner, job)
        make_gates(tx, owner, [gate_of(job)])
        write_schedules(tx, owner, current.job, some)


def write_schedules(
    tx: Transaction,
    owner: int,
    job: int,
    schedules: Iterable[NewSchedule],
    *,
    by_definition: bool = False,
) -> None:
    """Create or replace schedules of a job, which are paused with it; their counts stay. With a
    definition, one that says the same as before keeps its cursor, too.
    """
    (is_paused,) = tx.execute(_IS_PAUSED, (job,)).fetchone()
    rows = [
        (
            owner,
            new.id.bytes,
            job,
            new.rule,
            new.next_at,
            new.name,
            new.args,
            new.misfire,
            new.delay,
            int(new.is_reboot),
            new.pause_after,
            int(new.is_declared or by_definition),
            is_paused,
            by_definition,
            new.since,
            tx.now,
            int(new.own_gate),
        )
        for new in schedules
    ]
    tx.executemany(_PUT, rows)
    tx.signals.add(Signal.SCHEDULES)


_DECLARED: Final = "SELECT id FROM schedule WHERE job = ? AND is_declared = 1"


def declare_schedules(
    tx: Transaction, owner: int, job: int, schedules: Iterable[NewSchedule]
) -> None:
    """Let these take the place of the schedules that came with an earlier definition."""
    new = {schedule.id.bytes: schedule for schedule in schedules}
    for (id,) in tx.execute(_DECLARED, (job,)).fetchall():
        if id not in new:
            tx.execute(_DELETE, (owner, id))
    write_schedules(tx, owner, job, new.values(), by_definition=True)


_LIST: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? ORDER BY s.id"
_LIST_OF_JOB: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? AND j.name = ? ORDER BY s.id"
_ONE: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? AND s.id = ? AND ifnull(?, j.name) = j.name"
_UPCOMING: Final = "s.next_at IS NOT NULL AND s.is_paused = 0"
_DUE: Final = f"""
{SCHEDULE_SQL} WHERE s.next_at <= ? AND (s.next_at, s.id) > (?, ?) AND {_UPCOMING}
 ORDER BY s.next_at, s.id LIMIT ?
"""
# Whatever comes after those that were found: one more that is due, or the first that is not.
_NEXT: Final = f"""
SELECT s.next_at FROM schedule s WHERE (s.next_at, s.id) > (?, ?) AND {_UPCOMING}
 ORDER BY s.next_at, s.id LIMIT 1 OFFSET ?
"""


def list_schedules(
    tx: Transaction, tenant: str, job: str | None, ids: Collection[UUID] | None
) -> list[Schedule]:
    owner = tx.names.tenant(tx, tenant)
    if ids is not None:
        keys = [(owner, id.bytes, job) for id in sorted(set(ids))]
        rows = [row for key in keys for row in tx.execute(_ONE, key)]
    elif job is None:
        rows = tx.execute(_LIST, (owner,)).fetchall()
    else:
        rows = tx.execute(_LIST_OF_JOB, (owner, job)).fetchall()
    return [read_schedule(tx, row) for row in rows]


def due_schedules(tx: Transaction, limit: int, after: Schedule | None = None) -> Due:
    place = (-inf, b"") if after is None else (after.next_at, after.id.bytes)
    rows = tx.execute(_DUE, (tx.now, *place, limit)).fetchall()
    return Due(
        now=tx.now,
        schedules=tuple(read_schedule(tx, row) for row in rows),
        next_at=next_cursor(tx, *place, skip=len(rows)),
    )


def next_cursor(
    tx: Transaction, at: Instant | None = -inf, id: bytes = b"", *, skip: int = 0
) -> Instant | None:
    """The earliest cursor after this place, once so many are left out."""
    row = tx.execute(_NEXT, (at, id, skip)).fetchone()
    return row[0] if row else None


def read_schedule(tx: Transaction, row: Any) -> Schedule:
    # Put together by position, in the order of SCHEDULE_SQL: by name, it takes twice as long.
    flags = map(bool, row[9:12])
    head = UUID(bytes=row[1]), tx.names.tenant_name(tx, row[0])
    values: tuple[Any, ...] = (*head, *row[2:9], *flags, *row[12:19], bool(row[19]))
    return Schedule(*values)


_REARM: Final = """
UPDATE schedule SET next_at = ? + delay, moved_at = ?
 WHERE (tenant, id) IN (
    SELECT s.tenant, s.id FROM schedule s
     WHERE s.delay IS NOT NULL AND s.next_at IS NULL
       AND NOT EXISTS (
           SELECT 1 FROM execution e LEFT JOIN gate g ON g.n = e.gate
            WHERE e.schedule = s.id AND e.schedule IS NOT NULL AND e.state <= 5
              AND e.tenant = s.tenant AND ifnull(g.name, '') NOT GLOB 'backfill:*')
     LIMIT ?)
"""


def rearm_schedules(tx: Transaction, limit: int) -> int:
    """Start fixed delays that wait for an end which will not come."""
    rearmed = tx.execute(_REARM, (tx.now, tx.now, limit)).rowcount
    if rearmed:
        tx.signals.add(Signal.SCHEDULES)
    return rearmed


_AHEAD: Final = f"""
{SCHEDULE_SQL} WHERE s.moved_at > ? AND s.id > ? AND s.is_paused = 0 ORDER BY s.id LIMIT ?
"""


def schedules_ahead(tx: Transaction, by: Seconds, limit: int, after: UUID | None) -> Due:
    start = b"" if after is None else after.bytes
    rows = tx.execute(_AHEAD, (tx.now + by, start, limit)).fetchall()
    return Due(now=tx.now, schedules=tuple(read_schedule(tx, row) for row in rows))


_STANDS: Final = """
SELECT 1 FROM schedule WHERE tenant = ? AND id = ? AND next_at IS ? AND is_paused = 0
"""
_MISSED: Final = DECISION_CODES[Decision.MISSED]
_MISSED_LATER: Final = f"""
DELETE FROM tick WHERE tenant = ? AND schedule = ? AND at > ? AND decision = {_MISSED}
RETURNING count
"""
_MISSED_UNTIL: Final = f"""
SELECT at, count FROM tick
 WHERE tenant = ? AND schedule = ? AND at <= ?3 AND until > ?3 AND decision = {_MISSED}
"""
_CUT: Final = "UPDATE tick SET until = ?, count = ? WHERE tenant = ? AND schedule = ? AND at = ?"
_TURN_BACK: Final = """
UPDATE schedule SET next_at = ?, moved_at = ?, missed = missed - ? WHERE tenant = ? AND id = ?
"""


def turn_back(tx: Transaction, turns: Sequence[TurnBack]) -> list[bool]:
    """Set back cursors that still are where the caller saw them."""
    answers: list[bool] = []
    for turn in turns:
        key = tx.names.tenant(tx, turn.tenant), turn.schedule.bytes
        answers.append(tx.execute(_STANDS, (*key, turn.expect)).fetchone() is not None)
        if not answers[-1]:
            continue
        gone = sum(count for (count,) in tx.execute(_MISSED_LATER, (*key, turn.now)).fetchall())
        if turn.until is not None:
            for at, count in tx.execute(_MISSED_UNTIL, (*key, turn.now)).fetchall():
                tx.execute(_CUT, (turn.until, turn.count, *key, at))
                gone += count - turn.count
        tx.execute(_TURN_BACK, (turn.next_at, turn.now, gone, *key))
        tx.signals.add(Signal.SCHEDULES)
    return answers


_RESUME: Final = "UPDATE job SET paused_at = NULL, pause_note = '' WHERE n = ?"
_RESUME_SCHEDULES: Final = "UPDATE schedule SET is_paused = 0, failures = 0 WHERE job = ?"


def resume_job(tx: Transaction, tenant: str, name: str, firings: Sequence[Firing]) -> None:
    job = tx.names.current(tx, tx.names.tenant(tx, tenant), name).job
    tx.execute(_RESUME, (job,))
    tx.execute(_RESUME_SCHEDULES, (job,))
    fire(tx, firings)
    tx.signals.add(Signal.SCHEDULES)


_TICKS: Final = """
SELECT at, decision, reason, until, execution, count FROM tick
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
            count=count,
        )
        for at, decision, reason, until, execution, count in rows
    ]


_OCCURRENCES: Final = """
SELECT scheduled_for, id, state, run_at FROM execution
 WHERE schedule = ? AND schedule IS NOT NULL AND scheduled_for BETWEEN ? AND ? AND tenant = ?
 ORDER BY scheduled_for, created_at, id LIMIT ?
"""


def list_occurrences(
    tx: Transaction, tenant: str, schedule: UUID, span: tuple[Instant, Instant], limit: int
) -> list[Occurrence]:
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_OCCURRENCES, (schedule.bytes, *span, owner, limit))
    return [
        Occurrence(
            scheduled_for=at, id=UUID(bytes=id), state=STATES[shown_state(state, run_at, tx.now)]
        )
        for at, id, state, run_at in rows
    ]

"""Schedules: cursors, the atomic firing of ticks, and job dependencies."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID

from daybell.core import checks
from daybell.core.checks import check_execution, schedule_cursor
from daybell.core.execution import Enqueued, State
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.schedule import (
    DEPENDENCIES,
    LOOKED_AT_MAX,
    OVERLAP,
    UPSTREAM_FAILED,
    Decision,
    Dependent,
    Dependents,
    Due,
    Ended,
    Firing,
    FiringOutcome,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    Tick,
    TickRecord,
    Upstream,
    Waiting,
    gate_of,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page, bytes_of, cut_page
from daybell.errors import JobNotFound, shown
from daybell.store.codec import DECISION_CODES, DECISIONS, STATES
from daybell.store.sqlite import gates
from daybell.store.sqlite.enqueue import Creation
from daybell.store.sqlite.gates import (
    LINKS,
    ExecutionLinks,
    Meter,
    end_unstarted,
    make_gates,
    pause_job,
)
from daybell.store.sqlite.transaction import Row, Transaction, shown_state, uuid_or_none
from daybell.store.wakeups import Signal

# Firing: a cursor advances, its ticks are recorded, their executions are created, all as one.


_TENANT: Final = "SELECT n FROM tenant WHERE name = ?"
_STANDS_AT: Final = """
SELECT 1 FROM schedule WHERE tenant = ? AND id = ? AND ifnull(since, next_at) = ? AND is_paused = 0
"""
_ON_RECORD: Final = "SELECT 1 FROM tick WHERE tenant = ? AND schedule = ? AND at = ?"
_ADVANCE: Final = """
UPDATE schedule
   SET next_at = iif(since IS NULL, ?1, NULL), since = iif(since IS NULL, NULL, ?1),
       delay = iif(?2, NULL, delay), fired = fired + ?3, last_at = ifnull(?4, last_at),
       skipped = skipped + ?5, missed = missed + ?6,
       moved_at = ?9
 WHERE tenant = ?7 AND id = ?8
"""


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[bool]:
    """Advance each schedule if its cursor still is where the caller saw it.

    There is one writer at a time. So the cursors are checked first, and each schedule is written
    once, when the results of its ticks are known.
    """
    answers: list[bool] = []
    made: dict[bytes, tuple[int, FiringOutcome]] = {}  # by schedule; not written yet
    creations: dict[str, tuple[int, Creation]] = {}
    meters: dict[str, Meter] = {}
    for firing in firings:
        if firing.tenant not in creations:
            found = tx.execute(_TENANT, (firing.tenant,)).fetchone()
            owner = found[0] if found else 0
            creations[firing.tenant] = owner, Creation(tx, owner)
            if owner:
                meters[firing.tenant] = Meter(tx, owner)
        owner, creation = creations[firing.tenant]
        id = firing.schedule.bytes
        if id in made:  # it must be read where the firing before has put it
            write_firings(tx, made, creations)
            made.clear()
        answers.append(can_advance(tx, owner, id, firing))
        if answers[-1]:
            made[id] = owner, record_ticks(tx, owner, id, firing, creation)
    write_firings(tx, made, creations)
    for tenant, meter in meters.items():
        meter.charge(tenant, is_refused=False)
    return answers


def can_advance(tx: Transaction, owner: int, id: bytes, firing: Firing) -> bool:
    """Return True if the cursor is where the caller saw it, and no range of the firing is lost."""
    if tx.execute(_STANDS_AT, (owner, id, firing.expect)).fetchone() is None:
        return False
    missed = [(owner, id, tick.at) for tick in firing.missed]
    return not any(tx.execute(_ON_RECORD, key).fetchone() for key in missed)


def write_firings(
    tx: Transaction,
    made: Mapping[bytes, tuple[int, FiringOutcome]],
    creations: Mapping[str, tuple[int, Creation]],
) -> None:
    """Write these firings with the results of their executions."""
    created = {name: creation.finish() for name, (_, creation) in creations.items()}
    for owner, outcome in made.values():
        for tick in outcome.new_ticks:
            if tick.ruled_out is not None:
                skip_tick(tx, owner, tick.ruled_out, tick.reason)
    rows: list[Row] = []
    for id, (owner, one) in made.items():
        for tick in one.new_ticks:
            add_tick(tx, (owner, id), one, tick, created[one.firing.tenant])
        counts = one.fired, one.last_at, one.skipped, one.missed
        moved_at = max(tx.now, one.firing.planned_at)
        rows.append((one.next_at, int(one.is_over), *counts, owner, id, moved_at))
    tx.executemany(_ADVANCE, rows)
    for id, (owner, one) in made.items():
        if one.is_idle and tx.execute(_BEGIN_ANEW, (tx.now, owner, id)).rowcount:
            tx.signals.add(Signal.SCHEDULES)


_NOT_BEGUN: Final = f"SELECT n, {LINKS} FROM execution WHERE tenant = ? AND id = ? AND state < 5"


def skip_tick(tx: Transaction, owner: int, id: UUID, reason: str | None) -> None:
    """Skip the execution of a tick that a rule has excluded, regardless of its wait: its job may
    depend on nothing by now.
    """
    row = tx.execute(_NOT_BEGUN, (owner, id.bytes)).fetchone()
    if row is not None:
        n, *links = row
        end_unstarted(tx, n, ExecutionLinks(*links), State.SKIPPED, reason)


_RECORD: Final = """
INSERT INTO tick (tenant, schedule, at, decision, reason, until, execution, count)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def record_ticks(
    tx: Transaction, owner: int, schedule: bytes, firing: Firing, creation: Creation
) -> FiringOutcome:
    """Record the ticks that are not on record, and create their executions."""
    outcome = FiringOutcome(firing)
    for tick in firing.ticks:
        new = tick.execution
        row = (
            owner,
            schedule,
            tick.at,
            DECISION_CODES[tick.decision],
            tick.reason,
            tick.until,
            None if new is None else new.id.bytes,
            tick.count,
        )
        if tx.execute(_RECORD, row).rowcount == 0:
            outcome.omit(tick)
            continue
        outcome.new_ticks.append(tick)
        if new is not None:
            check_execution(new, 0)
            creation.find_gates([new])
            creation.add(new, is_new=new.unique_key is None)
    return outcome


_BEGIN_ANEW: Final = """
UPDATE schedule SET next_at = ? + delay
 WHERE tenant = ? AND id = ? AND next_at IS NULL AND delay IS NOT NULL
"""


_CORRECT: Final = """
UPDATE tick SET execution = ?, decision = ?, reason = ?
 WHERE tenant = ? AND schedule = ? AND at = ?
"""


def add_tick(
    tx: Transaction,
    schedule: tuple[int, bytes],
    outcome: FiringOutcome,
    tick: Tick,
    answers: Mapping[UUID, Enqueued],
) -> None:
    """Add a tick to the outcome. Correct its record if it has no execution of its own: the overlap
    rule refused it, or another one holds the key.
    """
    if tick.execution is None:
        outcome.add(tick, None)
        return
    answer = answers.get(tick.execution.id)
    added = outcome.add(tick, answer or Enqueued(tick.execution.id))
    if answer is not None:
        result = answer.id.bytes, DECISION_CODES[added.decision], added.reason
        tx.execute(_CORRECT, (*result, *schedule, tick.at))


# Selects the columns that `read_schedule` reads.
SCHEDULE_SQL: Final = """
SELECT s.tenant, s.id, j.name, s.rule, s.next_at, s.name, s.args, s.misfire, s.delay, s.is_reboot,
       s.is_declared, s.is_paused, s.last_at, s.succeeded_for, s.fired, s.skipped, s.missed,
       s.failures, s.since, s.own_gate, s.event
  FROM schedule s JOIN job j ON j.n = s.job
"""


def delete_schedules(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    rows = [(owner, id.bytes) for id in ids]
    return tx.executemany(_DELETE, rows).rowcount if rows else 0


def pause_by_name(tx: Transaction, tenant: str, name: str, *, note: str = "") -> None:
    """Pause a job's schedules."""
    owner = tx.names.tenant(tx, tenant)
    pause_job(tx, tx.names.current(tx, owner, name).job, note)


_IS_PAUSED: Final = "SELECT paused_at IS NOT NULL FROM job WHERE n = ?"
_PUT: Final = """
INSERT INTO schedule (tenant, id, job, rule, next_at, name, args, misfire, delay, is_reboot,
                      pause_after, is_declared, is_paused, since, moved_at, own_gate, event)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?15, ?16, ?17, ?18)
    ON CONFLICT (tenant, id) DO UPDATE
   SET job = excluded.job, rule = excluded.rule, name = excluded.name, args = excluded.args,
       next_at = iif(?14 AND rule = excluded.rule, next_at, excluded.next_at),
       delay = iif(?14 AND rule = excluded.rule, delay, excluded.delay),
       since = iif(?14 AND rule = excluded.rule, since, excluded.since),
       moved_at = iif(?14 AND rule = excluded.rule, moved_at, excluded.moved_at),
       misfire = excluded.misfire, is_reboot = excluded.is_reboot,
       pause_after = excluded.pause_after, is_declared = excluded.is_declared,
       is_paused = excluded.is_paused, own_gate = excluded.own_gate, event = excluded.event
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
    definition, a schedule that is the same as before keeps its cursor, too.
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
            new.event,
        )
        for new in schedules
    ]
    tx.executemany(_PUT, rows)
    tx.signals.add(Signal.SCHEDULES)


_DECLARED: Final = "SELECT id FROM schedule WHERE job = ? AND is_declared = 1"


def declare_schedules(
    tx: Transaction, owner: int, job: int, schedules: Iterable[NewSchedule]
) -> None:
    """Replace the schedules that came with an earlier definition by these."""
    new = {schedule.id.bytes: schedule for schedule in schedules}
    for (id,) in tx.execute(_DECLARED, (job,)).fetchall():
        if id not in new:
            tx.execute(_DELETE, (owner, id))
    write_schedules(tx, owner, job, new.values(), by_definition=True)


_LIST: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? AND s.id > ? ORDER BY s.id LIMIT ?"
_ONE: Final = f"{SCHEDULE_SQL} WHERE s.tenant = ? AND s.id = ? AND ifnull(?, j.name) = j.name"
_UPCOMING: Final = "s.next_at IS NOT NULL AND s.is_paused = 0"
_DUE_SCHEDULES: Final = f"""
{SCHEDULE_SQL} WHERE s.next_at <= ? AND (s.next_at, s.id) > (?, ?) AND {_UPCOMING}
 ORDER BY s.next_at, s.id LIMIT ?
"""
# The cursor after those that were found: one more that is due, or the first that is not.
_NEXT: Final = f"""
SELECT s.next_at FROM schedule s WHERE (s.next_at, s.id) > (?, ?) AND {_UPCOMING}
 ORDER BY s.next_at, s.id LIMIT 1 OFFSET ?
"""


def list_schedules(
    tx: Transaction,
    tenant: str,
    *,
    ids: Collection[UUID] | None = None,
    job: str | None = None,
    after: UUID | None = None,
    limit: int = 1000,
) -> list[Schedule]:
    checks.check_limit(limit)
    owner = tx.names.tenant(tx, tenant)
    if ids is not None:
        keys = [(owner, id.bytes, job) for id in sorted(set(ids))]
        rows = [row for key in keys for row in tx.execute(_ONE, key)]
    else:
        place = b"" if after is None else after.bytes
        rows = tx.execute(_LIST, (owner, place, limit)).fetchall()
    return [read_schedule(tx, row) for row in rows]


BY_NEXT: Final = "FROM schedule s INDEXED BY schedule_next"
# Walks of `schedule_next`. SQLite compares no row with an index of expressions: schedules as
# late as the end of the last page come first.
_JOB_SCHEDULES: Final = f"""
{SCHEDULE_SQL.replace("FROM schedule s", BY_NEXT)}
 WHERE s.job = ? AND s.is_declared = ? AND ifnull(s.next_at, 9e999) {{than}}
 ORDER BY ifnull(s.next_at, 9e999), s.id LIMIT ?
"""
_AS_LATE: Final = _JOB_SCHEDULES.format(than="= ? AND s.id > ?")
_LATER: Final = _JOB_SCHEDULES.format(than="> ?")


def list_job_schedules(
    tx: Transaction, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Schedule]:
    checks.check_limit(limit)
    after = checks.check_schedule_cursor(cursor)
    n = find_job(tx, tenant, job)
    if n is None:
        raise JobNotFound(f"no job named {shown(job)}")
    is_made, at, id = after
    walks: list[tuple[str, list[object]]] = [
        (_AS_LATE, [n, not is_made, at, id.bytes]),
        (_LATER, [n, not is_made, at]),
    ]
    if not is_made:
        walks.append((_LATER, [n, False, -inf]))
    rows: list[Row] = []
    for statement, values in walks:
        if len(rows) <= limit:
            rows += tx.execute(statement, (*values, limit + 1 - len(rows))).fetchall()
    return cut_page(
        (read_schedule(tx, row) for row in rows),
        limit,
        size=lambda one: bytes_of(one.rule, one.args),
        cursor=schedule_cursor,
    )


# The walk is in the order of an index; rows of other tenants are left out behind it.
_WALK: Final = f"(SELECT * FROM schedule s WHERE {_UPCOMING} ORDER BY s.next_at, s.id LIMIT ?) s"
_NEXT_SCHEDULES: Final = f"""
{SCHEDULE_SQL.replace("schedule s", _WALK)} WHERE s.tenant = ? ORDER BY s.next_at, s.id LIMIT ?
"""


def next_schedules(tx: Transaction, tenant: str, *, limit: int = 10) -> list[Schedule]:
    checks.check_limit(limit)
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_NEXT_SCHEDULES, (SCAN_ITEMS_MAX, owner, limit))
    return [read_schedule(tx, row) for row in rows]


def due_schedules(
    tx: Transaction, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
) -> Due:
    checks.check_limit(limit)
    del free  # no transaction holds a schedule for long
    place = (-inf, b"") if after is None else (after.next_at, after.id.bytes)
    rows = tx.execute(_DUE_SCHEDULES, (tx.now, *place, limit)).fetchall()
    return Due(
        now=tx.now,
        schedules=tuple(read_schedule(tx, row) for row in rows),
        next_at=next_cursor(tx, *place, skip=len(rows)),
    )


def next_cursor(
    tx: Transaction, at: Instant | None = -inf, id: bytes = b"", *, skip: int = 0
) -> Instant | None:
    """Return the earliest cursor after this place, once so many are left out."""
    row = tx.execute(_NEXT, (at, id, skip)).fetchone()
    return row[0] if row else None


def read_schedule(tx: Transaction, row: Any) -> Schedule:
    # Put together by position, in the order of SCHEDULE_SQL: by name, it takes twice as long.
    flags = map(bool, row[9:12])
    head = UUID(bytes=row[1]), tx.names.tenant_name(tx, row[0])
    values: tuple[Any, ...] = (*head, *row[2:9], *flags, *row[12:19], bool(row[19]), row[20])
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
    """Start fixed delays that wait for an end that will not come."""
    rearmed = tx.execute(_REARM, (tx.now, tx.now, limit)).rowcount
    if rearmed:
        tx.signals.add(Signal.SCHEDULES)
    return rearmed


_AHEAD: Final = f"""
{SCHEDULE_SQL} WHERE s.moved_at > ? AND s.id > ? AND s.is_paused = 0 ORDER BY s.id LIMIT ?
"""


def schedules_ahead(
    tx: Transaction, *, by: Seconds, limit: int = 1000, after: UUID | None = None
) -> Due:
    checks.check_limit(limit)
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


def turn_back(tx: Transaction, turns: Sequence[ScheduleRewind]) -> list[bool]:
    """Set back cursors that are still where the caller saw them."""
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


def resume_job(tx: Transaction, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
    job = tx.names.current(tx, tx.names.tenant(tx, tenant), name).job
    tx.execute(_RESUME, (job,))
    tx.execute(_RESUME_SCHEDULES, (job,))
    fire(tx, firings)
    tx.signals.add(Signal.SCHEDULES)


_TICKS: Final = """
SELECT at, decision, reason, until, execution, count, event FROM tick
 WHERE tenant = ? AND schedule = ? AND at < ? ORDER BY at DESC LIMIT ?
"""


def list_ticks(
    tx: Transaction, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
) -> list[TickRecord]:
    checks.check_limit(limit)
    end = float("inf") if before is None else before
    rows = tx.execute(_TICKS, (tx.names.tenant(tx, tenant), schedule.bytes, end, limit))
    return [
        TickRecord(
            schedule, at, DECISIONS[decision], reason, until, uuid_or_none(execution), count, event
        )
        for at, decision, reason, until, execution, count, event in rows
    ]


_OCCURRENCES: Final = """
SELECT scheduled_for, id, state, run_at FROM execution
 WHERE schedule = ? AND schedule IS NOT NULL AND scheduled_for BETWEEN ? AND ? AND tenant = ?
 ORDER BY scheduled_for, created_at, id LIMIT ?
"""


def list_occurrences(
    tx: Transaction,
    tenant: str,
    schedule: UUID,
    *,
    since: Instant,
    until: Instant,
    limit: int = 10_000,
) -> list[Occurrence]:
    checks.check_limit(limit, most=checks.OCCURRENCES_MAX)
    owner = tx.names.tenant(tx, tenant)
    rows = tx.execute(_OCCURRENCES, (schedule.bytes, since, until, owner, limit))
    return [
        Occurrence(at, UUID(bytes=id), STATES[shown_state(state, run_at, tx.now)])
        for at, id, state, run_at in rows
    ]


# Jobs that depend on jobs: the waiting executions, and the states of the other jobs.


_SCHEDULES: Final = f"""
{SCHEDULE_SQL} WHERE s.since IS NOT NULL AND s.is_paused = 0 AND s.id > ? AND j.is_deleted = 0
 ORDER BY s.id LIMIT ?
"""
_DEFINITION: Final = """
SELECT v.definition FROM job j JOIN job_version v ON v.n = j.version
 WHERE j.tenant = ? AND j.name = ?
"""
_WAITING: Final = f"""
SELECT e.tenant, e.id, j.name, ifnull(e.scheduled_for, e.run_at), v.definition
  FROM execution e JOIN job j ON j.n = e.job JOIN job_version v ON v.n = j.version
 WHERE e.state = 4 AND e.reason = '{DEPENDENCIES}' AND e.id > ? AND e.run_at <= ?
 ORDER BY e.id LIMIT ?
"""


def dependents(tx: Transaction, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
    checks.check_limit(limit)
    first = b"" if after is None else after.bytes
    schedules: list[Dependent] = []
    for row in tx.execute(_SCHEDULES, (first, limit)).fetchall():
        one = read_schedule(tx, row)
        (definition,) = tx.execute(_DEFINITION, (row[0], one.job)).fetchone()
        schedules.append(Dependent.of(one, definition))
    rows = tx.execute(_WAITING, (first, tx.now, limit)).fetchall()
    waiting = [
        Waiting.of(tx.names.tenant_name(tx, owner), UUID(bytes=id), *row)
        for owner, id, *row in rows
    ]
    return Dependents(now=tx.now, schedules=tuple(schedules), waiting=tuple(waiting))


_JOB: Final = "SELECT n FROM job WHERE tenant = ? AND name = ? AND is_deleted = 0"


def find_job(tx: Transaction, tenant: str, name: str) -> int | None:
    row = tx.execute(_JOB, (tx.names.tenant(tx, tenant), name)).fetchone()
    return row[0] if row else None


# An execution skipped by the job's overlap rule does not count; another one was in its way.
_COUNTS: Final = f"state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS '{OVERLAP}')"
# No index has successes by end: every execution would pay for it. So the newest are checked, and
# the rest only on request. Failures are found by their end.
_SUCCEEDED: Final = """
SELECT finished_at, id, state FROM (
    SELECT finished_at, id, state FROM execution
     WHERE job = ?1 AND node IS NULL AND state > 5 ORDER BY id DESC LIMIT {limit})
 WHERE state = 6 AND finished_at > ?2 ORDER BY finished_at DESC, id DESC LIMIT 1
"""
_NEWEST_SUCCEEDED: Final = _SUCCEEDED.format(limit=LOOKED_AT_MAX)
_ANY_SUCCEEDED: Final = _SUCCEEDED.format(limit=-1)
_FAILED: Final = f"""
SELECT finished_at, id, state FROM execution INDEXED BY execution_failed
 WHERE job = ?1 AND {_COUNTS} AND state > 6 AND finished_at > ?2
 ORDER BY finished_at DESC, id DESC LIMIT 1
"""


def ended_since(
    tx: Transaction, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
) -> list[Ended]:
    return [_ended_since(tx, tenant, *one, thoroughly=thoroughly) for one in jobs]


def _ended_since(
    tx: Transaction, tenant: str, job: str, since: Instant, *, thoroughly: bool
) -> Ended:
    n = find_job(tx, tenant, job)
    if n is None:
        return Ended()
    failed = tx.execute(_FAILED, (n, since)).fetchone()
    succeeded = tx.execute(_NEWEST_SUCCEEDED, (n, since)).fetchone()
    if succeeded is None and thoroughly:
        succeeded = tx.execute(_ANY_SUCCEEDED, (n, since)).fetchone()
    last = max((one for one in (failed, succeeded) if one is not None), default=None)
    return Ended(
        succeeded_at=succeeded[0] if succeeded else None,
        ended_at=last[0] if last else None,
        state=STATES[last[2]] if last else None,
    )


# The time at which it was to start. Once an attempt has ended, only its creation shows that.
_DUE: Final = "ifnull(scheduled_for, iif(attempt = 1, run_at, created_at))"
# Due at another time than that of its creation. Only these are in the index by due time, so that
# an execution enqueued to run at once does not pay for it. The index has this text, see 0010.
_TIMED: Final = "(scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at)"
_LATEST_TIMED: Final = f"""
SELECT {_DUE} AS due, id, state FROM execution INDEXED BY execution_due
 WHERE job = ?1 AND {_COUNTS} AND {_TIMED} AND {_DUE} <= ?2 ORDER BY {_DUE} DESC, id DESC LIMIT 1
"""
# Of those that had no time of their own, the one created last; the other one was due at ?3. Clients
# make the ids, so a late request or a client's clock may order them otherwise than the creation.
# No index has the creation: the executions before the newest id are compared, up to a limit.
_LATEST_PLAIN: Final = f"""
SELECT created_at, id, state FROM (
    SELECT * FROM execution
     WHERE job = ?1 AND node IS NULL AND id <= (
        SELECT id FROM execution
         WHERE job = ?1 AND {_COUNTS} AND NOT {_TIMED} AND created_at <= ?2 AND created_at >= ?3
         ORDER BY id DESC LIMIT 1)
     ORDER BY id DESC LIMIT {LOOKED_AT_MAX})
 WHERE {_COUNTS} AND NOT {_TIMED} AND created_at <= ?2 AND created_at >= ?3
 ORDER BY created_at DESC, id DESC LIMIT 1
"""
# Later than the latest that has ended. The unfinished are few: those of all jobs are looked at.
_UNFINISHED: Final = " UNION ALL ".join(
    f"""
SELECT state FROM execution INDEXED BY {index}
 WHERE {states} AND job = ?1 AND node IS NULL AND {_DUE} <= ?2 AND ({_DUE}, id) > (?3, ?4)"""
    for index, states in (
        ("execution_claimable", "state <= 3"),
        ("execution_waiting", "state = 4"),
        ("execution_running", "state = 5"),
    )
)
_HAS_NEWER: Final = f"""
SELECT 1 FROM execution
 WHERE job = ?1 AND node IS NULL AND state = 6 AND finished_at > ?2 AND {_DUE} > ?2 LIMIT 1
"""
_HAS_FAILED: Final = f"""
SELECT 1 FROM execution INDEXED BY execution_failed
 WHERE job = ?1 AND {_COUNTS} AND state > 6 AND finished_at > ?2 AND {_DUE} > ?2 LIMIT 1
"""
_IS_BEHIND: Final = """
SELECT 1 FROM schedule WHERE job = ? AND next_at <= ? AND next_at IS NOT NULL AND is_paused = 0
"""


def upstream(tx: Transaction, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
    return [_upstream(tx, tenant, *one) for one in jobs]


def _upstream(tx: Transaction, tenant: str, job: str, at: Instant) -> Upstream:
    n = find_job(tx, tenant, job)
    if n is None:
        return Upstream()
    timed = tx.execute(_LATEST_TIMED, (n, at)).fetchone() or (-math.inf, b"", None)
    plain = tx.execute(_LATEST_PLAIN, (n, at, timed[0])).fetchone() or timed
    due, id, state = max(timed, plain)
    unfinished = tx.execute(f"{_UNFINISHED} LIMIT 1", (n, at, due, id)).fetchone()
    if unfinished is not None:
        state = unfinished[0]
    is_asked = state is None or state > 6
    return Upstream(
        state=None if state is None else STATES[state],
        has_newer_success=is_asked and tx.execute(_HAS_NEWER, (n, at)).fetchone() is not None,
        has_newer_failure=state is None and tx.execute(_HAS_FAILED, (n, at)).fetchone() is not None,
        is_behind=tx.execute(_IS_BEHIND, (n, at)).fetchone() is not None,
    )


# One at a gate has no slot yet, or it has one: see `gates.admit`.
_IS_OF_JOB: Final = "(SELECT g.name FROM gate g WHERE g.n = execution.gate) GLOB 'job:*'"
_RELEASE: Final = f"""
UPDATE execution
   SET state = iif(slot IS 0, 4, 1),
       reason = iif(slot IS 0, iif({_IS_OF_JOB}, '{OVERLAP}', 'gate'), NULL)
 WHERE tenant = ? AND id = ? AND state = 4 AND reason = '{DEPENDENCIES}'
"""


def release(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    rows = [(owner, id.bytes) for id in ids]
    return tx.executemany(_RELEASE, rows).rowcount if rows else 0


def skip_dependents(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    return sum([gates.skip_waiting(tx, owner, id, UPSTREAM_FAILED) for id in ids])

"""Statistics over time: fold ends into minutes and hours, and read them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from msgspec import json

from daybell.core.lifecycle import Transition
from daybell.core.limits import COUNT_ITEMS_MAX
from daybell.core.monitoring.stats import (
    ALWAYS,
    BOUNDS,
    COUNTS,
    HOUR,
    KINDS,
    LATE_SECONDS,
    MINUTE,
    SECONDS_KEPT,
    TALLY_COLUMNS,
    EndCount,
    MissedTicks,
    StatKey,
    StatQuery,
    StatRows,
    StatTotal,
    Tallies,
    Tally,
    fold,
    fold_missed,
    kind_code,
)
from daybell.core.subscription import EXECUTION, wanted_pairs
from daybell.core.units import Instant
from daybell.errors import JobNotFound, shown
from daybell.store.codec import OUTCOME_CODES, OUTCOMES, STATE_CODES, STATES
from daybell.store.sqlite.connection import IN_MEMORY
from daybell.store.sqlite.transaction import Row, Transaction

_TABLES: Final = {MINUTE: "stat_minute", HOUR: "stat_hour", ALWAYS: "stat_total"}

# The parts of an end that the statistics tell apart: tenant, job, lane, outcome, state, minute,
# minutes of creation and start, buckets of run time and delay, lateness.
EndKey: TypeAlias = tuple[Any, ...]

_NOTE: Final = "INSERT INTO ended (execution) VALUES (?)"
_NOTE_COUNTS: Final = "INSERT INTO ended (counts) VALUES (?)"


def note_ends(tx: Transaction, executions: Iterable[int]) -> None:
    """Note that these executions have ended. Every end is noted once, in its transaction."""
    tx.executemany(_NOTE, [(n,) for n in executions])


def note_counts(tx: Transaction, owner: int, ends: Iterable[tuple[Row, Transition]]) -> None:
    """Note the ends of these claims that have run: count them, so that no row is read again."""
    now, version = tx.now, tx.names.version
    alike: dict[EndKey, int] = {}
    for row, move in ends:
        assert move.ran is not None, "it has run"
        state, outcome = STATE_CODES[move.target], OUTCOME_CODES[move.outcome]
        job = version(tx, row[3]).job
        key = _key(owner, job, row[4], state, row[9], row[10], outcome, now - move.ran, now)
        alike[key] = alike.get(key, 0) + 1
    counts = json.encode([(*key, number) for key, number in alike.items()])
    tx.execute(_NOTE_COUNTS, (counts.decode(),))


# An execution that was removed before it was counted has no row.
_ENDS: Final = """
SELECT d.n, d.counts, e.tenant, e.job, e.lane, iif(d.attempt IS NULL, e.state, NULL), e.created_at,
       iif(d.attempt IS NULL, e.run_at, d.run_at),
       ifnull(a.outcome, e.outcome), iif(d.attempt IS NULL, e.started_at, a.started_at),
       iif(d.attempt IS NULL, e.finished_at, a.ended_at)
  FROM (SELECT * FROM ended ORDER BY n LIMIT ?) d
  LEFT JOIN execution e ON e.n = d.execution
  LEFT JOIN attempt a ON a.execution = d.execution AND a.attempt = d.attempt
 ORDER BY d.n
"""
_FORGET: Final = "DELETE FROM ended WHERE n <= ?"


# Events of subscriptions that are gone leave the outbox, too.
_FIND: Final = """
SELECT EXISTS (SELECT 1 FROM ended) OR EXISTS (SELECT 1 FROM missed),
       EXISTS (SELECT 1 FROM subscription) OR EXISTS (SELECT 1 FROM outbox)
"""
_IS_TOLD: Final = "SELECT 1 FROM subscription LIMIT 1"


def has_subscriptions(tx: Transaction) -> bool:
    """Return True if there are subscriptions, so that ends must be noted one by one."""
    return tx.execute(_IS_TOLD).fetchone() is not None


def find_ends(tx: Transaction) -> tuple[bool, bool]:
    """Return True if an end or a missed time is not in the statistics yet, and True if there are
    subscriptions.
    """
    has_ends, is_told = tx.execute(_FIND).fetchone()
    return bool(has_ends), bool(is_told)


_TAKE_MISSED: Final = """
DELETE FROM missed WHERE n IN (SELECT n FROM missed ORDER BY n LIMIT ?)
RETURNING tenant, job, minute, number
"""


def fold_all(tx: Transaction, limit: int) -> bool:
    """Add up to `limit` ends, and as many missed times, to the statistics. Return True if there may
    be more.
    """
    rows = tx.execute(_TAKE_MISSED, (limit,)).fetchall()
    for grain, tallies in fold_missed(MissedTicks(*row) for row in rows).items():
        _add(tx, grain, tallies)
    return fold_ends(tx, limit) or len(rows) == limit


def fold_ends(tx: Transaction, limit: int) -> bool:
    """Add up to `limit` ends to the statistics. Return True if there may be more."""
    rows = tx.execute(_ENDS, (limit,)).fetchall()
    if not rows:
        return False
    # Most ends of a batch are alike, and to add one up takes longer than to read it.
    alike: dict[EndKey, int] = {}
    for _, counts, *end in rows:
        if counts is not None:
            for *key, number in json.decode(counts):
                alike[tuple(key)] = alike.get(tuple(key), 0) + number
        elif end[0] is not None and end[-1] is not None:
            key = _key(*end)
            alike[key] = alike.get(key, 0) + 1
    for grain, tallies in fold(_end(tx, key, number) for key, number in alike.items()).items():
        _add(tx, grain, tallies)
    write_outbox(tx, rows[-1][0])
    tx.execute(_FORGET, (rows[-1][0],))
    return len(rows) == limit


_SUBSCRIPTIONS: Final = "SELECT tenant, definition FROM subscription"
# An attempt that was released is no event. The pairs are those that a subscription may be for.
_TELL: Final = f"""
INSERT INTO outbox (tenant, at, type, execution, attempt, job, queue, data)
SELECT tenant, at, '{EXECUTION}' || status, id, attempt, job, queue, data FROM (
  SELECT d.n, e.tenant, ifnull(a.ended_at, e.finished_at) AS at, e.id, j.name AS job, l.queue,
         ifnull(d.attempt, e.attempt) AS attempt,
         CASE WHEN d.attempt IS NULL
              THEN CASE e.state WHEN 6 THEN 'succeeded' WHEN 7 THEN 'dead' WHEN 8 THEN 'cancelled'
                                ELSE 'skipped' END
              ELSE CASE WHEN a.outcome IN (2, 3) THEN 'retrying' WHEN a.outcome = 4 THEN 'lost' END
              END AS status,
         json_object('worker_id', lower(hex(iif(d.attempt IS NULL, e.worker, a.worker))),
                     'created_at', e.created_at, 'scheduled_for', e.scheduled_for,
                     'started_at', iif(d.attempt IS NULL, e.started_at, a.started_at),
                     'error', iif(d.attempt IS NULL, e.error, a.error), 'reason', e.reason,
                     'schedule_id', lower(hex(e.schedule)), 'parent_id', lower(hex(e.parent)),
                     'node', e.node) AS data
    FROM ended d JOIN execution e ON e.n = d.execution
    JOIN job j ON j.n = e.job JOIN lane l ON l.n = e.lane
    LEFT JOIN attempt a ON a.execution = d.execution AND a.attempt = d.attempt
   WHERE d.n <= ?)
 WHERE tenant || ':' || status IN (SELECT value FROM json_each(?)) ORDER BY n
"""


def write_outbox(tx: Transaction, last: int) -> None:
    """Put the ends that a subscription may be for into the outbox."""
    rows = tx.execute(_SUBSCRIPTIONS).fetchall()
    if rows:
        pairs = [f"{tenant}:{status}" for tenant, status in wanted_pairs(rows)]
        tx.execute(_TELL, (last, json.encode(pairs).decode()))


def _key(
    tenant: int,
    job: int,
    lane: int,
    state: int | None,
    created_at: Instant,
    run_at: Instant,
    outcome: int | None,
    started_at: Instant | None,
    ended_at: Instant,
) -> EndKey:
    """Return the parts of an end that the statistics tell apart; state None: it goes on."""
    if started_at is None:
        started = run = delay = None
        is_late = False
    else:
        started, run = int(started_at // MINUTE), bisect_right(BOUNDS, ended_at - started_at)
        delay = bisect_right(BOUNDS, started_at - run_at)
        is_late = started_at - run_at > LATE_SECONDS
    created = None if state is None else int(created_at // MINUTE)
    ended = int(ended_at // MINUTE)
    return tenant, job, lane, outcome, state, ended, created, started, run, delay, is_late


def _end(tx: Transaction, key: EndKey, number: int) -> EndCount:
    tenant, job, lane, outcome, state, *rest = key
    queue, needs = tx.names.lane_row(tx, lane)
    kind, ended_as = kind_code(needs), OUTCOMES.get(outcome)
    return EndCount(tenant, job, queue, kind, ended_as, STATES.get(state), number, *rest)


_OF_KEY: Final = "WHERE tenant = ? AND job = ? AND queue = ? AND at = ?"
_ADD: Final = {
    grain: f"INSERT OR REPLACE INTO {table} (tenant, job, queue, at, {TALLY_COLUMNS})"
    f" VALUES ({', '.join('?' * (len(COUNTS) + 6))})"
    for grain, table in _TABLES.items()
}


def _add(tx: Transaction, grain: int, tallies: Tallies) -> None:
    read = f"SELECT {TALLY_COLUMNS} FROM {_TABLES[grain]} {_OF_KEY}"
    written: list[Row] = []
    for key, tally in tallies.items():
        row = tx.execute(read, key).fetchone()
        if row is not None:
            tally.add(Tally.of_row(row))
        written.append((*key, *tally.to_row()))
    tx.executemany(_ADD[grain], written)


_JOB: Final = "SELECT n FROM job WHERE tenant = ? AND name = ?"
_QUEUES: Final = "SELECT DISTINCT queue FROM lane WHERE tenant = ?"
_OF_TIME: Final = "WHERE tenant = ? AND job = ? AND queue = ? AND at >= ? AND at < ?"


def read_stats(
    tx: Transaction, tenant: str, query: StatQuery, *, with_unfinished: bool
) -> StatRows:
    owner = tx.names.tenant(tx, tenant)
    job = 0
    queues = [query.queue or ""]
    if query.job is not None:
        found = tx.execute(_JOB, (owner, query.job)).fetchone()
        if found is None:
            raise JobNotFound(f"no job named {shown(query.job)}")
        job = found[0]
        if query.queue is None:
            queues += [queue for (queue,) in tx.execute(_QUEUES, (owner,))]
    select = f"SELECT at, {TALLY_COLUMNS} FROM {_TABLES[query.grain]} {_OF_TIME}"
    keys = [(owner, job, queue, *query.periods) for queue in queues]
    tallies = query.add_up(row for key in keys for row in tx.execute(select, key))
    unfinished, is_complete = (
        _unfinished(tx, owner, job, query) if with_unfinished else (dict[int, int](), True)
    )
    return StatRows(tallies=tallies, unfinished=unfinished, is_complete=is_complete)


# The busiest jobs, and the queues.
_TOTALS: Final = f"""
SELECT NULL AS name, queue, at, {TALLY_COLUMNS} FROM stat_total WHERE tenant = ?1 AND job = 0
   AND queue <> ''
 UNION ALL
SELECT (SELECT name FROM job WHERE n = job), queue, at, {TALLY_COLUMNS} FROM (
    SELECT * FROM stat_total WHERE tenant = ?1 AND job > 0 ORDER BY started DESC, job LIMIT ?2)
"""


def read_totals(tx: Transaction, tenant: str, *, jobs: int) -> list[StatTotal]:
    owner = tx.names.tenant(tx, tenant)
    return [
        StatTotal(name, queue, KINDS[kind], Tally.of_row(row))
        for name, queue, kind, *row in tx.execute(_TOTALS, (owner, jobs))
    ]


_UNFINISHED: Final = " UNION ALL ".join(
    f"""
SELECT * FROM (
    SELECT CAST(e.created_at / :step AS INTEGER) FROM execution e
     WHERE e.{state} AND (:job = 0 OR e.job = :job)
       AND (:queue IS NULL
            OR e.lane IN (SELECT n FROM lane WHERE tenant = :tenant AND queue = :queue))
       AND e.created_at >= :since AND e.created_at < :until
     LIMIT {COUNT_ITEMS_MAX})
"""
    # Each is an index of unfinished executions: by tenant alone, SQLite would walk all that ended.
    for state in (
        "state <= 3 AND e.lane IN (SELECT n FROM lane WHERE tenant = :tenant)",
        "state = 4 AND e.tenant = :tenant",
        "state = 5 AND +e.tenant = :tenant",
    )
)


def _unfinished(
    tx: Transaction, owner: int, job: int, query: StatQuery
) -> tuple[dict[int, int], bool]:
    """Count unfinished executions by the step in which they were created."""
    values = {
        "step": query.step,
        "tenant": owner,
        "job": job,
        "queue": query.queue,
        "since": query.since,
        "until": query.until,
    }
    counts: dict[int, int] = {}
    for (step,) in tx.execute(_UNFINISHED, values):
        counts[step] = counts.get(step, 0) + 1
    return counts, sum(counts.values()) < COUNT_ITEMS_MAX


_OLD: Final = {
    grain: f"DELETE FROM {table} WHERE (tenant, job, queue, at) IN"
    f" (SELECT tenant, job, queue, at FROM {table} WHERE at < ? LIMIT ?)"
    for grain, table in _TABLES.items()
    if grain
}


def remove_stats(tx: Transaction, limit: int) -> tuple[int, int]:
    """Remove old minutes and hours, at most `limit` of each; answer how many."""
    minutes, hours = (
        tx.execute(_OLD[grain], ((tx.now - kept) // grain, limit)).rowcount
        for grain, kept in SECONDS_KEPT.items()
    )
    return minutes, hours


assert StatKey._fields == ("tenant", "job", "queue", "at")


def figures(tx: Transaction, path: str) -> dict[str, float]:
    """Measure the sizes of the database and its write-ahead log."""
    (pages,) = tx.execute("PRAGMA page_count").fetchone()
    (size,) = tx.execute("PRAGMA page_size").fetchone()
    found = {"bytes": float(pages * size)}
    if path != IN_MEMORY:
        with suppress(FileNotFoundError):
            found["wal_bytes"] = float(os.stat(f"{path}-wal").st_size)
    return found

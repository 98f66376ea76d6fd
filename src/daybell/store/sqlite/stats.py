"""Statistics over time: fold ends into minutes and hours, and read them."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from typing import Final

from daybell.core.limits import COUNT_ITEMS_MAX
from daybell.core.monitoring.stats import (
    ALWAYS,
    BOUNDS,
    COUNTS,
    HOUR,
    HOURS_KEPT_SECONDS,
    LATE_SECONDS,
    MINUTE,
    MINUTES_KEPT_SECONDS,
    EndCount,
    StatKey,
    StatQuery,
    StatRows,
    StatTotal,
    Tallies,
    Tally,
    decode,
    encode,
    fold,
)
from daybell.errors import JobNotFound, shown
from daybell.store.codec import OUTCOMES, STATES
from daybell.store.sqlite.connection import IN_MEMORY
from daybell.store.sqlite.transaction import Row, Transaction

_NAMES: Final = ", ".join(COUNTS)
_TABLES: Final = {MINUTE: "stat_minute", HOUR: "stat_hour", ALWAYS: "stat_total"}

# An execution that was removed before it was counted has no row.
_ENDS: Final = """
SELECT d.n, e.tenant, e.job, l.queue, d.attempt IS NULL, e.state, e.created_at,
       iif(d.attempt IS NULL, e.run_at, d.run_at),
       ifnull(a.outcome, e.outcome), iif(d.attempt IS NULL, e.started_at, a.started_at),
       iif(d.attempt IS NULL, e.finished_at, a.ended_at)
  FROM (SELECT * FROM ended ORDER BY n LIMIT ?) d
  LEFT JOIN execution e ON e.n = d.execution
  LEFT JOIN lane l ON l.n = e.lane
  LEFT JOIN attempt a ON a.execution = d.execution AND a.attempt = d.attempt
 ORDER BY d.n
"""
_FORGET: Final = "DELETE FROM ended WHERE n <= ?"


def has_ends(tx: Transaction) -> bool:
    """Return True if an end is not in the statistics yet."""
    return tx.execute("SELECT 1 FROM ended LIMIT 1").fetchone() is not None


def fold_ends(tx: Transaction, limit: int) -> bool:
    """Add up to `limit` ends to the statistics. Return True if there may be more."""
    rows = tx.execute(_ENDS, (limit,)).fetchall()
    if not rows:
        return False
    # Most ends of a batch are alike, and to add one up takes longer than to read it.
    alike: dict[Row, int] = {}
    for row in rows:
        if row[1] is not None and row[-1] is not None:
            key = _key(row)
            alike[key] = alike.get(key, 0) + 1
    for grain, tallies in fold(_end(key, number) for key, number in alike.items()).items():
        _add(tx, grain, tallies)
    tx.execute(_FORGET, (rows[-1][0],))
    return len(rows) == limit


def _key(row: Row) -> Row:
    """Return the parts of an end that the statistics tell apart."""
    _, tenant, job, queue, is_final, state, created_at, run_at, outcome, started_at, ended_at = row
    if started_at is None:
        started = run = delay = None
        is_late = False
    else:
        started, run = started_at // MINUTE, bisect_right(BOUNDS, ended_at - started_at)
        delay = bisect_right(BOUNDS, started_at - run_at)
        is_late = started_at - run_at > LATE_SECONDS
    created = created_at // MINUTE if is_final else None
    state = state if is_final else None
    ended = ended_at // MINUTE
    return tenant, job, queue, ended, outcome, state, created, started, run, delay, is_late


def _end(key: Row, number: int) -> EndCount:
    tenant, job, queue, ended, outcome, state, created, started, run, delay, is_late = key
    return EndCount(
        tenant=tenant,
        job=job,
        queue=queue,
        number=number,
        ended=int(ended),
        outcome=None if outcome is None else OUTCOMES[outcome],
        state=None if state is None else STATES[state],
        created=None if created is None else int(created),
        started=None if started is None else int(started),
        run=run,
        delay=delay,
        is_late=is_late,
    )


def _read(grain: int) -> str:
    return f"SELECT {_NAMES}, run, delay FROM {_TABLES[grain]}"


_OF_KEY: Final = "WHERE tenant = ? AND job = ? AND queue = ? AND at = ?"
_ADD: Final = {
    grain: f"INSERT OR REPLACE INTO {table} (tenant, job, queue, at, {_NAMES}, run, delay)"
    f" VALUES ({', '.join('?' * (len(COUNTS) + 6))})"
    for grain, table in _TABLES.items()
}


def _add(tx: Transaction, grain: int, tallies: Tallies) -> None:
    read = f"{_read(grain)} {_OF_KEY}"
    written: list[Row] = []
    for key, tally in tallies.items():
        row = tx.execute(read, key).fetchone()
        if row is not None:
            tally.add(_tally(row))
        written.append((*key, *tally.counts, encode(tally.run), encode(tally.delay)))
    tx.executemany(_ADD[grain], written)


def _tally(row: Row) -> Tally:
    *counts, run, delay = row
    return Tally(counts, decode(run), decode(delay))


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
            queues = [queue for (queue,) in tx.execute(_QUEUES, (owner,))]
    select = _read(query.grain).replace("SELECT ", "SELECT at, ")
    size = query.step // query.grain
    tallies: dict[int, Tally] = {}
    for queue in queues:
        time = query.since // query.grain, query.until // query.grain
        for at, *row in tx.execute(f"{select} {_OF_TIME}", (owner, job, queue, *time)):
            tally = tallies.get(at // size)
            if tally is None:
                tallies[at // size] = _tally(tuple(row))
            else:
                tally.add(_tally(tuple(row)))
    unfinished, is_complete = (
        _unfinished(tx, owner, job, query) if with_unfinished else (dict[int, int](), True)
    )
    return StatRows(tallies=tallies, unfinished=unfinished, is_complete=is_complete)


# The busiest jobs, and the queues.
_TOTALS: Final = f"""
SELECT NULL AS name, queue, {_NAMES}, run, delay FROM stat_total WHERE tenant = ?1 AND job = 0
   AND queue <> ''
 UNION ALL
SELECT (SELECT name FROM job WHERE n = job), queue, {_NAMES}, run, delay FROM (
    SELECT * FROM stat_total WHERE tenant = ?1 AND job > 0 ORDER BY started DESC, job LIMIT ?2)
"""


def read_totals(tx: Transaction, tenant: str, *, jobs: int) -> list[StatTotal]:
    owner = tx.names.tenant(tx, tenant)
    return [
        StatTotal(name, queue, _tally(tuple(row)))
        for name, queue, *row in tx.execute(_TOTALS, (owner, jobs))
    ]


_UNFINISHED: Final = " UNION ALL ".join(
    f"""
SELECT * FROM (
    SELECT CAST(e.created_at / :step AS INTEGER) FROM execution e
     WHERE e.{state} AND e.tenant = :tenant AND (:job = 0 OR e.job = :job)
       AND (:queue IS NULL
            OR e.lane IN (SELECT n FROM lane WHERE tenant = :tenant AND queue = :queue))
       AND e.created_at >= :since AND e.created_at < :until
     LIMIT {COUNT_ITEMS_MAX})
"""
    for state in ("state <= 3", "state = 4", "state = 5")
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
    before = {MINUTE: MINUTES_KEPT_SECONDS, HOUR: HOURS_KEPT_SECONDS}
    minutes, hours = (
        tx.execute(_OLD[grain], ((tx.now - kept) // grain, limit)).rowcount
        for grain, kept in before.items()
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

"""Statistics over time: fold ends into minutes and hours, and read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daybell.core.limits import COUNT_ITEMS_MAX
from daybell.core.monitoring.stats import (
    ALWAYS,
    BOUNDS,
    COUNTS,
    DURATIONS,
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
from daybell.core.views import Folded
from daybell.errors import JobNotFound, shown
from daybell.store.codec import OUTCOMES, STATES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.context import StoreContext, Tx
from daybell.store.timeouts import Pace

_TABLES: Final = {
    MINUTE: "daybell.stat_minute",
    HOUR: "daybell.stat_hour",
    ALWAYS: "daybell.stat_total",
}

# Transactions are counted in the order of their numbers, a window of them at a time. Those that are
# open when their window is counted stay on the list. The window adapts to the number of ends in it.
WINDOW_LEAST: Final = 64
WINDOW_MOST: Final = 1 << 20
ENDS_PER_ROW: Final = 20  # the statement adds them up, so that few rows are sent

# Events of subscriptions that are gone leave the outbox, too.
LOCK_FOLD: Final = """
    SELECT until, open,
           EXISTS (SELECT FROM daybell.subscription)
           OR EXISTS (SELECT FROM daybell.outbox) AS is_told
      FROM daybell.stat_fold FOR UPDATE
    """
# One statement, so that the snapshot it answers is that with which it reads. The indexes of
# `ended_by` are small and need bitmap scans, which sessions have off.
ALLOW_BITMAPS: Final = "SET LOCAL enable_bitmapscan = on"
_IS_NEW: Final = (
    "(ended_by >= $1 AND ended_by < (SELECT until FROM w) OR ended_by = ANY($2::bigint[]))"
)
_FINAL: Final = f"""
        SELECT tenant, job, lane, state, outcome, created_at, run_at, started_at, finished_at
          FROM daybell.{{}} WHERE {_IS_NEW}"""
ENDS: Final = f"""
    WITH s AS MATERIALIZED (SELECT pg_current_snapshot() AS snapshot),
    w AS MATERIALIZED (
      SELECT least($1::bigint + $3::bigint, pg_snapshot_xmax(snapshot)::text::bigint) AS until,
             ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(snapshot) x) AS open,
             pg_snapshot_xmax(snapshot)::text::bigint AS most
        FROM s),
    r AS (
      SELECT * FROM ({_FINAL.format("history")}) h
      UNION ALL
      SELECT * FROM ({_FINAL.format("dead")}) d
      UNION ALL
      SELECT * FROM (
        SELECT tenant, job, lane, CASE WHEN created_at IS NOT NULL THEN 7::smallint END, outcome,
               created_at, run_at, started_at, ended_at
          FROM daybell.attempt WHERE {_IS_NEW} AND job IS NOT NULL) a),
    g AS (
      SELECT tenant, job, lane, state, outcome, floor(created_at / {MINUTE})::int AS created,
             floor(started_at / {MINUTE})::int AS started,
             floor(finished_at / {MINUTE})::int AS ended,
             width_bucket(finished_at - started_at, $4::float8[]) AS run,
             width_bucket(started_at - run_at, $4::float8[]) AS delay,
             coalesce(started_at - run_at > {LATE_SECONDS}, false) AS is_late,
             count(*)::int AS number
        FROM r GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    SELECT w.until, w.most, w.open, g.tenant, g.job, g.state, g.outcome,
           (SELECT l.queue FROM daybell.lane l WHERE l.key = g.lane) AS queue,
           (SELECT l.needs FROM daybell.lane l WHERE l.key = g.lane) AS needs,
           g.number, g.ended, g.created, g.started, g.run, g.delay, g.is_late
      FROM w LEFT JOIN g ON true
    """
MARK_FOLD: Final = "UPDATE daybell.stat_fold SET until = $1, open = $2"
# A dump that was restored into another cluster has numbers that are not reached there yet.
FORGET_NUMBERS: Final = tuple(
    f"UPDATE daybell.{table} SET ended_by = NULL WHERE ended_by >= $1"
    for table in ("history", "dead", "attempt")
)


SUBSCRIPTIONS: Final = "SELECT tenant, definition FROM daybell.subscription"
# The transactions that ENDS has counted; those that were open then are left to the next one, also
# if they have committed since. An attempt that was released is no event.
_IS_TOLD: Final = """(ended_by >= $1 AND ended_by < $3 OR ended_by = ANY($2::bigint[]))
           AND ended_by <> ALL($4::bigint[])"""
_TOLD: Final = f"""
        SELECT tenant, job, lane, id, attempt, finished_at AS at, worker, created_at, scheduled_for,
               started_at, error, reason, schedule, parent, node,
               CASE state WHEN 6 THEN 'succeeded' WHEN 7 THEN 'dead' WHEN 8 THEN 'cancelled'
                          ELSE 'skipped' END AS status
          FROM daybell.{{}} WHERE {_IS_TOLD}"""
TELL: Final = f"""
    WITH r AS (
      SELECT * FROM ({_TOLD.format("history")}) h
      UNION ALL
      SELECT * FROM ({_TOLD.format("dead")}) d
      UNION ALL
      SELECT * FROM (
        SELECT tenant, job, lane, id, attempt, ended_at, worker, created_at, NULL::float8,
               started_at, error, NULL, NULL::uuid, NULL::uuid, NULL,
               CASE WHEN created_at IS NOT NULL THEN 'dead' WHEN outcome IN (2, 3) THEN 'retrying'
                    WHEN outcome = 4 THEN 'lost' END
          FROM daybell.attempt WHERE {_IS_TOLD} AND job IS NOT NULL) a)
    INSERT INTO daybell.outbox (at, tenant, attempt, execution, type, job, queue, data)
    SELECT r.at, r.tenant, r.attempt, r.id, '{EXECUTION}' || r.status,
           (SELECT j.name FROM daybell.job j WHERE j.key = r.job),
           (SELECT l.queue FROM daybell.lane l WHERE l.key = r.lane),
           json_build_object('worker_id', r.worker, 'created_at', r.created_at,
                             'scheduled_for', r.scheduled_for, 'started_at', r.started_at,
                             'error', r.error, 'reason', r.reason, 'schedule_id', r.schedule,
                             'parent_id', r.parent, 'node', r.node)::text
      FROM r JOIN unnest($5::int[], $6::text[]) w(tenant, status) USING (tenant, status)
     ORDER BY r.attempt, r.at, r.id
    """


TAKE_MISSED: Final = """
    DELETE FROM daybell.missed
     WHERE ctid = ANY(ARRAY(SELECT ctid FROM daybell.missed LIMIT $1))
    RETURNING tenant, job, minute, number
    """


async def fold_stats(pg: StoreContext, limit: int) -> Folded:
    """Add ends to the statistics, those of a window of transactions. Those that a subscription may
    be for enter the outbox.
    """
    return await pg.db.settled(lambda: _fold(pg, limit * ENDS_PER_ROW))


async def _fold(pg: StoreContext, limit: int) -> Folded:
    async with pg.transaction() as tx:
        mark = await tx.fetchrow(LOCK_FOLD)
        assert mark is not None
        await tx.execute(ALLOW_BITMAPS)
        window = pg.fold_window
        rows = await tx.fetch(ENDS, mark["until"], mark["open"], window, list(BOUNDS))
        until, most, open = rows[0]["until"], rows[0]["most"], rows[0]["open"]
        if most < mark["until"]:
            for statement in FORGET_NUMBERS:
                await tx.execute(statement, most)
            until = most
        for grain, tallies in fold(_ends(rows)).items():
            await _add(tx, grain, tallies)
        missed = await tx.fetch(TAKE_MISSED, limit)
        for grain, tallies in fold_missed(MissedTicks(*row.values()) for row in missed).items():
            await _add(tx, grain, tallies)
        if mark["is_told"]:
            pairs = wanted_pairs([tuple(row) for row in await tx.fetch(SUBSCRIPTIONS)])
            tenants, statuses = [tenant for tenant, _ in pairs], [status for _, status in pairs]
            await tx.execute(TELL, mark["until"], mark["open"], until, open, tenants, statuses)
        await tx.execute(MARK_FOLD, until, [number for number in open if number < until])
    number = sum(row["number"] or 0 for row in rows)
    if number > (limit // ENDS_PER_ROW if mark["is_told"] else limit):
        pg.fold_window = max(WINDOW_LEAST, window // 2)
    elif until < most:
        pg.fold_window = min(WINDOW_MOST, window * 2)
    return Folded(until < most or len(missed) == limit, mark["is_told"])


def _ends(rows: Iterable[Row]) -> Iterable[EndCount]:
    for row in rows:
        if row["number"] is not None:
            tenant, job, state, outcome, queue, needs, *rest = row[3:]
            kind, ended_as = kind_code(needs), OUTCOMES.get(outcome)
            yield EndCount(tenant, job, queue, kind, ended_as, STATES.get(state), *rest)


_OF_KEYS: Final = f"""
    SELECT s.tenant, s.job, s.queue, s.at, {TALLY_COLUMNS}
      FROM unnest($1::int[], $2::int[], $3::text[], $4::int[]) u(tenant, job, queue, at),
           LATERAL (SELECT * FROM {{}} s
                     WHERE s.tenant = u.tenant AND s.job = u.job AND s.queue = u.queue
                       AND s.at = u.at LIMIT 1) s
    """
_KEYS_TYPES: Final = ["int", "int", "text", "int", *["bigint"] * len(COUNTS), "bytea", "bytea"]
_ADD: Final = f"""
    INSERT INTO {{}} (tenant, job, queue, at, {TALLY_COLUMNS})
    SELECT * FROM unnest({", ".join(f"${n}::{t}[]" for n, t in enumerate(_KEYS_TYPES, start=1))})
    ON CONFLICT (tenant, job, queue, at) DO UPDATE
       SET {", ".join(f"{name} = excluded.{name}" for name in (*COUNTS, *DURATIONS))}
    """


async def _add(tx: Tx, grain: int, tallies: Tallies) -> None:
    if not tallies:
        return
    keys = list(zip(*tallies, strict=True))
    for row in await tx.fetch(_OF_KEYS.format(_TABLES[grain]), *map(list, keys)):
        tenant, job, queue, at, *columns = row.values()
        tallies[StatKey(tenant, job, queue, at)].add(Tally.of_row(columns))
    rows = [(*key, *tally.to_row()) for key, tally in tallies.items()]
    await tx.execute(_ADD.format(_TABLES[grain]), *map(list, zip(*rows, strict=True)))


_JOB: Final = "SELECT key FROM daybell.job WHERE tenant = $1 AND name = $2"
_OF_TIME: Final = f"""
    SELECT s.at, {TALLY_COLUMNS}
      FROM unnest($3::text[]) q(queue),
           LATERAL (SELECT * FROM {{}} s
                     WHERE s.tenant = $1 AND s.job = $2 AND s.queue = q.queue
                       AND s.at >= $4 AND s.at < $5 OFFSET 0) s
    """
_QUEUES: Final = "SELECT array_agg(DISTINCT queue) FROM daybell.lane WHERE tenant = $1"


async def read_stats(
    pg: StoreContext, tenant: str, query: StatQuery, *, with_unfinished: bool
) -> StatRows:
    async with pg.db.link(Pace.VIEW) as link:
        owner = await pg.names.tenant(link, tenant)
        job = 0
        queues: list[str] = [query.queue or ""]
        if query.job is not None:
            job = await link.fetchval(_JOB, owner, query.job)
            if job is None:
                raise JobNotFound(f"no job named {shown(query.job)}")
            if query.queue is None:
                queues += await link.fetchval(_QUEUES, owner) or []
        statement = _OF_TIME.format(_TABLES[query.grain])
        rows = await link.fetch(statement, owner, job, queues, *query.periods)
        live = await _unfinished(link, owner, job, query) if with_unfinished else []
    return StatRows(
        tallies=query.add_up(rows),
        unfinished={row["step"]: row["number"] for row in live if row["step"] is not None},
        is_complete=not live or live[0]["read"] < COUNT_ITEMS_MAX,
    )


# The busiest jobs, and the queues.
_TOTALS: Final = f"""
    SELECT NULL AS name, s.queue, s.at, {TALLY_COLUMNS} FROM daybell.stat_total s
     WHERE s.tenant = $1 AND s.job = 0 AND s.queue <> ''
     UNION ALL
    SELECT (SELECT j.name FROM daybell.job j WHERE j.key = s.job), s.queue, s.at,
           {TALLY_COLUMNS}
      FROM (SELECT * FROM daybell.stat_total s WHERE s.tenant = $1 AND s.job > 0
             ORDER BY s.started DESC, s.job LIMIT $2) s
    """


async def read_totals(pg: StoreContext, tenant: str, *, jobs: int) -> list[StatTotal]:
    rows = await pg.fetch(tenant, _TOTALS, jobs, pace=Pace.VIEW)
    return [
        StatTotal(name, queue, KINDS[kind], Tally.of_row(columns))
        for name, queue, kind, *columns in rows
    ]


_UNFINISHED: Final = f"""
    WITH v AS MATERIALIZED (
      SELECT v.created_at, v.lane FROM daybell.live v WHERE {{}} ORDER BY v.id DESC
       LIMIT {COUNT_ITEMS_MAX}),
    c AS (
      SELECT floor(v.created_at / $2)::bigint AS step, count(*) AS number FROM v
       WHERE v.created_at >= $3 AND v.created_at < $4
         AND ($5::text IS NULL
              OR v.lane = ANY(ARRAY(SELECT l.key FROM daybell.lane l WHERE l.queue = $5)))
       GROUP BY 1)
    SELECT n.read, c.step, c.number FROM (SELECT count(*) AS read FROM v) n LEFT JOIN c ON true
    """


async def _unfinished(link: Link, owner: int, job: int, query: StatQuery) -> list[Row]:
    """Count the newest unfinished executions by the step in which they were created."""
    chosen, key = ("v.job = $1", job) if job else ("v.tenant = $1", owner)
    values = float(query.step), query.since, query.until, query.queue
    return await link.fetch(_UNFINISHED.format(chosen), key, *values)


_OLD: Final = {
    grain: f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("
    f"SELECT ctid FROM {table} WHERE at < $1 LIMIT $2))"
    for grain, table in _TABLES.items()
    if grain
}


async def remove_stats(tx: Tx, now: Instant, limit: int) -> list[int]:
    """Remove old minutes and hours, at most `limit` of each; return how many."""
    removed: list[int] = []
    for grain, kept in SECONDS_KEPT.items():
        answer = await tx.execute(_OLD[grain], int((now - kept) // grain), limit)
        removed.append(int(answer.rpartition(" ")[2]))
    return removed


# The next day of each: after midnight, ends would go to the partition for all others.
FIGURES: Final = """
    SELECT pg_database_size(current_database())::float8 AS bytes,
           (SELECT coalesce(max(date_part('epoch', clock_timestamp() - xact_start)), 0)
              FROM pg_stat_activity
             WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
               AND backend_type = 'client backend')::float8 AS oldest_transaction_seconds,
           (SELECT count(*)
              FROM unnest(ARRAY['history', 'attempt', 'log']) parent, generate_series(0, 1) n,
                   LATERAL (SELECT to_timestamp(daybell.now() + n * 86400)) d(at)
             WHERE to_regclass('daybell.' || parent || '_'
                               || to_char(at AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
           )::float8 AS missing_partitions,
           (SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0) FROM pg_inherits i
             WHERE i.inhparent = 'daybell.log'::regclass)::float8 AS log_bytes
    """
HOT_TABLES: Final = ("live", "agenda", "lease", "worker", "gate", "schedule")
DEAD_TUPLES: Final = """
    SELECT relname, n_dead_tup::float8 AS dead FROM pg_stat_user_tables
     WHERE schemaname = 'daybell' AND relname = ANY($1::text[])
    """


async def figures(pg: StoreContext) -> dict[str, float]:
    async with pg.db.link(Pace.VIEW) as link:
        row = await link.fetchrow(FIGURES)
        tables = await link.fetch(DEAD_TUPLES, list(HOT_TABLES))
    assert row is not None
    return {**row, **{f"dead_tuples:{one['relname']}": one["dead"] for one in tables}}

"""Upkeep: leader election, retention, recounting of gates, migrations, and health."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.checks import KEY_KEPT_SECONDS, MINUTE_KEPT_SECONDS
from daybell.core.flow import BUCKET_SECONDS_KEPT
from daybell.core.limits import EVENT_SECONDS_KEPT, REPEAT_SECONDS_KEPT
from daybell.core.options import Keep
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    JOB_AGAIN_SECONDS,
    JOB_UNUSED_SECONDS,
    Check,
    Fate,
    Health,
    KeepPolicies,
    Removed,
    Retention,
    read_keep,
)
from daybell.core.worker import (
    Leadership,
    LeadershipRecord,
    Presence,
    WorkerState,
    presence_name,
    propose_leadership,
    release_leadership,
    request_leadership,
)
from daybell.errors import SchemaError, Unavailable
from daybell.store.codec import STATES, WORKER_CODES
from daybell.store.migrate import Applied, Migration, check, known_migrations, pending
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.context import ALL_TENANTS, SCHEDULES, HistoryWalk, StoreContext, Tx
from daybell.store.postgres.flow.limits import remove_buckets
from daybell.store.postgres.gates import remove_gates
from daybell.store.postgres.interventions import discard_old
from daybell.store.postgres.stats import remove_stats
from daybell.store.postgres.steps import forget_steps
from daybell.store.timeouts import Pace
from daybell.store.wakeups import pause


async def lead(
    pg: StoreContext, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
) -> Leadership | None:
    if since is None:
        return await _lead_at_once(pg, name, holder, lease)
    has_rebooted = False

    async def work() -> Leadership | None:
        nonlocal has_rebooted
        async with pg.transaction() as tx:
            seat = await _lock_seat(tx, name, holder)
            now: Instant = await tx.fetchval("SELECT daybell.now()")
            asked = request_leadership(
                seat,
                propose_leadership(name, holder, lease, now=now),
                since=since,
                present=await _present(tx, name),
                now=now,
            )
            if asked.seat != seat:
                await _put(tx, asked.seat)
            if asked.presence is not None:
                await _attend(tx, name, holder, asked.presence, now)
            has_rebooted = asked.is_reboot and await _reboot(tx, now)
            return asked.seat.leadership if asked.leads else None

    leadership = await pg.db.settled(work)
    if has_rebooted:
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
    return leadership


# The decision of `ask`, in one trip, for a holder that does not report since when it is up.
LEAD: Final = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    INSERT INTO daybell.leader AS l (name, holder, epoch, until, renewed_at)
    SELECT $1, $2, 1, now + $3, now FROM t
    ON CONFLICT (name) DO UPDATE
       SET holder = excluded.holder, until = excluded.until, renewed_at = excluded.renewed_at,
           epoch = l.epoch + (l.until <= (SELECT now FROM t))::int
     WHERE l.holder = $2 OR l.until <= (SELECT now FROM t)
    RETURNING l.epoch, l.until
    """


async def _lead_at_once(
    pg: StoreContext, name: str, holder: UUID, lease: Seconds
) -> Leadership | None:
    async with pg.db.link() as link:
        row = await link.fetchrow(LEAD, name, holder, lease)
    if row is None:
        return None
    return Leadership(name=name, holder=holder, epoch=row["epoch"], until=row["until"])


async def resign(pg: StoreContext, name: str, *, holder: UUID) -> None:
    async def work() -> None:
        async with pg.transaction() as tx:
            seat = await _lock_seat(tx, name)
            if seat is None:
                return
            now: Instant = await tx.fetchval("SELECT daybell.now()")
            presence = (await _present(tx, name)).get(holder)
            # The row stays, so that the epoch continues to rise, and the store knows how long a
            # holder was there.
            await _put(tx, release_leadership(seat, holder, presence, now=now))
            await tx.execute(
                "DELETE FROM daybell.leader WHERE name = $1 AND epoch = 0",
                presence_name(name, holder),
            )

    await pg.db.settled(work)


LOCK_SEAT: Final = """
    SELECT holder, epoch, until, renewed_at FROM daybell.leader WHERE name = $1 FOR UPDATE
    """
# Create a row to lock, for holders that come first at the same time.
MAKE_SEAT: Final = """
    INSERT INTO daybell.leader (name, holder, epoch, until, renewed_at)
    VALUES ($1, $2, 0, '-infinity', '-infinity') ON CONFLICT DO NOTHING
    """


async def _lock_seat(tx: Tx, name: str, holder: UUID | None = None) -> LeadershipRecord | None:
    """Return a leadership, locked until the transaction ends; create it for a holder if missing."""
    row = await tx.fetchrow(LOCK_SEAT, name)
    if row is None and holder is not None:
        await tx.execute(MAKE_SEAT, name, holder)
        row = await tx.fetchrow(LOCK_SEAT, name)
    if row is None:
        return None
    last = Leadership(name=name, holder=row["holder"], epoch=row["epoch"], until=row["until"])
    return LeadershipRecord(leadership=last, seen_at=row["renewed_at"])


PRESENT: Final = """
    SELECT holder, renewed_at, until FROM daybell.leader WHERE epoch = 0 AND starts_with(name, $1)
    """


async def _present(tx: Tx, name: str) -> dict[UUID, Presence]:
    """Return the processes that asked for a leadership and reported since when they are up."""
    rows = await tx.fetch(PRESENT, presence_name(name))
    return {row["holder"]: Presence(row["renewed_at"], row["until"]) for row in rows}


FORGET: Final = """
    DELETE FROM daybell.leader WHERE epoch = 0 AND starts_with(name, $1) AND until <= $2
    """
PUT_ROW: Final = """
    INSERT INTO daybell.leader (name, holder, epoch, until, renewed_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (name) DO UPDATE
       SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until,
           renewed_at = excluded.renewed_at
    """


async def _put(tx: Tx, seat: LeadershipRecord) -> None:
    last = seat.leadership
    values = last.name, last.holder, last.epoch, last.until, seat.seen_at
    await tx.execute(PUT_ROW, *values)


async def _attend(tx: Tx, name: str, holder: UUID, presence: Presence, now: Instant) -> None:
    await tx.execute(FORGET, presence_name(name), now)
    values = presence_name(name, holder), holder, 0, presence.until, presence.since
    await tx.execute(PUT_ROW, *values)


async def _reboot(tx: Tx, now: Instant) -> bool:
    """Make reboot schedules due: no process was there before. Return True if there are any."""
    answer = await tx.execute("UPDATE daybell.schedule SET next_at = $1 WHERE is_reboot", now)
    return answer != "UPDATE 0"


LEADERS: Final = """
    SELECT name, holder, epoch, until FROM daybell.leader
     WHERE until > daybell.now() AND epoch > 0 ORDER BY name COLLATE "C"
    """


async def list_leaders(pg: StoreContext) -> list[Leadership]:
    async with pg.db.link() as link:
        rows = await link.fetch(LEADERS)
    return [Leadership(**row) for row in rows]


# Removal of jobs that have nothing left.

JOBS_MAX: Final = 500  # jobs looked at in one round

LOCK_OVER_JOBS: Final = f"""
    SELECT key FROM daybell.job WHERE over_at <= $1
     ORDER BY over_at LIMIT {JOBS_MAX} FOR UPDATE SKIP LOCKED
    """
# Use a statement of its own, after the lock: it sees all that was committed before. Few definitions
# can name another job, and they are read once.
LOOK_AT_JOBS: Final = """
    WITH o AS MATERIALIZED (
      SELECT j.key, j.tenant, j.name, j.deleted_at IS NOT NULL AS is_deleted,
             j.unused_at IS NOT NULL AS is_unused,
             EXISTS (SELECT FROM daybell.live v WHERE v.job = j.key)
             OR EXISTS (SELECT FROM daybell.dead v WHERE v.job = j.key)
             OR EXISTS (SELECT FROM daybell.history v WHERE v.job = j.key AND v.node IS NULL)
             OR EXISTS (SELECT FROM daybell.schedule s
                         WHERE s.job = j.key AND (s.next_at IS NOT NULL OR s.since IS NOT NULL
                                                  OR s.delay IS NOT NULL OR s.is_reboot
                                                  OR s.event IS NOT NULL)) AS is_used
        FROM daybell.job j WHERE j.key = ANY($1::int[])),
    d AS MATERIALIZED (
      SELECT j.key, j.tenant, v.definition
        FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
       WHERE j.deleted_at IS NULL
         AND j.tenant = ANY(ARRAY(
               SELECT o.tenant FROM o WHERE NOT o.is_used AND NOT o.is_deleted))
         AND (v.definition LIKE '%"dependencies":["%' OR v.definition LIKE '%"kind":"workflow"%'
              OR v.definition LIKE '%"after%'))
    SELECT o.key, o.tenant, o.name, o.is_deleted, o.is_unused,
           o.is_used OR (NOT o.is_deleted AND EXISTS (
             SELECT FROM d WHERE d.tenant = o.tenant AND d.key <> o.key
                AND strpos(d.definition, '"' || o.name) > 0)) AS is_used
      FROM o
    """
USED_JOBS: Final = (
    "UPDATE daybell.job SET over_at = $2, unused_at = NULL WHERE key = ANY($1::int[])"
)
UNUSED_JOBS: Final = """
    UPDATE daybell.job
       SET deleted_at = coalesce(deleted_at, daybell.now()), paused_at = NULL, pause_note = '',
           unused_at = daybell.now(), over_at = daybell.now() + $2
     WHERE key = ANY($1::int[])
    """


async def forget_jobs(pg: StoreContext, before: Instant) -> tuple[int, bool]:
    """Remove jobs that are over and have nothing left, and delete those that ran once. Return the
    number of removed jobs, and whether there are more to check.
    """
    async with pg.db.transaction() as link:
        keys = [row["key"] for row in await link.fetch(LOCK_OVER_JOBS, before)]
        if not keys:
            return 0, False
        rows = await link.fetch(LOOK_AT_JOBS, keys)
        used = [row["key"] for row in rows if row["is_used"]]
        gone = [row["key"] for row in rows if not row["is_used"] and row["is_unused"]]
        unused = [row["key"] for row in rows if not row["is_used"] and not row["is_unused"]]
        if used:
            await link.execute(USED_JOBS, used, before + JOB_AGAIN_SECONDS)
        if unused:
            await link.execute(UNUSED_JOBS, unused, JOB_UNUSED_SECONDS)
        for table in ("schedule", "job_version"):
            ended = [*gone, *unused] if table == "schedule" else gone
            await link.execute(f"DELETE FROM daybell.{table} WHERE job = ANY($1::int[])", ended)
        await link.execute("DELETE FROM daybell.job WHERE key = ANY($1::int[])", gone)
    for row in rows:
        pg.names.forget_job(row["tenant"], row["name"])
    return len(gone), len(keys) == JOBS_MAX


REMOVED_ROWS_MAX: Final = 10_000
DAYS_AHEAD: Final = 3
MIGRATIONS: Final = "daybell.store.postgres"
MIGRATE_LOCK_SECONDS: Final = 2
MIGRATE_PAUSE_SECONDS: Final = 1.0
MIGRATE_TRIES: Final = 20
IN_THE_WAY: Final = (
    "a transaction of others keeps a table of Daybell from being changed, and nothing was; see"
    " pg_stat_activity for an old one (a dump, a forgotten psql), let it end and migrate again"
)
DEAD: Final = WORKER_CODES[WorkerState.DEAD]
# The names that this program reads and writes. A newer schema may have more: it can do without.
TABLES: Final = (
    "agenda", "alert_rule", "api_key", "attempt", "attempt_rest", "bucket", "collapsed", "dead",
    "event", "event_key", "export_policy", "flow_limit", "gate", "history", "history_rest",
    "holder", "idempotency", "incident", "job", "job_version", "lane", "leader", "lease", "live",
    "log", "log_rest", "merged", "missed", "node", "outbox", "parked", "paused_queue", "repeated",
    "run", "schedule", "secret", "share", "share_slot", "stat_fold", "stat_hour", "stat_minute",
    "stat_total", "step", "subscription", "template", "tenant", "tenant_minute", "tick", "trace",
    "wait", "waiter", "watch", "watched_file", "worker",
)  # fmt: skip
READ_ONLY: Final = ("audit", "audit_head")  # functions write them
FUNCTIONS: Final = (
    "charge", "collapse", "collapse_key", "count_enqueued", "drop_audit", "drop_days", "make_days",
    "now", "record_audit", "refuse_repeated", "rest_repeats",
)  # fmt: skip


# What an export still has to write is kept; infinity: there are no exports.
EXPORTED: Final = """
    SELECT daybell.now() AS now,
           coalesce(min((definition::json ->> 'until')::float8), 'infinity') AS exported
      FROM daybell.export_policy
    """


async def retain(pg: StoreContext, policy: Retention) -> Removed:
    with pg.db.at_pace(Pace.LONG):
        return await _retain(pg, policy)


async def _retain(pg: StoreContext, policy: Retention) -> Removed:
    async with pg.autocommit() as tx:
        row = await tx.fetchrow(EXPORTED)
        assert row is not None, "it has no condition"
        now: Instant = row["now"]
        exported: Instant = row["exported"]
        await tx.execute("SELECT daybell.make_days($1)", DAYS_AHEAD)
        walk = await _start_walk(tx, policy, now)
    before = min(now - walk.policies.longest, exported)
    partitions = 0
    for parent in ("history", "attempt", "log"):
        async with pg.autocommit() as tx:
            partitions += await tx.fetchval("SELECT daybell.drop_days($1, $2)", parent, before)
    async with pg.transaction() as tx:
        judged, has_more_days = await _judge_history(tx, walk, now, exported)
    async with pg.autocommit() as tx:
        executions = await _remove(tx, "history_rest", "finished_at < $1", before)
        attempts = await _remove(tx, "attempt_rest", "ended_at < $1", before)
        parts = await _remove(tx, "log_rest", "written_at < $1", before)
        ticks = await _remove(tx, "tick", "at < $1", min(now - policy.ticks, exported))
        workers = await _remove(
            tx,
            "worker w",
            f"state = {DEAD} AND renewed_at < $1"
            " AND NOT EXISTS (SELECT FROM daybell.lease l WHERE l.worker = w.id)",
            now - policy.workers,
        )
        others = await _remove_others(tx, now, before)
        steps, has_more_steps = await forget_steps(tx, before)
    gates = await remove_gates(pg, now)
    jobs, has_more_jobs = await forget_jobs(pg, before)
    counts = (executions, attempts, parts, ticks, workers, gates, *others)
    return Removed(
        executions=executions + judged,
        attempts=attempts,
        ticks=ticks,
        workers=workers,
        log_parts=parts,
        gates=gates,
        jobs=jobs,
        partitions=partitions,
        others=sum(others) + steps,
        is_complete=max(counts) < REMOVED_ROWS_MAX
        and not (has_more_days or has_more_steps or has_more_jobs),
    )


# Judging history by the policies of jobs and tenants.
#
# A day of history is dropped whole at the longest time of all policies. For each shorter time, a
# day that is older is read once, some pages at a time, and executions past their time are removed.
# The process that leads remembers the days that it has read. A changed policy makes it read them
# again, within the hour.

JUDGED_PAGES: Final = 256
WALK_SECONDS_LEAST: Final = 3600.0
TENANT_POLICIES: Final = "SELECT key, keep FROM daybell.tenant"
JOB_POLICIES: Final = """
    SELECT j.key, j.tenant, v.definition
      FROM daybell.job_version v JOIN daybell.job j ON j.key = v.job AND j.version = v.version
     WHERE v.definition LIKE '%"keep":{"%'
    """
HISTORY_DAYS: Final = r"""
    SELECT d.low, pg_relation_size(d.oid) / current_setting('block_size')::int AS pages FROM (
      SELECT c.oid, date_part('epoch', to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp) AS low
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
       WHERE i.inhparent = 'daybell.history'::regclass AND c.relname ~ '^history_\d{8}$') d
     ORDER BY d.low
    """
_OF_DAY: Final = "finished_at >= $1::float8 AND finished_at < $1::float8 + 86400"
HISTORY_PAGES: Final = f"""
    SELECT ctid::text, id, tenant, job, state, attempt, finished_at,
           result IS NOT NULL AS has_result, log IS NOT NULL AS has_log,
           CASE attempt WHEN 1 THEN started_at ELSE created_at END AS since
      FROM daybell.history WHERE {_OF_DAY} AND ctid >= $2::text::tid AND ctid < $3::text::tid
    """
# The statement checks the id, because the place of a revived row may have another one by now.
_AT: Final = f"{_OF_DAY} AND ctid = ANY($2::text[]::tid[]) AND id = ANY($3::uuid[])"
REMOVE_HISTORY: Final = f"DELETE FROM daybell.history WHERE {_AT}"
_OF_EXECUTIONS: Final = "id = ANY($1::uuid[]) AND {0} >= $2 AND {0} < $3"
REMOVE_LOGS: Final = f"DELETE FROM daybell.log WHERE {_OF_EXECUTIONS.format('written_at')}"
REMOVE_ATTEMPTS: Final = f"DELETE FROM daybell.attempt WHERE {_OF_EXECUTIONS.format('ended_at')}"
STRIP_ATTEMPTS: Final = f"""
    UPDATE daybell.attempt SET log = NULL
     WHERE log IS NOT NULL AND {_OF_EXECUTIONS.format("ended_at")}
    """
REMOVE_PARTS: Final = (
    "DELETE FROM daybell.wait WHERE execution = ANY($1::uuid[])",
    "DELETE FROM daybell.step WHERE execution = ANY($1::uuid[])",
)
# A run may have many nodes: they go with those of old runs.
END_RUNS: Final = "UPDATE daybell.run SET finished_at = '-infinity' WHERE id = ANY($1::uuid[])"


async def _start_walk(tx: Tx, policy: Retention, now: Instant) -> HistoryWalk:
    """Return the walk under way, or a new one if policies have changed since it was started."""
    walk = tx.pg.history_walk
    if walk is None or not walk.page:
        tenants = {
            row["key"]: Keep.from_json(row["keep"]) for row in await tx.fetch(TENANT_POLICIES)
        }
        jobs = {
            row["key"]: (row["tenant"], read_keep(row["definition"]))
            for row in await tx.fetch(JOB_POLICIES)
        }
        policies = KeepPolicies(policy, tenants, jobs)
        if walk is None or (
            policies != walk.policies and now >= walk.started_at + WALK_SECONDS_LEAST
        ):
            walk = tx.pg.history_walk = HistoryWalk(policies, now)
    return walk


async def _judge_history(
    tx: Tx, walk: HistoryWalk, now: Instant, exported: Instant
) -> tuple[int, bool]:
    """Judge a part of the first day that is exported and has reached another age; return the
    number of removed executions, and True if there is more to judge.
    """
    policies = walk.policies
    if policies.ends_dead_letters:
        discarded = await discard_old(tx, policies, now, REMOVED_ROWS_MAX)
        if discarded == REMOVED_ROWS_MAX:
            return 0, True
    for row in await tx.fetch(HISTORY_DAYS) if policies.ages else ():
        day, age = row["low"], now - row["low"] - 86400
        due = max((one for one in policies.ages if one <= age), default=0.0)
        if day + 86400 <= exported and due > walk.judged.get(day, 0.0):
            break
    else:
        return 0, False
    pages = f"({walk.page},0)", f"({walk.page + JUDGED_PAGES},0)"
    removed = await _judge(tx, policies, day, now, await tx.fetch(HISTORY_PAGES, day, *pages))
    walk.page += JUDGED_PAGES
    if walk.page >= row["pages"]:
        walk.page, walk.judged[day] = 0, due
    return removed, True


async def _judge(
    tx: Tx, policies: KeepPolicies, day: Instant, now: Instant, rows: Sequence[Row]
) -> int:
    fates: dict[Fate, list[Row]] = {}
    for row in rows:
        state = STATES[row["state"]]
        fate = policies.judge(row["tenant"], row["job"], state, now - row["finished_at"])
        if not fate.is_over:
            fate = Fate(False, fate.is_result_over and row["has_result"], fate.is_log_over)
        fates.setdefault(fate, []).append(row)
    removed = 0
    for fate, some in fates.items():
        ids, places = [row["id"] for row in some], [row["ctid"] for row in some]
        if fate.is_over or fate.is_log_over:
            # Parts of logs and attempts are in the days from the start to the end.
            since = min((row["since"] or row["finished_at"] for row in some), default=day)
            range_ = min(since, day), day + 2 * 86400
            retried = [row["id"] for row in some if row["attempt"] > 1]
            await tx.execute(REMOVE_LOGS, ids, *range_)
            await tx.execute(REMOVE_ATTEMPTS if fate.is_over else STRIP_ATTEMPTS, retried, *range_)
        if fate.is_over:
            for statement in (*REMOVE_PARTS, END_RUNS):
                await tx.execute(statement, ids)
            removed += int((await tx.execute(REMOVE_HISTORY, day, places, ids)).rpartition(" ")[2])
            continue
        some = [row for row in some if fate.is_result_over or row["has_log"]]
        columns = {"result": fate.is_result_over, "log": fate.is_log_over}
        emptied = ", ".join(f"{name} = NULL" for name, is_over in columns.items() if is_over)
        if emptied and some:
            places = [row["ctid"] for row in some]
            await tx.execute(f"UPDATE daybell.history SET {emptied} WHERE {_AT}", day, places, ids)
    return removed


# Runs end before their executions are removed, and some come back from the dead. As scalars,
# the subqueries are one probe for each.
OLD_RUNS: Final = f"""
    SELECT r.id FROM daybell.run r WHERE r.finished_at < $1
       AND (SELECT true FROM daybell.live v WHERE v.id = r.id AND v.tenant + 0 = r.tenant) IS NULL
       AND (SELECT true FROM daybell.dead d WHERE d.id = r.id AND d.tenant + 0 = r.tenant) IS NULL
     ORDER BY r.finished_at LIMIT {REMOVED_ROWS_MAX}
    """


async def _remove_runs(tx: Tx, before: Instant) -> list[int]:
    """Remove nodes of old runs, then the runs without nodes."""
    runs = [row["id"] for row in await tx.fetch(OLD_RUNS, before)]
    if not runs:
        return []
    nodes = await tx.execute(
        "DELETE FROM daybell.node WHERE ctid = ANY(ARRAY(SELECT n.ctid FROM daybell.node n"
        f" WHERE n.run = ANY($1::uuid[]) LIMIT {REMOVED_ROWS_MAX}))",
        runs,
    )
    removed = await tx.execute(
        "DELETE FROM daybell.run r WHERE r.id = ANY($1::uuid[])"
        " AND NOT EXISTS (SELECT FROM daybell.node n WHERE n.run = r.id)",
        runs,
    )
    return [int(answer.rpartition(" ")[2]) for answer in (nodes, removed)]


async def _remove_others(tx: Tx, now: Instant, before: Instant) -> list[int]:
    """Remove rows that have a time of their own, and rows that belong to executions."""
    removed = [
        *await _remove_runs(tx, before),
        *await remove_stats(tx, now, REMOVED_ROWS_MAX),
        await _remove(tx, "idempotency", "at < $1", now - REPEAT_SECONDS_KEPT),
        await _remove(tx, "repeated", "at < $1", now - REPEAT_SECONDS_KEPT),
        await _remove(tx, "collapsed c", _UNUSED_KEY, now),
        await _remove(tx, "merged", "at < $1", now - REPEAT_SECONDS_KEPT),
        await remove_buckets(tx, now - BUCKET_SECONDS_KEPT, REMOVED_ROWS_MAX),
        await _remove(tx, "trace t", _OLD_TRACE, before),
        await _remove(tx, "tenant_minute", "minute * 60 < $1", now - MINUTE_KEPT_SECONDS),
        await _remove(tx, "api_key", "least(revoked_at, expires_at) < $1", now - KEY_KEPT_SECONDS),
        await tx.fetchval("SELECT daybell.drop_audit($1)", REMOVED_ROWS_MAX),
        # Keys go before the events, so that no event is searched for in vain.
        await _remove(tx, "event_key", "received_at < $1", now - EVENT_SECONDS_KEPT),
        await _remove(tx, "event", "received_at < $1", now - EVENT_SECONDS_KEPT),
    ]
    await tx.execute("SELECT daybell.rest_repeats()")
    return removed


_OLD_TRACE: Final = (
    "created_at < $1 AND NOT EXISTS"
    " (SELECT FROM daybell.live v WHERE v.tenant = t.tenant AND v.id = t.id)"
)
_UNUSED_KEY: Final = (
    "keep_until < $1 AND NOT EXISTS"
    " (SELECT FROM daybell.live v WHERE v.tenant = c.tenant AND v.id = c.execution)"
)


async def _remove(tx: Tx, table: str, condition: str, before: Instant) -> int:
    name = table.split()[0]
    answer = await tx.execute(
        f"DELETE FROM daybell.{name} WHERE ctid = ANY(ARRAY("
        f"SELECT ctid FROM daybell.{table} WHERE {condition} LIMIT {REMOVED_ROWS_MAX}))",
        before,
    )
    return int(answer.rpartition(" ")[2])


APPLIED: Final = (
    "SELECT version, name, checksum, is_breaking FROM daybell.migration ORDER BY version"
)


async def _applied(tx: Link) -> list[Applied]:
    exists = await tx.fetchval("SELECT to_regclass('daybell.migration') IS NOT NULL")
    if not exists:
        return []
    return [Applied(*row.values()) for row in await tx.fetch(APPLIED)]


MISSING_RIGHTS: Final = """
    SELECT current_user AS role, m.verb, m.name FROM (
      SELECT CASE WHEN bool_or(r.word <> 'SELECT') THEN 'write' ELSE 'read' END AS verb, t.name
        FROM unnest($1::text[] || $3::text[]) t(name),
             unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r(word)
       WHERE NOT (t.name = ANY($3::text[]) AND r.word <> 'SELECT')
         AND NOT has_table_privilege('daybell.' || t.name, r.word)
       GROUP BY t.name
      UNION ALL
      SELECT 'call', p.proname FROM pg_proc p
       WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = ANY($2::text[])
         AND NOT has_function_privilege(p.oid, 'EXECUTE')) m
     ORDER BY m.verb DESC, m.name
    """


def fits() -> str:
    """Return a condition that holds if this program can work on the schema, and may. If it does
    not, `check_schema` reports the reason.
    """
    known = known_migrations(MIGRATIONS)
    steps = ", ".join(f"({one.version}, '{one.checksum}')" for one in known)
    missing = MISSING_RIGHTS
    for number, names in enumerate((TABLES, FUNCTIONS, READ_ONLY), start=1):
        words = ", ".join(f"'{name}'" for name in names)
        missing = missing.replace(f"${number}::text[]", f"ARRAY[{words}]::text[]")
    return f"""NOT EXISTS (
          SELECT FROM daybell.migration m
            FULL JOIN (VALUES {steps}) k(version, checksum) ON k.version = m.version
           WHERE k.checksum IS DISTINCT FROM m.checksum
             AND (k.version IS NOT NULL OR m.is_breaking))
        AND NOT EXISTS ({missing})"""


async def check_schema(pg: StoreContext) -> int:
    """Return the schema's version, if this program can work on it, and may."""
    async with pg.autocommit() as tx:
        version = check(known_migrations(MIGRATIONS), await _applied(tx))
    async with pg.autocommit() as tx:
        missing = await tx.fetch(MISSING_RIGHTS, TABLES, FUNCTIONS, READ_ONLY)
    if missing:
        names: dict[str, list[str]] = {}
        for row in missing:
            names.setdefault(row["verb"], []).append(f"daybell.{row['name']}")
        what = " or ".join(f"{verb} {', '.join(some)}" for verb, some in names.items())
        role = missing[0]["role"]
        raise SchemaError(
            f"role {role} may not {what}; run `daybell migrate --grant {shlex.quote(role)}`"
            " as the owner"
        )
    return version


async def pending_migrations(pg: StoreContext) -> tuple[str, ...]:
    await pg.db.open()
    async with pg.autocommit() as tx:
        missing = pending(known_migrations(MIGRATIONS), await _applied(tx))
    return tuple(migration.label for migration in missing)


CREATE: Final = """
    CREATE SCHEMA IF NOT EXISTS daybell;
    CREATE TABLE IF NOT EXISTS daybell.migration (
      version      int PRIMARY KEY,
      name         text NOT NULL,
      checksum     text NOT NULL,
      is_breaking  boolean NOT NULL,
      applied_at   timestamptz NOT NULL DEFAULT now()
    )
    """

RECORD_MIGRATION: Final = """
    INSERT INTO daybell.migration (version, name, checksum, is_breaking) VALUES ($1, $2, $3, $4)
    """

# A role that may do all with executions and call the functions that only `grant_to` lets it call
# has its rights from there. A role that was given less by hand is not given more here.
GRANTED: Final = """
    SELECT r.rolname FROM pg_roles r
     WHERE r.oid IN (
             SELECT a.grantee FROM pg_class c, aclexplode(c.relacl) a
              WHERE c.oid = to_regclass('daybell.live') AND a.grantee <> c.relowner
              GROUP BY a.grantee
             HAVING array_agg(a.privilege_type) @> ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'])
       AND r.oid IN (
             SELECT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
              WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = 'drop_days')
     ORDER BY 1
    """

GRANTED_ENQUEUE: Final = """
    SELECT DISTINCT r.rolname
      FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
     WHERE p.pronamespace = 'daybell'::regnamespace AND p.proname = 'enqueue'
       AND a.grantee <> p.proowner
     ORDER BY 1
    """


async def migrate(pg: StoreContext) -> tuple[str, ...]:
    """Apply missing steps. Roles that were granted rights have them on new objects, too."""
    await pg.db.open()
    known = known_migrations(MIGRATIONS)
    async with pg.autocommit() as tx:
        if not pending(known, await _applied(tx)):
            return ()  # a role without the right to create anything may ask, too
    tries = 0
    while True:
        try:
            return await _migrate(pg, known)
        except Unavailable as error:
            tries += 1
            if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise
            if tries == MIGRATE_TRIES:
                raise Unavailable(IN_THE_WAY) from error
        await pause(MIGRATE_PAUSE_SECONDS)


async def _migrate(pg: StoreContext, known: Sequence[Migration]) -> tuple[str, ...]:
    async with pg.db.apart(Pace.MIGRATION) as tx:
        # A step may take any time, and other processes that migrate wait for it here. The lock ends
        # with the transaction, so poolers are fine.
        await tx.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        await tx.execute("SELECT pg_advisory_xact_lock(hashtext('daybell.migrate'))")
        # But no step waits long for a table that is being read: all its users would queue up
        # behind, and workers that cannot renew lose their leases.
        await tx.execute(f"SET LOCAL lock_timeout = '{MIGRATE_LOCK_SECONDS}s'")
        await tx.execute(CREATE)
        missing = pending(known, await _applied(tx))
        # Read the rights before: a step may replace their objects.
        runners = await tx.fetch(GRANTED)
        enqueuers = await tx.fetch(GRANTED_ENQUEUE)
        for migration in missing:
            await tx.execute(migration.sql)
            step = migration.version, migration.name, migration.checksum, migration.is_breaking
            await tx.execute(RECORD_MIGRATION, *step)
        for row in runners:
            await tx.execute("SELECT daybell.grant_to($1)", row["rolname"])
        for row in enqueuers:
            await tx.execute("SELECT daybell.grant_enqueue_to($1)", row["rolname"])
    return tuple(migration.label for migration in missing)


async def grant(pg: StoreContext, role: str) -> None:
    """Give a role the rights that running needs, and none to change the schema."""
    async with pg.db.link() as link:
        await link.execute("SELECT daybell.grant_to($1)", role)


HEALTH: Final = """
    SELECT daybell.now() AS now, current_setting('server_version') AS version,
           current_setting('fsync') AS fsync,
           current_setting('full_page_writes') AS full_page_writes,
           current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('server_version_num')::int AS number,
           (SELECT count(*) FROM (SELECT FROM daybell.history_rest LIMIT 1000) r) AS unplaced,
           (SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity
             WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
               AND backend_type = 'client backend') AS oldest
    """


async def check_writable(pg: StoreContext) -> None:
    # Room that runs out needs no write to be found: a server that cannot write its log stops.
    async with pg.db.link() as link:
        if await link.fetchval("SELECT current_setting('transaction_read_only')") == "on":
            raise asyncpg.ReadOnlySQLTransactionError("the server takes no writes")


async def health(pg: StoreContext) -> Health:
    schema = await check_schema(pg)
    async with pg.db.link() as link:
        row = await link.fetchrow(HEALTH)
    assert row is not None
    lossy = [
        f"{name} = {row[name]}"
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if row[name] == "off"
    ]
    oldest = row["oldest"] or 0.0
    checks = (
        Check(name="schema", is_ok=True, found=f"version {schema}"),
        Check(
            name="server version",
            is_ok=row["number"] >= 150000,
            found=f"PostgreSQL {row['version']}",
            advice="Daybell is made for PostgreSQL 15 and later",
        ),
        Check(
            name="durability",
            is_ok=not lossy,
            found=", ".join(lossy) or "every commit is on disk before it is answered",
            advice="a crash can lose acknowledged work; turn these on in postgresql.conf",
        ),
        Check(
            name="old transactions",
            is_ok=oldest < 600,
            found=f"the oldest open transaction is {oldest:.0f} s old",
            advice="it keeps dead rows from being cleaned away; see pg_stat_activity",
        ),
        Check(
            name="partitions",
            is_ok=row["unplaced"] == 0,
            found=f"{row['unplaced']} finished executions outside the day partitions",
            advice="days were not prepared in time; a running scheduler puts this right",
        ),
        Check(
            name="pooler",
            is_ok=True,
            found="a pooler in transaction mode, so polling"
            if pg.db.is_pooled
            else "a pooler in session mode"
            if pg.db.is_session_pooled
            else "direct connection",
        ),
    )
    return Health(
        product=f"PostgreSQL {row['version']}", now=row["now"], schema=schema, checks=checks
    )

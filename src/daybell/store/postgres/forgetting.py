"""Taking away the steps and waits of executions that are gone, and jobs of which nothing is left.

Whole days of history are dropped without a look at what is in them, so nobody tells steps that
their execution has gone. They are walked through from the oldest, a part at a time.
"""

from __future__ import annotations

from math import inf
from typing import Final
from uuid import UUID

from daybell.core.instant import Instant
from daybell.core.view import JOB_AGAIN_SECONDS, JOB_UNUSED_SECONDS
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected

WALKED_MAX: Final = 5_000  # steps looked at in one round
START: Final[tuple[Instant, UUID]] = (-inf, UUID(int=0))


JOBS_MAX: Final = 500  # jobs looked at in one round


class Forgetting(Connected):
    """Retention of steps and jobs."""

    _forget_from = START  # how far the walk has come

    OLD_STEPS = f"""
    SELECT tenant, execution, started_at FROM daybell.step
     WHERE started_at < $1 AND (started_at, execution) > ($2, $3)
     ORDER BY started_at, execution LIMIT {WALKED_MAX}
    """
    # Scalars and OFFSET 0 make each of these a probe, whatever the planner believes of the tables.
    FORGET_STEPS = """
    WITH g AS MATERIALIZED (
      SELECT u.tenant, u.execution FROM unnest($1::int[], $2::uuid[]) u(tenant, execution)
       WHERE (SELECT true FROM daybell.live v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM daybell.dead v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM unnest('{6, 7, 8, 9}'::smallint[]) s(state),
                     LATERAL (SELECT FROM daybell.history h
                               WHERE h.tenant = u.tenant AND h.state = s.state
                                 AND h.id = u.execution LIMIT 1) h LIMIT 1) IS NULL),
    w AS (
      DELETE FROM daybell.wait WHERE ctid = ANY(ARRAY(
        SELECT w.place FROM g, LATERAL (SELECT w.ctid AS place FROM daybell.wait w
                 WHERE w.execution = g.execution AND w.tenant = g.tenant OFFSET 0) w)))
    DELETE FROM daybell.step WHERE ctid = ANY(ARRAY(
      SELECT s.place FROM g, LATERAL (SELECT s.ctid AS place FROM daybell.step s
               WHERE s.execution = g.execution AND s.tenant = g.tenant OFFSET 0) s))
    """

    async def forget_steps(self, link: Link, before: Instant) -> tuple[int, bool]:
        """Remove steps of executions that are gone, among some that began before that: the next
        call goes on behind them. Answers how many, and whether there are more to look at.
        """
        rows = await link.fetch(self.OLD_STEPS, before, *self._forget_from)
        is_end = len(rows) < WALKED_MAX
        self._forget_from = START if is_end else (rows[-1]["started_at"], rows[-1]["execution"])
        if not rows:
            return 0, False
        places = {(row["tenant"], row["execution"]) for row in rows}
        answer = await link.execute(self.FORGET_STEPS, *map(list, zip(*places, strict=True)))
        return int(answer.rpartition(" ")[2]), not is_end

    LOCK_OVER_JOBS = f"""
    SELECT key FROM daybell.job WHERE over_at <= $1
     ORDER BY over_at LIMIT {JOBS_MAX} FOR UPDATE SKIP LOCKED
    """
    # A statement of its own, after the lock: it sees what was committed before. Definitions that
    # can name another job are few, and are read once.
    LOOK_AT_JOBS = """
    WITH o AS MATERIALIZED (
      SELECT j.key, j.tenant, j.name, j.deleted_at IS NOT NULL AS is_deleted,
             j.unused_at IS NOT NULL AS is_unused,
             EXISTS (SELECT FROM daybell.live v WHERE v.job = j.key)
             OR EXISTS (SELECT FROM daybell.dead v WHERE v.job = j.key)
             OR EXISTS (SELECT FROM daybell.history v WHERE v.job = j.key AND v.node IS NULL)
             OR EXISTS (SELECT FROM daybell.schedule s
                         WHERE s.job = j.key AND (s.next_at IS NOT NULL OR s.since IS NOT NULL
                                                  OR s.delay IS NOT NULL OR s.is_reboot)) AS is_used
        FROM daybell.job j WHERE j.key = ANY($1::int[])),
    d AS MATERIALIZED (
      SELECT j.key, j.tenant, v.definition
        FROM daybell.job j JOIN daybell.job_version v ON v.job = j.key AND v.version = j.version
       WHERE j.deleted_at IS NULL
         AND j.tenant = ANY(ARRAY(
               SELECT o.tenant FROM o WHERE NOT o.is_used AND NOT o.is_deleted))
         AND (v.definition LIKE '%"dependencies":%' OR v.definition LIKE '%"kind":"workflow"%'
              OR v.definition LIKE '%"after%'))
    SELECT o.key, o.tenant, o.name, o.is_deleted, o.is_unused,
           o.is_used OR (NOT o.is_deleted AND EXISTS (
             SELECT FROM d WHERE d.tenant = o.tenant AND d.key <> o.key
                AND strpos(d.definition, '"' || o.name) > 0)) AS is_used
      FROM o
    """
    USED_JOBS = "UPDATE daybell.job SET over_at = $2, unused_at = NULL WHERE key = ANY($1::int[])"
    UNUSED_JOBS = """
    UPDATE daybell.job
       SET deleted_at = coalesce(deleted_at, daybell.now()), paused_at = NULL, pause_note = '',
           unused_at = daybell.now(), over_at = daybell.now() + $2
     WHERE key = ANY($1::int[])
    """

    async def forget_jobs(self, before: Instant) -> tuple[int, bool]:
        """Remove jobs that are over and of which nothing is left, and delete those that ran once.
        Answers how many are gone, and whether there are more to look at.
        """
        async with self.db.transaction() as link:
            keys = [row["key"] for row in await link.fetch(self.LOCK_OVER_JOBS, before)]
            if not keys:
                return 0, False
            rows = await link.fetch(self.LOOK_AT_JOBS, keys)
            used = [row["key"] for row in rows if row["is_used"]]
            gone = [row["key"] for row in rows if not row["is_used"] and row["is_unused"]]
            unused = [row["key"] for row in rows if not row["is_used"] and not row["is_unused"]]
            if used:
                await link.execute(self.USED_JOBS, used, before + JOB_AGAIN_SECONDS)
            if unused:
                await link.execute(self.UNUSED_JOBS, unused, JOB_UNUSED_SECONDS)
            for table in ("schedule", "job_version"):
                ended = [*gone, *unused] if table == "schedule" else gone
                await link.execute(f"DELETE FROM daybell.{table} WHERE job = ANY($1::int[])", ended)
            await link.execute("DELETE FROM daybell.job WHERE key = ANY($1::int[])", gone)
        for row in rows:
            self.names.forget_job(row["tenant"], row["name"])
        return len(gone), len(keys) == JOBS_MAX

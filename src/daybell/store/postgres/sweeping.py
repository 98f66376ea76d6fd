"""What is done about gates from time to time: counting anew, and taking away what is left over."""

from __future__ import annotations

from typing import Final

from daybell.core.instant import Instant
from daybell.core.overlap import Miscount
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.gates import Admission
from daybell.store.postgres.timeouts import Pace

REMOVED_GATES_MAX: Final = 1000
# Whoever found a job alive and enqueues it has come to its gate by then.
DELETED_SECONDS: Final = 3600.0


class Sweeping(Admission):
    """Upkeep of gates."""

    # In one look, so that a slot that is given or taken meanwhile is seen on both sides or on none.
    MISCOUNTS = """
    WITH i AS (
      SELECT v.tenant, v.gate, count(*) AS n FROM daybell.live v
       WHERE v.gate IS NOT NULL AND ($1::int IS NULL OR (v.tenant, v.gate) = ($1, $2))
         AND NOT EXISTS (
             SELECT FROM daybell.parked p WHERE p.tenant = v.tenant AND p.gate = v.gate
                AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id)
       GROUP BY v.tenant, v.gate)
    SELECT g.tenant, g.key, t.name, g.holders, coalesce(i.n, 0) AS inside
      FROM daybell.gate g JOIN daybell.tenant t ON t.key = g.tenant
      LEFT JOIN i ON i.tenant = g.tenant AND i.gate = g.key
     WHERE g.holders <> coalesce(i.n, 0) AND ($1::int IS NULL OR (g.tenant, g.key) = ($1, $2))
     ORDER BY t.name, g.key
    """

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        async with self.db.link(Pace.LONG) as link:  # it counts all executions that are inside
            rows = await link.fetch(self.MISCOUNTS, None, None)
        wrong = [_miscount(row) for row in rows]
        if not mend:
            return wrong
        mended = [await self.db.settled(lambda row=row: self._recount(row)) for row in rows]
        self.say_filled()
        return [one for one in mended if one is not None]

    async def _recount(self, row: Row) -> Miscount | None:
        """Count one gate anew, under its lock: nobody gets in or out meanwhile."""
        async with self.db.transaction() as link:
            await self.lock_gates(link, row["tenant"], [row["key"]])
            now = await link.fetchrow(self.MISCOUNTS, row["tenant"], row["key"])
            if now is None:
                return None
            change = now["inside"] - now["holders"]
            await self.take_slots(link, row["tenant"], {row["key"]: change})
            await self.admit_gates(link, row["tenant"], [row["key"]])
            return _miscount(now)

    # The jobs first, as whoever defines them does: one that is coming back is locked, and stays.
    OF_DELETED = """
    SELECT j.tenant, 'job:' || j.name AS key FROM daybell.job j
     WHERE j.deleted_at < $1 AND EXISTS (
           SELECT FROM daybell.gate g WHERE g.tenant = j.tenant AND g.key = 'job:' || j.name
              AND g.holders = 0)
     LIMIT $2 FOR SHARE SKIP LOCKED
    """
    OF_BACKFILLS = """
    SELECT tenant, key FROM daybell.gate
     WHERE starts_with(key, 'backfill:') AND holders = 0 LIMIT $1
    """
    OF_SCHEDULES = """
    SELECT g.tenant, g.key FROM daybell.gate g
     WHERE starts_with(g.key, 'job:') AND strpos(g.key, '/') > 0 AND g.holders = 0
       AND NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = g.tenant AND s.own_gate
             AND s.id = CASE WHEN strpos(g.key, '/') > 0 THEN right(g.key, 32)::uuid END)
     LIMIT $1
    """
    LOCK_IDLE = """
    SELECT g.tenant, g.key FROM daybell.gate g
     WHERE (g.tenant, g.key) IN (SELECT * FROM unnest($1::int[], $2::text[])) AND g.holders = 0
     ORDER BY g.tenant, g.key FOR UPDATE SKIP LOCKED
    """
    # A statement of its own, after the lock: who was parked just before is seen by this one.
    REMOVE_IDLE = """
    DELETE FROM daybell.gate g
     WHERE (g.tenant, g.key) IN (SELECT * FROM unnest($1::int[], $2::text[])) AND g.holders = 0
       AND NOT EXISTS (SELECT FROM daybell.parked p WHERE p.tenant = g.tenant AND p.gate = g.key)
       AND NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = g.tenant AND s.own_gate
             AND s.id = CASE WHEN strpos(g.key, '/') > 0 THEN right(g.key, 32)::uuid END)
    """

    async def remove_gates(self, now: Instant) -> int:
        """Remove gates that made themselves, when nobody is inside or waits, and no job or
        schedule needs them. Who comes to one that is gone makes it again.
        """

        async def work() -> int:
            async with self.db.transaction() as link:
                before = now - DELETED_SECONDS
                found = await link.fetch(self.OF_DELETED, before, REMOVED_GATES_MAX)
                found += await link.fetch(self.OF_BACKFILLS, REMOVED_GATES_MAX)
                found += await link.fetch(self.OF_SCHEDULES, REMOVED_GATES_MAX)
                return await self._remove_idle(link, found) if found else 0

        return await self.db.settled(work)

    async def _remove_idle(self, link: Link, found: list[Row]) -> int:
        locked = await link.fetch(
            self.LOCK_IDLE, [row["tenant"] for row in found], [row["key"] for row in found]
        )
        answer = await link.execute(
            self.REMOVE_IDLE, [row["tenant"] for row in locked], [row["key"] for row in locked]
        )
        return int(answer.rpartition(" ")[2])


def _miscount(row: Row) -> Miscount:
    return Miscount(
        tenant=row["name"], gate=row["key"], counted=row["holders"], inside=row["inside"]
    )

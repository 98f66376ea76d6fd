"""What happened lately, for rates."""

from __future__ import annotations

from daybell.core.view import Activity
from daybell.store.ids import LATE_SECONDS
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.timeouts import Pace


class Tallying(Connected):
    """Counts of the last seconds, which read only what is as young as that."""

    # The least id of a moment: its milliseconds, and no bit more.
    FIRST = "(lpad(to_hex(floor(({}) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid"
    # An execution may be finished already: then it is in history, in the part of a day. Its state
    # is named, so that each is found by its index.
    ACTIVITY = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    b AS MATERIALIZED (
      SELECT now, coalesce($2::float8, now) AS since, now - {LATE_SECONDS} AS lately,
             coalesce($2::float8, now) - {LATE_SECONDS} AS before,
             {FIRST.format(f"now - {LATE_SECONDS}")} AS first,
             {FIRST.format(f"coalesce($2::float8, now) - {LATE_SECONDS}")} AS first_before
        FROM t),
    x AS (
      SELECT v.id, 'infinity'::float8 AS at FROM daybell.live v
       WHERE v.tenant = $1 AND v.id >= (SELECT first_before FROM b)
      UNION ALL
      SELECT v.id, v.finished_at FROM daybell.dead v
       WHERE v.tenant = $1 AND v.id >= (SELECT first_before FROM b)
         AND v.finished_at >= (SELECT before FROM b)
      UNION ALL
      SELECT v.id, v.finished_at FROM unnest('{{6,7,8,9}}'::smallint[]) s(state),
             LATERAL (SELECT h.id, h.finished_at FROM daybell.history h
                       WHERE h.tenant = $1 AND h.state = s.state AND h.node IS NULL
                         AND h.id >= (SELECT first_before FROM b)
                         AND h.finished_at >= (SELECT before FROM b)
                      UNION ALL
                      SELECT h.id, h.finished_at FROM daybell.history h
                       WHERE h.tenant = $1 AND h.state = s.state AND h.node IS NOT NULL
                         AND h.id >= (SELECT first_before FROM b)
                         AND h.finished_at >= (SELECT before FROM b)) v)
    SELECT b.now,
           (SELECT count(*) FROM x) AS since_then,
           (SELECT count(*) FROM x WHERE x.id >= b.first AND x.at >= b.lately) AS recent,
           (SELECT count(*) FROM daybell.attempt a
             WHERE a.tenant = $1 AND a.ended_at > (SELECT since FROM b) AND a.outcome IN (2, 3, 4))
         + (SELECT count(*) FROM daybell.dead d
             WHERE d.tenant = $1 AND d.finished_at > (SELECT since FROM b)) AS failed
      FROM b
    """

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        async with self.db.link(Pace.VIEW) as link:
            key = await self.names.tenant(link, tenant)
            row = await link.fetchrow(self.ACTIVITY, key, None if since is None else since.now)
        assert row is not None
        recent = row["recent"] if since is None else since.recent
        return Activity(
            now=row["now"],
            enqueued=max(0, row["since_then"] - recent),
            failed=row["failed"],
            recent=row["recent"],
        )

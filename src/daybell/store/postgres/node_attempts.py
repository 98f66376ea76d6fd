"""The attempts at the nodes of a run, for a chart."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from daybell.core.execution import AttemptSpan
from daybell.store import driving
from daybell.store.checks import check_limit
from daybell.store.codes import OUTCOMES
from daybell.store.postgres.connection import SNAPSHOT, Row
from daybell.store.postgres.views import EXPANDED, RUNNING, WITH, Viewing

# What is kept by the day is looked for only around the days of the run. An attempt that nobody
# started may have ended before the first one that somebody did.
AROUND_SECONDS: Final = 86_400


class Charting(Viewing):
    """See `protocol.Runs`."""

    # Which nodes have begun, and when; one that has not ended did so since its run was expanded.
    BEGUN_NODES = f"""
    SELECT array_agg(n.execution) AS ids,
           least(min(coalesce(n.started_at, n.finished_at)),
                 (SELECT v.started_at FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = $2))
             - {AROUND_SECONDS} AS since,
           CASE WHEN bool_and(n.finished_at IS NOT NULL)
                THEN max(n.finished_at) + {AROUND_SECONDS} ELSE 'infinity' END AS until
      FROM daybell.node n
     WHERE n.run = $2 AND n.tenant = $1 AND n.of IS NULL AND n.execution IS NOT NULL
    """
    # One probe for each node and day, whatever the planner believes of the sizes: `+ 0` keeps off
    # the index of all that ended lately.
    ENDED_ATTEMPTS = """
    SELECT a.* FROM unnest($2::uuid[]) u(id), LATERAL (
      SELECT a.id, a.attempt, a.outcome, a.worker, a.started_at, a.ended_at
        FROM daybell.attempt a
       WHERE a.id = u.id AND a.tenant + 0 = $1 AND a.ended_at BETWEEN $3 AND $4
       ORDER BY a.attempt DESC LIMIT $5) a
    UNION ALL
    SELECT v.* FROM unnest($2::uuid[]) u(id), LATERAL (
      SELECT v.id, v.attempt, v.outcome, v.worker, v.started_at, v.finished_at
        FROM daybell.history v
       WHERE v.tenant = $1 AND v.state IN (6, 7, 8, 9) AND v.id = u.id AND v.node IS NOT NULL
         AND v.finished_at BETWEEN $3 AND $4 LIMIT 1) v
     WHERE v.outcome IS NOT NULL
    """
    CURRENT_ATTEMPTS = WITH + " UNION ALL ".join(
        f"SELECT id, attempt, outcome, worker, started_at, finished_at AS ended_at"
        f" FROM ({part} AND v.parent = $2 AND v.node IS NOT NULL) p"
        for part in (RUNNING, EXPANDED)
    )

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        check_limit(limit)
        async with self.db.transaction(SNAPSHOT) as link:
            key = await self.names.tenant(link, tenant)
            begun = await link.fetchrow(self.BEGUN_NODES, key, id)
            if begun is None or begun["ids"] is None:
                return {}
            ids, since, until = begun["ids"], begun["since"], begun["until"]
            since = float("-inf") if since is None else since
            rows = await link.fetch(self.ENDED_ATTEMPTS, key, ids, since, until, limit)
            if until == float("inf"):
                rows += await link.fetch(self.CURRENT_ATTEMPTS, key, id)
        known = set(ids)
        return driving.newest(
            ((row["id"], _span(row)) for row in rows if row["id"] in known), limit
        )


def _span(row: Row) -> AttemptSpan:
    outcome = row["outcome"]
    return AttemptSpan(
        row["attempt"],
        None if outcome is None else OUTCOMES[outcome],
        row["worker"],
        row["started_at"],
        row["ended_at"],
    )

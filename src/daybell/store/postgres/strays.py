"""Moving executions out of lanes that no worker asks for; see `store.strays`."""

from __future__ import annotations

from typing import Final

from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.workers import Leasing
from daybell.store.strays import needs_of_stray

MOVED_MAX: Final = 1000
# As a scalar, the look into the agenda is one probe for each such lane, of which there are few.
STRAYS: Final = """
    SELECT l.tenant, NULL::uuid[], l.key, l.queue FROM daybell.lane l
     WHERE l.needs = 'sql' AND (SELECT true FROM daybell.agenda a WHERE a.lane = l.key LIMIT 1)
    """


class Gathering(Leasing):
    """Moving them to where they belong."""

    STRAY_VERSIONS = """
    SELECT j.job, j.version, j.definition
      FROM (SELECT DISTINCT v.job, v.version FROM daybell.agenda a
              JOIN daybell.live v ON v.tenant + 0 = $1 AND v.id = a.id WHERE a.lane = $2) u
      JOIN daybell.job_version j ON j.job = u.job AND j.version = u.version
    """
    # With those that still wait at a gate. Whoever ends one locks it here first, too.
    LOCK_STRAYS = """
    SELECT id FROM daybell.live WHERE job = $1 AND version = $2 AND lane = $3 AND node IS NULL
     ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
    """
    MOVE_STRAYS = """
    WITH v AS (
      UPDATE daybell.live SET lane = $4 WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
      RETURNING id)
    UPDATE daybell.agenda a SET lane = $4 FROM v WHERE a.lane = $3 AND a.id = v.id
    """
    LANE = "SELECT key FROM daybell.lane WHERE tenant = $1 AND queue = $2 AND needs = $3"

    async def gather(self, tenant: int, lane: int, queue: str) -> int:
        """Move what is in such a lane to the lane of what its job needs."""
        async with self.db.link() as link:
            versions = await link.fetch(self.STRAY_VERSIONS, tenant, lane)
        moved = 0
        for row in versions:
            needs, count = needs_of_stray(row["definition"]), MOVED_MAX
            while needs is not None and count >= MOVED_MAX:
                count = await self.db.settled(
                    lambda row=row, needs=needs: self._move(tenant, lane, (queue, needs), row)
                )
                moved += count
        if moved:
            self.notifier.touch(tenant, [queue])
        return moved

    async def _move(self, tenant: int, lane: int, to: tuple[str, str], version: Row) -> int:
        async with self.db.transaction() as link:
            target = await self._lane(link, tenant, to)
            found = await link.fetch(
                self.LOCK_STRAYS, version["job"], version["version"], lane, MOVED_MAX
            )
            ids = [row["id"] for row in found]
            await link.execute(self.MOVE_STRAYS, tenant, ids, lane, target)
            return len(ids)

    async def _lane(self, link: Link, tenant: int, to: tuple[str, str]) -> int:
        await self.names.make_lanes(link, tenant, [to])
        return await link.fetchval(self.LANE, tenant, *to)

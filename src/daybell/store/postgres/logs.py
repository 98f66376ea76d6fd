"""What tasks said."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.log import LAST, LogPart, NewLogPart
from daybell.store import checks
from daybell.store.postgres.columns import IN_HISTORY
from daybell.store.postgres.moves import HELD, IS_HELD, Moving, by_lease, fences


class Logging(Moving):
    """See `protocol.Logs`."""

    WRITE_LOG = f"""
    WITH {HELD}
    INSERT INTO daybell.log (written_at, tenant, attempt, number, id, text)
    SELECT daybell.now(), $1, u.attempt, u.number, u.id, u.text
      FROM unnest($4::uuid[], $5::int[], $7::int[], $8::text[]) u(id, attempt, number, text),
           LATERAL (SELECT FROM daybell.live v
                     WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt AND {IS_HELD}
                     LIMIT 1) x
    """

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        leases = by_lease(parts)
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            await link.execute(
                self.WRITE_LOG,
                key,
                worker,
                list(leases),
                *fences(parts, leases),
                [part.number for part in parts],
                [part.text for part in parts],
            )

    # A part that was written again, because the answer to the first time was lost, is there twice.
    READ_LOG = f"""
    SELECT DISTINCT ON (attempt, number) attempt, number, text
      FROM (SELECT attempt, number, text FROM daybell.log WHERE tenant + 0 = $1 AND id = $2
            UNION ALL
            SELECT attempt, {LAST}, log FROM daybell.attempt WHERE tenant + 0 = $1 AND id = $2
            UNION ALL
            SELECT attempt, {LAST}, log FROM daybell.dead WHERE tenant + 0 = $1 AND id = $2
            UNION ALL
            SELECT h.attempt, {LAST}, h.log FROM unnest(ARRAY[$2::uuid]) u(id), {IN_HISTORY}) x
     WHERE text IS NOT NULL AND (attempt, number) > ($3, $4)
     ORDER BY attempt, number LIMIT $5
    """

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        checks.check_limit(limit, most=PAGE_ITEMS_MAX)
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.READ_LOG, key, id, *after, limit)
        return [LogPart(*row) for row in rows]

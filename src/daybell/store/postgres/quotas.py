"""How much a tenant may use.

Whoever creates something for a tenant with quotas locks its row last, counts what there is then,
and commits or rolls back: of two at a time, the second counts what the first has made. For tenants
without quotas nothing is asked, but for a look at the row every few seconds.
"""

from __future__ import annotations

from math import inf

from daybell.core.tenant import Quotas
from daybell.store.postgres.columns import IN_LEASE
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected
from daybell.store.quotas import JOBS_WAIT_SECONDS, exceeded


class Metering(Connected):
    """What is left of quotas."""

    async def quotas(self, tenant: int) -> Quotas:
        """What a tenant may use, as of a few seconds ago; for who holds no connection."""
        known = self.names.known_quotas(tenant)
        if known is None:
            async with self.db.link() as link:
                known = await self.names.quotas(link, tenant)
        return known

    # The function that `daybell.enqueue` uses as well. It locks the tenant first.
    CHARGE = "SELECT quota, most, wait FROM daybell.charge($1, $2)"

    async def charge(self, link: Link, tenant: int, made: int) -> None:
        """Count executions that this transaction has made. Raises QuotaExceeded."""
        if made == 0:
            return
        row = await link.fetchrow(self.CHARGE, tenant, made)
        if row is not None and row["quota"] is not None:
            name = await self.names.tenant_name(link, tenant)
            raise exceeded(name, row["quota"], most=row["most"], wait=row["wait"])

    LOCK_TENANT = "SELECT jobs_max FROM daybell.tenant WHERE key = $1 FOR NO KEY UPDATE"
    QUEUED_ROOM = """
    SELECT t.queued_max - (SELECT count(*) FROM (SELECT FROM daybell.live l WHERE l.tenant = t.key
                                                  LIMIT t.queued_max + 1) u)
      FROM daybell.tenant t WHERE t.key = $1
    """

    async def queued_room(self, link: Link, tenant: int, *, lock: bool = False) -> int | None:
        """How many more unfinished executions a tenant may have; None: as many as it likes. With
        the tenant locked, it stays true until this transaction ends.
        """
        if (await self.names.quotas(link, tenant)).queued is None:
            return None
        if lock:
            await link.execute(self.LOCK_TENANT, tenant)
        return await link.fetchval(self.QUEUED_ROOM, tenant)

    TRY_TENANT = f"{LOCK_TENANT} SKIP LOCKED"

    async def node_room(self, link: Link, tenant: int) -> float:
        """How many executions of nodes this transaction may create; without a quota, infinite.

        It never waits for the tenant's lock, which a caller's open transaction may have for long:
        the ends of nodes are not to wait for that. Then there is no room for now, and the run is
        driven again after the commit, or by upkeep.
        """
        if (await self.names.quotas(link, tenant)).queued is None:
            return inf
        if await link.fetchrow(self.TRY_TENANT, tenant) is None:
            return 0
        room: int | None = await link.fetchval(self.QUEUED_ROOM, tenant)
        return inf if room is None else max(0, room)

    COUNT_TICKS = "SELECT daybell.count_enqueued($1, $2)"

    async def count_ticks(self, link: Link, tenant: int, made: int) -> None:
        """Count executions of schedules, which are never refused."""
        if made and (await self.names.quotas(link, tenant)).per_minute is not None:
            await link.execute(self.COUNT_TICKS, tenant, made)

    KNOWN_JOBS = """
    SELECT count(*) FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL
    """
    COUNT_JOBS = "SELECT count(*) FROM daybell.job WHERE tenant = $1 AND deleted_at IS NULL"

    async def count_new_jobs(self, link: Link, tenant: int, names: set[str]) -> int:
        """How many of these are new, where that matters."""
        if (await self.names.quotas(link, tenant)).jobs is None:
            return 0
        return len(names) - await link.fetchval(self.KNOWN_JOBS, tenant, list(names))

    async def charge_jobs(self, link: Link, tenant: int, made: int) -> None:
        """Refuse jobs that this transaction has made if they are too many."""
        if made == 0:
            return
        most = await link.fetchval(self.LOCK_TENANT, tenant)
        if most is not None and await link.fetchval(self.COUNT_JOBS, tenant) > most:
            name = await self.names.tenant_name(link, tenant)
            raise exceeded(name, "jobs", most=most, wait=JOBS_WAIT_SECONDS)

    # Whoever claims for a tenant with a quota waits here for the one before him, and then counts
    # what he has taken.
    LOCK_RUNNING = "SELECT running_max FROM daybell.tenant WHERE key = $1 FOR NO KEY UPDATE"
    COUNT_RUNNING = f"""
    SELECT count(*) FROM (
      SELECT FROM daybell.worker w JOIN daybell.lease l ON l.worker = w.id AND l.tenant = w.tenant,
           {IN_LEASE}
       WHERE w.tenant = $1 LIMIT $2) r
    """

    async def running_max(self, link: Link, tenant: int) -> int | None:
        """How many executions of a tenant may run; nobody else claims any until this transaction
        ends. None: as many as there are.
        """
        return await link.fetchval(self.LOCK_RUNNING, tenant)

    async def room(self, link: Link, tenant: int, limit: int, most: int) -> int:
        """How many of these may be claimed."""
        return min(limit, most - await link.fetchval(self.COUNT_RUNNING, tenant, most))

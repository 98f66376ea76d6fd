"""The PostgreSQL store: all operations on one pool of connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from daybell.core.limits import POOL_SIZE
from daybell.core.units import Seconds
from daybell.core.worker import LEASE_SECONDS
from daybell.store.postgres.admin import Admitting, Auditing, Keeping
from daybell.store.postgres.catalog import Defining
from daybell.store.postgres.connection import Database
from daybell.store.postgres.interventions import Intervening
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES, WORKERS, Listener
from daybell.store.postgres.runs import Running
from daybell.store.postgres.schedules import Depending, Scheduling
from daybell.store.postgres.steps import Logging, Stepping
from daybell.store.postgres.transactions import Transacting
from daybell.store.postgres.upkeep import Maintaining
from daybell.store.postgres.views import Looking


class PostgresStore(
    Defining,
    Intervening,
    Transacting,
    Scheduling,
    Stepping,
    Depending,
    Logging,
    Looking,
    Running,
    Maintaining,
    Admitting,
    Auditing,
    Keeping,
):
    """Executions in the schema `daybell` of a PostgreSQL database, 15 or later."""

    def __init__(
        self,
        url: str,
        *,
        listen_url: str | None = None,
        lease: Seconds = LEASE_SECONDS,
        pool_size: int = POOL_SIZE,
    ) -> None:
        super().__init__(Database(url, lease=lease, pool_size=pool_size), listen_url=listen_url)
        self._listeners: set[Listener] = set()

    async def open(self) -> None:
        if await self.db.open(self.fits()):
            return
        try:
            await self.check_schema()  # which says what is wrong
        except BaseException:
            await self.db.close()
            raise

    async def close(self) -> None:
        for listener in list(self._listeners):
            await listener.stop()
        await self.notifier.close()
        await self.close_task_connections()
        await self.db.close()

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        # A worker that starts claims at this moment, and would have to open a second connection.
        if (key := self.names.known_tenant(tenant)) is None:
            async with self.db.link() as link:
                key = await self.names.tenant(link, tenant)
        wanted = {f"{key}:{queue}": wake for queue in queues}
        if ask is not None:
            wanted[f"{key}:{WORKERS}"] = ask
        return await self._listen(wanted)

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        return await self._listen({f"{ALL_TENANTS}:{SCHEDULES}": wake})

    async def _listen(self, wanted: dict[str, Callable[[], None]]) -> Callable[[], Awaitable[None]]:
        near = self.notifier.near
        near.append(wanted)
        listener: Listener | None = None
        if not self.db.is_pooled or self.listen_url is not None:
            # A pooler passes no notifications on.
            listener = Listener(
                self.listen_url or self.db.url,
                wanted,
                lineage=self.db.lineage,
                timeouts=self.db.timeouts,
                interval=2 * self.db.lease,
                takes_settings=self.listen_url is not None or not self.db.is_session_pooled,
            )
            self._listeners.add(listener)

        async def stop() -> None:
            near[:] = [one for one in near if one is not wanted]
            if listener is not None:
                self._listeners.discard(listener)
                await listener.stop()

        if listener is not None:
            await listener.start()
        return stop

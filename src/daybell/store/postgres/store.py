"""The PostgreSQL store: all its parts on one pool of connections."""

from __future__ import annotations

from daybell.store.postgres.definitions import Defining
from daybell.store.postgres.interventions import Intervening
from daybell.store.postgres.schedules import Scheduling
from daybell.store.postgres.upkeep import Maintaining
from daybell.store.postgres.views import Viewing


class PostgresStore(Defining, Intervening, Scheduling, Viewing, Maintaining):
    """Executions in the schema `daybell` of a PostgreSQL database, 15 or later."""

    async def open(self) -> None:
        await self.db.open()
        try:
            await self.check_schema()
        except BaseException:
            await self.db.close()
            raise

    async def close(self) -> None:
        await self.db.close()

"""Transactions that a task writes in and that its end is made in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.execution import State
from daybell.core.lifecycle import Transition
from daybell.errors import Unavailable, UsageError
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.connection import (
    POOL_IDLE_SECONDS,
    READ_COMMITTED,
    TASK_SESSION,
    Connection,
    Database,
    close_pool,
    terminate,
    translated,
    watch_peer,
)
from daybell.store.postgres.moves import Batch, Moving

TASK_CONNECTIONS_MAX: Final = 10
BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
# Whether it was committed, nobody can say. Every other error is the server's word that it was not.
NO_ANSWER: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
ABORTED: Final = (
    "the transaction was ended by an error that the task has caught, so nothing of it can be"
    " committed; put what may fail into a savepoint: async with connection.transaction()"
)

ENDED: Final = (
    "the task has ended the transaction itself, so its writes and its end are not one commit; leave"
    " out COMMIT and ROLLBACK, and put what may be undone into a savepoint: async with"
    " connection.transaction()"
)

_driver: Any = asyncpg  # it has no types of its own


class Transacting(Moving):
    """See `protocol.Transactions`. The connections are apart from the store's own, whose settings
    suit its statements and nobody else's.
    """

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        super().__init__(db, listen_url=listen_url)
        self._task_pools: dict[UUID, Any] = {}  # by worker, whose name the sessions bear
        self._task_timelines: dict[UUID, int] = {}  # that the connections of a pool are on

    async def begin(self, worker: UUID) -> Transaction:
        pool = await self._task_pool(worker)
        with translated():
            try:
                connection, transaction = await self._begin_on(pool)
            except TimeoutError:
                # An idle connection has gone deaf, and nothing was done on it.
                await pool.expire_connections()
                connection, transaction = await self._begin_on(pool)
        return Transaction(self, pool, connection, transaction)

    async def _begin_on(self, pool: Any) -> tuple[Any, Any]:
        # Not in a limited time: all connections may be in use for as long as the tasks like.
        connection = await pool.acquire()
        transaction = connection.transaction(isolation=READ_COMMITTED)
        try:
            async with asyncio.timeout(self.db.timeouts.command):
                await transaction.start()
        except BaseException as error:
            if isinstance(error, TimeoutError):
                terminate(connection)
            await pool.release(connection)
            raise
        return connection, transaction

    async def _task_pool(self, worker: UUID) -> Any:
        pool = self._task_pools.get(worker)
        if pool is None:
            timeouts = self.db.timeouts
            # What the task does takes as long as it takes. But the server must notice when its
            # machine is gone: until then, all that it has locked stays locked, by default for two
            # hours. A pooler passes the name on, and no other setting.
            settings = {"application_name": f"{TASK_SESSION}{worker}"}
            options: dict[str, Any] = {"server_settings": settings}
            if self.db.is_pooled:
                options["statement_cache_size"] = 0
            elif not self.db.is_session_pooled:
                options["server_settings"] = settings | timeouts.peer
            # Not connected yet, so nothing is awaited between the look and the assignment.
            pool = self._task_pools[worker] = _driver.create_pool(
                self.db.url,
                min_size=0,
                max_size=min(TASK_CONNECTIONS_MAX, self.db.pool_size),
                max_inactive_connection_lifetime=POOL_IDLE_SECONDS,
                connection_class=Connection,
                timeout=timeouts.connect,
                init=partial(watch_peer, timeouts=timeouts),
                connect=self.db.connect,
                **options,
            )
        with translated():
            await pool
            timeline = self.db.lineage.timeline
            if self._task_timelines.setdefault(worker, timeline) != timeline:
                self._task_timelines[worker] = timeline
                await pool.expire_connections()
        return pool

    async def close_task_connections(self) -> None:
        pools, self._task_pools = self._task_pools, {}
        for pool in pools.values():
            await close_pool(pool, self.db.timeouts.connect)

    async def finish_in(self, link: Any, tenant: str, worker: UUID, move: Transition) -> bool:
        """Make one end in a transaction that somebody else commits."""
        batch = Batch(tenant, worker, [move])
        key = await self.names.tenant(link, tenant)
        # Leases that are over are left to others: this transaction may be undone.
        if move.gate is None and move.schedule is None and move.run is None:
            return await self.succeed(link, key, batch, over=[])
        made = (await self.end_linked(link, key, batch, over=[])).values()
        return [row["state"] for row in made] == [STATE_CODES[State.SUCCEEDED]]


class Transaction:
    """See `protocol.TaskTransaction`."""

    def __init__(self, store: Transacting, pool: Any, connection: Any, transaction: Any) -> None:
        self.connection = connection
        self._store = store
        self._pool = pool
        self._transaction: Any = transaction  # None: it is over

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        try:
            # Several short statements; after a lease, nobody would believe the answer.
            async with asyncio.timeout(self._store.db.lease):
                is_made = await self._finish(tenant, worker, move)
        except asyncpg.InFailedSQLTransactionError:
            raise UsageError(ABORTED) from None
        except NO_ANSWER as error:
            with suppress(*BROKEN):
                self.connection.terminate()
            raise Unavailable(f"PostgreSQL does not answer: {error}") from error
        if is_made:
            self._store.settle(worker, {move.lease: 1})
            await self._store.after_commit(self._store.names.known_tenant(tenant))
        return is_made

    async def _finish(self, tenant: str, worker: UUID, move: Transition) -> bool:
        if not self.connection.is_in_transaction() and not self.connection.is_closed():
            raise UsageError(ENDED)
        await self._store.db.set_local(self.connection)
        await self._store.db.replan(self.connection)
        is_made = await self._store.finish_in(self.connection, tenant, worker, move)
        transaction, self._transaction = self._transaction, None
        await (transaction.commit() if is_made else transaction.rollback())
        return is_made

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                seconds = self._store.db.timeouts.command
                await asyncio.wait_for(transaction.rollback(), seconds)
        except BROKEN:
            with suppress(*BROKEN):  # one that broke is out of the pool's hands already
                self.connection.terminate()  # then the server undoes what was begun on it
        with suppress(*BROKEN):
            await pool.release(self.connection)

"""Transactions that a task writes in and that its end is made in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.execution import State
from daybell.core.lifecycle import Transition
from daybell.errors import Unavailable, UsageError
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.connection import (
    CONNECT_SECONDS,
    READ_COMMITTED,
    SETTINGS,
    translated,
    watch_peer,
)
from daybell.store.postgres.moves import Batch, Moving

TASK_CONNECTIONS_MAX: Final = 10
CLOSE_SECONDS: Final = 5.0
FINISH_SECONDS: Final = 60.0
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
# What the task does takes as long as it takes. But the server must notice when its machine is gone:
# until then, all that it has locked stays locked, by default for two hours.
TASK_SETTINGS: Final = {
    "application_name": "daybell task",
    **{name: value for name, value in SETTINGS.items() if name.startswith("tcp_")},
}
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

    _task_pool: Any = None
    _task_timeline = 0

    async def begin(self) -> Transaction:
        pool = await self._tasks_connections()
        with translated():
            connection = await pool.acquire()
            transaction = connection.transaction(isolation=READ_COMMITTED)
            try:
                await transaction.start()
            except BaseException:
                await pool.release(connection)
                raise
        return Transaction(self, pool, connection, transaction)

    async def _tasks_connections(self) -> Any:
        if self._task_pool is None:
            options: dict[str, Any] = {"server_settings": TASK_SETTINGS}
            if self.db.is_pooled:
                options = {"statement_cache_size": 0}
            # Not connected yet, so nothing is awaited between the look and the assignment.
            self._task_pool = _driver.create_pool(
                self.db.url,
                min_size=0,
                max_size=TASK_CONNECTIONS_MAX,
                timeout=CONNECT_SECONDS,
                init=watch_peer,
                connect=self.db.connector(),
                **options,
            )
        with translated():
            await self._task_pool
            self._task_timeline = await self.db.lineage.follow(self._task_pool, self._task_timeline)
        return self._task_pool

    async def close_task_connections(self) -> None:
        if self._task_pool is not None:
            pool, self._task_pool = self._task_pool, None
            try:
                await asyncio.wait_for(pool.close(), CLOSE_SECONDS)
            except BROKEN:
                pool.terminate()

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
            async with asyncio.timeout(FINISH_SECONDS):
                is_made = await self._finish(tenant, worker, move)
        except asyncpg.InFailedSQLTransactionError:
            raise UsageError(ABORTED) from None
        except NO_ANSWER as error:
            with suppress(*BROKEN):
                self.connection.terminate()
            raise Unavailable(f"PostgreSQL does not answer: {error}") from error
        if is_made:
            self._store.settle(worker, {move.lease: 1})
            await self._store.after_commit()
        return is_made

    async def _finish(self, tenant: str, worker: UUID, move: Transition) -> bool:
        if not self.connection.is_in_transaction() and not self.connection.is_closed():
            raise UsageError(ENDED)
        await self._store.db.set_local(self.connection)
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
                await asyncio.wait_for(transaction.rollback(), CLOSE_SECONDS)
        except BROKEN:
            with suppress(*BROKEN):  # one that broke is out of the pool's hands already
                self.connection.terminate()  # then the server undoes what was begun on it
        with suppress(*BROKEN):
            await pool.release(self.connection)

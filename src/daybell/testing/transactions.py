"""`ctx.transaction()` on a bench: real writes, and an end that is kept in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from daybell.core.lifecycle import Transition
from daybell.errors import UsageError, shown

if TYPE_CHECKING:
    from daybell.testing.store import BenchStore

_NO_CONNECTION = (
    "ctx.transaction() needs a connection to PostgreSQL, and this test gave none: {call}, with an"
    " asyncpg connection or a URL"
)


def check_connection(connection: Any) -> None:
    """Refuse what is neither a connection of asyncpg nor a URL of PostgreSQL."""
    if isinstance(connection, str):
        if not connection.startswith(("postgresql://", "postgres://")):
            raise UsageError("connection: the URL has to begin with postgresql://")
    elif connection is not None and not hasattr(connection, "is_in_transaction"):
        raise UsageError(
            f"connection is an asyncpg connection or a postgresql:// URL, not {shown(connection)};"
            " of a pool, give one of its connections: async with pool.acquire() as connection",
            field="connection",
        )


async def begin(connection: Any, store: BenchStore | None, *, call: str) -> BenchTransaction:
    """Begin a transaction of a task: in that of the test, if the test has begun one.

    `store` keeps the execution, if there is one; `call` is how the test gives a connection.
    """
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # only these tests need it

    driver: Any = asyncpg
    if connection is None:
        raise UsageError(_NO_CONNECTION.format(call=call))
    is_own = isinstance(connection, str)
    link: Any = await driver.connect(connection) if is_own else connection
    if getattr(link, "_loop", None) not in (None, asyncio.get_running_loop()):
        raise UsageError(
            "the connection is of another event loop than the one that the task runs in; a test"
            " without an event loop (bench.sync) gives a URL instead"
        )
    transaction = link.transaction()  # a savepoint, if the test has begun a transaction
    try:
        await transaction.start()
    except driver.InterfaceError as error:
        raise UsageError(
            f"the connection of the test cannot begin a transaction: {error}; begin that of the"
            " test with `async with connection.transaction():`"
        ) from None
    return BenchTransaction(link, transaction, store, is_own=is_own)


class BenchTransaction:
    """See `store.protocol.TaskTransaction`."""

    def __init__(
        self, connection: Any, transaction: Any, store: BenchStore | None, *, is_own: bool
    ) -> None:
        self.connection = connection
        self._transaction: Any = transaction  # None: it is over
        self._store = store
        self._is_own = is_own  # made for this transaction

    async def commit(self) -> None:
        import asyncpg  # pyright: ignore[reportMissingTypeStubs]

        from daybell.store.postgres.transactions import ABORTED, ENDED

        transaction, self._transaction = self._transaction, None
        if not self.connection.is_in_transaction():
            raise UsageError(ENDED)
        try:
            await self.connection.execute("SELECT 1")  # a failed COMMIT could not be rolled back
        except asyncpg.InFailedSQLTransactionError:
            await transaction.rollback()
            raise UsageError(ABORTED) from None
        await transaction.commit()

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        assert self._store is not None
        if not self._store.may_succeed(move):
            return False
        # Commit first: the store in memory cannot take the end back if a constraint fails.
        await self.commit()
        return not await self._store.apply(tenant, worker=worker, transitions=[move])

    async def close(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and self.connection.is_in_transaction():
            await transaction.rollback()
        if self._is_own:
            await self.connection.close()

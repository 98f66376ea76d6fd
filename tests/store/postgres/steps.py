"""Operations that stop between two statements, so that a test can let another one in.

A `SteppedDatabase` takes the place of a store's own. Its connections count statements; after the
one that a `Stop` names, and before anything is committed, the operation stands still until the
test resumes it. Then it goes on, or its connection breaks: before the commit (all of the
transaction is undone) or after it (only the answer is lost).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, TypeVar

import asyncpg

from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import SETTINGS, Database, Lineage, translate_errors
from tests.builders import TENANT

T = TypeVar("T")
DEADLINE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.001


class Fate(Enum):
    """What becomes of an operation after its stop."""

    GOES_ON = "goes on"
    BREAKS = "breaks before its commit"
    UNANSWERED = "breaks after its commit"


class Broken(ConnectionError):
    """The connection is gone, as far as the store can tell."""


class Stop:
    """Stand still after so many statements. Without a number: never."""

    def __init__(self, after: int | None = None, fate: Fate = Fate.GOES_ON) -> None:
        self.after = after
        self.fate = fate
        self.statements = 0
        self.is_over = False
        self.reached = asyncio.Event()
        self.resumed = asyncio.Event()

    async def arrival(self) -> None:
        """Wait until the operation stands still."""
        await asyncio.wait_for(self.reached.wait(), DEADLINE_SECONDS)

    async def passed(self) -> None:
        """A statement is done, its transaction is not."""
        self.statements += 1
        if self.statements != self.after or self.is_over:
            return
        self.reached.set()
        await self.resumed.wait()
        self.is_over = True
        if self.fate is Fate.BREAKS:
            raise Broken("broken before the commit")

    def committed(self) -> None:
        """A transaction is done."""
        if self.is_over and self.fate is Fate.UNANSWERED:
            self.fate = Fate.GOES_ON
            raise Broken("broken after the commit")


class SteppedTransaction:
    """An asyncpg transaction or savepoint that says when it was committed."""

    def __init__(self, link: SteppedLink) -> None:
        self._link = link
        self._is_outermost = not link.connection.is_in_transaction()
        self._inner = link.connection.transaction()

    async def start(self) -> None:
        await self._inner.start()

    async def commit(self) -> None:
        await self._inner.commit()
        if self._is_outermost:
            self._link.stop.committed()

    async def rollback(self) -> None:
        await self._inner.rollback()

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.commit() if kind is None else self.rollback())


class SteppedLink:
    """A connection whose statements are counted; one without a transaction gets its own."""

    def __init__(self, connection: asyncpg.Connection, stop: Stop) -> None:
        self.connection = connection
        self.stop = stop

    def transaction(self, *, isolation: str | None = None) -> SteppedTransaction:
        return SteppedTransaction(self)

    async def _step(self, statement: Awaitable[T]) -> T:
        if self.connection.is_in_transaction():
            answer = await statement
            await self.stop.passed()
            return answer
        async with self.transaction():
            answer = await statement
            await self.stop.passed()
        return answer

    def terminate(self) -> None:
        self.connection.terminate()

    async def fetch(self, query: str, *args: object) -> Any:
        return await self._step(self.connection.fetch(query, *args))

    async def fetchrow(self, query: str, *args: object) -> Any:
        return await self._step(self.connection.fetchrow(query, *args))

    async def fetchval(self, query: str, *args: object) -> Any:
        return await self._step(self.connection.fetchval(query, *args))

    async def execute(self, query: str, *args: object) -> str:
        return await self._step(self.connection.execute(query, *args))

    async def copy_records_to_table(self, table_name: str, **options: Any) -> str:
        return await self._step(self.connection.copy_records_to_table(table_name, **options))


class SteppedDatabase(Database):
    """Two connections of a known identity, and the stop of the operation under way."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lineage = Lineage()
        self.lineage.is_unsupported = True  # to check the server is no step
        self.stop = Stop()
        self._idle: list[asyncpg.Connection] = []
        self.connections: list[asyncpg.Connection] = []

    @property
    def is_open(self) -> bool:
        return bool(self.connections)

    async def open(self, fit: str = "true") -> bool:
        # A deadlock that takes a second to be noticed would be a second per case.
        settings = SETTINGS | {"deadlock_timeout": "20ms", "lock_timeout": "10s"}
        while len(self.connections) < 2:
            connection = await asyncpg.connect(self.url, server_settings=settings)
            self.connections.append(connection)
            self._idle.append(connection)
        return False

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    @property
    def processes(self) -> list[int]:
        return [connection.get_server_pid() for connection in self.connections]

    @asynccontextmanager
    async def _borrowed(self, pace: object = None) -> AsyncGenerator[Any]:
        connection = self._idle.pop()
        try:
            with translate_errors():
                yield SteppedLink(connection, self.stop)
        finally:
            self._idle.append(connection)


class SteppedStore(PostgresStore):
    """A store whose operations can be stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.db = self.pace = SteppedDatabase(url)


async def stepped_store(url: str) -> SteppedStore:
    """The same, open."""
    store = SteppedStore(url)
    await store.open()
    return store


async def is_blocked(sql: asyncpg.Connection, processes: list[int]) -> bool:
    """Whether one of these waits for a lock that another session holds."""
    blocked = "SELECT bool_or(pg_blocking_pids(p) <> '{}') FROM unnest($1::int[]) p"
    return bool(await sql.fetchval(blocked, processes))


async def settle(sql: asyncpg.Connection, task: asyncio.Task[Any], processes: list[int]) -> bool:
    """Wait until an operation has ended or waits for a lock; True: it waits."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_SECONDS)
            if not task.done() and await is_blocked(sql, processes):
                return True
    return False


async def warmed(store: PostgresStore) -> None:
    """Have a store learn the tenant and the lanes that its first claim would look up."""
    names = store.context.names
    async with store.db.link() as link:
        tenant = await names.tenant(link, TENANT)
        await names.find_lanes(link, tenant, ["default"], ["task"])

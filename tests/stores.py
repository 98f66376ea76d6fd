"""Where the stores under test live, each with a clock that a test can move.

The memory store and SQLite take a clock as an argument. PostgreSQL's SQL asks `daybell.now()`;
here that is a function which reads a one-row table, so its time stands still too, and all times
compare exactly.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import asyncpg

from daybell.store.memory import MemoryStore
from daybell.store.protocol import Store
from tests.postgres import Postgres, Version

TEST_ALL: Final = os.environ.get("DAYBELL_TEST_ALL") == "1"
POSTGRES: dict[str, Version] = {"postgres": "18"}
if TEST_ALL:
    POSTGRES["postgres16"] = "16"
KINDS: Final = ("memory", "sqlite", *POSTGRES)
SHARED_KINDS: Final = ("sqlite", *POSTGRES)  # several processes can open the same one

TEMPLATE: Final = "daybell_template"
SETTABLE_CLOCK: Final = """
CREATE TABLE daybell.test_clock (now float8 NOT NULL);
INSERT INTO daybell.test_clock VALUES (date_part('epoch', clock_timestamp()));
CREATE OR REPLACE FUNCTION daybell.now() RETURNS float8 LANGUAGE sql VOLATILE
  AS 'SELECT now FROM daybell.test_clock';
"""


class ManualClock:
    """Time that stands still until it is moved. Whole seconds at first, so that sums are exact."""

    def __init__(self) -> None:
        self._now = float(int(time.time()))

    def now(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        self._now += seconds


class DatabaseClock(ManualClock):
    """The same, kept by a database whose `daybell.now()` was replaced."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        super().__init__()
        self._connection = connection

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        await self._connection.execute("UPDATE daybell.test_clock SET now = $1", self.now())


@dataclass
class Place:
    """Where the data of one store is."""

    kind: str
    url: str  # for other processes; the memory store has none
    clock: ManualClock
    memory: Store | None = None

    def connect(self) -> Store:
        """A store on this data, not opened yet; of the memory store there is only one."""
        return self.memory or connect(self.kind, self.url, self.clock)


def connect(kind: str, url: str, clock: ManualClock | None = None) -> Store:
    """A store by the names used here; for other processes too, then on the real clock."""
    # Imported by name and late: a process that tests one store needs no other.
    if kind == "sqlite":
        options = {} if clock is None else {"clock": clock.now}
        return import_module("daybell.store.sqlite").SqliteStore(url, **options)
    return import_module("daybell.store.postgres").PostgresStore(url)


class Servers:
    """PostgreSQL servers, started when first asked for, each with a migrated database to copy."""

    def __init__(self) -> None:
        self._running: dict[Version, Postgres] = {}
        self._names = (f"test_{number}" for number in itertools.count())

    def get(self, version: Version) -> Postgres:
        if version not in self._running:
            server = Postgres(version=version)
            server.start()
            self._running[version] = server
        return self._running[version]

    async def prepared(self, version: Version) -> Postgres:
        """A server that has the template."""
        is_new = version not in self._running
        server = await asyncio.to_thread(self.get, version)
        if is_new:
            await prepare_template(server)
        return server

    @asynccontextmanager
    async def database(self, version: Version, *, empty: bool = False) -> AsyncIterator[str]:
        """The URL of a database of its own: a copy of the template, or an empty one."""
        server = await self.prepared(version)
        name = next(self._names)
        template = "template1" if empty else TEMPLATE
        await execute(server.url(), f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield server.url(name)
        finally:
            await execute(server.url(), f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        for server in self._running.values():
            server.close()


async def prepare_template(server: Postgres) -> None:
    url = await asyncio.to_thread(server.create_database, TEMPLATE)
    store = connect("postgres", url)
    await store.migrate()
    await store.close()
    await execute(url, SETTABLE_CLOCK)


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def open_place(kind: str, folder: Path, servers: Servers) -> AsyncIterator[Place]:
    """A fresh place of one kind, migrated."""
    if kind == "memory":
        clock = ManualClock()
        yield Place(kind, "", clock, MemoryStore(clock=clock.now))
    elif kind == "sqlite":
        place = Place(kind, str(folder / "daybell.db"), ManualClock())
        store = place.connect()
        await store.migrate()
        await store.close()
        yield place
    else:
        async with servers.database(POSTGRES[kind]) as url:
            connection = await asyncpg.connect(url)
            try:
                clock = DatabaseClock(connection)
                await clock.advance(0)
                yield Place(kind, url, clock)
            finally:
                await connection.close()

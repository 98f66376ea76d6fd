"""Where the stores under test live, each with a clock that a test can move.

SQLite takes a clock as an argument. PostgreSQL's SQL asks `daybell.now()`;
here that is a function which reads a one-row table, so its time stands still too, and all times
compare exactly.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import asyncpg
import psycopg2
import psycopg2.extensions

from daybell.store.protocol import Store
from tests.postgres import Postgres, Version

TEST_ALL: Final = os.environ.get("DAYBELL_TEST_ALL") == "1"
POSTGRES: dict[str, Version] = {"postgres": "18"}
if TEST_ALL:
    POSTGRES["postgres16"] = "16"
KINDS: Final = ("sqlite", *POSTGRES)

TEMPLATE: Final = "daybell_template"
LIVE_TEMPLATE: Final = "daybell_live"  # the same on the real clock
# In any order, whatever references what; and what a failed test still holds is not waited for.
KEEPER: Final = "-c session_replication_role=replica -c lock_timeout=1s"
ADDITIONS: Final = Path(__file__).with_suffix(".sql")
MIGRATED_FILE: Final[list[bytes]] = []  # one, as soon as it is made


# Noon of a Wednesday, far from the ends of a day, a month and a year, and from changes of clocks.
START: Final = 1773230400.0


class ManualClock:
    """Time that stands still until it is moved. It starts the same in every run."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        self._now += seconds


class DatabaseClock(ManualClock):
    """The same, kept by a database whose `daybell.now()` was replaced."""

    def __init__(self, connection: psycopg2.extensions.connection) -> None:
        super().__init__()
        self._connection = connection

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        with self._connection.cursor() as cursor:
            cursor.execute("UPDATE daybell_test.clock SET now = %s", [self.now()])


@dataclass
class Place:
    """Where the data of one store is."""

    kind: str
    url: str  # for other processes; a store in memory has none
    clock: ManualClock
    memory: Store | None = None

    def connect(self) -> Store:
        """A store on this data, not opened yet; in memory there is only one."""
        return self.memory or connect(self.kind, self.url, self.clock)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """The same, open as long as this lasts."""
        store = self.connect()
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def connect(kind: str, url: str, clock: ManualClock | None = None) -> Store:
    """A store by the names used here; for other processes too, then on the real clock."""
    # Imported by name and late: a process that tests one store needs no other.
    if kind == "sqlite":
        options = {} if clock is None else {"clock": clock.now}
        return import_module("daybell.store.sqlite").SqliteStore(url, **options)
    return import_module("daybell.store.postgres").PostgresStore(url)


@dataclass
class Database:
    """One that is migrated, and the session that puts it right after each test."""

    name: str
    url: str
    keeper: psycopg2.extensions.connection


class Servers:
    """PostgreSQL servers, started when first asked for, each with a migrated database to copy."""

    def __init__(self) -> None:
        self._running: dict[Version, Postgres] = {}
        self._clean: dict[Version, list[Database]] = {one: [] for one in POSTGRES.values()}
        self._names = (f"test_{number}" for number in itertools.count())

    def close(self) -> None:
        for server in self._running.values():
            server.close()

    @asynccontextmanager
    async def database(self, version: Version) -> AsyncIterator[str]:
        """The URL of an empty database."""
        server = await asyncio.to_thread(self._server, version)
        name = next(self._names)
        await execute(server.url(), f"CREATE DATABASE {name}")
        try:
            yield server.url(name)
        finally:
            await execute(server.url(), f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def live(self, version: Version) -> AsyncIterator[str]:
        """The URL of a new migrated database that goes by the real time."""
        server = await asyncio.to_thread(self._server, version)
        name = await copy_template(server, next(self._names), LIVE_TEMPLATE)
        try:
            yield server.url(name)
        finally:
            await execute(server.url(), f"DROP DATABASE {name} WITH (FORCE)")

    @asynccontextmanager
    async def migrated(self, version: Version) -> AsyncIterator[Database]:
        """A migrated database that is as good as new."""
        server = await asyncio.to_thread(self._server, version)
        clean = self._clean[version]
        if clean:
            database = clean.pop()
        else:
            name = await copy_template(server, next(self._names))
            database = Database(
                name, server.url(name), psycopg2.connect(server.url(name), options=KEEPER)
            )
            database.keeper.autocommit = True
        try:
            yield database
        finally:
            if await asyncio.to_thread(reset, database.keeper):
                clean.append(database)
            else:
                database.keeper.close()
                await execute(server.url(), f"DROP DATABASE {database.name} WITH (FORCE)")

    def _server(self, version: Version) -> Postgres:
        if version not in self._running:
            self._running[version] = Postgres(version=version)
            self._running[version].start()
        return self._running[version]


async def copy_template(server: Postgres, name: str, template: str = TEMPLATE) -> str:
    """A new migrated database, by copying one that is made for the purpose if need be."""
    try:
        await execute(server.url(), f"CREATE DATABASE {name} TEMPLATE {template}")
    except asyncpg.InvalidCatalogNameError:
        draft = f"{template}_draft"
        await execute(server.url(), f"DROP DATABASE IF EXISTS {draft}")
        await execute(server.url(), f"CREATE DATABASE {draft}")
        store = connect("postgres", server.url(draft))
        await store.migrate()
        await store.close()
        if template == TEMPLATE:
            await execute(server.url(draft), ADDITIONS.read_text())
        await execute(server.url(), f"ALTER DATABASE {draft} RENAME TO {template}")
        await execute(server.url(), f"CREATE DATABASE {name} TEMPLATE {template}")
    return name


async def migrated_file(folder: Path) -> bytes:
    """A new SQLite file, migrated once in this folder; to copy it takes a twentieth of the time."""
    if not MIGRATED_FILE:
        draft = folder / "draft.db"
        store = connect("sqlite", str(draft))
        await store.migrate()
        await store.close()
        MIGRATED_FILE.append(draft.read_bytes())
        draft.unlink()
    return MIGRATED_FILE[0]


def reset(keeper: psycopg2.extensions.connection) -> bool:
    """Undo what a test has done to its database; False if that is not possible."""
    try:
        with keeper.cursor() as cursor:
            cursor.execute("SELECT daybell_test.reset()")
            return cursor.fetchone() == (True,)
    except psycopg2.Error:
        return False


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
        yield Place(kind, "", clock, connect("sqlite", ":memory:", clock))
    elif kind == "sqlite":
        file = folder / "daybell.db"
        file.write_bytes(await migrated_file(folder))
        yield Place(kind, str(file), ManualClock())
    else:
        async with servers.migrated(POSTGRES[kind]) as database:
            clock = DatabaseClock(database.keeper)
            await clock.advance(0)
            yield Place(kind, database.url, clock)

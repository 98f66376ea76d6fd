"""The place of the data under measurement: databases of one PostgreSQL server, or SQLite files.

The store migrates every place, so the floor works on the final tables with all their indexes. Both
kinds of server are configured for production: every commit is on disk before it is answered.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import asyncpg

from benchmarks.executions import TENANT, new_job, prepared
from benchmarks.processes import process_cpu
from daybell.store.protocol import Store
from tests.postgres import Postgres
from tests.stores import connect

Kind = Literal["sqlite", "postgres"]
KINDS: Final[tuple[Kind, ...]] = ("sqlite", "postgres")

DEFAULT_POSTGRES: Final = "18"
# A checkpoint in the middle of a run would hit one side and not the other.
SERVER_SETTINGS: Final = {"checkpoint_timeout": "1h"}


class ServerTime(dict[str, float]):
    """Seconds of processor time by process."""

    def since(self, earlier: ServerTime) -> float:
        """Return the time used in between. A process that has ended meanwhile is not counted."""
        return sum(seconds - earlier.get(pid, 0.0) for pid, seconds in self.items())


class Place:
    """One database."""

    def __init__(self, kind: Kind, url: str, server: Postgres | None = None) -> None:
        self.kind: Kind = kind
        self.url = url
        self._server = server

    def store(self) -> Store:
        """A store on this place, not opened yet."""
        return connect(self.kind, self.url)

    async def make(self) -> None:
        """Create the tables, the job and its lane."""
        store = self.store()
        await store.migrate()
        await store.open()
        try:
            await store.catalog.define_jobs(TENANT, [new_job()])
            await store.queue.enqueue(TENANT, prepared(1))
        finally:
            await store.close()
        await self.clear()

    async def clear(self) -> None:
        """Remove all executions, and their changes in the log."""
        if self.kind == "postgres":
            tables = "daybell.live, daybell.agenda, daybell.lease, daybell.history, daybell.log"
            tables += ", daybell.run, daybell.node"
            await self.run(f"TRUNCATE {tables}")
            return
        with closing(sqlite3.connect(self.url, timeout=60)) as connection:
            for table in ("execution", "lease", "log", "run", "node", "node_text"):
                connection.execute(f"DELETE FROM {table}")
                connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    @property
    def database_url(self) -> str:
        """Return its URL, for an App."""
        return self.url if self.kind == "postgres" else f"sqlite:///{self.url}"

    @property
    def server_log(self) -> Path:
        """Return the log of the server, if there is one."""
        assert self._server is not None, "SQLite has no server"
        return self._server.folder / "log"

    async def ask(self, statement: str) -> Any:
        """Return the first value of a query; tables go by their short names."""
        if self.kind == "postgres":
            return await self.run("SET search_path = daybell", statement)
        with closing(sqlite3.connect(self.url, timeout=60)) as connection:
            return connection.execute(statement).fetchone()[0]

    async def run(self, *statements: str) -> Any:
        """Run statements on a separate connection; return the first value of the last one."""
        link = await asyncpg.connect(self.url)
        try:
            for statement in statements[:-1]:
                await link.execute(statement)
            return await link.fetchval(statements[-1])
        finally:
            await link.close()

    def server_cpu(self) -> ServerTime:
        """Return the time used by the processes of the server; SQLite has none."""
        if self._server is None:
            return ServerTime()
        postmaster = Path(f"/proc/{self._server.pid}/task/{self._server.pid}")
        try:
            children = (postmaster / "children").read_text().split()
        except OSError:
            return ServerTime()
        return ServerTime({pid: process_cpu(pid) for pid in children})


class Ground:
    """A server, or a folder, for places."""

    def __init__(self, kind: Kind, folder: Path, server: Postgres | None) -> None:
        self._kind: Kind = kind
        self._folder = folder
        self._server = server

    async def place(self, name: str) -> Place:
        """A new place, migrated and empty."""
        if self._server is None:
            place = Place(self._kind, str(self._folder / f"{name}.db"))
        else:
            place = Place(self._kind, self._server.create_database(name), self._server)
        await place.make()
        return place

    def drop(self, name: str) -> None:
        """Remove a place with its million rows."""
        if self._server is not None:
            self._server.drop_database(name)
            return
        for file in self._folder.glob(f"{name}.db*"):
            file.unlink()


@contextmanager
def open_ground(kind: Kind) -> Iterator[Ground]:
    """Open a ground for places, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="daybell-bench-") as folder:
        if kind == "sqlite":
            yield Ground(kind, Path(folder), None)
        else:
            with Postgres(version=DEFAULT_POSTGRES, durable=True, **SERVER_SETTINGS) as server:
                yield Ground(kind, Path(folder), server)

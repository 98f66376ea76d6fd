"""The SQLite store: opening, closing, and schema migration."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NoReturn
from uuid import UUID

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.schedule import Firing
from daybell.errors import Unavailable, UsageError
from daybell.store import migrate
from daybell.store.migrate import Applied, Migration
from daybell.store.sqlite import connection as sqlite_connection
from daybell.store.sqlite.admin import SqliteAccess, SqliteAudit, SqliteVault
from daybell.store.sqlite.catalog import SqliteDefinitions
from daybell.store.sqlite.connection import (
    Bell,
    Clock,
    CommitProbe,
    Reader,
    Writer,
    retry_while_busy,
    translate_error,
)
from daybell.store.sqlite.enqueue import SqliteEnqueue
from daybell.store.sqlite.gates import SqliteGates
from daybell.store.sqlite.progress import take_pending_runs
from daybell.store.sqlite.queue import SqliteApply, SqliteClaim, SqliteInterventions
from daybell.store.sqlite.schedules import SqliteDependencies, SqliteSchedules, next_cursor
from daybell.store.sqlite.steps import SqliteLogs, SqliteRuns, SqliteSteps
from daybell.store.sqlite.transaction import Transaction
from daybell.store.sqlite.upkeep import SqliteUpkeep
from daybell.store.sqlite.views import SqliteViews
from daybell.store.sqlite.workers import SqliteWorkers
from daybell.store.wakeups import Listeners, Signal, Wake

PACKAGE: Final = "daybell.store.sqlite"
WATCH_SECONDS: Final = 0.05  # the latency between processes where no bell is heard

StopListening = Callable[[], Awaitable[None]]


class SqliteStore(
    SqliteDefinitions,
    SqliteEnqueue,
    SqliteClaim,
    SqliteApply,
    SqliteInterventions,
    SqliteWorkers,
    SqliteSchedules,
    SqliteRuns,
    SqliteSteps,
    SqliteDependencies,
    SqliteGates,
    SqliteLogs,
    SqliteViews,
    SqliteUpkeep,
    SqliteAccess,
    SqliteAudit,
    SqliteVault,
):
    """A store in one file, for as many processes of one machine as like."""

    def __init__(self, path: str, *, clock: Clock = time.time) -> None:
        super().__init__(path, clock)
        self._listeners = Listeners()
        self._schedule_listeners = Listeners()
        self._watch: asyncio.Task[None] | None = None
        self._bell = Bell(path)

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> StopListening:
        await self._read(lambda tx: tx.names.tenant(tx, tenant))
        return self._hear(self._listeners.add(wake, ask))

    async def listen_schedules(self, wake: Wake) -> StopListening:
        return self._hear(self._schedule_listeners.add(wake))

    def _hear(self, stop_hearing: StopListening) -> StopListening:
        """Watch the file as long as somebody listens."""
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_file())

        async def stop() -> None:
            await stop_hearing()
            if not len(self._listeners) and not len(self._schedule_listeners):
                await self._stop_watching()

        return stop

    async def _watch_file(self) -> None:
        """Notice what another process has committed to the file."""
        log, seen, cursor = CommitProbe(self._path), 0, None
        self._bell.open()
        while True:
            try:
                if log.is_worth_a_look():
                    version = await self._read(_data_version)
                    if version != seen:
                        # Of a schedule only the first cursor counts, whichever way it was moved.
                        before, cursor = cursor, await self._read(next_cursor)
                        if cursor != before:
                            self._schedule_listeners.wake()
                        self._listeners.wake()
                    log.looked(is_new=version != seen)
                    seen = version
            except Unavailable:
                pass  # the next look may go well
            await self._bell.wait(WATCH_SECONDS)

    def _give(self, signal: Signal) -> None:
        if signal is Signal.ASK:
            self._listeners.ask()
        elif signal is Signal.CLAIM:
            self._tell()
        else:
            self._schedule_listeners.wake()
            self._bell.ring()

    def _tell(self) -> None:
        """Something may be there to claim, which is committed: wake who waits, also elsewhere."""
        self._listeners.wake()
        self._bell.ring()

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        answers = await super().enqueue(tenant, executions, repeat=repeat, entries=entries)
        self._tell()
        return answers

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        count = await super().load(tenant, executions)
        self._tell()
        return count

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        answers = await super().fire(firings)
        self._tell()
        return answers

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        count = await super().release_dependents(tenant, ids)
        self._tell()
        return count

    async def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._bell.close()

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        await super().resume_job(tenant, name, firings)
        self._tell()

    async def drain(self, tenant: str, worker: UUID) -> bool:
        is_drained = await super().drain(tenant, worker)
        self._listeners.ask()
        return is_drained

    async def begin(self, worker: UUID) -> NoReturn:
        raise checks.no_transactions("SQLite")

    async def open(self) -> None:
        if self._writer is not None:
            return
        applied = await asyncio.to_thread(read_applied, self._path)
        if applied is None:
            raise sqlite_connection.missing_file_error(self._path)
        migrate.check(migrate.known_migrations(PACKAGE), applied)
        writer = Writer(self._path, self._clock, self._give, take_pending_runs)
        reader = Reader(self._path, self._clock)
        await writer.start()
        try:
            await reader.start()
        except BaseException:
            await writer.stop()
            raise
        self._writer, self._reader = writer, reader

    async def pending_migrations(self) -> tuple[str, ...]:
        applied = await asyncio.to_thread(read_applied, self._path)
        return step_names(migrate.pending(migrate.known_migrations(PACKAGE), applied or []))

    async def migrate(self) -> tuple[str, ...]:
        return step_names(await asyncio.to_thread(apply_migrations, self._path, self._clock))

    async def close(self) -> None:
        await self._stop_watching()
        self._bell.flush()
        threads = [thread for thread in (self._reader, self._writer) if thread is not None]
        self._writer = self._reader = None
        # They end even if nobody waits for it any more.
        await asyncio.shield(stop_threads(threads))


def _data_version(tx: Transaction) -> int:
    return tx.execute("PRAGMA data_version").fetchone()[0]


async def stop_threads(threads: list[Reader | Writer]) -> None:
    """End one after the other: only who is alone when it leaves tidies up the log."""
    for thread in threads:
        await thread.stop()


def step_names(migrations: list[Migration]) -> tuple[str, ...]:
    return tuple(f"{step.version:04}_{step.name}" for step in migrations)


def read_applied(path: str) -> list[Applied] | None:
    """The steps that a file remembers; None: there is no file."""
    sqlite_connection.check_path(path)
    if not os.path.exists(path):
        return None
    try:
        with closing(sqlite_connection.connect(path)) as connection:
            return retry_while_busy(lambda: applied_steps(connection, path))
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


_HAS_TABLE: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'migration'"
_APPLIED: Final = "SELECT version, name, checksum, is_breaking FROM migration ORDER BY version"


def applied_steps(connection: sqlite3.Connection, path: str) -> list[Applied]:
    """The steps that a database remembers. Raises UsageError for a database of somebody else."""
    # In this order: who sees tables that another process has just made sees its mark as well.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != sqlite_connection.APPLICATION_ID and (application or tables):
        raise UsageError(
            f"{path} holds the data of another program; give Daybell a file of its own"
        )
    if connection.execute(_HAS_TABLE).fetchone() is None:
        return []
    return [
        Applied(version, name, checksum, bool(is_breaking))
        for version, name, checksum, is_breaking in connection.execute(_APPLIED)
    ]


_REMEMBER_STEPS: Final = """
CREATE TABLE IF NOT EXISTS migration (
    version     INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    checksum    TEXT NOT NULL,
    is_breaking INTEGER NOT NULL,
    applied_at  REAL NOT NULL
) STRICT
"""
_REMEMBER: Final = """
INSERT INTO migration (version, name, checksum, is_breaking, applied_at) VALUES (?, ?, ?, ?, ?)
"""


def apply_migrations(path: str, clock: Clock) -> list[Migration]:
    """Make the steps that are missing, all or none; who comes second finds them made."""
    sqlite_connection.check_path(path)
    sqlite_connection.create_file(path)
    try:
        with closing(sqlite_connection.connect(path)) as connection:
            # Before anything is changed in somebody else's file.
            retry_while_busy(lambda: applied_steps(connection, path))
            sqlite_connection.use_wal(connection, path)
            retry_while_busy(lambda: connection.execute("BEGIN EXCLUSIVE"))
            known = migrate.known_migrations(PACKAGE)
            missing = migrate.pending(known, applied_steps(connection, path))
            connection.execute(f"PRAGMA application_id = {sqlite_connection.APPLICATION_ID}")
            connection.execute(_REMEMBER_STEPS)
            for step in missing:
                for statement in statements(step.sql):
                    connection.execute(statement)
                row = (step.version, step.name, step.checksum, int(step.is_breaking), clock())
                connection.execute(_REMEMBER, row)
            retry_while_busy(lambda: connection.execute("COMMIT"))
            return missing
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def statements(script: str) -> Iterator[str]:
    """The statements of a script one by one, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

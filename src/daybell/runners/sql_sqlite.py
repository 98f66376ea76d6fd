"""Statements in SQLite files, each with a connection of its own in one of a few threads."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

import msgspec

from daybell.runners.sql_rows import Parameters, Rows, Say, StatementFailed

THREADS_MAX: Final = 4
# A file that others write to is waited for so many times so long. Not at once: a thread that waits
# cannot be told to stop.
BUSY_SECONDS: Final = 0.25
BUSY_TRIES: Final = 20
STEPS: Final = 10_000  # of SQLite's machine between two looks at whether to stop

# Of a text, a blob, or a row that is stored. SQLite would make a gigabyte if asked to. A statement
# can still ask for many of them in one row.
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024

LASTING: Final = frozenset(
    {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_RANGE,
    }
)
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# They reach out of the file, or make it lie about itself.
_PRAGMAS_REFUSED: Final = frozenset(
    {"data_store_directory", "temp_store_directory", "trusted_schema", "writable_schema"}
)
_FUNCTIONS_REFUSED: Final = frozenset({"load_extension", "fts3_tokenizer"})


class SqliteDatabase:
    """One file, which must be there."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=f"daybell-sql-{name}")

    async def run(
        self, statement: str, parameters: Parameters, *, rows_max: int, say: Say
    ) -> dict[str, Any]:
        """See `Database`. Cancelling it interrupts the statement, and waits until it has ended."""
        work = _Work(self._path, statement, parameters.values, rows_max)
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._threads, work.run)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            work.stop()
            await asyncio.wait([done])
            _ = done.cancelled() or done.exception()  # it has been heard
            raise
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError) as error:
            raise self._failed(error) from None

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _failed(self, error: Exception) -> StatementFailed:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        where = f"on connection {self._name!r}"
        if code is None:  # Python's own words, about the statement or its parameters
            said = str(error)
            if "one statement" in said:
                said = "the statement is several; a job runs one"
            elif isinstance(error, OverflowError):
                said = "a parameter is a number of more than 64 bits; pass it as text"
            elif isinstance(error, UnicodeEncodeError):
                said = "a parameter has half a character in it (a lone surrogate)"
            return StatementFailed(f"{where}: {said}", is_lasting=True)
        said = f"{where}, {getattr(error, 'sqlite_errorname', code)}: {error}"
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
            said += f"; is there a file {self._path}? It is not made by a job"
        elif code & 0xFF == sqlite3.SQLITE_AUTH or "not authorized" in said:
            said += "; a job stays within its file: no ATTACH, no VACUUM INTO, no extensions"
        elif code & 0xFF == sqlite3.SQLITE_TOOBIG:
            said += f"; a value or a row has {VALUE_BYTES_MAX // 1024**2} MiB at most here"
        return StatementFailed(said, is_lasting=code & 0xFF in LASTING)


class _Work:
    """One statement in a thread."""

    def __init__(
        self, path: str, statement: str, parameters: dict[str, Any], rows_max: int
    ) -> None:
        self._path = path
        self._statement = statement
        self._parameters = {name: _bound(value) for name, value in parameters.items()}
        self._rows_max = rows_max
        self._is_stopped = threading.Event()
        self._link: sqlite3.Connection | None = None

    def stop(self) -> None:
        """Have it end soon. May be called from another thread."""
        self._is_stopped.set()
        link = self._link
        if link is not None:
            link.interrupt()

    def run(self) -> dict[str, Any]:
        link = sqlite3.connect(
            f"file:{quote(self._path)}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # one statement is a transaction by itself
            check_same_thread=False,  # for interrupt()
        )
        try:
            link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
            link.text_factory = _as_text
            link.set_authorizer(_authorize)
            link.set_progress_handler(self._is_stopped.is_set, STEPS)
            self._link = link
            return self._patiently(link)
        finally:
            self._link = None
            link.close()

    def _patiently(self, link: sqlite3.Connection) -> dict[str, Any]:
        for _ in range(BUSY_TRIES - 1):
            try:
                return self._execute(link)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or self._is_stopped.is_set():
                    raise
        return self._execute(link)

    def _execute(self, link: sqlite3.Connection) -> dict[str, Any]:
        cursor = link.cursor()
        try:
            cursor.execute(self._statement, self._parameters)
            if cursor.description is None:
                return {"row_count": max(0, cursor.rowcount)}
            rows = Rows([column[0] for column in cursor.description], self._rows_max)
            for row in cursor:
                if not rows.take(row):
                    break
            return rows.result()
        finally:
            cursor.close()


def _as_text(raw: bytes) -> str:
    return raw.decode(errors="replace")  # a file may have anything where it says text


def _bound(value: Any) -> Any:
    """A value as SQLite knows it; what nests is JSON."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return value


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Keep a statement within its file. VACUUM attaches a file without a name, which is fine."""
    is_refused = (
        (action == sqlite3.SQLITE_ATTACH and first != "")
        or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS_REFUSED)
        or (action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS_REFUSED)
    )
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK

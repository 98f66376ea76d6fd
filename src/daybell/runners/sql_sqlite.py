"""Statements in SQLite files. Each runs in a helper process with a limit of memory.

SQLite builds values, sorts and reads rows in the memory of its process, without a limit per
connection. So the worker passes the statement to a helper (`python -m daybell.runners.sql_sqlite`),
which runs one at a time under its own limits: SQLite's for its allocations, and the system's for
Python objects of a row.
"""

from __future__ import annotations

import os
import queue
import resource
import sqlite3
import sys
import threading
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec

from daybell.core.kinds.settings import STORE_FILE_ID
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.runners.helper_pool import ENVIRONMENT, HelperFailed, Helpers, module_command
from daybell.runners.sql_statement import Parameters, Rows, Say, StatementFailed

COMMAND: Final = module_command("daybell.runners.sql_sqlite")
# A locked file is tried so many times for so long. Not in one wait: SQLite cannot be interrupted
# while it waits.
BUSY_SECONDS: Final = 0.25
BUSY_TRIES: Final = 20
STEPS: Final = 10_000  # instructions of SQLite between two checks for a stop
GRACE_SECONDS: Final = 2.0  # for an interrupted statement to roll back, before its helper is killed

VALUE_BYTES_MAX: Final = 16 * 1024 * 1024  # of a text, a blob, or a stored row
HEAP_BYTES_MAX: Final = 128 * 1024 * 1024  # of all memory of SQLite at a time
# Of the helper's address space: Python with its libraries, SQLite's heap, and the Python objects of
# a row.
MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024

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
# They access other files, change the format of the file, or last beyond the statement.
_PRAGMAS_REFUSED: Final = frozenset(
    {"data_store_directory", "temp_store", "temp_store_directory", "trusted_schema",
     "writable_schema", "hard_heap_limit", "soft_heap_limit"}
)  # fmt: skip
_FUNCTIONS_REFUSED: Final = frozenset({"load_extension", "fts3_tokenizer"})


class StatementOrder(msgspec.Struct, frozen=True):
    """A statement for a helper."""

    path: str
    statement: str
    parameters: dict[str, Any]
    rows_max: int
    busy_tries: int


class StatementAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a statement, or its error."""

    result: dict[str, Any] | None = None
    failure: str = ""  # without the name of the connection
    is_lasting: bool = False
    is_short_of_memory: bool = False


class SqliteDatabase:
    """One existing file."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path
        self.helpers = Helpers(
            COMMAND,
            variables=ENVIRONMENT,
            line_bytes_max=2 * RESULT_BYTES_MAX,
            grace=GRACE_SECONDS,
        )

    async def run(
        self, statement: str, parameters: Parameters, *, rows_max: int, say: Say
    ) -> dict[str, Any]:
        """See `Database`. A cancellation interrupts the statement, and waits for its end."""
        order = StatementOrder(self._path, statement, parameters.values, rows_max, BUSY_TRIES)
        try:
            text = msgspec.json.encode(order)
        except UnicodeEncodeError:
            raise self._failed(
                "a parameter has half a character in it (a lone surrogate)"
            ) from None
        answers: list[StatementAnswer] = []

        def take(line: bytes) -> bool:
            answers.append(msgspec.json.decode(line, type=StatementAnswer))
            if answers[0].is_short_of_memory:
                raise self._failed(answers[0].failure)  # and do not use this helper again
            return True

        try:
            await self.helpers.run(text, take)
        except HelperFailed as error:
            raise self._failed(f"the statement was not run to its end: {error}",
                               is_lasting=False) from None  # fmt: skip
        [answer] = answers
        if answer.result is None:
            raise self._failed(answer.failure, is_lasting=answer.is_lasting)
        return answer.result

    async def close(self) -> None:
        await self.helpers.close()

    def _failed(self, said: str, *, is_lasting: bool = True) -> StatementFailed:
        return StatementFailed(f"on connection {self._name!r}: {said}", is_lasting=is_lasting)


class _Statement:
    """One statement in a helper."""

    def __init__(self, order: StatementOrder) -> None:
        self._order = order
        self._parameters = {name: _bound(value) for name, value in order.parameters.items()}
        self._is_stopped = threading.Event()
        self._link: sqlite3.Connection | None = None

    def stop(self) -> None:
        """Interrupt it. May be called from another thread."""
        self._is_stopped.set()
        link = self._link
        if link is not None:
            link.interrupt()

    def run(self) -> StatementAnswer:
        try:
            return StatementAnswer(result=self._run())
        except MemoryError:
            most = f"{HEAP_BYTES_MAX // 1024**2} MiB"
            said = f"the statement takes more than {most} of memory; select fewer or smaller values"
            return StatementAnswer(failure=said, is_lasting=True, is_short_of_memory=True)
        except _Refused as error:
            return StatementAnswer(failure=str(error), is_lasting=True)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            code: int | None = getattr(error, "sqlite_errorcode", None)
            is_lasting = code is None or code & 0xFF in LASTING
            return StatementAnswer(
                failure=_describe(error, code, self._order.path), is_lasting=is_lasting
            )

    def _run(self) -> dict[str, Any]:
        link = sqlite3.connect(
            f"file:{quote(self._order.path)}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # one statement is a transaction by itself
            check_same_thread=False,  # for interrupt()
        )
        try:
            # Sorts and temporary tables count as memory. No limit counts temporary files.
            link.execute("PRAGMA temp_store = MEMORY")
            link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
            link.text_factory = _as_text
            link.set_progress_handler(self._is_stopped.is_set, STEPS)
            self._link = link
            return self._patiently(link)
        finally:
            self._link = None
            link.close()

    def _patiently(self, link: sqlite3.Connection) -> dict[str, Any]:
        for _ in range(self._order.busy_tries - 1):
            try:
                return self._execute(link)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or self._is_stopped.is_set():
                    raise
        return self._execute(link)

    def _execute(self, link: sqlite3.Connection) -> dict[str, Any]:
        _check_file(link)
        link.set_authorizer(_authorize)
        cursor = link.cursor()
        try:
            cursor.execute(self._order.statement, self._parameters)
            if cursor.description is None:
                return {"row_count": max(0, cursor.rowcount)}
            rows = Rows([column[0] for column in cursor.description], self._order.rows_max)
            for row in cursor:
                if not rows.take(row):
                    break
            return rows.result()
        finally:
            cursor.close()


class _Refused(Exception):
    """The file must not be used by a job."""


def _check_file(link: sqlite3.Connection) -> None:
    """Refuse the file of a store: a statement there would have the rights of every tenant."""
    [application] = link.execute("PRAGMA application_id").fetchone()
    if application == STORE_FILE_ID:
        raise _Refused(
            "the file is a store of Daybell, and its jobs and secrets are not for statements; name"
            " another file in [connections]"
        )


def _describe(error: Exception, code: int | None, path: str) -> str:
    """Describe the error of a statement, with a remedy."""
    said = str(error)
    if code is None:  # messages of Python about the statement or its parameters
        if "one statement" in said:
            return "the statement is several; a job runs one"
        if isinstance(error, OverflowError):
            return "a parameter is a number of more than 64 bits; pass it as text"
        return said
    said = f"{getattr(error, 'sqlite_errorname', code)}: {said}"
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        said += f"; is there a file {path}? It is not made by a job"
    elif code & 0xFF == sqlite3.SQLITE_AUTH or "not authorized" in said:
        said += "; a job stays within its file: no ATTACH, no VACUUM INTO, no extensions"
    elif code & 0xFF == sqlite3.SQLITE_TOOBIG:
        said += f"; a value or a row has {VALUE_BYTES_MAX // 1024**2} MiB at most here"
    return said


def _as_text(raw: bytes) -> str:
    return raw.decode(errors="replace")  # a text column may contain any bytes


def _bound(value: Any) -> Any:
    """Convert a value for SQLite; nested values become JSON."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return value


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Restrict a statement to its file. VACUUM attaches a file without a name, which is allowed."""
    is_refused = (
        (action == sqlite3.SQLITE_ATTACH and first != "")
        or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS_REFUSED)
        or (action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS_REFUSED)
    )
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


class _OrderReader:
    """Reads orders in a separate thread. The end of the input stops the running statement."""

    def __init__(self) -> None:
        self._orders: queue.Queue[bytes | None] = queue.Queue()
        self._is_over = False
        self._current: _Statement | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> _Statement | None:
        """Wait for the next statement; None: the input has ended."""
        line = self._orders.get()
        if line is None:
            return None
        self._current = _Statement(msgspec.json.decode(line, type=StatementOrder))
        if self._is_over:
            self._current.stop()
        return self._current

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._orders.put(line)
        self._is_over = True
        if self._current is not None:
            self._current.stop()
        self._orders.put(None)


def limit_memory() -> None:
    """Limit the memory of this process, for all its statements."""
    with suppress(ValueError):  # there is a lower limit already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    link = sqlite3.connect(":memory:")
    link.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES_MAX}")
    link.close()


def main() -> None:
    """Run the ordered statements until standard input ends."""
    limit_memory()
    orders = _OrderReader()
    while (statement := orders.next()) is not None:
        answer = msgspec.json.encode(statement.run())
        with suppress(OSError):  # the worker is gone, and the input will end
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
    os._exit(0)  # without waiting for the reading thread


if __name__ == "__main__":
    main()

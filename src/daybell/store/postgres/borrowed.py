"""Connections that belong to a caller: an enqueue that travels in somebody else's transaction.

A driver is known by the names of its classes and never imported before its connection turns up:
whoever has one has imported it. What goes wrong with the transaction stays the driver's own error,
because the caller's code around it knows that; what is wrong with the enqueue becomes one of ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.execution import Enqueued
from daybell.errors import (
    ExecutionInTheWay,
    JobNotFound,
    QuotaExceeded,
    SchemaError,
    UsageError,
)

# Everything goes as text and comes as text: a connection may have codecs of its own for the rest.
ENQUEUE: Final = (
    "SELECT CAST(id AS text), created FROM daybell.enqueue_many(CAST({} AS text),"
    " CAST({} AS text[]), CAST(CAST({} AS text) AS jsonb), CAST(CAST({} AS text) AS uuid))"
)
ASYNCPG: Final = ENQUEUE.format("$1", "$2", "$3", "$4")
PSYCOPG: Final = ENQUEUE.format("%s", "%s", "%s", "%s")
SQLALCHEMY: Final = ENQUEUE.format(":job", ":args", ":options", ":parent")

_TAKES: Final = (
    "connection= takes a connection of asyncpg or psycopg 3, or a connection or session of"
    " SQLAlchemy, to PostgreSQL. Of an engine or a pool take a connection first; with any other"
    " driver, run SELECT daybell.enqueue(…)"
)

Rows = Iterable[Any]


class Call(msgspec.Struct, frozen=True):
    """What `daybell.enqueue_many` is asked for."""

    job: str
    args: list[str]
    options: str
    parent: str | None


class Driver(NamedTuple):
    """How one kind of connection is used."""

    is_async: bool
    fault: Callable[[Any], str | None]  # why it cannot be used; None if it can
    fetch: Callable[[Any, Call], Any]


async def send(connection: object, call: Call) -> list[Enqueued]:
    """Enqueue through an async connection. Nothing is committed here."""
    driver = check_connection(connection, is_async=True)
    with _translated():
        rows: Rows = await driver.fetch(connection, call)
    return _answers(rows)


def send_sync(connection: object, call: Call) -> list[Enqueued]:
    """The same through one that waits, on the thread of the caller."""
    driver = check_connection(connection, is_async=False)
    with _translated():
        rows: Rows = driver.fetch(connection, call)
    return _answers(rows)


def check_connection(connection: object, *, is_async: bool) -> Driver:
    """Return how to use a connection; refuse what is none, is closed, or is of the other kind."""
    what = type(connection).__name__
    driver = _driver_of(connection)
    if driver is None:
        raise UsageError(f"{what} cannot be enqueued through; {_TAKES}", field="connection")
    if driver.is_async is not is_async:
        way = "await task.options(connection=…).enqueue(…)"
        if is_async:
            way = "task.options(connection=…).sync.enqueue(…), outside of an event loop"
        kind = "async" if driver.is_async else "not async"
        raise UsageError(f"this {what} is {kind}: write {way}", field="connection")
    fault = driver.fault(connection)
    if fault is not None:
        raise UsageError(f"this {what} {fault}; {_TAKES}", field="connection")
    return driver


def _driver_of(connection: object) -> Driver | None:
    for one in type(connection).__mro__:
        driver = _DRIVERS.get((one.__module__.partition(".")[0], one.__name__))
        if driver is not None:
            return driver
    return None


def _answers(rows: Rows) -> list[Enqueued]:
    return [Enqueued(UUID(row[0]), row[1]) for row in rows]


def _asyncpg_fault(connection: Any) -> str | None:
    try:
        return "is closed" if connection.is_closed() else None
    except import_module("asyncpg").InterfaceError:
        return "has gone back to its pool"


def _asyncpg_fetch(connection: Any, call: Call) -> Awaitable[Rows]:
    record = import_module("asyncpg").Record  # the connection may have another
    return connection.fetch(
        ASYNCPG, call.job, call.args, call.options, call.parent, record_class=record
    )


def _psycopg_fault(connection: Any) -> str | None:
    return "is closed" if connection.closed else None


# A cursor of our own: the connection's may make rows of any shape, or want other placeholders.
async def _psycopg_fetch(connection: Any, call: Call) -> Rows:
    async with import_module("psycopg").AsyncCursor(connection, row_factory=_tuples) as cursor:
        await cursor.execute(PSYCOPG, [call.job, call.args, call.options, call.parent])
        return await cursor.fetchall()


def _psycopg_fetch_sync(connection: Any, call: Call) -> Rows:
    with import_module("psycopg").Cursor(connection, row_factory=_tuples) as cursor:
        cursor.execute(PSYCOPG, [call.job, call.args, call.options, call.parent])
        return cursor.fetchall()


def _tuples(_cursor: object) -> type[tuple[Any, ...]]:
    return tuple


def _connection_fault(connection: Any) -> str | None:
    if getattr(connection, "sync_connection", connection) is None:
        return "has not been started; await it, or use it in an `async with`"
    return "is closed" if connection.closed else _dialect_fault(connection.dialect)


def _session_fault(session: Any) -> str | None:
    return _dialect_fault(session.get_bind().dialect)


def _dialect_fault(dialect: Any) -> str | None:
    return None if dialect.name == "postgresql" else f"talks to {dialect.name}, not to PostgreSQL"


def _sqlalchemy_fetch_sync(connection: Any, call: Call) -> Rows:
    statement = import_module("sqlalchemy").text(SQLALCHEMY)
    return connection.execute(statement, msgspec.structs.asdict(call)).all()


async def _sqlalchemy_fetch(connection: Any, call: Call) -> Rows:
    statement = import_module("sqlalchemy").text(SQLALCHEMY)
    return (await connection.execute(statement, msgspec.structs.asdict(call))).all()


_ASYNCPG: Final = Driver(True, _asyncpg_fault, _asyncpg_fetch)
_DRIVERS: Final[dict[tuple[str, str], Driver]] = {
    ("asyncpg", "Connection"): _ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): _ASYNCPG,
    ("psycopg", "AsyncConnection"): Driver(True, _psycopg_fault, _psycopg_fetch),
    ("psycopg", "Connection"): Driver(False, _psycopg_fault, _psycopg_fetch_sync),
    ("sqlalchemy", "AsyncConnection"): Driver(True, _connection_fault, _sqlalchemy_fetch),
    ("sqlalchemy", "AsyncSession"): Driver(True, _session_fault, _sqlalchemy_fetch),
    ("sqlalchemy", "async_scoped_session"): Driver(True, _session_fault, _sqlalchemy_fetch),
    ("sqlalchemy", "Connection"): Driver(False, _connection_fault, _sqlalchemy_fetch_sync),
    ("sqlalchemy", "Session"): Driver(False, _session_fault, _sqlalchemy_fetch_sync),
    ("sqlalchemy", "scoped_session"): Driver(False, _session_fault, _sqlalchemy_fetch_sync),
}


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except Exception as error:
        ours = _ours(_origin(error))
        if ours is None:
            raise
        raise ours from error


def _origin(error: BaseException) -> BaseException:
    """The driver's error within that of SQLAlchemy, which may wrap it twice."""
    while _state(error) is None or hasattr(error, "orig"):
        inner = getattr(error, "orig", None) or error.__cause__
        if inner is None:
            break
        error = inner
    return error


def _state(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _ours(error: BaseException) -> Exception | None:
    said = (str(error).splitlines() or [""])[0].rpartition("'>: ")[2]
    match _state(error):
        case "42704":  # undefined_object
            return JobNotFound(
                f"{said} in the database of this connection, as its transaction sees it;"
                " await app.open() before the transaction begins"
            )
        case "3F000" | "42883":  # no schema, no function
            return SchemaError(
                f"the database of this connection cannot enqueue: {said}. Is it the database that"
                " the app uses? If so, run `daybell migrate`"
            )
        case "42501":  # insufficient_privilege
            return UsageError(
                f"the role of this connection may not enqueue: {said}. The owner of the schema can"
                " let it: SELECT daybell.grant_enqueue_to('role')",
                field="connection",
            )
        case "55006":  # object_in_use
            return ExecutionInTheWay(f"{said}; wait for it, or cancel it")
        case "53400":  # configuration_limit_exceeded
            quota = said.partition("its quota ")[2].partition(",")[0]
            return QuotaExceeded(f"{said}; try again later, or have it raised", quota=quota)
        case "0A000":  # feature_not_supported
            return UsageError(said, field="connection")
        case str(state) if state.startswith(("22", "54")):  # wrong data, or too much of it
            return UsageError(said)
        case _:
            return None

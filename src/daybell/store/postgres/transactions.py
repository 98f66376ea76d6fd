"""Transactions shared with user code: the transaction of a task, and an enqueue on a caller's
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.execution import Enqueued, State
from daybell.core.lifecycle import Transition
from daybell.errors import (
    ExecutionInTheWay,
    JobNotFound,
    QuotaExceeded,
    SchemaError,
    Unavailable,
    UsageError,
)
from daybell.store.codec import STATE_CODES
from daybell.store.postgres.connection import (
    POOL_IDLE_SECONDS,
    READ_COMMITTED,
    TASK_SESSION,
    Connection,
    close_pool,
    terminate,
    translate_errors,
    watch_peer,
)
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.progress import after_commit
from daybell.store.postgres.queue import MoveBatch, end_linked, settle_leases, succeed_moves

TASK_CONNECTIONS_MAX: Final = 10
BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
# The client cannot know whether it was committed. For all other errors, the server says it was not.
NO_ANSWER: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
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


async def begin(pg: StoreContext, worker: UUID) -> TaskTransaction:
    pool = await _task_pool(pg, worker)
    with translate_errors():
        try:
            connection, transaction = await _begin_on(pg, pool)
        except TimeoutError:
            # An idle connection has gone deaf, and nothing was done on it.
            await pool.expire_connections()
            connection, transaction = await _begin_on(pg, pool)
    return TaskTransaction(pg, pool, connection, transaction)


async def _begin_on(pg: StoreContext, pool: Any) -> tuple[Any, Any]:
    # The wait has no limit: tasks may keep all connections in use for any time.
    connection = await pool.acquire()
    transaction = connection.transaction(isolation=READ_COMMITTED)
    try:
        async with asyncio.timeout(pg.db.timeouts.command):
            await transaction.start()
    except BaseException as error:
        if isinstance(error, TimeoutError):
            terminate(connection)
        await pool.release(connection)
        raise
    return connection, transaction


async def _task_pool(pg: StoreContext, worker: UUID) -> Any:
    pool = pg.task_pools.get(worker)
    if pool is None:
        timeouts = pg.db.timeouts
        # The work of a task may take any time. But the server must notice when its machine is gone:
        # until then, all rows that it has locked stay locked, by default for two hours. A pooler
        # passes the name on, and no other setting.
        settings = {"application_name": f"{TASK_SESSION}{worker}"}
        options: dict[str, Any] = {"server_settings": settings}
        if pg.db.is_pooled:
            options["statement_cache_size"] = 0
        elif not pg.db.is_session_pooled:
            options["server_settings"] = settings | timeouts.peer
        # The pool is not connected yet, so nothing is awaited between the check and the assignment.
        pool = pg.task_pools[worker] = _driver.create_pool(
            pg.db.url,
            min_size=0,
            max_size=min(TASK_CONNECTIONS_MAX, pg.db.pool_size),
            max_inactive_connection_lifetime=POOL_IDLE_SECONDS,
            connection_class=Connection,
            timeout=timeouts.connect,
            init=partial(watch_peer, timeouts=timeouts),
            connect=pg.db.connect,
            **options,
        )
    with translate_errors():
        await pool
        timeline = pg.db.lineage.timeline
        if pg.task_timelines.setdefault(worker, timeline) != timeline:
            pg.task_timelines[worker] = timeline
            await pool.expire_connections()
    return pool


async def close_task_connections(pg: StoreContext) -> None:
    pools, pg.task_pools = pg.task_pools, {}
    for pool in pools.values():
        await close_pool(pool, pg.db.timeouts.connect)


async def finish_in(tx: Tx, tenant: str, worker: UUID, move: Transition) -> bool:
    """Make one end in a transaction that this function does not commit."""
    batch = MoveBatch(tenant, worker, [move])
    key = await tx.pg.names.tenant(tx, tenant)
    # Leases that are over are left to others: this transaction may be undone.
    if move.gate is None and move.schedule is None and move.run is None:
        return await succeed_moves(tx, key, batch, over=[])
    made = (await end_linked(tx, key, batch, over=[])).values()
    return [row["state"] for row in made] == [STATE_CODES[State.SUCCEEDED]]


class TaskTransaction:
    """See `protocol.TaskTransaction`."""

    def __init__(self, pg: StoreContext, pool: Any, connection: Any, transaction: Any) -> None:
        self.connection = connection
        self._pg = pg
        self._pool = pool
        self._transaction: Any = transaction  # None: it is over

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        try:
            # These are several short statements. After a lease, the answer would not be believed.
            async with asyncio.timeout(self._pg.db.lease):
                after = await self._finish(tenant, worker, move)
        except asyncpg.InFailedSQLTransactionError:
            raise UsageError(ABORTED) from None
        except NO_ANSWER as error:
            with suppress(*BROKEN):
                self.connection.terminate()
            raise Unavailable(f"PostgreSQL does not answer: {error}") from error
        if after is None:
            return False
        settle_leases(self._pg, worker, {move.lease: 1})
        await after_commit(self._pg, after, self._pg.names.known_tenant(tenant))
        return True

    async def _finish(self, tenant: str, worker: UUID, move: Transition) -> AfterCommit | None:
        """Make the move and commit; return the work that is left, or None if it was not made."""
        if not self.connection.is_in_transaction() and not self.connection.is_closed():
            raise UsageError(ENDED)
        await self._pg.db.set_local(self.connection)
        await self._pg.db.replan(self.connection)
        tx = Tx(self._pg).use(self.connection)
        is_made = await finish_in(tx, tenant, worker, move)
        transaction, self._transaction = self._transaction, None
        await (transaction.commit() if is_made else transaction.rollback())
        return tx.after if is_made else None

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                seconds = self._pg.db.timeouts.command
                await asyncio.wait_for(transaction.rollback(), seconds)
        except BROKEN:
            with suppress(*BROKEN):  # a broken connection has left the pool already
                self.connection.terminate()  # then the server rolls back
        with suppress(*BROKEN):
            await pool.release(self.connection)


# Connections that belong to a caller: an enqueue that travels in the caller's transaction.
#
# A driver is known by the names of its classes and never imported before its connection turns up:
# the owner of a connection has imported it. An error of the transaction stays the driver's own
# error, because the caller's code around it knows that. An error of the enqueue becomes one of
# ours.

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


class SqlCall(msgspec.Struct, frozen=True):
    """The arguments of `daybell.enqueue_many`."""

    job: str
    args: list[str]
    options: str
    parent: str | None


class Driver(NamedTuple):
    """How one kind of connection is used."""

    is_async: bool
    fault: Callable[[Any], str | None]  # why it cannot be used; None if it can
    fetch: Callable[[Any, SqlCall], Any]


async def send(connection: object, call: SqlCall) -> list[Enqueued]:
    """Enqueue through an async connection. Nothing is committed here."""
    driver = check_connection(connection, is_async=True)
    with _translated():
        rows: Rows = await driver.fetch(connection, call)
    return _answers(rows)


def send_sync(connection: object, call: SqlCall) -> list[Enqueued]:
    """Enqueue through a blocking connection, on the thread of the caller."""
    driver = check_connection(connection, is_async=False)
    with _translated():
        rows: Rows = driver.fetch(connection, call)
    return _answers(rows)


def check_connection(connection: object, *, is_async: bool) -> Driver:
    """Return how to use a connection; refuse a value that is none, closed, or of the other kind."""
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


def _asyncpg_fetch(connection: Any, call: SqlCall) -> Awaitable[Rows]:
    record = import_module("asyncpg").Record  # the connection may have another
    return connection.fetch(
        ASYNCPG, call.job, call.args, call.options, call.parent, record_class=record
    )


def _psycopg_fault(connection: Any) -> str | None:
    return "is closed" if connection.closed else None


# A cursor of our own: the connection's may make rows of any shape, or want other placeholders.
async def _psycopg_fetch(connection: Any, call: SqlCall) -> Rows:
    async with import_module("psycopg").AsyncCursor(connection, row_factory=_tuples) as cursor:
        await cursor.execute(PSYCOPG, [call.job, call.args, call.options, call.parent])
        return await cursor.fetchall()


def _psycopg_fetch_sync(connection: Any, call: SqlCall) -> Rows:
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


def _sqlalchemy_fetch_sync(connection: Any, call: SqlCall) -> Rows:
    statement = import_module("sqlalchemy").text(SQLALCHEMY)
    return connection.execute(statement, msgspec.structs.asdict(call)).all()


async def _sqlalchemy_fetch(connection: Any, call: SqlCall) -> Rows:
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
    """Return the driver's error within that of SQLAlchemy, which may wrap it twice."""
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

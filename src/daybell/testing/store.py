"""The store of a bench: a SQLite store in memory, with `ctx.transaction()` on a test connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import Cancellation, Execution, State
from daybell.core.job import DEFAULT_TENANT
from daybell.core.lifecycle import Transition
from daybell.core.limits import DURATION_SECONDS_MAX
from daybell.core.schedule import Dependents, Due, Schedule
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Claim, NewWorker, Renewal
from daybell.errors import UsageError, shown
from daybell.store.codec import EXECUTION_COLUMNS
from daybell.store.sqlite import admin, queue
from daybell.store.sqlite.connection import IN_MEMORY, InlineConnection, Operation
from daybell.store.sqlite.ports import SqliteQueue, SqliteSchedules
from daybell.store.sqlite.store import SqliteStore
from daybell.store.sqlite.transaction import (
    CLAIMED_COLUMNS,
    Row,
    Transaction,
    read_execution,
)
from daybell.store.wakeups import Wake

# `ctx.transaction()` on a bench: real writes, and an end that is kept in memory.

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


async def begin_transaction(
    connection: Any, store: BenchStore | None, *, call: str
) -> BenchTransaction:
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
    """See `store.protocol.queue.TaskTransaction`."""

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
        return not await self._store.queue.apply(tenant, worker=worker, transitions=[move])

    async def close(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and self.connection.is_in_transaction():
            await transaction.rollback()
        if self._is_own:
            await self.connection.close()


# The store.

T = TypeVar("T")
Wanted = Callable[[Execution], bool]
Fires = Callable[[str], bool]  # whether the schedules of a job do, by its name

# What is run here; a command or a request would be a real one.
NEEDS: Final = ("task", "workflow")
# A clock that is moved by days must not make the workers look dead.
LEASE_SECONDS: Final = DURATION_SECONDS_MAX
ROWS_FIRST: Final = 8  # of a walk, which most often ends at the first row
ROWS_FACTOR: Final = 16

_COLUMNS: Final = ", ".join(f"e.{name}" for name in EXECUTION_COLUMNS)
# CROSS JOIN keeps the order of the tables, so that no statement reads the whole history.
_EXECUTIONS: Final = f"""
SELECT t.name, {_COLUMNS} FROM tenant t CROSS JOIN execution e ON e.tenant = t.n
"""
_LANES: Final = "lane l CROSS JOIN execution e"
_WAITING: Final = "execution e INDEXED BY execution_waiting CROSS JOIN lane l"
_FROM_LANES: Final = f"""
SELECT e.run_at, t.name, {_COLUMNS}
  FROM {_LANES} ON e.lane = l.n JOIN tenant t ON t.n = e.tenant
 WHERE l.kind IN {NEEDS}
   AND NOT EXISTS (SELECT 1 FROM paused_queue p WHERE p.tenant = e.tenant AND p.name = l.queue)
"""
# What is due and still waits, waits for something else than its time.
_PENDING: Final = f"""
{_FROM_LANES} AND e.state <= 3
 UNION ALL
{_FROM_LANES.replace(_LANES, _WAITING)} AND e.state = 4 AND e.run_at > ?
 ORDER BY 1 LIMIT ?
"""
_WAITS: Final = f"""
SELECT w.timeout_at, t.name, {_COLUMNS}
  FROM wait w JOIN execution e ON e.n = w.execution JOIN tenant t ON t.n = e.tenant
 WHERE w.timeout_at IS NOT NULL ORDER BY w.timeout_at LIMIT ?
"""
_TICKS: Final = """
SELECT s.next_at, j.name FROM schedule s JOIN job j ON j.n = s.job
 WHERE s.next_at IS NOT NULL AND s.is_paused = 0 ORDER BY s.next_at
"""
_CHOSEN: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM execution WHERE id = ? AND state <= 3 AND run_at <= ? LIMIT ?
"""
_QUEUES: Final = "SELECT DISTINCT queue FROM lane WHERE tenant = ? ORDER BY queue"

Found = list[tuple[Instant, Execution]]


class BenchStore(SqliteStore):
    """Gives work to the bench's own workers, one execution at a time, from all queues.

    A worker or scheduler that the program starts by itself gets nothing: it would race with the
    test. Sync code enqueues from an event loop of its own, which the inline connection allows.
    """

    def __init__(self, *, clock: Callable[[], Instant], tenants: Collection[str]) -> None:
        super().__init__(IN_MEMORY, clock=clock)
        self._lock = threading.Lock()
        self.customers: dict[UUID, tuple[Wanted, Callable[[], object]]] = {}
        self.connection: Any = None  # of the test, for transactions of tasks
        self.fires: Fires = _never
        self.queue = BenchQueue(self)
        self.schedules = BenchSchedules(self)
        self._open_in_memory()
        for name in sorted({*tenants} - {DEFAULT_TENANT}):
            self.run(lambda tx, name=name: admin.add_tenant(tx, name))

    def run(self, operation: Operation[T]) -> T:
        writer = self.db.writer
        if not isinstance(writer, InlineConnection):
            raise UsageError("the store is not open; call open() first")
        return writer.run(operation)

    def may_succeed(self, move: Transition) -> bool:
        """True if the execution still runs, and nothing has asked for its end."""
        one = self.find(move.id)
        is_same = one.state is State.RUNNING and one.attempt == move.attempt
        return is_same and one.cancel_requested_at is None

    @contextmanager
    def firing(self, fires: Fires) -> Generator[None]:
        """Let the schedules of these jobs be due, until the block ends."""
        kept, self.fires = self.fires, fires
        try:
            yield
        finally:
            self.fires = kept

    def next_tick(self) -> Instant | None:
        """When the next of those schedules is due."""
        ticks = self.run(lambda tx: tx.execute(_TICKS).fetchall())
        return next((at for at, job in ticks if self.fires(job)), None)

    def serve(self, worker: UUID, wanted: Wanted, *, on_cancel: Callable[[], object]) -> None:
        """Let this worker claim what it wants; it is told when somebody cancels something."""
        with self._lock:
            self.customers[worker] = wanted, on_cancel

    def report_cancel(self) -> None:
        """Report to all workers that something may be cancelled."""
        with self._lock:
            customers = list(self.customers.values())
        for _, on_cancel in customers:
            on_cancel()

    def dismiss(self, worker: UUID) -> None:
        with self._lock:
            self.customers.pop(worker, None)

    def shut(self) -> None:
        """Refuse what comes after the test's end, from a thread that it left behind."""
        self.db.writer = self.db.reader = None

    def executions(self) -> list[Execution]:
        """All of all tenants, oldest first."""
        return self.run(
            lambda tx: [_read(tx, row) for row in tx.execute(f"{_EXECUTIONS} ORDER BY e.id")]
        )

    def find(self, id: UUID) -> Execution:
        """An execution of any tenant."""

        statement = f"{_EXECUTIONS} WHERE e.id = ?"
        return self.run(lambda tx: _read(tx, tx.execute(statement, (id.bytes,)).fetchone()))

    def tenants(self) -> list[str]:
        return list(one.name for one in self.run(admin.list_tenants))

    def upcoming(self, wanted: Wanted) -> Instant | None:
        """When the next one that is wanted can run; not after now if it can already."""
        walks = _pending, _waits
        times = [next((at for at, one in self.walk(walk) if wanted(one)), None) for walk in walks]
        return min((at for at in times if at is not None), default=None)

    def walk(
        self, read: Callable[[Transaction, int], Found]
    ) -> Iterator[tuple[Instant, Execution]]:
        """Read rows in order, more each time; the caller of each row may read others."""
        seen, limit = 0, ROWS_FIRST
        while True:
            found = self.run(lambda tx, limit=limit: read(tx, limit))
            yield from found[seen:]
            if len(found) < limit:
                return
            seen, limit = limit, limit * ROWS_FACTOR

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> Callable[[], Awaitable[None]]:
        """Nobody is woken: it would be from another thread, and to get nothing."""
        return _stop


class BenchQueue(SqliteQueue):
    """The queue of a bench: a worker gets one execution at a time, and its lease does not end."""

    def __init__(self, bench: BenchStore) -> None:
        super().__init__(bench.db, bench.wakeups)
        self._bench = bench

    async def begin(self, worker: UUID) -> Any:
        return await begin_transaction(
            self._bench.connection, self._bench, call="Bench(app, connection=…)"
        )

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        queues = self._bench.run(lambda tx: _queues(tx, tenant))
        wanted, _ = self._bench.customers.get(worker, (_nothing, None))
        due = self._bench.walk(partial(_due, tenant=tenant, queues=queues, kinds=kinds))
        chosen = next((one.id.bytes for _, one in due if wanted(one)), None)

        def choose(tx: Transaction, lanes: list[list[int]], limit: int) -> list[Row]:
            del lanes
            return tx.execute(_CHOSEN, (chosen, tx.now, limit)).fetchall()

        return await self.db.write(
            lambda tx: queue.claim(tx, tenant, worker, lease, queues, kinds, 1, choose)
        )

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        answers = await super().cancel(tenant, ids)
        self._bench.report_cancel()
        return answers

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        return await super().register(tenant, worker, lease=LEASE_SECONDS, replaces=replaces)

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        return await super().renew(tenant, worker=worker, lease=LEASE_SECONDS, leases=leases)


class BenchSchedules(SqliteSchedules):
    """The schedules of a bench: those fire that the test lets fire."""

    def __init__(self, bench: BenchStore) -> None:
        super().__init__(bench.db, bench.wakeups)
        self._bench = bench

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        due = await super().due_schedules(limit=limit, free=free, after=after)
        schedules = tuple(one for one in due.schedules if self._bench.fires(one.job))
        return replace(due, schedules=schedules)

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        found = await super().dependents(limit=limit, after=after)
        schedules = tuple(one for one in found.schedules if self._bench.fires(one.schedule.job))
        return replace(found, schedules=schedules)


def _queues(tx: Transaction, tenant: str) -> list[str]:
    owner = tx.names.tenant(tx, tenant)
    return [name for (name,) in tx.execute(_QUEUES, (owner,))]


def _pending(tx: Transaction, limit: int) -> Found:
    return _found(tx, tx.execute(_PENDING, (tx.now, limit)))


def _waits(tx: Transaction, limit: int) -> Found:
    return _found(tx, tx.execute(_WAITS, (limit,)))


def _read(tx: Transaction, row: Row) -> Execution:
    return read_execution(tx, row[0], row[1:])


def _found(tx: Transaction, rows: Iterator[Any]) -> Found:
    return [(row[0], read_execution(tx, row[1], row[2:])) for row in rows]


def _due(
    tx: Transaction, limit: int, *, tenant: str, queues: Sequence[str], kinds: Sequence[str]
) -> Found:
    """What a claim would find, in its order."""
    owner = tx.names.tenant(tx, tenant)
    rows = queue.find_due(tx, queue.find_lanes(tx, owner, queues, kinds), limit)
    found: Found = []
    for row in rows:
        one = _read(tx, tx.execute(f"{_EXECUTIONS} WHERE e.n = ?", (row[0],)).fetchone())
        found.append((one.run_at, one))
    return found


def _never(job: str) -> bool:
    del job
    return False


def _nothing(execution: Execution) -> bool:
    del execution
    return False


async def _stop() -> None:
    pass

"""The store of a bench: the memory store, and `ctx.transaction()` on a test connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.access import Tenant
from daybell.core.execution import PENDING, Cancellation, Execution, State
from daybell.core.lifecycle import Transition
from daybell.core.limits import DURATION_SECONDS_MAX
from daybell.core.schedule import Dependents, Due, Schedule
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Claim, NewWorker, Renewal
from daybell.errors import UsageError, shown
from daybell.store.memory import MemoryStore
from daybell.store.memory.schedules import upcoming
from daybell.store.memory.tables import Row, Tables, shown_execution
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
        return not await self._store.apply(tenant, worker=worker, transitions=[move])

    async def close(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and self.connection.is_in_transaction():
            await transaction.rollback()
        if self._is_own:
            await self.connection.close()


Wanted = Callable[[Execution], bool]
Fires = Callable[[str], bool]  # whether the schedules of a job do, by its name

# What is run here; a command or a request would be a real one.
NEEDS: Final = ("task", "workflow")
# A clock that is moved by days must not make the workers look dead.
LEASE_SECONDS: Final = DURATION_SECONDS_MAX


class BenchStore(MemoryStore):
    """Gives work to the bench's own workers, one execution at a time, from all queues.

    A worker or scheduler that the program starts by itself gets nothing: it would race with the
    test.
    """

    def __init__(self, *, clock: Callable[[], Instant], tenants: Collection[str]) -> None:
        super().__init__(clock=clock)
        # Sync code enqueues from a loop of its own. No operation waits for anything while it has
        # the tables, so a lock is all that several loops need.
        self._lock = threading.RLock()
        self._customers: dict[UUID, tuple[Wanted, Callable[[], object]]] = {}
        for tenant in tenants:
            self._tables.tenants[tenant] = Tenant(name=tenant, created_at=clock())
        self._is_open = True
        self.connection: Any = None  # of the test, for transactions of tasks
        self._fires: Fires = _never
        self._wanted: Wanted = _nothing

    async def begin(self, worker: UUID) -> Any:
        return await begin_transaction(self.connection, self, call="Bench(app, connection=…)")

    def may_succeed(self, move: Transition) -> bool:
        """True if the execution still runs, and nothing has asked for its end."""
        one = self.find(move.id)
        is_same = one.state is State.RUNNING and one.attempt == move.attempt
        return is_same and one.cancel_requested_at is None

    @contextmanager
    def firing(self, fires: Fires) -> Generator[None]:
        """Let the schedules of these jobs be due, until the block ends."""
        kept, self._fires = self._fires, fires
        try:
            yield
        finally:
            self._fires = kept

    def next_tick(self) -> Instant | None:
        """When the next of those schedules is due."""
        with self._begin() as tables:
            return min((at for at, one in upcoming(tables) if self._fires(one.job)), default=None)

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        due = await super().due_schedules(limit=limit, free=free, after=after)
        return replace(due, schedules=tuple(one for one in due.schedules if self._fires(one.job)))

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        found = await super().dependents(limit=limit, after=after)
        schedules = tuple(one for one in found.schedules if self._fires(one.schedule.job))
        return replace(found, schedules=schedules)

    @contextmanager
    def _begin(self, tenant: str | None = None) -> Generator[Tables]:
        with self._lock, super()._begin(tenant) as tables:
            yield tables

    def serve(self, worker: UUID, wanted: Wanted, *, on_cancel: Callable[[], object]) -> None:
        """Let this worker claim what it wants; it is told when somebody cancels something."""
        with self._lock:
            self._customers[worker] = wanted, on_cancel

    def dismiss(self, worker: UUID) -> None:
        with self._lock:
            self._customers.pop(worker, None)

    def shut(self) -> None:
        """Refuse what comes after the test's end, from a thread that it left behind."""
        self._is_open = False

    def executions(self) -> list[Execution]:
        """All of all tenants, oldest first."""
        with self._begin() as tables:
            now = self._clock()
            found = [shown_execution(row, now) for row in tables.rows.values()]
            return sorted(found, key=lambda execution: execution.id)

    def find(self, id: UUID) -> Execution:
        """An execution of any tenant."""
        with self._begin() as tables:
            row = next(filter(None, (tables.rows.get((one, id)) for one in tables.tenants)))
            return shown_execution(row, self._clock())

    def tenants(self) -> list[str]:
        with self._begin() as tables:
            return list(tables.tenants)

    def upcoming(self, wanted: Wanted) -> Instant | None:
        """When the next one that is wanted can run; not after now if it can already."""
        with self._begin() as tables:
            now = self._clock()
            coming = [
                one.run_at
                for row in tables.live.values()
                if (one := row.execution).state in PENDING
                # What is due and still waits, waits for something else than its time.
                and not (one.state is State.WAITING and one.run_at <= now)
                and (one.tenant, one.queue) not in tables.paused
                and (row.needs or tables.definition(one).needs) in NEEDS
                and wanted(one)
            ]
            coming += [
                wait.timeout_at
                for (tenant, id, _), wait in tables.waits.items()
                if wait.timeout_at is not None and wanted(tables.rows[tenant, id].execution)
            ]
            return min(coming, default=None)

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
        with self._lock:
            kept, self._wanted = self._wanted, self._customers.get(worker, (_nothing, None))[0]
            try:
                return await super().claim(
                    tenant,
                    worker=worker,
                    lease=lease,
                    queues=sorted({row.execution.queue for row in self._tables.live.values()}),
                    limit=1,
                    kinds=kinds,
                )
            finally:
                self._wanted = kept

    def _claimable(
        self, tables: Tables, tenant: str, queues: Sequence[str], kinds: Sequence[str]
    ) -> list[Row]:
        found = super()._claimable(tables, tenant, queues, kinds)
        return [row for row in found if self._wanted(row.execution)]

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        answers = await super().cancel(tenant, ids)
        with self._lock:
            customers = list(self._customers.values())
        for _, on_cancel in customers:
            on_cancel()
        return answers

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        return await super().register(tenant, worker, lease=LEASE_SECONDS, replaces=replaces)

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        return await super().renew(tenant, worker=worker, lease=LEASE_SECONDS, leases=leases)

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> Callable[[], Awaitable[None]]:
        """Nobody is woken: it would be from another thread, and to get nothing."""
        return _stop


def _never(job: str) -> bool:
    del job
    return False


def _nothing(execution: Execution) -> bool:
    del execution
    return False


async def _stop() -> None:
    pass

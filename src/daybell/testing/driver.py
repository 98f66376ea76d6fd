"""The driver of a bench: run the parts of a real worker tick by tick until nothing is due."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec.structs import replace

from daybell.client import mint
from daybell.core import payload
from daybell.core.access import Tenant
from daybell.core.execution import (
    PENDING,
    Cancellation,
    Claimed,
    Execution,
    Failure,
    Outcome,
    State,
)
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.limits import DURATION_SECONDS_MAX
from daybell.core.masking import Masks
from daybell.core.schedule import Dependents, Due, Schedule
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Claim, NewWorker, Renewal
from daybell.core.workflow.run import node_name
from daybell.engine.attempt import GRACE_SECONDS, Attempt, Handler, Handlers, Stop
from daybell.engine.events import Ended, Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import InvalidArguments, Suspended, UsageError, shown
from daybell.runners.kind import HandlerWrapper
from daybell.runners.python import ThreadCall, Threads, no_patience
from daybell.sdk.app import App
from daybell.sdk.context import current
from daybell.sdk.handlers import AppHandlers
from daybell.sdk.task import Task
from daybell.store.memory import MemoryStore
from daybell.store.memory.schedules import upcoming
from daybell.store.memory.tables import Row, Tables, shown_execution
from daybell.store.wakeups import Wake

# The store of a bench: the memory store, and `ctx.transaction()` on a test connection.

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


# The app's tasks as a bench runs them: as ever, but their exceptions are kept.

T = TypeVar("T")

Errors = dict[tuple[UUID, int], BaseException]


class BenchHandlers:
    """An app's handlers. What a task raised is in `errors`, by execution and attempt."""

    def __init__(self, app: App) -> None:
        self.errors: Errors = {}
        own = own_thread.get()
        self._handlers: Handlers = app.handlers if own is None else OwnThreadHandlers(app, own)

    def find(self, claimed: Claimed) -> Handler | None:
        handler = self._handlers.find(claimed)
        return None if handler is None else RecordingHandler(handler, self.errors)

    async def ask(self, claimed: Claimed) -> Handler | None:
        handler = await self._handlers.ask(claimed)
        return None if handler is None else RecordingHandler(handler, self.errors)

    def lacking(self, claimed: Claimed) -> str | None:
        return self._handlers.lacking(claimed)

    def mask(self, text: str) -> str:
        return self._handlers.mask(text)

    @property
    def settings(self) -> Masks:
        return self._handlers.settings


class RecordingHandler(HandlerWrapper):
    """A handler of which the store's text of an error is not enough to know."""

    def __init__(self, handler: Handler, errors: Errors) -> None:
        super().__init__(handler)
        self._errors = errors

    async def run(self, running: Attempt) -> str | None:
        try:
            return await self.inner.run(running)
        except Suspended:  # no error: it goes on another time
            raise
        except BaseException as error:
            self._errors[running.claimed.id, running.claimed.attempt] = error
            raise


class OwnThread(Threads):
    """Runs plain functions in the thread of the test that waits for them.

    So they see its database transaction, its thread-locals and its debugger.
    """

    def __init__(self, spare: Threads) -> None:
        super().__init__()
        self._spare = spare
        self._is_busy = False
        self._here: queue.SimpleQueue[ThreadCall | None] = queue.SimpleQueue()

    async def run(
        self, function: Callable[[], T], *, patience: Callable[[], Seconds] = no_patience
    ) -> T:
        if self._is_busy:  # a task in it waits for another: that one cannot run there, too
            return await self._spare.run(function, patience=patience)
        self._is_busy = True
        try:
            return await super().run(function, patience=patience)
        finally:
            self._is_busy = False

    def _submit(self, call: ThreadCall) -> None:
        self._here.put(call)

    def serve(self, work: Future[Any]) -> None:
        """In the test's thread: run what comes until the work is done."""
        work.add_done_callback(lambda _: self._here.put(None))
        while (call := self._here.get()) is not None:
            call.run()


class OwnThreadHandlers(AppHandlers):
    """The app's handlers with other threads."""

    def __init__(self, app: App, threads: Threads) -> None:
        super().__init__(app)
        self._threads = threads


# Set while a test without an event loop waits for its bench.
own_thread: contextvars.ContextVar[OwnThread | None] = contextvars.ContextVar(
    "daybell_own_thread", default=None
)


# What a bench tells of one attempt.


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One attempt that the bench made.

    `execution` is as the attempt left it: ended, or to be tried again. `error` is what the task
    raised, itself and with its traceback.
    """

    execution: Execution
    attempt: int
    outcome: Outcome
    arguments: dict[str, Any]  # as the task got them
    result: Any = None
    error: BaseException | None = None

    @property
    def task(self) -> str:
        """The job: of a node, the workflow that it belongs to."""
        return self.execution.job

    @property
    def node(self) -> str | None:
        """Which node of a workflow it is, if it is one: `load`, or `process[2]`."""
        return self.execution.node

    @property
    def state(self) -> State:
        """What became of the execution: with tries left, a failed attempt leaves it retrying."""
        return self.execution.state

    @property
    def has_failed(self) -> bool:
        return self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)

    def __repr__(self) -> str:
        error = f" with {self.error!r}" if self.error is not None else ""
        left = "" if self.state.value == self.outcome.value else f", now {self.state}"
        what = self.task if self.node is None else f"{self.task}, {self.node}"
        return f"<Run {self.attempt} of {what}: {self.outcome}{error}{left}>"


# The time on a bench: it passes when the test says so, and not otherwise.


class BenchClock(ManualClock):
    """A clock that can be put to an exact instant, and rolls no dice: back-offs are as written."""

    def jitter(self) -> float:
        return 0.0

    def move_to(self, at: Instant) -> None:
        # Not by the difference: rounded, it could end just before what was to become due.
        self._now = at


logger = logging.getLogger("daybell.testing")

RUNS_MAX: Final = 1_000  # attempts while the clock stands still
PASSING_RUNS_MAX: Final = 100_000  # attempts while time passes
TURNS_MAX: Final = 10_000  # ticks in a row that nothing ran for, which cost time, too
ADMIT_MAX: Final = 1_000  # in one turn; the next one admits more
DEPTH_MAX: Final = 50


class EndlessRun(UsageError):
    """More is due after every attempt; it would never end."""


class Driver:
    """Runs what is due in a bench's store."""

    def __init__(self, app: App, store: BenchStore, clock: BenchClock, *, hooks: bool) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._hooks = hooks
        self._depth = 0
        self._endless: EndlessRun | None = None

    async def drive(
        self,
        wanted: Wanted,
        *,
        until: Instant | None = None,
        limit: int | None = None,
        check: bool = False,
        fires: Fires | None = None,
    ) -> list[Run]:
        """Run what is wanted and due, and what that enqueues; until then, if it is given.

        With `fires`, the schedules of such jobs fire as their times come.
        """
        if self._depth == 0:
            self._endless = None
        self._depth += 1
        try:
            if self._depth > DEPTH_MAX:
                self._endless = EndlessRun(
                    f"{DEPTH_MAX} tasks wait for one another's results; does one enqueue itself?"
                )
                raise self._endless
            async with AsyncExitStack() as stack:
                if fires is not None:
                    stack.enter_context(self._store.firing(fires))
                    await self._declare()
                runs = await self._drive(BenchWorkers(self, wanted, stack, check), until, limit)
        finally:
            self._depth -= 1
        if self._endless is not None:
            raise self._endless  # the tasks in between may have taken it for a passing failure
        return runs

    async def _drive(
        self, crew: BenchWorkers, until: Instant | None, limit: int | None
    ) -> list[Run]:
        store, clock = self._store, self._clock
        scheduler = Scheduler(store, clock=clock, mint=mint, events=self._app.events)
        end = clock.now() if until is None else until
        idle, since = 0, 0  # turns without an attempt; attempts before this moment
        while (at := await self._next(crew, scheduler)) is not None and at <= end:
            if at > clock.now():
                clock.move_to(at)
                since = len(crew.runs)
            await store.expire()
            await scheduler.tick()
            await store.admit(limit=ADMIT_MAX)
            if len(crew.runs) - since >= (RUNS_MAX if limit is None else limit):
                raise _endless(crew.runs[since:], "at one moment, and more is due then")
            if len(crew.runs) >= (PASSING_RUNS_MAX if limit is None else limit):
                raise _endless(crew.runs, "and more is due")
            done = len(crew.runs)
            if not await self._run_one(crew) and self._upcoming(crew) == at:
                break  # whatever keeps it from running, time does not help
            idle = 0 if len(crew.runs) > done else idle + 1
            if idle > TURNS_MAX:
                raise EndlessRun(
                    f"{idle:,} times in a row something was due and nothing ran; does a schedule"
                    " fire so often while its executions are skipped?"
                )
        clock.move_to(end)
        await store.expire()
        return crew.runs

    async def _next(self, crew: BenchWorkers, scheduler: Scheduler) -> Instant | None:
        """When there is something to do, once what depends on other jobs has been looked at."""
        await scheduler.dependents.tick()
        return self._upcoming(crew)

    def _upcoming(self, crew: BenchWorkers) -> Instant | None:
        times = self._store.upcoming(crew.wanted), self._store.next_tick()
        return min((at for at in times if at is not None), default=None)

    async def _declare(self) -> None:
        """Have the schedules of the tasks begin, which they do when the app is opened."""
        if any(one.schedules or one.dependencies for one in self._app.definitions()):
            await self._app.client_for()

    async def _run_one(self, crew: BenchWorkers) -> bool:
        """Whether something was run, or a workflow begun."""
        turns = [await (await crew.worker(tenant)).turn() for tenant in self._store.tenants()]
        return any(turns)

    async def hire(self, crew: BenchWorkers, tenant: str) -> BenchWorker:
        """A worker at its place, with the app's hooks around the first one."""
        if self._hooks and not crew.hands and current.get() is None:
            await crew.stack.enter_async_context(self._app.lifespan())
        handlers = BenchHandlers(self._app)

        def tell(claimed: Claimed, move: Transition, verdict: Verdict | None) -> None:
            del verdict
            error = handlers.errors.pop((claimed.id, claimed.attempt), None)
            crew.runs.append(self._told(claimed, move, error))

        worker = Worker(
            self._store,
            handlers,
            WorkerOptions(
                name="bench", tenant=tenant, kinds=NEEDS, concurrency=1, lease=LEASE_SECONDS
            ),
            clock=self._clock,
            mint=mint,
            events=EventTap(self._app.events, tell),
        )
        hand = BenchWorker(self._store, worker, tenant, crew)
        crew.stack.push_async_callback(hand.leave)
        await hand.arrive()
        return hand

    def _told(self, claimed: Claimed, move: Transition, error: BaseException | None) -> Run:
        execution = self._store.find(claimed.id)
        if move.outcome is Outcome.TIMED_OUT and move.error is not None:
            late = TimeoutError(Failure.from_json(move.error).message)
            late.__cause__, error = error, late
        run = Run(
            execution=execution,
            attempt=claimed.attempt,
            outcome=move.outcome,
            arguments=convert_arguments(self._app, execution),
            result=convert_result(self._app, execution),
            error=error,
        )
        if run.has_failed:
            logger.warning("%r", run, exc_info=error)
        return run


class BenchWorkers:
    """The workers of one drive, a worker per tenant, and what they have done."""

    def __init__(self, driver: Driver, wanted: Wanted, stack: AsyncExitStack, check: bool) -> None:
        self._driver = driver
        self.wanted = wanted
        self.stack = stack
        self.check = check
        self.hands: dict[str, BenchWorker] = {}
        self.runs: list[Run] = []

    async def worker(self, tenant: str) -> BenchWorker:
        if tenant not in self.hands:
            self.hands[tenant] = await self._driver.hire(self, tenant)
        return self.hands[tenant]


class BenchWorker:
    """A worker whose parts are ticked from here, instead of by its loops."""

    def __init__(self, store: BenchStore, worker: Worker, tenant: str, crew: BenchWorkers) -> None:
        self._store = store
        self._worker = worker
        self._tenant = tenant
        self._crew = crew

    async def arrive(self) -> None:
        worker, loop = self._worker, asyncio.get_running_loop()

        def on_cancel() -> None:
            # In production the next renewal brings the news.
            asyncio.run_coroutine_threadsafe(worker.current.heartbeat.tick(), loop)

        self._store.serve(worker.id, self._crew.wanted, on_cancel=on_cancel)
        new = NewWorker(id=worker.id, name="bench")
        await self._store.register(self._tenant, new, lease=LEASE_SECONDS)

    async def turn(self) -> bool:
        """Claim one execution, if one is due, and see it through to its end; False: none is."""
        done = len(self._crew.runs)
        await self._worker.current.dispatcher.tick()
        is_any = len(self._worker.executor) > 0
        await self._worker.executor.wait()
        await self._report()
        for run in self._crew.runs[done:]:
            if run.error is not None and (_ends_tests(run.error) or self._is_checked(run)):
                raise run.error
        return is_any or len(self._crew.runs) > done

    def _is_checked(self, run: Run) -> bool:
        return self._crew.check and run.has_failed

    async def leave(self) -> None:
        """Stop what still runs, which is only so if the test was stopped itself."""
        executor = self._worker.executor
        executor.stop_all(Stop.RELEASE)
        try:
            await asyncio.wait_for(executor.wait(), GRACE_SECONDS)
        except TimeoutError:
            executor.abandon()
        await self._report()
        self._store.dismiss(self._worker.id)
        await self._store.retire(self._tenant, self._worker.id)

    async def _report(self) -> None:
        completer = self._worker.current.completer
        while len(completer):
            await completer.tick()


class EventTap(Events):
    """An app's events, of which the bench hears first."""

    def __init__(
        self, events: Events, tell: Callable[[Claimed, Transition, Verdict | None], None]
    ) -> None:
        super().__init__()
        self._events = events
        self._tell = tell

    @property
    def is_followed(self) -> bool:
        return True

    def emit(self, kind: Callable[..., Any], *facts: Any, is_plain: bool = False) -> None:
        if kind is Ended:
            self._tell(*facts)
        self._events.emit(kind, *facts, is_plain=is_plain)


def find_task(app: App, execution: Execution) -> Task[..., Any, Any] | None:
    """The task that an execution runs: its job, or what its node of a workflow names."""
    workflow = app.workflows.get(execution.job)
    if workflow is None or execution.node is None:
        return app.tasks.get(execution.job)
    node = workflow.graph.by_name.get(node_name(execution.node))
    return None if node is None or node.kind != "task" else app.tasks.get(node.runs)


def convert_arguments(app: App, execution: Execution) -> dict[str, Any]:
    """The arguments as the task gets them; as they are stored if they do not fit it."""
    stored = payload.decode(execution.args, what="args")
    task = find_task(app, execution)
    if task is None:
        return stored
    try:
        return payload.convert(task.function, stored, skip=task.context_names)
    except InvalidArguments:
        return stored


def convert_result(app: App, execution: Execution) -> Any:
    """The result as a handle returns it."""
    if execution.state is not State.SUCCEEDED or execution.result is None:
        return None
    value = payload.decode(execution.result, what="result")
    task = find_task(app, execution)
    return value if task is None else payload.convert_result(task.function, value)


def _ends_tests(error: BaseException) -> bool:
    """Whether it is meant for the test: Ctrl-C, and pytest.fail() in a fake that a task calls."""
    return not isinstance(error, Exception | SystemExit | asyncio.CancelledError)


def _endless(runs: list[Run], when: str) -> EndlessRun:
    counts = Counter(run.task for run in runs).most_common(3)
    most = ", ".join(f"{task} {count:,} times" for task, count in counts)
    return EndlessRun(
        f"{len(runs):,} attempts were made ({most}) {when}; does a task enqueue itself, or its"
        " schedule fire so often? If it is meant to, give a higher limit="
    )

"""The driver of a bench: run the parts of a real worker tick by tick until nothing is due."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from daybell.client import mint
from daybell.core import payload
from daybell.core.execution import Claimed, Execution, Failure, Outcome, State
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.masking import Masks
from daybell.core.units import Instant, Seconds
from daybell.core.views import SweepKind
from daybell.core.worker import NewWorker
from daybell.core.workflow.run import node_name
from daybell.engine.attempt import GRACE_SECONDS, Attempt, Handler, Handlers, Stop
from daybell.engine.events import Ended, Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import InvalidArguments, Suspended, UsageError
from daybell.runners.kind import HandlerWrapper
from daybell.runners.python import ThreadCall, Threads, no_patience
from daybell.sdk.app import App
from daybell.sdk.context import current
from daybell.sdk.handlers import AppHandlers
from daybell.sdk.task import Task
from daybell.testing.store import LEASE_SECONDS, NEEDS, BenchStore, Fires, Wanted

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
    """Each attempt makes more work due, so the run would not end."""

    code = "endless-run"
    remedy = "Give the run an end, or run fewer steps."


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
            await store.upkeep(sweeps=(SweepKind.EXPIRE,))
            await scheduler.tick()
            await store.upkeep(ADMIT_MAX, sweeps=(SweepKind.ADMIT,))
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
        await store.upkeep(sweeps=(SweepKind.EXPIRE,))
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
        await self._store.queue.register(self._tenant, new, lease=LEASE_SECONDS)

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
        await self._store.queue.retire(self._tenant, self._worker.id)

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

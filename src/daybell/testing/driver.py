"""Driving the engine by hand: the parts of a real worker, one tick after the other.

Nothing is decided here. What is claimed, retried, expired or refused is up to the same code as in
production; this only turns the crank until nothing is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from daybell.client import mint
from daybell.core import arguments, payload
from daybell.core.execution import Claimed, Execution, Outcome, State
from daybell.core.failure import Failure
from daybell.core.instant import Instant
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.run import node_name
from daybell.core.worker import NewWorker
from daybell.engine.events import Ended, Events
from daybell.engine.executor import Stop
from daybell.engine.run import GRACE_SECONDS
from daybell.engine.scheduler import Scheduler
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import InvalidArguments, UsageError
from daybell.sdk.app import App
from daybell.sdk.context import current
from daybell.sdk.task import Task
from daybell.testing.clock import BenchClock
from daybell.testing.handlers import BenchHandlers
from daybell.testing.run import Run
from daybell.testing.store import LEASE_SECONDS, NEEDS, BenchStore, Fires, Wanted

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
                runs = await self._drive(Crew(self, wanted, stack, check), until, limit)
        finally:
            self._depth -= 1
        if self._endless is not None:
            raise self._endless  # the tasks in between may have taken it for a passing failure
        return runs

    async def _drive(self, crew: Crew, until: Instant | None, limit: int | None) -> list[Run]:
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

    async def _next(self, crew: Crew, scheduler: Scheduler) -> Instant | None:
        """When there is something to do, once what depends on other jobs has been looked at."""
        await scheduler.dependents.tick()
        return self._upcoming(crew)

    def _upcoming(self, crew: Crew) -> Instant | None:
        times = self._store.upcoming(crew.wanted), self._store.next_tick()
        return min((at for at in times if at is not None), default=None)

    async def _declare(self) -> None:
        """Have the schedules of the tasks begin, which they do when the app is opened."""
        if any(one.schedules or one.dependencies for one in self._app.definitions()):
            await self._app.client_for()

    async def _run_one(self, crew: Crew) -> bool:
        """Whether something was run, or a workflow begun."""
        turns = [await (await crew.worker(tenant)).turn() for tenant in self._store.tenants()]
        return any(turns)

    async def hire(self, crew: Crew, tenant: str) -> Hand:
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
            events=Tap(self._app.events, tell),
        )
        hand = Hand(self._store, worker, tenant, crew)
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
            arguments=arguments_of(self._app, execution),
            result=result_of(self._app, execution),
            error=error,
        )
        if run.has_failed:
            logger.warning("%r", run, exc_info=error)
        return run


class Crew:
    """The workers of one drive, a worker per tenant, and what they have done."""

    def __init__(self, driver: Driver, wanted: Wanted, stack: AsyncExitStack, check: bool) -> None:
        self._driver = driver
        self.wanted = wanted
        self.stack = stack
        self.check = check
        self.hands: dict[str, Hand] = {}
        self.runs: list[Run] = []

    async def worker(self, tenant: str) -> Hand:
        if tenant not in self.hands:
            self.hands[tenant] = await self._driver.hire(self, tenant)
        return self.hands[tenant]


class Hand:
    """A worker whose parts are ticked from here, instead of by its loops."""

    def __init__(self, store: BenchStore, worker: Worker, tenant: str, crew: Crew) -> None:
        self._store = store
        self._worker = worker
        self._tenant = tenant
        self._crew = crew

    async def arrive(self) -> None:
        worker, loop = self._worker, asyncio.get_running_loop()

        def on_cancel() -> None:
            # In production the next renewal brings the news.
            asyncio.run_coroutine_threadsafe(worker.heartbeat.tick(), loop)

        self._store.serve(worker.id, self._crew.wanted, on_cancel=on_cancel)
        new = NewWorker(id=worker.id, name="bench")
        await self._store.register(self._tenant, new, lease=LEASE_SECONDS)

    async def turn(self) -> bool:
        """Claim one execution, if one is due, and see it through to its end; False: none is."""
        done = len(self._crew.runs)
        await self._worker.dispatcher.tick()
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
            executor.forsake()
        await self._report()
        self._store.dismiss(self._worker.id)
        await self._store.retire(self._tenant, self._worker.id)

    async def _report(self) -> None:
        while len(self._worker.completer):
            await self._worker.completer.tick()


class Tap(Events):
    """An app's events, of which the bench hears first."""

    def __init__(
        self, events: Events, tell: Callable[[Claimed, Transition, Verdict | None], None]
    ) -> None:
        super().__init__()
        self._events = events
        self._tell = tell

    def emit(self, kind: Callable[..., Any], *facts: Any, is_plain: bool = False) -> None:
        if kind is Ended:
            self._tell(*facts)
        self._events.emit(kind, *facts, is_plain=is_plain)


def task_of(app: App, execution: Execution) -> Task[..., Any, Any] | None:
    """The task that an execution runs: its job, or what its node of a workflow names."""
    workflow = app.workflows.get(execution.job)
    if workflow is None or execution.node is None:
        return app.tasks.get(execution.job)
    node = workflow.graph.by_name.get(node_name(execution.node))
    return None if node is None or node.kind != "task" else app.tasks.get(node.runs)


def arguments_of(app: App, execution: Execution) -> dict[str, Any]:
    """The arguments as the task gets them; as they are stored if they do not fit it."""
    stored = payload.decode(execution.args, what="args")
    task = task_of(app, execution)
    if task is None:
        return stored
    try:
        return arguments.convert(task.function, stored, skip=task.context_names)
    except InvalidArguments:
        return stored


def result_of(app: App, execution: Execution) -> Any:
    """The result as a handle returns it."""
    if execution.state is not State.SUCCEEDED or execution.result is None:
        return None
    value = payload.decode(execution.result, what="result")
    task = task_of(app, execution)
    return value if task is None else arguments.convert_result(task.function, value)


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

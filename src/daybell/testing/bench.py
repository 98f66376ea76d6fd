"""The bench: a place to put an app on, to look at it and to turn it by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, ParamSpec, Self, TypeVar, cast, overload
from uuid import UUID

from daybell.client import Client
from daybell.client.requests import Time, read_time
from daybell.client.sealing import new_key
from daybell.core.duration import Duration, format_duration, parse_delay, parse_duration
from daybell.core.execution import PENDING, TERMINAL, Execution, State
from daybell.core.instant import Instant, from_datetime, to_iso
from daybell.core.priority import Priority
from daybell.errors import UsageError, shown
from daybell.sdk.app import App
from daybell.sdk.context import current
from daybell.sdk.task import Task
from daybell.sdk.workflow import Workflow
from daybell.testing.clock import BenchClock
from daybell.testing.context import START
from daybell.testing.driver import Driver, arguments_of
from daybell.testing.expectations import Expected, condition, describe
from daybell.testing.run import Run
from daybell.testing.store import BenchStore, Wanted
from daybell.testing.sync import SyncBench
from daybell.testing.transactions import check_connection

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = Task[..., Any, Any] | Workflow


class Bench:
    """An app on a store in memory, with a clock that stands still: `with Bench(app) as bench:`.

    Everything that the app enqueues inside the block goes there, and nothing runs until the test
    says so. Both end with the block. `now` is when it begins, `tenants` are those that exist beside
    the app's own, `hooks=False` leaves out `on_start` and `on_stop`. With `check=True` every
    failed attempt raises, not only in `run`.

    `connection` is for tasks that use `ctx.transaction()`: an asyncpg connection, or the URL of a
    database. A connection that is in a transaction stays in it, so that the test can undo what the
    tasks have written.

    Jobs without code are never run here: a command or a request would be a real one. They wait, and
    are among `executions()`.
    """

    def __init__(
        self,
        app: App,
        *,
        now: datetime = START,
        tenants: Collection[str] = (),
        hooks: bool = True,
        check: bool = False,
        connection: Any = None,
    ) -> None:
        if not isinstance(cast("object", app), App):
            raise UsageError(f"a bench is for an App, not {shown(app)}")
        check_connection(connection)
        self.app = app
        self._start = from_datetime(now)
        self._tenants = (app.tenant, *tenants)
        self._hooks = hooks
        self._check = check
        self._connection = connection
        self._stack: ExitStack | None = None
        self._set_up()

    def _set_up(self) -> None:
        self._clock = BenchClock(self._start)
        self._secrets_key = new_key()  # a test sets secrets of its own
        self._store = BenchStore(clock=self._clock.now, tenants=self._tenants)
        self._store.connection = self._connection
        self._driver = Driver(self.app, self._store, self._clock, hooks=self._hooks)

    def __enter__(self) -> Self:
        if self.app.stand_in is not None:
            raise UsageError("the app is on a bench already; use that one, or end its block first")
        self._set_up()
        self._stack = ExitStack()
        self._stack.callback(self._store.shut)
        self._stack.enter_context(self.app.standing_in(self._new_client))
        return self

    def __exit__(self, *_: object) -> None:
        if self._stack is not None:
            self._stack.close()
            self._stack = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    @property
    def sync(self) -> SyncBench:
        """The same from tests without an event loop."""
        return SyncBench(self)

    @property
    def now(self) -> datetime:
        """What time it is for the app's executions."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    # Looking.

    def enqueued(self, task: AnyTask) -> list[dict[str, Any]]:
        """The arguments of each execution of the task that waits, oldest first.

        They are as the task will get them. What was left to a default is not among them.
        """
        waiting = [one for one in self.executions(task) if one.state in PENDING]
        return [arguments_of(self.app, one) for one in waiting]

    def executions(self, task: AnyTask | None = None) -> list[Execution]:
        """All executions, or those of one task, oldest first."""
        self._check_entered()
        name = None if task is None else self._name_of(task)
        return [one for one in self._store.executions() if name in (None, one.job)]

    def assert_enqueued(
        self,
        task: AnyTask,
        arguments: Mapping[str, Any] | None = None,
        *,
        count: int | None = None,
        delay: Duration | None = None,
        at: Time | None = None,
        queue: str | None = None,
        priority: str | int | None = None,
        unique_key: str | None = None,
    ) -> None:
        """Fail unless such an execution waits, with these arguments at least; or so many of them.

        A `delay` counts from when it was enqueued.
        """
        __tracebackhide__ = True  # pytest shows the test's own line
        expected = self._expected(task, arguments, delay, at, queue, priority, unique_key)
        found = len(self._matching(expected))
        if found == count or (count is None and found):
            return
        wanted = "no" if count is None else f"{found} instead of {count}"
        raise AssertionError(f"{wanted} {expected} waits\n{self._described(expected)}")

    def assert_not_enqueued(
        self,
        task: AnyTask,
        arguments: Mapping[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        at: Time | None = None,
        queue: str | None = None,
        priority: str | int | None = None,
        unique_key: str | None = None,
    ) -> None:
        """Fail if such an execution waits."""
        __tracebackhide__ = True
        expected = self._expected(task, arguments, delay, at, queue, priority, unique_key)
        if self._matching(expected):
            raise AssertionError(f"{expected} waits\n{self._described(expected)}")

    # Running.

    @overload
    async def run(self, task: Task[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(self, task: Workflow, /, **params: Any) -> Any: ...
    async def run(  # pyright: ignore[reportInconsistentOverload]
        self, task: AnyTask, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Enqueue the task, run it now, and return its result or raise what it raises.

        One attempt and nothing else: what it enqueues waits, and it is not tried again. Of a
        workflow, one attempt of each node whose turn comes.
        """
        self._name_of(task)
        if isinstance(task, Workflow):
            one = task.options(delay=None, at=None)
        else:
            one = task.options(retries=0, delay=None, at=None)
        handle = await one.enqueue(*args, **kwargs)
        if not handle.created:
            raise UsageError(
                f"an unfinished {task.name} holds this unique_key, so nothing new can run;"
                " await bench.run_due() first"
            )
        runs = await self._driver.drive(self._part_of(handle.id))
        left = self._find(handle.id)
        if left.state not in TERMINAL:  # it would run in a later step of the test
            await handle.cancel()
            if runs and all(run.error is None for run in runs):
                raise UsageError(
                    f"{task.name} is {condition(left, self._clock.now())}, and run() makes one"
                    f" attempt; await {task.name}.enqueue(…), then bench.advance() or the event"
                    " that it waits for"
                )
        if not runs and left.state not in TERMINAL:
            raise UsageError(f"{task.name} cannot run: it is {condition(left, self._clock.now())}")
        for run in runs:
            if run.error is not None:
                raise run.error
        return await handle.result()

    async def run_due(
        self, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        """Run what is due, and what that enqueues, one after the other; answers each attempt.

        With tasks, only theirs, and only their schedules fire. The clock stands still. What fails
        is among the answers, and is tried again when its time has come; `check=True` raises it
        instead. More than `limit` attempts raise EndlessRun; by default, 1,000 at one moment.
        """
        return await self._drive(tasks, until=None, limit=limit, check=check)

    async def advance(
        self, by: Duration, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        """Let time pass, and run what becomes due on the way, each at its own time: what was
        delayed, what is retried, and what schedules fire. More than `limit` attempts raise
        EndlessRun; by default, 1,000 at one moment, or 100,000 in all.
        """
        until = self._clock.now() + parse_duration(by, what="by")
        return await self._drive(tasks, until=until, limit=limit, check=check)

    async def advance_to(
        self, at: datetime, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        """The same, up to a moment."""
        if not isinstance(at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"{shown(at)} is not a datetime; to move the clock by a while, use advance('1h')"
            )
        until = from_datetime(at)
        if until < self._clock.now():
            raise UsageError(f"it is {self.now.isoformat()} already; a clock is not put back")
        return await self._drive(tasks, until=until, limit=limit, check=check)

    async def _drive(
        self,
        tasks: Collection[AnyTask],
        *,
        until: Instant | None,
        limit: int | None,
        check: bool | None,
    ) -> list[Run]:
        self._check_entered()
        names = {self._name_of(task) for task in tasks}
        wanted: Wanted = (lambda execution: execution.job in names) if names else _anything
        is_checked = self._check if check is None else check
        return await self._driver.drive(
            wanted,
            until=until,
            limit=limit,
            check=is_checked,
            fires=(lambda job: job in names) if names else _everybody,
        )

    def _new_client(self) -> Client:
        key = self._secrets_key
        client = Client(self._store, tenant=self.app.tenant, secrets_key=key)
        client.on_wait = self._run_awaited
        return client

    async def _run_awaited(self, id: UUID) -> None:
        """Somebody is about to wait for this execution: run it, or say why that would not end."""
        state = self._find(id).state
        if state in TERMINAL or (state is State.RUNNING and current.get() is None):
            return
        await self._driver.drive(self._part_of(id))
        execution = self._find(id)
        if execution.state not in TERMINAL:
            now = self._clock.now()
            left = max(0.0, round(execution.run_at - now, 6))
            raise TimeoutError(
                f"{execution.job} {id} is {condition(execution, now)}. On a bench time stands"
                " still, so its result will not come by waiting"
                + (f"; await bench.advance({format_duration(left)!r}) first" if left else "")
            )

    def _part_of(self, id: UUID) -> Wanted:
        """Whether something is this execution, or a node of it, however deep."""

        def is_part(execution: Execution) -> bool:
            while execution.id != id:
                if execution.node is None or execution.parent is None:
                    return False
                execution = self._find(execution.parent)
            return True

        return is_part

    def _find(self, id: UUID) -> Execution:
        return self._store.find(id)

    def _expected(
        self,
        task: AnyTask,
        arguments: Mapping[str, Any] | None,
        delay: Duration | None,
        at: Time | None,
        queue: str | None,
        priority: str | int | None,
        unique_key: str | None,
    ) -> Expected:
        return Expected(
            task=self._name_of(task),
            arguments=arguments,
            delay=None if delay is None else parse_delay(delay),
            at=None if at is None else read_time(at, "at"),
            queue=queue,
            priority=None if priority is None else Priority.parse(priority),
            unique_key=unique_key,
        )

    def _matching(self, expected: Expected) -> list[Execution]:
        return [
            one
            for one in self.executions()
            if one.state in PENDING and expected.fits(one, arguments_of(self.app, one))
        ]

    def _described(self, expected: Expected) -> str:
        return describe(
            self.executions(),
            task=expected.task,
            now=self._clock.now(),
            arguments_of=lambda execution: arguments_of(self.app, execution),
        )

    def _name_of(self, task: AnyTask) -> str:
        # A test that asks about a task of another app would be told "nothing" for ever.
        if not isinstance(cast("object", task), Task | Workflow):
            raise UsageError(f"{shown(task)} is not a task; pass the decorated function itself")
        if task.app is not self.app:
            raise UsageError(f"{task.name} is a task of another app than the one on this bench")
        return task.name

    def _check_entered(self) -> None:
        if self._stack is None:
            raise UsageError("the bench is not in use; write `with Bench(app) as bench:`")

    def __repr__(self) -> str:
        return f"<Bench at {to_iso(self._clock.now())}>"


def _everybody(job: str) -> bool:
    del job
    return True


def _anything(execution: Execution) -> bool:
    del execution
    return True

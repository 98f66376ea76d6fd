"""The bench: an app on a store in memory with a manual clock, async or sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, Self, TypeVar, cast, overload
from uuid import UUID

from daybell.client import Client
from daybell.client.requests import Time, read_time
from daybell.client.sealing import new_key
from daybell.core.execution import PENDING, TERMINAL, Execution, Failure, Priority, State
from daybell.core.units import (
    Duration,
    Instant,
    Seconds,
    format_duration,
    from_datetime,
    parse_delay,
    parse_duration,
    to_iso,
)
from daybell.errors import UsageError, shown
from daybell.runners.python import Threads
from daybell.sdk import sync
from daybell.sdk.app import App
from daybell.sdk.context import current
from daybell.sdk.task import Task
from daybell.sdk.workflow import Workflow
from daybell.testing.context import START
from daybell.testing.driver import (
    BenchClock,
    Driver,
    OwnThread,
    Run,
    convert_arguments,
    own_thread,
)
from daybell.testing.store import BenchStore, Wanted, check_connection

# The bench for tests without an event loop: a facade with blocking methods.

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AnyTask = Task[..., Any, Any] | Workflow

_spare = Threads()  # of all benches, so that a long suite does not accumulate idle threads


class SyncBench:
    """Blocking methods of a bench. Tasks that are plain functions run in the test's own thread."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @overload
    def run(self, task: Task[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, task: Workflow, /, **params: Any) -> Any: ...
    def run(  # pyright: ignore[reportInconsistentOverload]
        self, task: AnyTask, /, *args: Any, **kwargs: Any
    ) -> Any:
        return _wait(self._bench.run(task, *args, **kwargs))

    def run_due(
        self, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.run_due(*tasks, limit=limit, check=check))

    def advance(
        self, by: Duration, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.advance(by, *tasks, limit=limit, check=check))

    def advance_to(
        self, at: datetime, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        return _wait(self._bench.advance_to(at, *tasks, limit=limit, check=check))


def _wait(work: Coroutine[Any, Any, T]) -> T:
    thread = OwnThread(_spare)
    token = own_thread.set(thread)
    try:
        future = sync.submit(_caught(work))
    except BaseException:
        work.close()
        raise
    finally:
        own_thread.reset(token)
    try:
        thread.serve(future)
        outcome = future.result()
    except BaseException:
        future.cancel()
        raise
    if isinstance(outcome, Raised):
        raise outcome.error
    return outcome


@dataclass(frozen=True)
class Raised:
    """An exception on its way out of the loop."""

    error: BaseException


async def _caught(work: Coroutine[Any, Any, T]) -> T | Raised:
    # Raised in the loop, a KeyboardInterrupt would end the loop itself.
    try:
        return await work
    except BaseException as error:
        return Raised(error)


# The expected executions of an assertion, and the message if they do not exist.

SHOWN_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The requirements for a waiting execution; None requires nothing."""

    task: str
    arguments: Mapping[str, Any] | None = None  # at least these
    delay: Seconds | None = None
    at: Instant | None = None
    queue: str | None = None
    priority: Priority | None = None
    unique_key: str | None = None

    def fits(self, execution: Execution, arguments: Mapping[str, Any]) -> bool:
        asked = self.arguments or {}
        delay = execution.run_at - execution.created_at
        return (
            execution.job == self.task
            and all(name in arguments and arguments[name] == asked[name] for name in asked)
            and (self.delay is None or abs(delay - self.delay) < 1e-3)
            and (self.at is None or abs(execution.run_at - self.at) < 1e-3)
            and self.queue in (None, execution.queue)
            and self.priority in (None, execution.priority)
            and self.unique_key in (None, execution.unique_key)
        )

    def __str__(self) -> str:
        asked = [] if self.arguments is None else [repr(dict(self.arguments))]
        if self.delay is not None:
            asked.append(f"delay {format_duration(self.delay)}")
        if self.at is not None:
            asked.append(f"at {self.at}")
        if self.queue is not None:
            asked.append(f"queue {self.queue}")
        if self.priority is not None:
            asked.append(f"priority {self.priority.name.lower()}")
        if self.unique_key is not None:
            asked.append(f"unique key {self.unique_key!r}")
        return f"{self.task} with {', '.join(asked)}" if asked else self.task


def describe_executions(
    executions: list[Execution],
    *,
    task: str,
    now: Instant,
    arguments_of: Callable[[Execution], Mapping[str, Any]],
) -> str:
    """Describe the executions of a task for a message: waiting, ended, and those of other tasks."""

    def listed(title: str, found: list[Execution]) -> list[str]:
        if not found:
            return []
        lines = [f"  {dict(arguments_of(one))!r}: {describe_condition(one, now)}" for one in found]
        more = [f"  and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
        return [f"{title}:", *lines[:SHOWN_MAX], *more]

    own = [one for one in executions if one.job == task]
    others = Counter(one.job for one in executions if one.job != task and one.state in PENDING)
    waiting = [one for one in own if one.state in PENDING]
    lines = [
        *(listed(f"of {task} there wait", waiting) or [f"no {task} waits"]),
        *listed(f"of {task} there ended", [one for one in own if one.state in TERMINAL]),
    ]
    if others:
        counts = ", ".join(f"{name} ×{count}" for name, count in others.items())
        lines.append(f"others that wait: {counts}")
    return "\n".join(lines)


def describe_condition(execution: Execution, now: Instant) -> str:
    """Describe the state of an execution in a few words."""
    words = str(execution.state)
    if execution.run_at > now and execution.state in PENDING:
        words += f", due in {format_duration(round(execution.run_at - now, 6))}"
    if execution.reason is not None:
        words += f" ({execution.reason})"
    if execution.error is not None:
        failure = Failure.from_json(execution.error)
        words += f", failed with {failure.type}: {failure.message[:200]}"
    words += f"; queue {execution.queue}, priority {execution.priority.name.lower()}"
    return words if execution.unique_key is None else f"{words}, key {execution.unique_key!r}"


class Bench:
    """An app on a store in memory, with a clock that stands still: `with Bench(app) as bench:`.

    Everything that the app enqueues inside the block goes to this store, and nothing runs until the
    test calls a method that runs it. Both end with the block. `now` is the time at its start,
    `tenants` are tenants beside the app's own, `hooks=False` omits `on_start` and `on_stop`. With
    `check=True` every failed attempt raises, not only in `run`.

    `connection` is for tasks that use `ctx.transaction()`: an asyncpg connection, or the URL of a
    database. A connection that is in a transaction stays in it, so that the test can undo the
    writes of the tasks.

    Jobs without code never run here: a command or a request would be a real one. They wait, and are
    among `executions()`.
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
        """The same for tests without an event loop."""
        return SyncBench(self)

    @property
    def now(self) -> datetime:
        """The time for the app's executions."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    # Looking.

    def enqueued(self, task: AnyTask) -> list[dict[str, Any]]:
        """Return the arguments of each waiting execution of the task, oldest first.

        They are converted as for the task. Defaults are not included.
        """
        waiting = [one for one in self.executions(task) if one.state in PENDING]
        return [convert_arguments(self.app, one) for one in waiting]

    def executions(self, task: AnyTask | None = None) -> list[Execution]:
        """Return all executions, or those of one task, oldest first."""
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
        """Fail unless an execution waits with at least these arguments, or `count` of them.

        A `delay` counts from the enqueue.
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
        """Enqueue the task, run it now, and return its result or raise its exception.

        One attempt and nothing else: executions that it enqueues wait, and there is no retry. Of a
        workflow, one attempt of each node in turn.
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
                    f"{task.name} is {describe_condition(left, self._clock.now())}, and"
                    " run() makes one"
                    f" attempt; await {task.name}.enqueue(…), then bench.advance() or the event"
                    " that it waits for"
                )
        if not runs and left.state not in TERMINAL:
            raise UsageError(
                f"{task.name} cannot run: it is {describe_condition(left, self._clock.now())}"
            )
        for run in runs:
            if run.error is not None:
                raise run.error
        return await handle.result()

    async def run_due(
        self, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        """Run due executions, and those that they enqueue, one after the other; return each
        attempt.

        With tasks, only theirs run, and only their schedules fire. The clock stands still. Failed
        attempts are returned, and are retried at their time; `check=True` raises instead. More than
        `limit` attempts raise EndlessRun; by default, 1,000 at one moment.
        """
        return await self._drive(tasks, until=None, limit=limit, check=check)

    async def advance(
        self, by: Duration, *tasks: AnyTask, limit: int | None = None, check: bool | None = None
    ) -> list[Run]:
        """Move the clock, and run executions that become due on the way, each at its time: delayed
        ones, retries, and those of schedules. More than `limit` attempts raise EndlessRun; by
        default, 1,000 at one moment, or 100,000 in all.
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
        """Run an execution that the program is about to wait for, or raise the reason why that
        would not end.
        """
        state = self._find(id).state
        if state in TERMINAL or (state is State.RUNNING and current.get() is None):
            return
        await self._driver.drive(self._part_of(id))
        execution = self._find(id)
        if execution.state not in TERMINAL:
            now = self._clock.now()
            left = max(0.0, round(execution.run_at - now, 6))
            raise TimeoutError(
                f"{execution.job} {id} is {describe_condition(execution, now)}. On a"
                " bench time stands"
                " still, so its result will not come by waiting"
                + (f"; await bench.advance({format_duration(left)!r}) first" if left else "")
            )

    def _part_of(self, id: UUID) -> Wanted:
        """True if it is this execution, or a node of it at any depth."""

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
            if one.state in PENDING and expected.fits(one, convert_arguments(self.app, one))
        ]

    def _described(self, expected: Expected) -> str:
        return describe_executions(
            self.executions(),
            task=expected.task,
            now=self._clock.now(),
            arguments_of=lambda execution: convert_arguments(self.app, execution),
        )

    def _name_of(self, task: AnyTask) -> str:
        # A test that asks about a task of another app would otherwise get "nothing" for ever.
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

"""Tasks: functions that can be called, or enqueued with the same arguments; and handles of their
executions.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import UUID

from msgspec.structs import replace

from daybell.client import Cancellation, Client, answers, wire
from daybell.client.client import BorrowedConnection
from daybell.client.executions import execution as find_execution
from daybell.client.explain.executions import explain_idle
from daybell.client.requests import EnqueueOptions, check_options
from daybell.core import payload
from daybell.core.execution import TERMINAL, Enqueued, Execution, Failure, State
from daybell.core.job import JobDefinition
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.core.references import SECRET_MARK, names_in
from daybell.core.units import Duration, Seconds, parse_duration
from daybell.core.when.declared import is_fired_by_event
from daybell.core.when.event import TAKE_EVENT, sample_args
from daybell.engine.loop import SystemClock
from daybell.errors import DaybellError, InvalidArguments, InvalidName, UsageError, shown, suggested
from daybell.sdk.context import Context, context_names
from daybell.sdk.durable import WrappedFunction
from daybell.sdk.nodes import Nodelike
from daybell.sdk.sync import run

if TYPE_CHECKING:
    from daybell.client.client import SqlCall


# A handle on an enqueued execution.

R = TypeVar("R")

POLL_MIN_SECONDS: Final = 0.01
POLL_MAX_SECONDS: Final = 0.5


class ExecutionFailed(DaybellError):
    """The execution ended without success; `state` is its state, `failure` its error, if any."""

    code = "execution-failed"
    remedy = "Read `failure` and the log of the execution; correct the cause, then retry."

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.state = execution.state
        self.failure = None if execution.error is None else Failure.from_json(execution.error)
        reason = f" ({execution.reason})" if execution.reason else ""
        error = f": {self.failure.type}: {self.failure.message}" if self.failure else ""
        super().__init__(f"{execution.job} {execution.id} is {self.state}{reason}{error}")


class Handle(Generic[R]):
    """A handle of one execution."""

    def __init__(
        self,
        client: Callable[[], Awaitable[Client]],
        id: UUID,
        *,
        created: bool = True,
        convert: Callable[[Any], R] | None = None,
    ) -> None:
        self._client = client
        self._convert = convert
        self.id = id
        self.created = created  # False: the execution existed and holds the unique key

    async def execution(self) -> wire.Execution:
        """Fetch the execution."""
        client = await self._client()
        found = await self._find()
        return answers.execution(found, (await client.job_ids([found.job]))[found.job])

    async def _find(self) -> Execution:
        return (await find_execution(await self._client(), self.id)).execution

    async def status(self) -> State:
        """Fetch its state."""
        return (await self._find()).state

    async def cancel(self) -> Cancellation:
        """Cancel it; a running task is asked to stop.

        The result is true if the cancel was in time: "cancelled" if the execution had not started,
        "requested" if it runs. It is false, "finished", if the execution had ended.
        """
        return await (await self._client()).cancel(self.id)

    async def signal(self, name: str, data: Any = None) -> None:
        """Send an event to this execution alone, for `ctx.wait_for_event`.

        A workflow run passes it to the node that waits for it; Conflict if there is not exactly
        one.
        """
        await (await self._client()).signal(self.id, name, data)

    async def approve(
        self,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> None:
        """Send a decision, for `ctx.wait_for_approval`; a workflow run passes it on as `signal`
        does.
        """
        client = await self._client()
        await client.approve(self.id, name, approved=approved, by=by, note=note)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109
        """Wait for the end of the execution and return the result of the task.

        Raises ExecutionFailed after any other end, and TimeoutError if the execution has not ended
        in time; it continues. With `store_result=False` the result is None.
        """
        clock = SystemClock()
        limit = None if timeout is None else parse_duration(timeout, what="timeout")
        if (on_wait := (await self._client()).on_wait) is not None:
            await on_wait(self.id)
        started, pause = clock.monotonic(), POLL_MIN_SECONDS
        while True:
            execution = await self._find()
            if execution.state in TERMINAL:
                return self._result(execution)
            waited = clock.monotonic() - started
            if limit is not None and waited >= limit:
                raise TimeoutError(await self._explain_timeout(execution, limit))
            await clock.sleep(pause if limit is None else min(pause, limit - waited))
            pause = min(pause * 1.5, POLL_MAX_SECONDS)

    async def _explain_timeout(self, execution: Execution, limit: Seconds) -> str:
        client = await self._client()
        why = None
        with suppress(DaybellError):  # the timeout is raised in any case
            why = await explain_idle(client, execution)
        late = f"{self.id} is still {execution.state} after {limit:g} s"
        return f"{late}; {why}" if why else f"{late}, in {client.place}"

    def _result(self, execution: Execution) -> R:
        if execution.state is not State.SUCCEEDED:
            raise ExecutionFailed(execution)
        value: Any = None
        if execution.result is not None:
            value = payload.decode(execution.result, what="result")
        return value if self._convert is None else self._convert(value)

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"


# The common part of tasks and workflows: enqueue one or many.


class CallOptions(EnqueueOptions, total=False):
    """The arguments of `options()`: when, where and how one execution runs."""

    unique_key: str | None
    tenant: str | None
    connection: Any  # a PostgreSQL connection of the caller: enqueue in its transaction


CALL_OPTIONS: Final = frozenset(CallOptions.__optional_keys__)


class AnyJob(Protocol):
    """A task or a workflow, from the view of its app."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> JobDefinition: ...

    @property
    def described(self) -> JobDefinition: ...

    def check_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]: ...


class JobApp(Protocol):
    """The app of a task or a workflow, from their view."""

    tenant: str
    stand_in: Callable[[], Client] | None

    @property
    def tasks(self) -> Mapping[str, Task[..., Any, Any]]: ...

    async def client_for(self, tenant: str | None = None) -> Client: ...

    async def enqueue(
        self, task: AnyJob, args: Mapping[str, Any], options: CallOptions
    ) -> tuple[UUID, bool]: ...

    async def enqueue_many(
        self, task: AnyJob, items: Iterable[Mapping[str, Any]], options: CallOptions
    ) -> list[UUID]: ...

    async def prepare(
        self,
        task: AnyJob,
        items: Iterable[Mapping[str, Any]],
        options: CallOptions,
        borrowed: BorrowedConnection,
    ) -> SqlCall: ...

    def add_workflow(self, workflow: Any) -> None: ...

    def check_new(self, name: str) -> None: ...

    async def close(self) -> None: ...


class Enqueueable(ABC, Generic[R]):
    """A job of an app, with executions that have a result of this type."""

    def __init__(
        self,
        app: JobApp,
        options: CallOptions | None = None,
        *,
        convert: Callable[[Any], R] | None = None,
    ) -> None:
        self.app = app
        self._options: CallOptions = options or {}
        self._convert = convert

    @abstractmethod
    def check_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments of a call, and return them by name."""

    def _handle(self, id: UUID, created: bool) -> Handle[R]:
        return Handle(self._find_client, id, created=created, convert=self._convert)

    async def _find_client(self) -> Client:
        return await self.app.client_for(self._options.get("tenant"))

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one execution per item, its arguments by name; one round trip, all or nothing.

        More than 10,000 items are streamed in one transaction, without handles to return.
        """
        checked = self.check_many(items)
        if self.connection is not None:
            return await self._enqueue_through(checked)
        answers = await self.app.enqueue_many(cast("AnyJob", self), checked, self._options)
        return [self._handle(id, created=True) for id in answers]

    async def _enqueue_one(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle[R]:
        given = self.check_args(args, kwargs)
        if self.connection is not None:
            (handle,) = await self._enqueue_through([given])
            return handle
        return self._handle(*await self.app.enqueue(cast("AnyJob", self), given, self._options))

    async def _enqueue_through(self, items: Iterable[dict[str, Any]]) -> list[Handle[R]]:
        borrowed = BorrowedConnection(self.connection, is_async=True)
        call = await self.app.prepare(cast("AnyJob", self), items, self._options, borrowed)
        return self.handles(await borrowed.send(call))

    @property
    def connection(self) -> Any:
        """The caller's connection of `options(connection=…)`."""
        # In a test it would lead to a real database.
        return None if self.app.stand_in is not None else self._options.get("connection")

    @property
    def call_options(self) -> CallOptions:
        """The arguments of `options`."""
        return self._options

    def check_many(self, items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the checked arguments of each item."""
        if self._options.get("unique_key") is not None:
            raise UsageError("a unique_key is for one execution; enqueue_many takes none")
        return (_check_item(position, item, self.check_args) for position, item in enumerate(items))

    def handles(self, answers: Iterable[Enqueued]) -> list[Handle[R]]:
        """Return handles for the answers of a store."""
        return [self._handle(answer.id, answer.created) for answer in answers]


class RereadableItems(Iterable[Mapping[str, Any]]):
    """Items that can be iterated again, unless more than a batch was read."""

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self._rest = iter(items)
        self._read: list[Mapping[str, Any]] | None = []

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        if self._read is None:
            raise UsageError("these items were read already; enqueue them again")
        yield from tuple(self._read)
        for item in self._rest:
            if self._read is not None:
                self._read.append(item)
                if len(self._read) > ENQUEUE_BATCH_MAX:
                    self._read = None
            yield item


def _check_item(
    position: int,
    item: Mapping[str, Any],
    bound: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Check the arguments of an item; errors name its position."""
    if not isinstance(cast("object", item), Mapping):
        kind = type(item).__name__
        raise UsageError(
            f"items[{position}]: arguments are given by name, as a dict, not as {kind}"
        )
    try:
        return bound((), item)
    except InvalidArguments as error:
        raise InvalidArguments(f"items[{position}]: {error}", field=error.field) from error


P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


# Methods of other libraries, and their counterparts.
_ELSEWHERE: Final = {
    "delay": "Celery's .delay(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "apply_async": "Celery's .apply_async(args, countdown=60) is .options(…).enqueue(…) here:"
    ' await {task}.options(delay="60s").enqueue(…)',
    "apply": "Celery's .apply(…) is a plain call here: {task}(…)",
    "s": "Celery's .s(…) is a node of a workflow here: {task}.node(…)",
    "si": "Celery's .si(…) is a node of a workflow here: {task}.node(…)",
    "signature": "Celery's .signature(…) is a node of a workflow here: {task}.node(…)",
    "send": "Dramatiq's .send(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "send_with_options": "Dramatiq's .send_with_options(…) is .options(…).enqueue(…) here:"
    ' await {task}.options(delay="60s").enqueue(…)',
    "kiq": "Taskiq's .kiq(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "defer": "Procrastinate's .defer(…) is .enqueue(…) here: await {task}.enqueue(…)",
    "defer_async": "Procrastinate's .defer_async(…) is .enqueue(…) here: await {task}.enqueue(…)",
}


class Task(Nodelike, WrappedFunction, Enqueueable[R], Generic[P, R, F]):
    """A function that is a job. A call runs it here; `enqueue` has a worker run it.

    The type parameters are the arguments of `enqueue`, the result, and the function.
    """

    __name__: str
    function: F

    def __init__(
        self,
        app: JobApp,
        function: F,
        definition: JobDefinition,
        options: CallOptions | None = None,
    ) -> None:
        # Attributes of the function could hide those set below.
        functools.update_wrapper(cast("Any", self), function, updated=())
        super().__init__(app, options, convert=self._convert_result)
        self.function = function
        self.definition = definition
        self._context_names: frozenset[str] | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    if TYPE_CHECKING:
        __call__: F
    else:

        def __call__(self, *args, **kwargs):
            function = getattr(self.function, "of_batch", self.function)
            return function(*args, **kwargs)

        def __getattr__(self, name):
            said = _ELSEWHERE.get(name)
            if said is None:
                raise AttributeError(f"a task has no attribute {name!r}")
            name_here = self.definition.name
            raise AttributeError(
                f"{said.format(task=name_here)}. Without an event loop: {name_here}.sync.enqueue(…)"
            )

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[CallOptions]) -> Task[P, R, F]:
        """Return the same task with other options for its executions."""
        check_options(options, CALL_OPTIONS, "options()")
        return Task(self.app, self.function, self.definition, {**self._options, **options})

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue an execution. When this returns, it is on disk.

        Arguments are checked against the signature. With `options(connection=…)` the execution is
        on disk when the transaction of that connection is committed.
        """
        return await self._enqueue_one(args, kwargs)

    @property
    def sync(self) -> SyncTask[P, R]:
        """Blocking variants for code without an event loop."""
        return SyncTask(self)

    @property
    def context_names(self) -> frozenset[str]:
        """The parameters that the worker fills: those of type `Context`, and a bare `ctx`."""
        if self._context_names is None:
            self._context_names = context_names(self.function)
        return self._context_names

    @property
    def described(self) -> JobDefinition:
        """The definition for the store, with the signature. Read late: annotations may name types
        that are declared after the task.
        """
        return replace(self.definition, signature=self._signature)

    @functools.cached_property
    def _signature(self) -> str:
        schema = payload.describe(self.function, skip=self.context_names)
        return payload.encode(schema, what="signature")

    def check_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self._check(payload.bind(self.function, args, kwargs, skip=self.context_names))

    def check_names(self, names: Iterable[str]) -> None:
        """Check that the function takes arguments of these names, and needs no others."""
        payload.bind(self.function, (), dict.fromkeys(names), skip=self.context_names)

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert as the worker will, so that errors occur here."""
        if not given:
            return payload.EncodedArgs(given, "{}")
        text = payload.encode(given)
        may_have_set = "[" in text  # a set is stored as a list
        if may_have_set or not self._reader.accepts(text):
            stored = payload.decode(text)
            secret = ()
            if SECRET_MARK in text:  # only the worker resolves secrets
                secret = {name for name, value in stored.items() if names_in(value)}
            converted = payload.convert(
                self.function, stored, skip=self.context_names, unseen=secret
            )
            if may_have_set:
                payload.check_sets(self.function, given, converted)
        return payload.EncodedArgs(given, text)

    @functools.cached_property
    def _reader(self) -> payload.CallReader:
        return payload.call_reader(self.function, self.context_names)

    def _convert_result(self, result: Any) -> R:
        return payload.convert_result(self.function, result)


def bind_args(
    task: AnyJob, args: Mapping[str, Any] | None, when: object = None
) -> Mapping[str, Any] | None:
    """Check and return the arguments of a schedule; None stands for those of the job."""
    if is_fired_by_event(when):
        check_event_call(task, task.definition.args if args is None else payload.encode(args))
        return args
    if args is None:
        check_call(task, "this schedule")
        return None
    return task.check_args((), args)


def check_call(task: AnyJob, what: str) -> None:
    """Check that a schedule can call a job with its own arguments."""
    try:
        task.check_args((), payload.decode(task.definition.called_args))
    except InvalidArguments as error:
        raise InvalidArguments(
            f"{task.definition.kind} {task.name!r}: {what} has the wrong arguments: {error};"
            " say args={…}",
            field="args",
        ) from None


def check_event_call(job: AnyJob, args: str) -> None:
    """Check that an event can call a task: it takes `event`, or the arguments that the event fills.
    A workflow is checked where it is stored.
    """
    if not isinstance(job, Task):
        return
    task = cast("Task[..., Any, Any]", job)
    try:
        task.check_names(payload.decode(sample_args(args)))
    except InvalidArguments as error:
        raise InvalidArguments(
            f"task {task.name!r}: its event has the wrong arguments: {error}; {TAKE_EVENT}",
            field="args",
        ) from None


def check_plain(function: object) -> None:
    """Reject objects that are no functions, and methods."""
    name = getattr(function, "__qualname__", type(function).__name__)
    if inspect.isclass(function):
        raise UsageError(
            f"a task is a function, and {name} is a class. Write a function that makes the object"
            " and uses it, and make that the task"
        )
    if inspect.ismethod(function) or isinstance(function, classmethod) or _is_method(function):
        raise UsageError(
            f"a task is a function, and {name}() is a method: a worker in another process has no"
            " object to call it on. Write a function that makes the object and calls the method,"
            " and make that the task; a @staticmethod can be one"
        )
    if not callable(function):
        raise UsageError(f"a task is a function, not {shown(function)}")


def check_key_arguments(task: Task[..., Any, Any]) -> None:
    """Check that a task has the arguments that the key of its requests names."""
    parameters = inspect.signature(task.function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    for name in task.definition.key_arguments:
        if name not in parameters or name in task.context_names:
            raise UsageError(
                f"task {shown(task.name)}: its key names the argument {shown(name)}, which the"
                f" function does not have; {suggested(name, list(parameters))}",
                field="key",
            )


def name_of(function: object) -> str:
    """Return the default name of a task: that of its function."""
    name = str(getattr(function, "__name__", ""))
    if not name or name == "<lambda>":
        what = "a lambda" if name else f"an object of {type(function).__name__}"
        raise InvalidName(
            f"a task is named like its function, and {what} has no name; give it one:"
            ' app.task(name="…")(…)',
            field="name",
        )
    return name


def _is_method(function: object) -> bool:
    """Return True for a function in the body of a class with a parameter self or cls."""
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    if not inspect.isfunction(function) or not owner or owner.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(function).parameters), None) in ("self", "cls")


# Types of `@app.task` for editors: the function's arguments and result, without the context.
#
# The first matching overload wins, and a parameter or a result of type Any matches all.


class Anything:
    """Matches only types that match everything: functions without annotations."""


# The type of a first parameter that may be a context: nothing can be checked.
Loose = TypeVar("Loose", bound=Callable[Concatenate[Anything, ...], Any])

Function = Callable[P, R]
AsyncFunction = Callable[P, Coroutine[Any, Any, R]]
ContextFunction = Callable[Concatenate[Context, P], R]
AsyncContextFunction = Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]


class Decorator(Protocol):
    """The result of `app.task(…)`."""

    @overload
    def __call__(self, function: Loose, /) -> Task[..., Any, Loose]: ...
    @overload
    def __call__(
        self, function: AsyncContextFunction[P, R], /
    ) -> Task[P, R, AsyncContextFunction[P, R]]: ...
    @overload
    def __call__(self, function: ContextFunction[P, R], /) -> Task[P, R, ContextFunction[P, R]]: ...
    @overload
    def __call__(self, function: Function[P, Anything], /) -> Task[P, Any, Function[P, Any]]: ...
    @overload
    def __call__(self, function: AsyncFunction[P, R], /) -> Task[P, R, AsyncFunction[P, R]]: ...
    @overload
    def __call__(self, function: Function[P, R], /) -> Task[P, R, Function[P, R]]: ...


# Blocking variants for code without an event loop.


class SyncEnqueueable(Generic[R]):
    """Blocking variants of the methods of a task or a workflow."""

    def __init__(self, job: Enqueueable[R]) -> None:
        self._job = job

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[SyncHandle[R]]:
        if self._job.connection is not None:
            return self._enqueue_through(self._job.check_many(items))
        return [SyncHandle(handle) for handle in run(self._job.enqueue_many(items))]

    def _enqueue_through(self, items: Iterable[dict[str, Any]]) -> list[SyncHandle[R]]:
        """Enqueue in this thread, because the connection belongs to it."""
        job = self._job
        borrowed = BorrowedConnection(job.connection, is_async=False)
        call = run(job.app.prepare(cast("AnyJob", job), items, job.call_options, borrowed))
        return [SyncHandle(handle) for handle in job.handles(borrowed.send_sync(call))]


class SyncTask(SyncEnqueueable[R], Generic[P, R]):
    """Blocking variants of a task's methods."""

    def __init__(self, task: Task[P, R, Any]) -> None:
        super().__init__(task)
        self._task = task

    def __repr__(self) -> str:
        return f"<SyncTask {self._task.name}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        if self._task.connection is not None:
            return self._enqueue_through([self._task.check_args(args, kwargs)])[0]
        return SyncHandle(run(self._task.enqueue(*args, **kwargs)))


class SyncHandle(Generic[R]):
    """Blocking variants of a handle's methods."""

    def __init__(self, handle: Handle[R]) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SyncHandle {self.id}>"

    @property
    def id(self) -> UUID:
        return self._handle.id

    @property
    def created(self) -> bool:
        return self._handle.created

    def execution(self) -> wire.Execution:
        return run(self._handle.execution())

    def status(self) -> State:
        return run(self._handle.status())

    def cancel(self) -> Cancellation:
        return run(self._handle.cancel())

    def signal(self, name: str, data: Any = None) -> None:
        run(self._handle.signal(name, data))

    def approve(
        self,
        name: str = "approval",
        *,
        approved: bool = True,
        by: str | None = None,
        note: str | None = None,
    ) -> None:
        run(self._handle.approve(name, approved=approved, by=by, note=note))

    def result(self, timeout: Duration | None = None) -> R:
        return run(self._handle.result(timeout))

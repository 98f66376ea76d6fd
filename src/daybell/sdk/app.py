"""The App: tasks, workflows and schedules, and the store that their executions go to."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack, cast, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from daybell.client import Client
from daybell.client.client import BorrowedConnection
from daybell.client.job_checks import (
    Superseded,
    add_versions,
    describe_superseded,
    describe_way_back,
    select_superseded,
)
from daybell.client.requests import check_options, read_definition
from daybell.client.wire import Schedule
from daybell.core.event import Published
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.core.limits import DESCRIPTION_CHARS_MAX, check_name
from daybell.core.options import DEFAULT_QUEUE, TaskOptions, read_text
from daybell.core.schedule import OverlapBy, has_times, is_event
from daybell.core.units import Duration
from daybell.core.when.declared import When
from daybell.engine.events import Events, Observer
from daybell.errors import (
    DaybellError,
    JobNotFound,
    Unavailable,
    UsageError,
    shown,
)
from daybell.runners.python import check_function
from daybell.sdk.batch import item_function, read_batch
from daybell.sdk.capture import capture_output
from daybell.sdk.context import current
from daybell.sdk.handlers import AppHandlers
from daybell.sdk.isolation import FunctionOptions, check_connecting, process_info, read_isolation
from daybell.sdk.launch import launch
from daybell.sdk.modules import import_included, module_name
from daybell.sdk.sync import run
from daybell.sdk.task import (
    AnyJob,
    Anything,
    AsyncContextFunction,
    AsyncFunction,
    CallOptions,
    ContextFunction,
    Decorator,
    Function,
    Loose,
    RereadableItems,
    Task,
    bind_args,
    check_call,
    check_event_call,
    check_key_arguments,
    check_plain,
    name_of,
)
from daybell.sdk.worker import run_worker
from daybell.sdk.workflow import Workflow
from daybell.sdk.workflow import workflow as workflow_of
from daybell.settings import Settings, masked_url

if TYPE_CHECKING:
    from daybell.client.client import SqlCall
    from daybell.client.executions import EnqueuedMany
    from daybell.client.leases.store import RemoteStore
    from daybell.core.execution import Enqueued


# Synchronous methods, run-time schedules and checks.

T = TypeVar("T")


class SyncApp:
    """Blocking variants of an app's methods for schedules and events."""

    def __init__(self, app: App) -> None:
        self._app = app

    def schedule(
        self,
        job: Task[..., Any, Any] | str,
        when: When,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap_by: OverlapBy = "schedule",
    ) -> Schedule:
        return run(self._app.schedule(job, when, args=args, name=name, overlap_by=overlap_by))

    @property
    def schedules(self) -> SyncSchedules:
        return SyncSchedules(self._app)

    def unschedule(self, job: Task[..., Any, Any] | str, name: str) -> None:
        run(self._app.unschedule(job, name))

    def publish(
        self, name: str, data: Any = None, *, source: str | None = None, id: str | None = None
    ) -> Published:
        return run(self._app.publish(name, data, source=source, id=id))

    def publish_many(self, items: Iterable[Mapping[str, Any]]) -> list[Published]:
        return run(self._app.publish_many(items))


class SyncSchedules:
    """The blocking variant of `app.schedules`."""

    def __init__(self, app: App) -> None:
        self._app = app

    def put_many(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        return run(self._app.schedules.put_many(items))


class RunTimeSchedules:
    """Schedules that are created at run time: `app.schedules`."""

    def __init__(
        self, put: Callable[[Iterable[Mapping[str, Any]]], Awaitable[list[Schedule]]]
    ) -> None:
        self._put = put

    async def put_many(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        """Create up to 10,000 schedules in one transaction, all or nothing; return them in order.

        An item has the arguments of `app.schedule`: `job`, `when`, and optionally `args`, `name`
        and `overlap_by`. Raises InvalidItems with all errors by index.
        """
        return await self._put(items)


def home_of_caller(depth: int) -> tuple[Mapping[str, Any], int]:
    """Return the globals and the line of a caller, `depth` frames up."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = None if frame is None else frame.f_back
    return ({}, 0) if frame is None else (frame.f_globals, frame.f_lineno)


def read_modules(include: object) -> tuple[str, ...]:
    """Validate the names of `App(include=…)`."""
    if isinstance(include, str) or not isinstance(include, Iterable):
        raise UsageError(
            f'include is a list of modules, such as ["shop.mail"]; not {shown(include)}',
            field="include",
        )
    names = tuple(cast("Iterable[object]", include))
    for name in names:
        if not isinstance(name, str) or not all(map(str.isidentifier, name.split("."))):
            raise UsageError(
                f'include: {shown(name)} is not the full name of a module, such as "shop.mail"',
                field="include",
            )
    return cast("tuple[str, ...]", names)


def check_job(job: object) -> None:
    """Reject anything but a task or a name."""
    if not isinstance(job, str) and not hasattr(job, "definition"):
        raise UsageError(f"{shown(job)} is neither a task nor the name of a job", field="job")


# Definitions of an app's jobs in the store, and a warning where the store has newer ones.

logger = logging.getLogger("daybell.sdk")


class DefinitionPublisher:
    """Defines jobs in the store. Definitions that are older than the store's are in `superseded`,
    by tenant and name, and are logged once.
    """

    def __init__(self) -> None:
        self.superseded: dict[tuple[str, str], Superseded] = {}
        self._is_quiet = False

    @contextmanager
    def quietly(self) -> Generator[None]:
        """Suppress the warning: the caller reports `superseded`."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    async def define(
        self, client: Client, definitions: Sequence[JobDefinition], *, author: str
    ) -> list[Job]:
        """Define jobs; return the current version of each."""
        jobs = await client.define_jobs(definitions, author=author)
        found = {
            (one.current.tenant, one.current.name): one
            for one in select_superseded(definitions, jobs)
        }
        new = [one for key, one in found.items() if self.superseded.get(key) != one]
        self.superseded |= found
        # In a child process the log belongs to its task, and the worker has logged this.
        if new and not self._is_quiet and not process_info.is_child:
            logger.warning("%s", await superseded_warning(client, new))
        return jobs

    async def promote(self, client: Client, *, author: str) -> list[Job]:
        """Make superseded definitions current again, as new versions."""
        mine = [one for (tenant, _), one in self.superseded.items() if tenant == client.tenant]
        definitions = [one.definition for one in mine]
        jobs = await client.define_jobs(definitions, author=author, promote=True)
        for job in jobs:
            del self.superseded[job.tenant, job.name]
        return jobs


async def superseded_warning(client: Client, found: Sequence[Superseded]) -> str:
    """Describe superseded definitions and the command that makes them current."""
    known = await add_versions(client.store, found)
    jobs = "a job" if len(found) == 1 else f"{len(found):,} jobs"
    return (
        f"this code has an older version of {jobs}, which does not become current by itself:"
        f" {describe_superseded(known)}. If this code is the one that should count, go"
        f" back with {describe_way_back(known)}"
    )


P = ParamSpec("P")
R = TypeVar("R")

Hook = Callable[[], Awaitable[None] | None]
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)
M = TypeVar("M", bound=Callable[[str], str])
O = TypeVar("O", bound=Observer)  # noqa: E741
Loop = asyncio.AbstractEventLoop

FUNCTION_OPTIONS: Final = FunctionOptions.__optional_keys__ - TaskOptions.__optional_keys__
TASK_OPTIONS: Final = frozenset(FunctionOptions.__optional_keys__)


class App:
    """The place where tasks are declared.

    `App()` uses the store of DAYBELL_DATABASE_URL, by default the file `daybell.db`. The first
    enqueue opens the connection, in its event loop. `logs=False` stores no output of tasks.
    `include` names modules that declare tasks. They are imported when a worker loads the app, or
    when the app is first opened, so they may import the app's module.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
        logs: bool = True,
        include: Iterable[str] = (),
    ) -> None:
        self._url = None if url is None else read_text(url, "url")
        self.tenant = check_name(tenant, what="tenant")
        self.is_shared = False  # its worker serves several tenants
        self._home, self._line = home_of_caller(1)
        self._included = read_modules(include)
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self.workflows: dict[str, Workflow] = {}
        self.events = Events()
        self.handlers = AppHandlers(self)
        self.declaring = DefinitionPublisher()
        self.masks: list[Callable[[str], str]] = []
        self.keeps_logs = logs
        self.stand_in: Callable[[], Client] | None = None  # makes clients: see `standing_in`
        self.remote: RemoteStore | None = None  # of a worker without a database
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._clients: WeakKeyDictionary[Loop, Client] = WeakKeyDictionary()
        self._openings: WeakKeyDictionary[Loop, asyncio.Lock] = WeakKeyDictionary()
        self._defined: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<App {masked_url(self.url)}: {', '.join(self.tasks) or 'no tasks'}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The URL of the store."""
        if self.remote is not None:
            return self.remote.place
        return self._url if self._url is not None else Settings.load().database_url

    @overload
    def task(self, function: Loose, /) -> Task[..., Any, Loose]: ...
    @overload
    def task(
        self, function: AsyncContextFunction[P, R], /
    ) -> Task[P, R, AsyncContextFunction[P, R]]: ...
    @overload
    def task(self, function: ContextFunction[P, R], /) -> Task[P, R, ContextFunction[P, R]]: ...
    @overload
    def task(self, function: Function[P, Anything], /) -> Task[P, Any, Function[P, Any]]: ...
    @overload
    def task(self, function: AsyncFunction[P, R], /) -> Task[P, R, AsyncFunction[P, R]]: ...
    @overload
    def task(self, function: Function[P, R], /) -> Task[P, R, Function[P, R]]: ...
    @overload
    def task(self, *, name: str | None = None, **options: Unpack[FunctionOptions]) -> Decorator: ...
    def task(  # pyright: ignore[reportInconsistentOverload]
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(retries=5, timeout="30s")`."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            try:
                return self._add(function, name, cast("FunctionOptions", options))
            except UsageError as error:
                raise error.with_traceback(None) from None  # points to the caller's line

        check_options(options, TASK_OPTIONS, "task()")
        return decorate if function is None else decorate(function)

    def _add(
        self, function: Callable[..., Any], name: str | None, options: FunctionOptions
    ) -> Task[..., Any, Any]:
        if isinstance(function, Task):  # possibly of another app
            function = cast("Task[..., Any, Any]", function).function
            function = getattr(function, "of_batch", function)
        check_plain(function)
        check_function(function)
        name = name or name_of(function)
        first_line = (inspect.getdoc(function) or "").partition("\n")[0]
        described: Any = {"description": first_line[:DESCRIPTION_CHARS_MAX], **options}
        own = {name: described.pop(name) for name in FUNCTION_OPTIONS & described.keys()}
        if own.get("batch") is not None:
            batch = read_batch(own["batch"])
            function, own["batch"] = item_function(function, batch), batch.to_fields()
        described["settings"] = read_isolation(function, **own)
        self.check_new(name)
        task: Task[..., Any, Any] = Task(self, function, read_definition(name, **described))
        check_key_arguments(task)
        self.tasks[name] = task
        return task

    workflow = workflow_of

    @property
    def queues(self) -> set[str]:
        """The queues of its tasks and workflows, and the default queue."""
        jobs = [*self.tasks.values(), *self.workflows.values()]
        nodes = (node for one in self.workflows.values() for node in one.graph.nodes)
        own = {node.queue for node in nodes if node.queue is not None}
        return {one.definition.queue for one in jobs} | own | {DEFAULT_QUEUE}

    def add_workflow(self, workflow: Workflow) -> None:
        """Add a workflow, to be defined in the store when the app is opened."""
        self.check_new(workflow.name)
        self.workflows[workflow.name] = workflow

    def check_new(self, name: str) -> None:
        """Reject a second job of a name."""
        for what, known in (("task", self.tasks), ("workflow", self.workflows)):
            if name in known:
                raise UsageError(
                    f"there is a {what} named {shown(name)} already; give one of them a name="
                    if what == "task"
                    else f"there is a workflow named {shown(name)} already; choose another name"
                )

    def load_included(self) -> None:
        """Import the modules of `include`. Raises UsageError if one cannot be imported."""
        if self._included:
            names, self._included = self._included, ()  # a module may enqueue during its import
            try:
                import_included(names, home=self._home, line=self._line)
            except BaseException:
                self._included = names
                raise

    def definitions(self) -> list[JobDefinition]:
        """Return the definitions of its tasks and workflows."""
        return [one.described for one in self._jobs()]

    def _jobs(self) -> list[AnyJob]:
        return [*self.tasks.values(), *self.workflows.values()]

    def on_start(self, hook: H) -> H:
        """Call this when a worker starts, before its first claim."""
        self._on_start.append(_check_callable(hook, "a hook"))
        return hook

    def on_stop(self, hook: H) -> H:
        """Call this when a worker has stopped, in reverse order of declaration.

        It is called even if a start hook failed, so resources may be missing.
        """
        self._on_stop.append(_check_callable(hook, "a hook"))
        return hook

    def observe(self, observer: O) -> O:
        """Call this with the events of this process, such as `Started` and `Ended` of
        `daybell.engine.events`. Errors of an observer are logged.
        """
        # For a callable object, check its __call__.
        if any(map(inspect.iscoroutinefunction, (observer, type(observer).__call__))):
            raise UsageError(
                f"{shown(observer)} is async, but an observer is called and not awaited; make it a"
                " plain function, which may start a task"
            )
        self.events.observe(_check_callable(observer, "an observer"))
        return observer

    def mask(self, function: M) -> M:
        """Pass every line that tasks print or log through this function before it is stored: it
        gets the line and returns the text to store. The terminal gets the original line.
        """
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{shown(function)} is async, but a mask is called and not awaited")
        self.masks.append(_check_callable(function, "a mask"))
        return function

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Run the hooks around a worker. Stop hooks run even if others fail."""
        self.handlers.hide_settings()
        async with AsyncExitStack() as stack:
            # Registered first, so that a failing start hook still runs all stop hooks.
            for hook in self._on_stop:
                stack.push_async_callback(_call, hook)
            for hook in self._on_start:
                await _call(hook)
            # After the hooks: logging handlers that they create write to the real streams.
            stack.enter_context(capture_output(keeps_logs=self.keeps_logs))
            # Closed before the stop hooks, because child processes may use their resources.
            stack.push_async_callback(self.handlers.close)
            yield

    def worker(
        self, *, concurrency: int = 100, queues: str = "", drain_timeout: Duration = "10s"
    ) -> AbstractAsyncContextManager[None]:
        """Run a worker in this event loop: `async with app.worker(): …`.

        For scripts, tests and small programs. By default it serves all queues of the tasks, and
        fires schedules if a task declares one. At the end it waits for running executions; those
        that take longer return to the queue.
        """
        return run_worker(self, concurrency=concurrency, queues=queues, drain_timeout=drain_timeout)

    def client(self) -> Client:
        """Return the client of this event loop; `open()` creates it."""
        client = self._clients.get(asyncio.get_running_loop())
        if client is None:
            raise Unavailable(
                "the app has no connection in this event loop; await app.open() first"
            )
        return client

    @property
    def is_open(self) -> bool:
        """True if there is a connection in this event loop."""
        return asyncio.get_running_loop() in self._clients

    async def open(self) -> Client:
        """Connect, and define the tasks in the store. The first enqueue does this, too."""
        loop = asyncio.get_running_loop()
        async with self._openings.setdefault(loop, asyncio.Lock()):
            client = self._clients.get(loop)
            if client is None:
                client = await self._connect()
                self._clients[loop] = client
        return client

    @contextmanager
    def standing_in(self, make_client: Callable[[], Client]) -> Generator[None]:
        """Use clients of `make_client` instead of the URL until the block ends; for tests.

        Open connections are set aside and not used.
        """
        self.load_included()
        kept = self.stand_in, self._clients, self._openings, self._defined
        self.stand_in = make_client
        self._clients, self._openings = WeakKeyDictionary(), WeakKeyDictionary()
        self._defined = WeakKeyDictionary()
        self.handlers.forget()
        try:
            yield
        finally:
            self.stand_in, self._clients, self._openings, self._defined = kept

    def _new_client(self) -> Client:
        if self.stand_in is not None:
            return self.stand_in()
        if self.remote is not None:
            return Client(self.remote.as_store(), tenant=self.tenant)
        url = self.url
        check_connecting(url)
        if url.startswith("memory:") and any(not loop.is_closed() for loop in self._clients):
            raise UsageError(
                "memory:// serves one event loop, and the app is open in another one;"
                " use sqlite:///file.db"
            )
        settings = Settings.load()
        # Files are migrated when they are opened; a server only by `daybell migrate`.
        return Client(
            url,
            tenant=self.tenant,
            migrate=not url.startswith("postgres"),
            listen_url=settings.listen_url,
            secrets_key=settings.secrets_key,
            lease=settings.lease,
            pool_size=settings.pool_size,
        )

    async def _connect(self) -> Client:
        self.load_included()
        client = self._new_client()
        self.handlers.forget()
        await client.__aenter__()
        try:
            if self.remote is None and not self.is_shared:  # its worker defines them in each tenant
                await self._define(client, *self._jobs())
        except BaseException:
            await client.close()
            raise
        return client

    async def define_for(self, tenant: str) -> None:
        """Define the tasks in a tenant."""
        await self._define(await self.client_for(tenant), *self._jobs())

    async def _define(self, client: Client, *jobs: AnyJob) -> None:
        for one in jobs:
            if isinstance(one, Task) and one.definition.runs_by_itself:
                definition = one.definition
                if has_times(definition.schedules) or definition.dependencies:
                    check_call(cast("AnyJob", one), "its schedule")
                if any(map(is_event, definition.schedules)):
                    check_event_call(cast("AnyJob", one), definition.args)
        definitions = [one.described for one in jobs]
        self.handlers.learn(await self.declaring.define(client, definitions, author=self.author))
        self._defined.setdefault(client, set()).update(one.name for one in jobs)

    async def close(self) -> None:
        """Close the connection of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def enqueue(
        self, task: AnyJob, args: Mapping[str, Any], options: CallOptions
    ) -> tuple[UUID, bool]:
        """Enqueue for a task; return the id of the execution, and True if it is new."""

        def ask(client: Client) -> Awaitable[Enqueued]:
            return client.enqueue(
                task.name,
                args,
                unique_key=options.get("unique_key"),
                parent=self._parent_in(client),
                **_drop_options(options),
            )

        answer = await self._call_defined(task, options, ask)
        return answer.id, answer.created

    async def enqueue_many(
        self, task: AnyJob, items: Iterable[Mapping[str, Any]], options: CallOptions
    ) -> list[UUID]:
        """Enqueue many for a task, all or nothing; return their ids unless they were streamed."""
        kept = RereadableItems(items)

        async def ask(client: Client) -> EnqueuedMany:
            return await client.enqueue_many(
                task.name, kept, parent=self._parent_in(client), **_drop_options(options)
            )

        answer = await self._call_defined(task, options, ask)
        return [one.id for one in answer.executions]

    async def prepare(
        self,
        task: AnyJob,
        items: Iterable[Mapping[str, Any]],
        options: CallOptions,
        borrowed: BorrowedConnection,
    ) -> SqlCall:
        """Define the task over the app's own connection; return the statement that enqueues these
        items over the caller's connection.
        """
        kept = RereadableItems(items)

        async def ask(client: Client) -> SqlCall:
            return await borrowed.prepare(
                client,
                task.name,
                kept,
                unique_key=options.get("unique_key"),
                parent=self._parent_in(client),
                **_drop_options(options),
            )

        return await self._call_defined(task, options, ask)

    def run(self) -> None:
        """Run everything in this process, as `daybell dev` does for this app."""
        launch(self)

    def _find_client(self, task: AnyJob, options: CallOptions) -> Client | None:
        """Return the client of this event loop if it has defined the job for the app's tenant."""
        client = self._clients.get(asyncio.get_running_loop())
        if client is None or client.tenant != (options.get("tenant") or self._acting_tenant):
            return None
        return client if task.name in self._defined.get(client, ()) else None

    async def client_for(self, tenant: str | None = None) -> Client:
        """Return the client of this event loop for a tenant; connect if necessary."""
        client = self._clients.get(asyncio.get_running_loop()) or await self.open()
        tenant = tenant or self._acting_tenant
        # A client of a child process may be that of the tenant before.
        return client if tenant == client.tenant else client.for_tenant(tenant)

    @property
    def _acting_tenant(self) -> str:
        """The app's tenant; in a worker of several tenants, that of the running execution."""
        running = current.get() if self.is_shared else None
        return self.tenant if running is None else running.claimed.tenant

    async def _client_that_knows(self, task: AnyJob, options: CallOptions) -> Client:
        client = await self.client_for(options.get("tenant"))
        if task.name not in self._defined.get(client, ()):
            # Declared after the connection was opened, or not yet defined in this tenant.
            async with self._openings.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if task.name not in self._defined.get(client, ()):
                    # Inner workflows may be new, too.
                    inner = task.inner if isinstance(task, Workflow) else ()
                    await self._define(client, *inner, task)
        return client

    async def _call_defined(
        self, task: AnyJob, options: CallOptions, ask: Callable[[Client], Awaitable[T]]
    ) -> T:
        """Call the client; if the job was deleted in the store, define it again once."""
        client = self._find_client(task, options) or await self._client_that_knows(task, options)
        try:
            return await ask(client)
        except JobNotFound:
            self._defined.get(client, set[str]()).discard(task.name)
            logger.warning(
                "job %r was deleted while this code declares it; declaring it again", task.name
            )
            return await ask(await self._client_that_knows(task, options))

    def _parent_in(self, client: Client) -> UUID | None:
        running = current.get()
        is_own = running is not None and client.tenant == self._acting_tenant
        return running.claimed.id if running is not None and is_own else None

    # Schedules and events.

    async def schedule(
        self,
        job: AnyJob | str,
        when: When,
        *,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
        overlap_by: OverlapBy = "schedule",
    ) -> Schedule:
        """Add a schedule to a task, a workflow or a job by name; return the schedule.

        `args` are the arguments by name. A schedule of the same name is replaced. Without a name, a
        repeated call changes nothing. The overlap rule compares executions of this schedule; with
        `overlap_by="job"`, all executions of the job.
        """
        client, task, found = await self._resolve_job(job)

        async def ask(client: Client) -> Schedule:
            return await client.schedule(found, when, args=args, name=name, overlap_by=overlap_by)

        if task is None:
            return await ask(client)
        args = bind_args(task, args, when)
        return await self._call_defined(task, {}, ask)

    @property
    def schedules(self) -> RunTimeSchedules:
        """Schedules that are created at run time, in bulk."""
        return RunTimeSchedules(self._put_schedules)

    async def unschedule(self, job: AnyJob | str, name: str) -> None:
        """Remove a schedule that `schedule` created."""
        client, _, job = await self._resolve_job(job)
        await client.unschedule(job, name)

    async def publish(
        self, name: str, data: Any = None, *, source: str | None = None, id: str | None = None
    ) -> Published:
        """Publish an event, which continues executions that wait for it with `ctx.wait_for_event`.

        `id` and `source` identify it, so that a repeated event counts once.
        """
        return await (await self.client_for()).publish(name, data, source=source, id=id)

    async def publish_many(self, items: Iterable[Mapping[str, Any]]) -> list[Published]:
        """Publish up to 1,000 events in one transaction, all or nothing: dicts with `name` and, if
        wanted, `data`, `source`, `id` and `time`. Return the answers in their order.
        """
        return await (await self.client_for()).publish_many(items)

    @property
    def sync(self) -> SyncApp:
        """Blocking variants for code without an event loop."""
        return SyncApp(self)

    @property
    def author(self) -> str:
        """The author of the definitions: the place of the app in its code.

        It does not depend on how the program is started, so that the store can tell tasks that
        were removed from this code from tasks of other code.
        """
        names = (name for name, value in self._home.items() if value is self)
        return f"code:{module_name(self._home)}:{next(names, 'app')}"

    @property
    def module(self) -> tuple[str, str | None]:
        """The name of the module that created the app, and its file."""
        return module_name(self._home), self._home.get("__file__")

    async def _resolve_job(self, job: AnyJob | str) -> tuple[Client, AnyJob | None, str]:
        """Return a client that has defined the job, its task or workflow of this app, its name."""
        task = self._task_of(job)
        if task is None:
            return await self.client_for(), None, str(job)  # not a job of this app
        return await self._client_that_knows(task, {}), task, task.name

    async def _put_schedules(self, items: Iterable[Mapping[str, Any]]) -> list[Schedule]:
        given: list[Any] = list(items)
        refused: dict[int, DaybellError] = {}
        used: dict[str, AnyJob] = {}
        for index, item in enumerate(given):
            if not isinstance(item, Mapping) or "job" not in item:
                continue  # the client reports the error
            one = dict(cast("Mapping[str, Any]", item))
            try:
                task = self._task_of(one["job"])
                if task is not None:
                    used[task.name] = task
                    one |= {
                        "job": task.name,
                        "args": bind_args(task, one.get("args"), one.get("when")),
                    }
            except UsageError as error:
                refused[index] = error
            given[index] = one
        for name, task in used.items():  # a deleted job is defined again
            await self._call_defined(task, {}, lambda client, name=name: client.job(name))
        return await (await self.client_for()).schedule_many(given, refused=refused)

    def _task_of(self, job: AnyJob | str) -> AnyJob | None:
        """Return the task or workflow of this app; None for any other job. Raises UsageError."""
        check_job(job)
        if not isinstance(job, str):
            return job
        return self.tasks.get(job) or self.workflows.get(job)


def _drop_options(options: CallOptions) -> Any:
    if not options:
        return options
    own = ("unique_key", "tenant", "connection")
    return {key: value for key, value in options.items() if key not in own}


def _check_callable(given: F, what: str) -> F:
    if not callable(cast("object", given)):
        raise UsageError(f"{what} is a function, not {shown(given)}")
    return given


async def _call(hook: Hook) -> None:
    answer = hook()
    if inspect.isawaitable(answer):
        await answer

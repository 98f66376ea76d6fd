"""The App: tasks, and the store that their executions go to."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack, cast, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from daybell.client import Client
from daybell.client.requests import TaskOptions, read_definition, read_text
from daybell.core.duration import Duration
from daybell.core.job import DEFAULT_TENANT, JobDefinition
from daybell.core.limits import DESCRIPTION_CHARS_MAX, check_name
from daybell.engine.events import Events, Observer
from daybell.errors import JobNotFound, Unavailable, UsageError, shown
from daybell.runners.python import check_function
from daybell.sdk.capture import captured
from daybell.sdk.context import current
from daybell.sdk.declaring import Declaring
from daybell.sdk.decorator import (
    Anything,
    AsyncContextFunction,
    AsyncFunction,
    ContextFunction,
    Decorator,
    Function,
    Loose,
)
from daybell.sdk.enqueuing import CallOptions, Kept
from daybell.sdk.handlers import AppHandlers
from daybell.sdk.isolation import FunctionOptions, check_connecting, read_isolation
from daybell.sdk.scheduling import Scheduling, check_call, home_of_caller, read_modules
from daybell.sdk.task import Task, check_options, check_plain, name_of
from daybell.sdk.workflow import Weaving, Workflow
from daybell.settings import Settings, masked_url

if TYPE_CHECKING:
    from daybell.client.answers import EnqueuedMany
    from daybell.client.calls import Call
    from daybell.core.execution import Enqueued

logger = logging.getLogger("daybell.sdk")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Hook = Callable[[], Awaitable[None] | None]
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)
M = TypeVar("M", bound=Callable[[str], str])
O = TypeVar("O", bound=Observer)  # noqa: E741
Loop = asyncio.AbstractEventLoop
AnyJob = Task[..., Any, Any] | Workflow

FUNCTION_OPTIONS: Final = FunctionOptions.__optional_keys__ - TaskOptions.__optional_keys__
TASK_OPTIONS: Final = frozenset(FunctionOptions.__optional_keys__)


class App(Scheduling, Weaving):
    """Where tasks are declared.

    `App()` keeps its executions where DAYBELL_DATABASE_URL says; if it says nothing, in the file
    `daybell.db`. Connections are opened by the first enqueue, in the event loop it comes from.
    `logs=False` keeps nothing of what the tasks print and log. `include` names the modules that
    declare tasks. They are imported when a worker loads the app, or when the app is first opened;
    so they may import the app's module.
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
        self._home, self._line = home_of_caller(1)
        self._included = read_modules(include)
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self.workflows: dict[str, Workflow] = {}
        self.events = Events()
        self.handlers = AppHandlers(self)
        self.declaring = Declaring()
        self.masks: list[Callable[[str], str]] = []
        self.keeps_logs = logs
        self.stand_in: Callable[[], Client] | None = None  # makes the clients: see `standing_in`
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
        """Where executions are kept."""
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
        """Make a job of a function: `@app.task`, or `@app.task(retries=5, timeout="30s")`."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            try:
                return self._add(function, name, cast("FunctionOptions", options))
            except UsageError as error:
                raise error.with_traceback(None) from None  # what is wrong is the caller's line

        check_options(options, TASK_OPTIONS, "task()")
        return decorate if function is None else decorate(function)

    def _add(
        self, function: Callable[..., Any], name: str | None, options: FunctionOptions
    ) -> Task[..., Any, Any]:
        if isinstance(function, Task):  # of another app, perhaps
            function = cast("Task[..., Any, Any]", function).function
        check_plain(function)
        check_function(function)
        name = name or name_of(function)
        first_line = (inspect.getdoc(function) or "").partition("\n")[0]
        described: Any = {"description": first_line[:DESCRIPTION_CHARS_MAX], **options}
        own = {name: described.pop(name) for name in FUNCTION_OPTIONS & described.keys()}
        described["settings"] = read_isolation(function, **own)
        self.check_new(name)
        task: Task[..., Any, Any] = Task(self, function, read_definition(name, **described))
        self.tasks[name] = task
        return task

    def load_included(self) -> None:
        """Import the modules that `include` names. Raises UsageError if one cannot be imported."""
        if self._included:
            from daybell.sdk.loading import import_included  # which needs this module

            names, self._included = self._included, ()  # a module may enqueue while it is imported
            try:
                import_included(names, home=self._home, line=self._line)
            except BaseException:
                self._included = names
                raise

    def definitions(self) -> list[JobDefinition]:
        """What the tasks are, as the store keeps it."""
        return [one.definition for one in self._jobs()]

    def _jobs(self) -> list[AnyJob]:
        return [*self.tasks.values(), *self.workflows.values()]

    def on_start(self, hook: H) -> H:
        """Call this when a worker starts, before it claims anything."""
        self._on_start.append(_called(hook, "a hook"))
        return hook

    def on_stop(self, hook: H) -> H:
        """Call this when a worker has stopped, in the reverse order of declaration.

        It is called even if a start hook failed, so it may find only a part of what it undoes.
        """
        self._on_stop.append(_called(hook, "a hook"))
        return hook

    def observe(self, observer: O) -> O:
        """Be told what happens in this process: `Started`, `Ended`, `WorkerLost` of
        `daybell.engine.events`. An observer decides nothing, and its errors hurt nobody."""
        # An object that can be called is asked about its method.
        if any(map(inspect.iscoroutinefunction, (observer, type(observer).__call__))):
            raise UsageError(
                f"{shown(observer)} is async, but an observer is called and not awaited; make it a"
                " plain function, which may start a task"
            )
        self.events.observe(_called(observer, "an observer"))
        return observer

    def mask(self, function: M) -> M:
        """Have every line that tasks print or log go through this before it is kept: it is given
        the line and answers what may be kept of it. What goes to the terminal stays as it is."""
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{shown(function)} is async, but a mask is called and not awaited")
        self.masks.append(_called(function, "a mask"))
        return function

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Run the hooks around what a worker does. If one cannot stop, the others still do."""
        self.handlers.hide_settings()
        async with AsyncExitStack() as stack:
            # First, so that what earlier hooks have opened is closed when a later one fails.
            for hook in self._on_stop:
                stack.push_async_callback(_call, hook)
            for hook in self._on_start:
                await _call(hook)
            # After the hooks: handlers of logging that they made write to the real streams.
            stack.enter_context(captured(keeps_logs=self.keeps_logs))
            # What hooks have opened is closed after the children, which may be using it.
            stack.push_async_callback(self.handlers.close)
            yield

    def worker(
        self, *, concurrency: int = 100, queues: str = "", drain_timeout: Duration = "10s"
    ) -> AbstractAsyncContextManager[None]:
        """Run a worker in this event loop for a while: `async with app.worker(): …`.

        For scripts, tests and small programs. It takes all queues that the tasks use, unless it is
        told which, and fires schedules if a task declares one. At its end it waits for what runs;
        what takes longer goes back.
        """
        from daybell.sdk.worker import running  # not paid for by programs that only enqueue

        return running(self, concurrency=concurrency, queues=queues, drain_timeout=drain_timeout)

    def client(self) -> Client:
        """The client of this event loop; `open()` makes it."""
        client = self._clients.get(asyncio.get_running_loop())
        if client is None:
            raise Unavailable(
                "the app has no connection in this event loop; await app.open() first"
            )
        return client

    @property
    def is_open(self) -> bool:
        """Whether there is a connection in this event loop."""
        return asyncio.get_running_loop() in self._clients

    async def open(self) -> Client:
        """Connect, and tell the store about the tasks. Done by the first enqueue, if not before."""
        loop = asyncio.get_running_loop()
        async with self._openings.setdefault(loop, asyncio.Lock()):
            client = self._clients.get(loop)
            if client is None:
                client = await self._connect()
                self._clients[loop] = client
        return client

    @contextmanager
    def standing_in(self, make_client: Callable[[], Client]) -> Generator[None]:
        """Keep executions where these clients do, whatever the URL says, until the block ends.

        For tests. Connections that are open are set aside meanwhile, and not used.
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
        url = self.url
        check_connecting(url)
        if url.startswith("memory:") and any(not loop.is_closed() for loop in self._clients):
            raise UsageError(
                "memory:// serves one event loop, and the app is open in another one;"
                " use sqlite:///file.db"
            )
        settings = Settings.load()
        # A file of one's own is brought up to date on the way; a server is somebody's.
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
            await self._define(client, *self._jobs())
        except BaseException:
            await client.close()
            raise
        return client

    async def _define(self, client: Client, *jobs: AnyJob) -> None:
        for one in jobs:
            if isinstance(one, Task) and one.definition.runs_by_itself:
                check_call(one, "its schedule")
        definitions = [one.definition for one in jobs]
        self.handlers.learn(await self.declaring.define(client, definitions, author=self.author))
        self._defined.setdefault(client, set()).update(one.name for one in jobs)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def enqueue(
        self, task: AnyJob, args: Mapping[str, Any], options: CallOptions
    ) -> tuple[UUID, bool]:
        """Enqueue for a task; answers the execution's id and whether it is a new one."""

        async def ask(client: Client) -> Enqueued:
            return await client.enqueue(
                task.name,
                args,
                unique_key=options.get("unique_key"),
                parent=self._parent_in(client),
                **_without(options),
            )

        answer = await self._declaring(task, options, ask)
        return answer.id, answer.created

    async def enqueue_many(
        self, task: AnyJob, items: Iterable[Mapping[str, Any]], options: CallOptions
    ) -> list[UUID]:
        """Enqueue many for a task, all or nothing; answers their ids unless they were streamed."""
        kept = Kept(items)

        async def ask(client: Client) -> EnqueuedMany:
            return await client.enqueue_many(
                task.name, kept, parent=self._parent_in(client), **_without(options)
            )

        answer = await self._declaring(task, options, ask)
        return [one.id for one in answer.executions]

    async def prepare(
        self,
        task: AnyJob,
        items: Iterable[Mapping[str, Any]],
        options: CallOptions,
    ) -> Call:
        """Define the task over the app's own connection; answers what enqueues these items
        through one of the caller's.
        """
        from daybell.client import calls

        kept = Kept(items)

        async def ask(client: Client) -> Call:
            return await calls.prepare(
                client,
                task.name,
                kept,
                unique_key=options.get("unique_key"),
                parent=self._parent_in(client),
                **_without(options),
            )

        return await self._declaring(task, options, ask)

    def run(self) -> None:
        """Run everything in this process: the same as `daybell dev` for this app."""
        # The edge runs programs, and this is the one way from a program back to it.
        import_module("daybell.cli.dev").run_app(self)

    async def client_for(self, tenant: str | None = None) -> Client:
        """The client of this event loop for a tenant; connects if need be."""
        client = self._clients.get(asyncio.get_running_loop()) or await self.open()
        return client if tenant in (None, self.tenant) else client.for_tenant(tenant)

    async def _client_that_knows(self, task: AnyJob, options: CallOptions) -> Client:
        client = await self.client_for(options.get("tenant"))
        if task.name not in self._defined.get(client, ()):
            # Declared after the connection was opened, or new to this tenant.
            async with self._openings.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if task.name not in self._defined.get(client, ()):
                    # With what is in it, which may be new, too.
                    inner = () if isinstance(task, Task) else task.inner
                    await self._define(client, *inner, task)
        return client

    async def _declaring(
        self, task: AnyJob, options: CallOptions, ask: Callable[[Client], Awaitable[T]]
    ) -> T:
        """Ask the client. If the job was deleted since it was declared, declare it again, once."""
        client = await self._client_that_knows(task, options)
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
        return None if running is None or client.tenant != self.tenant else running.claimed.id


def _without(options: CallOptions) -> Any:
    if not options:
        return options
    own = ("unique_key", "tenant", "connection")
    return {key: value for key, value in options.items() if key not in own}


def _called(given: F, what: str) -> F:
    if not callable(cast("object", given)):
        raise UsageError(f"{what} is a function, not {shown(given)}")
    return given


async def _call(hook: Hook) -> None:
    answer = hook()
    if inspect.isawaitable(answer):
        await answer

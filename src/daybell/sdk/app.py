"""The App: tasks, and the store that their executions go to."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from daybell.client import Client
from daybell.client.requests import JobOptions, read_definition
from daybell.core.job import DEFAULT_TENANT, JobDefinition
from daybell.engine.events import Events, Observer
from daybell.errors import JobNotFound, Unavailable, UsageError, shown
from daybell.runners.python import PythonHandler, Running
from daybell.runners.threads import Threads
from daybell.sdk.context import Context, current
from daybell.sdk.task import CallOptions, Task
from daybell.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")

Hook = Callable[[], Awaitable[None] | None]
Loop = asyncio.AbstractEventLoop


class Decorator(Protocol):
    """What `app.task(…)` returns: it keeps the function's signature."""

    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """Where tasks are declared.

    `App()` keeps its executions where DAYBELL_DATABASE_URL says; if it says nothing, in the file
    `daybell.db`. Connections are opened by the first enqueue, in the event loop it comes from.
    """

    def __init__(self, url: str | None = None, *, tenant: str = DEFAULT_TENANT) -> None:
        self._url = url
        self.tenant = tenant
        self.tasks: dict[str, Task[..., Any]] = {}
        self.events = Events()
        self.handlers = AppHandlers(self)
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._clients: WeakKeyDictionary[Loop, Client] = WeakKeyDictionary()
        self._openings: WeakKeyDictionary[Loop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        """Where executions are kept."""
        return self._url if self._url is not None else Settings.load().database_url

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, *, name: str | None = None, **options: Unpack[JobOptions]) -> Decorator: ...

    def task(  # pyright: ignore[reportInconsistentOverload]
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a job of a function: `@app.task`, or `@app.task(retries=5, timeout="30s")`."""

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            return self._add(function, name, cast("JobOptions", options))

        return decorate if function is None else decorate(function)

    def _add(self, function: Callable[P, R], name: str | None, options: JobOptions) -> Task[P, R]:
        if not callable(function):
            raise UsageError(f"a task is a function, not {shown(function)}")
        name = name or str(getattr(function, "__name__", ""))
        described: JobOptions = {
            "description": (inspect.getdoc(function) or "").split("\n")[0],
            **options,
        }
        if name in self.tasks:
            raise UsageError(
                f"there is a task named {shown(name)} already; give one of them a name="
            )
        task = Task(self, function, read_definition(name, **described))
        self.tasks[name] = task
        return task

    def definitions(self) -> list[JobDefinition]:
        """What the tasks are, as the store keeps it."""
        return [task.definition for task in self.tasks.values()]

    def on_start(self, hook: Hook) -> Hook:
        """Call this when a worker starts, before it claims anything."""
        self._on_start.append(hook)
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Call this when a worker has stopped, in the reverse order of declaration."""
        self._on_stop.append(hook)
        return hook

    def observe(self, observer: Observer) -> Observer:
        """Be told what happens in this process: `Started`, `Ended`, `WorkerLost` of
        `daybell.engine.events`. An observer decides nothing, and its errors hurt nobody."""
        self.events.observe(observer)
        return observer

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Run the hooks around what a worker does."""
        for hook in self._on_start:
            await _call(hook)
        try:
            yield
        finally:
            for hook in reversed(self._on_stop):
                await _call(hook)

    def client(self) -> Client:
        """The client of this event loop; `open()` makes it."""
        client = self._clients.get(asyncio.get_running_loop())
        if client is None:
            raise Unavailable(
                "the app has no connection in this event loop; await app.open() first"
            )
        return client

    async def open(self) -> Client:
        """Connect, and tell the store about the tasks. Done by the first enqueue, if not before."""
        loop = asyncio.get_running_loop()
        async with self._openings.setdefault(loop, asyncio.Lock()):
            client = self._clients.get(loop)
            if client is None:
                # A file of one's own is brought up to date on the way; a server is somebody's.
                migrates = not self.url.startswith("postgres")
                client = Client(self.url, tenant=self.tenant, migrate=migrates)
                await client.__aenter__()
                try:
                    await client.define_jobs(self.definitions(), author="code")
                except BaseException:
                    await client.close()
                    raise
                self._clients[loop] = client
        return client

    async def close(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def enqueue(
        self, task: Task[..., Any], args: Mapping[str, Any], options: CallOptions
    ) -> tuple[UUID, bool]:
        """Enqueue for a task; answers the execution's id and whether it is a new one."""
        client = await self._client_for(options)
        parent = current.get()
        unique_key = options.get("unique_key")
        pure = _without(options)
        try:
            answer = await client.enqueue(
                task.name,
                args,
                unique_key=unique_key,
                parent=None if parent is None else parent.claimed.id,
                **pure,
            )
        except JobNotFound:
            # Declared after the connection was opened, or new to this tenant.
            await client.define_jobs([task.definition], author="code")
            answer = await client.enqueue(task.name, args, unique_key=unique_key, **pure)
        return answer.id, answer.created

    async def enqueue_many(
        self, task: Task[..., Any], items: Iterable[Mapping[str, Any]], options: CallOptions
    ) -> list[UUID]:
        """Enqueue many for a task, all or nothing; answers their ids unless they were streamed."""
        client = await self._client_for(options)
        await client.define_jobs([task.definition], author="code")
        answer = await client.enqueue_many(task.name, items, **_without(options))
        return [one.id for one in answer.executions]

    def run(self) -> None:
        """Run everything in this process: the same as `daybell dev` for this app."""
        # The edge runs programs, and this is the one way from a program back to it.
        import_module("daybell.cli.dev").run_app(self)

    async def _client_for(self, options: CallOptions) -> Client:
        client = self._clients.get(asyncio.get_running_loop()) or await self.open()
        tenant = options.get("tenant")
        return client if tenant is None else client.for_tenant(tenant)


class AppHandlers:
    """The app's tasks as the engine runs them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = Threads()
        self._handlers: dict[str, PythonHandler] = {}

    def find(self, job: str) -> PythonHandler | None:
        handler = self._handlers.get(job)
        if handler is None and job in self._app.tasks:
            handler = self._handlers[job] = self._make(self._app.tasks[job])
        return handler

    def _make(self, task: Task[..., Any]) -> PythonHandler:
        definition = task.definition
        return PythonHandler(
            task.function,
            retry=definition.retry,
            timeout=definition.timeout,
            store_result=definition.store_result,
            context_name=next(iter(task.context_names), None),
            enter=_enter,
            threads=self._threads,
        )


def _enter(running: Running) -> Context:
    current.set(running)
    return Context(running)


def _without(options: CallOptions) -> Any:
    return {key: value for key, value in options.items() if key not in ("unique_key", "tenant")}


async def _call(hook: Hook) -> None:
    answer = hook()
    if inspect.isawaitable(answer):
        await answer

"""A worker in the event loop of a program: `app.worker()`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol, Self

import msgspec

from daybell.client import Client, mint
from daybell.core.job import JobDefinition
from daybell.core.options import read_text, read_whole
from daybell.core.units import Duration, parse_duration
from daybell.engine.claim import Queues
from daybell.engine.events import Events
from daybell.engine.lease import make_pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.scheduler import Scheduler
from daybell.engine.upkeep import Process, Upkeep
from daybell.engine.worker import Worker, WorkerOptions
from daybell.runners.processes import PoolOptions
from daybell.sdk.handlers import AppHandlers, KindOptions
from daybell.sdk.isolation import is_isolated
from daybell.sdk.task import Task
from daybell.settings import Settings
from daybell.version import VERSION

CONCURRENCY_MAX: Final = 100_000
# Per child: one running execution, and one that waits for the child.
SLOTS_PER_CHILD: Final = 2
AHEAD_SECONDS: Final = 0.05  # with few slots, short tasks would need a claim for every few


class WorkerApp(Protocol):
    """The app, from the view of its worker."""

    stand_in: Callable[[], Client] | None

    @property
    def url(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def queues(self) -> set[str]: ...

    @property
    def tasks(self) -> Mapping[str, Task[..., Any, Any]]: ...

    @property
    def handlers(self) -> AppHandlers: ...

    @property
    def events(self) -> Events: ...

    @property
    def is_open(self) -> bool: ...

    async def open(self) -> Client: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def load_included(self) -> None: ...

    def definitions(self) -> list[JobDefinition]: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...


@asynccontextmanager
async def run_worker(
    app: WorkerApp, *, concurrency: int, queues: str, drain_timeout: Duration
) -> AsyncGenerator[None]:
    """Run a worker, the upkeep of its store, and a scheduler if tasks declare schedules, until the
    block ends. It uses the app's connection, and closes an app that was not open.
    """
    settings = Settings.load()
    app.load_included()
    # Commands and private addresses are allowed on the command line only.
    app.handlers.kind_options = KindOptions(connections=dict(settings.connections))
    options = WorkerOptions(
        name="app",
        tenant=app.tenant,
        queues=read_text(queues, "queues") or ",".join(sorted(app.queues)),
        kinds=app.handlers.kinds,
        concurrency=read_whole(concurrency, "concurrency", least=1, most=CONCURRENCY_MAX),
        lease=settings.lease,
        drain_timeout=parse_duration(drain_timeout, what="drain_timeout"),
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        tasks=app.handlers.tasks,
        has_near=has_near(app),
    )
    options = fit_options(app, options)
    async with AsyncExitStack() as stack:
        if not app.is_open:
            await stack.enter_async_context(app)
        store = (await app.open()).store
        clock, events = SystemClock(), app.events
        pacemaker = None
        if app.stand_in is None:  # in a test, the store is not at the URL
            pacemaker = make_pacemaker(app.url, clock, lease=options.lease, tenant=app.tenant)
        worker = Worker(
            store,
            app.handlers,
            options,
            clock=clock,
            mint=mint,
            events=events,
            pacemaker=pacemaker,
        )
        upkeep = Upkeep(store, clock=clock, mint=mint, events=events, lease=options.lease)
        scheduler = None
        if any(one.schedules or one.dependencies for one in app.definitions()):
            scheduler = Scheduler(store, clock=clock, mint=mint, events=events)
        node = Process(workers=[worker], upkeep=upkeep, scheduler=scheduler)
        await stack.enter_async_context(app.lifespan())
        await node.start()
        stack.push_async_callback(node.stop)
        draining = asyncio.ensure_future(_drain(worker, node))
        stack.callback(draining.cancel)
        yield


def has_near(app: WorkerApp) -> bool:
    """Return True if a task prefers the worker of its parent."""
    return any(task.definition.near is not None for task in app.tasks.values())


def fit_options(app: WorkerApp, options: WorkerOptions) -> WorkerOptions:
    """Limit a worker of child processes to executions that these can run soon.

    More of them would wait, invisible to idle workers.
    """
    queues = Queues.parse(options.queues).names
    served = [task.definition for task in app.tasks.values() if task.definition.queue in queues]
    if not served or not all(map(is_isolated, served)):
        return options
    slots = SLOTS_PER_CHILD * (app.handlers.pool_options or PoolOptions()).limit
    concurrency = min(options.concurrency, slots)
    return msgspec.structs.replace(options, concurrency=concurrency, ahead=AHEAD_SECONDS)


async def _drain(worker: Worker, node: Process) -> None:
    """Stop early after `daybell workers drain`."""
    await worker.is_draining.wait()
    await node.stop()

"""A worker for a while, in the event loop of the program that asks for it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from daybell import __version__
from daybell.client import mint
from daybell.client.requests import read_text, read_whole
from daybell.core.duration import Duration, parse_duration
from daybell.core.job import DEFAULT_QUEUE
from daybell.engine.clock import SystemClock
from daybell.engine.node import Node, Upkeep
from daybell.engine.pacemaker import pacemaker_of
from daybell.engine.worker import Worker, WorkerOptions
from daybell.settings import Settings

if TYPE_CHECKING:
    from daybell.sdk.app import App

CONCURRENCY_MAX: Final = 100_000


@asynccontextmanager
async def running(
    app: App, *, concurrency: int, queues: str, drain_timeout: Duration
) -> AsyncGenerator[None]:
    """Run a worker, and the upkeep of its store, until the block ends.

    It uses the app's own connection. If the app was not open, it is closed in the end.
    """
    options = WorkerOptions(
        name="app",
        tenant=app.tenant,
        queues=read_text(queues, "queues") or _queues_of(app),
        concurrency=read_whole(concurrency, "concurrency", least=1, most=CONCURRENCY_MAX),
        lease=Settings.load().lease,
        drain_timeout=parse_duration(drain_timeout, what="drain_timeout"),
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
    )
    async with AsyncExitStack() as stack:
        if not app.is_open:
            await stack.enter_async_context(app)
        store = (await app.open()).store
        clock, events = SystemClock(), app.events
        worker = Worker(
            store,
            app.handlers,
            options,
            clock=clock,
            mint=mint,
            events=events,
            pacemaker=pacemaker_of(app.url, clock),
        )
        upkeep = Upkeep(store, clock=clock, mint=mint, events=events, lease=options.lease)
        node = Node(workers=[worker], upkeep=upkeep)
        await stack.enter_async_context(app.lifespan())
        await node.start()
        stack.push_async_callback(node.stop)
        draining = asyncio.ensure_future(_drain(worker, node))
        stack.callback(draining.cancel)
        yield


async def _drain(worker: Worker, node: Node) -> None:
    """Stop early if somebody asks for it with `daybell workers drain`."""
    await worker.is_draining.wait()
    await node.stop()


def _queues_of(app: App) -> str:
    return ",".join(
        sorted({task.definition.queue for task in app.tasks.values()} | {DEFAULT_QUEUE})
    )

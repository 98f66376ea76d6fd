"""A thread with a connection of its own, where the heartbeat goes on whatever the event loop does.

A task that blocks the loop for longer than the lease would else be taken for dead, with all its
neighbours, while it is still running. What keeps the interpreter itself to it (C code that does not
let go of the GIL) starves this thread, too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial

from daybell.core.instant import Seconds
from daybell.engine.clock import Clock
from daybell.engine.heartbeat import Heartbeat
from daybell.engine.loop import Loop
from daybell.store.open import store_for
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")


class Pacemaker:
    """Beats for one heartbeat after the other; `open_store` makes a store that is not open yet."""

    def __init__(self, open_store: Callable[[], Store], *, clock: Clock) -> None:
        self._make_store = open_store
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._renewals: Loop | None = None
        self._store: Store | None = None

    def start(self, heartbeat: Heartbeat) -> None:
        """Beat from now on, for the worker of the running event loop."""
        heartbeat.call = asyncio.get_running_loop().call_soon_threadsafe
        is_up = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(heartbeat, is_up)),
            name="daybell-pacemaker",
            daemon=True,
        )
        self._thread.start()
        is_up.wait()

    def wake(self) -> None:
        """Beat now rather than later."""
        if self._loop is not None and self._renewals is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._renewals.wake)

    async def stop(self) -> None:
        """Let a beat that is under way end, and make no other."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(thread.join)

    async def _live(self, heartbeat: Heartbeat, is_up: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        is_up.set()

        async def beat() -> Seconds | None:
            if self._store is None:
                store = self._make_store()
                await store.open()
                heartbeat.store = self._store = store
            return await heartbeat.tick()

        self._renewals = Loop("renew", beat, interval=heartbeat.lease / 3, clock=self._clock)
        watch = Loop("watch", heartbeat.watch, interval=heartbeat.lease, clock=self._clock)
        loops = self._renewals, watch
        for loop in loops:
            loop.start()
        await self._stopping.wait()
        for loop in loops:
            await loop.stop()
        if self._store is not None:
            await self._store.close()
            self._store = None


def pacemaker_of(url: str, clock: Clock, lease: Seconds) -> Pacemaker | None:
    """What keeps a worker's lease, except on a store that is in the worker's own memory."""
    if url.startswith("memory:"):
        return None
    return Pacemaker(partial(store_for, url, lease=lease), clock=clock)

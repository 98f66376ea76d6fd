"""A thread with a connection of its own, where the heartbeat goes on whatever the event loop does.

A task that blocks the loop for longer than the lease would else be taken for dead, with all its
neighbours, while it is still running. What keeps the interpreter itself to it (C code that does not
let go of the GIL) starves this thread, too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.job import DEFAULT_TENANT
from daybell.core.limits import POOL_SIZE_LEAST
from daybell.engine.clock import Clock
from daybell.engine.heartbeat import Heartbeat
from daybell.engine.loop import Loop
from daybell.errors import DaybellError
from daybell.store.open import store_for
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

NO_WORKER: Final = UUID(int=0)


class Pacemaker:
    """Beats for one heartbeat after the other, on one store that stays open between them.

    A worker that begins anew must renew its new lease in time even if every answer is slow. So the
    store is opened before the worker registers, and kept until `close`. `make_store` makes a store
    that is not open yet.
    """

    def __init__(
        self, make_store: Callable[[], Store], *, clock: Clock, tenant: str = DEFAULT_TENANT
    ) -> None:
        self._make_store = make_store
        self._tenant = tenant
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._ahead: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._store: Store | None = None
        self._renewals: Loop | None = None
        self._loops: tuple[Loop, ...] = ()

    async def open(self) -> None:
        """Start the thread and open its store, unless both are done. Raises Unavailable."""
        self._launch()
        await self._do(self._open)

    def start(self, heartbeat: Heartbeat) -> None:
        """Beat from now on, for the worker of the running event loop."""
        heartbeat.call = asyncio.get_running_loop().call_soon_threadsafe
        self._do(partial(self._begin, heartbeat))

    def wake(self) -> None:
        """Beat now rather than later."""
        if self._loop is not None and self._renewals is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._renewals.wake)

    def open_ahead(self) -> None:
        """Begin to open, beside what else there is to do. If it fails, `open` tries again."""
        self._ahead = asyncio.ensure_future(self.open())
        self._ahead.add_done_callback(lambda done: done.cancelled() or done.exception())

    def stop(self) -> Awaitable[None]:
        """Make no other beat from now on; answers what lasts until one that is under way has ended.
        The store stays open.
        """
        return self._do(self._end) if self._loop is not None else _nothing()

    async def close(self) -> None:
        """Stop, close the store and end the thread. Done to its end, even if a caller is cancelled,
        and once for all callers.
        """
        if self._thread is not None and self._closing is None:
            self._closing = asyncio.ensure_future(self._shut_down(self._thread))
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _shut_down(self, thread: threading.Thread) -> None:
        assert self._loop is not None
        try:
            await self._do(self._end)
            await self._do(self._close)
        finally:
            loop, self._loop = self._loop, None  # from now on, `stop` has nothing to wait for
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)
            self._thread = self._closing = None

    def _launch(self) -> None:
        if self._thread is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_forever, args=[self._loop], name="daybell-pacemaker", daemon=True
        )
        self._thread.start()

    def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Awaitable[None]:
        """Have the thread do this."""
        assert self._loop is not None, "open() starts the thread"
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    async def _open(self) -> None:
        async with self._opening:
            if self._store is None:
                store = self._make_store()
                await store.open()
                self._store = store
                await self._rehearse(store)

    async def _rehearse(self, store: Store) -> None:
        """Renew a lease that does not exist. The first renewal that counts then takes one round
        trip, as all that store and connection have to learn for it is known.
        """
        with suppress(DaybellError):
            await store.renew(self._tenant, worker=NO_WORKER, lease=1.0, leases=[])

    async def _begin(self, heartbeat: Heartbeat) -> None:
        assert self._store is not None, "open() comes first"
        heartbeat.store = self._store
        lease, clock = heartbeat.lease, self._clock
        self._renewals = Loop("renew", heartbeat.tick, interval=lease / 3, clock=clock)
        self._loops = self._renewals, Loop("watch", heartbeat.watch, interval=lease, clock=clock)
        for loop in self._loops:
            loop.start()

    async def _end(self) -> None:
        loops, self._loops, self._renewals = self._loops, (), None
        for loop in loops:
            await loop.stop()

    async def _close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None


async def _nothing() -> None:
    pass


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


def pacemaker_of(url: str, clock: Clock, *, lease: Seconds, tenant: str) -> Pacemaker | None:
    """What keeps a worker's lease, except on a store that is in the worker's own memory."""
    if url.startswith("memory:"):
        return None
    # Renewals are short statements, which have two connections of the least pools.
    make_store = partial(store_for, url, lease=lease, pool_size=POOL_SIZE_LEAST)
    return Pacemaker(make_store, clock=clock, tenant=tenant)

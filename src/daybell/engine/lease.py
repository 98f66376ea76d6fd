"""The worker's lease: its claims, the heartbeat that renews it, and the thread of the heartbeat."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any, Final
from uuid import UUID

from daybell.core.job import DEFAULT_TENANT
from daybell.core.limits import POOL_SIZE_LEAST
from daybell.core.units import Seconds
from daybell.core.worker import Renewal, WorkerState
from daybell.engine.attempt import Stop
from daybell.engine.execute import Executor
from daybell.engine.loop import Clock, Loop
from daybell.errors import DaybellError, LeaseLost, Unavailable
from daybell.store.open import store_for
from daybell.store.protocol import Store


class Leases:
    """The leases of claims, each known from before its claim until the end of its last execution.

    The store takes back executions of leases that a renewal does not name. So no claim starts
    during a renewal, which could not name it. Renewals may run in another thread.
    """

    def __init__(self, *, on_named: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._is_naming = False
        self._is_awaited = False  # a claim was refused meanwhile
        self._open: dict[UUID, int] = {}  # executions left; -1 during the claim
        self._on_named = on_named  # called when claims are possible again

    @contextmanager
    def naming(self) -> Generator[list[UUID]]:
        """Yield all known leases for a renewal; no lease is added until the context ends."""
        with self._lock:
            self._is_naming = True
            known = list(self._open)
        try:
            yield known
        finally:
            with self._lock:
                self._is_naming = False
                is_awaited, self._is_awaited = self._is_awaited, False
            if is_awaited:
                self._on_named()

    def ask(self, lease: UUID) -> bool:
        """Add the lease of a claim to send. False: wait for `on_named`."""
        with self._lock:
            if self._is_naming:
                self._is_awaited = True
                return False
            self._open[lease] = -1
            return True

    def answer(self, lease: UUID, count: int) -> None:
        """Set the number of executions of an answered claim."""
        if count:
            self._open[lease] = count
        else:
            self._open.pop(lease, None)

    def leave(self, leases: Iterable[UUID]) -> None:
        """Remove one execution of each lease; a lease may occur many times."""
        for lease, count in Counter(leases).items():
            left = self._open.get(lease, 0) - count
            if left > 0:
                self._open[lease] = left
            else:
                self._open.pop(lease, None)

    def known(self) -> list[UUID]:
        return list(self._open)


logger = logging.getLogger("daybell.worker")

LEASE_MARGIN: Final = 0.2  # a worker that cannot renew stops when this part of the lease is left
STOP_SECONDS: Final = 0.5  # minimum for attempts to end: a frozen process wakes up too late

Call = Callable[..., object]  # calls a function in the worker's event loop


def _call_directly(function: Callable[..., Any], *args: Any) -> None:
    function(*args)


class Heartbeat:
    """Renews the lease, and handles the answers of the store.

    A `Pacemaker` runs the ticks in another thread. It passes its own store, and a `call` that runs
    a function in the worker's event loop.

    A lease that cannot be renewed is given up in time. Its executions are charged with a crash
    unless the store is to blame, which is the case if

    - the store did not answer at all (Unavailable), or answered the registration late; or
    - a renewal was sent in time and had no answer for a third of the lease, while the watch over
      it woke up on time.

    A task that blocks the process (C code that holds the GIL) delays the watch as well, or keeps
    the renewal from being sent. It is charged: uncharged, it would run again forever.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        tenant: str,
        worker: UUID,
        lease: Seconds,
        leases: Leases,
        clock: Clock,
        on_drain: Callable[[], None],
        on_lost: Callable[..., None],
        on_end: Callable[[], None],
    ) -> None:
        self._store = store
        self.lease = lease
        self._executor = executor
        self._tenant = tenant
        self._worker = worker
        self._leases = leases
        self._clock = clock
        self._on_drain = on_drain
        self._on_lost = on_lost
        self._on_end = on_end
        self._is_given_up = False
        self._is_store_away = False
        self._sent_at: Seconds | None = None  # the renewal without an answer
        self._watch_at: Seconds = inf  # the next wake-up of the watch
        self.extend(clock.monotonic())

    def accept_registration(self, sent: Seconds) -> None:
        """Handle the answer to the registration, which no task can delay."""
        self._is_store_away = self._clock.monotonic() - sent >= self.lease / 3
        self.extend(sent)

    def extend(self, sent: Seconds) -> None:
        """Extend the lease after a renewal that was sent then."""
        self._renewed_at = sent
        self._executor.held_until = sent + self.lease * (1 - LEASE_MARGIN)

    async def tick(self, store: Store | None = None, call: Call = _call_directly) -> Seconds | None:
        try:
            with self._leases.naming() as leases:
                sent = self._sent_at = self._clock.monotonic()
                renewal = await (store or self._store).queue.renew(
                    self._tenant, worker=self._worker, lease=self.lease, leases=leases
                )
        except LeaseLost:
            call(self._on_lost)
            return None
        except Unavailable:
            self._is_store_away = True
            raise
        finally:
            self._sent_at = None
        self._is_store_away = False
        self.extend(sent)
        self._clock.correct(renewal.now, sent)
        call(self._hear, renewal)
        return max(0.0, sent + self.lease / 3 - self._clock.monotonic())

    async def watch(self, call: Call = _call_directly) -> Seconds | None:
        """Give up the lease before it ends, even if a renewal has no answer yet."""
        now = self._clock.monotonic()
        silent = now - self._renewed_at
        left = self.lease * (1 - LEASE_MARGIN) - silent
        if left > 0:
            self._watch_at = now + left
            return left
        if not self._is_given_up:
            self._is_given_up = True
            logger.error("no renewal for %.1f s; stopping before the lease ends", silent)
            call(partial(self._on_lost, is_store_away=self.is_store_late()))
            return max(STOP_SECONDS, self.lease - silent)
        self._on_end()
        return None

    def is_store_late(self) -> bool:
        """True if the store prevents the renewal; see the class."""
        now, sent = self._clock.monotonic(), self._sent_at
        is_unanswered = sent is not None and now - sent >= self.lease / 3
        is_awake = now - self._watch_at <= self.lease * LEASE_MARGIN / 2
        return self._is_store_away or (is_unanswered and is_awake)

    def _hear(self, renewal: Renewal) -> None:
        if renewal.cancel:
            self._executor.stop(set(renewal.cancel), Stop.CANCEL)
        if renewal.state is WorkerState.DRAINING:
            self._on_drain()


# The pacemaker: a thread with its own connection that renews the lease while a task blocks the
# event loop. Without it, the worker and all its executions would count as dead. C code that holds
# the GIL stops this thread, too.

NO_WORKER: Final = UUID(int=0)


class Pacemaker:
    """Runs one heartbeat after the other, on one store that stays open between them.

    A worker that replaces a lost lease must renew the new one in time even if the store is slow.
    So the store opens before the worker registers. `make_store` returns a closed store.
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
        """Start the thread and open its store, once. Raises Unavailable."""
        self._launch()
        await self._do(self._open)

    def start(self, heartbeat: Heartbeat) -> None:
        """Run this heartbeat for the worker of the running event loop."""
        self._do(partial(self._begin, heartbeat, self._calls_to_worker()))

    def _calls_to_worker(self) -> Call:
        """Return a function that calls into the running event loop."""
        return asyncio.get_running_loop().call_soon_threadsafe

    def wake(self) -> None:
        """Renew now."""
        if self._loop is not None and self._renewals is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._renewals.wake)

    def open_ahead(self) -> None:
        """Start to open in the background. After a failure, `open` tries again."""
        self._ahead = asyncio.ensure_future(self.open())
        self._ahead.add_done_callback(lambda done: done.cancelled() or done.exception())

    def stop(self) -> Awaitable[None]:
        """Stop the heartbeat; await the result to wait for a renewal under way. The store stays
        open.
        """
        return self._do(self._end) if self._loop is not None else _already_stopped()

    async def close(self) -> None:
        """Stop, close the store and end the thread: once, even if a caller is cancelled."""
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
            loop, self._loop = self._loop, None  # `stop` does nothing from now on
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
        """Run a coroutine in the thread."""
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
        """Renew a lease that does not exist, so that the first real renewal takes one round trip:
        statements are prepared and connections open.
        """
        with suppress(DaybellError):
            await store.queue.renew(self._tenant, worker=NO_WORKER, lease=1.0, leases=[])

    async def _begin(self, heartbeat: Heartbeat, call: Call) -> None:
        assert self._store is not None, "open() comes first"
        lease, clock = heartbeat.lease, self._clock
        beat, watch = partial(heartbeat.tick, self._store, call), partial(heartbeat.watch, call)
        self._renewals = Loop("renew", beat, interval=lease / 3, clock=clock)
        self._loops = self._renewals, Loop("watch", watch, interval=lease, clock=clock)
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


async def _already_stopped() -> None:
    pass


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


def make_pacemaker(
    url: str,
    clock: Clock,
    *,
    lease: Seconds,
    tenant: str,
    make: Callable[[], Store] | None = None,
    wrap: Callable[[Store], Store] | None = None,
) -> Pacemaker | None:
    """Make the pacemaker of a worker; None for a store in memory. `make` makes its store, if that
    does not follow from the URL; `wrap` meters it.
    """
    if url.startswith("memory:"):
        return None
    # Renewals are short statements; the smallest pool has two connections for these.

    def make_store() -> Store:
        store = make() if make else store_for(url, lease=lease, pool_size=POOL_SIZE_LEAST)
        return store if wrap is None else wrap(store)

    return Pacemaker(make_store, clock=clock, tenant=tenant)

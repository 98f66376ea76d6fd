"""Renewing the worker's lease: one write for all that it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.worker import Renewal, WorkerState
from daybell.engine.clock import Clock
from daybell.engine.executor import Executor
from daybell.engine.leases import Leases
from daybell.engine.run import Stop
from daybell.errors import LeaseLost, Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

# A worker that cannot renew stops its work when this part of the lease is left.
MARGIN: Final = 0.2
STOP_SECONDS: Final = 0.5  # for what runs to end, at least: a frozen process wakes up too late


class Heartbeat:
    """Prolongs the lease, and hears what the store has to say to this worker.

    Its ticks may be made in another thread, on a store opened there (`engine.pacemaker`); then
    `call` has the worker's event loop do what concerns it.

    A lease that cannot be renewed is given up in time. Its executions are charged with a crash
    unless the store is to blame, which is the case if

    - the store did not answer at all (Unavailable), or answered the registration late; or
    - a renewal was sent in time and had no answer for a third of the lease, while the watch over
      it woke up on time.

    A task that starves the process (C code that holds the GIL) delays the watch as well, or keeps
    the renewal from being sent. It is charged: uncharged, it would be run again for ever.
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
        self.store = store
        self.call: Callable[..., Any] = _directly
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
        self._sent_at: Seconds | None = None  # the renewal that has no answer yet
        self._watch_at: Seconds = inf  # when the watch is to wake up
        self.renewed(clock.monotonic())

    def registered(self, sent: Seconds) -> None:
        """The registration that was sent then is answered: a renewal that no task can delay."""
        self._is_store_away = self._clock.monotonic() - sent >= self.lease / 3
        self.renewed(sent)

    def renewed(self, sent: Seconds) -> None:
        """A good renewal was sent then: the lease holds for so long, at least."""
        self._renewed_at = sent
        self._executor.held_until = sent + self.lease * (1 - MARGIN)

    async def tick(self) -> Seconds | None:
        try:
            with self._leases.naming() as leases:
                sent = self._sent_at = self._clock.monotonic()
                renewal = await self.store.renew(
                    self._tenant, worker=self._worker, lease=self.lease, leases=leases
                )
        except LeaseLost:
            self.call(self._on_lost)
            return None
        except Unavailable:
            self._is_store_away = True
            raise
        finally:
            self._sent_at = None
        self._is_store_away = False
        self.renewed(sent)
        self._clock.correct(renewal.now, sent)
        self.call(self._hear, renewal)
        return max(0.0, sent + self.lease / 3 - self._clock.monotonic())

    async def watch(self) -> Seconds | None:
        """Give the lease up in time before it can end, also while a renewal has no answer yet."""
        now = self._clock.monotonic()
        silent = now - self._renewed_at
        left = self.lease * (1 - MARGIN) - silent
        if left > 0:
            self._watch_at = now + left
            return left
        if not self._is_given_up:
            self._is_given_up = True
            logger.error("no renewal for %.1f s; stopping before the lease ends", silent)
            self.call(partial(self._on_lost, is_store_away=self.is_store_late()))
            return max(STOP_SECONDS, self.lease - silent)
        self._on_end()
        return None

    def is_store_late(self) -> bool:
        """True if it is the store that keeps the lease from being renewed; see above."""
        now, sent = self._clock.monotonic(), self._sent_at
        is_unanswered = sent is not None and now - sent >= self.lease / 3
        is_awake = now - self._watch_at <= self.lease * MARGIN / 2
        return self._is_store_away or (is_unanswered and is_awake)

    def _hear(self, renewal: Renewal) -> None:
        if renewal.cancel:
            self._executor.stop(set(renewal.cancel), Stop.CANCEL)
        if renewal.state is WorkerState.DRAINING:
            self._on_drain()


def _directly(function: Callable[..., Any], *args: Any) -> None:
    function(*args)

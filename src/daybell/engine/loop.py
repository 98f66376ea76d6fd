"""The loop around every tick: interval, early wake-up, backoff after errors, stop; and clocks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from math import inf
from random import random
from typing import Final, Protocol

from daybell.core.units import Instant, Seconds
from daybell.errors import Unavailable

# The engine's port to time and randomness. Decisions use the store's clock.

logger = logging.getLogger("daybell.engine")

JUMP_SECONDS: Final = 2.0  # more than clocks drift apart between two answers


class Clock(Protocol):
    """The interface to time."""

    def monotonic(self) -> Seconds:
        """Return monotonic seconds, for differences."""
        ...

    def now(self) -> Instant:
        """Return the store's time, as far as it is known."""
        ...

    def correct(self, now: Instant, sent: Seconds) -> None:
        """Correct `now()` by the store's time in an answer; `sent` is when it was requested."""
        ...

    def steady_since(self) -> Instant:
        """Return the time since which the store's clock has run evenly: its first answer, or the
        first after a jump; infinite before any answer.
        """
        ...

    def jitter(self) -> float:
        """Return a random number from 0 up to 1."""
        ...

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep."""
        ...


class SystemClock:
    """The machine's clock, corrected by the store's answers."""

    def __init__(self, monotonic: Callable[[], Seconds] = time.monotonic) -> None:
        self.monotonic = monotonic  # an attribute, because it is called twice per execution
        self._offset = time.time() - monotonic()
        self._steady_since = inf

    def now(self) -> Instant:
        return self.monotonic() + self._offset

    def correct(self, now: Instant, sent: Seconds) -> None:
        received = self.monotonic()
        low, high = now - received, now - sent  # the bounds of the offset
        jump = min(max(self._offset, low), high) - self._offset
        if self._steady_since == inf:
            self._steady_since = now
        elif abs(jump) > JUMP_SECONDS:
            self._steady_since = now
            logger.warning("the store's clock has jumped by %+.1f s against this machine's", jump)
        # A slow answer gives wide bounds; keep the known offset within them.
        self._offset += jump

    def steady_since(self) -> Instant:
        return self._steady_since

    def jitter(self) -> float:
        return random()

    async def sleep(self, seconds: Seconds) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that only tests move."""

    def __init__(self, now: Instant = 1_700_000_000.0) -> None:
        self._now = now

    def monotonic(self) -> Seconds:
        return self._now

    def now(self) -> Instant:
        return self._now

    def correct(self, now: Instant, sent: Seconds) -> None:
        pass

    def steady_since(self) -> Instant:
        return -inf

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: Seconds) -> None:
        self._now += seconds

    def advance(self, seconds: Seconds) -> None:
        self._now += seconds


BACKOFF_MIN_SECONDS: Final = 0.1
BACKOFF_MAX_SECONDS: Final = 5.0
AGAIN: Final = 0.0  # the result of a tick that has more to do

Tick = Callable[[], Awaitable[Seconds | None]]


class Loop:
    """Repeats a tick until stopped.

    A tick returns the longest time to the next one; None means the interval. Ticks never overlap.
    A tick that raises is logged and repeated after a growing wait, so the loop survives the absence
    of the store.
    """

    def __init__(self, name: str, tick: Tick, *, interval: Seconds, clock: Clock) -> None:
        self.name = name
        self._tick = tick
        self._interval = interval
        self._clock = clock
        self._failures = 0
        self._is_stopping = False
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._passed = asyncio.Event()  # set after every tick, failed or not

    def start(self) -> None:
        """Start ticking at once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    def wake(self) -> None:
        """Tick now; during a tick, once more after it.

        Failing ticks ignore wake-ups, which would defeat the backoff.
        """
        self._is_woken = True
        if self._waiter is not None and not self._failures:
            _set(self._waiter)

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def pass_once(self) -> None:
        """Trigger a tick and wait until one has ended; no wait if the loop is not running."""
        if self.is_running:
            self._passed.clear()
            self.wake()
            await self._passed.wait()

    async def stop(self) -> None:
        """Wait for the current tick, and start no other."""
        self._is_stopping = True
        if self._waiter is not None:
            _set(self._waiter)
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                pause = await self._pass()
                self._passed.set()
                await self._pause(self._interval if pause is None else pause)
        finally:
            self._passed.set()

    async def _pass(self) -> Seconds | None:
        self._is_woken = False
        try:
            pause = await self._tick()
        except Exception as error:
            return self._after(error)
        except asyncio.CancelledError as error:
            # A closed connection cancels its waiters. Only the cancellation of this task ends the
            # loop.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._after(error)
        if self._failures:
            logger.info("%s works again", self.name)
        self._failures = 0
        return pause

    def _after(self, error: BaseException) -> Seconds:
        self._failures += 1
        if not isinstance(error, Unavailable):
            logger.error("%s failed; trying again", self.name, exc_info=error)
        elif self._failures == 1:
            logger.warning("%s: %s; trying again", self.name, error)
        pause = min(BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS * 2 ** min(self._failures - 1, 10))
        # Random, so that a fleet that lost its database does not come back at once.
        return pause * (0.5 + 0.5 * self._clock.jitter())

    async def _pause(self, seconds: Seconds) -> None:
        if self._is_stopping:
            return
        if self._is_woken and not self._failures:
            seconds = 0.0
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, _set, self._waiter) if seconds > 0 else None
        if timer is None:
            loop.call_soon(_set, self._waiter)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

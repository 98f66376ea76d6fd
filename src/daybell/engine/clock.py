"""The engine's port to time and randomness: waiting, measuring, jitter. Decisions use the store's
clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from random import random
from typing import Final, Protocol

from daybell.core.units import Instant, Seconds

logger = logging.getLogger("daybell.engine")

JUMP_SECONDS: Final = 2.0  # more than clocks drift apart between two answers


class Clock(Protocol):
    """Time as the engine needs it."""

    def monotonic(self) -> Seconds:
        """Seconds that only ever rise; for differences."""
        ...

    def now(self) -> Instant:
        """The store's time, as well as it is known here."""
        ...

    def correct(self, now: Instant, sent: Seconds) -> None:
        """Learn what the store's time was, at some moment since that one."""
        ...

    def steady_since(self) -> Instant:
        """From when on, by itself, the store's clock is known to have run evenly: its first answer,
        or the first after a jump. Infinite before any.
        """
        ...

    def jitter(self) -> float:
        """A number from 0 up to 1, different each time."""
        ...

    async def sleep(self, seconds: Seconds) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock, corrected by what the store says."""

    def __init__(self, monotonic: Callable[[], Seconds] = time.monotonic) -> None:
        self.monotonic = monotonic  # not a method of ours: it is asked twice for every execution
        self._offset = time.time() - monotonic()
        self._steady_since = inf

    def now(self) -> Instant:
        return self.monotonic() + self._offset

    def correct(self, now: Instant, sent: Seconds) -> None:
        received = self.monotonic()
        low, high = now - received, now - sent  # what the offset can be
        jump = min(max(self._offset, low), high) - self._offset
        if self._steady_since == inf:
            self._steady_since = now
        elif abs(jump) > JUMP_SECONDS:
            self._steady_since = now
            logger.warning("the store's clock has jumped by %+.1f s against this machine's", jump)
        # One call that took long says little; what was known before may be better.
        self._offset += jump

    def steady_since(self) -> Instant:
        return self._steady_since

    def jitter(self) -> float:
        return random()

    async def sleep(self, seconds: Seconds) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved; for tests."""

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

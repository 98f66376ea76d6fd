"""The port to time and chance. Nothing else in the engine reads a clock or rolls dice.

What is decided by time is decided by the store's clock. This one is only for waiting, for measuring
how long something took, and for showing the store's time between two of its answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from random import random
from typing import Final, Protocol

from daybell.core.instant import Instant, Seconds

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

    def age(self) -> Seconds:
        """How long ago the store's time was last learnt; infinite if never."""
        ...

    def steady(self) -> Seconds:
        """How long it is since the store's time was last seen to jump; infinite if never."""
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
        self._learnt_at = self._jumped_at = -inf

    def now(self) -> Instant:
        return self.monotonic() + self._offset

    def correct(self, now: Instant, sent: Seconds) -> None:
        received = self.monotonic()
        low, high = now - received, now - sent  # what the offset can be
        jump = min(max(self._offset, low), high) - self._offset
        if abs(jump) > JUMP_SECONDS and self._learnt_at > -inf:
            self._jumped_at = received
            logger.warning("the store's clock has jumped by %+.1f s against this machine's", jump)
        # One call that took long says little; what was known before may be better.
        self._offset += jump
        self._learnt_at = received

    def age(self) -> Seconds:
        return self.monotonic() - self._learnt_at

    def steady(self) -> Seconds:
        return self.monotonic() - self._jumped_at

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

    def age(self) -> Seconds:
        return 0.0

    def steady(self) -> Seconds:
        return inf

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: Seconds) -> None:
        self._now += seconds

    def advance(self, seconds: Seconds) -> None:
        self._now += seconds

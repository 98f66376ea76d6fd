"""The port to time and chance. Nothing else in the engine reads a clock or rolls dice.

What is decided by time is decided by the store's clock. This one is only for waiting, for measuring
how long something took, and for showing the store's time between two of its answers.
"""

from __future__ import annotations

import asyncio
import time
from random import random
from typing import Protocol

from daybell.core.instant import Instant, Seconds


class Clock(Protocol):
    """Time as the engine needs it."""

    def monotonic(self) -> Seconds:
        """Seconds that only ever rise; for differences."""
        ...

    def now(self) -> Instant:
        """The store's time, as well as it is known here."""
        ...

    def correct(self, now: Instant) -> None:
        """Learn what the store's time is at this moment."""
        ...

    def jitter(self) -> float:
        """A number from 0 up to 1, different each time."""
        ...

    async def sleep(self, seconds: Seconds) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock, corrected by what the store says."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    monotonic = staticmethod(time.monotonic)  # asked twice for every execution

    def now(self) -> Instant:
        return time.monotonic() + self._offset

    def correct(self, now: Instant) -> None:
        self._offset = now - time.monotonic()

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

    def correct(self, now: Instant) -> None:
        pass

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: Seconds) -> None:
        self._now += seconds

    def advance(self, seconds: Seconds) -> None:
        self._now += seconds

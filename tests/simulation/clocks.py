"""The clocks of a cluster: the store has one, and every host has its own idea of it."""

from __future__ import annotations

import asyncio
from random import Random

from daybell.engine.loop import SystemClock
from tests.engine.virtual import EPOCH


class StoreClock:
    """The one clock that decides. An operator, or NTP, may step it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stepped = 0.0

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._stepped

    def step(self, seconds: float) -> None:
        self._stepped += seconds


class HostClock(SystemClock):
    """A process' clock, as `engine.clock.SystemClock`: since when it counts is anybody's guess,
    and so is the time that it begins with.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self._since = chance.uniform(0, 1e6)
        super().__init__(lambda: self._since + self._loop.time())
        self._offset = EPOCH - self._since + chance.choice((0.0, chance.uniform(-3600, 3600)))

    def sleep_through(self, seconds: float) -> None:
        """The host was suspended, which its monotonic clock does not count: what it takes for the
        store's time is behind, until the store is heard of again.
        """
        self._offset -= seconds

    def jitter(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

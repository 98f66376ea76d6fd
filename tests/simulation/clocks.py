"""The clocks of a cluster: that of the store, and a different one on every host."""

from __future__ import annotations

import asyncio
from random import Random

from daybell.engine.loop import SystemClock
from tests.engine.virtual import EPOCH


class StoreClock:
    """The clock that decides. An operator, or NTP, may step it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stepped = 0.0

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._stepped

    def step(self, seconds: float) -> None:
        self._stepped += seconds


class HostClock(SystemClock):
    """The clock of a process, as `engine.clock.SystemClock`, with an arbitrary zero and start."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        self._since = chance.uniform(0, 1e6)
        super().__init__(lambda: self._since + self._loop.time())
        self._offset = EPOCH - self._since + chance.choice((0.0, chance.uniform(-3600, 3600)))

    def sleep_through(self, seconds: float) -> None:
        """Suspend the host, which its monotonic clock does not count: its estimate of the store's
        time is behind until the next answer of the store.
        """
        self._offset -= seconds

    def jitter(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

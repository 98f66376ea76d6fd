"""Outlasting a server that restarts, or a store that is away, while somebody watches."""

from __future__ import annotations

from typing import Final

from daybell.cli.edge import complain
from daybell.core.instant import Seconds
from daybell.engine.clock import Clock
from daybell.errors import Unavailable

AWAY_SECONDS_MAX: Final[Seconds] = 60.0
PAUSE_MIN_SECONDS: Final[Seconds] = 0.25
PAUSE_MAX_SECONDS: Final[Seconds] = 5.0


class Patience:
    """How long whoever watches goes on without answers. One for each thing that is watched."""

    def __init__(self, clock: Clock, *, until: Seconds | None = None) -> None:
        self._clock = clock
        self._until = until  # on the monotonic clock: nobody waits longer than that anyway
        self._lost_at: Seconds | None = None
        self._pause = PAUSE_MIN_SECONDS

    def renew(self) -> None:
        """There was an answer."""
        self._lost_at, self._pause = None, PAUSE_MIN_SECONDS

    async def bear(self, error: Unavailable) -> None:
        """Wait a while before the next try; raises the error if that has no sense any more."""
        now = self._clock.monotonic()
        if error.is_lasting:
            raise error
        if self._lost_at is None:
            self._lost_at = now
            complain(f"connection lost, trying again for {AWAY_SECONDS_MAX:g} s: {error}")
        ends = self._lost_at + AWAY_SECONDS_MAX
        if self._until is not None:
            ends = min(ends, self._until)
        if now >= ends:
            raise error
        await self._clock.sleep(min(self._pause, ends - now))
        self._pause = min(self._pause * 2, PAUSE_MAX_SECONDS)

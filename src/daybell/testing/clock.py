"""The time on a bench: it passes when the test says so, and not otherwise."""

from __future__ import annotations

from daybell.core.instant import Instant
from daybell.engine.clock import ManualClock


class BenchClock(ManualClock):
    """A clock that can be put to an exact instant, and rolls no dice: back-offs are as written."""

    def jitter(self) -> float:
        return 0.0

    def move_to(self, at: Instant) -> None:
        # Not by the difference: rounded, it could end just before what was to become due.
        self._now = at

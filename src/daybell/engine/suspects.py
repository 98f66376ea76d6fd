"""Suspects in a worker's hands: executions that have lost their workers time and again.

They start one at a time, so that only the one that takes its worker with it is charged for that.
Short ones follow each other without a pause. But what waits here for long ones is invisible to
other workers, which may be idle: it goes back.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.lifecycle import SUSPECT_CRASHES
from daybell.engine.clock import Clock
from daybell.engine.executor import SUSPECT_SECONDS, Executor

HELD_MAX: Final = 100  # that wait for each other, beside the slots
LOOK_SECONDS: Final = 1.0  # between looks at how many have started, which tells how many to keep
SPREAD: Final = 20  # different times at which those that go back are due
YIELD_SECONDS: Final = 0.02  # others come first who may be idle


def is_suspect(claimed: Claimed) -> bool:
    return claimed.crashes >= SUSPECT_CRASHES


class Suspects:
    """Those that wait for each other."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._waiting: deque[Claimed] = deque()
        self._started = 0  # since the last look
        self._started_at = clock.monotonic()  # the last one
        self._looked_at = clock.monotonic()
        self._returned = 0
        self._returned_at: Seconds | None = None  # the last one that went back

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claimed: Claimed) -> Seconds | None:
        """Have one wait for those before it. If they are too many, answers after how long somebody
        may look at it again instead.
        """
        if len(self._waiting) >= HELD_MAX:
            return self._delay()
        if not self._waiting:
            self._started, self._looked_at = 0, self._clock.monotonic()
        self._waiting.append(claimed)
        return None

    def next(self) -> Claimed | None:
        """The one to start now, unless one is running."""
        if not self._waiting or self._is_one_running():
            return None
        self._started += 1
        self._started_at = self._clock.monotonic()
        return self._waiting.popleft()

    def stranded(self) -> list[tuple[Claimed, Seconds]]:
        """What is not likely to start within the next second goes back, each after so long."""
        now = self._clock.monotonic()
        if not self._waiting or now - self._looked_at < LOOK_SECONDS:
            return []
        kept = self._started if now - self._started_at < LOOK_SECONDS else 0
        self._started, self._looked_at = 0, now
        count = max(0, len(self._waiting) - kept)
        return [(self._waiting.pop(), self._delay()) for _ in range(count)]

    @property
    def patience(self) -> Seconds:
        """How much later to ask for what is due than others do: what went back would come again."""
        if self._returned_at is None or not self._is_one_running():
            return 0.0
        is_over = self._clock.monotonic() - self._returned_at > 2 * SUSPECT_SECONDS
        return 0.0 if is_over else YIELD_SECONDS

    def clear(self) -> list[Claimed]:
        """All that have not started."""
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def _delay(self) -> Seconds:
        """Not the same for all: who asks first at that moment would get them all again."""
        self._returned_at = self._clock.monotonic()
        self._returned = (self._returned + 1) % SPREAD
        return SUSPECT_SECONDS * (1 + self._returned / SPREAD)

    def _is_one_running(self) -> bool:
        return any(is_suspect(run.claimed) for run in self._executor)

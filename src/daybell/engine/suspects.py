"""Suspects in a worker's hands: executions that have lost their workers time and again.

One of them may be what kills its workers; the others were only its neighbours. To find the culprit
is to test groups:

- Suspects run side by side, so that innocent ones are over soon. After two crashes so many as there
  are slots, up to a limit; if the worker is lost once more, in small groups; after that, one at a
  time. So a culprit among dozens is alone after at most two losses more than it would take alone.
- The loss of a worker that ran several suspects proves nothing about one of them. It is counted for
  each that had begun, so that the next group is smaller, but none ends dead because of it. Only a
  suspect that was the only one, by the worker's record in the store, can end dead. That record is
  made before it begins, and withdrawn before another one begins beside it.
- A suspect is on probation until it has run for longer than it had when its workers were lost.
  Then it blocks no others any more; for their record, it still counts as company.
  If the worker is lost, the loss counts for those that were still on probation (`engine.reaper`).
- The one with the most crashes goes first: it is the most likely culprit. Among equals the order
  changes with every attempt, so that none is always preceded by the same one.

What waits here is invisible to other workers, which may be idle. So it goes back after a while,
each time after twice as long.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID
from zlib import crc32

from daybell.core.execution import Claimed, ExecutionDetail, Outcome
from daybell.core.instant import Seconds
from daybell.core.lifecycle import SUSPECT_CRASHES
from daybell.engine.clock import Clock
from daybell.engine.executor import SUSPECT_SECONDS, Executor

# How many may be on probation side by side, by their crashes; of those with more, one.
GROUPS: Final = {SUSPECT_CRASHES: 32, SUSPECT_CRASHES + 1: 6}
# Beyond what it ran before: starts are on record only after a moment, and no run is like another.
PROBATION_SECONDS: Final = 3.0
HELD_MAX: Final = 1000  # that wait for each other, beside the slots
HOLD_SECONDS: Final = 2.0  # that one waits here at first, until others may have it
DOUBLINGS_MAX: Final = 4
SPREAD: Final = 20  # different times at which those that go back are due
YIELD_SECONDS: Final = 0.02  # others come first who may be idle


def group_size(claimed: Claimed) -> int:
    """How many suspects like this one may be on probation side by side."""
    return GROUPS.get(claimed.crashes, 1)


def probation(detail: ExecutionDetail) -> Seconds:
    """How long an execution has to run until it has outlived the losses of its earlier workers."""
    lengths = [
        one.ended_at - one.started_at
        for one in detail.attempts
        if one.outcome is Outcome.LOST and one.started_at is not None
    ]
    return max([0.0, *lengths]) + PROBATION_SECONDS


class Suspects:
    """Those that wait for each other."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._waiting: dict[UUID, tuple[Claimed, Seconds]] = {}  # and until when they are held
        self._returned = 0
        self._is_any = False  # here, or was a moment ago

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claimed: Claimed) -> Seconds | None:
        """Have one wait for those before it. If they are too many, answers after how long somebody
        may look at it again instead.
        """
        self._is_any = True
        if len(self._waiting) >= HELD_MAX:
            return self._delay()
        until = self._clock.monotonic() + HOLD_SECONDS * _doublings(claimed)
        self._waiting[claimed.id] = claimed, until
        return None

    def next(self) -> Claimed | None:
        """The one to start now, unless it has to wait for what is on probation."""
        if not self._waiting:
            return None
        first = min((claimed for claimed, _ in self._waiting.values()), key=_order)
        tested = [run.claimed for run in self._executor.on_probation()]
        if len(tested) >= min(map(group_size, (first, *tested))):
            return None
        del self._waiting[first.id]
        return first

    def stranded(self) -> list[tuple[Claimed, Seconds]]:
        """What has waited for long enough goes back, each after so long."""
        if not self._waiting:
            return []
        now = self._clock.monotonic()
        late = [claimed for claimed, until in self._waiting.values() if until <= now]
        for claimed in late:
            del self._waiting[claimed.id]
        return [(claimed, self._delay()) for claimed in late]

    @property
    def patience(self) -> Seconds:
        """How much later to ask for what is due than others do, who may start what waits here."""
        self._is_any = self._is_any and bool(self._waiting or self._executor.on_probation())
        return YIELD_SECONDS if self._is_any else 0.0

    def clear(self) -> list[Claimed]:
        """All that have not started."""
        left = [claimed for claimed, _ in self._waiting.values()]
        self._waiting.clear()
        return left

    def _delay(self) -> Seconds:
        """Not the same for all: who asks first at that moment would get them all again."""
        self._returned = (self._returned + 1) % SPREAD
        return SUSPECT_SECONDS * (1 + self._returned / SPREAD)


def _order(claimed: Claimed) -> tuple[int, int]:
    return -claimed.crashes, crc32(claimed.id.bytes, claimed.attempt)


def _doublings(claimed: Claimed) -> int:
    """Twice as much for each time that it went back."""
    times = claimed.attempt - claimed.failures - claimed.crashes - 1
    return 2 ** min(max(0, times), DOUBLINGS_MAX)

"""Where in its lanes a claim begins to look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from daybell.core.instant import Instant
from daybell.store.codes import PRIORITIES
from daybell.store.postgres.connection import Row

LAG_SECONDS: Final = 0.2  # how much later than its run_at a row may be committed and still be seen
SWEEP_SECONDS: Final = 1.0  # even later ones are found by looking at everything this often


class Bounds:
    """A lower bound on run_at for each lane and priority: where the last claim got to.

    While somebody holds an old snapshot open, rows that were claimed long ago cannot be cleaned
    away, and every claim would step over all of them again. Starting where the last one ended
    avoids that.
    """

    def __init__(self) -> None:
        self._bounds: dict[tuple[int, int], Instant] = {}
        self._swept_at: Instant = 0.0

    def get(self, lane: int, priority: int) -> Instant:
        return self._bounds.get((lane, priority), 0.0)

    def move(
        self, claimed: Sequence[Row], *, lanes: Sequence[int], limit: int, now: Instant
    ) -> None:
        """Learn from a claim. A while after the last look at everything, the next one does so."""
        if not 0 <= now - self._swept_at < SWEEP_SECONDS:
            self._bounds.clear()
            self._swept_at = now
            return
        if len(claimed) < limit:
            # All that was due is taken, but for what others hold or are still committing.
            bound = now - LAG_SECONDS
            self._bounds = {(lane, priority): bound for lane in lanes for priority in PRIORITIES}
            return
        # Rows come in the order of priority, lane and time; most often all are of one lane.
        ends = claimed[-1:] if _key(claimed[0]) == _key(claimed[-1]) else claimed
        for row in ends:
            bound = max(self._bounds.get(_key(row), 0.0), row["run_at"] - LAG_SECONDS)
            self._bounds[_key(row)] = bound


def _key(row: Row) -> tuple[int, int]:
    return row["lane"], row["priority"]

"""Lower bounds on run_at, from which a claim reads its lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from daybell.core.instant import Instant
from daybell.store.codes import PRIORITIES
from daybell.store.postgres.connection import Row
from daybell.store.postgres.names import Lanes

LAG_SECONDS: Final = 0.2  # transactions younger than this are covered by the bound itself
SWEEP_SECONDS: Final = 1.0  # rows that a claimer locked and gave back are found this often
XID_MAX: Final = 2**63 - 1


class Bounds:
    """A lower bound on run_at for each lane and priority: the place that the last claim reached.

    While a session holds an old snapshot open, rows that were claimed long ago cannot be cleaned
    away, and every claim would step over all of them again. Starting where the last one ended
    avoids that.

    A row never lies in the past when it is written. So a row can appear below a bound only if its
    transaction was open for longer than LAG_SECONDS when the bound was set. `snapshot` and `cutoff`
    describe these transactions to the next claim: as soon as one of them has ended, that claim
    ignores the bounds.
    """

    def __init__(self) -> None:
        self._bounds: dict[tuple[int, int], Instant] = {}
        self._swept_at: Instant = 0.0
        self._marks: deque[tuple[Instant, int]] = deque()  # transaction ids of the latest claims
        self.snapshot: str | None = None
        self.cutoff = XID_MAX

    def get(self, lane: int, priority: int) -> Instant:
        return self._bounds.get((lane, priority), 0.0)

    def move(self, head: Row, claimed: Sequence[Row], *, lanes: Lanes, limit: int) -> None:
        """Learn from a claim. Once a second the next claim reads everything."""
        now = head["now"]
        self._note_transactions(head, now)
        if not 0 <= now - self._swept_at < SWEEP_SECONDS:
            self._bounds.clear()
            self._swept_at = now
            return
        if len(claimed) < limit:
            # All that was due is taken, except for rows that another claimer has locked. In paused
            # queues nothing was taken.
            bound, paused = now - LAG_SECONDS, head["paused"] or ()
            self._bounds = {
                (lane, priority): bound
                for lane, queue in zip(lanes.keys, lanes.queues, strict=True)
                if queue not in paused
                for priority in PRIORITIES
            }
            return
        if head["is_bounded"] == 0:
            self._bounds.clear()
        # Rows come in the order of priority, lane and time; most often all are of one lane.
        ends = claimed[-1:] if _key(claimed[0]) == _key(claimed[-1]) else claimed
        for row in ends:
            bound = max(self._bounds.get(_key(row), 0.0), row["run_at"] - LAG_SECONDS)
            self._bounds[_key(row)] = bound

    def _note_transactions(self, head: Row, now: Instant) -> None:
        """Remember the claim's snapshot, and which of its open transactions were old.

        Ids are given in order, so a transaction with a higher id than a claim of LAG_SECONDS ago
        started after it. Under a quota of running executions a claim gets its id before it waits
        for its turn, so that id proves nothing.
        """
        snapshot, _, xid = head["snapshot"].partition(" ")
        if xid and head["running_max"] is None:
            self._marks.append((now, int(xid)))
        while self._marks and not 0 <= now - self._marks[0][0] <= LAG_SECONDS:
            self._marks.popleft()
        self.cutoff = self._marks[0][1] if self._marks else XID_MAX
        _, xmax, listed = snapshot.split(":")
        is_any_old = self.cutoff > int(xmax) or (
            bool(listed) and int(listed.partition(",")[0]) < self.cutoff
        )
        self.snapshot = snapshot if is_any_old else None


def _key(row: Row) -> tuple[int, int]:
    return row["lane"], row["priority"]

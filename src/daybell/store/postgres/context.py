"""The context of a PostgreSQL store: its database, names, notifier and caches.

One object per store. Every function of the room modules takes it as the first argument.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from daybell.core.units import Instant
from daybell.store.codec import PRIORITIES
from daybell.store.postgres.connection import Database, Row
from daybell.store.postgres.listener import Notifier
from daybell.store.postgres.names import Lanes, Names

# Lower bounds on run_at, from which a claim reads its lanes.

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
        ends = claimed[-1:] if _lane_key(claimed[0]) == _lane_key(claimed[-1]) else claimed
        for row in ends:
            bound = max(self._bounds.get(_lane_key(row), 0.0), row["run_at"] - LAG_SECONDS)
            self._bounds[_lane_key(row)] = bound

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


def _lane_key(row: Row) -> tuple[int, int]:
    return row["lane"], row["priority"]


class Context:
    """State that all operations of one store share."""

    __slots__ = (
        "bounds",
        "cancelled",
        "db",
        "done_leases",
        "filled",
        "is_rearmed",
        "limited_tenants",
        "listen_url",
        "names",
        "notifier",
        "open_leases",
        "run_ancestors",
        "step_cursor",
        "task_pools",
        "task_timelines",
        "unfinished",
    )

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        self.db = db
        self.names = Names(apart=lambda: self.db.apart())
        self.notifier = Notifier(self.db)
        self.listen_url = listen_url  # a direct connection to the server, past a pooler
        # Queues to notify after the commit, by task: another task that notifies its own meanwhile
        # would notify these too early.
        self.filled = WeakKeyDictionary[asyncio.Task[Any], set[tuple[int, str]]]()
        # Runs with more to do after the commit, and runs to stop then.
        self.unfinished: dict[tuple[int, UUID], None] = {}
        self.cancelled: dict[tuple[int, UUID], None] = {}
        self.is_rearmed = False  # a schedule has a new time; notify after the commit
        self.run_ancestors: dict[tuple[int, UUID], Row] = {}  # immutable columns of runs
        self.bounds: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Bounds] = {}
        self.limited_tenants: set[int] = set()  # those with a quota of running executions
        # How many executions of a lease have not left it, for those claimed through this store; a
        # lease at zero is over, and its row goes with the next statement that writes leases. Only
        # moves that were made just now count, so a repetition never ends a lease too early; one
        # that is never seen to end is found by the worker's next renewal.
        self.open_leases: dict[tuple[UUID, UUID], int] = {}
        self.done_leases: list[UUID] = []
        self.task_pools: dict[UUID, Any] = {}  # by worker; its sessions have its name
        self.task_timelines: dict[UUID, int] = {}  # timeline of the connections of a pool
        self.step_cursor: tuple[Instant, UUID] | None = None  # last step that retention visited

"""Out: due executions are given to workers, each to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.instant import Instant
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.core.worker import Claim
from daybell.store.checks import check_limit
from daybell.store.codes import PRIORITIES
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.quotas import room
from daybell.store.sqlite.rows import CLAIMED_COLUMNS, Row, claimed
from daybell.store.sqlite.workers import living

DRAINING: Final = 2


class SqliteClaim(Part):
    """Claiming, of `protocol.Executions`."""

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        check_limit(limit, most=CLAIM_BATCH_MAX)

        def operation(tx: Transaction) -> Claim:
            owner = tx.names.tenant(tx, tenant)
            lanes = find_lanes(tx, owner, queues, kinds)
            most = room(tx, owner, limit)
            rows = claim(tx, owner, worker, lease, lanes, most)
            return Claim(
                lease=lease,
                now=tx.now,
                executions=claimed(tx, tenant, [lease] * len(rows), rows),
                next_due=first_after(tx, lanes, tx.now) if len(rows) < limit else None,
                is_limited=len(rows) == most < limit and bool(find_due(tx, lanes, 1)),
            )

        return await self._write(operation)

    async def next_due(
        self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str] = ("task",)
    ) -> Instant | None:
        def operation(tx: Transaction) -> Instant | None:
            lanes = find_lanes(tx, tx.names.tenant(tx, tenant), queues, kinds)
            return first_after(tx, lanes, float("-inf"))

        return await self._read(operation)


_HELD: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM execution WHERE state = 5 AND worker = ? AND lease = ? AND tenant = ?
 ORDER BY priority, run_at, id
"""
_IS_USED: Final = "SELECT 1 FROM lease WHERE id = ?"
_REMEMBER: Final = "INSERT INTO lease (id, claimed_at) VALUES (?, ?)"
_START: Final = Bulk("UPDATE execution SET state = 5, worker = ?, lease = ? WHERE n IN (", "?", ")")


def claim(
    tx: Transaction,
    owner: int,
    worker: UUID,
    lease: UUID,
    lanes: list[list[int]],
    limit: int,
) -> list[Row]:
    """Take what is due; for a lease that was used before, show what it still holds."""
    state = living(tx, owner, worker)
    key = worker.bytes, lease.bytes
    held = tx.execute(_HELD, (*key, owner)).fetchall()
    if held or state == DRAINING or tx.execute(_IS_USED, (lease.bytes,)).fetchone():
        return held
    found = find_due(tx, lanes, limit)
    if found:
        _START.run(tx, [row[0] for row in found], first=key)
        tx.execute(_REMEMBER, (lease.bytes, tx.now))
    return found


# One priority and one lane at a time, so that the index gives the rows in order and the reading
# stops at the first that is not due: ordered by priority over everything, a million future rows
# would be read to find nothing.
_DUE: Final = f"""
SELECT {CLAIMED_COLUMNS} FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at, id LIMIT ?
"""


def find_due(tx: Transaction, lanes_of_queues: list[list[int]], limit: int) -> list[Row]:
    """Best priority first, then queues in the order given, then oldest time."""
    found: list[Row] = []
    if limit <= 0:
        return found
    for priority in PRIORITIES:
        for lanes in lanes_of_queues:
            left = limit - len(found)
            rows: list[Row] = []
            for lane in lanes:
                rows += tx.execute(_DUE, (lane, priority, tx.now, left)).fetchall()
            if len(lanes) > 1:
                rows.sort(key=lambda row: (row[10], row[1]))
            found += rows[:left]
            if len(found) == limit:
                return found
    return found


_PAUSED: Final = "SELECT name FROM paused_queue WHERE tenant = ?"


def find_lanes(
    tx: Transaction, owner: int, queues: Sequence[str], kinds: Sequence[str]
) -> list[list[int]]:
    """The lanes of each queue that is not paused."""
    paused = {name for (name,) in tx.execute(_PAUSED, (owner,))}
    found = tx.names.find_lanes(tx, owner, tuple(dict.fromkeys(queues)), tuple(kinds))
    return [lanes for queue, lanes in found.items() if lanes and queue not in paused]


_FIRST_AFTER: Final = """
SELECT run_at FROM execution
 WHERE state <= 3 AND lane = ? AND priority = ? AND run_at > ? ORDER BY run_at LIMIT 1
"""


def first_after(
    tx: Transaction, lanes_of_queues: list[list[int]], after: Instant
) -> Instant | None:
    """The earliest time in these lanes that is later than `after`."""
    found: list[Instant] = []
    for lanes in lanes_of_queues:
        for lane in lanes:
            for priority in PRIORITIES:
                found += [at for (at,) in tx.execute(_FIRST_AFTER, (lane, priority, after))]
    return min(found, default=None)

"""Moving executions out of lanes that no worker asks for; see `store.strays`."""

from __future__ import annotations

from typing import Final

from daybell.store.sqlite.names import Transaction
from daybell.store.strays import needs_of_stray

_LANES: Final = "SELECT n, tenant, queue FROM lane WHERE kind = 'sql'"
_VERSIONS: Final = """
SELECT v.n, v.definition FROM job_version v
 WHERE v.n IN (SELECT e.version FROM execution e WHERE e.lane = ? AND e.state <= 3)
"""
_MOVE: Final = """
UPDATE execution SET lane = ?1 WHERE n IN (
    SELECT n FROM execution WHERE lane = ?2 AND state <= 3 AND version = ?3 LIMIT ?4)
"""
# Those that still wait at a gate are few, or at least let in one after the other.
_MOVE_WAITING: Final = """
UPDATE execution SET lane = ?1 WHERE n IN (
    SELECT n FROM execution WHERE state = 4 AND lane = ?2 AND version = ?3 LIMIT ?4)
"""


def gather(tx: Transaction, limit: int) -> int:
    """Move what is in such lanes to the lanes of what the jobs need, so many of each."""
    moved = 0
    for lane, tenant, queue in tx.execute(_LANES).fetchall():
        for version, definition in tx.execute(_VERSIONS, (lane,)).fetchall():
            needs = needs_of_stray(definition)
            if needs is None:
                continue
            values = tx.names.lane(tx, tenant, queue, needs), lane, version, limit
            moved += tx.execute(_MOVE, values).rowcount
            moved += tx.execute(_MOVE_WAITING, values).rowcount
    return moved

"""What happened lately, for rates."""

from __future__ import annotations

from typing import Final

from daybell.core.view import Activity
from daybell.store.ids import LATE_SECONDS, first_at
from daybell.store.sqlite.names import Transaction

_ENQUEUED: Final = "SELECT count(*) FROM execution WHERE tenant = ? AND id >= ?"
# Begun with the attempts: nearly all executions of a tenant have had no such attempt.
_FAILED: Final = """
SELECT count(*) FROM attempt a CROSS JOIN execution e ON e.n = a.execution
 WHERE a.ended_at > ? AND a.outcome IN (2, 3, 4) AND e.tenant = ?
"""
_DIED: Final = """
SELECT count(*) FROM execution
 WHERE tenant = ? AND finished_at > ? AND state = 7 AND is_discarded = 0
"""


def activity(tx: Transaction, tenant: str, since: Activity | None) -> Activity:
    owner = tx.names.tenant(tx, tenant)

    def count(statement: str, *values: object) -> int:
        return tx.execute(statement, values).fetchone()[0]

    recent = count(_ENQUEUED, owner, first_at(tx.now - LATE_SECONDS).bytes)
    if since is None:
        return Activity(now=tx.now, recent=recent)
    seen = count(_ENQUEUED, owner, first_at(since.now - LATE_SECONDS).bytes)
    failed = count(_FAILED, since.now, owner) + count(_DIED, owner, since.now)
    return Activity(now=tx.now, enqueued=max(0, seen - since.recent), failed=failed, recent=recent)

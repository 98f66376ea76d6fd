"""Lists of columns that several statements share."""

from __future__ import annotations

from typing import Final

from daybell.core.limits import PAGE_BYTES_MAX
from daybell.core.view import ITEM_BYTES

# All columns of `live` but those that an end changes, as they go on to history and dead.
KEPT: Final = (
    "tenant, job, version, lane, attempt, priority, id, args, unique_key, gate, retries, timeout,"
    " scheduled_for, expires_at, schedule, parent, node, cancel_requested_at, progress, note,"
    " created_at, run_at"
)
ENDED: Final = (
    f"{KEPT}, failures, crashes, state, outcome, finished_at, started_at, worker, result, error,"
    " reason, checkpoint, log"
)
# A finished `u.id`, as `h`: one probe for each of the four ends, whatever the planner believes.
# Nodes of runs have an index of their own.
IN_HISTORY: Final = """unnest('{6, 7, 8, 9}'::smallint[]) s(state),
           LATERAL (SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id AND h.node IS NULL
                    UNION ALL
                    SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id AND h.node IS NOT NULL LIMIT 1) h"""

# What a lease `l` still holds, as `v`: the attempt moves on when an execution leaves it, but for a
# run that begins (state 5). LIMIT 1 makes this one probe for each, whatever the planner believes of
# the table's size.
IN_LEASE: Final = """unnest(l.ids, l.attempts) x(id, attempt),
           LATERAL (SELECT * FROM daybell.live v WHERE v.tenant = l.tenant AND v.id = x.id
                       AND v.attempt = x.attempt AND v.state <> 5 LIMIT 1) v"""

# When the first attempt of a node began.
BEGAN: Final = (
    "CASE WHEN node IS NULL OR attempt = 1 THEN started_at ELSE coalesce((SELECT min(a.began)"
    " FROM (SELECT x.id AS of, x.started_at AS began FROM daybell.attempt x WHERE x.tenant = $1) a"
    " WHERE a.of = id), started_at) END AS started_at"
)


def within_page(select: str, size: str, order: str) -> str:
    """Rows of a statement in their order, as far as they fit into a page, and one more: `size` is
    the expression of a row's bytes.
    """
    return f"""
    SELECT * FROM (
      SELECT q.*, sum({size} + {ITEM_BYTES}) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)
                  - ({size} + {ITEM_BYTES}) AS bytes_before
        FROM ({select}) q) r
     WHERE bytes_before <= {PAGE_BYTES_MAX} ORDER BY {order}
    """

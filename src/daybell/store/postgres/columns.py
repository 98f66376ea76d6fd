"""Lists of columns that several statements share."""

from __future__ import annotations

from typing import Final

# All columns of `live` but those that an end changes, as they go on to history and dead.
KEPT: Final = (
    "tenant, job, version, lane, attempt, priority, id, args, unique_key, gate, retries, timeout,"
    " scheduled_for, expires_at, schedule, parent, cancel_requested_at, progress, note, created_at,"
    " run_at"
)
ENDED: Final = (
    f"{KEPT}, failures, crashes, state, outcome, finished_at, started_at, worker, result, error,"
    " reason, checkpoint, log"
)
# A finished `u.id`, as `h`: one probe for each of the four ends, whatever the planner believes.
IN_HISTORY: Final = """unnest('{6, 7, 8, 9}'::smallint[]) s(state),
           LATERAL (SELECT * FROM daybell.history h WHERE h.tenant = $1 AND h.state = s.state
                       AND h.id = u.id LIMIT 1) h"""

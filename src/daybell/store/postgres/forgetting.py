"""Taking away the steps of executions that are gone.

Whole days of history are dropped without a look at what is in them, so nobody tells steps that
their execution has gone. They are walked through from the oldest, a part at a time.
"""

from __future__ import annotations

from math import inf
from typing import Final
from uuid import UUID

from daybell.core.instant import Instant
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected

WALKED_MAX: Final = 2_000  # steps looked at in one round
START: Final[tuple[Instant, UUID]] = (-inf, UUID(int=0))
# Who comes back from the dead may ask again in this moment: then its wait is a new one.
LEFT_OVER_SECONDS: Final = 3600.0
IS_LEFT_OVER: Final = """opened_at < $1 AND NOT EXISTS (
    SELECT FROM daybell.live v WHERE v.tenant = w.tenant AND v.id = w.execution)"""


class Forgetting(Connected):
    """Retention of steps."""

    _forget_from = START  # how far the walk has come

    OLD_STEPS = f"""
    SELECT tenant, execution, started_at FROM daybell.step
     WHERE started_at < $1 AND (started_at, execution) > ($2, $3)
     ORDER BY started_at, execution LIMIT {WALKED_MAX}
    """
    # One probe for each of the four ends, whatever the planner believes.
    FORGET_STEPS = """
    WITH g AS MATERIALIZED (
      SELECT u.tenant, u.execution FROM unnest($1::int[], $2::uuid[]) u(tenant, execution)
       WHERE NOT EXISTS (SELECT FROM daybell.live v
                          WHERE v.tenant = u.tenant AND v.id = u.execution)
         AND NOT EXISTS (SELECT FROM daybell.dead v
                          WHERE v.tenant = u.tenant AND v.id = u.execution)
         AND NOT EXISTS (
             SELECT FROM unnest('{6, 7, 8, 9}'::smallint[]) s(state),
                    LATERAL (SELECT FROM daybell.history h
                              WHERE h.tenant = u.tenant AND h.state = s.state
                                AND h.id = u.execution LIMIT 1) h))
    DELETE FROM daybell.step s USING g WHERE s.execution = g.execution AND s.tenant = g.tenant
    """

    async def forget_steps(self, link: Link, before: Instant) -> tuple[int, bool]:
        """Remove steps of executions that are gone, among some that began before that: the next
        call goes on behind them. Answers how many, and whether there seem to be more.
        """
        rows = await link.fetch(self.OLD_STEPS, before, *self._forget_from)
        is_end = len(rows) < WALKED_MAX
        self._forget_from = START if is_end else (rows[-1]["started_at"], rows[-1]["execution"])
        if not rows:
            return 0, False
        places = {(row["tenant"], row["execution"]) for row in rows}
        answer = await link.execute(self.FORGET_STEPS, *map(list, zip(*places, strict=True)))
        removed = int(answer.rpartition(" ")[2])
        return removed, removed > 0 and not is_end

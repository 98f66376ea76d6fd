"""Taking away the steps and waits of executions that are gone.

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

WALKED_MAX: Final = 5_000  # steps looked at in one round
START: Final[tuple[Instant, UUID]] = (-inf, UUID(int=0))


class Forgetting(Connected):
    """Retention of steps."""

    _forget_from = START  # how far the walk has come

    OLD_STEPS = f"""
    SELECT tenant, execution, started_at FROM daybell.step
     WHERE started_at < $1 AND (started_at, execution) > ($2, $3)
     ORDER BY started_at, execution LIMIT {WALKED_MAX}
    """
    # Scalars and OFFSET 0 make each of these a probe, whatever the planner believes of the tables.
    FORGET_STEPS = """
    WITH g AS MATERIALIZED (
      SELECT u.tenant, u.execution FROM unnest($1::int[], $2::uuid[]) u(tenant, execution)
       WHERE (SELECT true FROM daybell.live v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM daybell.dead v
               WHERE v.tenant = u.tenant AND v.id = u.execution LIMIT 1) IS NULL
         AND (SELECT true FROM unnest('{6, 7, 8, 9}'::smallint[]) s(state),
                     LATERAL (SELECT FROM daybell.history h
                               WHERE h.tenant = u.tenant AND h.state = s.state
                                 AND h.id = u.execution LIMIT 1) h LIMIT 1) IS NULL),
    w AS (
      DELETE FROM daybell.wait WHERE ctid = ANY(ARRAY(
        SELECT w.place FROM g, LATERAL (SELECT w.ctid AS place FROM daybell.wait w
                 WHERE w.execution = g.execution AND w.tenant = g.tenant OFFSET 0) w)))
    DELETE FROM daybell.step WHERE ctid = ANY(ARRAY(
      SELECT s.place FROM g, LATERAL (SELECT s.ctid AS place FROM daybell.step s
               WHERE s.execution = g.execution AND s.tenant = g.tenant OFFSET 0) s))
    """

    async def forget_steps(self, link: Link, before: Instant) -> tuple[int, bool]:
        """Remove steps of executions that are gone, among some that began before that: the next
        call goes on behind them. Answers how many, and whether there are more to look at.
        """
        rows = await link.fetch(self.OLD_STEPS, before, *self._forget_from)
        is_end = len(rows) < WALKED_MAX
        self._forget_from = START if is_end else (rows[-1]["started_at"], rows[-1]["execution"])
        if not rows:
            return 0, False
        places = {(row["tenant"], row["execution"]) for row in rows}
        answer = await link.execute(self.FORGET_STEPS, *map(list, zip(*places, strict=True)))
        return int(answer.rpartition(" ")[2]), not is_end

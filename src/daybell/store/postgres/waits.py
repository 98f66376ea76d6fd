"""Open waits: what ends them, and what becomes of their executions then.

What ends a wait locks its execution first, and looks at the wait again under that lock. So does a
move to `waiting`: whichever comes second sees what the first has done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.lifecycle import FOR_EVENT, Transition
from daybell.core.step import StepKind
from daybell.store.checks import check_limit
from daybell.store.codes import STATE_CODES, STEP_CODES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.gates import Connected

WAIT: Final = STEP_CODES[StepKind.WAIT]
WAITING: Final = STATE_CODES[State.WAITING]
QUEUED: Final = STATE_CODES[State.QUEUED]
# One row if the time of any wait is over, of no tenant: `expire` asks for it in passing.
ANY_TIMED_OUT: Final = """
    SELECT NULL, NULL, NULL, NULL
     WHERE EXISTS (SELECT FROM daybell.wait WHERE timeout_at <= (SELECT daybell.now()))
"""


class Waiting(Connected):
    """What waits for an event, and goes on."""

    # Who is in somebody's hands or can be claimed may be about to wait. That none of its waits is
    # open tells it that one has ended.
    LOCK_LIVE_ONES = f"""
    SELECT id, state <> {WAITING} AND run_at <= daybell.now() AS may_run FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR UPDATE
    """
    # Statements of their own, after the lock: the one that waited for it saw the tables before.
    HAVE_WAITS = (
        "SELECT execution FROM daybell.wait WHERE tenant = $1 AND execution = ANY($2::uuid[])"
    )
    OPEN_WAITS = """
    SELECT execution, n, event, match, timeout_at, daybell.now() AS now FROM daybell.wait
     WHERE tenant = $1 AND execution = ANY($2::uuid[]) ORDER BY execution, n
    """

    async def unless_over(
        self, link: Link, tenant: int, moves: list[Transition]
    ) -> list[Transition]:
        """Moves as they are made: what says that it waits for an event, which has come, is queued
        instead.
        """
        ids = sorted(move.id for move in moves if is_for_event(move))
        if not ids:
            return moves
        await link.execute(self.LOCK_LIVE_ONES, tenant, ids)
        waiting = {row["execution"] for row in await link.fetch(self.HAVE_WAITS, tenant, ids)}
        return [
            replace(move, target=State.QUEUED, reason=None)
            if is_for_event(move) and move.id not in waiting
            else move
            for move in moves
        ]

    # Each is found by itself, then changed where it lies: nobody else writes it under this lock.
    END_STEPS = f"""
    WITH u AS MATERIALIZED (
      SELECT x.place FROM unnest($2::uuid[], $3::int[]) u(execution, n),
             LATERAL (SELECT s.ctid AS place FROM daybell.step s
                       WHERE s.execution = u.execution AND s.n = u.n AND s.tenant = $1
                         AND s.kind = {WAIT} AND NOT s.is_done LIMIT 1) x)
    UPDATE daybell.step s
       SET result = $4, event = $5, finished_at = daybell.now(), is_done = true
      FROM u WHERE s.ctid = u.place
    """
    # run_at is raised to now, because a claimer that keeps a lower bound must not miss a row that
    # comes late. Whoever does not wait is on its way anyway.
    END_WAITS = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    w AS (
      DELETE FROM daybell.wait
       WHERE tenant = $1 AND execution = ANY($2::uuid[])
         AND (execution, n) IN (SELECT * FROM unnest($3::uuid[], $4::int[]))),
    v AS (
      UPDATE daybell.live v SET state = {QUEUED}, reason = NULL, run_at = (SELECT now FROM t)
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
         AND v.state = {WAITING} AND v.reason = '{FOR_EVENT}'
      RETURNING v.run_at, v.lane, v.priority, v.id),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v)
    SELECT DISTINCT l.queue FROM v JOIN daybell.lane l ON l.key = v.lane
    """

    async def end_waits(
        self,
        link: Link,
        tenant: int,
        ids: Sequence[UUID],
        is_over: Callable[[Row], bool],
        *,
        result: str | None = None,
        event: int | None = None,
    ) -> tuple[int, list[str]]:
        """End the first wait of each of these executions of which that is true. Answers how many,
        and the queues in which something can be claimed now.
        """
        rows = await link.fetch(self.LOCK_LIVE_ONES, tenant, sorted(ids))
        locked = {row["id"]: row["may_run"] for row in rows}
        waits = await link.fetch(self.OPEN_WAITS, tenant, list(locked))
        firsts: dict[UUID, int] = {}
        for wait in waits:
            if wait["execution"] not in firsts and is_over(wait):
                firsts[wait["execution"]] = wait["n"]
        if not firsts:
            return 0, []
        places = list(firsts), list(firsts.values())
        await link.execute(self.END_STEPS, tenant, *places, result, event)
        closed = [
            (wait["execution"], wait["n"])
            for wait in waits
            if wait["n"] == firsts.get(wait["execution"])
            or (wait["execution"] in firsts and locked[wait["execution"]])
        ]
        closing = [id for id, _ in closed], [n for _, n in closed]
        rows = await link.fetch(self.END_WAITS, tenant, list(firsts), *closing)
        return len(firsts), [row["queue"] for row in rows]

    # The subselect, unlike the function itself, can be looked up in the index.
    TIMED_OUT = """
    SELECT tenant, execution FROM daybell.wait WHERE timeout_at <= (SELECT daybell.now())
     ORDER BY timeout_at, execution, n LIMIT $1
    """
    # Their executions have ended; one that came back in this moment would not wait any more.
    REMOVE_TIMED_OUT = """
    DELETE FROM daybell.wait w
     WHERE w.tenant = $1 AND w.execution = ANY($2::uuid[])
       AND w.timeout_at <= (SELECT daybell.now())
       AND NOT EXISTS (SELECT FROM daybell.live v WHERE v.tenant = $1 AND v.id = w.execution)
    """

    async def time_out_waits(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        async with self.db.link() as link:
            rows = await link.fetch(self.TIMED_OUT, limit)
        ended = 0
        for tenant, some in groupby(sorted(rows), key=itemgetter("tenant")):
            ids = list({row["execution"] for row in some})
            ended += await self.db.settled(partial(self._time_out, tenant, ids))
        return ended

    async def _time_out(self, tenant: int, ids: list[UUID]) -> int:
        async with self.db.transaction() as link:
            ended, queues = await self.end_waits(link, tenant, ids, _is_timed_out)
            if ended < len(ids):
                await link.execute(self.REMOVE_TIMED_OUT, tenant, ids)
        if queues:
            self.notifier.touch(tenant, queues)
        return ended


def is_for_event(move: Transition) -> bool:
    return move.target is State.WAITING and move.reason == FOR_EVENT


def _is_timed_out(wait: Row) -> bool:
    return wait["timeout_at"] is not None and wait["timeout_at"] <= wait["now"]

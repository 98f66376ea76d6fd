"""Firing what asks for nothing special: one tick, and an execution that may begin at once.

One statement advances the cursors and writes ticks and executions, where the general way takes a
transaction of several. It writes all about a schedule or nothing; what it leaves out, because it is
locked, has moved, or its job has changed, goes the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.execution import NewExecution
from daybell.core.overlap import Overlap
from daybell.core.schedule import Decision, Firing
from daybell.errors import NotFound, Unavailable, UsageError
from daybell.store.codes import DECISION_CODES
from daybell.store.postgres.enqueue import MARKS_EXIST, Enqueueing
from daybell.store.postgres.specs import Spec, Specs
from daybell.store.postgres.timeouts import Pace

# A session that the server has ended because it was idle in a transaction, as the driver tells it.
CUT_OFF: Final = (
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
)
# What shows that a batch has to go the general way.
UNFIT: Final = (asyncpg.UniqueViolationError, asyncpg.LockNotAvailableError)

Row = tuple[UUID, float, float | None, float, UUID, str, int]


class FiringAlike(Enqueueing):
    """The short way."""

    # Only what was updated is written: a row may be locked in a version that this statement does
    # not see. A tick that is on record, or an id that exists, breaks the statement: see ALIKE.
    FIRE_ALIKE = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    k AS MATERIALIZED (
      SELECT x.place, u.*
        FROM unnest($2::uuid[], $3::float8[], $4::float8[], $5::float8[], $6::uuid[], $7::text[],
                    $8::int[]) u(id, expect, next_at, at, execution, args, spec),
             LATERAL (SELECT s.ctid AS place FROM daybell.schedule s
                       WHERE s.tenant = $1 AND s.id = u.id
                         AND coalesce(s.since, s.next_at) = u.expect AND NOT s.is_paused
                       LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
       WHERE NOT EXISTS (SELECT FROM unnest($9::int[], $10::int[]) c(job, version)
                          WHERE NOT EXISTS (
                            SELECT FROM daybell.job j WHERE j.key = c.job
                               AND j.version = c.version AND j.deleted_at IS NULL))),
    s AS (
      UPDATE daybell.schedule s
         SET next_at = CASE WHEN s.since IS NULL THEN k.next_at END,
             since = CASE WHEN s.since IS NOT NULL THEN k.next_at END,
             last_at = k.at, moved_at = greatest(t.now, k.expect, k.at), fired = s.fired + 1
        FROM k, t WHERE s.ctid = k.place
      RETURNING s.id, k.at, k.execution, k.args, k.spec, t.now),
    r AS (
      INSERT INTO daybell.tick (tenant, schedule, at, decision, execution)
      SELECT $1, id, at, {DECISION_CODES[Decision.FIRED]}, execution FROM s),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
                                args, scheduled_for, schedule)
      SELECT $1, execution, ($9::int[])[spec], ($10::int[])[spec], ($11::int[])[spec],
             ($12::smallint[])[spec], 1, now, now, args, at, id
        FROM s
      RETURNING id, run_at, lane, priority, schedule),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM l)
    SELECT coalesce(array_agg(schedule), '{{}}') FROM l
    HAVING NOT {MARKS_EXIST} OR daybell.refuse_repeated($1, $6, count(*))
    """

    async def fire_alike(self, tenant: str, firings: Sequence[Firing]) -> set[UUID]:
        """Fire those that can go the short way, if they are free; answers which have fired."""
        single = [(firing, one) for firing in firings if (one := _single(firing)) is not None]
        if not single:
            return set()
        try:
            with self.db.at_pace(Pace.FIRE):
                specs = await self.resolve(tenant, [execution for _, execution in single])
                if (await self.quotas(specs.tenant)).per_minute is not None:
                    return set()
                batch = Batch.of(specs, single)
                fired = await self.db.settled(lambda: self._fire_batch(specs, batch), patient=False)
        except NotFound:
            return set()
        except (UsageError, Unavailable) as error:
            if not isinstance(error.__cause__, (*UNFIT, *CUT_OFF)):
                raise
            return set()
        if fired:
            await self.announce(specs)
        return fired

    async def _fire_batch(self, specs: Specs, batch: Batch) -> set[UUID]:
        if not batch.rows:
            return set()
        async with self.db.link() as link:
            fired: list[UUID] = await link.fetchval(
                self.FIRE_ALIKE,
                specs.tenant,
                *zip(*batch.rows, strict=True),
                [spec.job.key for spec in batch.specs],
                [spec.job.version for spec in batch.specs],
                [spec.lane for spec in batch.specs],
                [spec.job.priority for spec in batch.specs],
            )
        return set(fired)


class Batch(msgspec.Struct):
    """What FIRE_ALIKE is given."""

    specs: list[Spec]
    rows: list[Row]  # each with the position of its job among those, from 1

    @staticmethod
    def of(specs: Specs, single: Sequence[tuple[Firing, NewExecution]]) -> Batch:
        """Those whose job has no gate, no dependencies and no time after which they are late."""
        batch = Batch([], [])
        places: dict[str, int] = {}  # 0: not here
        for firing, new in single:
            place = places.get(new.job)
            if place is None:
                spec, place = specs.of(new), 0
                is_free = spec.rule(new) is Overlap.ALLOW and not spec.awaits(new)
                if is_free and spec.job.expires is None:
                    batch.specs.append(spec)
                    place = len(batch.specs)
                places[new.job] = place
            if place:
                at = firing.ticks[0].at
                row = firing.schedule, firing.expect, firing.next_at, at, new.id, new.args, place
                batch.rows.append(row)
        return batch


def _single(firing: Firing) -> NewExecution | None:
    """The execution of a firing that is nothing but one tick, if it may begin at once."""
    if len(firing.ticks) != 1 or firing.is_over:
        return None
    tick = firing.ticks[0]
    execution = tick.execution
    if execution is None or tick.decision is not Decision.FIRED or not execution.is_plain_tick:
        return None
    is_its_own = execution.schedule == firing.schedule and execution.scheduled_for == tick.at
    return execution if is_its_own and tick.reason is None and tick.until is None else None

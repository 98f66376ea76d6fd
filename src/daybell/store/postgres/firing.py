"""Firing: cursor, ticks and executions in one transaction.

Nothing is locked while anybody computes. Advancing is a compare-and-set on the cursor, and the
name of a tick, (schedule, time), exists once: of two who fire the same, one finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.execution import Enqueued, NewExecution, State
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP, is_job_gate
from daybell.core.schedule import Decision, Firing, Tick
from daybell.errors import NotFound, Unavailable
from daybell.store.checks import check_batch
from daybell.store.codes import DECISION_CODES
from daybell.store.postgres.connection import Link
from daybell.store.postgres.enqueue import STALE_TRIES
from daybell.store.postgres.firing_alike import CUT_OFF, FiringAlike
from daybell.store.postgres.specs import Outdated, Specs
from daybell.store.postgres.timeouts import Pace

Ticks = list[tuple[Firing, Tick]]

SPLIT_PARTS: Final = 32  # of a batch in which something is locked
SPLIT_LOCKED_MAX: Final = 2


def by_schedule(firing: Firing) -> int:
    """The order in which everybody locks. Numbers compare ten times faster than ids."""
    return firing.schedule.int


class Advancing(FiringAlike):
    """Moving cursors on."""

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        fired: dict[int, bool] = {}
        left = list(enumerate(firings))
        while left:
            # One tenant at a time; the same schedule twice in one call: one after the other.
            tenant = left[0][1].tenant
            now: dict[UUID, tuple[int, Firing]] = {}
            for index, firing in left:
                if firing.tenant == tenant:
                    now.setdefault(firing.schedule, (index, firing))
            answers = await self._fire_shortly(tenant, [firing for _, firing in now.values()])
            fired.update(zip([index for index, _ in now.values()], answers, strict=True))
            left = [entry for entry in left if entry[0] not in fired]
        return [fired[index] for index in range(len(firings))]

    async def _fire_shortly(self, tenant: str, firings: list[Firing]) -> list[bool]:
        """Fire by the short way what can go there, and the rest by the general one."""
        check_batch([t.execution for f in firings for t in f.ticks if t.execution is not None])
        fired = await self.fire_alike(tenant, firings)
        left = [firing for firing in firings if firing.schedule not in fired]
        if left:
            answers = await self._fire_free(tenant, left)
            fired.update(f.schedule for f, is_ours in zip(left, answers, strict=True) if is_ours)
        return [firing.schedule in fired for firing in firings]

    async def _fire_free(self, tenant: str, firings: list[Firing]) -> list[bool]:
        """Fire what can be fired without waiting for a lock. The rest is answered with False: it
        stays due, and the scheduler tries it again in a moment.
        """
        try:
            return await self._fire_unhindered(tenant, firings)
        except Unavailable as error:
            if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise
        fired: list[bool] = []
        size, locked = ceil(len(firings) / SPLIT_PARTS), 0
        for start in range(0, len(firings), size):
            some = firings[start : start + size]
            answers = [False] * len(some)
            # A row that all of them need lets no part of them be fired.
            if len(firings) > 1 and locked < SPLIT_LOCKED_MAX:
                answers = await self._fire_free(tenant, some)
                locked += not any(answers)
            fired += answers
        return fired

    async def _fire_unhindered(self, tenant: str, firings: list[Firing]) -> list[bool]:
        try:
            with self.db.at_pace(Pace.FIRE):
                return await self._fire_all(tenant, firings)
        except Unavailable as error:
            if not isinstance(error.__cause__, CUT_OFF):
                raise
        # This process may be slow rather than frozen: its event loop was blocked for too long.
        return await self._fire_all(tenant, firings)

    # Who could be advanced as things are: the others need not even be looked up.
    ADVANCEABLE = """
    SELECT s.id FROM daybell.schedule s JOIN unnest($2::uuid[], $3::float8[]) u(id, expect)
        ON s.tenant = (SELECT key FROM daybell.tenant WHERE name = $1) AND s.id = u.id
       AND coalesce(s.since, s.next_at) = u.expect AND NOT s.is_paused
      JOIN daybell.job j ON j.key = s.job AND j.deleted_at IS NULL
    """

    async def _fire_all(self, tenant: str, firings: list[Firing]) -> list[bool]:
        left = sorted(firings, key=by_schedule)
        for attempt in range(STALE_TRIES):
            if not left:
                return [False] * len(firings)
            executions = [t.execution for f in left for t in f.ticks if t.execution is not None]
            try:
                specs = await self.resolve(tenant, executions, fresh=attempt > 0)
                advanced = await self.db.settled(
                    lambda s=specs, left=left: self._fire(s, left), patient=False
                )
            except Outdated:
                continue
            except NotFound:
                # Deleted, or its schedules are gone with it? Then nobody can fire them.
                possible = await self._advanceable(tenant, left)
                left = [firing for firing in left if firing.schedule in possible]
                if attempt < STALE_TRIES - 1:
                    continue
                raise
            await self.announce(specs)
            return [firing.schedule in advanced for firing in firings]
        raise Unavailable("the jobs of these schedules change faster than they can fire; try again")

    async def _advanceable(self, tenant: str, firings: list[Firing]) -> set[UUID]:
        schedules, expects = [f.schedule for f in firings], [f.expect for f in firings]
        async with self.db.link() as link:
            rows = await link.fetch(self.ADVANCEABLE, tenant, schedules, expects)
        return {row["id"] for row in rows}

    # Who has it locked, or its gate, is firing the same job, or has just ended an execution of it:
    # it is looked at again, and whoever froze there stops nobody else. All is written as if every
    # tick were new and every execution let in; `_correct` sees to the rest.
    ADVANCE = """
    WITH k AS MATERIALIZED (
      SELECT x.place, x.before, u.*
        FROM unnest($2::uuid[], $3::float8[], $4::float8[], $5::float8[], $6::int[], $7::int[],
                    $8::int[], $9::boolean[], $10::text[], $12::float8[])
             u(id, expect, next_at, last_at, fired, skipped, missed, is_over, gate, planned_at),
             LATERAL (SELECT s.ctid AS place, s.last_at AS before FROM daybell.schedule s
                       WHERE s.tenant = $1 AND s.id = u.id
                         AND coalesce(s.since, s.next_at) = u.expect
                         AND (NOT s.is_paused OR $11) LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x),
    g AS MATERIALIZED (
      SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY(ARRAY(SELECT gate FROM k))
       ORDER BY key FOR UPDATE SKIP LOCKED)
    UPDATE daybell.schedule s
       SET next_at = CASE WHEN s.since IS NULL THEN k.next_at END,
           since = CASE WHEN s.since IS NOT NULL THEN k.next_at END,
           last_at = coalesce(k.last_at, s.last_at),
           moved_at = greatest(daybell.now(), k.planned_at),
           fired = s.fired + k.fired, skipped = s.skipped + k.skipped, missed = s.missed + k.missed,
           delay = CASE WHEN NOT k.is_over THEN s.delay END
      FROM k WHERE s.ctid = k.place AND (k.gate IS NULL OR k.gate IN (SELECT key FROM g))
    RETURNING s.id, k.before
    """

    async def _fire(self, specs: Specs, firings: list[Firing]) -> set[UUID]:
        async with self.db.transaction() as link:
            return await self.advance_cursors(link, specs, firings)

    async def advance_cursors(
        self, link: Link, specs: Specs, firings: list[Firing], *, paused: bool = False
    ) -> set[UUID]:
        """Fire in the caller's transaction; answers which cursors were moved on."""
        firings = await self._recordable(link, specs, firings)
        counts = [_counts(firing) for firing in firings]
        rows = await link.fetch(
            self.ADVANCE,
            specs.tenant,
            [firing.schedule for firing in firings],
            [firing.expect for firing in firings],
            [firing.next_at for firing in firings],
            [last_at for last_at, _, _, _ in counts],
            [fired for _, fired, _, _ in counts],
            [skipped for _, _, skipped, _ in counts],
            [missed for _, _, _, missed in counts],
            [firing.is_over and not firing.ticks for firing in firings],
            [_gate(firing, specs) for firing in firings],
            paused,
            [firing.planned_at for firing in firings],
        )
        before = {row["id"]: row["before"] for row in rows}
        ticks = [(f, tick) for f in firings if f.schedule in before for tick in f.ticks]
        if ticks:
            refused = await self._record(link, specs, ticks, before)
            ended = {f.schedule for f, _ in ticks if f.is_over} - refused
            if ended:
                await link.execute(self.END_DELAYS, specs.tenant, sorted(ended))
        return set(before)

    ON_RECORD = """
    SELECT DISTINCT t.schedule FROM unnest($2::uuid[], $3::float8[]) u(schedule, at)
      JOIN daybell.tick t ON t.tenant = $1 AND t.schedule = u.schedule AND t.at = u.at
    """

    async def _recordable(self, link: Link, specs: Specs, firings: list[Firing]) -> list[Firing]:
        """Those whose missed ranges would not be lost, because a tick of that name is on record.
        None comes to be so after this look: whoever records one moves the cursor.
        """
        missed = [(firing.schedule, tick.at) for firing in firings for tick in firing.missed]
        if not missed:
            return firings
        ids, times = [id for id, _ in missed], [at for _, at in missed]
        rows = await link.fetch(self.ON_RECORD, specs.tenant, ids, times)
        lost = {row["schedule"] for row in rows}
        return [firing for firing in firings if firing.schedule not in lost]

    END_DELAYS = """
    UPDATE daybell.schedule SET delay = NULL, next_at = NULL
     WHERE tenant = $1 AND id = ANY($2::uuid[])
    """

    RECORD = """
    INSERT INTO daybell.tick (tenant, schedule, at, decision, reason, until, execution, count)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::float8[], $4::smallint[], $5::text[], $6::float8[],
                               $7::uuid[], $8::int[]) u
    ON CONFLICT DO NOTHING RETURNING schedule, at
    """

    async def _record(
        self, link: Link, specs: Specs, ticks: Ticks, before: Mapping[UUID, Instant | None]
    ) -> set[UUID]:
        """Answers the schedules of which not every tick was fired that should be."""
        rows = await link.fetch(
            self.RECORD,
            specs.tenant,
            [firing.schedule for firing, _ in ticks],
            [tick.at for _, tick in ticks],
            [DECISION_CODES[tick.decision] for _, tick in ticks],
            [tick.reason for _, tick in ticks],
            [tick.until for _, tick in ticks],
            [tick.execution and tick.execution.id for _, tick in ticks],
            [tick.count for _, tick in ticks],
        )
        new = {(row["schedule"], row["at"]) for row in rows}
        became = Became()
        fired: list[tuple[Firing, Tick, NewExecution]] = []
        for firing, tick in ticks:
            if (firing.schedule, tick.at) not in new:
                became.known.append((firing, tick))
            elif tick.execution is not None:
                fired.append((firing, tick, tick.execution))
        if fired:
            executions = [execution for _, _, execution in fired]
            answers = await self.enqueue_on(link, specs, executions, are_locked=True)
            for (firing, tick, _), answer in zip(fired, answers, strict=True):
                became.add(firing, tick, answer)
            made = sum(answer.created and not answer.skipped for answer in answers)
            made -= await self._rule_out(link, specs.tenant, [tick for _, tick, _ in fired])
            await self.count_ticks(link, specs.tenant, made)
        if became.is_unexpected:
            await self._correct(link, specs, became, before)
        return set(became.refused())

    async def _rule_out(self, link: Link, tenant: int, ticks: Sequence[Tick]) -> int:
        """Skip the executions of ticks that a rule said no to; answers how many."""
        ended = 0
        for reason in {tick.reason for tick in ticks if tick.ruled_out is not None}:
            ids = [t.ruled_out for t in ticks if t.ruled_out is not None and t.reason == reason]
            _, pending = await self.end_pending(link, tenant, ids, State.SKIPPED, reason)
            ended += len(pending)
        return ended

    SKIPPED = """
    UPDATE daybell.tick t SET decision = $4, reason = $5
      FROM unnest($2::uuid[], $3::float8[]) u(schedule, at)
     WHERE t.tenant = $1 AND t.schedule = u.schedule AND t.at = u.at
    """
    HELD_BY = """
    UPDATE daybell.tick t SET execution = u.execution
      FROM unnest($2::uuid[], $3::float8[], $4::uuid[]) u(schedule, at, execution)
     WHERE t.tenant = $1 AND t.schedule = u.schedule AND t.at = u.at
    """
    RECOUNT = """
    UPDATE daybell.schedule s
       SET fired = s.fired - u.fired, skipped = s.skipped + u.skipped, missed = s.missed - u.missed,
           last_at = u.last_at
      FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::float8[])
             u(id, fired, skipped, missed, last_at)
     WHERE s.tenant = $1 AND s.id = u.id
    """
    GO_ON = """
    UPDATE daybell.schedule s SET next_at = u.next_at
      FROM unnest($2::uuid[], $3::float8[]) u(id, next_at) WHERE s.tenant = $1 AND s.id = u.id
    """
    # A fixed delay of which nothing runs counts from now.
    BEGIN_ANEW = """
    UPDATE daybell.schedule SET next_at = daybell.now() + delay
     WHERE tenant = $1 AND id = ANY($2::uuid[]) AND delay IS NOT NULL AND next_at IS NULL
    """

    async def _correct(
        self, link: Link, specs: Specs, became: Became, before: Mapping[UUID, Instant | None]
    ) -> None:
        """Put right what was written as if all had gone well."""
        if became.skipped:
            await link.execute(
                self.SKIPPED,
                specs.tenant,
                [firing.schedule for firing, _ in became.skipped],
                [tick.at for _, tick in became.skipped],
                DECISION_CODES[Decision.SKIPPED],
                OVERLAP,
            )
        if became.held:  # its unique key is held: the tick stands for the holder
            await link.execute(
                self.HELD_BY,
                specs.tenant,
                [firing.schedule for firing, _, _ in became.held],
                [tick.at for _, tick, _ in became.held],
                [holder for _, _, holder in became.held],
            )
        wrong = became.miscounts()
        await link.execute(
            self.RECOUNT,
            specs.tenant,
            list(wrong),
            [fired for fired, _, _ in wrong.values()],
            [skipped for _, skipped, _ in wrong.values()],
            [missed for _, _, missed in wrong.values()],
            [became.last_at.get(schedule, before[schedule]) for schedule in wrong],
        )
        going = {one: at for one, at in became.refused().items() if at is not None}
        if going:
            await link.execute(self.GO_ON, specs.tenant, list(going), list(going.values()))
        await link.execute(self.BEGIN_ANEW, specs.tenant, sorted(became.idle()))


class Became(msgspec.Struct):
    """What became of ticks that were taken to be new, and their executions to be let in."""

    known: Ticks = []  # they were on record
    skipped: Ticks = []  # the overlap rule said no
    held: list[tuple[Firing, Tick, UUID]] = []  # their unique key is held by that one
    begun: set[UUID] = set()  # schedules of which something runs
    last_at: dict[UUID, Instant] = {}  # of those that did fire

    @property
    def is_unexpected(self) -> bool:
        return bool(self.known or self.skipped or self.held)

    def add(self, firing: Firing, tick: Tick, answer: Enqueued) -> None:
        """Note what was answered for the execution of a tick."""
        if answer.skipped:
            self.skipped.append((firing, tick))
            return
        self.last_at[firing.schedule] = tick.at
        if answer.created:
            self.begun.add(firing.schedule)
        else:
            self.held.append((firing, tick, answer.id))

    def miscounts(self) -> dict[UUID, tuple[int, int, int]]:
        """What each schedule has too many of fired, too few of skipped, too many of missed."""
        wrong: dict[UUID, tuple[int, int, int]] = {}
        for firing, tick in self.known:
            fired, skipped, missed = wrong.get(firing.schedule, (0, 0, 0))
            fired += tick.decision is Decision.FIRED
            skipped -= tick.decision is Decision.SKIPPED
            missed += tick.count if tick.decision is Decision.MISSED else 0
            wrong[firing.schedule] = fired, skipped, missed
        for firing, _ in self.skipped:
            fired, skipped, missed = wrong.get(firing.schedule, (0, 0, 0))
            wrong[firing.schedule] = fired + 1, skipped + 1, missed
        return wrong

    def refused(self) -> dict[UUID, Instant | None]:
        """Schedules that fired less often than they should, and where they then stand."""
        missing = (*self.known, *self.skipped)
        return {f.schedule: f.if_refused_at for f, t in missing if t.execution is not None}

    def idle(self) -> set[UUID]:
        """Schedules that fired, and of which nothing runs."""
        return {one[0].schedule for one in (*self.skipped, *self.held)} - self.begun


def _gate(firing: Firing, specs: Specs) -> str | None:
    """The job's own gate, if its executions have to pass that; they are all of one job."""
    for tick in firing.ticks:
        if tick.execution is not None:
            gate = specs.of(tick.execution).gate(tick.execution)
            return gate if gate is not None and is_job_gate(gate) else None
    return None


def _counts(firing: Firing) -> tuple[Instant | None, int, int, int]:
    """The last tick that it fires, and how many it fires, skips and has missed."""
    last_at, fired, skipped, missed = None, 0, 0, 0
    for tick in firing.ticks:
        if tick.decision is Decision.FIRED:
            last_at, fired = tick.at, fired + 1
        elif tick.decision is Decision.SKIPPED:
            skipped += 1
        else:
            missed += tick.count
    return last_at, fired, skipped, missed

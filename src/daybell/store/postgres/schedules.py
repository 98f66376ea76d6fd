"""Schedules: cursors, the atomic firing of ticks, and dependencies between jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import ceil, inf
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.checks import (
    OCCURRENCES_MAX,
    check_batch,
    check_limit,
    check_schedule_cursor,
    schedule_cursor,
)
from daybell.core.execution import NewExecution, State
from daybell.core.limits import FIRE_BATCH_MAX, SCAN_ITEMS_MAX
from daybell.core.schedule import (
    DEPENDENCIES,
    LOOKED_AT_MAX,
    OVERLAP,
    UPSTREAM_FAILED,
    Decision,
    Dependent,
    Dependents,
    Due,
    Ended,
    Firing,
    FiringOutcome,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    TickRecord,
    Upstream,
    Waiting,
    gate_of,
    is_job_gate,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page, bytes_of, cut_page
from daybell.errors import JobNotFound, NotFound, Unavailable, UsageError, shown
from daybell.store.codec import DECISION_CODES, DECISIONS, STATES
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import ALL_TENANTS, SCHEDULES, AfterCommit, StoreContext, Tx
from daybell.store.postgres.enqueue import (
    MARKS_EXIST,
    STALE_TRIES,
    enqueue_on,
    notify_enqueued,
    resolve,
)
from daybell.store.postgres.gates import (
    MAKE_JOB_GATES,
    count_ticks,
    lock_gates,
    mark_lanes_claimable,
    notify_claimable,
    read_quotas,
)
from daybell.store.postgres.names import JobKey, Outdated, Specs, within_page
from daybell.store.postgres.progress import (
    after_commit,
    end_pending,
    fetch_ids,
    lock_links_of,
    stop_schedules,
)
from daybell.store.postgres.run_rows import columns_of, drop_if_all_null
from daybell.store.timeouts import Pace

# The short way: firings of one tick, with an execution that can be claimed at once.
#
# One statement moves the cursors, takes the slots of the gates and writes ticks and executions. The
# general way needs a transaction of several. The statement writes all of a firing or nothing. A
# firing goes the general way if its schedule or gate is locked or has changed, if its gate is not
# empty, or if its job has a new version.

# Errors of a session that the server has ended because it was idle in a transaction.
CUT_OFF: Final = (
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
)
# Errors after which a batch goes the general way.
UNFIT: Final = (asyncpg.UniqueViolationError, asyncpg.LockNotAvailableError)


# `k` locks the schedules, then their gates, and steps over those that are locked. A gate admits a
# tick under every overlap rule if it is empty: see `core.schedule.decide_entry`. An execution that
# was parked there after the snapshot of this statement counts as enqueued after the tick.
# `f` drops rows that were locked in a version that the snapshot does not see: an update by ctid
# would not find them. So each row of `f` is written completely.
# A tick that is on record, or an id that exists, breaks the statement: see ALIKE in enqueue.py.
# The answer is null if all were fired, since the ids of a whole batch take long to read.
FIRE_ALIKE: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    k AS MATERIALIZED (
      SELECT x.place, y.slot, u.*
        FROM unnest($2::uuid[], $3::uuid[], $4::int[], $5::text[]) u(id, execution, form, gate)
        JOIN LATERAL (SELECT s.ctid AS place FROM daybell.schedule s
                       WHERE s.tenant = $1 AND s.id = u.id
                         AND coalesce(s.since, s.next_at) = ($6::float8[])[u.form]
                         AND NOT s.is_paused
                       LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x ON true
        LEFT JOIN LATERAL (SELECT g.ctid AS slot FROM daybell.gate g
                            WHERE g.tenant = $1 AND g.key = u.gate AND g.holders = 0
                              AND (SELECT true FROM daybell.parked p
                                    WHERE p.tenant = $1 AND p.gate = u.gate
                                      AND p.run_at <= (SELECT now FROM t) LIMIT 1) IS NULL
                            LIMIT 1 FOR UPDATE SKIP LOCKED) y ON true
       WHERE (u.gate IS NULL OR y.slot IS NOT NULL)
         AND NOT EXISTS (SELECT FROM unnest($10::int[], $11::int[]) c(job, version)
                          WHERE NOT EXISTS (
                            SELECT FROM daybell.job j WHERE j.key = c.job
                               AND j.version = c.version AND j.deleted_at IS NULL))),
    f AS MATERIALIZED (
      SELECT k.*, ($6::float8[])[form] AS expect, ($7::float8[])[form] AS next_at,
             ($8::float8[])[form] AS at
        FROM k
       WHERE (SELECT true FROM daybell.schedule s WHERE s.ctid = k.place)
         AND (gate IS NULL OR (SELECT true FROM daybell.gate g WHERE g.ctid = k.slot))),
    g AS (
      UPDATE daybell.gate g SET holders = g.holders + 1 FROM f WHERE g.ctid = f.slot),
    s AS (
      UPDATE daybell.schedule s
         SET next_at = CASE WHEN s.since IS NULL THEN f.next_at END,
             since = CASE WHEN s.since IS NOT NULL THEN f.next_at END,
             last_at = f.at, moved_at = greatest(t.now, f.expect, f.at), fired = s.fired + 1
        FROM f, t WHERE s.ctid = f.place),
    r AS (
      INSERT INTO daybell.tick (tenant, schedule, at, decision, execution)
      SELECT $1, id, at, {DECISION_CODES[Decision.FIRED]}, execution FROM f),
    l AS (
      INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
                                args, gate, scheduled_for, schedule)
      SELECT $1, execution, ($10::int[])[form], ($11::int[])[form], ($12::int[])[form],
             ($13::smallint[])[form], 1, t.now, t.now, ($9::text[])[form], gate, at, id
        FROM f, t
      RETURNING id, run_at, lane, priority, schedule),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM l)
    SELECT CASE WHEN count(*) < cardinality($2) THEN coalesce(array_agg(schedule), '{{}}') END
      FROM l
    HAVING NOT {MARKS_EXIST} OR daybell.refuse_repeated($1, $3, count(*))
    """


async def fire_alike(pg: StoreContext, tenant: str, firings: Sequence[Firing]) -> list[Firing]:
    """Fire the firings that can go the short way, and return the rest."""
    single = [(firing, new) for firing in firings if (new := _single_execution(firing)) is not None]
    if not single:
        return list(firings)
    try:
        with pg.db.at_pace(Pace.FIRE):
            specs = await resolve(pg, tenant, [new for _, new in single])
            if (await read_quotas(pg, specs.tenant)).per_minute is not None:
                return list(firings)
            batch = ShortBatch.of(specs, single)
            if not batch.firings:
                return list(firings)
            fired = await pg.db.settled(lambda: _fire_batch(pg, specs, batch), patient=False)
    except NotFound:
        return list(firings)
    except (UsageError, Unavailable) as error:
        if not isinstance(error.__cause__, (*UNFIT, *CUT_OFF)):
            raise
        return list(firings)
    if fired is None or fired:
        pg.notifier.touch(specs.tenant, specs.queues)
    if fired is None and len(batch.firings) == len(firings):
        return []
    done = {firing.schedule for firing in batch.firings} if fired is None else fired
    return [firing for firing in firings if firing.schedule not in done]


async def _fire_batch(pg: StoreContext, specs: Specs, batch: ShortBatch) -> set[UUID] | None:
    """Return the schedules that were fired; None: all of the batch."""
    forms = batch.forms
    async with pg.db.link() as link:
        fired: list[UUID] | None = await link.fetchval(
            FIRE_ALIKE,
            specs.tenant,
            [firing.schedule for firing in batch.firings],
            batch.executions,
            batch.places,
            drop_if_all_null(batch.gates),
            *columns_of(forms, "expect", "next_at", "at", "args"),
            *columns_of(
                forms, "spec.job.key", "spec.job.version", "spec.lane", "spec.job.priority"
            ),
        )
    return None if fired is None else set(fired)


class FiringForm(NamedTuple):
    """The fields that firings share: most are of few jobs and are due at one time."""

    spec: JobKey
    expect: Instant
    next_at: Instant | None
    at: Instant
    args: str


class ShortBatch(msgspec.Struct):
    """The firings that go the short way, in columns."""

    forms: list[FiringForm]
    firings: list[Firing]
    executions: list[UUID]
    places: list[int]  # the position of the form of each, from 1
    gates: list[str | None]

    @staticmethod
    def of(specs: Specs, single: Sequence[tuple[Firing, NewExecution]]) -> ShortBatch:
        """Take firings of jobs without dependencies and expiry, one for each gate."""
        batch = ShortBatch([], [], [], [], [])
        places: dict[tuple[str, Instant, Instant | None, Instant, str], int] = {}
        used: set[str] = set()
        for firing, new in single:
            spec = specs.of(new)
            if spec.job.expires is not None or spec.wait_for_dependencies(new):
                continue
            gate = spec.gate(new)
            if gate is not None:
                if gate in used:
                    continue  # the first one decides if the gate is empty
                used.add(gate)
            at = firing.ticks[0].at
            key = new.job, firing.expect, firing.next_at, at, new.args
            place = places.setdefault(key, len(places) + 1)
            if place > len(batch.forms):
                form = FiringForm(spec, firing.expect, firing.next_at, at, new.args)
                batch.forms.append(form)
            batch.firings.append(firing)
            batch.executions.append(new.id)
            batch.places.append(place)
            batch.gates.append(gate)
        return batch


def _single_execution(firing: Firing) -> NewExecution | None:
    """Return the execution of a firing of only one tick, if it can be claimed at once."""
    if len(firing.ticks) != 1 or firing.is_over:
        return None
    tick = firing.ticks[0]
    execution = tick.execution
    if execution is None or tick.decision is not Decision.FIRED or not execution.is_plain_tick:
        return None
    is_its_own = execution.schedule == firing.schedule and execution.scheduled_for == tick.at
    return execution if is_its_own and tick.reason is None and tick.until is None else None


# Firing: cursor, ticks and executions in one transaction.
#
# A scheduler holds no lock while it computes. It advances by a compare-and-set on the cursor, and
# the name of a tick, (schedule, time), exists once: of two schedulers that fire the same tick, one
# has nothing to do.

SPLIT_PARTS: Final = 32  # of a batch with a locked row
SPLIT_LOCKED_MAX: Final = 2


def group_by_schedule(firing: Firing) -> int:
    """Return the key of the common order of locks. Numbers compare ten times faster than ids."""
    return firing.schedule.int


async def fire(pg: StoreContext, firings: Sequence[Firing]) -> list[bool]:
    tenants = {firing.tenant for firing in firings}
    if len(tenants) == 1 and len({firing.schedule for firing in firings}) == len(firings):
        return await _fire_shortly(pg, firings[0].tenant, firings)
    fired: dict[int, bool] = {}
    left = list(enumerate(firings))
    while left:
        # One tenant at a time. The same schedule twice in one call: one after the other.
        tenant = left[0][1].tenant
        now: dict[UUID, tuple[int, Firing]] = {}
        for index, firing in left:
            if firing.tenant == tenant:
                now.setdefault(firing.schedule, (index, firing))
        answers = await _fire_shortly(pg, tenant, [firing for _, firing in now.values()])
        fired.update(zip([index for index, _ in now.values()], answers, strict=True))
        left = [entry for entry in left if entry[0] not in fired]
    return [fired[index] for index in range(len(firings))]


async def _fire_shortly(pg: StoreContext, tenant: str, firings: Sequence[Firing]) -> list[bool]:
    """Fire by the short way if possible, and the rest by the general way."""
    check_batch([t.execution for f in firings for t in f.ticks if t.execution is not None])
    left = await fire_alike(pg, tenant, firings)
    if not left:
        return [True] * len(firings)
    answers = await _fire_free(pg, tenant, left)
    failed = {f.schedule for f, is_ours in zip(left, answers, strict=True) if not is_ours}
    return [firing.schedule not in failed for firing in firings]


async def _fire_free(pg: StoreContext, tenant: str, firings: list[Firing]) -> list[bool]:
    """Fire the firings that need not wait for a lock. Return False for the rest: it stays due, and
    the scheduler soon retries it.
    """
    try:
        return await _fire_unhindered(pg, tenant, firings)
    except Unavailable as error:
        if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
            raise
    fired: list[bool] = []
    size, locked = ceil(len(firings) / SPLIT_PARTS), 0
    for start in range(0, len(firings), size):
        some = firings[start : start + size]
        answers = [False] * len(some)
        # If all of them need one locked row, no part of them can be fired.
        if len(firings) > 1 and locked < SPLIT_LOCKED_MAX:
            answers = await _fire_free(pg, tenant, some)
            locked += not any(answers)
        fired += answers
    return fired


async def _fire_unhindered(pg: StoreContext, tenant: str, firings: list[Firing]) -> list[bool]:
    try:
        with pg.db.at_pace(Pace.FIRE):
            return await _fire_all(pg, tenant, firings)
    except Unavailable as error:
        if not isinstance(error.__cause__, CUT_OFF):
            raise
    # This process may be slow rather than frozen: its event loop was blocked for too long.
    return await _fire_all(pg, tenant, firings)


# The schedules that can be advanced now. The others need no further query.
ADVANCEABLE: Final = """
    SELECT s.id FROM daybell.schedule s JOIN unnest($2::uuid[], $3::float8[]) u(id, expect)
        ON s.tenant = (SELECT key FROM daybell.tenant WHERE name = $1) AND s.id = u.id
       AND coalesce(s.since, s.next_at) = u.expect AND NOT s.is_paused
      JOIN daybell.job j ON j.key = s.job AND j.deleted_at IS NULL
    """


async def _fire_all(pg: StoreContext, tenant: str, firings: list[Firing]) -> list[bool]:
    left: list[Firing] = sorted(firings, key=group_by_schedule)
    for attempt in range(STALE_TRIES):
        if not left:
            return [False] * len(firings)
        executions = [t.execution for f in left for t in f.ticks if t.execution is not None]
        after = AfterCommit()
        try:
            specs = await resolve(pg, tenant, executions, fresh=attempt > 0)
            advanced = await pg.db.settled(partial(_fire, pg, after, specs, left), patient=False)
        except Outdated:
            continue
        except NotFound:
            # A deleted job, or one without these schedules: no scheduler can fire them.
            possible = await _advanceable(pg, tenant, left)
            left = [firing for firing in left if firing.schedule in possible]
            if attempt < STALE_TRIES - 1:
                continue
            raise
        await notify_enqueued(pg, after, specs)
        return [firing.schedule in advanced for firing in firings]
    raise Unavailable("the jobs of these schedules change faster than they can fire; try again")


async def _advanceable(pg: StoreContext, tenant: str, firings: list[Firing]) -> set[UUID]:
    schedules, expects = [f.schedule for f in firings], [f.expect for f in firings]
    async with pg.db.link() as link:
        rows = await link.fetch(ADVANCEABLE, tenant, schedules, expects)
    return {row["id"] for row in rows}


# A locked schedule or gate belongs to another firing of the job, or to an end of its execution.
# The statement steps over it. It stays due, so a frozen process delays no other schedule.
LOCK_DUE: Final = """
    WITH k AS MATERIALIZED (
      SELECT x.*, u.gate
        FROM unnest($2::uuid[], $3::float8[], $4::text[]) u(id, expect, gate),
             LATERAL (SELECT s.id, s.last_at FROM daybell.schedule s
                       WHERE s.tenant = $1 AND s.id = u.id
                         AND coalesce(s.since, s.next_at) = u.expect
                         AND (NOT s.is_paused OR $5) LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x),
    g AS MATERIALIZED (
      SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY(ARRAY(SELECT gate FROM k))
       ORDER BY key FOR UPDATE SKIP LOCKED)
    SELECT id, last_at FROM k WHERE gate IS NULL OR gate IN (SELECT key FROM g)
    """


async def _fire(
    pg: StoreContext, after: AfterCommit, specs: Specs, firings: list[Firing]
) -> set[UUID]:
    async with pg.transaction(after=after) as tx:
        return await advance_cursors(tx, specs, firings)


async def advance_cursors(
    tx: Tx, specs: Specs, firings: list[Firing], *, paused: bool = False
) -> set[UUID]:
    """Fire in the caller's transaction; return the schedules with moved cursors.

    Lock schedules and gates, create the executions, and then write ticks and cursors with the
    result: the overlap rule may skip an execution, and a unique key may be held.
    """
    rows = await tx.fetch(
        LOCK_DUE,
        specs.tenant,
        [firing.schedule for firing in firings],
        [firing.expect for firing in firings],
        [_gate(firing, specs) for firing in firings],
        paused,
    )
    locked = {row["id"]: row["last_at"] for row in rows}
    outcomes = [
        FiringOutcome(firing, locked[firing.schedule], list(firing.ticks))
        for firing in firings
        if firing.schedule in locked
    ]
    outcomes = await _omit_recorded(tx, specs, outcomes)
    await _create(tx, specs, outcomes)
    await _record(tx, specs, outcomes)
    await _advance(tx, specs, outcomes)
    await _rule_out(tx, specs, outcomes)
    return {outcome.firing.schedule for outcome in outcomes}


# No other transaction records a tick of a schedule that is locked here: it would move the cursor.
ON_RECORD: Final = """
    SELECT u.schedule, u.at FROM unnest($2::uuid[], $3::float8[]) u(schedule, at),
           LATERAL (SELECT FROM daybell.tick t
                     WHERE t.tenant = $1 AND t.schedule = u.schedule AND t.at = u.at LIMIT 1) t
    """


async def _omit_recorded(
    tx: Tx, specs: Specs, outcomes: list[FiringOutcome]
) -> list[FiringOutcome]:
    """Omit ticks that are on record, which happens after a cursor was set back. A firing with a
    missed range that is on record is dropped: the rest of the range would be lost.
    """
    names = [(one.firing.schedule, tick.at) for one in outcomes for tick in one.firing.ticks]
    if not names:
        return outcomes
    rows = await tx.fetch(
        ON_RECORD, specs.tenant, [schedule for schedule, _ in names], [at for _, at in names]
    )
    if not rows:
        return outcomes
    recorded = {(row["schedule"], row["at"]) for row in rows}
    kept: list[FiringOutcome] = []
    for one in outcomes:
        firing = one.firing
        if any((firing.schedule, tick.at) in recorded for tick in firing.missed):
            continue
        one.new_ticks = []
        for tick in firing.ticks:
            if (firing.schedule, tick.at) in recorded:
                one.omit(tick)
            else:
                one.new_ticks.append(tick)
        kept.append(one)
    return kept


async def _create(tx: Tx, specs: Specs, outcomes: Sequence[FiringOutcome]) -> None:
    """Create the executions under the locks of their gates, and add the ticks with the results."""
    ticks = [(one, tick) for one in outcomes for tick in one.new_ticks]
    executions = [tick.execution for _, tick in ticks if tick.execution is not None]
    answers = iter(await enqueue_on(tx, specs, executions, are_locked=True) if executions else ())
    for one, tick in ticks:
        one.add(tick, None if tick.execution is None else next(answers))


RECORD: Final = """
    INSERT INTO daybell.tick (tenant, schedule, at, decision, reason, until, execution, count)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::float8[], $4::smallint[], $5::text[], $6::float8[],
                               $7::uuid[], $8::int[]) u
    """


async def _record(tx: Tx, specs: Specs, outcomes: Sequence[FiringOutcome]) -> None:
    ticks = [(one.firing.schedule, tick) for one in outcomes for tick in one.ticks]
    if not ticks:
        return
    await tx.execute(
        RECORD,
        specs.tenant,
        [schedule for schedule, _ in ticks],
        [tick.at for _, tick in ticks],
        [DECISION_CODES[tick.decision] for _, tick in ticks],
        [tick.reason for _, tick in ticks],
        [tick.until for _, tick in ticks],
        [tick.execution and tick.execution.id for _, tick in ticks],
        [tick.count for _, tick in ticks],
    )


# Each row is found separately, then changed in place: it is locked.
# A fixed delay without a running execution counts from now.
ADVANCE: Final = """
    WITH k AS MATERIALIZED (
      SELECT x.place, u.*
        FROM unnest($2::uuid[], $3::float8[], $4::float8[], $5::int[], $6::int[], $7::int[],
                    $8::boolean[], $9::boolean[], $10::float8[])
             u(id, next_at, last_at, fired, skipped, missed, is_over, is_idle, planned_at),
             LATERAL (SELECT s.ctid AS place FROM daybell.schedule s
                       WHERE s.tenant = $1 AND s.id = u.id LIMIT 1) x)
    UPDATE daybell.schedule s
       SET next_at = CASE WHEN s.since IS NOT NULL THEN NULL
                          WHEN k.is_idle THEN coalesce(k.next_at, daybell.now() + s.delay)
                          ELSE k.next_at END,
           since = CASE WHEN s.since IS NOT NULL THEN k.next_at END,
           last_at = k.last_at, moved_at = greatest(daybell.now(), k.planned_at),
           fired = s.fired + k.fired, skipped = s.skipped + k.skipped, missed = s.missed + k.missed,
           delay = CASE WHEN NOT k.is_over THEN s.delay END
      FROM k WHERE s.ctid = k.place
    """


async def _advance(tx: Tx, specs: Specs, outcomes: Sequence[FiringOutcome]) -> None:
    await tx.execute(
        ADVANCE,
        specs.tenant,
        *columns_of(outcomes, "firing.schedule", "next_at", "last_at", "fired", "skipped"),
        *columns_of(outcomes, "missed", "is_over", "is_idle", "firing.planned_at"),
    )


async def _rule_out(tx: Tx, specs: Specs, outcomes: Sequence[FiringOutcome]) -> None:
    """Skip the executions of ticks that a rule refused, and count the others for the quota."""
    ticks = [tick for one in outcomes for tick in one.ticks if tick.execution is not None]
    made = len(specs.made.intersection(tick.execution.id for tick in ticks if tick.execution))
    refused: dict[str | None, list[UUID]] = {}
    for tick in ticks:
        if tick.ruled_out is not None and tick.ruled_out in specs.made:
            refused.setdefault(tick.reason, []).append(tick.ruled_out)
    for reason, ids in refused.items():
        _, ended = await end_pending(tx, specs.tenant, ids, State.SKIPPED, reason)
        made -= len(ended)
    await count_ticks(tx, specs.tenant, made)


def _gate(firing: Firing, specs: Specs) -> str | None:
    """Return the job's own gate, if its executions have to pass it. All are of one job."""
    for tick in firing.ticks:
        if tick.execution is not None:
            gate = specs.of(tick.execution).gate(tick.execution)
            return gate if gate is not None and is_job_gate(gate) else None
    return None


FIELDS: Final = """
    SELECT s.tenant, s.id, j.name AS job, s.rule, s.next_at, s.name, s.args, s.misfire, s.delay,
           s.is_reboot, s.is_declared, s.is_paused, s.last_at, s.succeeded_for, s.fired, s.skipped,
           s.missed, s.failures, s.since, s.own_gate, s.event"""
COLUMNS: Final = f"""{FIELDS}
      FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job"""


PUT: Final = """
    INSERT INTO daybell.schedule AS s (tenant, id, job, name, rule, args, misfire, next_at, delay,
           is_reboot, pause_after, is_declared, since, own_gate, event, is_paused, moved_at)
    SELECT $1, u.*, (SELECT paused_at IS NOT NULL FROM daybell.job WHERE key = u.job), daybell.now()
      FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[],
                  $8::float8[], $9::float8[], $10::boolean[], $11::int[], $12::boolean[],
                  $14::float8[], $15::boolean[], $16::text[])
           u(id, job, name, rule, args, misfire, next_at, delay, is_reboot, pause_after,
             is_declared, since, own_gate, event)
     ORDER BY u.id
    ON CONFLICT (tenant, id) DO UPDATE SET job = excluded.job, name = excluded.name,
           rule = excluded.rule, args = excluded.args, misfire = excluded.misfire,
           next_at = CASE WHEN $13 AND s.rule = excluded.rule THEN s.next_at
                          ELSE excluded.next_at END,
           delay = CASE WHEN $13 AND s.rule = excluded.rule THEN s.delay ELSE excluded.delay END,
           since = CASE WHEN $13 AND s.rule = excluded.rule THEN s.since ELSE excluded.since END,
           moved_at = CASE WHEN $13 AND s.rule = excluded.rule THEN s.moved_at
                           ELSE excluded.moved_at END,
           is_reboot = excluded.is_reboot,
           pause_after = excluded.pause_after, is_declared = excluded.is_declared,
           is_paused = excluded.is_paused, own_gate = excluded.own_gate, event = excluded.event
    """

# Shared: a transaction that deletes or pauses a job must see the schedules it gets here.
LOCK_JOBS: Final = """
    SELECT name, key FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL ORDER BY name FOR SHARE
    """


async def put_schedules(pg: StoreContext, tenant: str, schedules: Sequence[NewSchedule]) -> None:
    names = sorted({schedule.job for schedule in schedules})

    async def work() -> None:
        async with pg.transaction() as tx:
            key = await pg.names.tenant(tx, tenant)
            jobs = {row["name"]: row["key"] for row in await tx.fetch(LOCK_JOBS, key, names)}
            for name in names:
                if name not in jobs:
                    raise JobNotFound(f"no job named {shown(name)}; define it first")
            await write_schedules(tx, key, schedules, jobs)

    await pg.db.settled(work)
    pg.notifier.touch(ALL_TENANTS, [SCHEDULES])


async def write_schedules(
    tx: Tx,
    tenant: int,
    schedules: Sequence[NewSchedule],
    jobs: dict[str, int],
    *,
    keeps_cursors: bool = False,
) -> None:
    """Write schedules of these jobs, with the gates that their executions will pass. A schedule
    that is equal to the stored one may keep its cursor.
    """
    latest = {schedule.id: schedule for schedule in schedules}.values()
    await tx.execute(MAKE_JOB_GATES, tenant, [gate_of(name) for name in jobs])
    await tx.execute(
        PUT,
        tenant,
        [schedule.id for schedule in latest],
        [jobs[schedule.job] for schedule in latest],
        *columns_of(latest, "name", "rule", "args", "misfire", "next_at", "delay", "is_reboot"),
        *columns_of(latest, "pause_after", "is_declared"),
        keeps_cursors,
        *columns_of(latest, "since", "own_gate", "event"),
    )
    own = {gate_of(schedule.job, schedule.id) for schedule in latest if schedule.own_gate}
    await _make_own_gates(tx, tenant, own)


async def _make_own_gates(tx: Tx, tenant: int, keys: set[str]) -> None:
    """Make the gates of schedules, and lock existing ones. Before this commits, `remove_gates`
    does not see the schedule: it steps over the locked gate, or has already removed it.
    """
    if keys:
        rows = await tx.fetch(MAKE_JOB_GATES, tenant, sorted(keys))
        found = keys - {row["key"] for row in rows}
        if found:
            await lock_gates(tx, tenant, found)


async def delete_schedules(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> int:
    query = "DELETE FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])"
    return await pg.change(tenant, query, list(ids))


# Two probes for each id. With a join, a planner that expects few schedules reads all of the job.
BY_ID: Final = f"""{FIELDS}
      FROM unnest($3::uuid[]) u(id),
           LATERAL (SELECT * FROM daybell.schedule WHERE tenant = $1 AND id = u.id LIMIT 1) s,
           LATERAL (SELECT name FROM daybell.job WHERE key = s.job LIMIT 1) j
     WHERE $2::text IS NULL OR j.name = $2
     ORDER BY s.id
    """


# A walk of the key; see JOB_SCHEDULES.
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
BY_TENANT: Final = f"""{FIELDS}
      FROM (SELECT * FROM daybell.schedule s
             WHERE (s.tenant, s.id) > ($1, $2) AND (s.tenant, s.id) <= ($1, '{LAST_ID}')
             ORDER BY s.tenant, s.id LIMIT $3) s,
           LATERAL (SELECT name FROM daybell.job WHERE key = s.job LIMIT 1) j
     ORDER BY s.id
    """


async def list_schedules(
    pg: StoreContext,
    tenant: str,
    *,
    ids: Collection[UUID] | None = None,
    job: str | None = None,
    after: UUID | None = None,
    limit: int = 1000,
) -> list[Schedule]:
    check_limit(limit)
    if ids is not None:
        rows = await pg.fetch(tenant, BY_ID, job, list(set(ids)))
    else:
        rows = await pg.fetch(tenant, BY_TENANT, after or FIRST_ID, limit)
    return [read_schedule(row, tenant) for row in rows]


# A walk of `schedule_next`. Rows are compared with two bounds: with an equation, the planner reads
# all schedules of a job and sorts them, if it expects few.
BY_NEXT: Final = "s.job, (NOT s.is_declared), coalesce(s.next_at, 'infinity'), s.id"
NEXT: Final = f"""
             SELECT * FROM daybell.schedule s
              WHERE ({BY_NEXT}) > ({{after}}) AND ({BY_NEXT}) <= ({{until}})
              ORDER BY {BY_NEXT} LIMIT {{limit}}"""
JOB_SCHEDULES: Final = within_page(
    f"""{FIELDS}
      FROM (SELECT key, name FROM daybell.job WHERE tenant = $1 AND name = $2 LIMIT 1) j,
           LATERAL ({
        NEXT.format(
            after="j.key, $3, $4, $5", until=f"j.key, true, 'infinity', '{LAST_ID}'", limit="$6"
        )
    }) s""",
    "octet_length(rule) + octet_length(args)",
    "(NOT is_declared), coalesce(next_at, 'infinity'), id",
)
KNOWN: Final = """
    SELECT EXISTS (
      SELECT FROM daybell.job WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL)
    """


async def list_job_schedules(
    pg: StoreContext, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
) -> Page[Schedule]:
    check_limit(limit)
    after = check_schedule_cursor(cursor)
    with pg.db.at_pace(Pace.VIEW):
        async with pg.db.link() as link:
            key = await pg.names.tenant(link, tenant)
            rows = await link.fetch(JOB_SCHEDULES, key, job, *after, limit + 1)
            if not rows and not await link.fetchval(KNOWN, key, job):
                raise JobNotFound(f"no job named {shown(job)}")
    return cut_page(
        (read_schedule(row[:-1], tenant) for row in rows),
        limit,
        size=lambda one: bytes_of(one.rule, one.args),
        cursor=schedule_cursor,
    )


# One more than requested, due or not: the first of the rest gives the time of the next query.
# No scheduler can fire a schedule without its job. `+ 0` keeps the walk in the order of times:
# without statistics the planner would read the schedules of each job.
DUE_SCHEDULES: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT t.now, x.* FROM t LEFT JOIN LATERAL ({FIELDS}
      FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job + 0
     WHERE NOT s.is_paused AND s.next_at IS NOT NULL AND j.deleted_at IS NULL
       AND (s.next_at, s.id) > ($2::float8, $3::uuid)
     ORDER BY s.next_at, s.id LIMIT $1 {{locking}}) x ON true
    """


async def due_schedules(
    pg: StoreContext, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
) -> Due:
    check_limit(limit, most=FIRE_BATCH_MAX)
    # A row may change its place in the order meanwhile; `fire` compares the cursor anyway.
    locking = "FOR SHARE OF s SKIP LOCKED" if free else ""
    place = (-inf, UUID(int=0)) if after is None else (after.next_at, after.id)
    async with pg.autocommit() as tx:
        query = DUE_SCHEDULES.format(locking=locking)
        rows = await tx.fetch(query, limit + 1, *place)
        now: Instant = rows[0]["now"]
        found = await _read_schedules(tx, rows)
    due = [one for one in found[:limit] if one.next_at is not None and one.next_at <= now]
    rest = found[len(due) :]
    return Due(now=now, schedules=tuple(due), next_at=rest[0].next_at if rest else None)


# The walk is in the order of an index; rows of other tenants are left out behind it.
NEXT_SCHEDULES: Final = f"""{FIELDS}
      FROM (SELECT * FROM daybell.schedule s WHERE NOT s.is_paused AND s.next_at IS NOT NULL
             ORDER BY s.next_at, s.id LIMIT {SCAN_ITEMS_MAX}) s
      JOIN daybell.job j ON j.key = s.job
     WHERE s.tenant = $1 AND j.deleted_at IS NULL ORDER BY s.next_at, s.id LIMIT $2
    """


async def next_schedules(pg: StoreContext, tenant: str, *, limit: int = 10) -> list[Schedule]:
    check_limit(limit)
    rows = await pg.fetch(tenant, NEXT_SCHEDULES, limit, pace=Pace.VIEW)
    return [read_schedule(row, tenant) for row in rows]


REARM: Final = """
    WITH k AS MATERIALIZED (
      SELECT s.tenant, s.id FROM daybell.schedule s
       WHERE s.delay IS NOT NULL AND s.next_at IS NULL
         AND (SELECT true FROM daybell.live v
               WHERE v.schedule = s.id AND v.tenant + 0 = s.tenant
                 AND NOT starts_with(coalesce(v.gate, ''), 'backfill:') LIMIT 1) IS NULL
       ORDER BY s.id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE daybell.schedule s SET next_at = daybell.now() + s.delay, moved_at = daybell.now()
      FROM k WHERE s.tenant = k.tenant AND s.id = k.id AND s.next_at IS NULL
    """


async def rearm_schedules(pg: StoreContext, limit: int) -> int:
    async with pg.db.link() as link:
        answer = await link.execute(REARM, limit)
    count = int(answer.rpartition(" ")[2])
    if count:
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
    return count


AHEAD: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT t.now, x.* FROM t LEFT JOIN LATERAL ({COLUMNS}
     WHERE s.moved_at > t.now + $1 AND NOT s.is_paused AND j.deleted_at IS NULL
       AND ($3::uuid IS NULL OR s.id > $3)
     ORDER BY s.id LIMIT $2) x ON true
    """


async def schedules_ahead(
    pg: StoreContext, *, by: Seconds, limit: int = 1000, after: UUID | None = None
) -> Due:
    check_limit(limit, most=FIRE_BATCH_MAX)
    async with pg.autocommit() as tx:
        rows = await tx.fetch(AHEAD, by, limit, after)
        found = await _read_schedules(tx, rows)
    return Due(now=rows[0]["now"], schedules=tuple(found))


async def _read_schedules(tx: Tx, rows: Sequence[Row]) -> list[Schedule]:
    """Return the schedules in rows that also give the time, and may give only the time."""
    keys = {row["tenant"] for row in rows if row["id"] is not None}
    names = {key: await tx.pg.names.tenant_name(tx, key) for key in keys}
    return [read_schedule(row, names[row["tenant"]]) for row in rows if row["id"] is not None]


# Like a firing, it steps over a schedule that is locked.
TURN_BACK: Final = f"""
    WITH k AS MATERIALIZED (
      SELECT u.*, x.tenant FROM unnest($1::text[], $2::uuid[], $3::float8[], $4::float8[],
                                       $5::float8[], $6::float8[], $7::int[])
             u(owner, id, expect, next_at, now, until, count),
             LATERAL (SELECT s.tenant FROM daybell.schedule s
                       WHERE s.tenant = (SELECT key FROM daybell.tenant WHERE name = u.owner)
                         AND s.id = u.id AND s.next_at IS NOT DISTINCT FROM u.expect
                         AND NOT s.is_paused LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) x
       ORDER BY u.id),
    d AS (
      DELETE FROM daybell.tick t USING k
       WHERE t.tenant = k.tenant AND t.schedule = k.id AND t.at > k.now
         AND t.decision = {DECISION_CODES[Decision.MISSED]}
      RETURNING t.schedule, t.count AS gone),
    c AS (
      UPDATE daybell.tick t SET until = k.until, count = k.count FROM k, daybell.tick o
       WHERE t.tenant = k.tenant AND t.schedule = k.id AND t.at <= k.now AND t.until > k.now
         AND k.until IS NOT NULL AND t.decision = {DECISION_CODES[Decision.MISSED]}
         AND o.tenant = t.tenant AND o.schedule = t.schedule AND o.at = t.at
      RETURNING t.schedule, o.count - t.count AS gone)
    UPDATE daybell.schedule s
       SET next_at = k.next_at, moved_at = k.now,
           missed = s.missed - coalesce((SELECT sum(x.gone) FROM (TABLE d UNION ALL TABLE c) x
                                          WHERE x.schedule = s.id), 0)
      FROM k WHERE s.tenant = k.tenant AND s.id = k.id
    RETURNING s.id
    """


async def turn_back(pg: StoreContext, turns: Sequence[ScheduleRewind]) -> list[bool]:
    async with pg.db.link() as link:
        names = "tenant", "schedule", "expect", "next_at", "now", "until", "count"
        rows = await link.fetch(TURN_BACK, *columns_of(turns, *names))
    done = {row["id"] for row in rows}
    if done:
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
    return [turn.schedule in done for turn in turns]


# The job before its schedules: a transaction that defines or deletes it locks in this order.
JOB_KEY: Final = """
    SELECT key FROM daybell.job WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL
       FOR NO KEY UPDATE
    """


async def pause_job(pg: StoreContext, tenant: str, name: str, *, note: str = "") -> None:
    async def work() -> None:
        async with pg.transaction() as tx:
            key = await pg.names.tenant(tx, tenant)
            await stop_schedules(tx, await _job(tx, key, name), note)

    await pg.db.settled(work)


RESUME: Final = """
    WITH j AS (UPDATE daybell.job SET paused_at = NULL, pause_note = '' WHERE key = $1)
    UPDATE daybell.schedule SET is_paused = false, failures = 0 WHERE job = $1
    """


async def resume_job(
    pg: StoreContext, tenant: str, name: str, firings: Sequence[Firing] = ()
) -> None:
    left = sorted(firings, key=group_by_schedule)
    executions = [t.execution for f in left for t in f.ticks if t.execution is not None]
    for attempt in range(STALE_TRIES):
        specs = await resolve(pg, tenant, executions, fresh=attempt > 0)
        after = AfterCommit()
        try:
            await pg.db.settled(partial(_resume, pg, after, specs, name, left))
        except Outdated:
            continue
        await notify_enqueued(pg, after, specs)
        pg.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return
    raise Unavailable("this job changes faster than it can be resumed; try again")


# This waits for locks: `advance_cursors` steps over locked schedules, and would leave them to fire
# the ticks that they missed.
LOCK_PAUSED: Final = "SELECT FROM daybell.schedule WHERE job = $1 ORDER BY id FOR NO KEY UPDATE"


async def _resume(
    pg: StoreContext, after: AfterCommit, specs: Specs, name: str, firings: list[Firing]
) -> None:
    async with pg.transaction(after=after) as tx:
        job = await _job(tx, specs.tenant, name)
        await tx.execute(LOCK_PAUSED, job)
        await advance_cursors(tx, specs, firings, paused=True)
        await tx.execute(RESUME, job)


async def _job(tx: Tx, tenant: int, name: str) -> int:
    job = await tx.fetchval(JOB_KEY, tenant, name)
    if job is None:
        raise JobNotFound(f"no job named {shown(name)}")
    return job


TICKS: Final = """
    SELECT at, decision, reason, until, execution, count, event FROM daybell.tick
     WHERE tenant = $1 AND schedule = $2 AND at < coalesce($3, 'infinity'::float8)
     ORDER BY at DESC LIMIT $4
    """


async def list_ticks(
    pg: StoreContext,
    tenant: str,
    schedule: UUID,
    *,
    limit: int = 100,
    before: Instant | None = None,
) -> list[TickRecord]:
    check_limit(limit)
    rows = await pg.fetch(tenant, TICKS, schedule, before, limit)
    return [TickRecord(schedule, at, DECISIONS[decision], *rest) for at, decision, *rest in rows]


# An execution without a row in the agenda is running.
OCCURRENCES: Final = """
    SELECT v.scheduled_for, v.id,
           CASE WHEN v.state = 4 THEN 4
                WHEN NOT EXISTS (SELECT FROM daybell.agenda a WHERE a.lane = v.lane
                       AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id) THEN 5
                WHEN v.run_at <= (SELECT daybell.now()) THEN 1
                ELSE v.state END AS state
      FROM daybell.live v
     WHERE v.schedule = $2 AND v.tenant = $1 AND v.scheduled_for BETWEEN $3 AND $4
    UNION ALL
    SELECT scheduled_for, id, state FROM daybell.history
     WHERE schedule = $2 AND tenant = $1 AND scheduled_for BETWEEN $3 AND $4
    UNION ALL
    SELECT scheduled_for, id, state FROM daybell.dead
     WHERE schedule = $2 AND tenant = $1 AND scheduled_for BETWEEN $3 AND $4
     ORDER BY 1, 2 LIMIT $5
    """


async def list_occurrences(
    pg: StoreContext,
    tenant: str,
    schedule: UUID,
    *,
    since: Instant,
    until: Instant,
    limit: int = 10_000,
) -> list[Occurrence]:
    check_limit(limit, most=OCCURRENCES_MAX)
    rows = await pg.fetch(tenant, OCCURRENCES, schedule, since, until, limit)
    return [Occurrence(at, id, STATES[state]) for at, id, state in rows]


def read_schedule(row: Row, tenant: str) -> Schedule:
    # Build by position, in the order of COLUMNS: by name, it takes three times as long.
    (_, id, job, *rest) = tuple(row)[-21:]
    return Schedule(id, tenant, job, *rest)


# Jobs that depend on jobs: the waiting executions, and the state of the upstream jobs.

# The time at which it was due. Once an attempt has ended, only its creation gives this.
DUE: Final = "coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)"
# Executions that the job's overlap rule skipped do not count: another one was in the way.
COUNTS: Final = f"node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM '{OVERLAP}')"
# Due at another time than that of its creation. Only these are in the index by due time, so an
# execution that is enqueued to run at once does not pay for it. The index has this text, see 0011.
TIMED: Final = "(scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at)"
PLAIN: Final = f"""NOT {TIMED} AND created_at BETWEEN coalesce(n.due, '-Infinity') AND u.at
                AND finished_at >= coalesce(n.due, '-Infinity')"""
LATEST: Final = "ORDER BY due DESC, id DESC LIMIT 1"
LAST: Final = "ORDER BY finished_at DESC, id DESC LIMIT 1"

NO_ID: Final = UUID(int=0)


# Most often there are none, and this is the only query.
ANY_DEPENDENTS: Final = f"""
    SELECT daybell.now() AS now,
           EXISTS (SELECT FROM daybell.schedule WHERE since IS NOT NULL AND NOT is_paused) AS fire,
           EXISTS (SELECT FROM daybell.live WHERE state = 4 AND reason = '{DEPENDENCIES}') AS wait
    """
DEPENDENT_SCHEDULES: Final = COLUMNS.replace(
    "SELECT s.tenant",
    "SELECT (SELECT v.definition FROM daybell.job_version v"
    " WHERE v.job = j.key AND v.version = j.version) AS definition, s.tenant",
) + (
    " WHERE s.since IS NOT NULL AND NOT s.is_paused AND j.deleted_at IS NULL"
    " AND ($1::uuid IS NULL OR s.id > $1) ORDER BY s.id LIMIT $2"
)
# The bound on the id makes their index the cheapest, even if both are empty.
DEPENDENT_EXECUTIONS: Final = f"""
    SELECT v.tenant, v.id, j.name, coalesce(v.scheduled_for, v.run_at) AS at,
           (SELECT d.definition FROM daybell.job_version d
             WHERE d.job = j.key AND d.version = j.version) AS definition
      FROM daybell.live v JOIN daybell.job j ON j.key = v.job
     WHERE v.state = 4 AND v.reason = '{DEPENDENCIES}' AND v.run_at <= (SELECT daybell.now())
       AND v.id > coalesce($1::uuid, '{NO_ID}') ORDER BY v.id LIMIT $2
    """


async def dependents(
    pg: StoreContext, *, limit: int = 1000, after: UUID | None = None
) -> Dependents:
    check_limit(limit)
    schedules: list[Dependent] = []
    waiting: list[Waiting] = []
    async with pg.db.link() as link:
        found = await link.fetchrow(ANY_DEPENDENTS)
        assert found is not None
        if found["fire"]:
            for row in await link.fetch(DEPENDENT_SCHEDULES, after, limit):
                tenant = await pg.names.tenant_name(link, row["tenant"])
                schedules.append(Dependent.of(read_schedule(row, tenant), row["definition"]))
        if found["wait"]:
            for owner, *row in await link.fetch(DEPENDENT_EXECUTIONS, after, limit):
                waiting.append(Waiting.of(await pg.names.tenant_name(link, owner), *row))
    return Dependents(now=found["now"], schedules=tuple(schedules), waiting=tuple(waiting))


UPSTREAM_JOBS: Final = """
    SELECT name, key FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL
    """


async def _keys(tx: Tx, tenant: str, names: Sequence[str]) -> list[int | None]:
    owner = await tx.pg.names.tenant(tx, tenant)
    rows = await tx.fetch(UPSTREAM_JOBS, owner, sorted(set(names)))
    keys = {row["name"]: row["key"] for row in rows}
    return [keys.get(name) for name in names]


# Successes have no index by end: every execution would pay for it. So the statement reads the
# newest, and the rest only on request. Failures are found by their end.
ENDED_SINCE: Final = f"""
    SELECT e.finished_at AS ended_at, e.state, s.finished_at AS succeeded_at
      FROM unnest($1::int[], $2::float8[]) WITH ORDINALITY u(job, since, place)
      LEFT JOIN LATERAL (
        SELECT id, finished_at, state FROM (
          SELECT id, finished_at, state FROM daybell.history
           WHERE job = u.job AND node IS NULL ORDER BY id DESC LIMIT {LOOKED_AT_MAX}) w
         WHERE state = 6 AND finished_at > u.since {LAST}) n ON true
      LEFT JOIN LATERAL (
        SELECT n.id, n.finished_at, n.state WHERE n.id IS NOT NULL
        UNION ALL
        (SELECT id, finished_at, state FROM daybell.history
          WHERE $3 AND n.id IS NULL AND job = u.job AND node IS NULL AND state = 6
            AND finished_at > u.since {LAST})) s ON true
      LEFT JOIN LATERAL (
        SELECT * FROM (
          SELECT s.id, s.finished_at, s.state WHERE s.id IS NOT NULL
          UNION ALL
          (SELECT id, finished_at, state FROM daybell.history
            WHERE job = u.job AND {COUNTS} AND state > 6 AND finished_at > u.since {LAST})
          UNION ALL
          (SELECT id, finished_at, state FROM daybell.dead
            WHERE job = u.job AND finished_at > u.since {LAST})) x
         {LAST}) e ON true
     ORDER BY u.place
    """


async def ended_since(
    pg: StoreContext, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
) -> list[Ended]:
    times = [since for _, since in jobs]
    async with pg.autocommit() as tx:
        keys = await _keys(tx, tenant, [name for name, _ in jobs])
        rows = await tx.fetch(ENDED_SINCE, keys, times, thoroughly)
    return [
        Ended(
            succeeded_at=row["succeeded_at"],
            ended_at=row["ended_at"],
            state=None if row["state"] is None else STATES[row["state"]],
        )
        for row in rows
    ]


# `n` had a time of its own and is found by it; `p` had none, was created later than that, and was
# created last; `e` is the later of the two; `v`, which is unfinished, was due after it. Clients
# make the ids, so a late request or a client's clock may order them otherwise than the creation.
# No index has the creation: the executions before the newest id are compared, up to a limit.
# Running or queued makes no difference here: an unfinished execution has any of their states. The
# sum keeps the planner from an index on the state for all jobs.
UPSTREAM: Final = f"""
    SELECT coalesce(v.state, e.state) AS state,
           CASE WHEN v.state IS NULL AND coalesce(e.state, 0) <> 6 THEN
             EXISTS (SELECT FROM daybell.history WHERE job = u.job AND node IS NULL
                        AND state + 0 = 6 AND finished_at > u.at AND {DUE} > u.at)
           ELSE false END AS has_newer,
           CASE WHEN coalesce(v.state, e.state) IS NULL THEN
             EXISTS (SELECT FROM daybell.history WHERE job = u.job AND {COUNTS} AND state > 6
                        AND finished_at > u.at AND {DUE} > u.at)
             OR EXISTS (SELECT FROM daybell.dead WHERE job = u.job
                           AND finished_at > u.at AND {DUE} > u.at)
           ELSE false END AS has_failed,
           EXISTS (SELECT FROM daybell.schedule s WHERE s.job = u.job AND s.next_at <= u.at
                      AND NOT s.is_paused) AS is_behind
      FROM unnest($1::int[], $2::float8[]) WITH ORDINALITY u(job, at, place)
      LEFT JOIN LATERAL (
        SELECT * FROM (
          (SELECT {DUE} AS due, id, state FROM daybell.history
            WHERE job = u.job AND {COUNTS} AND {TIMED} AND {DUE} <= u.at {LATEST})
          UNION ALL
          (SELECT {DUE} AS due, id, state FROM daybell.dead
            WHERE job = u.job AND {DUE} <= u.at {LATEST})) x {LATEST}) n ON true
      LEFT JOIN LATERAL (
        SELECT created_at AS due, id, state FROM (
          SELECT * FROM daybell.history
           WHERE job = u.job AND node IS NULL AND finished_at >= coalesce(n.due, '-Infinity')
             AND id <= (SELECT id FROM daybell.history
                         WHERE job = u.job AND {COUNTS} AND {PLAIN} ORDER BY id DESC LIMIT 1)
           ORDER BY id DESC LIMIT {LOOKED_AT_MAX}) w
         WHERE {COUNTS} AND {PLAIN} {LATEST}) p ON true
      LEFT JOIN LATERAL (
        SELECT * FROM (VALUES (n.due, n.id, n.state), (p.due, p.id, p.state)) x(due, id, state)
         WHERE id IS NOT NULL {LATEST}) e ON true
      LEFT JOIN LATERAL (
        SELECT state FROM daybell.live
         WHERE job = u.job AND node IS NULL AND {DUE} <= u.at
           AND (e.id IS NULL OR ({DUE}, id) > (e.due, e.id)) ORDER BY id LIMIT 1) v ON true
     ORDER BY u.place
    """


async def upstream(
    pg: StoreContext, tenant: str, jobs: Sequence[tuple[str, Instant]]
) -> list[Upstream]:
    async with pg.autocommit() as tx:
        keys = await _keys(tx, tenant, [name for name, _ in jobs])
        rows = await tx.fetch(UPSTREAM, keys, [at for _, at in jobs])
    return [
        Upstream(
            state=None if row["state"] is None else STATES[row["state"]],
            has_newer_success=row["has_newer"],
            has_newer_failure=row["has_failed"],
            is_behind=row["is_behind"],
        )
        for row in rows
    ]


STILL_WAITING: Final = f"""
    SELECT id, gate FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
       AND state = 4 AND reason = '{DEPENDENCIES}' ORDER BY id
    """
# A parked execution has no slot, and waits for one now. With the gates locked, none is admitted
# meanwhile. run_at is raised to now for the others, as when a gate admits.
RELEASE: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    k AS MATERIALIZED ({STILL_WAITING} FOR UPDATE),
    p AS MATERIALIZED (
      SELECT v.id FROM daybell.live v JOIN daybell.parked p ON p.tenant = v.tenant
         AND p.gate = v.gate AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM k))),
    v AS (
      UPDATE daybell.live v
         SET state = CASE WHEN v.id IN (SELECT id FROM p) THEN 4 ELSE 1 END,
             reason = CASE WHEN v.id NOT IN (SELECT id FROM p) THEN NULL
                           WHEN starts_with(v.gate, 'job:') THEN '{OVERLAP}' ELSE 'gate' END,
             run_at = CASE WHEN v.id IN (SELECT id FROM p) THEN v.run_at
                           ELSE (SELECT now FROM t) END
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM k))
      RETURNING v.run_at, v.lane, v.priority, v.id, v.state),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v WHERE state = 1)
    SELECT id, CASE WHEN state = 1 THEN lane END AS filled FROM v
    """


async def release_dependents(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> int:
    after = AfterCommit()

    async def work() -> int:
        async with pg.transaction(after=after) as tx:
            owner = await pg.names.tenant(tx, tenant)
            waiting = await tx.fetch(STILL_WAITING, owner, list(ids))
            gates = {row["gate"] for row in waiting if row["gate"] is not None}
            if gates:
                await lock_gates(tx, owner, gates)
            rows = await tx.fetch(RELEASE, owner, [row["id"] for row in waiting])
            lanes = {row["filled"] for row in rows if row["filled"] is not None}
            await mark_lanes_claimable(tx, owner, lanes)
            return len(rows)

    count = await pg.db.settled(work)
    notify_claimable(pg, after)
    return count


async def rule_out_dependents(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> int:
    after = AfterCommit()

    async def work() -> tuple[int, int]:
        async with pg.transaction(after=after) as tx:
            owner = await pg.names.tenant(tx, tenant)
            await lock_links_of(tx, owner, "live", ids)
            waiting = await fetch_ids(tx, f"{STILL_WAITING} FOR UPDATE", owner, ids)
            _, ended = await end_pending(tx, owner, sorted(waiting), State.SKIPPED, UPSTREAM_FAILED)
            return owner, len(ended)

    owner, count = await pg.db.settled(work)
    await after_commit(pg, after, owner)
    return count

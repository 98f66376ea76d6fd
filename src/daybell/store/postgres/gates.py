"""Gates: admission of at most so many at a time.

A transaction locks a gate's row before it changes anything behind it, so the lock's holder may
count. Only admitted executions are in the agenda; the others are parked in order of admission.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.access import Quotas
from daybell.core.checks import check_limit
from daybell.core.event import StepKind
from daybell.core.execution import State
from daybell.core.lifecycle import FOR_EVENT, Transition
from daybell.core.schedule import DEPENDENCIES, room_of
from daybell.core.units import Instant
from daybell.core.views import Miscount
from daybell.errors import UsageError, shown
from daybell.store.admin import JOBS_WAIT_SECONDS, quota_error
from daybell.store.codec import STATE_CODES, STEP_CODES
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.names import IN_LEASE, SHARED_KEY
from daybell.store.timeouts import Pace

NO_LIMIT: Final = 2**31 - 1
# One slot for each of these, for a caller that defines a job or gives it a schedule.
MAKE_JOB_GATES: Final = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, 1 FROM unnest($2::text[]) u(key) ORDER BY key ON CONFLICT DO NOTHING
    RETURNING key
    """


def mark_claimable(tx: Tx, tenant: int, queues: Iterable[str]) -> None:
    """Note that executions can be claimed from these queues, once this is committed."""
    tx.after.claimable.update((tenant, queue) for queue in queues)


async def mark_lanes_claimable(tx: Tx, tenant: int, lanes: Collection[int]) -> None:
    """Do the same for lanes. A process that has claimed from lanes knows their numbers."""
    known = await tx.pg.names.lane_rows(tx, lanes)
    mark_claimable(tx, tenant, (known[lane].queue for lane in lanes))


def notify_claimable(pg: StoreContext, after: AfterCommit) -> None:
    """Wake the workers that wait for these queues. Call this after the commit."""
    claimable, after.claimable = after.claimable, set()
    for tenant, queue in claimable:
        pg.notifier.touch(tenant, [queue], here=True)


class GateRoom(msgspec.Struct):
    """A locked gate, and the decisions about it since it was locked."""

    capacity: int
    holders: int
    waiting: int = 0  # due and parked; more than two are counted as two
    now: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.holders < self.capacity and self.waiting == 0

    @property
    def has_room_for_waiting(self) -> bool:
        return self.holders < self.capacity and self.waiting > 0


# Keys sorted: two transactions that lock several gates use the same order.
LOCK_SLOTS: Final = """
    SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY($2::text[]) ORDER BY key FOR UPDATE
    """

MAKE_GATES: Final = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, room FROM unnest($2::text[], $3::int[]) u(key, room) ORDER BY key
    ON CONFLICT DO NOTHING
    """


async def lock_gates(tx: Tx, tenant: int, keys: Collection[str]) -> None:
    """Lock these gates until the transaction ends. Raise UsageError for a missing one."""
    found = {row["key"] for row in await tx.fetch(LOCK_SLOTS, tenant, sorted(keys))}
    missing = sorted(key for key in keys if key not in found)
    if not missing:
        return
    rooms = {key: room_of(key) for key in missing}
    for key, room in rooms.items():
        if room is None:
            raise UsageError(f"no gate named {shown(key)}")
    await tx.execute(MAKE_GATES, tenant, missing, list(rooms.values()))
    await lock_gates(tx, tenant, missing)


# A separate statement, after the lock: the one that waited for the lock has an older snapshot.
READ_GATE_ROOMS: Final = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT g.key, g.capacity, g.holders, (SELECT now FROM t) AS now,
           (SELECT count(*) FROM (SELECT FROM daybell.parked p
                                   WHERE p.tenant = $1 AND p.gate = g.key
                                     AND p.run_at <= (SELECT now FROM t) LIMIT 2) w) AS waiting
      FROM daybell.gate g WHERE g.tenant = $1 AND g.key = ANY($2::text[])
    """


async def read_gate_rooms(tx: Tx, tenant: int, keys: Collection[str]) -> dict[str, GateRoom]:
    """Return the room at these gates, which the caller has locked."""
    rows = await tx.fetch(READ_GATE_ROOMS, tenant, list(keys))
    return {
        row["key"]: GateRoom(row["capacity"], row["holders"], row["waiting"], row["now"])
        for row in rows
    }


# The parked rows that fit go to the agenda. run_at is raised to now, because a claimer that
# keeps a lower bound must not miss a row that comes late. An execution that also waits for
# dependencies continues to wait, and keeps its slot.
ADMIT: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    p AS (
      DELETE FROM daybell.parked WHERE ctid = ANY(ARRAY(
        SELECT p.ctid FROM daybell.gate g, LATERAL (
          SELECT x.ctid FROM daybell.parked x
           WHERE x.tenant = g.tenant AND x.gate = g.key AND x.run_at <= (SELECT now FROM t)
           ORDER BY x.priority, x.run_at, x.id
           LIMIT greatest(least(g.capacity - g.holders, $3), 0)) p
         WHERE g.tenant = $1 AND g.key = $2)) RETURNING id),
    v AS (
      UPDATE daybell.live v
         SET run_at = (SELECT now FROM t),
             state = CASE v.reason WHEN '{DEPENDENCIES}' THEN 4 ELSE 1 END,
             reason = CASE v.reason WHEN '{DEPENDENCIES}' THEN v.reason END
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM p))
      RETURNING v.run_at, v.lane, v.priority, v.id, v.state),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v WHERE state = 1),
    g AS (
      UPDATE daybell.gate SET holders = holders + n
        FROM (SELECT count(*) AS n FROM v) c WHERE tenant = $1 AND key = $2 AND n > 0)
    SELECT l.queue, count(*) AS n, bool_or(v.state = 1) AS is_claimable
      FROM v JOIN daybell.lane l ON l.key = v.lane GROUP BY l.queue
    """


async def admit_gates(tx: Tx, tenant: int, keys: Collection[str], *, limit: int = NO_LIMIT) -> int:
    """Admit the executions that these gates have room for, and note their queues. The caller has
    locked the gates, and notifies these queues after its commit.
    """
    admitted = 0
    for key in sorted(keys):
        rows = await tx.fetch(ADMIT, tenant, key, limit)
        admitted += sum(row["n"] for row in rows)
        mark_claimable(tx, tenant, (row["queue"] for row in rows if row["is_claimable"]))
    return admitted


# One statement for all gates: the executions of a thousand jobs have a thousand gates. As a scalar,
# the subquery is one probe for each, for any number of parked rows that the planner assumes.
CHANGE_SLOTS: Final = """
    UPDATE daybell.gate g SET holders = g.holders + $3
     WHERE g.tenant = $1 AND g.key = ANY($2::text[])
    RETURNING g.key, (SELECT true FROM daybell.parked p
                       WHERE p.tenant = $1 AND p.gate = g.key LIMIT 1) AS is_wanted
    """


async def take_slots(tx: Tx, tenant: int, slots: Mapping[str, int]) -> None:
    """Count the executions that the holder of the lock has admitted itself."""
    for count, keys in _by_count(slots).items():
        await tx.execute(CHANGE_SLOTS, tenant, keys, count)


async def free_slots(tx: Tx, tenant: int, slots: Mapping[str, int]) -> None:
    """Release slots of locked gates, and admit the next executions."""
    for count, keys in _by_count(slots).items():
        rows = await tx.fetch(CHANGE_SLOTS, tenant, keys, -count)
        await admit_gates(tx, tenant, [row["key"] for row in rows if row["is_wanted"]])


# Gates with room, where a due execution waits.
ADMITTABLE: Final = """
    SELECT DISTINCT g.tenant, g.key FROM daybell.gate g
      JOIN daybell.parked p ON p.tenant = g.tenant AND p.gate = g.key
     WHERE g.holders < g.capacity AND p.run_at <= (SELECT daybell.now()) LIMIT $1
    """


async def admit(pg: StoreContext, limit: int) -> int:
    async with pg.db.link() as link:
        gates = await link.fetch(ADMITTABLE, limit)
    admitted = 0
    for gate in gates:
        left = limit - admitted
        after = AfterCommit()
        admitted += await pg.db.settled(partial(_admit, pg, after, gate, left))
        notify_claimable(pg, after)
    return admitted


async def _admit(pg: StoreContext, after: AfterCommit, gate: Row, limit: int) -> int:
    async with pg.transaction(after=after) as tx:
        await lock_gates(tx, gate["tenant"], [gate["key"]])
        return await admit_gates(tx, gate["tenant"], [gate["key"]], limit=limit)


def _by_count(slots: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the gates for each number of slots. Most often all have one."""
    gates: dict[int, list[str]] = {}
    for key, count in slots.items():
        gates.setdefault(count, []).append(key)
    return gates


# Quotas of tenants.
#
# A transaction that creates rows for a tenant with quotas locks the tenant's row last, counts the
# existing rows, and commits or rolls back. Of two at a time, the second counts the rows of the
# first. For tenants without quotas, the store only reads the row every few seconds.


async def read_quotas(pg: StoreContext, tenant: int) -> Quotas:
    """Return the quotas of a tenant, as of a few seconds ago. The caller holds no connection."""
    known = pg.names.known_quotas(tenant)
    if known is None:
        async with pg.db.link() as link:
            known = await pg.names.quotas(link, tenant)
    return known


# The function that `daybell.enqueue` also uses. It locks the tenant first.
CHARGE: Final = "SELECT quota, most, wait FROM daybell.charge($1, $2)"


async def charge(tx: Tx, tenant: int, made: int) -> None:
    """Count executions that this transaction has made. Raise QuotaExceeded."""
    if made == 0:
        return
    row = await tx.fetchrow(CHARGE, tenant, made)
    if row is not None and row["quota"] is not None:
        name = await tx.pg.names.tenant_name(tx, tenant)
        raise quota_error(name, row["quota"], most=row["most"], wait=row["wait"])


LOCK_TENANT: Final = "SELECT jobs_max FROM daybell.tenant WHERE key = $1 FOR NO KEY UPDATE"
QUEUED_ROOM: Final = """
    SELECT t.queued_max - (SELECT count(*) FROM (SELECT FROM daybell.live l WHERE l.tenant = t.key
                                                  LIMIT t.queued_max + 1) u)
      FROM daybell.tenant t WHERE t.key = $1
    """


async def queued_room(tx: Tx, tenant: int, *, lock: bool = False) -> int | None:
    """Return the number of further unfinished executions that a tenant may have; None: unlimited.
    If the tenant is locked, the number stays true until this transaction ends.
    """
    if (await tx.pg.names.quotas(tx, tenant)).queued is None:
        return None
    if lock:
        await tx.execute(LOCK_TENANT, tenant)
    return await tx.fetchval(QUEUED_ROOM, tenant)


TRY_TENANT: Final = f"{LOCK_TENANT} SKIP LOCKED"


async def node_room(tx: Tx, tenant: int) -> float:
    """Return the number of executions of nodes that this transaction may create; inf: no quota.

    It never waits for the tenant's lock. A caller's open transaction may hold the lock for long,
    and the ends of nodes must not wait for it. Then there is no room for now, and the run is
    continued after the commit, or by upkeep.
    """
    if (await tx.pg.names.quotas(tx, tenant)).queued is None:
        return inf
    if await tx.fetchrow(TRY_TENANT, tenant) is None:
        return 0
    room: int | None = await tx.fetchval(QUEUED_ROOM, tenant)
    return inf if room is None else max(0, room)


COUNT_TICKS: Final = "SELECT daybell.count_enqueued($1, $2)"


async def count_ticks(tx: Tx, tenant: int, made: int) -> None:
    """Count executions of schedules, which are never refused."""
    if made and (await tx.pg.names.quotas(tx, tenant)).per_minute is not None:
        await tx.execute(COUNT_TICKS, tenant, made)


KNOWN_JOBS: Final = """
    SELECT count(*) FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL
    """
COUNT_JOBS: Final = "SELECT count(*) FROM daybell.job WHERE tenant = $1 AND deleted_at IS NULL"


async def count_new_jobs(tx: Tx, tenant: int, names: set[str]) -> int:
    """Return the number of new jobs among these, or 0 if the tenant has no quota of jobs."""
    if (await tx.pg.names.quotas(tx, tenant)).jobs is None:
        return 0
    return len(names) - await tx.fetchval(KNOWN_JOBS, tenant, list(names))


async def charge_jobs(tx: Tx, tenant: int, made: int) -> None:
    """Refuse the jobs that this transaction has made, if they are too many."""
    if made == 0:
        return
    most = await tx.fetchval(LOCK_TENANT, tenant)
    if most is not None and await tx.fetchval(COUNT_JOBS, tenant) > most:
        name = await tx.pg.names.tenant_name(tx, tenant)
        raise quota_error(name, "jobs", most=most, wait=JOBS_WAIT_SECONDS)


# A claim for a tenant with a quota waits here for the claim before it. Then it counts the
# executions that the other has taken.
LOCK_RUNNING: Final = "SELECT running_max FROM daybell.tenant WHERE key = $1 FOR NO KEY UPDATE"
COUNT_RUNNING: Final = f"""
    SELECT count(*) FROM (
      SELECT FROM daybell.worker w JOIN daybell.lease l ON l.worker = w.id AND l.tenant = $1,
           {IN_LEASE}
       WHERE w.tenant IN ($1, {SHARED_KEY}) LIMIT $2) r
    """


async def running_max(tx: Tx, tenant: int) -> int | None:
    """Return the number of executions of a tenant that may run; None: unlimited. No other
    transaction claims any until this one ends.
    """
    return await tx.fetchval(LOCK_RUNNING, tenant)


async def claim_room(tx: Tx, tenant: int, limit: int, most: int) -> int:
    """Return the number of executions that may be claimed, at most `limit`."""
    return min(limit, most - await tx.fetchval(COUNT_RUNNING, tenant, most))


# Open waits: their ends, and the effect on their executions.
#
# A transaction that ends a wait locks its execution first, and reads the wait again under that
# lock. So does a move to `waiting`: the second of the two sees the result of the first.

WAIT: Final = STEP_CODES[StepKind.WAIT]
WAITING: Final = STATE_CODES[State.WAITING]
QUEUED: Final = STATE_CODES[State.QUEUED]
# One row, of no tenant, if the time of any wait is over. `expire` adds this to its own query.
ANY_TIMED_OUT: Final = """
    SELECT NULL, NULL
     WHERE EXISTS (SELECT FROM daybell.wait WHERE timeout_at <= (SELECT daybell.now()))
"""


# An execution that a worker holds or can claim may be about to wait. If none of its waits is
# open, it knows that one has ended.
LOCK_LIVE_ONES: Final = f"""
    SELECT id, state <> {WAITING} AND run_at <= daybell.now() AS may_run FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR UPDATE
    """
# Separate statements, after the lock: the one that waited for the lock has an older snapshot.
HAVE_WAITS: Final = (
    "SELECT execution FROM daybell.wait WHERE tenant = $1 AND execution = ANY($2::uuid[])"
)
OPEN_WAITS: Final = """
    SELECT execution, n, event, match, timeout_at, daybell.now() AS now FROM daybell.wait
     WHERE tenant = $1 AND execution = ANY($2::uuid[]) ORDER BY execution, n
    """


async def requeue_ended_waits(tx: Tx, tenant: int, moves: list[Transition]) -> list[Transition]:
    """Return the moves to make. A move that would wait for an event that has already come is
    queued instead.
    """
    ids = sorted(move.id for move in moves if is_for_event(move))
    if not ids:
        return moves
    await tx.execute(LOCK_LIVE_ONES, tenant, ids)
    waiting = {row["execution"] for row in await tx.fetch(HAVE_WAITS, tenant, ids)}
    return [
        replace(move, target=State.QUEUED, reason=None)
        if is_for_event(move) and move.id not in waiting
        else move
        for move in moves
    ]


# Each row is found separately, then changed in place: no other transaction writes it meanwhile.
END_STEPS: Final = f"""
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
# comes late. An execution that does not wait needs no change.
END_WAITS: Final = f"""
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
    tx: Tx,
    tenant: int,
    ids: Sequence[UUID],
    is_over: Callable[[Row], bool],
    *,
    result: str | None = None,
    event: int | None = None,
) -> tuple[int, list[str]]:
    """End the first wait of each of these executions for which `is_over` is true. Return their
    number, and the queues from which executions can be claimed now.
    """
    rows = await tx.fetch(LOCK_LIVE_ONES, tenant, sorted(ids))
    locked = {row["id"]: row["may_run"] for row in rows}
    waits = await tx.fetch(OPEN_WAITS, tenant, list(locked))
    firsts: dict[UUID, int] = {}
    for wait in waits:
        if wait["execution"] not in firsts and is_over(wait):
            firsts[wait["execution"]] = wait["n"]
    if not firsts:
        return 0, []
    places = list(firsts), list(firsts.values())
    await tx.execute(END_STEPS, tenant, *places, result, event)
    closed = [
        (wait["execution"], wait["n"])
        for wait in waits
        if wait["n"] == firsts.get(wait["execution"])
        or (wait["execution"] in firsts and locked[wait["execution"]])
    ]
    closing = [id for id, _ in closed], [n for _, n in closed]
    rows = await tx.fetch(END_WAITS, tenant, list(firsts), *closing)
    return len(firsts), [row["queue"] for row in rows]


# The index can look up the subselect, but not the function itself.
TIMED_OUT: Final = """
    SELECT tenant, execution FROM daybell.wait WHERE timeout_at <= (SELECT daybell.now())
     ORDER BY timeout_at, execution, n LIMIT $1
    """
# Their executions have ended. One that came back at this moment would no longer wait.
REMOVE_TIMED_OUT: Final = """
    DELETE FROM daybell.wait w
     WHERE w.tenant = $1 AND w.execution = ANY($2::uuid[])
       AND w.timeout_at <= (SELECT daybell.now())
       AND NOT EXISTS (SELECT FROM daybell.live v WHERE v.tenant = $1 AND v.id = w.execution)
    """


async def time_out_waits(pg: StoreContext, *, limit: int = 1000) -> int:
    check_limit(limit)
    async with pg.db.link() as link:
        rows = await link.fetch(TIMED_OUT, limit)
    ended = 0
    for tenant, some in groupby(sorted(rows), key=itemgetter("tenant")):
        ids = list({row["execution"] for row in some})
        ended += await pg.db.settled(partial(_time_out, pg, tenant, ids))
    return ended


async def _time_out(pg: StoreContext, tenant: int, ids: list[UUID]) -> int:
    async with pg.transaction() as tx:
        ended, queues = await end_waits(tx, tenant, ids, _is_timed_out)
        if ended < len(ids):
            await tx.execute(REMOVE_TIMED_OUT, tenant, ids)
    if queues:
        pg.notifier.touch(tenant, queues)
    return ended


def is_for_event(move: Transition) -> bool:
    return move.target is State.WAITING and move.reason == FOR_EVENT


def _is_timed_out(wait: Row) -> bool:
    return wait["timeout_at"] is not None and wait["timeout_at"] <= wait["now"]


# Upkeep of gates: correct their counts, and remove unused gates.

REMOVED_GATES_MAX: Final = 1000
# A caller that found the job alive and enqueues it has reached its gate by then.
DELETED_SECONDS: Final = 3600.0


# One statement, so that both sides see a slot that is released or taken meanwhile, or neither does.
# FULL JOIN, because it can only be hashed or merged. With 100,000 gates a nested loop would take
# minutes, and the planner assumes that `live` is as small as when it was analysed. A condition that
# is false for a missing gate would turn it into a LEFT JOIN.
MISCOUNTS: Final = """
    WITH i AS (
      SELECT v.tenant, v.gate AS key, count(*) AS n FROM daybell.live v
       WHERE v.gate IS NOT NULL AND ($1::int IS NULL OR (v.tenant, v.gate) = ($1, $2))
         AND NOT EXISTS (
             SELECT FROM daybell.parked p WHERE p.tenant = v.tenant AND p.gate = v.gate
                AND p.priority = v.priority AND p.run_at = v.run_at AND p.id = v.id)
       GROUP BY v.tenant, v.gate)
    SELECT tenant, key, (SELECT t.name FROM daybell.tenant t WHERE t.key = tenant) AS name,
           g.holders, coalesce(i.n, 0) AS inside
      FROM daybell.gate g FULL JOIN i USING (tenant, key)
     WHERE coalesce(g.holders <> coalesce(i.n, 0), false)
       AND ($1::int IS NULL OR (tenant, key) = ($1, $2))
     ORDER BY name, key
    """


async def miscounts(pg: StoreContext) -> list[Miscount]:
    return [_miscount(row) for row in await _read_miscounts(pg)]


async def _read_miscounts(pg: StoreContext) -> list[Row]:
    async with pg.db.link(Pace.LONG) as link:  # it counts all executions that are inside
        return await link.fetch(MISCOUNTS, None, None)


async def recount_gates(pg: StoreContext) -> tuple[Miscount, ...]:
    after = AfterCommit()
    wrong = [
        await pg.db.settled(partial(_recount, pg, after, row)) for row in await _read_miscounts(pg)
    ]
    notify_claimable(pg, after)
    return tuple(one for one in wrong if one is not None)


async def _recount(pg: StoreContext, after: AfterCommit, row: Row) -> Miscount | None:
    """Count one gate again under its lock: no execution enters or leaves meanwhile."""
    async with pg.transaction(after=after) as tx:
        await lock_gates(tx, row["tenant"], [row["key"]])
        now = await tx.fetchrow(MISCOUNTS, row["tenant"], row["key"])
        if now is None:
            return None
        change = now["inside"] - now["holders"]
        await take_slots(tx, row["tenant"], {row["key"]: change})
        await admit_gates(tx, row["tenant"], [row["key"]])
        return _miscount(now)


# Jobs first, as when a caller defines them. A job that is coming back is locked; its gate stays.
OF_DELETED: Final = """
    SELECT j.tenant, 'job:' || j.name AS key FROM daybell.job j
     WHERE j.deleted_at < $1 AND EXISTS (
           SELECT FROM daybell.gate g WHERE g.tenant = j.tenant AND g.key = 'job:' || j.name
              AND g.holders = 0)
     LIMIT $2 FOR SHARE SKIP LOCKED
    """
MADE_AT_NEED: Final = """
    SELECT tenant, key FROM daybell.gate
     WHERE (starts_with(key, 'backfill:') OR starts_with(key, 'delivery:')) AND holders = 0 LIMIT $1
    """
OF_SCHEDULES: Final = """
    SELECT g.tenant, g.key FROM daybell.gate g
     WHERE starts_with(g.key, 'job:') AND strpos(g.key, '/') > 0 AND g.holders = 0
       AND NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = g.tenant AND s.own_gate
             AND s.id = CASE WHEN strpos(g.key, '/') > 0 THEN right(g.key, 32)::uuid END)
     LIMIT $1
    """
LOCK_IDLE: Final = """
    SELECT g.tenant, g.key FROM daybell.gate g
     WHERE (g.tenant, g.key) IN (SELECT * FROM unnest($1::int[], $2::text[])) AND g.holders = 0
     ORDER BY g.tenant, g.key FOR UPDATE SKIP LOCKED
    """
# A separate statement, after the lock: it sees the executions that were parked just before.
REMOVE_IDLE: Final = """
    DELETE FROM daybell.gate g
     WHERE (g.tenant, g.key) IN (SELECT * FROM unnest($1::int[], $2::text[])) AND g.holders = 0
       AND NOT EXISTS (SELECT FROM daybell.parked p WHERE p.tenant = g.tenant AND p.gate = g.key)
       AND NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = g.tenant AND s.own_gate
             AND s.id = CASE WHEN strpos(g.key, '/') > 0 THEN right(g.key, 32)::uuid END)
    """


async def remove_gates(pg: StoreContext, now: Instant) -> int:
    """Remove automatically created gates that no execution uses or waits for, and that no job or
    schedule needs. A transaction that needs a removed gate creates it again.
    """

    async def work() -> int:
        async with pg.transaction() as tx:
            before = now - DELETED_SECONDS
            found = await tx.fetch(OF_DELETED, before, REMOVED_GATES_MAX)
            found += await tx.fetch(MADE_AT_NEED, REMOVED_GATES_MAX)
            found += await tx.fetch(OF_SCHEDULES, REMOVED_GATES_MAX)
            return await _remove_idle(tx, found) if found else 0

    return await pg.db.settled(work)


async def _remove_idle(tx: Tx, found: list[Row]) -> int:
    locked = await tx.fetch(
        LOCK_IDLE, [row["tenant"] for row in found], [row["key"] for row in found]
    )
    answer = await tx.execute(
        REMOVE_IDLE, [row["tenant"] for row in locked], [row["key"] for row in locked]
    )
    return int(answer.rpartition(" ")[2])


def _miscount(row: Row) -> Miscount:
    return Miscount(
        tenant=row["name"], gate=row["key"], counted=row["holders"], inside=row["inside"]
    )

"""The queue: claims with their lower bounds, and the transitions of running executions under the
fence.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from enum import Enum
from operator import attrgetter, ne
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from msgspec.structs import replace

from daybell.core import checks
from daybell.core.checks import transition_fault
from daybell.core.event import NewStep
from daybell.core.execution import TERMINAL, Claimed, NewLogPart, Outcome, State
from daybell.core.flow import claimed_needs
from daybell.core.lifecycle import Ruling, Transition, Verdict
from daybell.core.limits import CLAIM_BATCH_MAX, RESULT_BYTES_MAX
from daybell.core.units import Instant
from daybell.core.worker import Claim, Report, WorkerState
from daybell.errors import LeaseLost, Unavailable, UsageError
from daybell.store.codec import (
    OUTCOME_CODES,
    OUTCOMES,
    PRIORITIES,
    STATE_CODES,
    WORKER_CODES,
    WORKER_STATES,
)
from daybell.store.postgres import run_rows
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import Bounds, StoreContext, Tx
from daybell.store.postgres.flow.limits import admit_due, note_claimed, note_moved
from daybell.store.postgres.gates import (
    claim_room,
    is_for_event,
    mark_lanes_claimable,
    requeue_ended_waits,
    running_max,
)
from daybell.store.postgres.names import (
    ENDED,
    IN_HISTORY,
    IN_LEASE,
    KEPT,
    SHARED_KEY,
    LaneRow,
    Lanes,
)
from daybell.store.postgres.progress import (
    HAS_RUN,
    TOLD,
    EndLinks,
    EndsByRun,
    LockPlan,
    after_commit,
    follow_up,
    merge_ends,
    node_ends,
    notify_after_commit,
    plan_locks,
    try_lock_links,
)
from daybell.store.postgres.run_rows import RowCache, drop_if_all_null
from daybell.store.wakeups import SOON_SECONDS

# Claims: a worker takes due executions.

LIVE_WORKER: Final = WORKER_CODES[WorkerState.LIVE]

Fence = tuple[UUID, int]
# Tenant, worker, leases; ids, attempts, and the places of their leases.
Guard = tuple[int, UUID, list[UUID], list[UUID], list[int], list[int]]

CLAIMED_COLUMNS: Final = (
    "v.id, v.attempt, v.job, v.version, v.lane, v.priority, v.args, v.failures, v.crashes,"
    " v.created_at, v.run_at, v.expires_at, v.scheduled_for, v.retries, v.timeout, v.checkpoint,"
    " v.gate, v.cancel_requested_at, v.schedule,"
    " CASE WHEN v.schedule IS NOT NULL THEN (SELECT s.succeeded_for FROM daybell.schedule s"
    " WHERE s.tenant = v.tenant AND s.id = v.schedule)"
    # A node runs for the tick of its run.
    " WHEN v.node IS NOT NULL AND v.scheduled_for IS NOT NULL THEN (SELECT s.succeeded_for"
    " FROM daybell.run r, daybell.schedule s WHERE r.id = v.parent AND r.tenant = v.tenant"
    " AND s.tenant = r.tenant AND s.id = r.schedule) END AS previous_success,"
    " v.node, v.parent"
)

CLAIMED_WIDTH: Final = 22

# LATERAL reads one lane and priority after the other and stops at the limit. So it sorts nothing,
# with any backlog, and never steps over rows of the future. The subselects for `now` are evaluated
# once. The index can use them, but not a volatile function.
ONE_KIND: Final = """
        SELECT x.ctid
          FROM unnest($5::int[], $6::text[], $7::smallint[], $8::float8[])
                 q(lane, queue, priority, bound),
               LATERAL (SELECT a.ctid FROM daybell.agenda a
                         WHERE a.lane = q.lane AND a.priority = q.priority
                           AND a.run_at <= (SELECT now FROM t)
                           AND a.run_at >= q.bound * (SELECT is_bounded FROM t)
                         ORDER BY a.run_at, a.id LIMIT $4 FOR UPDATE SKIP LOCKED) x"""
# Kinds of one queue share its order. Their lanes are merged, at most a page of each.
SEVERAL_KINDS: Final = """
        SELECT x.ctid
          FROM (SELECT queue, priority, array_agg(lane) AS lanes, array_agg(bound) AS bounds
                  FROM unnest($5::int[], $6::text[], $7::smallint[], $8::float8[]) WITH ORDINALITY
                       u(lane, queue, priority, bound, place)
                 GROUP BY queue, priority ORDER BY min(place)) q,
               LATERAL (SELECT y.ctid
                          FROM unnest(q.lanes, q.bounds) k(lane, bound),
                               LATERAL (SELECT a.ctid, a.run_at, a.id FROM daybell.agenda a
                                         WHERE a.lane = k.lane AND a.priority = q.priority
                                           AND a.run_at <= (SELECT now FROM t)
                                           AND a.run_at >= k.bound * (SELECT is_bounded FROM t)
                                         ORDER BY a.run_at, a.id LIMIT $4
                                           FOR UPDATE SKIP LOCKED) y
                         ORDER BY y.run_at, y.id LIMIT $4) x"""
# Unused lanes are neither created nor read. So the claim itself looks for lanes that its process
# does not know yet. If it finds any, or a quota that the process does not know, it takes nothing,
# and the store repeats it.
# `$13` is the snapshot of the claim that set the bounds. Transactions below `$14` were open in it
# for so long that their rows may lie below the bounds; without any, `$13` is null. `is_bounded` is
# 0 as soon as one of them has ended. The snapshot does not list those from its xmax on, so a later
# xmax counts as an end.
# The last row describes the claim as a whole: columns that repeat in every row take time to read.
# `= ANY(ARRAY(…))` reads `live` by its key, for any table size that the planner assumes. The
# planner could choose a scan of the table for a join.
CLAIM: Final = f"""
    WITH t AS MATERIALIZED (
      SELECT daybell.now() AS now,
             (SELECT state FROM daybell.worker WHERE id = $2 AND tenant = {{home}}) AS worker_state,
             EXISTS (SELECT FROM daybell.lease WHERE id = $3) AS is_known,
             (SELECT running_max FROM daybell.tenant WHERE key = $1) AS running_max,
             pg_current_snapshot()::text AS snapshot,
             ARRAY(SELECT queue FROM daybell.paused_queue WHERE tenant = $1) AS paused,
             CASE WHEN coalesce($13::text = pg_current_snapshot()::text, true) THEN 1
                  WHEN $14::text::xid8 > pg_snapshot_xmax($13::text::pg_snapshot)
                       AND pg_snapshot_xmax(pg_current_snapshot())
                           > pg_snapshot_xmax($13::text::pg_snapshot) THEN 0
                  WHEN EXISTS (SELECT FROM pg_snapshot_xip($13::text::pg_snapshot) x
                                WHERE x < $14::text::xid8
                                  AND pg_visible_in_snapshot(x, pg_current_snapshot())) THEN 0
                  ELSE 1 END::float8 AS is_bounded,
             ARRAY(SELECT l.key
                     FROM unnest($10::text[]) u(queue),
                          LATERAL (SELECT l.key FROM daybell.lane l
                                    WHERE l.tenant = $1 AND l.queue = u.queue
                                      AND l.needs = ANY($11::text[])) l
                    WHERE l.key <> ALL ($5::int[])) AS new_lanes),
    d AS (
      DELETE FROM daybell.agenda WHERE ctid = ANY(ARRAY({{found}}
         WHERE (SELECT worker_state = {LIVE_WORKER} AND NOT is_known AND new_lanes = '{{{{}}}}'
                       AND (running_max IS NULL OR $12) FROM t)
           AND q.queue <> ALL ((SELECT paused FROM t)::text[])
         LIMIT $4)) RETURNING id),
    v AS MATERIALIZED (
      SELECT {CLAIMED_COLUMNS} FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM d))),
    l AS (
      INSERT INTO daybell.lease (id, worker, tenant, ids, attempts)
      SELECT $3, $2, $1, array_agg(id), array_agg(attempt) FROM v HAVING count(*) > 0
      RETURNING pg_current_xact_id() AS xid),
    o AS (DELETE FROM daybell.lease WHERE id = ANY($9::uuid[]) AND worker = $2)
    (SELECT v.*, NULL::float8 AS now, NULL::smallint AS worker_state, NULL::boolean AS is_known,
            NULL::int[] AS new_lanes, NULL::bigint AS running_max, NULL::text[] AS paused,
            NULL::float8 AS is_bounded, NULL::text AS snapshot, NULL::float8 AS next_due
       FROM v
      ORDER BY v.priority, array_position($6::text[], $6[array_position($5::int[], v.lane)]),
               v.run_at, v.id)
    UNION ALL
    SELECT {", ".join(["NULL"] * CLAIMED_WIDTH)},
           t.now, t.worker_state, t.is_known, t.new_lanes, t.running_max, t.paused, t.is_bounded,
           (SELECT concat_ws(' ', t.snapshot, l.xid) FROM t LEFT JOIN l ON true),
           CASE WHEN (SELECT count(*) FROM v) < $4 THEN (
             SELECT min(x.run_at)
               FROM unnest($5::int[], $6::text[], $7::smallint[]) q(lane, queue, priority),
                    LATERAL (SELECT a.run_at FROM daybell.agenda a
                              WHERE a.lane = q.lane AND a.priority = q.priority AND a.run_at > t.now
                              ORDER BY a.run_at, a.id LIMIT 1) x
              WHERE q.queue <> ALL (t.paused)
           ) END
      FROM t
    """
CLAIM_ONE: Final = CLAIM.format(found=ONE_KIND, home="$1")
CLAIM_SEVERAL: Final = CLAIM.format(found=SEVERAL_KINDS, home="$1")
# Of workers that serve several tenants.
_SHARED_HOME: Final = f"{SHARED_KEY} AND (tenants = '{{}}' OR $1 = ANY(tenants))"
SHARED_CLAIM_ONE: Final = CLAIM.format(found=ONE_KIND, home=_SHARED_HOME)
SHARED_CLAIM_SEVERAL: Final = CLAIM.format(found=SEVERAL_KINDS, home=_SHARED_HOME)


class ClaimRequest(NamedTuple):
    """The arguments of a claim."""

    tenant: str
    worker: UUID
    lease: UUID
    queues: Sequence[str]
    kinds: Sequence[str]
    limit: int


async def claim(
    pg: StoreContext,
    tenant: str,
    *,
    worker: UUID,
    lease: UUID,
    queues: Sequence[str],
    limit: int,
    kinds: Sequence[str] = ("task",),
) -> Claim:
    checks.check_limit(limit, most=CLAIM_BATCH_MAX)
    asked = ClaimRequest(
        tenant, worker, lease, list(dict.fromkeys(queues)), claimed_needs(kinds), limit
    )
    claim = await _take(pg, asked)
    if claim is None:
        # On another connection, after the first was released: a caller that waits must hold none.
        claim = await _recall(pg, asked)
    return claim


async def _take(pg: StoreContext, asked: ClaimRequest) -> Claim | None:
    """Claim. Return None if the lease has been used before."""
    # One for each queue, to know it by name. Transactions that fill the others create them.
    key, _ = await pg.names.lanes(asked.tenant, asked.queues, asked.kinds[:1])
    wake_at, is_new = await _admit(pg, key, asked), False
    while True:
        is_limited = key in pg.limited_tenants
        async with pg.transaction() if is_limited else pg.autocommit() as tx:
            room = await _room(tx, key, asked.limit) if is_limited else asked.limit
            lanes = pg.names.known_lanes(key, asked.queues, asked.kinds)
            rows = await _ask(tx, key, asked, lanes, room, is_limited=is_limited)
            if rows is None:
                return None
            head = rows.pop()
            if head["is_known"]:
                return None
            if head["new_lanes"]:
                await pg.names.lane_rows(tx, head["new_lanes"])
                is_new = True
            elif head["running_max"] is not None and not is_limited:
                pg.limited_tenants.add(key)
            else:
                claim = await _taken(tx, key, asked, lanes, room, head, rows)
                return _woken(claim, asked.limit, wake_at)
        if is_new:
            wake_at, is_new = await _admit(pg, key, asked), False


async def _admit(pg: StoreContext, tenant: int, asked: ClaimRequest) -> Instant | None:
    """Admit executions with limits, if there are any in these queues."""
    lanes = pg.names.known_lanes(tenant, asked.queues, asked.kinds)
    if not lanes.admitted:
        return None
    return await admit_due(pg, asked.tenant, tenant, lanes.admitted, wanted=asked.limit)


def _woken(claim: Claim, limit: int, wake_at: Instant | None) -> Claim:
    """Return a claim that also knows when there are more executions to admit."""
    if wake_at is None or len(claim.executions) >= limit:
        return claim
    return replace(claim, next_due=min(wake_at, claim.next_due or wake_at))


async def _room(tx: Tx, tenant: int, limit: int) -> int:
    """Return the number of executions that may be claimed of a tenant, if it still has a quota."""
    most = await running_max(tx, tenant)
    if most is None:
        tx.pg.limited_tenants.discard(tenant)
        return limit
    return await claim_room(tx, tenant, limit, most)


async def _ask(
    tx: Tx,
    tenant: int,
    asked: ClaimRequest,
    lanes: Lanes,
    room: int,
    *,
    is_limited: bool,
) -> list[Row] | None:
    """Take due executions, at most `room`. Return None if the lease has taken some already."""
    bounds = _bounds_of(tx.pg, tenant, asked)
    done = tx.take_done_leases()
    text = CLAIM_SEVERAL if lanes.are_shared else CLAIM_ONE
    if asked.worker in tx.pg.shared_workers:
        text = SHARED_CLAIM_SEVERAL if lanes.are_shared else SHARED_CLAIM_ONE
    try:
        rows = await tx.fetch(
            text,
            tenant,
            asked.worker,
            asked.lease,
            room,
            [lane for _ in PRIORITIES for lane in lanes.keys],
            [queue for _ in PRIORITIES for queue in lanes.queues],
            [priority for priority in PRIORITIES for _ in lanes.keys],
            [bounds.get(lane, priority) for priority in PRIORITIES for lane in lanes.keys],
            done,
            asked.queues,
            asked.kinds,
            is_limited,
            bounds.snapshot,
            str(bounds.cutoff),
        )
    except asyncpg.UniqueViolationError:
        tx.restore_leases()
        return None  # the same claim, in progress when we looked, has taken executions after all
    state = rows[-1]["worker_state"]
    if state is None or WORKER_STATES[state] == "dead":
        raise dead_worker(asked.worker)
    return rows


async def _taken(
    tx: Tx,
    key: int,
    asked: ClaimRequest,
    lanes: Lanes,
    room: int,
    head: Row,
    rows: list[Row],
) -> Claim:
    """Return the claim that consists of these rows."""
    if room > 0:
        bounds = _bounds_of(tx.pg, key, asked)
        bounds.move(head, rows, lanes=lanes, limit=room)
    if rows:
        tx.pg.open_leases[asked.worker, asked.lease] = len(rows)
    executions = await claimed_from(tx, asked.tenant, rows, lease=asked.lease)
    left = None
    if len(rows) == room < asked.limit:
        left = await _next_due(tx, key, lanes, after=0.0)
    return Claim(
        lease=asked.lease,
        now=head["now"],
        executions=executions,
        next_due=head["next_due"],
        is_limited=left is not None and left <= head["now"],
    )


def _bounds_of(pg: StoreContext, tenant: int, asked: ClaimRequest) -> Bounds:
    ask = tenant, tuple(asked.queues), tuple(asked.kinds)
    return pg.bounds.setdefault(ask, Bounds())


RECALL: Final = f"""
    SELECT {CLAIMED_COLUMNS}, daybell.now() AS now
      FROM daybell.lease l, {IN_LEASE}
     WHERE l.id = $3 AND l.worker = $2 AND l.tenant = $1
     ORDER BY v.priority, v.run_at, v.id
    """


async def _recall(pg: StoreContext, asked: ClaimRequest) -> Claim:
    async with pg.autocommit() as tx:
        key = await pg.names.tenant(tx, asked.tenant)
        rows = await tx.fetch(RECALL, key, asked.worker, asked.lease)
        now = rows[0]["now"] if rows else await tx.fetchval("SELECT daybell.now()")
        executions = await claimed_from(tx, asked.tenant, rows, lease=asked.lease)
        due = None
        if len(rows) < asked.limit:
            lanes = await pg.names.find_lanes(tx, key, asked.queues, asked.kinds)
            due = await _next_due(tx, key, lanes, after=now)
    return Claim(lease=asked.lease, now=now, executions=executions, next_due=due)


async def claimed_from(
    tx: Tx, tenant: str, rows: Sequence[Row], *, lease: UUID | None = None
) -> list[Claimed]:
    """Return rows that begin with CLAIMED_COLUMNS in the form that workers use."""
    if not rows:
        return []
    # Most often all are of one job and lane, that of the first and the last. Others are looked up
    # when they occur.
    ends = rows[0], rows[-1]
    jobs = await tx.pg.names.job_names(tx, [row["job"] for row in ends])
    lanes = await tx.pg.names.lane_rows(tx, [row["lane"] for row in ends])
    claimed: list[Claimed] = []
    for row in rows:
        if row["job"] not in jobs:
            await tx.pg.names.job_names(tx, [row["job"]])
        if row["lane"] not in lanes:
            await tx.pg.names.lane_rows(tx, [row["lane"]])
        claimed.append(_claimed(row, tenant, lease, jobs, lanes))
    if tx.pg.names.admitted:
        note_claimed(tx.pg, rows)
    return claimed


def keep_leases(pg: StoreContext, worker: UUID, leases: Collection[UUID]) -> None:
    """Stop counting leases that the worker no longer knows."""
    known = set(leases)
    for owner, lease in [key for key in pg.open_leases if key[0] == worker]:
        if lease not in known:
            del pg.open_leases[owner, lease]


def settle_leases(pg: StoreContext, worker: UUID, left: Mapping[UUID, int]) -> None:
    """Subtract the executions of these leases that the worker no longer holds."""
    for lease, count in left.items():
        rest = pg.open_leases.get((worker, lease))
        if rest is None:
            continue
        if rest > count:
            pg.open_leases[worker, lease] = rest - count
        else:
            del pg.open_leases[worker, lease]
            pg.done_leases.append(lease)


DUE: Final = """
    SELECT min(x.run_at) FROM unnest($1::int[], $2::smallint[]) q(lane, priority),
      LATERAL (SELECT run_at FROM daybell.agenda a
                WHERE a.lane = q.lane AND a.priority = q.priority AND a.run_at > $3
                ORDER BY run_at, id LIMIT 1) x
    """
PAUSED: Final = "SELECT queue FROM daybell.paused_queue WHERE tenant = $1"


async def _next_due(tx: Tx, tenant: int, lanes: Lanes, *, after: Instant) -> Instant | None:
    paused = {row["queue"] for row in await tx.fetch(PAUSED, tenant)}
    pairs = zip(lanes.keys, lanes.queues, strict=True)
    open_lanes = [lane for lane, queue in pairs if queue not in paused]
    return await tx.fetchval(
        DUE,
        [lane for _ in PRIORITIES for lane in open_lanes],
        [priority for priority in PRIORITIES for _ in open_lanes],
        after,
    )


def dead_worker(worker: UUID) -> LeaseLost:
    """Return the error for a worker that is unknown or no longer alive."""
    return LeaseLost(
        f"worker {worker} is not registered or was declared dead; it must start anew with a new id"
    )


def _claimed(
    row: Row,
    tenant: str,
    lease: UUID | None,
    jobs: Mapping[int, str],
    lanes: Mapping[int, LaneRow],
) -> Claimed:
    # Unpack all columns at once, and build by position: by name, both take twice as long.
    (
        id, attempt, job, version, lane_key, priority, args, failures, crashes, created_at, run_at,
        expires_at, scheduled_for, retries, timeout, checkpoint, gate, cancel_requested_at,
        schedule, previous_success, node, parent, *_,
    ) = row  # fmt: skip
    lane = lanes[lane_key]
    return Claimed(
        id,
        attempt,
        row["lease"] if lease is None else lease,
        tenant,
        jobs[job],
        version,
        lane.kind,
        lane.queue,
        PRIORITIES[priority],
        args,
        failures,
        crashes,
        created_at,
        run_at,
        expires_at,
        scheduled_for,
        retries,
        timeout,
        checkpoint,
        gate,
        cancel_requested_at is not None,
        schedule,
        previous_success,
        node,
        parent,
        lane.demands,
        lane.is_admitted,
    )


# The statements that move running executions. Each is fenced by the executions of the worker.

# The executions that the worker ($2) holds under the leases it names ($3), and of the ones it says
# it moves ($4 ids, $5 attempts, $6 which of the leases) those that it really holds so: the guard of
# every move. Attempts or leases that are left out are the first: arrays take time on both sides.
# `IS TRUE` keeps these hashed lookups. As joins they would depend on the table's size that the
# planner assumes at the time.
HELD: Final = """
    h AS MATERIALIZED (
      SELECT x.id, x.attempt, array_position($3::uuid[], l.id) AS place
        FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)
       WHERE l.id = ANY($3::uuid[]) AND l.worker = $2 AND l.tenant = $1),
    m AS MATERIALIZED (
      SELECT u.id, coalesce(u.attempt, 1) AS attempt
        FROM unnest($4::uuid[], $5::int[], $6::int[]) u(id, attempt, place)
       WHERE ((u.id, coalesce(u.attempt, 1), coalesce(u.place, 1))
              IN (SELECT id, attempt, place FROM h)) IS TRUE)"""
# No worker holds a run that has begun (state 5), although a lease may still name it.
IS_HELD: Final = "((v.id, v.attempt) IN (SELECT id, attempt FROM m)) IS TRUE AND v.state <> 5"
# This must not be an index lookup: other workers have nodes of the same run.
IS_NODE_OF_THESE: Final = "v.node IS NOT NULL AND (v.parent = ANY($11::uuid[])) IS TRUE"
IS_UNLINKED: Final = "v.gate IS NULL AND v.schedule IS NULL AND v.node IS NULL"
OVER: Final = "o AS (DELETE FROM daybell.lease WHERE id = ANY($7::uuid[]) AND worker = $2)"

_by_id: Final = attrgetter("id")


class MoveBatch:
    """Moves of one worker that are made together."""

    def __init__(self, tenant: str, worker: UUID, moves: list[Transition]) -> None:
        self.tenant = tenant
        self.worker = worker
        self.moves = moves
        self.leases = count_by_lease(moves)

    def only(self, moves: list[Transition]) -> MoveBatch:
        return MoveBatch(self.tenant, self.worker, moves)

    def guard(self, tenant: int) -> Guard:
        """Return the first six parameters of every statement here."""
        return (tenant, self.worker, list(self.leases), *fence_columns(self.moves, self.leases))


# FULL JOIN, because it can only be hashed or merged: a nested loop over two lists of 500 would
# be 250,000 comparisons, and the planner assumes that both lists are short.
TAKEN_OUT: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
         AND v.cancel_requested_at IS NULL AND {IS_UNLINKED}
      RETURNING v.*),
    {OVER}"""
PUT_AWAY: Final = f"""
    INSERT INTO daybell.history ({KEPT}, failures, crashes, checkpoint, state, outcome, finished_at,
                                 started_at, worker, result, log)
    SELECT {KEPT}, failures, crashes, checkpoint, 6, 1, (SELECT now FROM t),
           (SELECT now FROM t) - u.ran, $2, u.result, u.log
      FROM d FULL JOIN unnest($4::uuid[], $8::text[], $9::float8[], $10::text[])
                       u(id, result, ran, log) USING (id)
     WHERE coalesce(d.job, 0) > 0
    """

SUCCEED: Final = f"{TAKEN_OUT} {PUT_AWAY}"

# The same where gates and schedules are locked, and for nodes of existing runs.
SUCCEED_LINKED: Final = f"""
    {TAKEN_OUT.replace(IS_UNLINKED, "v.node IS NULL")} {PUT_AWAY} RETURNING {TOLD}
    """
SUCCEED_NODES: Final = f"""
    {TAKEN_OUT.replace(IS_UNLINKED, IS_NODE_OF_THESE)},
    i AS ({PUT_AWAY} RETURNING {run_rows.TOLD}),
    {run_rows.MOVED}
    """


async def succeed_moves(
    tx: Tx, tenant: int, batch: MoveBatch, *, over: list[UUID] | None = None
) -> bool:
    """Make plain successes. Return False if not all were made: the caller has to check each."""
    done = tx.take_done_leases() if over is None else over
    answer = await tx.execute(SUCCEED, *_succeeding(tenant, batch, done))
    return int(answer.rpartition(" ")[2]) == len(batch.moves)


async def _succeed_linked(
    tx: Tx,
    query: str,
    tenant: int,
    batch: MoveBatch,
    over: list[UUID] | None,
    *more: Any,
) -> list[Row]:
    """Do the same for successes that a gate, a schedule or a run waits for."""
    moves = [move for move in batch.moves if move.target is State.SUCCEEDED]
    if not moves:
        return []
    done = tx.take_done_leases() if over is None else over
    rows = await tx.fetch(query, *_succeeding(tenant, batch.only(moves), done), *more)
    return rows


# An execution with a cancellation request ends as cancelled. A dead one goes to the table that
# users inspect. For the execution of a node, users inspect the run.
END: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    d AS (
      DELETE FROM daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
         AND ($18 OR (v.gate IS NULL AND v.schedule IS NULL))
         AND (v.node IS NULL OR (v.parent = ANY($19::uuid[])) IS TRUE)
      RETURNING v.*),
    e AS MATERIALIZED (
      SELECT {KEPT}, u.failures, u.crashes,
             CASE WHEN cancel_requested_at IS NULL THEN u.state ELSE 8 END AS state,
             CASE WHEN cancel_requested_at IS NULL THEN u.outcome ELSE 5 END AS outcome,
             (SELECT now FROM t) AS finished_at,
             coalesce((SELECT now FROM t) - u.ran, d.started_at) AS started_at, $2::uuid AS worker,
             CASE WHEN cancel_requested_at IS NULL THEN u.result END AS result,
             CASE WHEN u.state <> 6 OR cancel_requested_at IS NOT NULL
                  THEN coalesce(u.error, d.error) END AS error,
             CASE WHEN cancel_requested_at IS NULL THEN u.reason END AS reason,
             coalesce(u.checkpoint, d.checkpoint) AS checkpoint, u.log
        FROM d FULL JOIN unnest($4::uuid[], $5::int[], $8::smallint[], $9::smallint[], $10::int[],
                                $11::int[], $12::text[], $13::text[], $14::text[], $15::float8[],
                                $16::text[], $17::text[])
             u(id, attempt, state, outcome, failures, crashes, result, error, reason, ran,
               checkpoint, log)
             USING (id, attempt)
       WHERE coalesce(d.job, 0) > 0),
    {OVER},
    x AS (
      INSERT INTO daybell.dead ({ENDED}) SELECT {ENDED} FROM e WHERE state = 7 AND node IS NULL),
    y AS (
      INSERT INTO daybell.history ({ENDED})
      SELECT {ENDED} FROM e WHERE state <> 7 OR node IS NOT NULL)
    SELECT {TOLD}, {HAS_RUN} FROM e
    """


async def end_moves(
    tx: Tx,
    tenant: int,
    batch: MoveBatch,
    *,
    over: list[UUID] | None = None,
    is_linked: bool = False,
    runs: Iterable[UUID] = (),
) -> dict[Fence, Row]:
    """Make ends. Omit those that a gate or a schedule waits for, unless these are locked, and
    nodes of runs that are not among `runs`, which are locked.
    """
    moves, done = batch.moves, tx.take_done_leases() if over is None else over
    rows = await tx.fetch(
        END,
        *batch.guard(tenant),
        done,
        [STATE_CODES[move.target] for move in moves],
        [OUTCOME_CODES[move.outcome] for move in moves],
        [move.failures for move in moves],
        [move.crashes for move in moves],
        _kept_results(moves),
        [move.error for move in moves],
        [move.reason for move in moves],
        [move.ran for move in moves],
        [move.checkpoint for move in moves],
        [move.log for move in moves],
        is_linked,
        list(runs),
    )
    tx.after.stop_runs |= {(tenant, row["id"]): None for row in rows if row["has_run"]}
    return {(row["id"], row["attempt"]): row for row in rows}


async def end_linked(
    tx: Tx, tenant: int, batch: MoveBatch, *, over: list[UUID] | None = None
) -> dict[Fence, Row]:
    """End executions that a gate, a schedule or a run waits for, in the order of `LockPlan`: nodes
    before the locks that other nodes of the same run may wait for.
    """
    nodes = [move for move in batch.moves if move.run is not None]
    others = [move for move in batch.moves if move.run is None]
    plan = await plan_locks(
        tx,
        tenant,
        nodes=(move.id for move in nodes),
        schedules=(move.schedule for move in others),
        gates=(move.gate for move in others),
        runs={move.run for move in nodes if move.run is not None},
    )
    ended = await _move_nodes(tx, batch.only(nodes), plan, over)
    held = await plan.lock_links(tx)
    rows = await _move_others(tx, tenant, batch.only(others), over) if others else {}
    await follow_up(tx, tenant, rows.values(), held, ended.ends, seen=ended.seen)
    return ended.made | rows if rows else ended.made


class EndedNodes(NamedTuple):
    """Executions of nodes that a transaction has ended."""

    made: dict[Fence, Row]
    ends: EndsByRun  # for their runs
    seen: RowCache  # the rows of the nodes


async def _move_nodes(
    tx: Tx, batch: MoveBatch, plan: LockPlan, over: list[UUID] | None
) -> EndedNodes:
    succeeded = [move for move in batch.moves if move.target is State.SUCCEEDED]
    if len(succeeded) < len(batch.moves):
        await plan.lock_nodes(tx)  # two statements, and one order of locks
    rows = await _succeed_linked(tx, SUCCEED_NODES, plan.tenant, batch, over, plan.runs)
    made, ends, seen = run_rows.read_ended_nodes(rows, succeeded)
    rest = [move for move in batch.moves if (move.id, move.attempt) not in made]
    if rest:
        some = batch.only(rest)
        others = await end_moves(tx, plan.tenant, some, over=over, is_linked=True, runs=plan.runs)
        made |= others
        ends = merge_ends(ends, node_ends(others.values()))
    return EndedNodes(made, ends, seen)


async def _move_others(
    tx: Tx, tenant: int, batch: MoveBatch, over: list[UUID] | None
) -> dict[Fence, Row]:
    rows = await _succeed_linked(tx, SUCCEED_LINKED, tenant, batch, over)
    made = {(row["id"], row["attempt"]): row for row in rows}
    rest = [move for move in batch.moves if (move.id, move.attempt) not in made]
    if rest:
        made |= await end_moves(tx, tenant, batch.only(rest), over=over, is_linked=True)
    return made


# Each row is found and locked separately, then changed in place.
BACK: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, x.place, coalesce((SELECT now FROM t) - u.ran, x.started_at) AS started_at,
             x.run_at AS could_start,
             greatest((SELECT now FROM t), coalesce(u.at, (SELECT now FROM t) + u.delay)) AS run_at
        FROM unnest($4::uuid[], $5::int[], $8::smallint[], $9::smallint[], $10::int[], $11::int[],
                    $12::float8[], $13::float8[], $14::text[], $15::text[], $16::float8[],
                    $17::text[], $18::text[])
             u(id, attempt, state, outcome, failures, crashes, delay, at, error, reason, ran,
               checkpoint, log),
             LATERAL (SELECT v.ctid AS place, v.started_at, v.run_at FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt
                         AND v.cancel_requested_at IS NULL
                         AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x),
    v AS (
      UPDATE daybell.live v
         SET attempt = v.attempt + 1, failures = u.failures, crashes = u.crashes, run_at = u.run_at,
             state = CASE WHEN u.state = 1 AND u.run_at > (SELECT now FROM t) THEN 2
                          ELSE u.state END,
             lane = coalesce((SELECT l.entry FROM daybell.lane l WHERE l.key = v.lane), v.lane),
             error = coalesce(u.error, v.error), started_at = NULL,
             reason = CASE WHEN u.state IN (2, 4) THEN u.reason END,
             progress = NULL, note = NULL, checkpoint = coalesce(u.checkpoint, v.checkpoint)
        FROM u WHERE v.ctid = u.place
      RETURNING v.id, v.run_at, v.lane, v.priority, v.state, u.attempt, u.outcome,
                u.started_at AS began, u.error AS said, u.log, u.could_start, v.job),
    l AS (
      INSERT INTO daybell.attempt
             (tenant, id, attempt, outcome, worker, started_at, ended_at, error, log, run_at, job,
              lane)
      SELECT $1, id, attempt, outcome, $2, began, (SELECT now FROM t), said, log, could_start, job,
             lane
        FROM v),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v WHERE state <> 4),
    {OVER}
    SELECT id, attempt, state,
           CASE WHEN state <> 4 AND run_at < (SELECT now FROM t) + {SOON_SECONDS} THEN lane END
             AS filled
      FROM v
    """


async def move_back(tx: Tx, tenant: int, batch: MoveBatch) -> dict[Fence, Row]:
    moves, done = batch.moves, tx.take_done_leases()
    rows = await tx.fetch(
        BACK,
        *batch.guard(tenant),
        done,
        [STATE_CODES[move.target] for move in moves],
        [OUTCOME_CODES[move.outcome] for move in moves],
        [move.failures for move in moves],
        [move.crashes for move in moves],
        [move.delay for move in moves],
        [move.at for move in moves],
        [move.error for move in moves],
        [move.reason for move in moves],
        [move.ran for move in moves],
        [move.checkpoint for move in moves],
        [move.log for move in moves],
    )
    filled = {row["filled"] for row in rows if row["filled"] is not None}
    if filled:
        await mark_lanes_claimable(tx, tenant, filled)
    return {(row["id"], row["attempt"]): row for row in rows}


REPORT: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {HELD},
    u AS MATERIALIZED (
      SELECT u.*, x.place
        FROM unnest($4::uuid[], $5::int[], $7::float8[], $8::float8[], $9::text[], $10::text[])
             u(id, attempt, ran, progress, note, checkpoint),
             LATERAL (SELECT v.ctid AS place FROM daybell.live v
                       WHERE v.tenant = $1 AND v.id = u.id AND v.attempt = u.attempt
                         AND {IS_HELD}
                       LIMIT 1 FOR UPDATE) x)
    UPDATE daybell.live v
       SET started_at = (SELECT now FROM t) - u.ran,
           progress = coalesce(u.progress, v.progress), note = coalesce(u.note, v.note),
           checkpoint = coalesce(u.checkpoint, v.checkpoint)
      FROM u WHERE v.ctid = u.place RETURNING v.id, v.attempt
    """


async def report(
    pg: StoreContext, tenant: str, *, worker: UUID, reports: Sequence[Report]
) -> list[Fence]:
    for position, report in enumerate(reports):
        checks.check_report(report, position)
    if not reports:
        async with pg.db.link() as link:
            await pg.names.tenant(link, tenant)
        return []
    ordered = sorted(reports, key=_by_id)
    leases = count_by_lease(ordered)
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        rows = await link.fetch(
            REPORT,
            key,
            worker,
            list(leases),
            *fence_columns(ordered, leases),
            [report.ran for report in ordered],
            [report.progress for report in ordered],
            [report.note for report in ordered],
            [report.checkpoint for report in ordered],
        )
    written = {(row["id"], row["attempt"]) for row in rows}
    named = [(report.id, report.attempt) for report in reports]
    return [fence for fence in named if fence not in written]


def _succeeding(tenant: int, batch: MoveBatch, done: list[UUID]) -> tuple[object, ...]:
    """Return the parameters of SUCCEED."""
    moves = batch.moves
    owner, worker, leases, ids, attempts, places = batch.guard(tenant)
    return (
        owner,
        worker,
        leases,
        ids,
        [] if all(attempt == 1 for attempt in attempts) else attempts,
        places,
        done,
        drop_if_all_null(_kept_results(moves)),
        [move.ran for move in moves],
        drop_if_all_null([move.log for move in moves]),
    )


def _kept_results(moves: Sequence[Transition]) -> list[str | None]:
    results = [move.result for move in moves]
    # Most results are far too short to need a count of bytes.
    if any(result is not None and len(result) > RESULT_BYTES_MAX // 4 for result in results):
        for result in results:
            if result is not None and (fault := checks.size_fault(result, RESULT_BYTES_MAX)):
                raise UsageError(f"its result {fault}")
    return results


def fence_columns(
    moves: Sequence[Claimed | Transition | Report | NewLogPart | NewStep], leases: Iterable[UUID]
) -> tuple[list[UUID], list[int], list[int]]:
    """Return ids, attempts, and the places of their leases in the list of leases, from 1; none if
    there is one lease.
    """
    places = {lease: place for place, lease in enumerate(leases, 1)}
    which = [places[move.lease] for move in moves] if len(places) > 1 else []
    return [move.id for move in moves], [move.attempt for move in moves], which


def count_by_lease(
    moves: Sequence[Claimed | Transition | Report | NewLogPart | NewStep],
) -> dict[UUID, int]:
    """Count the moves of each lease. Moves of one lease are adjacent and share the same object."""
    counts: dict[UUID, int] = {}
    start = 0
    for end in range(1, len(moves) + 1):
        lease = moves[start].lease
        if end == len(moves) or moves[end].lease is not lease:
            counts[lease] = counts.get(lease, 0) + end - start
            start = end
    return counts


CANCELLED: Final = STATE_CODES[State.CANCELLED]
ROUNDS_MAX: Final = 6
NO_LINKS: Final[EndLinks] = (None, None, None)


class Way(Enum):
    """The kinds of statements that a move may take."""

    SUCCEED = "the plain end"
    END = "any other end"
    END_LINKED = "an end that a gate, a schedule or a run waits for"
    BACK = "back to be claimed again"
    WAIT = "back, to wait for an event that may have come"
    UNLOCKED = "whatever is not locked by others"


async def apply(
    pg: StoreContext,
    tenant: str,
    *,
    worker: UUID,
    transitions: Sequence[Transition],
    wait: bool = True,
) -> list[Verdict]:
    if not transitions:
        async with pg.db.link() as link:
            await pg.names.tenant(link, tenant)
        return []
    first, later = _distinct(transitions)
    verdicts: list[Verdict] = []
    for way, moves in _by_way(first, wait=wait):
        # Successes are not checked one by one: the database refuses one that cannot be stored.
        faults = _faults(move for move in moves if move.target is not State.SUCCEEDED)
        sound = [move for move in moves if move.id not in faults] if faults else moves
        if sound:
            verdicts += await _apply(pg, tenant, worker, sound, way)
        if faults:
            faulty = [move for move in moves if move.id in faults]
            verdicts += await _refuse(pg, MoveBatch(tenant, worker, faulty), faults)
    if later:
        verdicts += await apply(pg, tenant, worker=worker, transitions=later, wait=wait)
    return verdicts


async def _apply(
    pg: StoreContext, tenant: str, worker: UUID, moves: list[Transition], way: Way
) -> list[Verdict]:
    """Make moves of one kind. Halve a batch with a row that cannot be stored, to find it."""
    try:
        return await pg.db.settled(lambda: _make(pg, tenant, worker, moves, way))
    except UsageError as error:
        if len(moves) == 1:
            return [Verdict(moves[0].id, moves[0].attempt, Ruling.REFUSED, str(error))]
    middle = len(moves) // 2
    return [
        *await _apply(pg, tenant, worker, moves[:middle], way),
        *await _apply(pg, tenant, worker, moves[middle:], way),
    ]


async def _refuse(pg: StoreContext, batch: MoveBatch, faults: Mapping[UUID, str]) -> list[Verdict]:
    verdicts, refused = await _judge(pg, batch, {})
    return verdicts + [
        Verdict(move.id, move.attempt, Ruling.REFUSED, faults[move.id]) for move in refused
    ]


async def _make(
    pg: StoreContext, tenant: str, worker: UUID, moves: list[Transition], way: Way
) -> list[Verdict]:
    """Make moves of one kind. Moves that were not made and still can be are made in another way:
    a row was cancelled meanwhile, or changed between the read and the lock.
    """
    verdicts: list[Verdict] = []
    todo = [(way, moves)]
    for _ in range(ROUNDS_MAX):
        again: dict[Transition, bool] = {}  # True: cancellation was requested meanwhile
        for one_way, some in todo:
            ruled, left = await _make_once(pg, MoveBatch(tenant, worker, some), one_way)
            verdicts += ruled
            again |= left
        if not again:
            return verdicts
        cancelled = {move.id for move, is_cancelling in again.items() if is_cancelling}
        todo = list(_by_way(sorted(again, key=_by_id), wait=True, cancelled=cancelled))
    raise Unavailable("these executions are changed by others all the time; try again")


async def _make_once(
    pg: StoreContext, batch: MoveBatch, way: Way
) -> tuple[list[Verdict], dict[Transition, bool]]:
    """Make moves in one transaction. Also return moves that still can be made, see `_judge`."""
    make, is_single = _STATEMENTS[way]
    async with pg.autocommit() if is_single else pg.transaction() as tx:
        key = await pg.names.tenant(tx, batch.tenant)
        made = await make(tx, key, batch)
    if pg.flow.held:
        note_moved(pg, key, batch.moves)
    if made is None:
        settle_leases(pg, batch.worker, batch.leases)
        await after_commit(pg, tx.after, key)
        return [], {}
    if way is not Way.UNLOCKED:
        await after_commit(pg, tx.after, key)
        return await _judge(pg, batch, made)
    notify_after_commit(pg, tx.after)  # upkeep continues locked runs
    verdicts, busy = await _judge(pg, batch, made)
    return verdicts + [Verdict(move.id, move.attempt, Ruling.BUSY) for move in busy], {}


async def _make_successes(tx: Tx, tenant: int, batch: MoveBatch) -> dict[Fence, Row] | None:
    return None if await succeed_moves(tx, tenant, batch) else {}


async def _make_waits(tx: Tx, tenant: int, batch: MoveBatch) -> dict[Fence, Row]:
    waits = batch.only(await requeue_ended_waits(tx, tenant, batch.moves))
    return await move_back(tx, tenant, waits)


LOCK_LIVE: Final = """
    SELECT id, cancel_requested_at IS NOT NULL AS is_cancelling FROM daybell.live
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
    """


async def _make_unlocked(tx: Tx, tenant: int, batch: MoveBatch) -> dict[Fence, Row]:
    free, held = await try_lock_links(tx, tenant, {_links(m) for m in batch.moves})
    moves = [move for move in batch.moves if _links(move) in free]
    rows = await tx.fetch(LOCK_LIVE, tenant, [move.id for move in moves])
    locked = {row["id"]: row["is_cancelling"] for row in rows}
    ends = [m for m in moves if m.id in locked and (locked[m.id] or m.target in TERMINAL)]
    backs = [m for m in moves if m.id in locked and not locked[m.id] and m.target not in TERMINAL]
    made: dict[Fence, Row] = {}
    if backs:
        backs = await requeue_ended_waits(tx, tenant, backs)
        made |= await move_back(tx, tenant, batch.only(backs))
    if ends:
        ended = await end_moves(tx, tenant, batch.only(ends), is_linked=True, runs=held)
        await follow_up(tx, tenant, ended.values(), held)
        made |= ended
    return made


class _Statements(NamedTuple):
    """The statements of one way."""

    # Returns the rows of the moves that were made; None: all were made as asked.
    make: Callable[[Tx, int, MoveBatch], Awaitable[dict[Fence, Row] | None]]
    is_single: bool = False  # one statement, which needs no transaction around it


_STATEMENTS: Final = {
    Way.SUCCEED: _Statements(_make_successes, is_single=True),
    Way.END: _Statements(end_moves, is_single=True),
    Way.END_LINKED: _Statements(end_linked),
    Way.BACK: _Statements(move_back, is_single=True),
    Way.WAIT: _Statements(_make_waits),
    Way.UNLOCKED: _Statements(_make_unlocked),
}


async def _judge(
    pg: StoreContext, batch: MoveBatch, made: dict[Fence, Row]
) -> tuple[list[Verdict], dict[Transition, bool]]:
    """Return the verdict on each move that was not made as requested.

    Also return moves that still can be made; True: cancellation was requested meanwhile.
    """
    verdicts: list[Verdict] = []
    doubtful: list[Transition] = []
    for move in batch.moves:
        row = made.get(_fence(move))
        if row is None:
            doubtful.append(move)
        elif row["state"] == CANCELLED and move.target is not State.CANCELLED:
            verdicts.append(Verdict(move.id, move.attempt, Ruling.CANCELLED))
    settle_leases(
        pg, batch.worker, count_by_lease([move for move in batch.moves if _fence(move) in made])
    )
    if not doubtful:
        return verdicts, {}
    async with pg.autocommit() as tx:
        key = await pg.names.tenant(tx, batch.tenant)
        recorded = await _recorded(tx, key, doubtful)
        held = await _still_held(tx, key, batch.only(doubtful))
        rows = await tx.fetch(CURRENT, key, [move.id for move in doubtful])
    current = {row["id"]: row["attempt"] for row in rows}
    again = {
        # With its current links, which the claiming worker may not have known.
        replace(move, gate=row["gate"], schedule=row["schedule"], run=row["run"]): row[
            "is_cancelling"
        ]
        for move in doubtful
        if (row := held.get(_fence(move))) is not None
    }
    for move in doubtful:
        if _fence(move) not in held:
            record = recorded.get(_fence(move))
            verdicts += _ruling(move, record, batch.worker, current.get(move.id))
    return verdicts, again


RECORDED: Final = f"""
    SELECT id, attempt, worker, outcome FROM daybell.attempt
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id, attempt, worker, outcome FROM daybell.dead
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id, h.attempt, h.worker, h.outcome FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """

CURRENT: Final = f"""
    SELECT id, attempt FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id, attempt FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id, h.attempt FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """


async def _recorded(tx: Tx, tenant: int, moves: Sequence[Transition]) -> dict[Fence, Row]:
    rows = await tx.fetch(RECORDED, tenant, [move.id for move in moves])
    return {(row["id"], row["attempt"]): row for row in rows}


STILL_HELD: Final = f"""
    WITH {HELD}
    SELECT v.id, v.attempt, v.cancel_requested_at IS NOT NULL AS is_cancelling, v.gate, v.schedule,
           CASE WHEN v.node IS NOT NULL THEN v.parent END AS run
      FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
    """


async def _still_held(tx: Tx, tenant: int, batch: MoveBatch) -> dict[Fence, Row]:
    rows = await tx.fetch(STILL_HELD, *batch.guard(tenant))
    return {(row["id"], row["attempt"]): row for row in rows}


def _distinct(moves: Sequence[Transition]) -> tuple[list[Transition], list[Transition]]:
    """Return the first move of each execution, in the common order of locks, and later moves."""
    ordered = sorted(moves, key=_by_id)
    ids = list(map(_by_id, ordered))
    if all(map(ne, ids, ids[1:])):
        return ordered, []
    first = {move.id: move for move in reversed(moves)}
    later = [move for move in moves if first[move.id] is not move]
    return sorted(first.values(), key=_by_id), later


def _faults(moves: Iterable[Transition]) -> dict[UUID, str]:
    faults = {move.id: transition_fault(move) for move in moves}
    return {id: fault for id, fault in faults.items() if fault is not None}


def _by_way(
    moves: Sequence[Transition],
    *,
    wait: bool,
    cancelled: Collection[UUID] = (),
) -> Iterator[tuple[Way, list[Transition]]]:
    """Group moves by their statements. With a cancellation request, every move is an end."""
    if not wait:
        yield Way.UNLOCKED, list(moves)
        return
    if not cancelled and all(map(_is_plain, moves)):
        yield Way.SUCCEED, list(moves)
        return
    ways: dict[Way, list[Transition]] = {}
    for move in moves:
        is_cancelled = move.id in cancelled
        if move.target not in TERMINAL and not is_cancelled:
            way = Way.WAIT if is_for_event(move) else Way.BACK
        elif _links(move) != NO_LINKS:
            way = Way.END_LINKED
        elif move.target is State.SUCCEEDED and not is_cancelled:
            way = Way.SUCCEED
        else:
            way = Way.END
        ways.setdefault(way, []).append(move)
    yield from ways.items()


def _is_plain(move: Transition) -> bool:
    return (
        move.target is State.SUCCEEDED
        and move.gate is None
        and move.schedule is None
        and move.run is None
    )


def _links(move: Transition) -> EndLinks:
    return move.gate, move.schedule, move.run


def _ruling(
    move: Transition, recorded: Row | None, worker: UUID, current: int | None
) -> list[Verdict]:
    if recorded is not None and recorded["worker"] == worker:
        outcome = OUTCOMES.get(recorded["outcome"])
        if outcome is move.outcome:
            return []  # made before; its answer was lost
        if outcome is Outcome.CANCELLED:
            return [Verdict(move.id, move.attempt, Ruling.CANCELLED)]
    return [Verdict(move.id, move.attempt, Ruling.STALE, current=current)]


def _fence(move: Transition) -> Fence:
    return move.id, move.attempt

"""Claims: due executions into a worker's hands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.execution import Claimed
from daybell.core.instant import Instant
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.core.worker import Claim, WorkerState
from daybell.errors import LeaseLost
from daybell.store import checks
from daybell.store.codes import PRIORITIES, WORKER_CODES, WORKER_STATES
from daybell.store.postgres.bounds import Bounds
from daybell.store.postgres.bulk import Loading
from daybell.store.postgres.columns import IN_LEASE
from daybell.store.postgres.connection import Database, Link, Row
from daybell.store.postgres.names import LaneRow, Lanes

LIVE_WORKER: Final = WORKER_CODES[WorkerState.LIVE]

Fence = tuple[UUID, int]

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

# LATERAL looks at one lane and priority after the other and stops at the limit: nothing is sorted,
# whatever the backlog, and rows of the future are never stepped over. The subselects for `now` are
# evaluated once and can be used by the index, which a volatile function cannot.
ONE_KIND: Final = """
        SELECT x.ctid
          FROM unnest($5::int[], $6::text[], $7::smallint[], $8::float8[])
                 q(lane, queue, priority, bound),
               LATERAL (SELECT a.ctid FROM daybell.agenda a
                         WHERE a.lane = q.lane AND a.priority = q.priority
                           AND a.run_at <= (SELECT now FROM t)
                           AND a.run_at >= q.bound * (SELECT is_bounded FROM t)
                         ORDER BY a.run_at, a.id LIMIT $4 FOR UPDATE SKIP LOCKED) x"""
# Kinds of one queue share its order: their lanes are merged, at most a page of each.
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
# Lanes that nobody has used are neither made nor asked for. So the claim itself looks for those
# that its process does not know yet; if there are any, or a quota that it does not know of, it
# takes nothing and is asked again.
# `$13` is the snapshot of the claim that set the bounds. Transactions below `$14` were open in it
# for so long that their rows may lie below the bounds; without any, `$13` is null. `is_bounded` is
# 0 as soon as one of them has ended. Those from the snapshot's xmax on are not listed in it, so a
# later xmax counts as an end.
# The last row describes the claim as a whole: columns that repeat in every row take time to read.
# `= ANY(ARRAY(…))` looks into `live` by its key, whatever the planner believes of the table's
# size; a join could be planned as a scan of it.
CLAIM: Final = f"""
    WITH t AS MATERIALIZED (
      SELECT daybell.now() AS now,
             (SELECT state FROM daybell.worker WHERE id = $2 AND tenant = $1) AS worker_state,
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
CLAIM_ONE: Final = CLAIM.format(found=ONE_KIND)
CLAIM_SEVERAL: Final = CLAIM.format(found=SEVERAL_KINDS)


class Asked(NamedTuple):
    """What a claim asks for."""

    tenant: str
    worker: UUID
    lease: UUID
    queues: Sequence[str]
    kinds: Sequence[str]
    limit: int


class Claiming(Loading):
    """Taking executions, each once."""

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        super().__init__(db, listen_url=listen_url)
        self._bounds: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Bounds] = {}
        self._limited: set[int] = set()  # tenants that had a quota of running executions
        # How many executions of a lease have not left it, for those claimed through this store; a
        # lease at zero is over, and its row goes with the next statement that writes leases. Only
        # moves that were made just now count, so a repetition never ends a lease too early; one
        # that is never seen to end is found by the worker's next renewal.
        self.open_leases: dict[tuple[UUID, UUID], int] = {}
        self.done_leases: list[UUID] = []

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        checks.check_limit(limit, most=CLAIM_BATCH_MAX)
        asked = Asked(
            tenant, worker, lease, list(dict.fromkeys(queues)), list(dict.fromkeys(kinds)), limit
        )
        claim = await self._take(asked)
        if claim is None:
            # On another connection, after the first was given back: who waits must hold none.
            claim = await self._recall(asked)
        return claim

    async def _take(self, asked: Asked) -> Claim | None:
        """Claim, unless the lease has been used before: None."""
        # One for each queue, so that it is known by name; the others are made by who fills them.
        key, _ = await self.names.lanes(asked.tenant, asked.queues, asked.kinds[:1])
        while True:
            is_limited = key in self._limited
            async with self.db.transaction() if is_limited else self.db.link() as link:
                room = await self._room(link, key, asked.limit) if is_limited else asked.limit
                lanes = self.names.known_lanes(key, asked.queues, asked.kinds)
                rows = await self._ask(link, key, asked, lanes, room, is_limited=is_limited)
                if rows is None:
                    return None
                head = rows.pop()
                if head["is_known"]:
                    return None
                if head["new_lanes"]:
                    await self.names.lane_rows(link, head["new_lanes"])
                elif head["running_max"] is not None and not is_limited:
                    self._limited.add(key)
                else:
                    return await self._taken(link, key, asked, lanes, room, head, rows)

    async def _room(self, link: Link, tenant: int, limit: int) -> int:
        """How many may be claimed of a tenant with a quota, if it still has one."""
        most = await self.running_max(link, tenant)
        if most is None:
            self._limited.discard(tenant)
            return limit
        return await self.room(link, tenant, limit, most)

    async def _ask(
        self, link: Link, tenant: int, asked: Asked, lanes: Lanes, room: int, *, is_limited: bool
    ) -> list[Row] | None:
        """Take what is due, at most so many. None: the lease has taken something already."""
        bounds = self._bounds_of(tenant, asked)
        done = self.done_leases[:]
        try:
            rows = await link.fetch(
                CLAIM_SEVERAL if lanes.are_shared else CLAIM_ONE,
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
            return None  # its own twin, under way when we looked, has taken something after all
        self.forget_leases(done)
        state = rows[-1]["worker_state"]
        if state is None or WORKER_STATES[state] == "dead":
            raise dead_worker(asked.worker)
        return rows

    async def _taken(
        self,
        link: Link,
        key: int,
        asked: Asked,
        lanes: Lanes,
        room: int,
        head: Row,
        rows: list[Row],
    ) -> Claim:
        """Return the claim that these rows make."""
        if room > 0:
            bounds = self._bounds_of(key, asked)
            bounds.move(head, rows, lanes=lanes, limit=room)
        if rows:
            self.open_leases[asked.worker, asked.lease] = len(rows)
        executions = await self.claimed_from(link, asked.tenant, rows, lease=asked.lease)
        left = None
        if len(rows) == room < asked.limit:
            left = await self._next_due(link, key, lanes, after=0.0)
        return Claim(
            lease=asked.lease,
            now=head["now"],
            executions=executions,
            next_due=head["next_due"],
            is_limited=left is not None and left <= head["now"],
        )

    def _bounds_of(self, tenant: int, asked: Asked) -> Bounds:
        ask = tenant, tuple(asked.queues), tuple(asked.kinds)
        return self._bounds.setdefault(ask, Bounds())

    RECALL = f"""
    SELECT {CLAIMED_COLUMNS}, daybell.now() AS now
      FROM daybell.lease l, {IN_LEASE}
     WHERE l.id = $3 AND l.worker = $2 AND l.tenant = $1
     ORDER BY v.priority, v.run_at, v.id
    """

    async def _recall(self, asked: Asked) -> Claim:
        async with self.db.link() as link:
            key = await self.names.tenant(link, asked.tenant)
            rows = await link.fetch(self.RECALL, key, asked.worker, asked.lease)
            now = rows[0]["now"] if rows else await link.fetchval("SELECT daybell.now()")
            executions = await self.claimed_from(link, asked.tenant, rows, lease=asked.lease)
            due = None
            if len(rows) < asked.limit:
                lanes = await self.names.find_lanes(link, key, asked.queues, asked.kinds)
                due = await self._next_due(link, key, lanes, after=now)
        return Claim(lease=asked.lease, now=now, executions=executions, next_due=due)

    async def claimed_from(
        self, link: Link, tenant: str, rows: Sequence[Row], *, lease: UUID | None = None
    ) -> list[Claimed]:
        """Rows that begin with CLAIMED_COLUMNS, as workers know them."""
        if not rows:
            return []
        # Most often all are of one job and lane, as the first and the last: others are looked up
        # when they turn up.
        ends = rows[0], rows[-1]
        jobs = await self.names.job_names(link, [row["job"] for row in ends])
        lanes = await self.names.lane_rows(link, [row["lane"] for row in ends])
        claimed: list[Claimed] = []
        for row in rows:
            if row["job"] not in jobs:
                await self.names.job_names(link, [row["job"]])
            if row["lane"] not in lanes:
                await self.names.lane_rows(link, [row["lane"]])
            claimed.append(_claimed(row, tenant, lease, jobs, lanes))
        return claimed

    def forget_leases(self, leases: Sequence[UUID]) -> None:
        """These leases' rows are gone."""
        self.done_leases = [lease for lease in self.done_leases if lease not in leases]

    def keep_leases(self, worker: UUID, leases: Collection[UUID]) -> None:
        """Count no longer what the worker does not know any more."""
        known = set(leases)
        for owner, lease in [key for key in self.open_leases if key[0] == worker]:
            if lease not in known:
                del self.open_leases[owner, lease]

    def settle(self, worker: UUID, left: Mapping[UUID, int]) -> None:
        """So many executions of these leases have left the worker's hands just now."""
        for lease, count in left.items():
            rest = self.open_leases.get((worker, lease))
            if rest is None:
                continue
            if rest > count:
                self.open_leases[worker, lease] = rest - count
            else:
                del self.open_leases[worker, lease]
                self.done_leases.append(lease)

    DUE = """
    SELECT min(x.run_at) FROM unnest($1::int[], $2::smallint[]) q(lane, priority),
      LATERAL (SELECT run_at FROM daybell.agenda a
                WHERE a.lane = q.lane AND a.priority = q.priority AND a.run_at > $3
                ORDER BY run_at, id LIMIT 1) x
    """
    PAUSED = "SELECT queue FROM daybell.paused_queue WHERE tenant = $1"

    async def next_due(
        self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str] = ("task",)
    ) -> Instant | None:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            lanes = await self.names.find_lanes(link, key, queues, kinds)
            return await self._next_due(link, key, lanes, after=0.0)

    async def _next_due(
        self, link: Link, tenant: int, lanes: Lanes, *, after: Instant
    ) -> Instant | None:
        paused = {row["queue"] for row in await link.fetch(self.PAUSED, tenant)}
        pairs = zip(lanes.keys, lanes.queues, strict=True)
        open_lanes = [lane for lane, queue in pairs if queue not in paused]
        return await link.fetchval(
            self.DUE,
            [lane for _ in PRIORITIES for lane in open_lanes],
            [priority for priority in PRIORITIES for _ in open_lanes],
            after,
        )


def dead_worker(worker: UUID) -> LeaseLost:
    """What a worker hears that is not known, or not alive any more."""
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
    # Unpacked at once, and put together by position: by name, both take twice as long.
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
        lane.needs,
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
    )

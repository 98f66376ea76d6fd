"""Limits: admission of executions that need slots of buckets, and the release of these.

A claim calls `admit_due` first. An execution that asks for admission is in the agenda, in the entry
lane of its queue. Those that find room move to the admitted lane; the others leave the agenda, get
state 4 and wait at one bucket.

An ended attempt keeps its slots until the next admission. `FlowState.over` names the attempts that
this process has ended. The others are found every few seconds: an attempt has its slots for as long
as `live` has the execution with that attempt, so none can be lost for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final
from uuid import UUID

import msgspec

from daybell.core import flow
from daybell.core.execution import State
from daybell.core.flow import (
    FOR_LIMIT,
    Admission,
    Applicant,
    Bucket,
    LimitTerms,
)
from daybell.core.lifecycle import SUSPECT_CRASHES, Transition
from daybell.core.options import JobDefinition
from daybell.core.units import Instant
from daybell.core.worker import WorkerState
from daybell.store.codec import PRIORITIES, WORKER_CODES
from daybell.store.postgres.connection import Row
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.flow import shares
from daybell.store.postgres.flow.shares import read_policies
from daybell.store.postgres.gates import mark_lanes_claimable, notify_claimable
from daybell.store.postgres.interventions import cancel
from daybell.store.postgres.names import IN_HISTORY, SHARED_KEY
from daybell.store.postgres.progress import after_commit, end_pending

BATCH_MAX: Final = 500  # executions that are admitted or parked in one round
REPAIR_SECONDS: Final = 2.0
UNCLAIMED_SECONDS: Final = 2.0
HELD_MAX: Final = 100_000  # remembered executions; then it starts over
LIVE: Final = WORKER_CODES[WorkerState.LIVE]

read_log: Final = msgspec.json.Decoder(list[tuple[Instant, int]]).decode


# The first job that uses a name declares its numbers.
DECLARE: Final = """
    WITH d AS (
      INSERT INTO daybell.flow_limit AS l (tenant, name, declared, job)
      SELECT $1, u.name, u.declared, j.key
        FROM unnest($2::text[], $3::text[], $4::text[]) u(name, declared, job)
        JOIN daybell.job j ON j.tenant = $1 AND j.name = u.job ORDER BY u.name
      ON CONFLICT (tenant, name) DO UPDATE SET declared = excluded.declared
       WHERE l.job = excluded.job AND l.declared <> excluded.declared
      RETURNING name)
    UPDATE daybell.bucket b SET wake_at = daybell.now() FROM d
     WHERE b.tenant = $1 AND b.name = d.name
    """


async def declare_limits(tx: Tx, tenant: int, definitions: Iterable[JobDefinition]) -> None:
    """Keep the numbers of the limits of these jobs."""
    rules = {rule.name: (rule, one.name) for one in definitions for rule in one.rules}
    if rules:
        terms = [rule.terms.to_json() for rule, _ in rules.values()]
        jobs = [job for _, job in rules.values()]
        await tx.execute(DECLARE, tenant, list(rules), terms, jobs)


def note_claimed(pg: StoreContext, rows: Iterable[Row]) -> None:
    """Remember claimed executions that hold limits."""
    held, admitted = pg.flow.held, pg.names.admitted
    if len(held) > HELD_MAX:
        held.clear()
    held.update((row["id"], row["attempt"]) for row in rows if row["lane"] in admitted)


def note_moved(pg: StoreContext, tenant: int, moves: Iterable[Transition]) -> None:
    """Remember that these attempts are over, and wake the workers: others may have room now. Call
    this after the commit.
    """
    flow_state = pg.flow
    over = {move.id for move in moves if flow_state.held.get(move.id) == move.attempt}
    if over:
        for id in over:
            del flow_state.held[id]
        flow_state.over |= over
        queues = {queue for one, queue in pg.names.limited_queues() if one == tenant}
        pg.notifier.touch(tenant, queues, here=True)


async def admit_due(
    pg: StoreContext, tenant: str, key: int, admitted: Collection[int], *, wanted: int
) -> Instant | None:
    """Admit executions that find room, of the entry lanes of these lanes and of all that wait.
    Return the next time at which there is more to admit. Of those that take turns, `wanted` go on.
    """
    over, pg.flow.over = pg.flow.over, set[UUID]()
    try:
        return await _admit_due(pg, tenant, key, list(admitted), over, wanted)
    except BaseException:
        pg.flow.over = over | pg.flow.over
        raise


async def _admit_due(
    pg: StoreContext, tenant: str, key: int, admitted: list[int], over: set[UUID], wanted: int
) -> Instant | None:
    head, touched = await _look(pg, key, admitted, over)
    wake_at: Instant | None = head["wake_at"]
    if head["is_waiting"]:
        wake_at = min(head["now"] + REPAIR_SECONDS, wake_at or inf)
    if head["next_due"] is not None:
        wake_at = min(head["next_due"], wake_at or inf)
    has_more, is_shared, is_due = False, head["is_shared"], head["is_due"]
    wakes = [inf if wake_at is None else wake_at]
    while is_due or touched or is_shared:
        if is_due or touched:
            after = AfterCommit()
            round_ = await pg.db.settled(partial(_run, pg, after, key, admitted, touched, is_due))
            notify_claimable(pg, after)
            await round_.follow_up(pg, tenant, key)
            has_more |= round_.has_more
            is_shared |= round_.has_unsorted
            wakes += round_.wakes
            if round_.has_unsorted:
                await shares.sort_due(pg, key, admitted)
        # Those that go on to their limits are applicants of a second round.
        is_due = is_shared and await shares.take_turns(pg, key, admitted, wanted)
        touched, is_shared = [], False
    if has_more:
        return head["now"]
    return at if (at := min(wakes)) < inf else None


async def _run(
    pg: StoreContext,
    after: AfterCommit,
    key: int,
    admitted: list[int],
    touched: Sequence[tuple[str, str]],
    is_due: bool,
) -> AdmissionRound:
    async with pg.transaction(after=after) as tx:
        found = AdmissionRound(tx, key, admitted)
        await found.read(touched, is_due=is_due)
        await found.decide()
    return found


# No execution has this attempt any more.
IS_OVER: Final = """NOT EXISTS (
        SELECT FROM daybell.live v
         WHERE v.id = h.id AND v.tenant = h.tenant AND v.attempt = h.attempt AND v.state <> 4)"""
# The buckets that are due, those with a slot of an attempt that is over and, every few seconds,
# those with waiters and room.
#
# Slots of a bucket without a rate are released here, without its lock: a release never admits one
# too many. Most often nothing waits for them, and that is all.
LOOK: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    d AS (
      DELETE FROM daybell.holder h WHERE h.id = ANY($4::uuid[]) AND h.is_logged AND {IS_OVER}
      RETURNING h.bucket),
    n AS MATERIALIZED (
      SELECT n.key, n.ordered FROM daybell.lane n
       WHERE n.key = ANY(ARRAY(SELECT l.entry FROM daybell.lane l WHERE l.key = ANY($2::int[])))),
    e AS MATERIALIZED (
      SELECT x.lane, p.priority
        FROM n, unnest(ARRAY[n.key, n.ordered]) x(lane), unnest($3::smallint[]) p(priority))
    SELECT NULL AS name, NULL AS item, t.now,
           EXISTS (SELECT FROM n WHERE EXISTS (
             SELECT FROM daybell.share r WHERE r.entry = n.key AND r.path = '*' AND EXISTS (
               SELECT FROM daybell.share c WHERE c.parent = r.key AND NOT c.is_full))) AS is_shared,
           (SELECT min(b.wake_at) FROM daybell.bucket b
             WHERE b.tenant = $1 AND b.wake_at > t.now) AS wake_at,
           EXISTS (SELECT FROM daybell.waiter WHERE tenant = $1) AS is_waiting,
           EXISTS (SELECT FROM e WHERE EXISTS (
             SELECT FROM daybell.agenda a
              WHERE a.lane = e.lane AND a.priority = e.priority AND a.run_at <= t.now)) AS is_due,
           (SELECT min(x.run_at) FROM e, LATERAL (
              SELECT a.run_at FROM daybell.agenda a
               WHERE a.lane = e.lane AND a.priority = e.priority AND a.run_at > t.now
               ORDER BY a.run_at LIMIT 1) x) AS next_due
      FROM t
    UNION ALL
    SELECT b.name, b.item, NULL, NULL, NULL, NULL, NULL, NULL
      FROM daybell.bucket b
     WHERE b.key = ANY(ARRAY(
       SELECT b.key FROM daybell.bucket b
        WHERE b.tenant = $1 AND b.wake_at <= (SELECT now FROM t)
       UNION
       SELECT h.bucket FROM daybell.holder h WHERE h.id = ANY($4::uuid[]) AND NOT h.is_logged
       UNION
       SELECT d.bucket FROM d
        WHERE EXISTS (SELECT FROM daybell.waiter w WHERE w.bucket = d.bucket)
       UNION ALL SELECT unnest($5::bigint[])))
    """


async def _look(
    pg: StoreContext, key: int, admitted: list[int], over: set[UUID]
) -> tuple[Row, list[tuple[str, str]]]:
    async with pg.db.link() as link:
        rows = await link.fetch(LOOK, key, admitted, list(PRIORITIES), list(over), [])
        now = rows[0]["now"]
        if now - pg.flow.checked_at.get(key, -inf) >= REPAIR_SECONDS or (
            now < pg.flow.checked_at.get(key, -inf)
        ):
            pg.flow.checked_at[key] = now
            found = [row["bucket"] for row in await link.fetch(REPAIR, key)]
            await link.execute(GIVE_WAY, key, now - UNCLAIMED_SECONDS)
            rows = await link.fetch(LOOK, key, admitted, list(PRIORITIES), list(over), found)
    return rows[0], [(row["name"], row["item"]) for row in rows[1:]]


# A suspect is reported before it starts: it counts from its end.
IS_STARTED: Final = f"v.started_at IS NOT NULL AND v.crashes < {SUSPECT_CRASHES}"
# Buckets with slots that no attempt has any more, with starts that were reported, or with waiters
# and room. The counts of a bucket are right in the transaction that has locked it.
REPAIR: Final = f"""
    SELECT h.bucket FROM daybell.holder h WHERE h.tenant = $1 AND {IS_OVER}
    UNION
    SELECT h.bucket FROM daybell.holder h
     WHERE h.tenant = $1 AND NOT h.is_logged AND EXISTS (
       SELECT FROM daybell.live v
        WHERE v.id = h.id AND v.tenant = h.tenant AND {IS_STARTED})
    UNION
    SELECT b.key FROM daybell.bucket b JOIN daybell.flow_limit l USING (tenant, name)
     WHERE b.tenant = $1 AND EXISTS (SELECT FROM daybell.waiter w WHERE w.bucket = b.key)
       AND coalesce(coalesce(l.changed::json ->> 'limit', l.declared::json ->> 'limit')::int
                    > (SELECT count(*) FROM daybell.holder h WHERE h.bucket = b.key), true)
    """
# Found lanes from which a live worker could claim.
OPEN_LANES: Final = f"""
      SELECT l.key FROM daybell.lane l
       WHERE l.tenant = $1 AND (l.ordered IS NOT NULL OR starts_with(l.needs, 'ordered:'))
         AND NOT EXISTS (SELECT FROM daybell.paused_queue q
                          WHERE q.tenant = $1 AND q.queue = l.queue)
         AND EXISTS (SELECT FROM daybell.worker w
                      WHERE (w.tenant = $1 OR w.tenant = {SHARED_KEY}
                             AND (w.tenants = '{{}}' OR $1 = ANY(w.tenants)))
                        AND w.state = {LIVE} AND w.lease_until > daybell.now()
                        AND l.queue = ANY(w.queues)
                        AND split_part(substr(l.needs, 9), '?', 1) = ANY(w.kinds))"""
# Executions that were admitted and not claimed, whose slots another lane could use, ask again.
GIVE_WAY: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    o AS MATERIALIZED ({OPEN_LANES}),
    u AS MATERIALIZED (
      SELECT v.id, l.entry FROM daybell.live v JOIN daybell.lane l ON l.key = v.lane
       WHERE v.tenant + 0 = $1 AND l.entry IS NOT NULL AND v.state = 1
         AND v.id = ANY(ARRAY(SELECT h.id FROM daybell.holder h
                               WHERE h.tenant = $1 AND h.since < $2 LIMIT 1000))
         AND EXISTS (SELECT FROM daybell.agenda a
                      WHERE a.lane = v.lane AND a.priority = v.priority AND a.run_at = v.run_at
                        AND a.id = v.id)
         AND (l.entry NOT IN (SELECT key FROM o) OR EXISTS (
           SELECT FROM daybell.holder h, daybell.waiter w, daybell.live x, daybell.lane n
            WHERE h.id = v.id AND w.bucket = h.bucket AND x.id = w.id AND x.tenant = w.tenant
              AND n.key = x.lane AND l.key <> n.admitted AND x.lane IN (SELECT key FROM o)))
       ORDER BY v.id FOR UPDATE OF v SKIP LOCKED),
    d AS (
      DELETE FROM daybell.agenda a USING daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM u)) AND a.lane = v.lane
         AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id
      RETURNING a.id),
    v AS (
      UPDATE daybell.live v SET attempt = v.attempt + 1, run_at = (SELECT now FROM t),
             lane = (SELECT l.entry FROM daybell.lane l WHERE l.key = v.lane)
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM d))
      RETURNING v.run_at, v.lane, v.priority, v.id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v
    """

# The due executions of entry lanes. Their agenda rows are locked, so that two rounds at a time take
# different ones.
NEW: Final = """
    WITH e AS MATERIALIZED (
      SELECT x.lane, p.priority
        FROM unnest($3::smallint[]) p(priority), daybell.lane n,
             unnest(ARRAY[n.key, n.ordered]) x(lane)
       WHERE n.key = ANY(ARRAY(SELECT l.entry FROM daybell.lane l WHERE l.key = ANY($2::int[])))
       ORDER BY p.priority, x.lane),
    a AS MATERIALIZED (
      SELECT x.id FROM e, LATERAL (
        SELECT a.id FROM daybell.agenda a
         WHERE a.lane = e.lane AND a.priority = e.priority
           AND a.run_at <= (SELECT daybell.now())
         ORDER BY a.run_at, a.id LIMIT $4 FOR UPDATE SKIP LOCKED) x LIMIT $4)
    SELECT v.id, v.attempt, v.priority, v.run_at, v.job, v.version, v.args,
           (SELECT l.entry FROM daybell.lane l WHERE l.key = v.lane) AS entry
      FROM daybell.live v WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM a))
    """
# Made or locked, in one order. To lock those that exist first would leave the order.
LOCK_BUCKETS: Final = """
    WITH b AS (
      INSERT INTO daybell.bucket AS b (tenant, name, item, quiet_at)
      SELECT $1, u.*, daybell.now() FROM unnest($2::text[], $3::text[]) u(name, item)
       ORDER BY 2, 3
      ON CONFLICT (tenant, name, item) DO UPDATE
         SET wake_at = CASE WHEN b.wake_at > daybell.now() THEN b.wake_at END
      RETURNING b.key, b.name, b.item, b.log, b.paused_until, b.wake_at)
    SELECT b.*, l.declared, l.changed, l.paused_until AS all_paused_until
      FROM b JOIN daybell.flow_limit l ON l.tenant = $1 AND l.name = b.name
    """
# Of an execution in the way of this round nothing is known; it is tried again.
TRY_BUCKETS: Final = """
    SELECT b.key, b.name, b.item, b.log, b.paused_until, b.wake_at, l.declared, l.changed,
           l.paused_until AS all_paused_until
      FROM daybell.bucket b JOIN daybell.flow_limit l USING (tenant, name)
     WHERE b.key = ANY($1::bigint[]) FOR UPDATE OF b SKIP LOCKED
    """
FREE: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    d AS (
      DELETE FROM daybell.holder h WHERE h.bucket = ANY($1::bigint[]) AND {IS_OVER}
      RETURNING h.bucket, h.id, h.attempt, h.cost, h.is_logged),
    s AS (
      UPDATE daybell.holder h SET is_logged = true FROM daybell.live v
       WHERE h.bucket = ANY($1::bigint[]) AND NOT h.is_logged AND v.id = h.id
         AND v.tenant = h.tenant AND v.attempt = h.attempt AND {IS_STARTED}
      RETURNING h.bucket, h.id, h.attempt, h.cost, v.started_at)
    SELECT b.key,
           (SELECT count(*) FROM daybell.holder h WHERE h.bucket = b.key)
             - (SELECT count(*) FROM d WHERE d.bucket = b.key) AS held,
           (SELECT coalesce(sum(h.cost), 0) FROM daybell.holder h
             WHERE h.bucket = b.key AND NOT h.is_logged
               AND NOT EXISTS (SELECT FROM d WHERE d.bucket = b.key AND d.id = h.id)
               AND NOT EXISTS (SELECT FROM s WHERE s.bucket = b.key AND s.id = h.id)) AS unstarted,
           EXISTS (SELECT FROM daybell.waiter w WHERE w.bucket = b.key) AS is_wanted,
           (SELECT now FROM t) AS now, NULL::uuid AS id, NULL::int AS attempt, NULL::int AS cost,
           NULL::float8 AS started_at
      FROM unnest($1::bigint[]) b(key)
    UNION ALL
    SELECT d.bucket, NULL, NULL, NULL, NULL, d.id, d.attempt, d.cost, NULL
      FROM d WHERE NOT d.is_logged
    UNION ALL
    SELECT s.bucket, NULL, NULL, NULL, NULL, s.id, s.attempt, s.cost, s.started_at FROM s
    """
STARTS: Final = f"""
    SELECT id, attempt, started_at FROM daybell.attempt
     WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT id, attempt, started_at FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id, h.attempt, h.started_at FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """
# An execution that was cancelled, or came back another time, has left its row behind: lane is null.
WAITERS: Final = f"""
    WITH o AS MATERIALIZED ({OPEN_LANES}
      UNION SELECT unnest(ARRAY[n.key, n.ordered]) FROM daybell.lane n
             WHERE n.key = ANY(ARRAY(SELECT l.entry FROM daybell.lane l
                                      WHERE l.key = ANY($2::int[]))))
    SELECT w.* FROM unnest($3::bigint[], $4::int[]) q(bucket, most), LATERAL (
      SELECT x.bucket, x.priority, x.run_at, x.id, x.attempt, x.on_full, x.buckets, x.costs,
             x.share, v.lane
        FROM daybell.waiter x LEFT JOIN LATERAL (
          SELECT v.lane FROM daybell.live v
           WHERE v.id = x.id AND v.tenant = x.tenant AND v.attempt = x.attempt
             AND v.state = 4 AND v.reason = '{FOR_LIMIT}' LIMIT 1) v ON true
       WHERE x.bucket = q.bucket AND (v.lane IS NULL OR v.lane IN (SELECT key FROM o))
       ORDER BY x.priority, x.run_at, x.id LIMIT q.most) w
    """
LEAVE: Final = """
    DELETE FROM daybell.waiter w
     USING unnest($1::bigint[], $2::smallint[], $3::float8[], $4::uuid[])
             u(bucket, priority, run_at, id)
     WHERE w.bucket = u.bucket AND w.priority = u.priority AND w.run_at = u.run_at AND w.id = u.id
    RETURNING w.share
    """
# An execution that another transaction is about to cancel is left alone.
LOCK_LIVE: Final = f"""
    SELECT v.id, v.attempt, v.state = 4 AS is_waiting FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
       AND (v.state < 4 OR v.state = 4 AND v.reason = '{FOR_LIMIT}')
     ORDER BY v.id FOR UPDATE SKIP LOCKED
    """
UNQUEUED: Final = """
    d AS (
      DELETE FROM daybell.agenda a USING daybell.live v
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND a.lane = v.lane
         AND a.priority = v.priority AND a.run_at = v.run_at AND a.id = v.id)"""
# run_at is raised to now, because a claimer that keeps a lower bound must not miss a row that comes
# late.
ADMIT: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now), {UNQUEUED},
    v AS (
      UPDATE daybell.live v SET state = 1, reason = NULL, run_at = (SELECT now FROM t),
             lane = (SELECT l.admitted FROM daybell.lane l WHERE l.key = v.lane)
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[])
      RETURNING v.run_at, v.lane, v.priority, v.id),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v),
    h AS (
      INSERT INTO daybell.holder (bucket, id, tenant, attempt, cost, since, is_logged)
      SELECT u.bucket, u.id, $1, u.attempt, u.cost, (SELECT now FROM t), u.is_logged
        FROM unnest($3::bigint[], $4::uuid[], $5::int[], $6::int[], $7::boolean[])
             u(bucket, id, attempt, cost, is_logged))
    SELECT DISTINCT lane FROM v
    """
WAIT: Final = f"""
    WITH {UNQUEUED},
    v AS (
      UPDATE daybell.live v SET state = 4, reason = '{FOR_LIMIT}'
       WHERE v.tenant + 0 = $1 AND v.id = ANY($2::uuid[]) AND v.state <> 4)
    INSERT INTO daybell.waiter (tenant, bucket, priority, run_at, id, attempt, on_full, share,
                                buckets, costs)
    SELECT $1, u.bucket, u.priority, u.run_at, u.id, u.attempt, u.on_full, u.share,
           ARRAY(SELECT (x ->> 0)::bigint FROM json_array_elements(u.takes) x),
           ARRAY(SELECT (x ->> 1)::int FROM json_array_elements(u.takes) x)
      FROM unnest($3::bigint[], $4::smallint[], $5::float8[], $2::uuid[], $6::int[], $7::text[],
                  $8::json[], $9::bigint[])
             u(bucket, priority, run_at, id, attempt, on_full, takes, share)
    ON CONFLICT (bucket, priority, run_at, id) DO UPDATE
       SET attempt = excluded.attempt, on_full = excluded.on_full, buckets = excluded.buckets,
           costs = excluded.costs, share = excluded.share
    """
KEEP: Final = """
    UPDATE daybell.bucket b SET log = u.log, wake_at = u.wake_at, quiet_at = u.quiet_at
      FROM unnest($1::bigint[], $2::text[], $3::float8[], $4::float8[])
             u(key, log, wake_at, quiet_at)
     WHERE b.key = u.key
    """
# One that is to be cancelled already is not cancelled for another. A job without this rule is safe.
OLDEST: Final = """
    SELECT x.id FROM (
      SELECT h.id, 0 AS place, h.since
        FROM daybell.holder h JOIN daybell.live v ON v.id = h.id AND v.tenant = h.tenant
             JOIN daybell.job_version d ON d.job = v.job AND d.version = v.version
       WHERE h.bucket = $1 AND v.attempt = h.attempt AND v.cancel_requested_at IS NULL
         AND d.definition::json ->> 'on_full' = 'cancel_oldest'
      UNION ALL
      SELECT w.id, 1, w.run_at
        FROM daybell.waiter w JOIN daybell.live v ON v.id = w.id AND v.tenant = w.tenant
       WHERE w.bucket = $1 AND v.attempt = w.attempt AND v.state = 4 AND w.id < $2
         AND w.on_full = 'cancel_oldest') x
     ORDER BY x.place, x.since, x.id LIMIT 1
    """
BEFORE: Final = """
    SELECT w.id FROM daybell.waiter w JOIN daybell.live v ON v.id = w.id AND v.tenant = w.tenant
     WHERE w.bucket = $1 AND w.id <> $2 AND w.on_full = 'keep_newest'
       AND v.attempt = w.attempt AND v.state = 4
    """


class AdmissionRound:
    """One round of admission: the applicants and their buckets, locked, decided and written."""

    def __init__(self, tx: Tx, tenant: int, admitted: list[int]) -> None:
        self._tx = tx
        self._pg = tx.pg
        self._tenant = tenant
        self._admitted = admitted
        self._now = 0.0
        self._buckets: dict[int, Bucket] = {}
        self._kept: dict[int, tuple[str, Instant | None]] = {}  # log and wake_at, as they were read
        self._wanted: set[int] = set()  # buckets at which executions wait
        self._applicants: dict[UUID, Applicant] = {}
        self._wake_at: dict[int, Instant] = {}
        self._result = Admission()
        self._leaves: set[int] = set()  # whose waiting executions have changed
        self.has_more = False
        self.has_unsorted = False  # new executions that take turns

    @property
    def wakes(self) -> Collection[Instant]:
        return self._wake_at.values()

    # --- reading ---

    async def read(self, touched: Sequence[tuple[str, str]], *, is_due: bool) -> None:
        """Lock the buckets of all that is due, and find the applicants."""
        tx = self._tx
        new: list[Row] = []
        if is_due:
            asked_for = self._tenant, self._admitted, list(PRIORITIES), BATCH_MAX
            new = await tx.fetch(NEW, *asked_for)
        self.has_more = len(new) == BATCH_MAX
        versions = {(row["job"], row["version"]) for row in new}
        policies = await read_policies(tx.pg, tx, versions)
        unsorted = {
            row["id"] for row in new
            if row["entry"] is None and policies[row["job"], row["version"]].share
        }  # fmt: skip
        self.has_unsorted = bool(unsorted)
        new = [row for row in new if row["id"] not in unsorted]
        leaves = await shares.find_leaves(tx, new)
        asked = [
            (row, policy, policy.take(msgspec.json.decode(row["args"])))
            for row in new
            for policy in (policies[row["job"], row["version"]],)
        ]
        names = sorted({*touched, *(name for _, _, takes in asked for name in takes)})
        if not names:
            return
        args = self._tenant, [name for name, _ in names], [item for _, item in names]
        rows = await tx.fetch(LOCK_BUCKETS, *args)
        await self._add_buckets(rows)
        keys = {(bucket.name, bucket.item): key for key, bucket in self._buckets.items()}
        for row, policy, takes in asked:
            costs = sorted((keys[name], cost) for name, cost in takes.items())
            self._applicants[row["id"]] = Applicant(
                row["id"], row["attempt"], row["priority"], row["run_at"], tuple(costs),
                policy.on_full, share=leaves.get(row["id"]),
            )  # fmt: skip
        await self._add_waiting()
        await self._lock()

    async def _add_buckets(self, rows: Sequence[Row]) -> None:
        """Add locked buckets, without the slots of attempts that are over."""
        added: dict[int, Bucket] = {}
        for row in rows:
            terms = LimitTerms.from_json(row["declared"]).override(
                LimitTerms.from_json(row["changed"])
            )
            paused = max(row["paused_until"], row["all_paused_until"])
            added[row["key"]] = Bucket(
                row["key"], row["name"], row["item"], terms, log=read_log(row["log"]),
                paused_until=paused,
            )  # fmt: skip
            self._kept[row["key"]] = row["log"], row["wake_at"]
        ended: list[Row] = []
        for row in await self._tx.fetch(FREE, list(added)):
            bucket = added[row["key"]]
            if row["id"] is None:
                bucket.held, bucket.unstarted = row["held"], row["unstarted"]
                self._now = row["now"]
                if row["is_wanted"]:
                    self._wanted.add(row["key"])
                continue
            if row["started_at"] is None:
                ended.append(row)
            else:
                bucket.start(row["started_at"], row["cost"])
        await self._add_starts(ended, added)
        self._buckets |= added

    async def _add_starts(self, ended: Sequence[Row], buckets: Mapping[int, Bucket]) -> None:
        """Note when ended attempts started: one that is not known counts as started just now."""
        if not ended:
            return
        ids = [row["id"] for row in ended]
        rows = await self._tx.fetch(STARTS, self._tenant, ids)
        starts = {(row["id"], row["attempt"]): row["started_at"] for row in rows}
        for row in ended:
            known = starts.get((row["id"], row["attempt"]))
            buckets[row["key"]].start(self._now if known is None else known, row["cost"])

    async def _add_waiting(self) -> None:
        """Add the first of those that wait at these buckets, as many as there may be room for."""
        rooms: dict[int, int] = {}
        for key in self._wanted:
            bucket = self._buckets[key]
            at = bucket.room_at(1, self._now)
            if at <= self._now:
                limit = bucket.terms.limit
                rooms[key] = BATCH_MAX if limit is None else min(BATCH_MAX, limit - bucket.held)
            elif at < inf:
                self._wake_at[key] = at
        while rooms:
            rows = await self._tx.fetch(
                WAITERS, self._tenant, self._admitted, list(rooms), list(rooms.values())
            )
            stale = [row for row in rows if row["lane"] is None]
            if not stale:
                break
            await self._leave(
                [(row["bucket"], row["priority"], row["run_at"], row["id"]) for row in stale]
            )
        else:
            rows = []
        self.has_more |= len(rows) >= BATCH_MAX
        others = {key for row in rows for key in row["buckets"]} - self._buckets.keys()
        if others:
            await self._add_buckets(await self._tx.fetch(TRY_BUCKETS, sorted(others)))
        for row in rows:
            if all(key in self._buckets for key in row["buckets"]):
                self._applicants[row["id"]] = Applicant(
                    row["id"], row["attempt"], row["priority"], row["run_at"],
                    tuple(zip(row["buckets"], row["costs"], strict=True)), row["on_full"],
                    row["bucket"], row["share"],
                )  # fmt: skip
            else:
                self._wake_at[row["bucket"]] = self._now

    async def _leave(self, waiters: Sequence[tuple[int, int, Instant, UUID]]) -> None:
        if waiters:
            rows = await self._tx.fetch(LEAVE, *map(list, zip(*waiters, strict=True)))
            self._leaves |= {row["share"] for row in rows if row["share"] is not None}

    async def _lock(self) -> None:
        """Lock the applicants, and leave out those that others have changed or are changing."""
        if not self._applicants:
            return
        rows = await self._tx.fetch(LOCK_LIVE, self._tenant, list(self._applicants))
        locked = {row["id"]: (row["attempt"], row["is_waiting"]) for row in rows}
        self._applicants = {
            id: one
            for id, one in self._applicants.items()
            if locked.get(id) == (one.attempt, one.waits_at is not None)
        }

    # --- deciding and writing ---

    async def decide(self) -> None:
        """Decide, and write the decisions."""
        if not self._buckets:
            return
        self._result = result = flow.admit(self._applicants.values(), self._buckets, now=self._now)
        moved = [one for one, _ in result.waiting if one.waits_at is not None]
        left = [one for one in (*result.admitted, *moved) if one.waits_at is not None]
        await self._leave([(one.waits_at or 0, one.priority, one.run_at, one.id) for one in left])
        await self._admit(result.admitted)
        await self._wait(result.waiting)
        self._wake_at |= result.wake_at
        await self._keep()
        self._leaves |= {one.share for one, _ in result.waiting if one.share is not None}
        await shares.mark_full(self._tx, self._leaves)

    async def _admit(self, admitted: Sequence[Applicant]) -> None:
        if not admitted:
            return
        slots = [
            (key, one.id, one.attempt, cost, not self._buckets[key].terms.rates)
            for one in admitted
            for key, cost in one.takes
        ]
        ids = [one.id for one in admitted]
        columns = map(list, zip(*slots, strict=True))
        rows = await self._tx.fetch(ADMIT, self._tenant, ids, *columns)
        await mark_lanes_claimable(self._tx, self._tenant, [row["lane"] for row in rows])

    async def _wait(self, waiting: Sequence[tuple[Applicant, int]]) -> None:
        if waiting:
            await self._tx.execute(
                WAIT,
                self._tenant,
                [one.id for one, _ in waiting],
                [key for _, key in waiting],
                [one.priority for one, _ in waiting],
                [one.run_at for one, _ in waiting],
                [one.attempt for one, _ in waiting],
                [one.on_full for one, _ in waiting],
                [msgspec.json.encode(one.takes).decode() for one, _ in waiting],
                [one.share for one, _ in waiting],
            )

    async def _keep(self) -> None:
        """Write the buckets that have changed."""
        rows: list[tuple[int, str, Instant | None, Instant]] = []
        for key, bucket in self._buckets.items():
            log, wake_at = self._kept[key]
            kept = bucket.compact(self._now)
            text = msgspec.json.encode(kept).decode()
            wanted = self._wake_at.get(key, wake_at)
            if (text, wanted) != (log, wake_at):
                longest = max((seconds for _, seconds in bucket.terms.windows), default=0.0)
                rows.append((key, text, wanted, (kept[-1][0] if kept else self._now) + longest))
        if rows:
            await self._tx.execute(KEEP, *map(list, zip(*rows, strict=True)))

    # --- after the commit ---

    async def follow_up(self, pg: StoreContext, tenant: str, key: int) -> None:
        """Skip and cancel as the decisions say, in transactions of their own."""
        result = self._result
        skipped = [one.id for one in result.skipped]
        newest = [(one, at) for one, at in result.waiting if one.on_full == "keep_newest"]
        for one, at in newest:
            if one.waits_at is None:
                async with pg.db.link() as link:
                    skipped += [row["id"] for row in await link.fetch(BEFORE, at, one.id)]
        if skipped:
            await pg.db.settled(partial(_skip, pg, key, skipped))
        for one, at in result.replacing:
            async with pg.db.link() as link:
                oldest = [row["id"] for row in await link.fetch(OLDEST, at, one.id)]
            await cancel(pg, tenant, oldest)
            # One that had not started has ended: look for its slot.
            pg.flow.checked_at.pop(key, None)
            self.has_more = True


async def _skip(pg: StoreContext, tenant: int, ids: Sequence[UUID]) -> None:
    async with pg.transaction() as tx:
        await end_pending(tx, tenant, sorted(ids), State.SKIPPED, FOR_LIMIT)
    await after_commit(pg, tx.after, tenant)


# Removal of buckets without use. A waiting execution knows its buckets by their numbers.

IDLE_BUCKETS: Final = """
    SELECT key FROM daybell.bucket
     WHERE quiet_at < $1 AND paused_until <= quiet_at AND wake_at IS NULL
     LIMIT $2 FOR UPDATE SKIP LOCKED
    """
REMOVE_BUCKETS: Final = """
    DELETE FROM daybell.bucket b
     WHERE b.key = ANY($1::bigint[])
       AND NOT EXISTS (SELECT FROM daybell.holder h WHERE h.bucket = b.key)
       AND NOT EXISTS (SELECT FROM daybell.waiter w WHERE w.tenant = b.tenant)
    """


async def remove_buckets(tx: Tx, before: Instant, limit: int) -> int:
    """Remove buckets that nothing has used. Under its lock nothing can take or wait for one."""
    locked = [row["key"] for row in await tx.fetch(IDLE_BUCKETS, before, limit)]
    if not locked:
        return 0
    answer = await tx.execute(REMOVE_BUCKETS, locked)
    return int(answer.rpartition(" ")[2])

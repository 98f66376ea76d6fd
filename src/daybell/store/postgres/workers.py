"""Workers and their leases, and the recovery of executions of dead workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.checks import check_limit
from daybell.core.execution import Losses, Lost
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import after_release
from daybell.core.limits import check_labels, check_name
from daybell.core.placement import Site
from daybell.core.units import Instant, Seconds
from daybell.core.worker import (
    SHARED,
    UNWATCHED,
    NewWorker,
    Offer,
    Renewal,
    TenantWork,
    Watch,
    Worker,
    WorkerState,
)
from daybell.store.codec import PRIORITIES, WORKER_CODES, WORKER_STATES
from daybell.store.postgres.connection import TASK_SESSION, Row
from daybell.store.postgres.context import WORKERS, StoreContext, Tx
from daybell.store.postgres.names import IN_LEASE, SHARED_KEY
from daybell.store.postgres.queue import (
    CLAIMED_COLUMNS,
    apply,
    claimed_from,
    dead_worker,
    keep_leases,
)

LIVE: Final = WORKER_CODES[WorkerState.LIVE]
DRAINING: Final = WORKER_CODES[WorkerState.DRAINING]
DEAD: Final = WORKER_CODES[WorkerState.DEAD]


# The workers that serve a tenant ($1): its own, and those that serve several.
SERVES: Final = f"""(w.tenant = $1 OR w.tenant = {SHARED_KEY}
           AND (w.tenants = '{{}}' OR $1 = ANY(w.tenants)))"""


REGISTER: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    x AS (
      UPDATE daybell.worker SET is_excused = true
       WHERE tenant = $1 AND id = $13 AND NOT EXISTS (
         SELECT FROM daybell.worker d WHERE d.tenant = $1 AND d.id = $2 AND d.state = {DEAD}))
    INSERT INTO daybell.worker AS w (id, tenant, name, host, pid, version, queues, kinds, labels,
                                     capacity, state, started_at, renewed_at, lease_until,
                                     tasks, resources, tenants)
    SELECT $2, $1, $3, $4, $5, $6, $7::text[], $8::text[], $9, $10, {LIVE}, now, now, now + $11,
           $12, $14, $15::int[]
      FROM t
    ON CONFLICT (tenant, id) DO UPDATE
       SET renewed_at = excluded.renewed_at, lease_until = excluded.lease_until
     WHERE w.state <> {DEAD}
    RETURNING w.state, w.lease_until, w.renewed_at
    """


async def register(
    pg: StoreContext,
    tenant: str,
    worker: NewWorker,
    *,
    lease: Seconds,
    replaces: UUID | None = None,
) -> Renewal:
    check_name(worker.name, what="worker")
    check_labels(worker.labels)
    async with pg.db.link() as link:
        if tenant == SHARED:
            pg.shared_workers.add(worker.id)
        row = await link.fetchrow(
            REGISTER,
            await pg.names.tenant(link, tenant),
            worker.id,
            worker.name,
            worker.host,
            worker.pid,
            worker.version,
            list(worker.queues),
            list(worker.kinds),
            msgspec.json.encode(worker.labels).decode(),
            worker.capacity,
            lease,
            # Sorted, so that workers that have the same tasks are alike.
            msgspec.json.encode(worker.tasks, order="sorted").decode()
            if worker.tasks is not None
            else None,
            replaces,
            msgspec.json.encode(worker.resources, order="sorted").decode(),
            [await pg.names.tenant(link, name) for name in worker.tenants]
            if tenant == SHARED
            else None,
        )
    if row is None:
        raise dead_worker(worker.id)
    return _renewal(row)


# One write, however much the worker runs. A worker that was declared dead matches no row. A reaper
# that comes at the same moment waits for this row and then finds its lease prolonged, or this waits
# for the reaper and then finds the worker dead. Leases that hold nothing go in passing: to check
# each would take so many round trips that a slow store would cost the lease.
RENEW: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    w AS (
      UPDATE daybell.worker w SET renewed_at = t.now, lease_until = t.now + $3
        FROM t WHERE w.id = $2 AND w.tenant = $1 AND w.state <> {DEAD}
      RETURNING w.state, w.lease_until, w.renewed_at),
    e AS (
      DELETE FROM daybell.lease l
       WHERE l.worker = $2 AND l.tenant = $1 AND l.id <> ALL ($4::uuid[])
         AND NOT EXISTS (SELECT FROM {IN_LEASE})),
    h AS NOT MATERIALIZED (
      SELECT x.id, x.attempt FROM daybell.lease l, unnest(l.ids, l.attempts) x(id, attempt)
       WHERE l.worker = $2 AND l.tenant = $1 AND l.id = ANY($4::uuid[]))
    SELECT w.*,
           ARRAY(SELECT l.id FROM daybell.lease l
                  WHERE l.worker = $2 AND l.id <> ALL ($4::uuid[])
                    AND EXISTS (SELECT FROM {IN_LEASE})) AS unknown,
           ARRAY(SELECT v.id FROM daybell.live v
                  WHERE v.tenant = $1 AND v.cancel_requested_at IS NOT NULL
                    AND ((v.id, v.attempt) IN (SELECT id, attempt FROM h)) IS TRUE AND v.state <> 5
                  ORDER BY v.id) AS cancelling,
           ARRAY(SELECT v.attempt FROM daybell.live v
                  WHERE v.tenant = $1 AND v.cancel_requested_at IS NOT NULL
                    AND ((v.id, v.attempt) IN (SELECT id, attempt FROM h)) IS TRUE AND v.state <> 5
                  ORDER BY v.id) AS attempts
      FROM w
    """
# The leases of a worker that serves several tenants are theirs.
RENEW_SHARED: Final = RENEW.replace(" AND l.tenant = $1", "").replace("v.tenant = $1 AND ", "")
TENANTS_OF: Final = "SELECT id, tenant FROM daybell.lease WHERE id = ANY($1::uuid[])"


async def renew(
    pg: StoreContext, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
) -> Renewal:
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        text = RENEW if key != SHARED_KEY else RENEW_SHARED
        row = await link.fetchrow(text, key, worker, lease, list(leases))
    if row is None:
        raise dead_worker(worker)
    keep_leases(pg, worker, leases)
    unknown = row["unknown"]
    returned = await _return_unknown(pg, tenant, worker, unknown) if unknown else 0
    cancel = tuple(zip(row["cancelling"], row["attempts"], strict=True))
    return msgspec.structs.replace(_renewal(row), cancel=cancel, returned=returned)


async def _return_unknown(
    pg: StoreContext, tenant: str, worker: UUID, leases: Sequence[UUID]
) -> int:
    """Release claims without an answer."""
    if tenant != SHARED:
        return await release(pg, tenant, worker=worker, leases=leases)
    by_tenant: dict[str, list[UUID]] = {}
    async with pg.autocommit() as tx:
        for row in await tx.fetch(TENANTS_OF, leases):
            name = await pg.names.tenant_name(tx, row["tenant"])
            by_tenant.setdefault(name, []).append(row["id"])
    return sum(
        [await release(pg, one, worker=worker, leases=own) for one, own in by_tenant.items()]
    )


# Rows are locked in the order of ids, as another process may renew some of the same.
RENEW_IDLE: Final = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    x AS MATERIALIZED (
      SELECT w.id FROM daybell.worker w
       WHERE w.tenant = $1 AND w.id = ANY($2::uuid[]) AND w.state <> {DEAD}
         AND NOT EXISTS (SELECT FROM daybell.lease l WHERE l.worker = w.id)
       ORDER BY w.id FOR UPDATE OF w)
    UPDATE daybell.worker w SET renewed_at = t.now, lease_until = t.now + $3
      FROM t WHERE w.tenant = $1 AND w.id = ANY(ARRAY(SELECT id FROM x))
    RETURNING w.id, w.state, w.lease_until, w.renewed_at
    """


async def renew_idle(
    pg: StoreContext, tenant: str, *, workers: Collection[UUID], lease: Seconds
) -> dict[UUID, Renewal]:
    rows = await pg.fetch(tenant, RENEW_IDLE, list(workers), lease)
    return {row["id"]: _renewal(row) for row in rows}


DRAIN: Final = f"""
    UPDATE daybell.worker SET state = {DRAINING}
     WHERE id = $2 AND tenant = $1 AND state <> {DEAD} RETURNING 1
    """


async def drain(pg: StoreContext, tenant: str, worker: UUID) -> bool:
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        is_drained = await link.fetchval(DRAIN, key, worker) is not None
    pg.notifier.touch(key, [WORKERS])
    return is_drained


SOLE: Final = f"""
    UPDATE daybell.worker SET sole = $3
     WHERE id = $2 AND tenant = $1 AND state <> {DEAD}
    """


async def record_sole(
    pg: StoreContext, tenant: str, *, worker: UUID, execution: UUID | None
) -> bool:
    return await pg.change(tenant, SOLE, worker, execution) == 1


RETIRE: Final = f"UPDATE daybell.worker SET state = {DEAD} WHERE id = $2 AND tenant = $1"


async def retire(pg: StoreContext, tenant: str, worker: UUID) -> None:
    await pg.change(tenant, RETIRE, worker)


HOLDS: Final = f"""
    SELECT {CLAIMED_COLUMNS}, l.id AS lease, l.worker
      FROM daybell.lease l, {IN_LEASE} WHERE l.id = ANY($1::uuid[])
    """
OWN: Final = (
    "SELECT id FROM daybell.lease WHERE id = ANY($3::uuid[]) AND worker = $2 AND tenant = $1"
)
END_LEASES: Final = (
    "DELETE FROM daybell.lease WHERE id = ANY($3::uuid[]) AND worker = $2 AND tenant = $1"
)


async def release(pg: StoreContext, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
    async with pg.autocommit() as tx:
        key = await pg.names.tenant(tx, tenant)
        own = [row["id"] for row in await tx.fetch(OWN, key, worker, list(leases))]
        rows = await tx.fetch(HOLDS, own)
        claimed = await claimed_from(tx, tenant, rows)
    moves = [after_release(execution) for execution in claimed]
    verdicts = await apply(pg, tenant, worker=worker, transitions=moves)
    async with pg.autocommit() as tx:
        await tx.execute(END_LEASES, key, worker, own)
    return len(moves) - sum(verdict.ruling == "stale" for verdict in verdicts)


SILENT: Final = f"""
    SELECT tenant, id, renewed_at, lease_until FROM daybell.worker
     WHERE state <> {DEAD} AND lease_until < $1
    """
# Mark only a row that no other transaction has locked, and only if it was not renewed meanwhile.
BURY: Final = f"""
    UPDATE daybell.worker SET state = {DEAD} WHERE (tenant, id) IN (
      SELECT w.tenant, w.id FROM daybell.worker w
        JOIN unnest($1::int[], $2::uuid[], $3::float8[]) AS s (tenant, id, renewed_at)
          ON w.tenant = s.tenant AND w.id = s.id AND w.renewed_at = s.renewed_at
       WHERE w.state <> {DEAD} FOR UPDATE OF w SKIP LOCKED)
    """
# If another process has written meanwhile, its value is enough for now.
WATCH: Final = """
    INSERT INTO daybell.watch AS w (n, watched) VALUES (1, $2)
    ON CONFLICT (n) DO UPDATE SET watched = excluded.watched WHERE w.watched = $1
    """
# Leases of dead workers, and of workers without a row; first those that hold nothing more.
IS_ORPHAN: Final = f"""NOT EXISTS (
      SELECT FROM daybell.worker w
       WHERE w.tenant IN (l.tenant, {SHARED_KEY}) AND w.id = l.worker AND w.state <> {DEAD})"""
ANY_LOST: Final = f"""
    SELECT daybell.now() AS now,
           (SELECT watched FROM daybell.watch) AS watched,
           EXISTS (SELECT FROM daybell.worker
                    WHERE state <> {DEAD} AND lease_until < (SELECT daybell.now()))
        OR EXISTS (SELECT FROM daybell.lease l WHERE {IS_ORPHAN}) AS is_any,
           EXISTS (SELECT FROM daybell.parked)
        OR EXISTS (SELECT FROM daybell.run WHERE is_blocked) AS is_any_waiting,
           EXISTS (SELECT FROM daybell.wait WHERE timeout_at <= (SELECT daybell.now()))
               AS is_any_overdue
    """
# A worker that is frozen within the transaction of a task would have the next attempt wait for
# the rows it has locked. Sessions of other roles are left alone if the server would refuse.
END_SESSIONS: Final = f"""
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
     WHERE starts_with(a.application_name, '{TASK_SESSION}') AND a.datname = current_database()
       AND EXISTS (SELECT FROM daybell.worker w WHERE w.state = {DEAD}
                      AND w.id::text = substr(a.application_name, {len(TASK_SESSION) + 1}))
       AND (pg_has_role(a.usesysid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE')
            AND NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.oid = a.usesysid))
    """
END_EMPTY: Final = f"""
    DELETE FROM daybell.lease l WHERE {IS_ORPHAN} AND NOT EXISTS (
      SELECT FROM {IN_LEASE})
    """
LOST: Final = f"""
    WITH l AS MATERIALIZED (
      SELECT l.*, w.renewed_at, w.sole, w.is_excused FROM daybell.lease l
        LEFT JOIN daybell.worker w ON w.tenant IN (l.tenant, {SHARED_KEY}) AND w.id = l.worker
       WHERE {IS_ORPHAN})
    SELECT {CLAIMED_COLUMNS}, l.id AS lease, l.worker, v.tenant, j.definition,
           v.started_at, l.renewed_at, l.sole,
           -- The row of a worker goes only after all that it held.
           coalesce(l.is_excused, false) AS is_excused
      FROM l, {IN_LEASE}
      JOIN daybell.job_version j ON j.job = v.job AND j.version = v.version
     LIMIT $1
    """


async def lost(
    pg: StoreContext,
    *,
    limit: int = 1000,
    since: Instant = -inf,
    not_after: Instant = inf,
    record_every: Seconds = inf,
) -> Losses:
    check_limit(limit)
    async with pg.autocommit() as tx:
        look = await tx.fetchrow(ANY_LOST)
        assert look is not None, "a SELECT without FROM has one row"
        now, is_even = look["now"], look["now"] <= not_after
        known = Watch.from_json(look["watched"])
        watch = known.seen(now, since=since, every=record_every) if is_even else UNWATCHED
        if watch != known:
            await tx.execute(WATCH, look["watched"], watch.to_json())
        found: list[Lost] = []
        if look["is_any"]:  # nearly never: usually one cheap check is enough
            if is_even:
                await _bury(tx, watch, since, now)
            await tx.execute(END_SESSIONS)
            await tx.execute(END_EMPTY)
            found = await _lost_from(tx, await tx.fetch(LOST, limit))
    return Losses(
        now=now,
        executions=found,
        is_any_waiting=look["is_any_waiting"],
        is_any_overdue=look["is_any_overdue"],
    )


async def _bury(tx: Tx, watch: Watch, since: Instant, now: Instant) -> None:
    """Mark workers as dead if their lease has ended in watched time."""
    silent = [
        row
        for row in await tx.fetch(SILENT, now)
        if watch.silence(row["renewed_at"], now, since=since)
        > row["lease_until"] - row["renewed_at"]
    ]
    if silent:
        columns = ("tenant", "id", "renewed_at")
        await tx.execute(BURY, *([row[name] for row in silent] for name in columns))


async def _lost_from(tx: Tx, rows: Sequence[Row]) -> list[Lost]:
    definitions = {row["definition"]: JobDefinition.from_json(row["definition"]) for row in rows}
    found: list[Lost] = []
    for row in rows:
        tenant = await tx.pg.names.tenant_name(tx, row["tenant"])
        [claimed] = await claimed_from(tx, tenant, [row])
        definition = definitions[row["definition"]]
        found.append(
            Lost(
                worker=row["worker"],
                claimed=claimed,
                max_crashes=definition.crashes_allowed,
                retry=definition.on_lost == "retry",
                ran=_ran(row),
                is_sole=row["sole"] == claimed.id,
                is_excused=row["is_excused"],
            )
        )
    return found


LIST: Final = f"""
    SELECT w.*, (SELECT count(*) FROM daybell.lease l, {IN_LEASE}
                  WHERE l.tenant = $1 AND l.worker = w.id) AS running,
           CASE WHEN w.tenants IS NOT NULL THEN (
             SELECT count(*) FROM daybell.lease l, {IN_LEASE} WHERE l.worker = w.id) END AS busy
      FROM daybell.worker w WHERE {SERVES} AND (w.state <> $2 OR $3)
     ORDER BY w.started_at, w.id
    """


async def list_workers(
    pg: StoreContext, tenant: str, *, include_dead: bool = False
) -> list[Worker]:
    rows = await pg.fetch(tenant, LIST, DEAD, include_dead)
    return [_worker(row, tenant) for row in rows]


OFFERS: Final = f"""
    SELECT DISTINCT queues, kinds, tasks, labels, resources FROM daybell.worker w
     WHERE {SERVES} AND state = {LIVE} AND lease_until > daybell.now()
    """


async def offers(pg: StoreContext, tenant: str) -> list[Offer]:
    rows = await pg.fetch(tenant, OFFERS)
    return [
        Offer(
            queues=tuple(row["queues"]),
            kinds=tuple(row["kinds"]),
            tasks=_tasks(row["tasks"]),
            site=Site(
                labels=msgspec.json.decode(row["labels"], type=dict[str, str]),
                resources=msgspec.json.decode(row["resources"], type=dict[str, float]),
            ),
        )
        for row in rows
    ]


def _worker(row: Row, tenant: str) -> Worker:
    others: dict[str, Any] = {
        "tenant": tenant,
        "queues": tuple(row["queues"]),
        "kinds": tuple(row["kinds"]),
        "labels": msgspec.json.decode(row["labels"], type=dict[str, str]),
        "resources": msgspec.json.decode(row["resources"], type=dict[str, float]),
        "state": WORKER_STATES[row["state"]],
        "tasks": _tasks(row["tasks"]),
        "is_shared": row["tenants"] is not None,
        "busy": row["busy"] or 0,
    }
    plain = {name: row[name] for name in Worker.__struct_fields__ if name not in others}
    return Worker(**plain, **others)


# Tenants with work, for a worker that serves several. Shares and limits are a reason to claim, as a
# claim moves work on. Lanes of shares are as many as keys, and left out.
TENANT_WORK: Final = """
    SELECT t.name, t.weight, daybell.now() AS now,
           CASE WHEN EXISTS (SELECT FROM daybell.bucket b WHERE b.tenant = t.key)
                  OR EXISTS (SELECT FROM daybell.lane l JOIN daybell.share s ON s.entry = l.key
                              WHERE l.tenant = t.key AND l.queue = ANY($2::text[])
                                AND l.ordered IS NOT NULL)
                THEN daybell.now()
                ELSE (SELECT min(x.run_at)
                        FROM daybell.lane l, unnest($3::smallint[]) p(priority), LATERAL (
                          SELECT a.run_at FROM daybell.agenda a
                           WHERE a.lane = l.key AND a.priority = p.priority
                           ORDER BY a.run_at, a.id LIMIT 1) x
                       WHERE l.tenant = t.key AND l.queue = ANY($2::text[])
                         AND NOT starts_with(l.needs, 'shares:')) END AS next_at
      FROM daybell.tenant t WHERE $1::text[] = '{}' OR t.name = ANY($1::text[])
     ORDER BY t.key
    """


async def list_tenant_work(
    pg: StoreContext, tenants: Sequence[str], *, queues: Sequence[str]
) -> list[TenantWork]:
    async with pg.db.link() as link:
        rows = await link.fetch(TENANT_WORK, list(tenants), list(queues), list(PRIORITIES))
    return [
        TenantWork(tenant=row["name"], weight=row["weight"], now=row["now"], next_at=row["next_at"])
        for row in rows
    ]


def _ran(row: Row) -> Seconds | None:
    began, renewed_at = row["started_at"], row["renewed_at"]
    return None if began is None else max(0.0, (renewed_at or began) - began)


def _tasks(kept: str | None) -> dict[str, str] | None:
    return None if kept is None else msgspec.json.decode(kept, type=dict[str, str])


def _renewal(row: Row) -> Renewal:
    return Renewal(
        now=row["renewed_at"], lease_until=row["lease_until"], state=WORKER_STATES[row["state"]]
    )

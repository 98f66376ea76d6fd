"""Workflow runs: start, progress after a restart, rerun, and reading."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.checks import check_batch
from daybell.core.execution import TERMINAL, Claimed, Enqueued, Execution, NewExecution
from daybell.core.lifecycle import after_cancel
from daybell.core.workflow.restart import restart
from daybell.core.workflow.run import Plan, RunDetail, Spec
from daybell.errors import Unavailable
from daybell.store.codec import STATES
from daybell.store.postgres.connection import SNAPSHOT, Row
from daybell.store.postgres.context import AfterCommit, StoreContext, Tx
from daybell.store.postgres.enqueue import STALE_TRIES, enqueue_on, notify_enqueued, resolve
from daybell.store.postgres.gates import charge
from daybell.store.postgres.names import Outdated, Specs
from daybell.store.postgres.progress import (
    HAS_ROOM,
    advance_run,
    after_commit,
    all_nodes,
    follow_up,
    keep_run,
    lock_links_of,
    lock_runs,
    stop_run,
    take_over,
)
from daybell.store.postgres.queue import (
    HELD,
    IS_HELD,
    apply,
    count_by_lease,
    fence_columns,
    settle_leases,
)
from daybell.store.postgres.run_rows import (
    NODE_COLUMNS,
    RUN_COLUMNS,
    LockedRun,
    NodeRow,
    add_nodes,
    read_node,
    read_run,
)
from daybell.store.postgres.views import LIVE_STATE, WITH, get_execution
from daybell.store.run_driver import (
    ExecutionStatus,
    check_level,
    is_run_over,
    restart_refusal,
    view_node,
)
from daybell.store.timeouts import pace_of

logger = logging.getLogger("daybell.store")

_read_spec = msgspec.json.Decoder(Spec).decode


async def expand(
    pg: StoreContext, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan
) -> bool:
    key = await pg.names.prepare_lanes(tenant, _lanes(claimed, plan))
    with pg.db.at_pace(pace_of(len(plan.nodes))):
        after = AfterCommit()
        is_made = await pg.db.settled(lambda: _expand(pg, after, key, worker, claimed, plan))
    if is_made is None:
        return not await apply(pg, tenant, worker=worker, transitions=[after_cancel(claimed)])
    if is_made:
        settle_leases(pg, worker, {claimed.lease: 1})
        await after_commit(pg, after, key)
    return is_made


# From here on no worker holds the run, as its state shows: see IS_HELD.
EXPAND: Final = f"""
    WITH {HELD}
    UPDATE daybell.live v
       SET state = 5, started_at = daybell.now(), progress = NULL, note = NULL, reason = NULL
     WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
       AND v.cancel_requested_at IS NULL
    RETURNING v.job, v.version, v.lane, v.priority, v.gate, v.schedule, v.parent, v.node,
              v.scheduled_for, v.started_at AS now
    """
IS_CANCELLED: Final = f"""
    WITH {HELD}
    SELECT v.cancel_requested_at IS NOT NULL FROM daybell.live v
     WHERE v.tenant + 0 = $1 AND v.id = ANY($4::uuid[]) AND {IS_HELD}
    """
BEGIN_AGAIN: Final = """
    UPDATE daybell.run SET finished_at = NULL WHERE id = $2 AND tenant = $1
    """


async def _expand(
    pg: StoreContext, after: AfterCommit, tenant: int, worker: UUID, claimed: Claimed, plan: Plan
) -> bool | None:
    """Begin a run. Return None if it is to be cancelled instead."""
    leases = count_by_lease([claimed])
    guard = (tenant, worker, list(leases), *fence_columns([claimed], leases))
    async with pg.transaction(after=after) as tx:
        _, held = await lock_links_of(tx, tenant, "live", [claimed.id], [claimed.id])
        row = await tx.fetchrow(EXPAND, *guard)
        if row is None:
            is_cancelled = await tx.fetchval(IS_CANCELLED, *guard)
            return None if is_cancelled else False
        if claimed.id in held:  # it was put back, and continues from its state
            await tx.execute(BEGIN_AGAIN, tenant, claimed.id)
            one = held[claimed.id]
            held[claimed.id] = replace(one, run=replace(one.run, is_todo=True), is_finished=False)
        else:
            held[claimed.id] = await _begin(tx, tenant, claimed.id, row, held, plan)
        await follow_up(tx, tenant, (), held, {claimed.id: ()})
    return True


async def _begin(
    tx: Tx,
    tenant: int,
    id: UUID,
    row: Row,
    held: dict[UUID, LockedRun],
    plan: Plan,
) -> LockedRun:
    """Store the nodes of a run that did not exist before."""
    run = plan.run(id)
    around = None if row["node"] is None else held.get(row["parent"])
    depth = 0 if around is None else around.depth + 1
    check_level(depth + 1)
    parent = None if around is None else row["parent"]
    await keep_run(tx, tenant, run, row, depth=depth, parent=parent)
    await add_nodes(tx, tenant, [NodeRow(id, new.node, None, new) for new in plan.nodes])
    return LockedRun.of(run, row, depth=depth)


# Runs with something to do; runs that a process that is gone was to stop. Few executions are being
# cancelled: `+ 0` keeps off the index of all that run. Last come runs for which there is room in
# their tenant's quota by now.
UNFINISHED: Final = f"""
    (SELECT tenant, id, false AS is_stopping FROM daybell.run WHERE is_todo ORDER BY id LIMIT $1)
    UNION ALL
    (SELECT r.tenant, r.id, true FROM daybell.run r
      WHERE r.stopping = 'cancel' AND r.finished_at IS NULL AND EXISTS (
            SELECT FROM daybell.live v WHERE v.parent = r.id AND v.tenant = r.tenant
               AND v.node IS NOT NULL AND v.cancel_requested_at IS NULL)
      ORDER BY r.id LIMIT $1)
    UNION ALL
    (SELECT r.tenant, r.id, true
       FROM (SELECT v.id, v.tenant FROM daybell.live v
              WHERE v.cancel_requested_at IS NOT NULL AND v.state + 0 = 5) v,
            LATERAL (SELECT r.tenant, r.id, r.stopping FROM daybell.run r
                      WHERE r.id = v.id AND r.tenant = v.tenant LIMIT 1) r
      WHERE r.stopping IS DISTINCT FROM 'cancel' LIMIT $1)
    UNION ALL
    (SELECT b.tenant, r.id, NULL
       FROM (SELECT DISTINCT tenant FROM daybell.run WHERE is_blocked) b,
            LATERAL (SELECT FROM daybell.tenant t WHERE t.key = b.tenant AND {HAS_ROOM} OFFSET 0) t,
            LATERAL (SELECT id FROM daybell.run WHERE is_blocked AND tenant = b.tenant
                      ORDER BY id LIMIT $1) r)
    """


async def advance_runs(pg: StoreContext, limit: int) -> int:
    async with pg.db.link() as link:
        rows = await link.fetch(UNFINISHED, limit)
    found = {(row["tenant"], row["id"]): row["is_stopping"] for row in rows}
    advanced, after = 0, AfterCommit()
    for (tenant, run), is_stopping in list(found.items())[:limit]:
        try:
            if is_stopping:
                await stop_run(pg, after, tenant, run)
            elif await advance_run(pg, after, tenant, run, wait=False) is None:
                continue
        except Unavailable:
            raise
        except Exception:
            # A run that cannot go on must not stop the others.
            logger.exception("run %s cannot go on", run)
            continue
        advanced += is_stopping is not None  # others may have taken the room
    after.continue_runs.clear()  # the next call continues them
    await after_commit(pg, after, None)
    return advanced


RUN: Final = f"SELECT {RUN_COLUMNS} FROM daybell.run r WHERE r.id = $2 AND r.tenant = $1"
NODES: Final = f"""
    SELECT {NODE_COLUMNS}, n.result FROM daybell.node n
     WHERE n.run = $2 AND n.tenant = $1 AND n.of IS NULL ORDER BY n.place
    """
STARTED_NODES: Final = f"""{WITH}
    SELECT v.id, {LIVE_STATE} AS state, v.started_at, v.run_at, v.reason FROM daybell.live v
     WHERE v.parent = $2 AND v.tenant + 0 = $1 AND v.node IS NOT NULL
    """


async def get_run(pg: StoreContext, tenant: str, id: UUID) -> RunDetail | None:
    async with pg.db.transaction(SNAPSHOT) as link:
        key = await pg.names.tenant(link, tenant)
        row = await link.fetchrow(RUN, key, id)
        if row is None:
            return None
        nodes = await link.fetch(NODES, key, id)
        started = await link.fetch(STARTED_NODES, key, id) if row["running"] else []
    executions: dict[UUID, ExecutionStatus] = {
        id: ExecutionStatus(STATES[state], *rest) for id, state, *rest in started
    }
    return RunDetail(
        read_run(row),
        tuple(view_node(read_node(one), one["result"], executions) for one in nodes),
        row["finished_at"] if row["unended"] == 0 else None,
    )


async def rerun(
    pg: StoreContext,
    tenant: str,
    id: UUID,
    new: NewExecution,
    *,
    labels: Sequence[str] | None = None,
) -> Enqueued:
    old = await get_execution(pg, tenant, id)
    new = replace(new, job=old.execution.job)
    check_batch([new])
    for _ in range(STALE_TRIES):
        specs = await resolve(pg, tenant, [new], fresh=True)
        after = AfterCommit()
        with suppress(Outdated):
            answer = await pg.db.settled(
                partial(_rerun, pg, after, specs, old.execution, new, labels)
            )
            await notify_enqueued(pg, after, specs)
            return answer
    raise Unavailable("this job changes faster than it can be enqueued; try again")


TAKE_VERSION: Final = """
    UPDATE daybell.live SET version = $3 WHERE id = $2 AND tenant + 0 = $1
    RETURNING job, version, lane, priority, gate, schedule, parent, node
    """


async def _rerun(
    pg: StoreContext,
    after: AfterCommit,
    specs: Specs,
    old: Execution,
    new: NewExecution,
    labels: Sequence[str] | None,
) -> Enqueued:
    tenant = specs.tenant
    async with pg.transaction(after=after) as tx:
        (answer,) = await enqueue_on(tx, specs, [new], repeat=True)
        held = (await lock_runs(tx, tenant, [old.id])).get(old.id)
        if held is None or old.state not in TERMINAL or not is_run_over(held.run):
            raise restart_refusal(old.id, old.state)
        nodes = await all_nodes(tx, tenant, old.id)
        again = restart(held.run, nodes, labels=labels, id=new.id)
        if new.id in specs.made:
            row = await tx.fetchrow(TAKE_VERSION, tenant, new.id, old.version)
            await take_over(tx, tenant, old.id, again, row)
            if (await pg.names.quotas(tx, tenant)).limits_enqueues:
                await charge(tx, tenant, len(specs.made))
    return answer


def _lanes(claimed: Claimed, plan: Plan) -> set[tuple[str, str]]:
    """Return the lanes where the run's own nodes will be queued."""
    specs = (_read_spec(text) for text in {new.spec for new in plan.nodes})
    return {
        (spec.queue or claimed.queue, spec.needs or claimed.kind)
        for spec in specs
        if spec.job is None
    }

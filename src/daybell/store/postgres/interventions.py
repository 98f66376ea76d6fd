"""Ends that no worker makes: cancel, expire, discard; and the way back, revive.

These take several statements and are not on the hot path; each is one transaction, with locks in
the order that `progress.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.execution import Cancellation, Revival, State
from daybell.core.lifecycle import EXPIRED
from daybell.core.units import Instant
from daybell.core.views import KeepPolicies, Terms
from daybell.errors import Unavailable
from daybell.store.postgres.context import WORKERS, AfterCommit, StoreContext, Tx
from daybell.store.postgres.enqueue import STALE_TRIES
from daybell.store.postgres.gates import (
    ANY_TIMED_OUT,
    admit_gates,
    mark_lanes_claimable,
    notify_claimable,
    queued_room,
    time_out_waits,
)
from daybell.store.postgres.names import ENDED, IN_HISTORY, Outdated
from daybell.store.postgres.progress import (
    FIND_UNFINISHED,
    after_commit,
    end_pending,
    fetch_ids,
    lock_links_of,
    request_cancel,
    reset_runs,
    stop_run,
)


class CancelResult(NamedTuple):
    """The executions that a transaction has found and cancelled, of one tenant."""

    tenant: int
    live: set[UUID]
    pending: set[UUID]  # of those: cancelled at once
    ended: set[UUID]
    runs: list[UUID]  # to be stopped after the commit


async def cancel(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
    if not ids:
        async with pg.db.link() as link:
            await pg.names.tenant(link, tenant)
        return []
    wanted = sorted(set(ids))
    after = AfterCommit()
    done = await pg.db.settled(lambda: _cancel(pg, after, tenant, wanted))
    await after_commit(pg, after, done.tenant)
    if done.live - done.pending:
        pg.notifier.touch(done.tenant, [WORKERS])
    over = await _stop_runs(pg, done.tenant, done.runs) if done.runs else set[UUID]()

    def answer(id: UUID) -> Cancellation:
        if id in done.pending or id in over:
            return Cancellation.CANCELLED
        if id in done.live:
            return Cancellation.REQUESTED
        return Cancellation.FINISHED if id in done.ended else Cancellation.UNKNOWN

    return [answer(id) for id in ids]


ENDED_IDS: Final = f"""
    SELECT id FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT h.id FROM unnest($2::uuid[]) u(id), {IN_HISTORY}
    """


async def _cancel(
    pg: StoreContext, after: AfterCommit, tenant: str, ids: list[UUID]
) -> CancelResult:
    """Cancel in one transaction. The work after its commit is not repeated with it: executions that
    a first try has cancelled would be taken for finished.
    """
    async with pg.transaction(after=after) as tx:
        key = await pg.names.tenant(tx, tenant)
        live, pending = await end_pending(tx, key, ids, State.CANCELLED)
        runs = await request_cancel(tx, key, live - pending)
        ended = await fetch_ids(tx, ENDED_IDS, key, [id for id in ids if id not in live])
        if not live:
            pg.db.skip_entry()
    return CancelResult(key, live, pending, ended, runs)


async def _stop_runs(pg: StoreContext, tenant: int, runs: list[UUID]) -> set[UUID]:
    """Stop expanded runs. Return those that are over with it, because no part of them ran."""
    after = AfterCommit()
    for run in runs:
        await stop_run(pg, after, tenant, run)
    await after_commit(pg, after, tenant)
    async with pg.db.link() as link:
        return {*runs} - await fetch_ids(link, FIND_UNFINISHED, tenant, runs)


# Expired executions that have not started. The subselect, unlike the function itself, can be looked
# up in the index.
EXPIRED_EXECUTIONS: Final = f"""
    SELECT tenant, array_agg(id ORDER BY id) AS ids
      FROM (SELECT tenant, id FROM daybell.live
             WHERE expires_at <= (SELECT daybell.now()) AND started_at IS NULL
             ORDER BY expires_at LIMIT $1) e
     GROUP BY tenant
     UNION ALL {ANY_TIMED_OUT}
    """


async def expire(pg: StoreContext, limit: int) -> int:
    async with pg.db.link() as link:
        rows = await link.fetch(EXPIRED_EXECUTIONS, limit)
    ended = 0
    for tenant, ids in rows:
        if tenant is None:
            ended += await time_out_waits(pg, limit=limit)
        else:
            ended += await pg.db.settled(partial(_expire, pg, tenant, ids))
    return ended


async def _expire(pg: StoreContext, tenant: int, ids: Sequence[UUID]) -> int:
    async with pg.transaction() as tx:
        _, ended = await end_pending(tx, tenant, ids, State.SKIPPED, EXPIRED)
    await after_commit(pg, tx.after, tenant)
    return len(ended)


# In the order asked for: of two that want the same unique key, the first gets it.
REVIVE: Final = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    k AS MATERIALIZED (
      SELECT d.* FROM unnest($2::uuid[]) WITH ORDINALITY u(id, place)
        JOIN daybell.dead d ON d.tenant + 0 = $1 AND d.id = u.id ORDER BY place),
    l AS (
      INSERT INTO daybell.live (tenant, job, version, lane, attempt, priority, id, args, unique_key,
             gate, retries, timeout, scheduled_for, expires_at, schedule, parent, checkpoint,
             created_at, run_at, state, error, reason)
      SELECT tenant, job, version,
             coalesce((SELECT l.entry FROM daybell.lane l WHERE l.key = k.lane), k.lane),
             attempt + 1, priority, id, args, unique_key, gate, retries, timeout, scheduled_for,
             NULL, schedule, parent, checkpoint, created_at,
             t.now, CASE WHEN gate IS NULL THEN 1 ELSE 4 END, error,
             CASE WHEN starts_with(gate, 'job:') THEN 'overlap'
                  WHEN gate IS NOT NULL THEN 'gate' END
        FROM t, k
      ON CONFLICT DO NOTHING RETURNING id, run_at, lane, priority, gate),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM l WHERE gate IS NULL),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT $1, gate, priority, run_at, id FROM l WHERE gate IS NOT NULL),
    h AS (
      INSERT INTO daybell.attempt
             (tenant, id, attempt, outcome, worker, started_at, ended_at, error, log, run_at,
              created_at, job, lane, ended_by)
      SELECT k.tenant, k.id, k.attempt, k.outcome, k.worker, k.started_at, k.finished_at, k.error,
             k.log, k.run_at, k.created_at, k.job, k.lane, k.ended_by
        FROM k JOIN l USING (id) WHERE k.outcome IS NOT NULL)
    DELETE FROM daybell.dead d USING l WHERE d.tenant + 0 = $1 AND d.id = l.id
    RETURNING d.id, CASE WHEN l.gate IS NULL THEN l.lane END AS filled
    """
LOCK_DEAD: Final = """
    SELECT id FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR UPDATE
    """


async def revive(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
    for _ in range(STALE_TRIES):
        with suppress(Outdated):
            return await pg.db.settled(lambda: _revive(pg, tenant, ids))
    raise Unavailable("others take the room in this tenant's quota faster; try again")


async def _revive(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
    distinct = list(dict.fromkeys(ids))
    async with pg.transaction() as tx:
        key = await pg.names.tenant(tx, tenant)
        gates, held = await lock_links_of(tx, key, "dead", distinct, distinct)
        dead = await fetch_ids(tx, LOCK_DEAD, key, distinct)
        wanted = [id for id in distinct if id in dead]
        revived, over = await _bring_back(tx, key, wanted)
        await reset_runs(tx, key, held, revived)
        await admit_gates(tx, key, gates)
        others = [id for id in distinct if id not in dead]
        known = await fetch_ids(tx, ENDED_IDS, key, others)
        known |= await fetch_ids(tx, FIND_UNFINISHED, key, others)
        if not revived:
            pg.db.skip_entry()
        elif (await queued_room(tx, key, lock=True) or 0) < 0:
            raise Outdated  # another transaction has taken the room
    notify_claimable(pg, tx.after)

    def answer(id: UUID) -> Revival:
        if id in revived:
            return Revival.REVIVED
        if id in over:
            return Revival.OVER_QUOTA
        if id in dead:
            return Revival.KEY_HELD
        return Revival.NOT_LISTED if id in known else Revival.UNKNOWN

    return [answer(id) for id in ids]


async def _bring_back(tx: Tx, key: int, dead: list[UUID]) -> tuple[set[UUID], set[UUID]]:
    """Revive as many of these as there is room for; return them, and those without room. Those with
    a held key take no room.
    """
    room = await queued_room(tx, key)
    if room is None:
        return await _revive_some(tx, key, dead), set()
    revived, left = set[UUID](), dead
    while left and room > len(revived):
        size = room - len(revived)
        revived |= await _revive_some(tx, key, left[:size])
        left = left[size:]
    return revived, set(left)


async def _revive_some(tx: Tx, key: int, dead: list[UUID]) -> set[UUID]:
    rows = await tx.fetch(REVIVE, key, dead) if dead else []
    lanes = {row["filled"] for row in rows if row["filled"] is not None}
    await mark_lanes_claimable(tx, key, lanes)
    return {row["id"] for row in rows}


DISCARD: Final = f"""
    WITH d AS (DELETE FROM daybell.dead WHERE tenant + 0 = $1 AND id = ANY($2::uuid[]) RETURNING *)
    INSERT INTO daybell.history ({ENDED}, ended_by) SELECT {ENDED}, ended_by FROM d RETURNING id
    """


async def discard(pg: StoreContext, tenant: str, ids: Sequence[UUID]) -> list[bool]:
    async with pg.db.link() as link:
        key = await pg.names.tenant(link, tenant)
        discarded = await fetch_ids(link, DISCARD, key, sorted(set(ids)))
    return [id in discarded for id in ids]


# By an index of the job or of the tenant.
OLD_DEAD_LETTERS: Final = """
    SELECT d.tenant, d.id FROM (
      SELECT d.* FROM unnest($1::int[], $2::float8[]) u(job, before), LATERAL (
        SELECT d.tenant, d.id FROM daybell.dead d WHERE d.job = u.job AND d.finished_at < u.before
         ORDER BY d.finished_at LIMIT $6) d
      UNION ALL
      SELECT d.* FROM unnest($3::int[], $4::float8[]) u(tenant, before), LATERAL (
        SELECT d.tenant, d.id FROM daybell.dead d
         WHERE d.tenant = u.tenant AND d.finished_at < u.before AND d.job <> ALL($5::int[])
         ORDER BY d.finished_at LIMIT $6) d) d
     LIMIT $6
    """


async def discard_old(tx: Tx, policies: KeepPolicies, now: Instant, limit: int) -> int:
    """Discard dead letters that are older than their policies keep them."""

    def cut(terms: Mapping[int, Terms]) -> tuple[list[int], list[float]]:
        ages = {n: one.dead_letters for n, one in terms.items()}
        due = {n: now - age for n, age in ages.items() if age is not None}
        return list(due), list(due.values())

    jobs, tenants = cut(policies.jobs), cut(policies.tenants)
    rows = await tx.fetch(OLD_DEAD_LETTERS, *jobs, *tenants, list(policies.jobs), limit)
    for tenant in {row["tenant"] for row in rows}:
        ids = sorted(row["id"] for row in rows if row["tenant"] == tenant)
        await fetch_ids(tx.link, DISCARD, tenant, ids)
    return len(rows)

"""Jobs that depend on jobs: what waits, and how the others stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from daybell.core.dependencies import (
    DEPENDENCIES,
    LOOKED_AT_MAX,
    UPSTREAM_FAILED,
    Dependent,
    Dependents,
    Ended,
    Upstream,
    Waiting,
    read_fields,
)
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP
from daybell.store.checks import check_limit
from daybell.store.codes import STATES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.continuing import Continuing
from daybell.store.postgres.pending import ids_of
from daybell.store.postgres.schedules import COLUMNS, read_schedule

# When it was to begin. Once an attempt has ended, only its creation tells.
DUE: Final = "coalesce(scheduled_for, CASE WHEN attempt = 1 THEN run_at ELSE created_at END)"
# Skipped by the job's overlap rule is what does not count; another execution was in its way.
COUNTS: Final = f"node IS NULL AND (state <> 9 OR reason IS DISTINCT FROM '{OVERLAP}')"
# Due at another time than that of its creation. Only these are in the index by due time, so what
# is enqueued to run at once does not pay for it. In this text the index has them, see 0011.
TIMED: Final = "(scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at)"
LATEST: Final = "ORDER BY due DESC, id DESC LIMIT 1"
LAST: Final = "ORDER BY finished_at DESC, id DESC LIMIT 1"

NO_ID: Final = UUID(int=0)


class Depending(Continuing):
    """See `protocol.Dependencies`."""

    # Most often there are none, and this is all that is asked.
    ANY_DEPENDENTS = f"""
    SELECT daybell.now() AS now,
           EXISTS (SELECT FROM daybell.schedule WHERE since IS NOT NULL AND NOT is_paused) AS fire,
           EXISTS (SELECT FROM daybell.live WHERE state = 4 AND reason = '{DEPENDENCIES}') AS wait
    """
    DEPENDENT_SCHEDULES = COLUMNS.replace(
        "SELECT s.tenant",
        "SELECT (SELECT v.definition FROM daybell.job_version v"
        " WHERE v.job = j.key AND v.version = j.version) AS definition, s.tenant",
    ) + (
        " WHERE s.since IS NOT NULL AND NOT s.is_paused AND j.deleted_at IS NULL"
        " AND ($1::uuid IS NULL OR s.id > $1) ORDER BY s.id LIMIT $2"
    )
    # The bound on the id makes the index of these the cheapest, also if both are empty.
    DEPENDENT_EXECUTIONS = f"""
    SELECT v.tenant, v.id, j.name, coalesce(v.scheduled_for, v.run_at) AS at,
           (SELECT d.definition FROM daybell.job_version d
             WHERE d.job = j.key AND d.version = j.version) AS definition
      FROM daybell.live v JOIN daybell.job j ON j.key = v.job
     WHERE v.state = 4 AND v.reason = '{DEPENDENCIES}' AND v.run_at <= (SELECT daybell.now())
       AND v.id > coalesce($1::uuid, '{NO_ID}') ORDER BY v.id LIMIT $2
    """

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        check_limit(limit)
        schedules: list[Dependent] = []
        waiting: list[Waiting] = []
        async with self.db.link() as link:
            found = await link.fetchrow(self.ANY_DEPENDENTS)
            assert found is not None
            if found["fire"]:
                for row in await link.fetch(self.DEPENDENT_SCHEDULES, after, limit):
                    tenant = await self.names.tenant_name(link, row["tenant"])
                    schedules.append(_dependent(row, tenant))
            if found["wait"]:
                for row in await link.fetch(self.DEPENDENT_EXECUTIONS, after, limit):
                    tenant = await self.names.tenant_name(link, row["tenant"])
                    waiting.append(_waiting(row, tenant))
        return Dependents(now=found["now"], schedules=tuple(schedules), waiting=tuple(waiting))

    UPSTREAM_JOBS = """
    SELECT name, key FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL
    """

    async def _keys(self, link: Link, tenant: str, names: Sequence[str]) -> list[int | None]:
        owner = await self.names.tenant(link, tenant)
        rows = await link.fetch(self.UPSTREAM_JOBS, owner, sorted(set(names)))
        keys = {row["name"]: row["key"] for row in rows}
        return [keys.get(name) for name in names]

    # There is no index by end for what has succeeded: everybody would pay for it. So the newest are
    # looked at, and the rest only if asked for. What has failed is found by its end.
    ENDED_SINCE = f"""
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
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        times = [since for _, since in jobs]
        async with self.db.link() as link:
            keys = await self._keys(link, tenant, [name for name, _ in jobs])
            rows = await link.fetch(self.ENDED_SINCE, keys, times, thoroughly)
        return [
            Ended(
                succeeded_at=row["succeeded_at"],
                ended_at=row["ended_at"],
                state=None if row["state"] is None else STATES[row["state"]],
            )
            for row in rows
        ]

    # `n` had a time of its own and is found by it; `p` had none, was created later than that, and
    # is the newest; `e` is the later of the two; `v`, which is unfinished, was due after it.
    # Running or queued makes no difference here: what is unfinished has any of their states. The
    # sum keeps the state out of an index of all jobs.
    UPSTREAM = f"""
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
        SELECT created_at AS due, id, state FROM daybell.history
         WHERE job = u.job AND {COUNTS} AND NOT {TIMED} AND created_at <= u.at
           AND created_at >= coalesce(n.due, '-Infinity')
           AND finished_at >= coalesce(n.due, '-Infinity') ORDER BY id DESC LIMIT 1) p ON true
      LEFT JOIN LATERAL (
        SELECT * FROM (VALUES (n.due, n.id, n.state), (p.due, p.id, p.state)) x(due, id, state)
         WHERE id IS NOT NULL {LATEST}) e ON true
      LEFT JOIN LATERAL (
        SELECT state FROM daybell.live
         WHERE job = u.job AND node IS NULL AND {DUE} <= u.at
           AND (e.id IS NULL OR ({DUE}, id) > (e.due, e.id)) ORDER BY id LIMIT 1) v ON true
     ORDER BY u.place
    """

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        async with self.db.link() as link:
            keys = await self._keys(link, tenant, [name for name, _ in jobs])
            rows = await link.fetch(self.UPSTREAM, keys, [at for _, at in jobs])
        return [
            Upstream(
                state=None if row["state"] is None else STATES[row["state"]],
                has_newer_success=row["has_newer"],
                has_newer_failure=row["has_failed"],
                is_behind=row["is_behind"],
            )
            for row in rows
        ]

    STILL_WAITING = f"""
    SELECT id, gate FROM daybell.live WHERE tenant + 0 = $1 AND id = ANY($2::uuid[])
       AND state = 4 AND reason = '{DEPENDENCIES}' ORDER BY id
    """
    # Who is parked has no slot, and waits for one now. With the gates locked nobody is let in
    # meanwhile. run_at is raised to now for the others, as when a gate admits.
    RELEASE = f"""
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

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        async def work() -> int:
            async with self.db.transaction() as link:
                owner = await self.names.tenant(link, tenant)
                waiting = await link.fetch(self.STILL_WAITING, owner, list(ids))
                gates = {row["gate"] for row in waiting if row["gate"] is not None}
                if gates:
                    await self.lock_gates(link, owner, gates)
                rows = await link.fetch(self.RELEASE, owner, [row["id"] for row in waiting])
                lanes = {row["filled"] for row in rows if row["filled"] is not None}
                await self.fill_lanes(link, owner, lanes)
                return len(rows)

        count = await self.db.settled(work)
        self.say_filled()
        return count

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        async def work() -> tuple[int, int]:
            async with self.db.transaction() as link:
                owner = await self.names.tenant(link, tenant)
                await self.lock_links_of(link, owner, "live", ids)
                waiting = await ids_of(link, f"{self.STILL_WAITING} FOR UPDATE", owner, ids)
                _, ended = await self.end_pending(
                    link, owner, sorted(waiting), State.SKIPPED, UPSTREAM_FAILED
                )
                return owner, len(ended)

        owner, count = await self.db.settled(work)
        await self.after_commit(owner)
        return count


def _dependent(row: Row, tenant: str) -> Dependent:
    fields = read_fields(row["definition"])
    schedule = read_schedule(row, tenant)
    return Dependent.of(schedule, fields.dependencies, fields.on_dependency_failure)


def _waiting(row: Any, tenant: str) -> Waiting:
    fields = read_fields(row["definition"])
    return Waiting(
        tenant=tenant,
        id=row["id"],
        job=row["name"],
        at=row["at"],
        dependencies=fields.dependencies,
        on_failure=fields.on_dependency_failure,
    )

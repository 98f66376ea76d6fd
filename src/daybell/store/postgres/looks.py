"""How jobs stand: a few statements for a page of them, however many executions they have."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from daybell.core.execution import LEFT_OUT, Execution, State
from daybell.core.limits import LIST_VALUE_BYTES_MAX
from daybell.core.schedule import Schedule
from daybell.core.standing import LOOKED_AT_MAX, Look
from daybell.store.checks import check_names
from daybell.store.codes import STATES
from daybell.store.postgres.connection import SNAPSHOT, Link
from daybell.store.postgres.schedules import COLUMNS, read_schedule
from daybell.store.postgres.timeouts import Pace
from daybell.store.postgres.views import (
    BY_IDS,
    IDLE_STATE,
    IS_LEASED,
    LISTED,
    WITH,
    WITH_IDS,
    Viewing,
)


class Looking(Viewing):
    """What is seen of jobs, all at one moment."""

    JOB_KEYS = "SELECT key, name FROM daybell.job WHERE tenant = $1 AND name = ANY($2::text[])"

    async def look_at_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Look]:
        check_names(names)
        with self.db.at_pace(Pace.VIEW):
            return await self._look(tenant, names)

    async def _look(self, tenant: str, names: Sequence[str]) -> dict[str, Look]:
        async with self.db.transaction(SNAPSHOT) as link:
            key = await self.names.tenant(link, tenant)
            jobs = {
                row["key"]: row["name"] for row in await link.fetch(self.JOB_KEYS, key, list(names))
            }
            unfinished = await self._unfinished(link, key, list(jobs))
            last = await self._last(link, key, tenant, list(jobs))
            schedules = await self._schedules(link, tenant, list(jobs))
        return {
            name: Look(
                unfinished=frozenset(unfinished.get(job, ())),
                last=last.get(name),
                schedules=tuple(schedules.get(name, ())),
            )
            for job, name in jobs.items()
        }

    JOB_IDS = "SELECT name, id FROM daybell.job WHERE tenant = $1 AND name = ANY($2::text[])"

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        check_names(names)
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.JOB_IDS, key, list(names))
        return {row["name"]: row["id"] for row in rows}

    # The newest unfinished executions of a job, nodes of runs included: the cost does not depend on
    # how many there are. Pairs are compared so that only the order of `live_job` fits: by an
    # equation, a job that seems to have nearly all rows is searched for among those of all jobs.
    NEWEST_LIVE = f"""
      SELECT v.state, v.attempt, v.run_at, v.id, v.node FROM daybell.live v
       WHERE (v.job, v.id) >= (k.job, '{UUID(int=0)}')
         AND (v.job, v.id) <= (k.job, '{UUID(int=2**128 - 1)}')
       ORDER BY v.job DESC, v.id DESC LIMIT {LOOKED_AT_MAX}
    """
    # Of each job, these speak for all. Those that run are few, and all of them are read.
    UNFINISHED_STATES = f"""{WITH}
    SELECT k.job, x.state FROM unnest($2::int[]) k(job), LATERAL (
      SELECT DISTINCT {IDLE_STATE} AS state FROM ({NEWEST_LIVE}) v
       WHERE v.node IS NULL AND (v.state IN (4, 5) OR NOT {IS_LEASED})) x
    UNION
    SELECT v.job, 5 FROM h, LATERAL (
      SELECT v.job, v.node FROM daybell.live v WHERE v.tenant = $1 AND v.id = h.id
         AND v.attempt = h.attempt LIMIT 1) v
     WHERE v.node IS NULL AND v.job = ANY($2::int[])
    """

    async def _unfinished(self, link: Link, tenant: int, jobs: list[int]) -> dict[int, set[State]]:
        found: dict[int, set[State]] = {}
        for row in await link.fetch(self.UNFINISHED_STATES, tenant, jobs):
            found.setdefault(row["job"], set()).add(STATES[row["state"]])
        return found

    # Ids are made in the order of time.
    NEWEST = f"""
    SELECT x.id FROM unnest($1::int[]) k(job), LATERAL (
      SELECT u.id FROM (
        (SELECT v.id FROM ({NEWEST_LIVE}) v WHERE v.node IS NULL ORDER BY v.id DESC LIMIT 1)
        UNION ALL
        (SELECT v.id FROM daybell.dead v WHERE v.job = k.job ORDER BY v.id DESC LIMIT 1)
        UNION ALL
        (SELECT v.id FROM daybell.history v WHERE v.job = k.job AND v.node IS NULL
          ORDER BY v.id DESC LIMIT 1)) u
       ORDER BY u.id DESC LIMIT 1) x
    """

    async def _last(
        self, link: Link, key: int, tenant: str, jobs: list[int]
    ) -> dict[str, Execution]:
        ids: list[UUID] = [row["id"] for row in await link.fetch(self.NEWEST, jobs)]
        rows = await link.fetch(f"{WITH_IDS}SELECT {LISTED} FROM ({BY_IDS}) p", key, ids)
        return {one.job: one for one in await self._executions(link, tenant, rows)}

    LIST_ARGS = f"""
    CASE WHEN octet_length(s.args) > {LIST_VALUE_BYTES_MAX} THEN '{LEFT_OUT}' ELSE s.args END
    """
    SCHEDULES_OF = (
        f"{COLUMNS.replace('s.args', LIST_ARGS)} WHERE s.job = ANY($1::int[]) ORDER BY s.id"
    )

    async def _schedules(
        self, link: Link, tenant: str, jobs: list[int]
    ) -> dict[str, list[Schedule]]:
        found: dict[str, list[Schedule]] = {}
        for row in await link.fetch(self.SCHEDULES_OF, jobs):
            found.setdefault(row["job"], []).append(read_schedule(row, tenant))
        return found

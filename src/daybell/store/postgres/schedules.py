"""Schedules: their cursors, their pauses, and what is on record of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Final
from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.limits import FIRE_BATCH_MAX
from daybell.core.overlap import gate_of
from daybell.core.schedule import (
    Decision,
    Due,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    TickRecord,
    TurnBack,
)
from daybell.errors import JobNotFound, Unavailable, shown
from daybell.store.checks import OCCURRENCES_MAX, check_limit
from daybell.store.codes import DECISION_CODES, DECISIONS, STATES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.enqueue import STALE_TRIES
from daybell.store.postgres.firing import Advancing, by_schedule
from daybell.store.postgres.gates import MAKE_JOB_GATES
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES
from daybell.store.postgres.specs import Outdated, Specs

FIELDS: Final = """
    SELECT s.tenant, s.id, j.name AS job, s.rule, s.next_at, s.name, s.args, s.misfire, s.delay,
           s.is_reboot, s.is_declared, s.is_paused, s.last_at, s.succeeded_for, s.fired, s.skipped,
           s.missed, s.failures, s.since, s.own_gate"""
COLUMNS: Final = f"""{FIELDS}
      FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job"""


class Scheduling(Advancing):
    """Schedules, and firing them."""

    PUT = """
    INSERT INTO daybell.schedule AS s (tenant, id, job, name, rule, args, misfire, next_at, delay,
           is_reboot, pause_after, is_declared, since, own_gate, is_paused, moved_at)
    SELECT $1, u.*, (SELECT paused_at IS NOT NULL FROM daybell.job WHERE key = u.job), daybell.now()
      FROM unnest($2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[],
                  $8::float8[], $9::float8[], $10::boolean[], $11::int[], $12::boolean[],
                  $14::float8[], $15::boolean[])
           u(id, job, name, rule, args, misfire, next_at, delay, is_reboot, pause_after,
             is_declared, since, own_gate)
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
           is_paused = excluded.is_paused, own_gate = excluded.own_gate
    """

    # Shared, so that nobody deletes or pauses a job without seeing the schedules it gets here.
    LOCK_JOBS = """
    SELECT name, key FROM daybell.job
     WHERE tenant = $1 AND name = ANY($2::text[]) AND deleted_at IS NULL ORDER BY name FOR SHARE
    """

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        names = sorted({schedule.job for schedule in schedules})

        async def work() -> None:
            async with self.db.transaction() as link:
                key = await self.names.tenant(link, tenant)
                jobs = {
                    row["name"]: row["key"] for row in await link.fetch(self.LOCK_JOBS, key, names)
                }
                for name in names:
                    if name not in jobs:
                        raise JobNotFound(f"no job named {shown(name)}; define it first")
                await self.write_schedules(link, key, schedules, jobs)

        await self.db.settled(work)
        self.notifier.touch(ALL_TENANTS, [SCHEDULES])

    async def write_schedules(
        self,
        link: Link,
        tenant: int,
        schedules: Sequence[NewSchedule],
        jobs: dict[str, int],
        *,
        keeps_cursors: bool = False,
    ) -> None:
        """Write schedules of these jobs, with the gates that their executions will pass. One that
        says the same as before may keep its cursor.
        """
        latest = {schedule.id: schedule for schedule in schedules}.values()
        await link.execute(MAKE_JOB_GATES, tenant, [gate_of(name) for name in jobs])
        await link.execute(
            self.PUT,
            tenant,
            [schedule.id for schedule in latest],
            [jobs[schedule.job] for schedule in latest],
            [schedule.name for schedule in latest],
            [schedule.rule for schedule in latest],
            [schedule.args for schedule in latest],
            [schedule.misfire for schedule in latest],
            [schedule.next_at for schedule in latest],
            [schedule.delay for schedule in latest],
            [schedule.is_reboot for schedule in latest],
            [schedule.pause_after for schedule in latest],
            [schedule.is_declared for schedule in latest],
            keeps_cursors,
            [schedule.since for schedule in latest],
            [schedule.own_gate for schedule in latest],
        )
        own = {gate_of(schedule.job, schedule.id) for schedule in latest if schedule.own_gate}
        await self._make_own_gates(link, tenant, own)

    async def _make_own_gates(self, link: Link, tenant: int, keys: set[str]) -> None:
        """Make the gates of schedules. One that is there is locked: `remove_gates`, which does not
        see the schedule before this commits, steps over it, or has removed it.
        """
        if keys:
            rows = await link.fetch(MAKE_JOB_GATES, tenant, sorted(keys))
            found = keys - {row["key"] for row in rows}
            if found:
                await self.lock_gates(link, tenant, found)

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            answer = await link.execute(
                "DELETE FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])",
                key,
                list(ids),
            )
        return int(answer.rpartition(" ")[2])

    # Two probes for each id. Joined, a planner that believes in few schedules reads all of the job.
    BY_ID = f"""{FIELDS}
      FROM unnest($3::uuid[]) u(id),
           LATERAL (SELECT * FROM daybell.schedule WHERE tenant = $1 AND id = u.id LIMIT 1) s,
           LATERAL (SELECT name FROM daybell.job WHERE key = s.job LIMIT 1) j
     WHERE $2::text IS NULL OR j.name = $2
     ORDER BY s.id
    """

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            if ids is not None:
                rows = await link.fetch(self.BY_ID, key, job, list(set(ids)))
            else:
                rows = await link.fetch(
                    f"{COLUMNS} WHERE s.tenant = $1 AND ($2::text IS NULL OR j.name = $2)"
                    " ORDER BY s.id",
                    key,
                    job,
                )
            return [read_schedule(row, tenant) for row in rows]

    # One more than asked for, due or not: the first that is left over says when to look again.
    # Nobody can fire what has lost its job.
    DUE_SCHEDULES = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT t.now, x.* FROM t LEFT JOIN LATERAL ({COLUMNS}
     WHERE NOT s.is_paused AND s.next_at IS NOT NULL AND j.deleted_at IS NULL
       AND (s.next_at, s.id) > ($2::float8, $3::uuid)
     ORDER BY s.next_at, s.id LIMIT $1 {{locking}}) x ON true
    """

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        check_limit(limit, most=FIRE_BATCH_MAX)
        # A row may be put elsewhere in the order meanwhile; `fire` compares the cursor anyway.
        locking = "FOR SHARE OF s SKIP LOCKED" if free else ""
        place = (-inf, UUID(int=0)) if after is None else (after.next_at, after.id)
        async with self.db.link() as link:
            query = self.DUE_SCHEDULES.format(locking=locking)
            rows = await link.fetch(query, limit + 1, *place)
            now: Instant = rows[0]["now"]
            found = await self._read_schedules(link, rows)
        due = [one for one in found[:limit] if one.next_at is not None and one.next_at <= now]
        rest = found[len(due) :]
        return Due(now=now, schedules=tuple(due), next_at=rest[0].next_at if rest else None)

    REARM = """
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

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        async with self.db.link() as link:
            answer = await link.execute(self.REARM, limit)
        count = int(answer.rpartition(" ")[2])
        if count:
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return count

    AHEAD = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT t.now, x.* FROM t LEFT JOIN LATERAL ({COLUMNS}
     WHERE s.moved_at > t.now + $1 AND NOT s.is_paused AND j.deleted_at IS NULL
       AND ($3::uuid IS NULL OR s.id > $3)
     ORDER BY s.id LIMIT $2) x ON true
    """

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        check_limit(limit, most=FIRE_BATCH_MAX)
        async with self.db.link() as link:
            rows = await link.fetch(self.AHEAD, by, limit, after)
            found = await self._read_schedules(link, rows)
        return Due(now=rows[0]["now"], schedules=tuple(found))

    async def _read_schedules(self, link: Link, rows: Sequence[Row]) -> list[Schedule]:
        """The schedules in rows that say the time as well, if nothing else."""
        keys = {row["tenant"] for row in rows if row["id"] is not None}
        names = {key: await self.names.tenant_name(link, key) for key in keys}
        return [read_schedule(row, names[row["tenant"]]) for row in rows if row["id"] is not None]

    # Like a firing, it steps over a schedule that is locked.
    TURN_BACK = f"""
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

    async def turn_back(self, turns: Sequence[TurnBack]) -> list[bool]:
        async with self.db.link() as link:
            rows = await link.fetch(
                self.TURN_BACK,
                [turn.tenant for turn in turns],
                [turn.schedule for turn in turns],
                [turn.expect for turn in turns],
                [turn.next_at for turn in turns],
                [turn.now for turn in turns],
                [turn.until for turn in turns],
                [turn.count for turn in turns],
            )
        done = {row["id"] for row in rows}
        if done:
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return [turn.schedule in done for turn in turns]

    # The job before its schedules, as whoever defines or deletes it locks them.
    JOB_KEY = """
    SELECT key FROM daybell.job WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL
       FOR NO KEY UPDATE
    """

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        async def work() -> None:
            async with self.db.transaction() as link:
                key = await self.names.tenant(link, tenant)
                await self.pause(link, await self._job(link, key, name), note)

        await self.db.settled(work)

    RESUME = """
    WITH j AS (UPDATE daybell.job SET paused_at = NULL, pause_note = '' WHERE key = $1)
    UPDATE daybell.schedule SET is_paused = false, failures = 0 WHERE job = $1
    """

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        left = sorted(firings, key=by_schedule)
        executions = [t.execution for f in left for t in f.ticks if t.execution is not None]
        for attempt in range(STALE_TRIES):
            specs = await self.resolve(tenant, executions, fresh=attempt > 0)
            try:
                await self.db.settled(lambda s=specs: self._resume(s, name, left))
            except Outdated:
                continue
            await self.announce(specs)
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])
            return
        raise Unavailable("this job changes faster than it can be resumed; try again")

    # Waited for: `advance_cursors` steps over what is locked, and would leave it to fire what it
    # missed.
    LOCK_PAUSED = "SELECT FROM daybell.schedule WHERE job = $1 ORDER BY id FOR NO KEY UPDATE"

    async def _resume(self, specs: Specs, name: str, firings: list[Firing]) -> None:
        async with self.db.transaction() as link:
            job = await self._job(link, specs.tenant, name)
            await link.execute(self.LOCK_PAUSED, job)
            await self.advance_cursors(link, specs, firings, paused=True)
            await link.execute(self.RESUME, job)

    async def _job(self, link: Link, tenant: int, name: str) -> int:
        job = await link.fetchval(self.JOB_KEY, tenant, name)
        if job is None:
            raise JobNotFound(f"no job named {shown(name)}")
        return job

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        check_limit(limit)
        async with self.db.link() as link:
            rows = await link.fetch(
                "SELECT * FROM daybell.tick WHERE tenant = $1 AND schedule = $2"
                " AND at < coalesce($3, 'infinity'::float8) ORDER BY at DESC LIMIT $4",
                await self.names.tenant(link, tenant),
                schedule,
                before,
                limit,
            )
        return [
            TickRecord(
                schedule=row["schedule"],
                at=row["at"],
                decision=DECISIONS[row["decision"]],
                reason=row["reason"],
                until=row["until"],
                execution=row["execution"],
                count=row["count"],
            )
            for row in rows
        ]

    # Running is what has no place to be claimed from.
    OCCURRENCES = """
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
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        check_limit(limit, most=OCCURRENCES_MAX)
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(self.OCCURRENCES, key, schedule, since, until, limit)
        return [
            Occurrence(scheduled_for=row["scheduled_for"], id=row["id"], state=STATES[row["state"]])
            for row in rows
        ]


def read_schedule(row: Row, tenant: str) -> Schedule:
    # Put together by position, in the order of COLUMNS: by name, it takes three times as long.
    (_, id, job, *rest) = tuple(row)[-20:]
    return Schedule(id, tenant, job, *rest)

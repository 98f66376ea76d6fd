"""Cursors and ticks. Nothing is locked while anybody computes: firing is a compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from daybell.core.execution import NewExecution
from daybell.core.instant import Instant
from daybell.core.limits import FIRE_BATCH_MAX
from daybell.core.schedule import Decision, Firing, NewSchedule, Schedule, Tick, TickRecord
from daybell.errors import JobNotFound, Unavailable
from daybell.store.checks import check_batch, check_limit
from daybell.store.codes import DECISION_CODES, DECISIONS
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.enqueue import STALE_TRIES, Enqueueing, Outdated, Specs

COLUMNS: Final = """
    SELECT s.id, s.tenant, j.name AS job, s.rule, s.next_at, s.last_at, s.fired, s.is_paused
      FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job"""


_by_schedule: Final = attrgetter("schedule")


class Scheduling(Enqueueing):
    """Schedules, and firing them."""

    PUT = """
    INSERT INTO daybell.schedule AS s (tenant, id, job, rule, next_at, is_paused)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::int[], $4::text[], $5::float8[], $6::boolean[]) u
     ORDER BY 2
    ON CONFLICT (tenant, id) DO UPDATE SET job = excluded.job, rule = excluded.rule,
           next_at = excluded.next_at, is_paused = excluded.is_paused
    """

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        latest = {schedule.id: schedule for schedule in schedules}.values()
        async with self.db.transaction() as link:
            key = await self.names.tenant(link, tenant)
            names = {schedule.job for schedule in latest}
            jobs = await self.names.current_jobs(link, key, names, fresh=True)
            await link.execute(
                self.PUT,
                key,
                [schedule.id for schedule in latest],
                [jobs[schedule.job].key for schedule in latest],
                [schedule.rule for schedule in latest],
                [schedule.next_at for schedule in latest],
                [schedule.is_paused for schedule in latest],
            )

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            answer = await link.execute(
                "DELETE FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])",
                key,
                list(ids),
            )
        return int(answer.rpartition(" ")[2])

    async def list_schedules(self, tenant: str, *, job: str | None = None) -> list[Schedule]:
        async with self.db.link() as link:
            key = await self.names.tenant(link, tenant)
            rows = await link.fetch(
                f"{COLUMNS} WHERE s.tenant = $1 AND ($2::text IS NULL OR j.name = $2)"
                " ORDER BY s.id",
                key,
                job,
            )
            return [_schedule(row, tenant) for row in rows]

    async def due_schedules(self, *, limit: int = 1000) -> list[Schedule]:
        check_limit(limit, most=FIRE_BATCH_MAX)
        async with self.db.link() as link:
            rows = await link.fetch(
                f"{COLUMNS} WHERE NOT s.is_paused AND s.next_at <= (SELECT daybell.now())"
                " ORDER BY s.next_at, s.id LIMIT $1",
                limit,
            )
            return [_schedule(r, await self.names.tenant_name(link, r["tenant"])) for r in rows]

    async def next_tick(self) -> Instant | None:
        async with self.db.link() as link:
            return await link.fetchval(
                "SELECT next_at FROM daybell.schedule WHERE NOT is_paused AND next_at IS NOT NULL"
                " ORDER BY next_at LIMIT 1"
            )

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        fired: dict[int, bool] = {}
        left = list(enumerate(firings))
        while left:
            # One tenant at a time; the same schedule twice in one call: one after the other.
            tenant = left[0][1].tenant
            now: dict[UUID, tuple[int, Firing]] = {}
            for index, firing in left:
                if firing.tenant == tenant:
                    now.setdefault(firing.schedule, (index, firing))
            answers = await self._fire_all(tenant, [firing for _, firing in now.values()])
            fired.update(zip([index for index, _ in now.values()], answers, strict=True))
            left = [entry for entry in left if entry[0] not in fired]
        return [fired[index] for index in range(len(firings))]

    # Who could be advanced as things are: the others need not even be looked up.
    ADVANCEABLE = """
    SELECT s.id FROM daybell.schedule s JOIN unnest($2::uuid[], $3::float8[]) u(id, expect)
        ON s.tenant = (SELECT key FROM daybell.tenant WHERE name = $1) AND s.id = u.id
       AND s.next_at = u.expect AND NOT s.is_paused
    """

    async def _fire_all(self, tenant: str, firings: list[Firing]) -> list[bool]:
        check_batch([t.execution for f in firings for t in f.ticks if t.execution is not None])
        for attempt in range(STALE_TRIES):
            schedules, expects = [f.schedule for f in firings], [f.expect for f in firings]
            async with self.db.link() as link:
                rows = await link.fetch(self.ADVANCEABLE, tenant, schedules, expects)
            possible = {row["id"] for row in rows}
            left = sorted((f for f in firings if f.schedule in possible), key=_by_schedule)
            executions = [t.execution for f in left for t in f.ticks if t.execution is not None]
            if not left:
                return [False for _ in firings]
            try:
                specs = await self.resolve(tenant, executions, fresh=attempt > 0)
                advanced = await self.db.settled(lambda s=specs, left=left: self._fire(s, left))
            except Outdated:
                continue
            except JobNotFound:
                # Deleted just now, and its schedules with it? Then they are not found again.
                if attempt == 0:
                    continue
                raise
            self.notifier.touch(specs.tenant, specs.queues)
            return [firing.schedule in advanced for firing in firings]
        raise Unavailable("the jobs of these schedules change faster than they can fire; try again")

    ADVANCE = """
    UPDATE daybell.schedule s
       SET next_at = u.next_at
      FROM unnest($2::uuid[], $3::float8[], $4::float8[]) u(id, expect, next_at)
     WHERE s.tenant = $1 AND s.id = u.id AND s.next_at = u.expect AND NOT s.is_paused
    RETURNING s.id
    """
    RECORD = """
    INSERT INTO daybell.tick (tenant, schedule, at, decision, reason, until, execution)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::float8[], $4::smallint[], $5::text[], $6::float8[],
                               $7::uuid[]) u
    ON CONFLICT DO NOTHING RETURNING schedule, at
    """
    COUNT = """
    UPDATE daybell.schedule s SET last_at = u.last_at, fired = s.fired + u.fired
      FROM unnest($2::uuid[], $3::float8[], $4::int[]) u(id, last_at, fired)
     WHERE s.tenant = $1 AND s.id = u.id
    """

    async def _fire(self, specs: Specs, firings: list[Firing]) -> set[UUID]:
        async with self.db.transaction() as link:
            rows = await link.fetch(
                self.ADVANCE,
                specs.tenant,
                [firing.schedule for firing in firings],
                [firing.expect for firing in firings],
                [firing.next_at for firing in firings],
            )
            advanced = {row["id"] for row in rows}
            ticks = [
                (f.schedule, tick) for f in firings if f.schedule in advanced for tick in f.ticks
            ]
            if ticks:
                await self._record(link, specs, ticks)
        return advanced

    async def _record(self, link: Link, specs: Specs, ticks: list[tuple[UUID, Tick]]) -> None:
        rows = await link.fetch(
            self.RECORD,
            specs.tenant,
            [schedule for schedule, _ in ticks],
            [tick.at for _, tick in ticks],
            [DECISION_CODES[tick.decision] for _, tick in ticks],
            [tick.reason for _, tick in ticks],
            [tick.until for _, tick in ticks],
            [tick.execution and tick.execution.id for _, tick in ticks],
        )
        new = {(row["schedule"], row["at"]) for row in rows}
        kept = [(schedule, tick) for schedule, tick in ticks if (schedule, tick.at) in new]
        await self._create(link, specs, [tick.execution for _, tick in kept if tick.execution])
        last: dict[UUID, Instant] = {}
        count: dict[UUID, int] = {}
        for schedule, tick in kept:
            if tick.decision is Decision.FIRED:
                last[schedule] = tick.at
                count[schedule] = count.get(schedule, 0) + 1
        if last:
            await link.execute(
                self.COUNT, specs.tenant, list(last), list(last.values()), [count[s] for s in last]
            )

    async def _create(self, link: Link, specs: Specs, executions: list[NewExecution]) -> None:
        if not executions:
            return
        answers = await self.enqueue_on(link, specs, executions)
        for execution, answer in zip(executions, answers, strict=True):
            if not answer.created:  # its unique key is held: the tick stands for the holder
                await link.execute(
                    "UPDATE daybell.tick SET execution = $3 WHERE tenant = $1 AND execution = $2",
                    specs.tenant,
                    execution.id,
                    answer.id,
                )

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
            )
            for row in rows
        ]


def _schedule(row: Row, tenant: str) -> Schedule:
    return Schedule(
        id=row["id"],
        tenant=tenant,
        job=row["job"],
        rule=row["rule"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        fired=row["fired"],
        is_paused=row["is_paused"],
    )

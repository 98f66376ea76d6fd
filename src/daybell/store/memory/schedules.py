"""Cursors and ticks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.instant import Instant
from daybell.core.schedule import Decision, Firing, NewSchedule, Schedule, Tick, TickRecord
from daybell.store.checks import check_batch, check_limit
from daybell.store.memory import moves
from daybell.store.memory.definitions import find_job
from daybell.store.memory.tables import Part, Tables


class MemorySchedules(Part):
    """See `protocol.Schedules`."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        with self._begin(tenant) as tables:
            for new in schedules:
                find_job(tables, tenant, new.job)
                old = tables.schedules.get((tenant, new.id))
                tables.schedules[tenant, new.id] = Schedule(
                    id=new.id,
                    tenant=tenant,
                    job=new.job,
                    rule=new.rule,
                    next_at=new.next_at,
                    last_at=old.last_at if old else None,
                    fired=old.fired if old else 0,
                    is_paused=new.is_paused,
                )

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            found = {id for id in ids if (tenant, id) in tables.schedules}
            for id in found:
                del tables.schedules[tenant, id]
            return len(found)

    async def list_schedules(self, tenant: str, *, job: str | None = None) -> list[Schedule]:
        with self._begin(tenant) as tables:
            found = [
                schedule
                for schedule in tables.schedules.values()
                if schedule.tenant == tenant and job in (None, schedule.job)
            ]
            return sorted(found, key=lambda schedule: schedule.id)

    async def due_schedules(self, *, limit: int = 1000) -> list[Schedule]:
        check_limit(limit)
        now = self._clock()
        with self._begin() as tables:
            return [schedule for at, schedule in upcoming(tables) if at <= now][:limit]

    async def next_tick(self) -> Instant | None:
        with self._begin() as tables:
            return min((at for at, _ in upcoming(tables)), default=None)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        with self._begin() as tables:
            return [fire(tables, firing, self._clock()) for firing in firings]

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        check_limit(limit)
        with self._begin(tenant) as tables:
            found = [
                tick
                for (owner, id, at), tick in tables.ticks.items()
                if (owner, id) == (tenant, schedule) and (before is None or at < before)
            ]
            return sorted(found, key=lambda tick: tick.at, reverse=True)[:limit]


def upcoming(tables: Tables) -> list[tuple[Instant, Schedule]]:
    """Schedules that will fire, with their time, earliest first."""
    found = [
        (schedule.next_at, schedule)
        for schedule in tables.schedules.values()
        if schedule.next_at is not None and not schedule.is_paused
    ]
    return sorted(found, key=lambda entry: (entry[0], entry[1].id))


def fire(tables: Tables, firing: Firing, now: Instant) -> bool:
    """Advance one schedule, if its cursor still is where the caller saw it."""
    schedule = tables.schedules.get((firing.tenant, firing.schedule))
    if schedule is None or schedule.is_paused or schedule.next_at != firing.expect:
        return False
    new_ticks = [tick for tick in firing.ticks if record(tables, firing, tick, now)]
    fired = [tick.at for tick in new_ticks if tick.decision is Decision.FIRED]
    tables.schedules[firing.tenant, firing.schedule] = replace(
        schedule,
        next_at=firing.next_at,
        last_at=fired[-1] if fired else schedule.last_at,
        fired=schedule.fired + len(fired),
    )
    return True


def record(tables: Tables, firing: Firing, tick: Tick, now: Instant) -> bool:
    """Keep one tick with its execution; False if it is on record already."""
    key = firing.tenant, firing.schedule, tick.at
    if key in tables.ticks:
        return False
    execution: UUID | None = None
    if tick.execution is not None:
        check_batch([tick.execution])
        execution = moves.enqueue(tables, firing.tenant, tick.execution, now).id
        moves.admit(tables, firing.tenant, tick.execution.gate, now)
    tables.ticks[key] = TickRecord(
        schedule=firing.schedule,
        at=tick.at,
        decision=tick.decision,
        reason=tick.reason,
        until=tick.until,
        execution=execution,
    )
    return True

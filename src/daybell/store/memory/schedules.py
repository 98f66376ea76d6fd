"""Cursors: what is due, and who stops it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import TERMINAL
from daybell.core.instant import Instant, Seconds
from daybell.core.overlap import gate_of, is_backfill
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
from daybell.store.checks import OCCURRENCES_MAX, check_limit
from daybell.store.memory import endings
from daybell.store.memory.enqueue import make_gate
from daybell.store.memory.firing import fire
from daybell.store.memory.tables import JobRow, Part, Tables, shown_state
from daybell.store.wakeups import Signal


class MemorySchedules(Part):
    """See `protocol.Schedules`."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        with self._begin(tenant) as tables:
            for new in schedules:
                make_gate(tables, tenant, gate_of(new.job))
                put_schedule(tables, tables.job(tenant, new.job), new, self._clock())

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            found = {id for id in ids if (tenant, id) in tables.schedules}
            for id in found:
                del tables.schedules[tenant, id]
            return len(found)

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        with self._begin(tenant) as tables:
            keys = tables.schedules if ids is None else {(tenant, id) for id in ids}
            found = [
                schedule
                for key in keys
                if (schedule := tables.schedules.get(key)) is not None
                and schedule.tenant == tenant
                and job in (None, schedule.job)
            ]
            return sorted(found, key=lambda schedule: schedule.id)

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        check_limit(limit)  # what is free needs no saying: here, nobody holds anything for long
        with self._begin() as tables:
            now = self._clock()
            coming = upcoming(tables)
            if after is not None:
                coming = [one for one in coming if (one[0], one[1].id) > (after.next_at, after.id)]
            due = [schedule for at, schedule in coming if at <= now][:limit]
            later = [at for at, _ in coming[len(due) :]]
            return Due(now=now, schedules=tuple(due), next_at=min(later, default=None))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        with self._begin() as tables:
            return [fire(tables, firing, self._clock()) for firing in firings]

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        with self._begin() as tables:
            now = self._clock()
            idle = [s for s in tables.schedules.values() if waits_in_vain(tables, s)][:limit]
            for schedule in idle:
                assert schedule.delay is not None, "only a fixed delay waits for an end"
                key = schedule.tenant, schedule.id
                tables.schedules[key] = replace(schedule, next_at=now + schedule.delay)
                tables.moved_at[key] = now
                tables.signals[Signal.SCHEDULES] = None
            return len(idle)

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        check_limit(limit)
        with self._begin() as tables:
            now = self._clock()
            found = [
                schedule
                for key, schedule in tables.schedules.items()
                if not schedule.is_paused
                and tables.moved_at[key] > now + by
                and (after is None or schedule.id > after)
            ]
            found.sort(key=lambda schedule: schedule.id)
            return Due(now=now, schedules=tuple(found[:limit]))

    async def turn_back(self, turns: Sequence[TurnBack]) -> list[bool]:
        with self._begin() as tables:
            return [turn_back(tables, turn) for turn in turns]

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        with self._begin(tenant) as tables:
            endings.pause(tables, tenant, name, self._clock(), note)

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        with self._begin(tenant) as tables:
            row = tables.job(tenant, name)
            tables.jobs[tenant, name] = replace(row, paused_at=None, pause_note="")
            for schedule in schedules_of(tables, tenant, name):
                tables.schedules[tenant, schedule.id] = replace(
                    schedule, is_paused=False, failures=0
                )
            for firing in firings:
                fire(tables, firing, self._clock())
            tables.signals[Signal.SCHEDULES] = None

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

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        check_limit(limit, most=OCCURRENCES_MAX)
        with self._begin(tenant) as tables:
            now = self._clock()
            found = [
                (one.scheduled_for, one.created_at, one.id, shown_state(one, now))
                for one in (row.execution for row in tables.rows.values())
                if (one.tenant, one.schedule) == (tenant, schedule)
                and one.scheduled_for is not None
                and since <= one.scheduled_for <= until
            ]
            return [
                Occurrence(scheduled_for=at, id=id, state=state)
                for at, _, id, state in sorted(found)[:limit]
            ]


def put_schedule(tables: Tables, job: JobRow, new: NewSchedule, now: Instant) -> None:
    """Create or replace one schedule of a job, which is paused with it."""
    key = job.current.tenant, new.id
    old = tables.schedules.get(key)
    schedule = Schedule(
        id=new.id,
        tenant=job.current.tenant,
        job=job.current.name,
        rule=new.rule,
        next_at=new.next_at,
        name=new.name,
        args=new.args,
        misfire=new.misfire,
        delay=new.delay,
        is_reboot=new.is_reboot,
        is_declared=new.is_declared,
        is_paused=job.paused_at is not None,
        since=new.since,
        own_gate=new.own_gate,
    )
    if old is not None:
        schedule = replace(
            schedule,
            last_at=old.last_at,
            succeeded_for=old.succeeded_for,
            fired=old.fired,
            skipped=old.skipped,
            missed=old.missed,
            failures=old.failures,
        )
    tables.schedules[key] = schedule
    tables.moved_at[key] = now
    tables.pause_after[key] = new.pause_after
    tables.signals[Signal.SCHEDULES] = None


def declare_schedules(
    tables: Tables, job: JobRow, schedules: Iterable[NewSchedule], now: Instant
) -> None:
    """Let these take the place of the schedules that came with an earlier definition."""
    new = [replace(schedule, is_declared=True) for schedule in schedules]
    kept = {schedule.id for schedule in new}
    for old in schedules_of(tables, job.current.tenant, job.current.name):
        if old.is_declared and old.id not in kept:
            del tables.schedules[old.tenant, old.id]
    for schedule in new:
        moved_at = now
        old = tables.schedules.get((job.current.tenant, schedule.id))
        if old is not None and old.rule == schedule.rule:
            # Its cursor may be at a tick that has not fired yet.
            schedule = replace(schedule, next_at=old.next_at, delay=old.delay, since=old.since)
            moved_at = tables.moved_at[old.tenant, old.id]
        put_schedule(tables, job, schedule, moved_at)


def remove_schedules(tables: Tables, tenant: str, job: str) -> None:
    for schedule in schedules_of(tables, tenant, job):
        del tables.schedules[tenant, schedule.id]


def schedules_of(tables: Tables, tenant: str, job: str) -> list[Schedule]:
    return [s for s in tables.schedules.values() if (s.tenant, s.job) == (tenant, job)]


def upcoming(tables: Tables) -> list[tuple[Instant, Schedule]]:
    """Schedules that will fire, with their time, earliest first."""
    found = [
        (schedule.next_at, schedule)
        for schedule in tables.schedules.values()
        if schedule.next_at is not None and not schedule.is_paused
    ]
    return sorted(found, key=lambda entry: (entry[0], entry[1].id))


def turn_back(tables: Tables, turn: TurnBack) -> bool:
    """Set one cursor back, if it still is where the caller saw it."""
    key = turn.tenant, turn.schedule
    schedule = tables.schedules.get(key)
    if schedule is None or schedule.is_paused or schedule.next_at != turn.expect:
        return False
    missed = schedule.missed
    for (*owner, at), tick in list(tables.ticks.items()):
        if tuple(owner) != key or tick.decision is not Decision.MISSED:
            continue
        if at > turn.now:
            del tables.ticks[*key, at]
            missed -= tick.count
        elif turn.until is not None and tick.until is not None and tick.until > turn.now:
            tables.ticks[*key, at] = replace(tick, until=turn.until, count=turn.count)
            missed -= tick.count - turn.count
    tables.schedules[key] = replace(schedule, next_at=turn.next_at, missed=missed)
    tables.moved_at[key] = turn.now
    tables.signals[Signal.SCHEDULES] = None
    return True


def waits_in_vain(tables: Tables, schedule: Schedule) -> bool:
    """Whether a fixed delay waits for an end that will not come."""
    if schedule.delay is None or schedule.next_at is not None:
        return False
    return not any(
        (one.tenant, one.schedule) == (schedule.tenant, schedule.id)
        and one.state not in TERMINAL
        and not is_backfill(one.gate)
        for one in (row.execution for row in tables.live.values())
    )

"""Running what a schedule's past ticks should have run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from daybell.client.requests import Time, read_bound, read_whole, read_word
from daybell.client.submitting import derived
from daybell.core.audit import NewEntry
from daybell.core.backfill import Only, Order, choose, ticks_between
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.instant import Instant, to_iso
from daybell.core.limits import BACKFILL_CONCURRENCY_MAX, BACKFILL_TICKS_MAX
from daybell.core.overlap import backfill_gate
from daybell.core.schedule import Occurrence, Schedule
from daybell.core.when import Schedule as Rule
from daybell.errors import Unavailable, UsageError
from daybell.store.ids import mint
from daybell.store.protocol import Store

OCCURRENCES_PER_READ: Final = 10_000
ALONE_SECONDS: Final = 60.0  # many times as long as it takes to look and to enqueue
LOOK_SECONDS: Final = 0.05
TICK_BITS: Final = 48  # milliseconds until the year 9999


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that was, or would be, run again."""

    schedule: UUID
    name: str  # of the schedule, among the job's
    at: Instant
    execution: UUID | None = None  # None in a dry run
    created: bool = False  # False: another backfill has it in its hands


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill has done, or would do."""

    id: UUID
    job: str
    ticks: tuple[Filled, ...]  # in the order that they run
    looked_at: int  # ticks in the range, those that were not chosen included
    is_dry_run: bool = False

    @property
    def created(self) -> int:
        """How many executions there are because of it."""
        return sum(one.created for one in self.ticks)


class _Asked(NamedTuple):
    """What somebody wants to have run."""

    id: UUID
    job: str
    begin: Instant
    end: Instant
    only: Only
    order: Order


class Backfills:
    """The verb of `Client` for ticks of the past."""

    store: Store
    tenant: str

    async def submit_many(
        self, executions: Sequence[NewExecution], *, repeat: bool = False
    ) -> list[Enqueued]:
        raise NotImplementedError  # see `Submissions`

    async def backfill(
        self,
        job: str,
        since: Time,
        until: Time,
        *,
        only: Literal["missing", "failed", "all"] = "missing",
        concurrency: int = 1,
        order: Literal["oldest", "newest"] = "oldest",
        dry_run: bool = False,
        id: UUID | None = None,
        repeat: bool = False,
        entry: NewEntry | None = None,
    ) -> Backfill:
        """Run a job for ticks of its schedules from `since` to before `until`, as they are now.

        At most `concurrency` of them run at a time, beside what the schedules fire, and each once:
        a tick that another backfill has in its hands is left to it. What is still to be fired is
        left to the schedulers. `dry_run` only answers what would be done. With an `id` that the
        caller chose, `repeat` says that it may have been asked for before: then the answer is what
        was done. `entry` tells the audit log of it, in the same transaction.
        """
        wanted = Only(read_word(only, tuple(Only), "only"))
        first = Order(read_word(order, tuple(Order), "order"))
        room = read_whole(concurrency, "concurrency", least=1, most=BACKFILL_CONCURRENCY_MAX)
        begin, end = read_bound(since, "since"), read_bound(until, "until")
        now = (await self.store.health()).now
        _check_range(begin, end, now)
        what = _Asked(id or mint(), job, begin, end, wanted, first)
        if dry_run:
            return (await self._plan(what, now, is_dry_run=True))[0]
        async with self._alone():
            plan, found = await self._plan(what, now, repeat=repeat)
            if not found:
                return plan
            with nullcontext() if entry is None else self.store.auditing(self.tenant, entry):
                return await self._fill(plan, found, room, order=first, repeat=repeat)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Nobody else backfills for this tenant: between a look at what has run and the enqueueing
        of the rest, another backfill could run a tick to its end, which would then run twice.
        """
        name, holder = f"backfill {self.tenant}", mint()
        while True:
            if await self.store.lead(name, holder=holder, lease=ALONE_SECONDS) is not None:
                break
            await asyncio.sleep(LOOK_SECONDS)  # the other one is done soon, or its time is over
        try:
            yield
        finally:
            with suppress(Unavailable):  # it ends by itself, and what was done is done
                await self.store.resign(name, holder=holder)

    async def _plan(
        self, what: _Asked, now: Instant, *, repeat: bool = False, is_dry_run: bool = False
    ) -> tuple[Backfill, list[tuple[Instant, Schedule]]]:
        """What is to be done as things are, or was done by an earlier try, and the schedule of
        each tick.
        """
        job = what.job
        schedules = _with_times(job, await self._schedules_of(job))
        found, looked_at = list[tuple[Instant, Schedule]](), 0
        done = list[tuple[Instant, Schedule]]()
        for schedule in schedules:
            # A tick of this very moment has been decided on, unless the schedule stands at it.
            past = math.nextafter(now, math.inf)
            last = min(what.end, past if schedule.is_paused else schedule.next_at or past, past)
            rule, left = Rule.from_json(schedule.rule), BACKFILL_TICKS_MAX - looked_at
            ticks = ticks_between(rule, what.begin, last, limit=left)
            looked_at += len(ticks)
            there = await self._occurrences(schedule, ticks)
            chosen = choose(ticks, there, only=what.only, order=what.order)
            found += [(tick, schedule) for tick in chosen]
            if repeat:
                ids = {one.id for one in there}
                mine = [at for at in ticks if _id_of(what.id, schedule, at, what.order) in ids]
                done += [(at, schedule) for at in mine]
        found = done or found  # it was all or nothing
        found.sort(key=lambda one: one[0], reverse=what.order is Order.NEWEST)
        filled = tuple(Filled(schedule=one.id, name=one.name, at=at) for at, one in found)
        plan = Backfill(
            id=what.id, job=job, ticks=filled, looked_at=looked_at, is_dry_run=is_dry_run
        )
        return plan, found

    async def _fill(
        self,
        plan: Backfill,
        found: Sequence[tuple[Instant, Schedule]],
        room: int,
        *,
        order: Order,
        repeat: bool,
    ) -> Backfill:
        gate = backfill_gate(plan.id, room)
        executions = list(_executions(plan.id, found, gate, order))
        answers = await self.submit_many(executions, repeat=repeat)
        ticks = tuple(
            msgspec.structs.replace(one, execution=answer.id, created=answer.created)
            for one, answer in zip(plan.ticks, answers, strict=True)
        )
        return msgspec.structs.replace(plan, ticks=ticks)

    async def _schedules_of(self, job: str) -> list[Schedule]:
        await self.store.get_job(self.tenant, job)  # raises for one that is not there
        return await self.store.list_schedules(self.tenant, job=job)

    async def _occurrences(self, schedule: Schedule, ticks: Sequence[Instant]) -> list[Occurrence]:
        """What there is for these ticks, however much."""
        found: list[Occurrence] = []
        seen: set[UUID] = set()
        since = ticks[0] if ticks else None
        while since is not None:
            page = await self.store.list_occurrences(
                self.tenant,
                schedule.id,
                since=since,
                until=ticks[-1],
                limit=OCCURRENCES_PER_READ,
            )
            found += [one for one in page if one.id not in seen]
            seen.update(one.id for one in page)
            is_full = len(page) == OCCURRENCES_PER_READ and page[-1].scheduled_for > since
            since = page[-1].scheduled_for if is_full else None
        return found


def _check_range(since: Instant, until: Instant, now: Instant) -> None:
    if since >= until:
        raise UsageError(
            f"since {to_iso(since)} is not before until {to_iso(until)}", field="until"
        )
    if since >= now:
        raise UsageError(
            f"since {to_iso(since)} is in the future: what is still to come, the schedules fire",
            field="since",
        )


def _with_times(job: str, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Those whose ticks are known by the calendar alone."""
    timed = [
        one for one in schedules if one.delay is None and one.since is None and not one.is_reboot
    ]
    if not timed:
        why = "only schedules whose times depend on what ran" if schedules else "no schedule"
        raise UsageError(
            f"job {job} has {why}, so there are no ticks to backfill; trigger it instead",
            field="job",
        )
    return timed


def _id_of(id: UUID, schedule: Schedule, at: Instant, order: Order) -> UUID:
    """The id of the execution for a tick. What is due at the same time is claimed in the order of
    its ids.
    """
    tick = int(at * 1000)
    rank = tick if order is Order.OLDEST else (1 << TICK_BITS) - 1 - tick
    return derived(id, schedule.id, to_iso(at), rank=rank, rank_bits=TICK_BITS)


def _executions(
    id: UUID, found: Sequence[tuple[Instant, Schedule]], gate: str, order: Order
) -> Iterator[NewExecution]:
    for at, schedule in found:
        yield NewExecution(
            id=_id_of(id, schedule, at, order),
            job=schedule.job,
            args=schedule.args,
            gate=gate,
            scheduled_for=at,
            schedule=schedule.id,
            unique_key=f"backfill {schedule.id} {to_iso(at)}",
            awaits=True,
        )

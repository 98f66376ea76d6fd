"""Backfills: executions for past ticks of schedules that did not run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import derive_id, submit_many
from daybell.client.requests import Time, check_range, read_bound
from daybell.client.schedules import schedules
from daybell.core.access import NewAuditEntry
from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.core.limits import BACKFILL_CONCURRENCY_MAX, BACKFILL_TICKS_MAX, PAGE_ITEMS_MAX
from daybell.core.options import read_whole, read_word
from daybell.core.schedule import Occurrence, Schedule, backfill_gate
from daybell.core.units import Instant, to_iso
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import Only, Order, choose, ticks_between
from daybell.core.when.event import fill_args
from daybell.errors import Unavailable, UsageError

OCCURRENCES_PER_READ: Final = 10_000
ALONE_SECONDS: Final = 60.0  # many times the time of a check and an enqueue
LOOK_SECONDS: Final = 0.05
TICK_BITS: Final = 48  # milliseconds until the year 9999


class BackfilledTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that was, or would be, run again."""

    schedule: UUID
    name: str  # of the schedule, among the job's
    at: Instant
    execution: UUID | None = None  # None in a dry run
    created: bool = False  # False: another backfill has it in its hands


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backfill, or of a dry run of one."""

    id: UUID
    job: str
    ticks: tuple[BackfilledTick, ...]  # in the order that they run
    looked_at: int  # ticks in the range, those that were not chosen included
    is_dry_run: bool = False

    @property
    def created(self) -> int:
        """The number of executions that exist because of the backfill."""
        return sum(one.created for one in self.ticks)


class _MissedTick(NamedTuple):
    """A tick to run again, with the arguments of its schedule or of its event."""

    at: Instant
    schedule: Schedule
    args: str


class _BackfillRequest(NamedTuple):
    """The request for a backfill."""

    id: UUID
    job: str
    begin: Instant
    end: Instant
    only: Only
    order: Order


async def backfill(
    client: ClientContext,
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
    entry: NewAuditEntry | None = None,
) -> Backfill:
    """Run a job for ticks of its schedules from `since` to before `until`, as they are now.

    At most `concurrency` of them run at a time, beside the schedules' own firings, and each once: a
    tick that another backfill has in its hands is left to it. Ticks that are still to be fired are
    left to the schedulers. `dry_run` only returns the plan. With an `id` that the caller chose,
    `repeat` says that it may have been asked for before: then the answer is the earlier result.
    `entry` goes to the audit log in the same transaction.
    """
    wanted = Only(read_word(only, tuple(Only), "only"))
    first = Order(read_word(order, tuple(Order), "order"))
    room = read_whole(concurrency, "concurrency", least=1, most=BACKFILL_CONCURRENCY_MAX)
    begin, end = read_bound(since, "since"), read_bound(until, "until")
    now = (await client.store.health()).now
    _check_range(begin, end, now)
    what = _BackfillRequest(id or mint(), job, begin, end, wanted, first)
    if dry_run:
        return (await _plan(client, what, now, is_dry_run=True))[0]
    async with _alone(client):
        plan, found = await _plan(client, what, now, repeat=repeat)
        if not found:
            return plan
        filling = client if entry is None else client.audited(entry)
        return await _fill(filling, plan, found, room, order=first, repeat=repeat)


@asynccontextmanager
async def _alone(client: ClientContext) -> AsyncGenerator[None]:
    """Exclude other backfills of this tenant: between the check for missing runs and the
    enqueueing, another backfill could run a tick to its end, which would then run twice.
    """
    name, holder = f"backfill {client.tenant}", mint()
    while True:
        if await client.store.admin.lead(name, holder=holder, lease=ALONE_SECONDS) is not None:
            break
        await asyncio.sleep(LOOK_SECONDS)  # the other one is done soon, or its time is over
    try:
        yield
    finally:
        with suppress(Unavailable):  # it ends by itself, and the finished work is kept
            await client.store.admin.resign(name, holder=holder)


async def _plan(
    client: ClientContext,
    what: _BackfillRequest,
    now: Instant,
    *,
    repeat: bool = False,
    is_dry_run: bool = False,
) -> tuple[Backfill, list[_MissedTick]]:
    """Return the plan of a backfill as things are, or the result of an earlier try, and its
    ticks.
    """
    job = what.job
    schedules = _with_times(job, await _schedules_of(client, job))
    found, done, looked_at = list[_MissedTick](), list[_MissedTick](), 0
    for schedule in schedules:
        # A tick of this very moment has been decided on, unless the schedule stands at it.
        past = math.nextafter(now, math.inf)
        last = min(what.end, past if schedule.is_paused else schedule.next_at or past, past)
        ticks = await _ticks_of(client, schedule, what.begin, last, BACKFILL_TICKS_MAX - looked_at)
        looked_at += len(ticks)
        there = await _occurrences(client, schedule, list(ticks))
        chosen = choose(ticks, there, only=what.only, order=what.order)
        found += [_MissedTick(at, schedule, ticks[at]) for at in chosen]
        if repeat:
            ids = {one.id for one in there}
            mine = [at for at in ticks if _id_of(what.id, schedule, at, what.order) in ids]
            done += [_MissedTick(at, schedule, ticks[at]) for at in mine]
    found = done or found  # it was all or nothing
    found.sort(key=lambda one: one.at, reverse=what.order is Order.NEWEST)
    filled = tuple(
        BackfilledTick(schedule=one.schedule.id, name=one.schedule.name, at=one.at) for one in found
    )
    plan = Backfill(id=what.id, job=job, ticks=filled, looked_at=looked_at, is_dry_run=is_dry_run)
    return plan, found


async def _fill(
    client: ClientContext,
    plan: Backfill,
    found: Sequence[_MissedTick],
    room: int,
    *,
    order: Order,
    repeat: bool,
) -> Backfill:
    gate = backfill_gate(plan.id, room)
    executions = list(_executions(plan.id, found, gate, order))
    answers = await submit_many(client, executions, repeat=repeat)
    ticks = tuple(
        msgspec.structs.replace(one, execution=answer.id, created=answer.created)
        for one, answer in zip(plan.ticks, answers, strict=True)
    )
    return msgspec.structs.replace(plan, ticks=ticks)


async def _ticks_of(
    client: ClientContext, schedule: Schedule, begin: Instant, end: Instant, limit: int
) -> dict[Instant, str]:
    """Return the ticks of a schedule in a range, oldest first, with the arguments of each: by its
    rule, or of events on record.
    """
    if schedule.event is None:
        times = ticks_between(Rule.from_json(schedule.rule), begin, end, limit=limit)
        return dict.fromkeys(times, schedule.args)
    times = list[Instant]()
    before = end
    while True:
        page = await client.store.schedules.list_ticks(
            client.tenant, schedule.id, limit=PAGE_ITEMS_MAX, before=before
        )
        times += [one.at for one in page if one.at >= begin]
        if len(times) > limit:
            raise UsageError(
                f"there are more than {limit:,} events from since to until; backfill them in"
                " several shorter ranges",
                field="until",
            )
        if len(page) < PAGE_ITEMS_MAX or page[-1].at < begin:
            break
        before = page[-1].at
    times.reverse()
    events = await client.store.runs.firing_events(client.tenant, schedule.id, times)
    pairs = zip(times, events, strict=True)
    return {at: fill_args(schedule.args, event) for at, event in pairs if event is not None}


async def _schedules_of(client: ClientContext, job: str) -> list[Schedule]:
    await client.store.catalog.get_job(client.tenant, job)  # raises for one that is not there
    return await schedules(client, job)


async def _occurrences(
    client: ClientContext, schedule: Schedule, ticks: Sequence[Instant]
) -> list[Occurrence]:
    """Return all occurrences on record for these ticks, page by page."""
    found: list[Occurrence] = []
    seen: set[UUID] = set()
    since = ticks[0] if ticks else None
    while since is not None:
        page = await client.store.schedules.list_occurrences(
            client.tenant,
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
    check_range(since, until)
    if since >= now:
        raise UsageError(
            f"since {to_iso(since)} is in the future: what is still to come, the schedules fire",
            field="since",
        )


def _with_times(job: str, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules with ticks that are known by the calendar, or by events on record."""
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
    """Return the id of the execution for a tick. Executions due at the same time are claimed in the
    order of their ids.
    """
    tick = int(at * 1000)
    rank = tick if order is Order.OLDEST else (1 << TICK_BITS) - 1 - tick
    return derive_id(id, schedule.id, to_iso(at), rank=rank, rank_bits=TICK_BITS)


def _executions(
    id: UUID, found: Sequence[_MissedTick], gate: str, order: Order
) -> Iterator[NewExecution]:
    for at, schedule, args in found:
        yield NewExecution(
            id=_id_of(id, schedule, at, order),
            job=schedule.job,
            args=args,
            gate=gate,
            scheduled_for=at,
            schedule=schedule.id,
            unique_key=f"backfill {schedule.id} {to_iso(at)}",
            wait_for_dependencies=True,
        )

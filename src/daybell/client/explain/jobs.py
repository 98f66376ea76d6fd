"""Reasons why a job does not run: its schedules, their last ticks, its unfinished executions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import executions as list_executions
from daybell.client.explain import executions, remedies
from daybell.client.explain.executions import Reason, describe_death
from daybell.client.explain.queues import Obstacle
from daybell.client.explain.remedies import Remedy, in_tenant
from daybell.client.requests import Id
from daybell.client.schedules import standing
from daybell.core.access import AuditFilter
from daybell.core.execution import PENDING, Execution, State
from daybell.core.job import DELETED, JobStatus, WaitsFor
from daybell.core.schedule import DEPENDENCIES, OVERLAP, Decision, Schedule, TickRecord
from daybell.core.units import Instant, to_iso
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import PAUSED
from daybell.core.worker import SCHEDULER
from daybell.errors import AccessDenied, InvalidSchedule, JobNotFound, listed, with_tenant

TICKS_MAX: Final = 10  # the last ones of a job
_TICKED_MAX: Final = 5  # schedules with ticks to be read: the last ones to fire
_LOOKED_AT_MAX: Final = 100  # unfinished executions
_REASONS_MAX: Final = 5  # of these, alike ones once
_PAUSE_SECONDS: Final = 60.0  # between a pause and its audit entry, if these are two transactions
_AUDIT_SECONDS: Final = 86400.0  # of the audit log that are searched for the author of a past pause

# The states of unfinished executions, the most telling first.
_ORDER: Final = (State.RUNNING, State.RETRYING, State.QUEUED, State.WAITING, State.SCHEDULED)


class ScheduleReason(msgspec.Struct, frozen=True):
    """The reason why a schedule does not fire before its next time."""

    schedule: Schedule
    obstacle: Obstacle


class TickReason(msgspec.Struct, frozen=True):
    """A tick on record, and the decision about it in a sentence."""

    schedule: Schedule
    tick: TickRecord
    detail: str


class JobReason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a job does not run."""

    status: JobStatus
    obstacle: Obstacle
    schedules: tuple[ScheduleReason, ...]
    ticks: tuple[TickReason, ...]  # newest first
    executions: tuple[Reason, ...]  # of unfinished executions, alike ones once


async def why_job(client: ClientContext, job: Id) -> JobReason:
    """Explain why a job does not run now: it is paused, its unfinished executions wait, or its
    schedules fire later.
    """
    status = await standing(client, job)
    now = (await client.health()).now
    name, author = status.job.name, None
    if status.job.paused_at is not None:
        author = await _find_pauser(client, name, status.job.paused_at, _PAUSE_SECONDS)
    reasons = await _explain_unfinished(client, name)
    schedules = [
        ScheduleReason(one, await _explain_schedule(client, one, status, now))
        for one in status.schedules
    ]
    letter = await _explain_dead_letter(client, status)
    obstacle = _explain_job(status, author, reasons, schedules, letter)
    tenant = client.tenant
    return JobReason(
        status=status,
        obstacle=obstacle.replaced(
            detail=with_tenant(obstacle.detail, tenant), actions=in_tenant(obstacle.actions, tenant)
        ),
        schedules=tuple(schedules),
        ticks=await _explain_ticks(client, status),
        executions=tuple(reasons),
    )


def _explain_job(
    status: JobStatus,
    author: str | None,
    reasons: Sequence[Reason],
    schedules: Sequence[ScheduleReason],
    letter: Reason | None,
) -> Obstacle:
    job = status.job
    if status.status == DELETED:
        return Obstacle(code="deleted", detail="it was deleted; define it again")
    if job.paused_at is not None:
        by = "" if author is None else f" by {author}"
        note = f": {job.pause_note}" if job.pause_note else ""
        detail = f"its schedules are paused{by} since {to_iso(job.paused_at)}{note}"
        resume = remedies.resume_job(job.name)
        return Obstacle(code="paused", detail=detail, actions=(resume, remedies.trigger(job.name)))
    if reasons:
        first = reasons[0]
        detail = f"execution {first.execution.id} is {first.execution.state}: {first.detail}"
        return Obstacle(
            code=first.code, detail=detail, next_at=first.next_at, actions=first.actions
        )
    times = [one.obstacle for one in schedules if one.obstacle.next_at is not None]
    if times:
        return _add_letter(min(times, key=lambda one: one.next_at or 0.0), letter)
    if schedules:
        return _add_letter(schedules[0].obstacle, letter)
    detail = "it has no schedule, and runs when it is triggered"
    manual = Obstacle(code="manual", detail=detail, actions=(remedies.trigger(job.name),))
    return _add_letter(manual, letter)


async def _explain_dead_letter(client: ClientContext, status: JobStatus) -> Reason | None:
    """Explain the death of the job's last execution; None if it is no dead letter."""
    last = status.last_execution
    if last is None or last.state is not State.DEAD or last.is_discarded:
        return None
    return await executions.why(client, last.id)


def _add_letter(obstacle: Obstacle, letter: Reason | None) -> Obstacle:
    """Return an obstacle with the dead letter first: a retry repeats what failed, a trigger would
    run the job beside it.
    """
    if letter is None:
        return obstacle
    detail = f"its last execution {letter.execution.id} {describe_death(letter.execution)}"
    actions = (*letter.actions, *obstacle.actions)
    if obstacle.next_at is None:
        return Obstacle(
            code=str(State.DEAD), detail=f"{detail}; retry or discard it", actions=actions
        )
    return obstacle.replaced(detail=f"{obstacle.detail}; {detail}", actions=actions)


async def _explain_unfinished(client: ClientContext, job: str) -> list[Reason]:
    """Explain executions that have not ended, the most telling first; of those with the same state
    and reason, only the oldest that is found.
    """
    states = [*PENDING, State.RUNNING]
    try:
        page = await list_executions(client, job=job, status=states, limit=_LOOKED_AT_MAX)
    except JobNotFound:  # deleted
        return []
    distinct: dict[object, Execution] = {
        (one.state, one.reason, one.queue): one for one in page.items
    }
    chosen = sorted(distinct.values(), key=lambda one: (_ORDER.index(one.state), one.id))
    return [await executions.why(client, one.id) for one in chosen[:_REASONS_MAX]]


# Schedules.


async def _explain_schedule(
    client: ClientContext, schedule: Schedule, status: JobStatus, now: Instant
) -> Obstacle:
    name, at = status.job.name, schedule.next_at
    run = (remedies.trigger(name),)
    if schedule.is_paused:
        detail = "it is paused with its job"
        return Obstacle(code="paused", detail=detail, actions=(remedies.resume_job(name),))
    if schedule.since is not None:
        return _explain_rounds(status.waits_for, run)
    if schedule.event is not None:
        detail = f"it fires {Rule.from_json(schedule.rule).describe().lower()}"
        return Obstacle(code="event", detail=detail, actions=run)
    if at is None:
        return _explain_no_time(schedule, run)
    if at > now:
        return _explain_time(schedule, at, now, run)
    leaders = await client.store.admin.list_leaders()
    since = f"it is due since {to_iso(at)}"
    if any(one.name == SCHEDULER and one.until > now for one in leaders):
        detail = f"{since}, and the scheduler fires it any moment"
        return Obstacle(code="due", detail=detail, next_at=at)
    detail = f"{since}, and no scheduler runs; start one with `daybell scheduler`"
    start = (remedies.start_scheduler(),)
    return Obstacle(code="no_scheduler", detail=detail, next_at=at, actions=start)


def _explain_rounds(waits: Sequence[WaitsFor], run: tuple[Remedy, ...]) -> Obstacle:
    missing = [one for one in waits if not one.is_met]
    named = listed(f"{one.job} ({one.detail})" for one in missing)
    detail = (
        f"it fires when its dependencies have succeeded: {named}"
        if named
        else ("its dependencies have succeeded, and the scheduler fires it any moment")
    )
    actions = tuple(remedies.trigger(one.job) for one in missing[:TICKS_MAX])
    return Obstacle(code=DEPENDENCIES, detail=detail, actions=(*actions, *run))


def _explain_no_time(schedule: Schedule, run: tuple[Remedy, ...]) -> Obstacle:
    if schedule.is_reboot:
        detail = "it fires when a scheduler starts after none was running"
        return Obstacle(code="reboot", detail=detail, actions=run)
    if schedule.delay is not None:
        detail = f"its next time is {schedule.delay:g} s after the end of its execution"
        return Obstacle(code="fixed_delay", detail=detail, actions=run)
    detail = "its times are over"
    with suppress(InvalidSchedule):
        rule = Rule.from_json(schedule.rule)
        if rule.max_executions is not None and schedule.fired >= rule.max_executions:
            detail = f"it has fired as often as it may, {rule.max_executions:,} times"
        elif rule.end_at is not None:
            detail = f"its times end at {to_iso(rule.end_at)}"
    return Obstacle(code="ended", detail=detail, actions=run)


def _explain_time(
    schedule: Schedule, at: Instant, now: Instant, run: tuple[Remedy, ...]
) -> Obstacle:
    """Explain a time to come by the rule, and by the calendar or the start that put it off."""
    code, detail = "scheduled", f"its next time is {to_iso(at)}"
    with suppress(InvalidSchedule):
        rule = Rule.from_json(schedule.rule)
        detail += f": {rule.describe()}"
        starts_later = rule.start_at is not None and rule.start_at > now
        plain = rule.replaced(calendar=None, start_at=None)
        earlier = None if rule.delay is not None else plain.next_after(now)
        if starts_later:
            code = "not_started"
            detail += f". It starts at {to_iso(rule.start_at or at)}"
        elif rule.calendar is not None and earlier is not None and earlier < at:
            code = "calendar"
            detail += f". Its calendar closes {to_iso(earlier)}, which would be earlier"
        if rule.jitter:
            detail += f". Its executions start up to {rule.jitter:g} s later (jitter)"
    return Obstacle(code=code, detail=detail, next_at=at, actions=run)


# Ticks.


async def _explain_ticks(client: ClientContext, status: JobStatus) -> tuple[TickReason, ...]:
    ticked = sorted(status.schedules, key=lambda one: one.last_at or 0.0, reverse=True)
    found = [
        (tick, schedule)
        for schedule in ticked[:_TICKED_MAX]
        for tick in await client.store.schedules.list_ticks(
            client.tenant, schedule.id, limit=TICKS_MAX
        )
    ]
    newest = sorted(found, key=lambda one: one[0].at, reverse=True)[:TICKS_MAX]
    paused = next((tick for tick, _ in newest if tick.reason == PAUSED), None)
    author = None
    if paused is not None:
        author = await _find_pauser(client, status.job.name, paused.at, _AUDIT_SECONDS)
    return tuple(
        TickReason(schedule, tick, _describe_tick(tick, author if tick is paused else None))
        for tick, schedule in newest
    )


def _describe_tick(tick: TickRecord, author: str | None) -> str:
    many = f"{tick.count:,} ticks until {to_iso(tick.until or tick.at)}: "
    which = many if tick.count > 1 else ""
    if tick.decision is Decision.FIRED:
        return f"it fired execution {tick.execution}"
    if tick.decision is Decision.SKIPPED:
        if tick.reason == OVERLAP:
            return "it was skipped by the overlap rule: an earlier execution had not ended"
        return f"it was skipped: {tick.reason}"
    if tick.reason == PAUSED:
        return f"{which}missed, as the job was paused" + (f" by {author}" if author else "")
    return f"{which}missed: {tick.reason or 'no scheduler fired it in time'}"


async def _find_pauser(client: ClientContext, job: str, at: Instant, before: float) -> str | None:
    """Find the author of the last pause before a time in the audit log."""
    where = AuditFilter(
        action="job.pause", target=job, since=at - before, until=at + _PAUSE_SECONDS
    )
    with suppress(AccessDenied):
        page = await client.store.admin.list_audit(client.tenant, where, limit=1)
        return next((one.actor for one in page.items), None)
    return None

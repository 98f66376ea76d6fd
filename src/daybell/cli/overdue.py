"""What `daybell doctor` says of schedules: whether they can be read, will fire, and do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from daybell.cli import show
from daybell.cli.every_job import every_job
from daybell.cli.standing import OVERDUE_SECONDS
from daybell.client.workflow_calls import vain_schedules
from daybell.core.instant import Instant
from daybell.core.resume import AHEAD_SECONDS
from daybell.core.schedule import Schedule
from daybell.core.view import Check
from daybell.core.when import Schedule as Rule
from daybell.core.worker import SCHEDULER, Leadership
from daybell.errors import InvalidSchedule, listed
from daybell.store.protocol import Store


async def check_schedules(store: Store) -> list[Check]:
    """The schedules of all tenants."""
    found: list[Schedule] = []
    vain: list[Check] = []
    for tenant in await store.list_tenants():
        of_tenant = await store.list_schedules(tenant)
        found += of_tenant
        vain += await _check_calls(store, tenant, of_tenant)
    now = (await store.health()).now
    checks = judge(found, await store.list_leaders(), now=now) + vain
    return checks + judge_ahead(
        (await store.schedules_ahead(by=AHEAD_SECONDS)).schedules, found, now
    )


async def _check_calls(store: Store, tenant: str, found: Iterable[Schedule]) -> list[Check]:
    """Schedules that call a workflow with what it took once. Those that come with a definition were
    looked at together with it.
    """
    added: dict[str, list[Schedule]] = defaultdict(list)
    for one in found:
        if not one.is_declared:
            added[one.job].append(one)
    if not added:
        return []
    checks: list[Check] = []
    async for job in every_job(store, tenant):  # in pages: very many may have such schedules
        for told in vain_schedules(job.definition, added.get(job.name, ())):
            said, _, advice = told.rpartition("; ")
            name, what = "schedules that call in vain", f"{job.name}: {said}"
            checks.append(Check(name=name, is_ok=False, found=what, advice=advice))
    return checks


def judge(found: Sequence[Schedule], leaders: Sequence[Leadership], *, now: Instant) -> list[Check]:
    """What is right with these, and what is not."""
    if not found:
        return [Check(name="schedules", is_ok=True, found="none")]
    broken = [one for one in found if _fault(one)]
    vain = [one for one in found if _is_vain(one)]
    late = [one for one in found if _is_late(one, now)]
    checks = [_readable(found, broken), _scheduler(found, leaders)]
    if vain:
        checks.append(
            Check(
                name="schedules that never fire",
                is_ok=False,
                found=f"{_named(vain)}: all of their times have passed, and they never fired",
                advice="give them a time in the future, or remove them",
            )
        )
    if late:
        first = min(one.next_at for one in late if one.next_at is not None)
        checks.append(
            Check(
                name="overdue ticks",
                is_ok=False,
                found=f"{_named(late)}: due since {show.moment(first)}",
                advice="start a scheduler, or look at the logs of those that run",
            )
        )
    return checks


def judge_ahead(ahead: Sequence[Schedule], found: Sequence[Schedule], now: Instant) -> list[Check]:
    """Report a clock that was ahead and was set back: by schedules that were set by it or have
    fired for times that have not come yet.
    """
    early = [one for one in found if one.last_at is not None and one.last_at > now + AHEAD_SECONDS]
    both = {(one.tenant, one.id): one for one in (*ahead, *early)}
    if not both:
        return []
    latest = max((one.last_at for one in both.values() if one.last_at is not None), default=now)
    until = f" for times up to {show.moment(latest)}" if latest > now else ""
    return [
        Check(
            name="clock set back",
            is_ok=False,
            found=f"{_named(list(both.values()))} were fired early{until}: the store's clock was"
            " ahead and was set back",
            advice="let NTP set it; a running scheduler re-arms them within 15 s, and ticks that"
            " were fired early do not fire again",
        )
    ]


def _readable(found: Sequence[Schedule], broken: Sequence[Schedule]) -> Check:
    said = show.count(len(found), "schedule")
    paused = sum(one.is_paused for one in found)
    if broken:
        said = f"{_named(broken)} cannot be read and do not fire: {_fault(broken[0])}"
    elif paused:
        said = f"{said}, {paused:,} of them paused"
    return Check(
        name="schedules",
        is_ok=not broken,
        found=said,
        advice="define these jobs again, or let schedulers of the version that wrote them run",
    )


def _scheduler(found: Sequence[Schedule], leaders: Sequence[Leadership]) -> Check:
    holders = [one.holder for one in leaders if one.name == SCHEDULER]
    return Check(
        name="scheduler",
        is_ok=bool(holders),
        found=f"{holders[0]} leads" if holders else "none is there, so no schedule fires",
        advice="start one: daybell scheduler",
    )


def _fault(schedule: Schedule) -> str | None:
    """Why its rule cannot be read."""
    try:
        Rule.from_json(schedule.rule)
    except InvalidSchedule as error:
        return str(error)
    return None


def _is_vain(schedule: Schedule) -> bool:
    """Whether it will not fire and never has. One that has is simply over."""
    return not schedule.is_to_fire and schedule.last_at is None and not schedule.missed


def _is_late(schedule: Schedule, now: Instant) -> bool:
    if schedule.is_paused or schedule.next_at is None or _fault(schedule):
        return False
    return schedule.next_at < now - OVERDUE_SECONDS


def _named(schedules: Sequence[Schedule]) -> str:
    jobs = sorted({one.job for one in schedules})
    return f"{show.count(len(schedules), 'schedule')} of {listed(jobs)}"

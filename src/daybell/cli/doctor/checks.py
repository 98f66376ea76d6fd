"""Checks of `daybell doctor` on jobs, secrets, schedules and stranded executions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from daybell.cli import output
from daybell.cli.apps import iterate_jobs
from daybell.cli.views.jobs import OVERDUE_SECONDS
from daybell.client.admin import VARIABLE, Sealer
from daybell.client.executions import page_reader
from daybell.client.job_checks import find_mismatched_schedules
from daybell.client.workers import describe_lack, effective_definition, find_capable_workers
from daybell.core.access import SealedSecret
from daybell.core.execution import PENDING, Execution, State
from daybell.core.job import DEFAULT_TENANT, Job, JobActivity, JobDefinition, task_of
from daybell.core.kinds import secrets_of
from daybell.core.lifecycle import UNKNOWN_TASK
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.core.schedule import Schedule
from daybell.core.units import Instant, Seconds
from daybell.core.views import Check, ExecutionFilter, read_found
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import AHEAD_SECONDS
from daybell.core.worker import SCHEDULER, Leadership, Worker
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.node import JOB
from daybell.errors import InvalidSchedule, JobNotFound, UsageError, listed, with_tenant
from daybell.store.protocol import Store

KINDS: Final = "kinds"

_Lane = tuple[str, str]  # a queue, and what its workers must offer


async def check_kinds(store: Store) -> list[Check]:
    """The jobs of all tenants. Of tasks only the secrets: nobody says what their code needs. It is
    about what is to begin: what waits in vain by now, `check_stranded` and `check_tasks` find.
    """
    checks: list[Check] = []
    now = (await store.health()).now
    for tenant in await store.list_tenants():
        jobs = [job async for job in iterate_jobs(store, tenant)]
        without_code = [job for job in jobs if job.definition.kind != "task"]
        if without_code:
            workers = await store.list_workers(tenant)
            unoffered = {
                job.name: lanes for job in without_code if (lanes := _closed(job, workers, now))
            }
            looks = await store.job_activity(tenant, list(unoffered))
            checks += judge_offers(tenant, unoffered, looks)
        used = secrets_in(jobs)
        if used:
            known = {one.name for one in await store.list_secrets(tenant)}
            checks.append(judge_secrets(tenant, used, known))
    return checks


def _closed(job: Job, workers: Sequence[Worker], now: Instant) -> list[_Lane]:
    """The lanes of a job that nobody serves: its own, and those of its nodes. Of nodes that are
    tasks, too, nobody says which of them a worker has, but whether it has any.
    """
    lanes = {(job.definition.queue, job.definition.needs): None}
    if job.definition.kind == "workflow":
        graph = Graph.from_settings(job.definition.settings)
        for node in graph.nodes:
            if node.kind != JOB:
                inline = graph.definition_of(node, job.definition)
                lanes[inline.queue, inline.needs] = None
    return [
        (queue, needs)
        for queue, needs in lanes
        if not find_capable_workers(workers, queue=queue, needs=needs, now=now)
    ]


def judge_offers(
    tenant: str, unoffered: Mapping[str, Iterable[_Lane]], looks: Mapping[str, JobActivity]
) -> list[Check]:
    """Jobs that nobody can run are a problem if one of them is to run."""
    waiting: dict[_Lane, list[str]] = defaultdict(list)
    for job, lanes in unoffered.items():
        if _is_to_run(looks.get(job, JobActivity())):
            for lane in lanes:
                waiting[lane].append(job)
    checks = [_unoffered(tenant, queue, needs, names) for (queue, needs), names in waiting.items()]
    fine = Check(name=KINDS, is_ok=True, found=f"somebody runs all that is to run{_of(tenant)}")
    return checks or [fine]


def is_fine(check: Check) -> bool:
    """Whether it says that somebody runs all that is to run."""
    return check.name == KINDS and check.is_ok


def _unoffered(tenant: str, queue: str, needs: str, names: list[str]) -> Check:
    lack = describe_lack(needs, queue=queue)
    jobs = output.format_count(len(names), "job")
    verb = "waits" if len(names) == 1 else "wait"
    return Check(
        name=KINDS,
        is_ok=False,
        found=f"{lack.found}{_of(tenant)}, and {jobs} {verb} for one: {listed(names)}",
        advice=with_tenant(lack.advice, tenant),
    )


def secrets_in(jobs: Iterable[Job]) -> dict[str, list[str]]:
    """The secrets that jobs refer to, each with their names."""
    used: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        settings, args = job.definition.settings, job.definition.args
        if SECRET_MARK in settings or SECRET_MARK in args:
            names = secrets_of(job.definition.kind, msgspec.json.decode(settings))
            for name in sorted(names | names_in_args(msgspec.json.decode(args))):
                used[name].append(job.name)
    return used


def judge_secrets(tenant: str, used: Mapping[str, list[str]], known: Iterable[str]) -> Check:
    """A job fails for good where a secret that it refers to is not set."""
    unset = sorted(used.keys() - set(known))
    if not unset:
        found = f"all that jobs refer to are set{_of(tenant)}"
        return Check(name="secrets", is_ok=True, found=found)
    told = listed((f"{name} of {listed(used[name])}" for name in unset), between="; ")
    return Check(
        name="secrets",
        is_ok=False,
        found=f"not set{_of(tenant)}: {told}",
        advice=with_tenant(f"set it with `daybell secrets set {unset[0]}`", tenant),
    )


async def check_sealing(store: Store, sealer: Sealer | None) -> list[Check]:
    """Whether the keys at hand open the secrets of all tenants. Without a key here, only secrets
    that jobs refer to are a problem: the workers may have it from elsewhere.
    """
    checks: list[Check] = []
    for tenant in await store.list_tenants():
        names = [one.name for one in await store.list_secrets(tenant)]
        if sealer is None and names:
            names = sorted(
                secrets_in([job async for job in iterate_jobs(store, tenant)]).keys() & set(names)
            )
        if names:
            checks.append(judge_sealing(tenant, await store.fetch_secrets(tenant, names), sealer))
    return checks


def judge_sealing(tenant: str, sealed: Mapping[str, SealedSecret], sealer: Sealer | None) -> Check:
    """A job fails at a worker that cannot open a secret that it refers to."""
    if sealer is None:
        return Check(
            name="sealing",
            is_ok=False,
            found=f"{VARIABLE} is not set here, and jobs{_of(tenant)} use secrets:"
            f" {listed(sorted(sealed))}",
            advice=f"set {VARIABLE} here as for the workers; without it no secret can be opened",
        )
    faults: list[str] = []
    for name in sorted(sealed):
        try:
            sealer.open(tenant, sealed[name])
        except UsageError as error:
            faults.append(str(error))
    if not faults:
        found = f"the keys here open all secrets{_of(tenant)}"
        return Check(name="sealing", is_ok=True, found=found)
    more = f" (and {len(faults) - 1:,} more)" if faults[1:] else ""
    found, _, advice = faults[0].rpartition("; ")
    of = "" if "of tenant" in found else _of(tenant)
    return Check(name="sealing", is_ok=False, found=f"{found}{of}{more}", advice=advice)


def _is_to_run(look: JobActivity) -> bool:
    return bool(look.unfinished & PENDING) or any(map(_fires, look.schedules))


def _fires(schedule: Schedule) -> bool:
    return schedule.is_to_fire and not schedule.is_paused


def _of(tenant: str) -> str:
    return "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"


# What `daybell doctor` says of schedules: whether they can be read, will fire, and do.


async def check_schedules(store: Store) -> list[Check]:
    """The schedules of all tenants."""
    found: list[Schedule] = []
    vain: list[Check] = []
    for tenant in await store.list_tenants():
        of_tenant = await store.list_schedules(tenant)
        found += of_tenant
        vain += await _check_calls(store, tenant, of_tenant)
    now = (await store.health()).now
    checks = judge_schedules(found, await store.list_leaders(), now=now) + vain
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
    async for job in iterate_jobs(store, tenant):  # in pages: very many may have such schedules
        for told in find_mismatched_schedules(job.definition, added.get(job.name, ())):
            said, _, advice = told.rpartition("; ")
            name, what = "schedules that call in vain", f"{job.name}: {said}"
            checks.append(Check(name=name, is_ok=False, found=what, advice=advice))
    return checks


def judge_schedules(
    found: Sequence[Schedule], leaders: Sequence[Leadership], *, now: Instant
) -> list[Check]:
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
                found=f"{_schedule_names(vain)}: all of their times have passed, and they"
                " never fired",
                advice="give them a time in the future, or remove them",
            )
        )
    if late:
        first = min(one.next_at for one in late if one.next_at is not None)
        checks.append(
            Check(
                name="overdue ticks",
                is_ok=False,
                found=f"{_schedule_names(late)}: due since {output.format_moment(first)}",
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
    until = f" for times up to {output.format_moment(latest)}" if latest > now else ""
    return [
        Check(
            name="clock set back",
            is_ok=False,
            found=f"{_schedule_names(list(both.values()))} were fired early{until}: the"
            " store's clock was"
            " ahead and was set back",
            advice="let NTP set it; a running scheduler re-arms them within 15 s, and ticks that"
            " were fired early do not fire again",
        )
    ]


def _readable(found: Sequence[Schedule], broken: Sequence[Schedule]) -> Check:
    said = output.format_count(len(found), "schedule")
    paused = sum(one.is_paused for one in found)
    if broken:
        said = f"{_schedule_names(broken)} cannot be read and do not fire: {_fault(broken[0])}"
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


def _schedule_names(schedules: Sequence[Schedule]) -> str:
    jobs = sorted({one.job for one in schedules})
    return f"{output.format_count(len(schedules), 'schedule')} of {listed(jobs)}"


# What `daybell doctor` says of executions that are due and that nobody can take.
#
# A job says where its next executions go. Those that wait already may be in another queue, and
# run an older version of it, which may be of another kind.


async def check_stranded(store: Store, *, patience: Seconds = OVERDUE_SECONDS) -> list[Check]:
    """Of the queues of all tenants that are late. Of a long one only the newest page is read."""
    checks: list[Check] = []
    late = (now := (await store.health()).now) - patience
    for tenant in await store.list_tenants():
        queues = [
            one
            for one in await store.list_queues(tenant)
            if not one.is_paused and one.oldest_run_at is not None and one.oldest_run_at < late
        ]
        workers = await store.list_workers(tenant) if queues else []
        for queue in queues:
            where = ExecutionFilter(
                queue=queue.name, states=PENDING - {State.WAITING}, with_nodes=True
            )
            page = await read_found(page_reader(store, tenant, where))
            due = [one for one in page.items if one.run_at < late]
            for needs, found in (await _by_needs(store, tenant, due)).items():
                if not find_capable_workers(workers, queue=queue.name, needs=needs, now=now):
                    checks.append(_stranded(tenant, queue.name, needs, found))
    return checks


async def _by_needs(
    store: Store, tenant: str, due: Iterable[Execution]
) -> dict[str, list[Execution]]:
    """What workers must offer for them, without what is said of their jobs anyway."""
    found: dict[str, list[Execution]] = defaultdict(list)
    versions: dict[tuple[str, int | None], Job | None] = {}
    for one in due:
        for version in (None, one.version):
            if (one.job, version) not in versions:
                versions[one.job, version] = await _job(store, tenant, one.job, version)
        now, then = versions[one.job, None], versions[one.job, one.version]
        needs = "task" if then is None else effective_definition(one, then.definition).needs
        if one.node is not None or now is None or not _is_said(now, queue=one.queue, needs=needs):
            found[needs].append(one)
    return found


async def _job(store: Store, tenant: str, name: str, version: int | None) -> Job | None:
    try:
        return await store.get_job(tenant, name, version=version)
    except JobNotFound:
        return None


def _is_said(job: Job, *, queue: str, needs: str) -> bool:
    """Whether `check_kinds` says it: it looks at jobs without code as they are now."""
    known = job.definition
    return known.kind != "task" and (known.queue, known.needs) == (queue, needs)


def _stranded(tenant: str, queue: str, needs: str, found: list[Execution]) -> Check:
    lack = describe_lack(needs, queue=queue)
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    many = output.format_count(len(found), "execution")
    since: Instant = min(one.run_at for one in found)
    named = listed(sorted({one.job for one in found}))
    waits = "waits" if len(found) == 1 else "wait"
    return Check(
        name="overdue executions",
        is_ok=False,
        found=f"{lack.found}{of}, and {many} of {named} {waits} for one since"
        f" {output.format_moment(since)}",
        advice=with_tenant(lack.advice, tenant),
    )


# What `daybell doctor` says of executions whose task no worker has, as far as they were tried.
#
# A worker that takes an execution and has no such task puts it off, with that as its reason, if
# no other live one of the queue says that it has the task.

_Version = tuple[str, int]


async def check_tasks(store: Store) -> list[Check]:
    """Of all tenants; of very many executions that are put off, only the newest are read."""
    checks: list[Check] = []
    where = ExecutionFilter(states=frozenset({State.SCHEDULED}), with_nodes=True)
    for tenant in await store.list_tenants():
        page = await read_found(page_reader(store, tenant, where))
        put_off = [one for one in page.items if one.reason == UNKNOWN_TASK]
        if put_off:
            checks.append(_unknown(tenant, put_off, await _definitions(store, tenant, put_off)))
    return checks


async def _definitions(
    store: Store, tenant: str, put_off: Iterable[Execution]
) -> dict[_Version, JobDefinition]:
    found: dict[_Version, JobDefinition] = {}
    for job, version in {(one.job, one.version) for one in put_off}:
        try:
            found[job, version] = (await store.get_job(tenant, job, version=version)).definition
        except JobNotFound:
            found[job, version] = JobDefinition(name=job)
    return found


def _unknown(tenant: str, put_off: list[Execution], known: dict[_Version, JobDefinition]) -> Check:
    users: dict[str, set[str]] = defaultdict(set)  # the jobs and workflows, by task
    for one in put_off:
        run = effective_definition(one, known[one.job, one.version])
        users[task_of(run) or run.name].add(one.job)
    named = [_task_with_jobs(task, users[task]) for task in sorted(users)]
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    many = output.format_count(len(put_off), "execution")
    waits = "waits" if len(put_off) == 1 else "wait"
    return Check(
        name="tasks",
        is_ok=False,
        found=f"{many}{of} {waits} for a task that no worker had which took them: {listed(named)}",
        advice=with_tenant("start a worker whose app has it, `daybell worker APP`", tenant)
        + ", or import its module there; if several apps share a queue, give each a queue of its"
        " own",
    )


def _task_with_jobs(task: str, jobs: set[str]) -> str:
    """A task, and whose it is if that is not clear from its name."""
    first, *others = sorted(jobs)
    if jobs == {task}:
        return task
    more = f" and {len(others):,} more" if others else ""
    return f"{task} (of {first}{more})"

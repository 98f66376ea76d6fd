"""`daybell doctor`: run all checks of the settings and the store, and print the result."""

from __future__ import annotations

import os
import stat
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from daybell.cli import output
from daybell.cli.actions.definitions import check_app_code
from daybell.cli.apps import check_missing_jobs, find_app, iterate_jobs, tenant_names
from daybell.cli.doctor.growth import check_growth
from daybell.cli.runtime import DONE, FAILED, describe_error, with_flag
from daybell.cli.views.jobs import OVERDUE_SECONDS
from daybell.client.executions import page_reader
from daybell.client.explain.needs import effective_definition
from daybell.client.job_checks import find_mismatched_schedules
from daybell.client.schedules import read_schedules
from daybell.client.sealing import VARIABLE, Sealer
from daybell.client.workers import describe_lack, find_capable_workers
from daybell.core.access import SealedSecret
from daybell.core.execution import PENDING, Execution, State
from daybell.core.job import DEFAULT_TENANT, Job, JobActivity, JobDefinition
from daybell.core.kinds import secrets_of
from daybell.core.lifecycle import UNKNOWN_TASK
from daybell.core.options import task_of
from daybell.core.postgres_url import WEAK_MODES, is_local, ssl_mode
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.core.schedule import Schedule
from daybell.core.units import Instant, Seconds, format_duration
from daybell.core.views import Check, ExecutionFilter, read_found
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import AHEAD_SECONDS
from daybell.core.worker import SCHEDULER, Leadership, Worker
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.node import JOB
from daybell.errors import (
    DaybellError,
    InvalidSchedule,
    JobNotFound,
    SchemaError,
    Unavailable,
    UsageError,
    listed,
    with_tenant,
)
from daybell.sdk.app import App
from daybell.sdk.modules import AppImportError
from daybell.settings import FILE_NAME, Settings, masked_url
from daybell.store.open import as_postgres, check_pooler, store_for
from daybell.store.protocol import Store
from daybell.store.timeouts import timeouts_for

# Checks of `daybell doctor` on jobs, secrets, schedules and stranded executions.

KINDS: Final = "kinds"

_Lane = tuple[str, str]  # a queue, and the needs that its workers must offer


async def check_kinds(store: Store) -> list[Check]:
    """Check the jobs of all tenants. Of tasks, only the secrets: the needs of code are not known.
    It is about runs to come: `check_stranded` and `check_tasks` find those that wait in vain.
    """
    checks: list[Check] = []
    now = (await store.health()).now
    for tenant in await tenant_names(store):
        jobs = [job async for job in iterate_jobs(store, tenant)]
        without_code = [job for job in jobs if job.definition.kind != "task"]
        if without_code:
            workers = await store.catalog.list_workers(tenant)
            unoffered = {
                job.name: lanes for job in without_code if (lanes := _closed(job, workers, now))
            }
            looks = await store.catalog.job_activity(tenant, list(unoffered))
            checks += judge_offers(tenant, unoffered, looks)
        used = secrets_in(jobs)
        if used:
            known = {one.name for one in await store.admin.list_secrets(tenant)}
            checks.append(judge_secrets(tenant, used, known))
    return checks


def _closed(job: Job, workers: Sequence[Worker], now: Instant) -> list[_Lane]:
    """Return the lanes of a job that no worker serves: its own, and those of its nodes. Of nodes
    that are tasks, too, the store does not record which a worker has, but only if it has any.
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
    """Report jobs that no worker can run as a problem if one of them is to run."""
    waiting: dict[_Lane, list[str]] = defaultdict(list)
    for job, lanes in unoffered.items():
        if _is_to_run(looks.get(job, JobActivity())):
            for lane in lanes:
                waiting[lane].append(job)
    checks = [_unoffered(tenant, queue, needs, names) for (queue, needs), names in waiting.items()]
    fine = Check(
        name=KINDS, is_ok=True, found=f"workers can run every job that is to run{_of(tenant)}"
    )
    return checks or [fine]


def is_fine(check: Check) -> bool:
    """Return true if the check reports that workers run all that is to run."""
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
    """Return the secrets that jobs refer to, each with the names of the jobs."""
    used: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        settings, args = job.definition.settings, job.definition.args
        if SECRET_MARK in settings or SECRET_MARK in args:
            names = secrets_of(job.definition.kind, msgspec.json.decode(settings))
            for name in sorted(names | names_in_args(msgspec.json.decode(args))):
                used[name].append(job.name)
    return used


def judge_secrets(tenant: str, used: Mapping[str, list[str]], known: Iterable[str]) -> Check:
    """Report unset secrets: a job that refers to one fails for good."""
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
    """Check that the keys at hand open the secrets of all tenants. Without a key here, only secrets
    that jobs refer to are a problem: the workers may have it from elsewhere.
    """
    checks: list[Check] = []
    for tenant in await tenant_names(store):
        names = [one.name for one in await store.admin.list_secrets(tenant)]
        if sealer is None and names:
            names = sorted(
                secrets_in([job async for job in iterate_jobs(store, tenant)]).keys() & set(names)
            )
        if names:
            checks.append(
                judge_sealing(tenant, await store.admin.fetch_secrets(tenant, names), sealer)
            )
    return checks


def judge_sealing(tenant: str, sealed: Mapping[str, SealedSecret], sealer: Sealer | None) -> Check:
    """Report secrets without their key: a job fails at a worker that cannot open its secrets."""
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


# Checks of `daybell doctor` on schedules: that they can be read, will fire, and do.


async def check_schedules(store: Store) -> list[Check]:
    """Check the schedules of all tenants."""
    found: list[Schedule] = []
    vain: list[Check] = []
    for tenant in await tenant_names(store):
        of_tenant = [one async for page in read_schedules(store, tenant) for one in page]
        found += of_tenant
        vain += await _check_calls(store, tenant, of_tenant)
    now = (await store.health()).now
    checks = judge_schedules(found, await store.admin.list_leaders(), now=now) + vain
    return checks + judge_ahead(
        (await store.schedules.schedules_ahead(by=AHEAD_SECONDS)).schedules, found, now
    )


async def _check_calls(store: Store, tenant: str, found: Iterable[Schedule]) -> list[Check]:
    """Check the schedules that call a workflow with arguments that it no longer takes. Those that
    come with a definition were checked together with it.
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
    """Return the checks that these schedules pass, and those that they fail."""
    if not found:
        return [Check(name="schedules", is_ok=True, found="none")]
    broken = [one for one in found if _fault(one)]
    vain = [one for one in found if _is_vain(one)]
    late = [one for one in found if _is_late(one, now)]
    checks = [_readable(found, broken), _scheduler(leaders)]
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


def _scheduler(leaders: Sequence[Leadership]) -> Check:
    holders = [one.holder for one in leaders if one.name == SCHEDULER]
    return Check(
        name="scheduler",
        is_ok=bool(holders),
        found=f"{holders[0]} leads" if holders else "none is there, so no schedule fires",
        advice="start one: daybell scheduler",
    )


def _fault(schedule: Schedule) -> str | None:
    """Return the reason why its rule cannot be read."""
    try:
        Rule.from_json(schedule.rule)
    except InvalidSchedule as error:
        return str(error)
    return None


def _is_vain(schedule: Schedule) -> bool:
    """Return true if it will not fire and never has. One that has fired is simply over."""
    return not schedule.is_to_fire and schedule.last_at is None and not schedule.missed


def _is_late(schedule: Schedule, now: Instant) -> bool:
    if schedule.is_paused or schedule.next_at is None or _fault(schedule):
        return False
    return schedule.next_at < now - OVERDUE_SECONDS


def _schedule_names(schedules: Sequence[Schedule]) -> str:
    jobs = sorted({one.job for one in schedules})
    return f"{output.format_count(len(schedules), 'schedule')} of {listed(jobs)}"


# Checks of `daybell doctor` on executions that are due and that no worker can take.
#
# A job specifies the queue of its next executions. Those that wait already may be in another queue,
# and run an older version of it, which may be of another kind.


async def check_stranded(store: Store, *, patience: Seconds = OVERDUE_SECONDS) -> list[Check]:
    """Check the late queues of all tenants. Of a long queue only the newest page is read."""
    checks: list[Check] = []
    late = (now := (await store.health()).now) - patience
    for tenant in await tenant_names(store):
        queues = [
            one
            for one in await store.catalog.list_queues(tenant)
            if not one.is_paused and one.oldest_run_at is not None and one.oldest_run_at < late
        ]
        workers = await store.catalog.list_workers(tenant) if queues else []
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
    """Group executions by the needs of their lanes, without those reported with their jobs."""
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
        return await store.catalog.get_job(tenant, name, version=version)
    except JobNotFound:
        return None


def _is_said(job: Job, *, queue: str, needs: str) -> bool:
    """Return true if `check_kinds` reports it: that checks jobs without code as they are now."""
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


# Checks of `daybell doctor` on executions with a task that no worker has, as far as tried.
#
# A worker that takes an execution and has no such task puts it off, with that as its reason, if no
# other live worker of the queue reports that it has the task.

_Version = tuple[str, int]


async def check_tasks(store: Store) -> list[Check]:
    """Check all tenants; of very many executions that are put off, only the newest are read."""
    checks: list[Check] = []
    where = ExecutionFilter(states=frozenset({State.SCHEDULED}), with_nodes=True)
    for tenant in await tenant_names(store):
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
            found[job, version] = (
                await store.catalog.get_job(tenant, job, version=version)
            ).definition
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
    """Return a task, with the jobs that run it if its name does not tell."""
    first, *others = sorted(jobs)
    if jobs == {task}:
        return task
    more = f" and {len(others):,} more" if others else ""
    return f"{task} (of {first}{more})"


ROUND_TRIPS: Final = 5
ROUND_TRIP_SECONDS_MOST: Final = 0.1
CLOCK_SECONDS_MOST: Final = 1.0
# A worker renews three times per lease; a store that restarts or fails over takes a few seconds.
LEASE_SECONDS_LEAST: Final = 5.0
LEASE_SECONDS_MOST: Final = 300.0


async def doctor(
    settings: Settings, *, as_json: bool, flag: str | None = None, spec: str | None = None
) -> int:
    """Make all checks and show them. `flag` is a --database-url. `spec` names an app: its store is
    checked then.
    """
    app, found = None, list[Check]()
    try:
        app = None if spec is None else find_app(spec, settings, flag=flag)
    except AppImportError as error:
        found = [Check(name="app", is_ok=False, found=str(error))]
    if app is not None:
        settings = replace(settings, database_url=app.url)
    found += [*await check_store(settings, flag=flag, app=app), check_lease(settings.lease)]
    found += check_tls(settings)
    found += check_file(Path(FILE_NAME))
    typer.echo(settings.mask(encode_checks(found) if as_json else render_checks(found)))
    return DONE if all(check.is_ok for check in found) else FAILED


def refuse(error: UsageError) -> None:
    """Report unusable settings to a program: it reads JSON, also if nothing can be checked."""
    name = "store" if error.field == "database_url" else "settings"
    advice = "mend the flag, the variable or the line in daybell.toml that it comes from"
    typer.echo(encode_checks([Check(name=name, is_ok=False, found=str(error), advice=advice)]))


def encode_checks(found: Sequence[Check]) -> str:
    """Return the checks as JSON, for programs."""
    is_ok = all(check.is_ok for check in found)
    report = {"is_ok": is_ok, "checks": [advised(check) for check in found]}
    return msgspec.json.encode(report).decode()


async def check_store(
    settings: Settings, *, flag: str | None = None, app: App | None = None
) -> list[Check]:
    """Check that the store can be reached and used, read its own report, and check that it follows
    the definitions of the app's code.
    """
    place = masked_url(settings.database_url)
    sealer = None if settings.secrets_key is None else Sealer(settings.secrets_key)
    pool_size = settings.pool_size
    store = store_for(settings.database_url, lease=settings.lease, pool_size=pool_size)
    try:
        await store.open()
        found = [*await _measure(store, place), *(await store.health()).checks]
        found += await check_pooler(store)
        found += await check_schedules(store)
        found += await check_missing_jobs(store)
        found += await _check_takers(store)
        found += await check_sealing(store, sealer)
        found += [] if app is None else [await check_app_code(store, app)]
        return [*found, await check_gates(store), *await check_growth(store)]
    except SchemaError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return [_failed("store", f"{place}: {with_flag(str(error), flag)}")]
        reached = Check(name="store", is_ok=True, found=place)
        return [reached, _failed("schema", with_flag(str(error), flag))]
    except DaybellError as error:
        limit = "in time"
        if as_postgres(store):
            connect = timeouts_for(settings.lease).connect
            limit = f"within {connect:g} s"
        said = describe_error(error, limit=limit)
        return [_failed("store", f"{place}: {said}", otherwise=_way_out(error, place))]
    finally:
        await store.close()


async def _check_takers(store: Store) -> list[Check]:
    """Check that workers run all that is to run. If executions wait in vain, report only those: a
    run that began waits for its nodes, even if a worker could begin another.
    """
    waiting = [*await check_stranded(store), *await check_tasks(store)]
    return [one for one in await check_kinds(store) if not (waiting and is_fine(one))] + waiting


def _failed(name: str, said: str, *, otherwise: str = "") -> Check:
    """Return a failed check from a message that ends with the advice."""
    found, mark, way_out = said.rpartition(". ")
    if mark and way_out.startswith(("Run ", "Check ", "Upgrade ")):
        return Check(name=name, is_ok=False, found=found, advice=way_out[0].lower() + way_out[1:])
    found, mark, way_out = said.partition("; run `")
    return Check(name=name, is_ok=False, found=found, advice=mark[2:] + way_out or otherwise)


def _way_out(error: DaybellError, place: str) -> str:
    if not isinstance(error, Unavailable):
        return ""  # the request is wrong, and the message describes it
    if place.startswith("sqlite:"):
        return "look at the file, its permissions and those of its folder"
    return (
        "check that PostgreSQL runs there, that host and port are right, and that no firewall is in"
        " between"
    )


async def _measure(store: Store, place: str) -> list[Check]:
    """Measure a few times; the quickest answer is the best measure of the latency and the clock."""
    quickest, ahead, product = float("inf"), 0.0, ""
    for _ in range(ROUND_TRIPS):
        before = time.time()
        health = await store.health()
        after = time.time()
        if after - before < quickest:
            quickest, product = after - before, health.product
            ahead = health.now - (before + after) / 2
    return [check_round_trip(place, product, quickest), check_clock(ahead, quickest)]


async def check_gates(store: Store) -> Check:
    """Check for slots that are counted and that no execution has: they block a job for ever."""
    wrong = await store.catalog.miscounts()
    first = wrong[0] if wrong else None
    found = "all counts agree with the executions"
    if first is not None:
        rest = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        name = f"{first.gate} of tenant {first.tenant}"
        found = f"{name} counts {first.counted} inside, and there are {first.inside}{rest}"
    return Check(
        name="gates",
        is_ok=not wrong,
        found=found,
        advice="a running worker or scheduler counts anew every hour; please report it",
    )


def check_round_trip(place: str, product: str, seconds: float) -> Check:
    """Judge the latency: every claim and every finish waits for at least one round trip."""
    return Check(
        name="store",
        is_ok=seconds <= ROUND_TRIP_SECONDS_MOST,
        found=f"{place}, {product}, answers in {seconds * 1000:.1f} ms",
        advice="that is slow: run Daybell near its database, and look at the database's load",
    )


def check_clock(ahead: float, round_trip: float) -> Check:
    """Judge this machine's clock. It decides nothing, but users compare logs with the store's."""
    way = "ahead of" if ahead > 0 else "behind"
    return Check(
        name="clock",
        is_ok=abs(ahead) <= CLOCK_SECONDS_MOST + round_trip / 2,
        found=f"the store is {abs(ahead):.3f} s {way} this machine",
        advice="due times go by the store's clock; let NTP set both",
    )


def check_lease(seconds: float) -> Check:
    """Judge the lease: too short, a hiccup costs work; too long, a dead worker's work waits."""
    is_short = seconds < LEASE_SECONDS_LEAST
    return Check(
        name="lease",
        is_ok=LEASE_SECONDS_LEAST <= seconds <= LEASE_SECONDS_MOST,
        found=f"{format_duration(seconds)}: a dead worker's work is given to others after that",
        advice="a restart of the database would outlast it; raise DAYBELL_LEASE to 15s"
        if is_short
        else "work of a dead worker waits that long; lower DAYBELL_LEASE",
    )


def check_tls(settings: Settings) -> list[Check]:
    """Report for each server of a network whether passwords and data travel encrypted."""
    urls = {"database_url": settings.database_url, "listen_url": settings.listen_url}
    urls |= {f"connections.{name}": url for name, url in settings.connections.items()}
    found: list[Check] = []
    for name, url in urls.items():
        if url is None or not url.startswith("postgres"):
            continue
        try:
            if is_local(url, os.environ):
                continue
            mode = ssl_mode(url, os.environ)
        except (ValueError, UsageError):
            continue  # it cannot be used, which is reported where it is
        fact = f"sslmode={mode}"
        if mode is None:
            fact = "no sslmode: a server that refuses TLS is not used"
        elif mode in ("disable", *WEAK_MODES):
            may = "may travel" if mode in WEAK_MODES else "travel"
            fact += f": the password and all data {may} unencrypted"
        found.append(
            Check(
                name="tls",
                is_ok=mode not in WEAK_MODES,
                found=f"{name} has {fact}",
                advice="a server, or a machine on the way to it, can refuse TLS; write"
                " sslmode=require or verify-full, or sslmode=disable for a network that is trusted",
            )
        )
    return found


def check_file(file: Path) -> list[Check]:
    """Report a file with the key of all secrets in it; other users must not read that."""
    try:
        mode = file.stat().st_mode
        has_key = "secrets_key" in tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return []  # the settings were read without it, or have reported its error
    if not has_key:
        return []
    return [
        Check(
            name="settings",
            is_ok=not mode & (stat.S_IRGRP | stat.S_IROTH),
            found=f"{file} has the key that seals secrets, and its mode is {mode & 0o777:o}",
            advice=f"others on this machine can read it; run chmod 600 {file}",
        )
    ]


def advised(check: Check) -> Check:
    """Return the check without its advice if it is fine."""
    return msgspec.structs.replace(check, advice="") if check.is_ok else check


def render_checks(found: Sequence[Check]) -> str:
    """Return lines for people, in colour on a terminal."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for check in map(advised, found):
        word = Text("ok", "green") if check.is_ok else Text("problem", "bold red")
        said = f"{check.found}; {check.advice}" if check.advice else check.found
        # Text, not markup: a message may contain square brackets.
        table.add_row(word, check.name, Text(said))
    # A file has no margin to fold at.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())

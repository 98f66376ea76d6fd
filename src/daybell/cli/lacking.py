"""What `daybell doctor` says of jobs without code: whether somebody runs them, and whether the
secrets that jobs refer to are set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from daybell.cli import show
from daybell.cli.every_job import every_job
from daybell.client.offers import able, lack_of
from daybell.client.sealing import VARIABLE, Sealer
from daybell.core.execution import PENDING
from daybell.core.graph import Graph
from daybell.core.graph_node import JOB
from daybell.core.instant import Instant
from daybell.core.job import DEFAULT_TENANT, Job
from daybell.core.kinds import secrets_of
from daybell.core.references import SECRET_MARK, names_in_args
from daybell.core.schedule import Schedule
from daybell.core.secret import SealedSecret
from daybell.core.standing import Look
from daybell.core.view import Check
from daybell.core.worker import Worker
from daybell.errors import UsageError, listed, with_tenant
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
        jobs = [job async for job in every_job(store, tenant)]
        without_code = [job for job in jobs if job.definition.kind != "task"]
        if without_code:
            workers = await store.list_workers(tenant)
            unoffered = {
                job.name: lanes for job in without_code if (lanes := _closed(job, workers, now))
            }
            looks = await store.look_at_jobs(tenant, list(unoffered))
            checks += judge(tenant, unoffered, looks)
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
        if not able(workers, queue=queue, needs=needs, now=now)
    ]


def judge(
    tenant: str, unoffered: Mapping[str, Iterable[_Lane]], looks: Mapping[str, Look]
) -> list[Check]:
    """Jobs that nobody can run are a problem if one of them is to run."""
    waiting: dict[_Lane, list[str]] = defaultdict(list)
    for job, lanes in unoffered.items():
        if _is_to_run(looks.get(job, Look())):
            for lane in lanes:
                waiting[lane].append(job)
    checks = [_unoffered(tenant, queue, needs, names) for (queue, needs), names in waiting.items()]
    fine = Check(name=KINDS, is_ok=True, found=f"somebody runs all that is to run{_of(tenant)}")
    return checks or [fine]


def is_fine(check: Check) -> bool:
    """Whether it says that somebody runs all that is to run."""
    return check.name == KINDS and check.is_ok


def _unoffered(tenant: str, queue: str, needs: str, names: list[str]) -> Check:
    lack = lack_of(needs, queue=queue)
    jobs = show.count(len(names), "job")
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
                secrets_in([job async for job in every_job(store, tenant)]).keys() & set(names)
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


def _is_to_run(look: Look) -> bool:
    return bool(look.unfinished & PENDING) or any(map(_fires, look.schedules))


def _fires(schedule: Schedule) -> bool:
    return schedule.is_to_fire and not schedule.is_paused


def _of(tenant: str) -> str:
    return "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"

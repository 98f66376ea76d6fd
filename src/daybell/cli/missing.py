"""What people are told of jobs that others name, and that are not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from daybell.cli.edge import complain
from daybell.cli.every_job import every_job
from daybell.cli.show import printable
from daybell.core.circles import inner_jobs
from daybell.core.job import DEFAULT_TENANT, Job, JobDefinition
from daybell.core.view import Check
from daybell.errors import JobNotFound, listed, shown
from daybell.store.protocol import Store


async def tell_missing(store: Store, tenant: str, definitions: Iterable[JobDefinition]) -> None:
    """Warn of jobs that workflows in code run and that are not there, in the words of a start. They
    may still be made before a run comes to them.
    """
    users = defaultdict[str, list[str]](list)
    for one in definitions:
        for name in inner_jobs(one):
            users[name].append(one.name)
    for name, workflows in users.items():
        try:
            await store.get_job(tenant, name)
        except JobNotFound:
            runs = "workflow {} runs" if len(workflows) == 1 else "workflows {} run"
            said = f"{runs.format(listed(workflows))} {shown(name)}, and there is no such job"
            way_out = "create it, or start the app that has it, before a run comes to that node"
            complain(f"warning: {printable(said)}; {way_out}")


async def check_missing(store: Store) -> list[Check]:
    """The jobs of all tenants, in one pass. What is paused needs nothing."""
    checks: list[Check] = []
    for tenant in await store.list_tenants():
        there, wanted = set[str](), defaultdict[str, list[str]](list)
        async for job in every_job(store, tenant):
            there.add(job.name)
            for name, use in _named_by(job):
                wanted[name].append(use)
        missing = {name: wanted[name] for name in sorted(wanted) if name not in there}
        if missing:
            checks.append(_missing(tenant, missing))
    return checks


def _named_by(job: Job) -> list[tuple[str, str]]:
    """The jobs that a job cannot do without, each with what that means for it."""
    if job.paused_at is not None:
        return []
    needed = [(name, f"{job.name} waits for it") for name in job.definition.upstream]
    runs = sorted(inner_jobs(job.definition))
    return [*needed, *((name, f"workflow {job.name} runs it") for name in runs)]


def _missing(tenant: str, missing: dict[str, list[str]]) -> Check:
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    named = listed((f"{name} ({listed(uses)})" for name, uses in missing.items()), between="; ")
    return Check(
        name="missing jobs",
        is_ok=False,
        found=f"there is no job{of} named {named}",
        advice="create it, start a worker whose code has it, or change those that need it",
    )

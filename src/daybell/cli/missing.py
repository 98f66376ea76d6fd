"""What `daybell doctor` says of jobs that others name, and that are not there."""

from __future__ import annotations

from collections import defaultdict

from daybell.client.uses import jobs_run_by
from daybell.core.job import DEFAULT_TENANT, Job
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import Check
from daybell.errors import listed
from daybell.store.protocol import Store


async def check_missing(store: Store) -> list[Check]:
    """The jobs of all tenants, in one pass. What is paused needs nothing."""
    checks: list[Check] = []
    for tenant in await store.list_tenants():
        there, wanted, cursor = set[str](), defaultdict[str, list[str]](list), None
        while True:
            page = await store.list_jobs(tenant, limit=PAGE_ITEMS_MAX, cursor=cursor)
            for job in page.items:
                there.add(job.name)
                for name, use in _named_by(job):
                    wanted[name].append(use)
            cursor = page.next_cursor
            if cursor is None:
                break
        missing = {name: wanted[name] for name in sorted(wanted) if name not in there}
        if missing:
            checks.append(_missing(tenant, missing))
    return checks


def _named_by(job: Job) -> list[tuple[str, str]]:
    """The jobs that a job cannot do without, each with what that means for it."""
    if job.paused_at is not None:
        return []
    needed = [(name, f"{job.name} waits for it") for name in job.definition.dependencies]
    runs = sorted(jobs_run_by(job.definition))
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

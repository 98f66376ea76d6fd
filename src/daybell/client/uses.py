"""Who needs a job: the workflows whose nodes run it, and the jobs that depend on it.

A job can be deleted all the same: whoever does is told what he leaves behind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from msgspec import Struct

from daybell.core.circles import inner_jobs
from daybell.core.job import Job
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import JobFilter, read_pages
from daybell.errors import Conflict, listed, shown
from daybell.store.protocol import Store

CODE: Final = "code:"  # an author that begins so is an app
JOBS_MAX: Final = 20_000  # checked whether they need it
NAMED_MAX: Final = 3


class Uses(Struct, frozen=True, kw_only=True):
    """Who needs a job, by name."""

    workflows: tuple[str, ...] = ()  # that run it as a node
    dependents: tuple[str, ...] = ()


async def uses_of(store: Store, tenant: str, name: str) -> Uses:
    """Who needs the job of this name: one pass over the definitions that mention it."""
    workflows, dependents = list[str](), list[str]()
    pages = read_pages(
        lambda cursor: store.list_jobs(
            tenant, JobFilter(mentions=name), limit=PAGE_ITEMS_MAX, cursor=cursor
        )
    )
    looked_at = 0
    async for page in pages:
        for job in page:
            if name in job.definition.upstream:
                dependents.append(job.name)
            if name in job.definition.settings and name in inner_jobs(job.definition):
                workflows.append(job.name)
        looked_at += len(page)
        if looked_at >= JOBS_MAX:
            break
    return Uses(workflows=tuple(workflows), dependents=tuple(dependents))


async def left_behind(store: Store, tenant: str, job: Job) -> list[str]:
    """What goes wrong without a job, in sentences for people, and whether code brings it back."""
    found = await needs_of(store, tenant, job.name)
    code = await _code_of(store, tenant, job)
    if code is not None:
        found.append(
            f"{job.name} comes from code ({code}), which brings it back when it is started next;"
            " take it out of the code, too"
        )
    return found


async def check_undeclared(store: Store, tenant: str, name: str) -> None:
    """Raise Conflict if a live worker has a task of this name: programs with that code would
    enqueue a job that does not exist, until they declare it again.
    """
    if any(name in (offer.tasks or ()) for offer in await store.offers(tenant)):
        raise Conflict(
            f"job {shown(name)} is declared by the code of a live worker;"
            " remove the task from the code and restart its workers, or delete it with force"
            " (--force, ?force=true)"
        )


async def needs_of(store: Store, tenant: str, name: str) -> list[str]:
    """What others need the job of this name for, in sentences for people."""
    uses = await uses_of(store, tenant, name)
    found: list[str] = []
    if uses.workflows:
        one = len(uses.workflows) == 1
        found.append(
            f"{'workflow' if one else 'workflows'} {listed(uses.workflows, most=NAMED_MAX)}"
            f" {'runs' if one else 'run'} {name} as a node, which fails while it is not there"
        )
    if uses.dependents:
        one = len(uses.dependents) == 1
        found.append(
            f"{'job' if one else 'jobs'} {listed(uses.dependents, most=NAMED_MAX)}"
            f" {'depends' if one else 'depend'} on {name}, and"
            f" {'waits' if one else 'wait'} in vain while it is not there"
        )
    return found


async def _code_of(store: Store, tenant: str, job: Job) -> str | None:
    """The app that has defined it; somebody else may have changed it since."""
    async for page in versions_of(store, tenant, job.name):
        for version in page:
            if version.author.startswith(CODE):
                return version.author.removeprefix(CODE)
    return None


def versions_of(store: Store, tenant: str, name: str) -> AsyncGenerator[tuple[Job, ...]]:
    """All versions of a job, newest first, a page in memory at a time."""
    return read_pages(
        lambda cursor: store.list_versions(tenant, name, limit=PAGE_ITEMS_MAX, cursor=cursor)
    )

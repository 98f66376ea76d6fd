"""What `daybell doctor` says of executions whose task no worker has, as far as they were tried.

A worker that takes an execution and has no such task puts it off, with that as its reason, if no
other live one of the queue says that it has the task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from daybell.cli import show
from daybell.client.bulk import newest_of
from daybell.client.offers import definition_of
from daybell.core.execution import Execution, State
from daybell.core.job import DEFAULT_TENANT, JobDefinition, task_of
from daybell.core.lifecycle import UNKNOWN_TASK
from daybell.core.view import Check, ExecutionFilter, read_found
from daybell.errors import JobNotFound, listed, with_tenant
from daybell.store.protocol import Store

_Version = tuple[str, int]


async def check_tasks(store: Store) -> list[Check]:
    """Of all tenants; of very many executions that are put off, only the newest are read."""
    checks: list[Check] = []
    where = ExecutionFilter(states=frozenset({State.SCHEDULED}), with_nodes=True)
    for tenant in await store.list_tenants():
        page = await read_found(newest_of(store, tenant, where))
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
        run = definition_of(one, known[one.job, one.version])
        users[task_of(run) or run.name].add(one.job)
    named = [_named(task, users[task]) for task in sorted(users)]
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    many = show.count(len(put_off), "execution")
    waits = "waits" if len(put_off) == 1 else "wait"
    return Check(
        name="tasks",
        is_ok=False,
        found=f"{many}{of} {waits} for a task that no worker had which took them: {listed(named)}",
        advice=with_tenant("start a worker whose app has it, `daybell worker APP`", tenant)
        + ", or import its module there; if several apps share a queue, give each a queue of its"
        " own",
    )


def _named(task: str, jobs: set[str]) -> str:
    """A task, and whose it is if that is not clear from its name."""
    first, *others = sorted(jobs)
    if jobs == {task}:
        return task
    more = f" and {len(others):,} more" if others else ""
    return f"{task} (of {first}{more})"

"""What `daybell doctor` says of executions that are due and that nobody can take.

A job says where its next executions go. Those that wait already may be in another queue, and run
an older version of it, which may be of another kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from daybell.cli import show
from daybell.cli.overdue import OVERDUE_SECONDS
from daybell.client.bulk import newest_of
from daybell.client.offers import able, definition_of, lack_of
from daybell.core.execution import PENDING, Execution, State
from daybell.core.instant import Instant, Seconds
from daybell.core.job import DEFAULT_TENANT, Job
from daybell.core.view import Check, ExecutionFilter, read_found
from daybell.errors import JobNotFound, listed, with_tenant
from daybell.store.protocol import Store


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
            page = await read_found(newest_of(store, tenant, where))
            due = [one for one in page.items if one.run_at < late]
            for needs, found in (await _by_needs(store, tenant, due)).items():
                if not able(workers, queue=queue.name, needs=needs, now=now):
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
        needs = "task" if then is None else definition_of(one, then.definition).needs
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
    lack = lack_of(needs, queue=queue)
    of = "" if tenant == DEFAULT_TENANT else f" of tenant {tenant}"
    many = show.count(len(found), "execution")
    since: Instant = min(one.run_at for one in found)
    named = listed(sorted({one.job for one in found}))
    waits = "waits" if len(found) == 1 else "wait"
    return Check(
        name="overdue executions",
        is_ok=False,
        found=f"{lack.found}{of}, and {many} of {named} {waits} for one since {show.moment(since)}",
        advice=with_tenant(lack.advice, tenant),
    )

"""A store for a key that is limited to some jobs and queues.

Jobs and executions outside the scope are treated as if they did not exist, and nothing outside can
be changed. An operation that is not named here is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.access import WILDCARD, NewAuditEntry, Scope, matches
from daybell.core.event import Event, NewEvent, Published
from daybell.core.execution import (
    Cancellation,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    Revival,
    distinct_in,
)
from daybell.core.job import Job, JobActivity, JobDefinition, NewJob
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.logs import FoundPart, LogPlace
from daybell.core.monitoring.stats import StatQuery, StatRows
from daybell.core.placement import DemandingLane
from daybell.core.schedule import Ended, Schedule, Upstream
from daybell.core.units import Instant
from daybell.core.views import (
    ALL_JOBS,
    Backlog,
    Candidate,
    Counts,
    ExecutionFilter,
    JobFilter,
    Page,
    Queue,
)
from daybell.core.worker import Worker
from daybell.core.workflow.graph import inner_jobs
from daybell.errors import AccessDenied, ExecutionNotFound, JobNotFound, shown
from daybell.store.protocol import (
    AdminPort,
    CatalogPort,
    QueuePort,
    RunsPort,
    SchedulesPort,
    Store,
)

# These neither show nor change a job or a queue, except items that were looked up by id before.
OPEN: Final = frozenset(
    {
        "answer_request",
        "begin_request",
        "check_writable",
        "firing_events",  # of an execution or a backfill of their jobs
        "get_tenant",
        "health",
        "list_audit",  # to recognize a repeated request; the route is closed
        "list_leaders",
        "list_occurrences",
        "list_ticks",
        "list_secrets",  # to warn of those that are not set; the route is closed
        "offers",
        "write_audit",
    }
)
# These take an execution's id, and a job's name, after the tenant.
OF_EXECUTION: Final = frozenset(
    {
        "get_position",
        "get_run",
        "limit_wait",
        "node_attempts",
        "node_waits",
        "read_log",
        "rerun",
        "steps",
    }
)
OF_JOB: Final = frozenset({"delete_job", "pause_job", "resume_job"})


class ScopeGuard:
    """The scope of a key, and the checks that the scoped ports share."""

    def __init__(self, catalog: CatalogPort, scope: Scope) -> None:
        self._catalog = catalog
        self.scope = scope

    def denied(self, why: str = "this is about the tenant as a whole") -> AccessDenied:
        return AccessDenied(f"this key is limited to {self.scope.describe()}; {why}")

    def covers_job(self, job: Job) -> bool:
        return self.scope.covers(job.name, job.definition.queue)

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        if self.scope.covers(name):
            found = await self._catalog.get_job(tenant, name, version=version)
            if self.covers_job(found):
                return found
        which = "" if version is None else f" with version {version}"
        raise JobNotFound(f"no job named {shown(name)}{which}")

    async def check_job(self, tenant: str, name: str) -> None:
        """Raise JobNotFound unless there is such a job, perhaps a deleted one."""
        if self.scope.covers(name):
            found = await self._catalog.list_versions(tenant, name, limit=1)
            if self.covers_job(found.items[0]):
                return
        raise JobNotFound(f"no job named {shown(name)}")

    def own(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.scope.covers(name)]

    async def check_definition(self, tenant: str, new: NewJob) -> None:
        """Refuse a definition that is outside of the scope, or names jobs that are: as nodes of a
        workflow they would run.
        """
        definition: JobDefinition = new.definition
        if not self.scope.covers(definition.name, definition.queue):
            raise self.denied(
                f"job {shown(definition.name)} in queue {shown(definition.queue)} is not in it"
            )
        if self.scope.queues and not await self._may_name(tenant, definition.name):
            raise self.denied(f"there is a job {shown(definition.name)} in another queue")
        for name in (*definition.upstream, *inner_jobs(definition)):
            if name != definition.name:
                await self.get_job(tenant, name)

    async def _may_name(self, tenant: str, name: str) -> bool:
        """Return True if a job of this name can be defined: none exists, or it is in the scope."""
        try:
            found = await self._catalog.list_versions(tenant, name, limit=1)
        except JobNotFound:
            return True
        return self.covers_job(found.items[0])

    def _covers(self, execution: Execution) -> bool:
        return self.scope.covers(execution.job, execution.queue)

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        found = await self._catalog.get_execution(tenant, id)
        if not self._covers(found.execution):
            raise ExecutionNotFound(f"no execution {id}")
        return found

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        if where.ids is None and where.parent is None:
            where = self.limited(where)
        elif where.parent is not None:
            try:
                await self.get_execution(tenant, where.parent)
            except ExecutionNotFound:
                return Page(items=())
        content = None
        if where.ids is not None or where.parent is not None:
            # A page that ends at a match outside the scope would reveal that match.
            content, order = where.content, where.order
            where = replace(where.without_content(), order=order)
        page = await self._catalog.list_executions(tenant, where, limit=limit, cursor=cursor)
        own = [one for one in page.items if self._covers(one)]
        if content is not None:
            own = [one for one in own if content.matches(await self._candidate(tenant, one))]
        return replace(page, items=tuple(own))

    async def _candidate(self, tenant: str, listed: Execution) -> Candidate:
        """Return the values that a search compares; a list leaves large values out."""
        if listed.truncated:
            listed = (await self._catalog.get_execution(tenant, listed.id)).execution
        return Candidate.of(listed)

    def limited(self, where: ExecutionFilter) -> ExecutionFilter:
        """Return the filter limited to the scope: it names a job, and a queue if the scope does. If
        the scope has one name, the filter has that name.
        """
        job = where.job or _only(self.scope.jobs)
        queue = where.queue or _only(self.scope.queues)
        if self.scope.jobs and (job is None or not self.scope.covers(job)):
            raise self.denied("name one of these jobs in the filter: job_id")
        if self.scope.queues and (queue is None or not matches(queue, self.scope.queues)):
            raise self.denied("name one of these queues in the filter: queue")
        return replace(where, job=job, queue=queue)

    def check_queue(self, queue: str | None) -> None:
        if queue is not None and not matches(queue, self.scope.queues):
            raise self.denied(f"queue {shown(queue)} is not in it")

    async def own_ids(self, tenant: str, ids: Sequence[UUID]) -> list[UUID]:
        own: set[UUID] = set()
        for start in range(0, len(ids), PAGE_ITEMS_MAX):
            where = ExecutionFilter(ids=frozenset(ids[start : start + PAGE_ITEMS_MAX]))
            page = await self.list_executions(tenant, where, limit=PAGE_ITEMS_MAX)
            own.update(one.id for one in page.items)
        return [id for id in ids if id in own]


class ScopedPort:
    """The operations of a port that the API needs, within a scope."""

    protocol: type

    def __init__(self, port: Any, guard: ScopeGuard) -> None:
        self._port = port
        self._guard = guard

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self.protocol, name):
            raise AttributeError(name)
        method = getattr(self._port, name)
        if name in OPEN:
            return method

        async def checked(tenant: str, target: Any, *rest: Any, **options: Any) -> Any:
            if name in OF_EXECUTION:
                await self._guard.get_execution(tenant, target)
            elif name in OF_JOB:
                await self._guard.check_job(tenant, target)
            else:
                raise self._guard.denied()
            return await method(tenant, target, *rest, **options)

        return checked


class ScopedQueue(ScopedPort):
    """Executions, within a scope."""

    protocol = QueuePort

    async def enqueue(
        self, tenant: str, executions: Sequence[NewExecution], **options: Any
    ) -> list[Enqueued]:
        distinct = distinct_in(executions)
        for name in dict.fromkeys(one.job for one in distinct):
            await self._guard.get_job(tenant, name)
        for queue in {one.queue for one in distinct}:
            self._guard.check_queue(queue)
        return await self._port.enqueue(tenant, executions, **options)

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        own = await self._guard.own_ids(tenant, ids)
        done = dict(zip(own, await self._port.cancel(tenant, own), strict=True)) if own else {}
        return [done.get(id, Cancellation.UNKNOWN) for id in ids]

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        own = await self._guard.own_ids(tenant, ids)
        done = dict(zip(own, await self._port.revive(tenant, own), strict=True)) if own else {}
        return [done.get(id, Revival.UNKNOWN) for id in ids]

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        own = await self._guard.own_ids(tenant, ids)
        done = dict(zip(own, await self._port.discard(tenant, own), strict=True)) if own else {}
        return [done.get(id, False) for id in ids]


class ScopedSchedules(ScopedPort):
    """Schedules and dependencies, within a scope."""

    protocol = SchedulesPort

    async def list_schedules(
        self,
        tenant: str,
        *,
        ids: Collection[UUID] | None = None,
        job: str | None = None,
        after: UUID | None = None,
        limit: int = 1000,
    ) -> list[Schedule]:
        if job is None or ids is None:
            raise self._guard.denied()
        await self._guard.check_job(tenant, job)
        return await self._port.list_schedules(tenant, job=job, ids=ids)

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        await self._guard.check_job(tenant, job)
        return await self._port.list_job_schedules(tenant, job, limit=limit, cursor=cursor)

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        found = await self._port.upstream(tenant, jobs)
        return [
            one if self._guard.scope.covers(name) else Upstream()
            for (name, _), one in zip(jobs, found, strict=True)
        ]

    async def ended_since(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Ended]:
        found = await self._port.ended_since(tenant, jobs)
        return [
            one if self._guard.scope.covers(name) else Ended()
            for (name, _), one in zip(jobs, found, strict=True)
        ]


class ScopedRuns(ScopedPort):
    """Runs, steps, and events to one execution, within a scope."""

    protocol = RunsPort

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        return (await self.publish_many(tenant, [event]))[0]

    async def publish_many(self, tenant: str, events: Sequence[NewEvent]) -> list[Published]:
        for event in events:
            if event.execution is None:
                raise self._guard.denied()
            await self._guard.get_execution(tenant, event.execution)
        return await self._port.publish_many(tenant, events)

    async def list_events(self, tenant: str, **options: Any) -> Page[Event]:
        page = await self._port.list_events(tenant, **options)
        named = [one.execution for one in page.items if one.execution is not None]
        own: Collection[UUID] = await self._guard.own_ids(tenant, list(dict.fromkeys(named)))
        return replace(page, items=tuple(one for one in page.items if one.execution in own))


class ScopedCatalog(ScopedPort):
    """Jobs, executions, queues and workers, within a scope."""

    protocol = CatalogPort

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        return await self._guard.get_job(tenant, name, version=version)

    async def get_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Job]:
        found = await self._port.get_jobs(tenant, self._guard.own(names))
        return {name: job for name, job in found.items() if self._guard.covers_job(job)}

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        return await self._guard.get_execution(tenant, id)

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        return await self._guard.list_executions(tenant, where, limit=limit, cursor=cursor)

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        found = await self._port.find_job(tenant, id, or_deleted=or_deleted)
        if not self._guard.covers_job(found):
            raise JobNotFound(f"no job with the id {id}")
        return found

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Return a page of jobs in the scope. Its cursor is the name of one of them.

        The patterns are ranges of names, which the store lists one after the other.
        """
        if where.queue is not None and not matches(where.queue, self._guard.scope.queues):
            return Page(items=())
        found: list[Job] = []
        ranges = self._ranges(replace(where, queues=self._guard.scope.queues))
        for number, chosen in enumerate(ranges, start=1):
            page = await self._list_range(tenant, chosen, limit - len(found), cursor)
            found += page.items
            is_full = len(found) == limit and number < len(ranges)
            if page.next_cursor is not None or is_full:
                return Page(items=tuple(found), next_cursor=found[-1].name)
        return Page(items=tuple(found))

    def _ranges(self, where: JobFilter) -> list[tuple[JobFilter, str | None]]:
        """Return filters without overlapping names, in the order of names. Each has its only name
        beside it, if it is for a single name.
        """
        patterns = set(self._guard.scope.jobs) or {WILDCARD}
        found: list[tuple[JobFilter, str | None]] = []
        for pattern in sorted(patterns, key=_begin):
            begin = _begin(pattern)
            if any(
                one.endswith(WILDCARD) and matches(begin, (one,)) for one in patterns - {pattern}
            ):
                continue  # a wider pattern has these names, too
            longer, shorter = sorted((begin, where.prefix), key=len, reverse=True)
            only = begin if pattern == begin else None
            if longer.startswith(shorter) and only in (None, longer):
                found.append((replace(where, prefix=longer), only))
        return found

    async def _list_range(
        self, tenant: str, chosen: tuple[JobFilter, str | None], limit: int, cursor: str | None
    ) -> Page[Job]:
        where, only = chosen
        if only is None:
            return await self._port.list_jobs(tenant, where, limit=limit, cursor=cursor)
        # Of the names that begin with it, it is the first.
        page = await self._port.list_jobs(tenant, where, limit=1, cursor=cursor)
        return Page(items=tuple(one for one in page.items if one.name == only))

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        """Return a page of versions, without those that were in a queue outside of the scope."""
        await self._guard.check_job(tenant, name)
        page = await self._port.list_versions(tenant, name, limit=limit, cursor=cursor)
        return replace(page, items=tuple(one for one in page.items if self._guard.covers_job(one)))

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        return await self._port.job_ids(tenant, self._guard.own(names))

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        return await self._port.job_activity(tenant, self._guard.own(names))

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        for job in jobs:
            await self._guard.check_definition(tenant, job)
        return await self._port.define_jobs(tenant, jobs)

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        await self._guard.check_definition(tenant, job)
        self._guard.check_queue(execution.queue)
        return await self._port.launch(tenant, job, execution)

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        return await self._port.count_executions(tenant, self._guard.limited(where))

    async def estimate_executions(self, tenant: str, where: ExecutionFilter) -> int:
        return await self._port.estimate_executions(tenant, self._guard.limited(where))

    async def list_queues(self, tenant: str) -> list[Queue]:
        found = await self._port.list_queues(tenant)
        return [one for one in found if matches(one.name, self._guard.scope.queues)]

    async def list_backlogs(self, tenant: str, queue: str) -> list[Backlog]:
        self._guard.check_queue(queue)
        return await self._port.list_backlogs(tenant, queue)

    async def list_demands(self, tenant: str, queues: Sequence[str]) -> list[DemandingLane]:
        for queue in queues:
            self._guard.check_queue(queue)
        return await self._port.list_demands(tenant, queues)

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        self._guard.check_queue(queue)
        if self._guard.scope.jobs:
            raise self._guard.denied("a queue has executions of other jobs as well")
        await self._port.pause_queue(tenant, queue, paused=paused)

    async def read_stats(self, tenant: str, query: StatQuery, *, with_unfinished: bool) -> StatRows:
        if query.job is not None:
            await self._guard.check_job(tenant, query.job)
        elif self._guard.scope.jobs:
            raise self._guard.denied("name one of these jobs: job")
        elif query.queue is None:
            raise self._guard.denied("name one of these queues: queue")
        self._guard.check_queue(query.queue)
        return await self._port.read_stats(tenant, query, with_unfinished=with_unfinished)

    async def read_logs(
        self, tenant: str, ids: Sequence[UUID], *, start: LogPlace | None = None
    ) -> Page[FoundPart]:
        own = await self._guard.own_ids(tenant, ids)
        return await self._port.read_logs(tenant, own, start=start) if own else Page(items=())

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        found = await self._port.list_workers(tenant, include_dead=include_dead)
        queues = self._guard.scope.queues
        return [
            replace(one, queues=tuple(name for name in one.queues if matches(name, queues)))
            for one in found
        ]


class ScopedAdmin(ScopedPort):
    """Administration, as far as it is open within a scope."""

    protocol = AdminPort


class ScopedStore(ScopedPort):
    """The store of a key with a scope: its ports are within the scope."""

    protocol = Store

    def __init__(self, store: Store, scope: Scope) -> None:
        guard = ScopeGuard(store.catalog, scope)
        super().__init__(store, guard)
        self.queue = ScopedQueue(store.queue, guard)
        self.schedules = ScopedSchedules(store.schedules, guard)
        self.runs = ScopedRuns(store.runs, guard)
        self.catalog = ScopedCatalog(store.catalog, guard)
        self.admin = ScopedAdmin(store.admin, guard)

    def audited(self, tenant: str, entry: NewAuditEntry) -> ScopedStore:
        return ScopedStore(self._port.audited(tenant, entry), self._guard.scope)


def _begin(pattern: str) -> str:
    return pattern.removesuffix(WILDCARD)


def _only(patterns: tuple[str, ...]) -> str | None:
    """Return the name that the patterns mean, if it is a single one."""
    (first, *others) = patterns or (WILDCARD,)
    return None if others or first.endswith(WILDCARD) else first

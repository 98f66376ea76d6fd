"""Tenants, jobs and queues."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.access import matches as fits
from daybell.core.execution import Enqueued, NewExecution
from daybell.core.instant import Instant
from daybell.core.job import Job, JobDefinition, NewJob, folded
from daybell.core.limits import check_name
from daybell.core.overlap import Overlap
from daybell.core.tenant import Tenant
from daybell.core.view import ALL_JOBS, JobFilter, Page, bytes_of, cut_page
from daybell.errors import JobNotFound, shown
from daybell.store.checks import (
    check_batch,
    check_definition,
    check_job_filter,
    check_limit,
    check_version,
)
from daybell.store.memory.enqueue import enqueue, make_gate
from daybell.store.memory.quotas import charge, check_jobs, count_jobs
from daybell.store.memory.schedules import declare_schedules, remove_schedules
from daybell.store.memory.tables import JobRow, Part, Tables
from daybell.store.versions import moved
from daybell.store.wakeups import Signal


class MemoryDefinitions(Part):
    """See `protocol.Definitions`."""

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        with self._begin() as tables:
            new = sorted({check_name(name, what="tenant") for name in names} - set(tables.tenants))
            for name in new:
                tables.tenants[name] = Tenant(name=name, created_at=self._clock())
            return tuple(new)

    async def list_tenants(self) -> tuple[str, ...]:
        with self._begin() as tables:
            return tuple(sorted(tables.tenants))

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        with self._begin(tenant) as tables:
            before = count_jobs(tables, tenant)
            defined = [define(tables, tenant, job, self._clock()) for job in jobs]
            check_jobs(tables, tenant, before)
            return defined

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        with self._begin(tenant) as tables:
            now = self._clock()
            check_batch([execution])
            jobs, rows = count_jobs(tables, tenant), len(tables.rows)
            made = define(tables, tenant, job, now)
            (answer,) = enqueue(tables, tenant, [execution], now)
            check_jobs(tables, tenant, jobs)
            charge(tables, tenant, len(tables.rows) - rows, now)
            return made, answer

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        with self._begin(tenant) as tables:
            row = tables.job(tenant, name, or_deleted=version is not None)
            if version is None:
                return row.current
            for job in row.versions:
                if job.version == version:
                    return row.shown(job)
            raise JobNotFound(f"job {shown(name)} has no version {version}")

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        with self._begin(tenant) as tables:
            for (owner, _), row in tables.jobs.items():
                is_shown = or_deleted or not row.is_deleted
                if owner == tenant and row.versions[0].id == id and is_shown:
                    return row.current
            raise JobNotFound(f"no job with the id {id}")

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        check_limit(limit)
        check_job_filter(where, cursor)
        with self._begin(tenant) as tables:
            found = [
                row.current
                for (owner, name), row in sorted(tables.jobs.items())
                if owner == tenant
                and not row.is_deleted
                and (cursor is None or name > cursor)
                and matches(row.current.definition, where)
            ]
        return cut_page(found, limit, size=job_bytes, cursor=lambda one: one.name)

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        check_limit(limit)
        before = check_version(cursor)
        with self._begin(tenant) as tables:
            row = tables.job(tenant, name, or_deleted=True)
            found = [row.shown(job) for job in reversed(row.versions) if job.version < before]
        return cut_page(found, limit, size=job_bytes, cursor=lambda one: str(one.version))

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        with self._begin(tenant) as tables:
            row = tables.job(tenant, name)
            if expect is not None and row.current.version != expect:
                raise moved(name, at=row.current.version, expect=expect)
            delete(tables, tenant, name, self._clock())

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        check_name(queue, what="queue")
        with self._begin(tenant) as tables:
            if paused:
                tables.paused[tenant, queue] = None
            elif (tenant, queue) in tables.paused:
                del tables.paused[tenant, queue]
                tables.signals[Signal.CLAIM] = None


def delete(tables: Tables, tenant: str, name: str, now: Instant) -> None:
    """Let a job fire and be enqueued no more."""
    tables.jobs[tenant, name] = replace(
        tables.jobs[tenant, name],
        is_deleted=True,
        paused_at=None,
        pause_note="",
        over_at=now,
        unused_at=None,
    )
    remove_schedules(tables, tenant, name)


def job_bytes(of: Job) -> int:
    """Count the bytes of a job's definition."""
    return bytes_of(of.definition.to_json())


def matches(definition: JobDefinition, where: JobFilter) -> bool:
    """Whether a filter lets a job through."""
    return (
        definition.name.startswith(where.prefix)
        and (where.text is None or folded(where.text) in definition.words)
        and where.user_id in (None, definition.user_id)
        and where.queue in (None, definition.queue)
        and fits(definition.queue, where.queues)
        and (where.mentions is None or where.mentions in definition.to_json())
    )


def define(tables: Tables, tenant: str, new: NewJob, now: Instant) -> Job:
    """Store one definition, if it is new, and answer the version that is current then."""
    # As it is when it is read back: a retry policy's own function is not kept.
    definition = JobDefinition.from_json(check_definition(new.definition))
    row = tables.jobs.get((tenant, definition.name), JobRow(versions=()))
    current = row.versions[-1].version if row.versions else 0
    if new.expect is not None and new.expect != current:
        raise moved(definition.name, at=current, expect=new.expect)
    known = [job.definition for job in row.versions]
    is_current = bool(known) and known[-1] == definition
    comes_back = row.is_deleted
    # A deleted job has no version that old code could turn back.
    is_wanted = new.promote or comes_back or definition not in known
    becomes_current = not is_current and is_wanted
    if becomes_current:
        job = Job(
            id=row.versions[0].id if row.versions else new.id,
            tenant=tenant,
            version=current + 1,
            definition=definition,
            created_at=now,
            author=new.author,
        )
        older = tuple(replace(version, is_current=False) for version in row.versions)
        row = replace(row, versions=(*older, job))
    row = replace(row, is_deleted=False)
    if becomes_current or comes_back:
        row = replace(row, over_at=now if definition.once else None, unused_at=None)
    tables.jobs[tenant, definition.name] = row
    if definition.overlap_rule() is not Overlap.ALLOW or new.schedules:
        make_gate(tables, tenant, definition.name)
    if becomes_current or comes_back:
        declare_schedules(tables, row, new.schedules, now)
    return row.current

"""Tenants, jobs, queues, and reading views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.access import Tenant
from daybell.core.access import matches as fits
from daybell.core.checks import (
    check_batch,
    check_countable,
    check_cursor,
    check_definition,
    check_job_filter,
    check_limit,
    check_names,
    check_version,
)
from daybell.core.execution import (
    LEFT_OUT,
    TERMINAL,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    Outcome,
    State,
)
from daybell.core.ids import LATE_SECONDS, first_id_at
from daybell.core.job import (
    Job,
    JobActivity,
    JobDefinition,
    NewJob,
    cut_next,
    fold_case,
    version_conflict,
)
from daybell.core.limits import check_name
from daybell.core.schedule import Overlap, Schedule
from daybell.core.units import Instant
from daybell.core.views import (
    Activity,
    Candidate,
    Counts,
    ExecutionFilter,
    JobFilter,
    Page,
    Queue,
    bytes_of,
    cut_page,
    execution_bytes,
    is_large,
    scan,
    shorten,
)
from daybell.errors import ExecutionNotFound, JobNotFound, shown
from daybell.store.memory.progress import charge, check_jobs, count_jobs
from daybell.store.memory.queue import create_all, final_attempt, make_gate
from daybell.store.memory.schedules import declare_schedules, remove_schedules, schedules_of
from daybell.store.memory.tables import JobRow, Row, Tables, shown_execution
from daybell.store.wakeups import Signal


def add_tenants(tables: Tables, now: Instant, names: Sequence[str]) -> tuple[str, ...]:
    new = sorted({check_name(name, what="tenant") for name in names} - set(tables.tenants))
    for name in new:
        tables.tenants[name] = Tenant(name=name, created_at=now)
    return tuple(new)


def list_tenants(tables: Tables) -> tuple[str, ...]:
    return tuple(sorted(tables.tenants))


def define_jobs(tables: Tables, now: Instant, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
    before = count_jobs(tables, tenant)
    defined = [define(tables, tenant, job, now) for job in jobs]
    check_jobs(tables, tenant, before)
    return defined


def launch(
    tables: Tables, now: Instant, tenant: str, job: NewJob, execution: NewExecution
) -> tuple[Job, Enqueued]:
    check_batch([execution])
    jobs, rows = count_jobs(tables, tenant), len(tables.rows)
    made = define(tables, tenant, job, now)
    (answer,) = create_all(tables, tenant, [execution], now)
    check_jobs(tables, tenant, jobs)
    charge(tables, tenant, len(tables.rows) - rows, now)
    return made, answer


def get_job(tables: Tables, tenant: str, name: str, version: int | None) -> Job:
    row = tables.job(tenant, name, or_deleted=version is not None)
    if version is None:
        return row.current
    for job in row.versions:
        if job.version == version:
            return row.shown(job)
    raise JobNotFound(f"job {shown(name)} has no version {version}")


def find_job(tables: Tables, tenant: str, id: UUID, or_deleted: bool) -> Job:
    for (owner, _), row in tables.jobs.items():
        is_shown = or_deleted or not row.is_deleted
        if owner == tenant and row.versions[0].id == id and is_shown:
            return row.current
    raise JobNotFound(f"no job with the id {id}")


def list_jobs(
    tables: Tables, tenant: str, where: JobFilter, limit: int, cursor: str | None
) -> Page[Job]:
    check_limit(limit)
    check_job_filter(where, cursor)
    found = [
        row.current
        for (owner, name), row in sorted(tables.jobs.items())
        if owner == tenant
        and not row.is_deleted
        and (cursor is None or name > cursor)
        and job_matches(row.current.definition, where)
    ]
    return cut_page(found, limit, size=job_bytes, cursor=lambda one: one.name)


def list_versions(
    tables: Tables, tenant: str, name: str, limit: int, cursor: str | None
) -> Page[Job]:
    check_limit(limit)
    before = check_version(cursor)
    row = tables.job(tenant, name, or_deleted=True)
    found = [row.shown(job) for job in reversed(row.versions) if job.version < before]
    return cut_page(found, limit, size=job_bytes, cursor=lambda one: str(one.version))


def delete_job(tables: Tables, now: Instant, tenant: str, name: str, expect: int | None) -> None:
    row = tables.job(tenant, name)
    if expect is not None and row.current.version != expect:
        raise version_conflict(name, at=row.current.version, expect=expect)
    delete(tables, tenant, name, now)


def pause_queue(tables: Tables, tenant: str, queue: str, paused: bool) -> None:
    check_name(queue, what="queue")
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


def job_matches(definition: JobDefinition, where: JobFilter) -> bool:
    """Whether a filter lets a job through."""
    return (
        definition.name.startswith(where.prefix)
        and (where.text is None or fold_case(where.text) in definition.words)
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
        raise version_conflict(definition.name, at=current, expect=new.expect)
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


# What people look at.


def get_execution(tables: Tables, now: Instant, tenant: str, id: UUID) -> ExecutionDetail:
    row = tables.rows.get((tenant, id))
    if row is None:
        raise ExecutionNotFound(f"no execution {id}")
    execution = shown_execution(row, now)
    attempts = row.attempts
    if execution.outcome is not None:
        attempts = (*attempts, final_attempt(execution))
    return ExecutionDetail(execution=execution, attempts=attempts)


def list_executions(
    tables: Tables,
    now: Instant,
    tenant: str,
    where: ExecutionFilter,
    limit: int,
    cursor: str | None,
) -> Page[Execution]:
    check_limit(limit)
    after = check_cursor(cursor)
    begin = where.without_content()
    found = [e for e in matching(tables, now, tenant, begin) if after is None or e.id < after]
    found.sort(key=lambda execution: execution.id, reverse=True)
    more = None
    if where.content is not None:
        ids, more = scan(map(Candidate.of, found), where.content, limit)
        found = [one for one in found if one.id in set(ids)]
    return cut_page(
        map(shorten, found),
        limit,
        size=execution_bytes,
        cursor=lambda one: str(one.id),
        more=more,
    )


def count_executions(tables: Tables, now: Instant, tenant: str, where: ExecutionFilter) -> Counts:
    check_countable(where)
    return Counts(Counter(execution.state for execution in matching(tables, now, tenant, where)))


def job_activity(
    tables: Tables, now: Instant, tenant: str, names: Sequence[str]
) -> dict[str, JobActivity]:
    check_names(names)
    executions = sorted(matching(tables, now, tenant, ExecutionFilter()), key=lambda one: one.id)
    return {
        name: look_at(
            [one for one in executions if one.job == name],
            schedules_of(tables, tenant, name),
        )
        for name in names
        if (tenant, name) in tables.jobs
    }


def job_ids(tables: Tables, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
    check_names(names)
    known = {name: tables.jobs.get((tenant, name)) for name in names}
    return {name: row.versions[0].id for name, row in known.items() if row is not None}


def list_queues(tables: Tables, now: Instant, tenant: str) -> list[Queue]:
    unfinished = ExecutionFilter(states=frozenset(State) - TERMINAL, with_nodes=True)
    executions = matching(tables, now, tenant, unfinished)
    names = {execution.queue for execution in executions}
    names.update(queue for owner, queue in tables.paused if owner == tenant)
    names.update(
        row.current.definition.queue
        for (owner, _), row in tables.jobs.items()
        if owner == tenant and not row.is_deleted
    )
    return [
        describe_queue(tables, tenant, name, [e for e in executions if e.queue == name])
        for name in sorted(names)
    ]


def activity(tables: Tables, now: Instant, tenant: str, since: Activity | None) -> Activity:
    rows = [row for row in tables.rows.values() if row.execution.tenant == tenant]
    recent = sum(row.execution.id >= first_id_at(now - LATE_SECONDS) for row in rows)
    if since is None:
        return Activity(now=now, recent=recent)
    seen = sum(row.execution.id >= first_id_at(since.now - LATE_SECONDS) for row in rows)
    failed = sum(_failed(row, since.now) for row in rows)
    return Activity(now=now, enqueued=max(0, seen - since.recent), failed=failed, recent=recent)


def matching(tables: Tables, now: Instant, tenant: str, where: ExecutionFilter) -> list[Execution]:
    shown = [shown_execution(row, now) for row in tables.rows.values()]
    return [e for e in shown if e.tenant == tenant and execution_matches(e, where)]


def execution_matches(execution: Execution, where: ExecutionFilter) -> bool:
    """Whether a filter lets an execution through."""
    if where.dead_letters and (execution.state is not State.DEAD or execution.is_discarded):
        return False
    if execution.node is not None and not where.shows_nodes:
        return False
    return (
        (where.states is None or execution.state in where.states)
        and where.job in (None, execution.job)
        and where.queue in (None, execution.queue)
        and where.worker in (None, execution.worker)
        and (where.ids is None or execution.id in where.ids)
        and where.schedule in (None, execution.schedule)
        and where.parent in (None, execution.parent)
        and (where.since is None or execution.created_at >= where.since)
        and (where.until is None or execution.created_at < where.until)
    )


def look_at(executions: list[Execution], schedules: Iterable[Schedule]) -> JobActivity:
    """What is seen of a job that has these, the oldest first."""
    states = {execution.state for execution in executions}
    soonest = sorted(
        schedules, key=lambda one: (inf if one.next_at is None else one.next_at, one.id)
    )
    seen, has_more = cut_next(soonest)
    return JobActivity(
        unfinished=frozenset(states - TERMINAL),
        last=shorten(executions[-1]) if executions else None,
        schedules=tuple(replace(one, args=LEFT_OUT) if is_large(one.args) else one for one in seen),
        has_more_schedules=has_more,
    )


FAILURES: Final = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)


def _failed(row: Row, since: Instant) -> int:
    """How many of its attempts have failed since then, with the one that ended it all."""
    one = row.execution
    is_letter = one.state is State.DEAD and not one.is_discarded
    died = is_letter and one.finished_at is not None and one.finished_at > since
    before = sum(each.ended_at > since and each.outcome in FAILURES for each in row.attempts)
    return before + died


def describe_queue(tables: Tables, tenant: str, name: str, executions: list[Execution]) -> Queue:
    count = Counter(execution.state for execution in executions)
    queued = [execution for execution in executions if execution.state is State.QUEUED]
    return Queue(
        name=name,
        is_paused=(tenant, name) in tables.paused,
        queued=count[State.QUEUED],
        scheduled=count[State.SCHEDULED] + count[State.RETRYING],
        retrying=count[State.RETRYING],
        running=count[State.RUNNING],
        waiting=count[State.WAITING],
        oldest_run_at=min((execution.run_at for execution in queued), default=None),
    )

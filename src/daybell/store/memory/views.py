"""What people look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import (
    LEFT_OUT,
    TERMINAL,
    Execution,
    ExecutionDetail,
    Outcome,
    State,
)
from daybell.core.instant import Instant
from daybell.core.schedule import Schedule
from daybell.core.search import Candidate
from daybell.core.standing import Look
from daybell.core.view import (
    Activity,
    Counts,
    ExecutionFilter,
    Page,
    Queue,
    cut_page,
    execution_bytes,
    is_large,
    scan,
    shorten,
)
from daybell.errors import ExecutionNotFound
from daybell.store.checks import check_countable, check_cursor, check_limit, check_names
from daybell.store.ids import LATE_SECONDS, first_at
from daybell.store.memory.moves import final_attempt
from daybell.store.memory.schedules import schedules_of
from daybell.store.memory.tables import Part, Row, Tables, shown_execution


class MemoryViews(Part):
    """See `protocol.Views`."""

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        with self._begin(tenant) as tables:
            row = tables.rows.get((tenant, id))
            if row is None:
                raise ExecutionNotFound(f"no execution {id}")
            execution = shown_execution(row, self._clock())
            attempts = row.attempts
            if execution.outcome is not None:
                attempts = (*attempts, final_attempt(execution))
            return ExecutionDetail(execution=execution, attempts=attempts)

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        check_limit(limit)
        after = check_cursor(cursor)
        begin = where.without_content()
        found = [e for e in self._matching(tenant, begin) if after is None or e.id < after]
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

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        check_countable(where)
        return Counts(Counter(execution.state for execution in self._matching(tenant, where)))

    async def look_at_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Look]:
        check_names(names)
        executions = sorted(self._matching(tenant, ExecutionFilter()), key=lambda one: one.id)
        with self._begin(tenant) as tables:
            return {
                name: look_at(
                    [one for one in executions if one.job == name],
                    schedules_of(tables, tenant, name),
                )
                for name in names
                if (tenant, name) in tables.jobs
            }

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        check_names(names)
        with self._begin(tenant) as tables:
            known = {name: tables.jobs.get((tenant, name)) for name in names}
            return {name: row.versions[0].id for name, row in known.items() if row is not None}

    async def list_queues(self, tenant: str) -> list[Queue]:
        unfinished = ExecutionFilter(states=frozenset(State) - TERMINAL, with_nodes=True)
        executions = self._matching(tenant, unfinished)
        with self._begin(tenant) as tables:
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

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        with self._begin(tenant) as tables:
            rows = [row for row in tables.rows.values() if row.execution.tenant == tenant]
        now = self._clock()
        recent = sum(row.execution.id >= first_at(now - LATE_SECONDS) for row in rows)
        if since is None:
            return Activity(now=now, recent=recent)
        seen = sum(row.execution.id >= first_at(since.now - LATE_SECONDS) for row in rows)
        failed = sum(_failed(row, since.now) for row in rows)
        return Activity(now=now, enqueued=max(0, seen - since.recent), failed=failed, recent=recent)

    def _matching(self, tenant: str, where: ExecutionFilter) -> list[Execution]:
        with self._begin(tenant) as tables:
            now = self._clock()
            shown = [shown_execution(row, now) for row in tables.rows.values()]
            return [e for e in shown if e.tenant == tenant and matches(e, where)]


def matches(execution: Execution, where: ExecutionFilter) -> bool:
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


def look_at(executions: list[Execution], schedules: Iterable[Schedule]) -> Look:
    """What is seen of a job that has these, the oldest first."""
    states = {execution.state for execution in executions}
    return Look(
        unfinished=frozenset(states - TERMINAL),
        last=shorten(executions[-1]) if executions else None,
        schedules=tuple(
            replace(one, args=LEFT_OUT) if is_large(one.args) else one
            for one in sorted(schedules, key=lambda schedule: schedule.id)
        ),
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

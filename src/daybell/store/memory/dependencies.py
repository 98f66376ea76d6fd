"""Jobs that depend on jobs: what waits, and how the others stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.dependencies import (
    DEPENDENCIES,
    UPSTREAM_FAILED,
    Dependent,
    Dependents,
    Ended,
    Upstream,
    Waiting,
)
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event, target
from daybell.core.overlap import OVERLAP, is_job_gate
from daybell.store.checks import check_limit
from daybell.store.memory import endings
from daybell.store.memory.tables import Part, Row, Tables


class MemoryDependencies(Part):
    """See `protocol.Dependencies`."""

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        check_limit(limit)
        with self._begin() as tables:
            now = self._clock()
            schedules = [
                Dependent.of(one, job.dependencies, job.on_dependency_failure)
                for one in tables.schedules.values()
                if one.since is not None and not one.is_paused
                for job in [tables.jobs[one.tenant, one.job].current.definition]
                if after is None or one.id > after
            ]
            waiting = [
                describe(tables, row.execution)
                for row in tables.live.values()
                if is_waiting(row) and row.execution.run_at <= now
                if after is None or row.execution.id > after
            ]
            return Dependents(
                now=now,
                schedules=tuple(sorted(schedules, key=lambda one: one.schedule.id)[:limit]),
                waiting=tuple(sorted(waiting, key=lambda one: one.id)[:limit]),
            )

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        with self._begin(tenant) as tables:
            return [ended_since(tables, tenant, job, since) for job, since in jobs]

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        with self._begin(tenant) as tables:
            return [upstream(tables, tenant, job, at) for job, at in jobs]

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            found = still_waiting(tables, tenant, ids)
            for row in found:
                tables.put(replace(row, execution=released(row)))
            return len(found)

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            found = still_waiting(tables, tenant, ids)
            for row in found:
                endings.end(tables, row, Event.RULED_OUT, self._clock(), reason=UPSTREAM_FAILED)
            return len(found)


def is_waiting(row: Row) -> bool:
    execution = row.execution
    return execution.state is State.WAITING and execution.reason == DEPENDENCIES


def still_waiting(tables: Tables, tenant: str, ids: Iterable[UUID]) -> list[Row]:
    found = [tables.rows.get((tenant, id)) for id in ids]
    return [row for row in found if row is not None and is_waiting(row)]


def released(row: Row) -> Execution:
    """An execution that its dependencies let go; it may have to wait for a slot."""
    execution = row.execution
    if execution.gate is not None and not row.has_slot:
        return replace(execution, reason=OVERLAP if is_job_gate(execution.gate) else "gate")
    return replace(execution, state=target(execution.state, Event.RELEASED), reason=None)


def describe(tables: Tables, execution: Execution) -> Waiting:
    definition = tables.jobs[execution.tenant, execution.job].current.definition
    return Waiting(
        tenant=execution.tenant,
        id=execution.id,
        job=execution.job,
        at=due_at(execution),
        dependencies=definition.dependencies,
        on_failure=definition.on_dependency_failure,
    )


def due_at(execution: Execution) -> Instant:
    """When it was to begin. Once an attempt has ended, only its creation tells."""
    if execution.scheduled_for is not None:
        return execution.scheduled_for
    return execution.run_at if execution.attempt == 1 else execution.created_at


def executions_of(tables: Tables, tenant: str, job: str) -> list[Execution]:
    """A job's own executions, as far as they count."""
    row = tables.jobs.get((tenant, job))
    if row is None or row.is_deleted:
        return []
    return [
        one
        for one in (row.execution for row in tables.rows.values())
        if (one.tenant, one.job) == (tenant, job) and one.node is None and not is_passed_over(one)
    ]


def is_passed_over(execution: Execution) -> bool:
    return execution.state is State.SKIPPED and execution.reason == OVERLAP


def failed_after(one: Execution, at: Instant) -> bool:
    """Whether it has failed for good, and was due later than this."""
    has_failed = one.state in TERMINAL and one.state is not State.SUCCEEDED
    return has_failed and due_at(one) > at and one.finished_at is not None and one.finished_at > at


def ended_since(tables: Tables, tenant: str, job: str, since: Instant) -> Ended:
    ended = sorted(
        (one.finished_at, one.id, one.state)
        for one in executions_of(tables, tenant, job)
        if one.finished_at is not None and one.finished_at > since and one.state in TERMINAL
    )
    succeeded = [at for at, _, state in ended if state is State.SUCCEEDED]
    return Ended(
        succeeded_at=succeeded[-1] if succeeded else None,
        ended_at=ended[-1][0] if ended else None,
        state=ended[-1][2] if ended else None,
    )


def upstream(tables: Tables, tenant: str, job: str, at: Instant) -> Upstream:
    found = executions_of(tables, tenant, job)
    by_then = [one for one in found if due_at(one) <= at]
    latest = max(by_then, key=lambda one: (due_at(one), one.id), default=None)
    state = None if latest is None else latest.state
    is_asked = state is None or (state in TERMINAL and state is not State.SUCCEEDED)
    return Upstream(
        state=state,
        has_newer_success=is_asked
        and any(one.state is State.SUCCEEDED and due_at(one) > at for one in found),
        has_newer_failure=state is None and any(failed_after(one, at) for one in found),
        is_behind=any(
            (one.tenant, one.job) == (tenant, job)
            and one.next_at is not None
            and one.next_at <= at
            and not one.is_paused
            for one in tables.schedules.values()
        ),
    )

"""Runs of workflows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from daybell.core.execution import AttemptSpan, Claimed, Enqueued, Execution, NewExecution, State
from daybell.core.instant import Instant
from daybell.core.lifecycle import after_cancel
from daybell.core.run import Plan, RunDetail
from daybell.store import driving
from daybell.store.checks import check_limit
from daybell.store.memory import moves, progress, restarting
from daybell.store.memory.executions import holds
from daybell.store.memory.quotas import queued_room
from daybell.store.memory.tables import Part, Row, RunRow, Tables, shown_state
from daybell.store.wakeups import Signal


class MemoryRuns(Part):
    """See `protocol.Runs`."""

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        with self._begin(tenant) as tables:
            now = self._clock()
            row = tables.rows.get((tenant, claimed.id))
            if row is None or not holds(row, worker, claimed):
                return False
            is_cancelled = row.execution.cancel_requested_at is not None
            if row.key in tables.runs or not is_cancelled:
                progress.begin(tables, row, plan, now)
            else:
                moves.leave(tables, row, after_cancel(claimed), now)
        await self._go_on()
        return True

    async def _go_on(self) -> None:
        """Do what the last transaction has left to do in runs, if it is not too much."""
        for _ in range(driving.ADVANCE_ROUNDS):
            if not todo(self._tables):
                break
            await self.advance_runs()

    def _settle(self) -> None:
        progress.settle(self._tables, self._clock())

    async def advance(self, tenant: str, run: UUID) -> bool:
        with self._begin(tenant) as tables:
            return progress.go_on(tables, (tenant, run), (), self._clock())

    async def advance_runs(self, *, limit: int = 100) -> int:
        check_limit(limit)
        with self._begin() as tables:
            found = todo(tables)[:limit]
            for key in found:
                progress.go_on(tables, key, (), self._clock())
            return len(found)

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        with self._begin(tenant) as tables:
            row = tables.runs.get((tenant, id))
            return None if row is None else self._detail(tables, tenant, row)

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        check_limit(limit)
        with self._begin(tenant) as tables:
            run = tables.runs.get((tenant, id))
            nodes = [] if run is None else [one.node for one in run.nodes.values()]
            found = (
                tables.rows.get((tenant, one.execution))
                for one in nodes
                if one.execution is not None and one.group is None
            )
            return driving.newest(
                ((row.execution.id, span) for row in found if row for span in spans(row)), limit
            )

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        with self._begin(tenant) as tables:
            answer = restarting.rerun(tables, (tenant, id), new, labels, self._clock())
            tables.signals[Signal.CLAIM] = None
            return answer

    def _detail(self, tables: Tables, tenant: str, row: RunRow) -> RunDetail:
        now = self._clock()
        nodes = [one for one in row.nodes.values() if one.node.group is None]
        # Of what was taken over, too, whose parent is another run.
        found = (
            tables.rows.get((tenant, one.node.execution)) for one in nodes if one.node.execution
        )
        executions = {
            one.execution.id: standing(one.execution, now) for one in found if one is not None
        }
        nodes.sort(key=lambda one: one.node.order)
        return RunDetail(
            row.run,
            tuple(driving.shown_node(one.node, one.result, executions) for one in nodes),
            tables.rows[tenant, row.run.id].execution.finished_at,
        )


def standing(one: Execution, now: Instant) -> driving.Standing:
    return driving.Standing(shown_state(one, now), one.started_at, one.run_at, one.reason)


def spans(row: Row) -> Iterator[AttemptSpan]:
    """The attempts at an execution, ended or not."""
    for one in row.attempts:
        yield AttemptSpan(one.attempt, one.outcome, one.worker, one.started_at, one.ended_at)
    last = row.execution
    if last.outcome is not None or last.state is State.RUNNING:
        yield AttemptSpan(
            last.attempt, last.outcome, last.worker, last.started_at, last.finished_at
        )


def todo(tables: Tables) -> list[progress.RunKey]:
    """Runs in which something can be done now."""
    blocked = {key[0] for key, row in tables.runs.items() if row.run.is_blocked}
    free = {tenant for tenant in blocked if queued_room(tables, tenant) > 0}
    return [
        key
        for key, row in tables.runs.items()
        if (row.run.is_todo or (row.run.is_blocked and key[0] in free))
        and progress.is_in_nobodys_hands(tables, key)
    ]

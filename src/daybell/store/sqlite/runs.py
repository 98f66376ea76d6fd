"""Workflow runs: expansion, reading, attempts of nodes, and rerun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.checks import check_limit
from daybell.core.execution import AttemptSpan, Claimed, Enqueued, NewExecution
from daybell.core.lifecycle import after_cancel
from daybell.core.units import Instant
from daybell.core.workflow.run import Plan, RunDetail
from daybell.store import run_driver
from daybell.store.codec import OUTCOMES, STATES
from daybell.store.sqlite import enqueue, progress
from daybell.store.sqlite.progress import (
    NODE_COLUMNS,
    RUN_COLUMNS,
    RunPart,
    continue_run,
    read_nodes,
    read_run,
)
from daybell.store.sqlite.queue import FENCE, apply_one, fence
from daybell.store.sqlite.transaction import RunKey, Transaction, shown_state, uuid_or_none
from daybell.store.wakeups import Signal


class SqliteRuns(RunPart):
    """See `protocol.Runs`."""

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        def operation(tx: Transaction) -> tuple[bool, list[RunKey]]:
            owner = tx.names.tenant(tx, tenant)
            is_made = expand(tx, owner, worker.bytes, claimed, plan)
            return is_made, progress.take_pending_runs(tx)

        is_made, todo = await self._write(operation)
        await self._go_on(todo)
        return is_made

    async def advance(self, tenant: str, run: UUID) -> bool:
        def operation(tx: Transaction) -> bool:
            key = tx.names.tenant(tx, tenant), run.bytes
            return key in continue_run(tx, key)

        return await self._write(operation)

    async def advance_runs(self, *, limit: int = 100) -> int:
        check_limit(limit)
        found = await self._read(lambda tx: find_pending_runs(tx, limit))
        for key in found:
            await self._write(lambda tx, key=key: continue_run(tx, key))
        return len(found)

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        return await self._read(lambda tx: get_run(tx, tx.names.tenant(tx, tenant), id))

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        check_limit(limit)
        return await self._read(
            lambda tx: node_attempts(tx, tx.names.tenant(tx, tenant), id, limit)
        )

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        def operation(tx: Transaction) -> Enqueued:
            answer = enqueue.rerun_nodes(tx, tenant, id, new, labels)
            tx.signals.add(Signal.CLAIM)
            return answer

        return await self._write(operation)


_HELD: Final = f"SELECT n, cancel_requested_at FROM execution WHERE {FENCE}"
_BEGIN: Final = "UPDATE execution SET worker = NULL, lease = NULL, started_at = ? WHERE n = ?"


def expand(tx: Transaction, owner: int, worker: bytes, claimed: Claimed, plan: Plan) -> bool:
    """Begin a run, if it still is in this worker's hands."""
    row = tx.execute(_HELD, fence(owner, worker, claimed)).fetchone()
    if row is None:
        return False
    n, cancel_requested_at = row
    key, is_cancelled = (owner, claimed.id.bytes), cancel_requested_at is not None
    if is_cancelled and not progress.has_run(tx, n):
        apply_one(tx, owner, worker, after_cancel(claimed))
        return True
    tx.execute(_BEGIN, (tx.now, n))
    if is_cancelled:
        progress.stop_run(tx, key, n)
    else:
        progress.start_run(tx, key, n, plan)
    return True


_TODO: Final = """
SELECT e.tenant, e.id FROM run r JOIN execution e ON e.n = r.execution
 WHERE r.is_todo = 1 AND e.state = 5 AND e.worker IS NULL ORDER BY r.execution LIMIT ?
"""


def find_pending_runs(tx: Transaction, limit: int) -> list[RunKey]:
    """Runs in which something can be done now."""
    found: list[RunKey] = tx.execute(_TODO, (limit,)).fetchall()
    return [*found, *progress.find_unblocked_runs(tx)][:limit]


_RUN: Final = f"""
SELECT e.n, e.finished_at, {RUN_COLUMNS} FROM execution e JOIN run r ON r.execution = e.n
 WHERE e.tenant = ? AND e.id = ?
"""
_NODES: Final = (
    f"SELECT {NODE_COLUMNS}, result FROM node WHERE run = ? AND of IS NULL ORDER BY place"
)
_EXECUTIONS: Final = """
SELECT e.id, e.state, e.run_at, e.started_at, e.reason
  FROM node CROSS JOIN execution e ON e.tenant = ? AND e.id = node.execution
 WHERE node.run = ? AND node.of IS NULL
"""


def get_run(tx: Transaction, owner: int, id: UUID) -> RunDetail | None:
    row = tx.execute(_RUN, (owner, id.bytes)).fetchone()
    if row is None:
        return None
    n, finished_at, *columns = row
    executions = {
        UUID(bytes=id): run_driver.ExecutionStatus(
            STATES[shown_state(state, run_at, tx.now)], started_at, run_at, reason
        )
        for id, state, run_at, started_at, reason in tx.execute(_EXECUTIONS, (owner, n))
    }
    rows = tx.execute(_NODES, (n,)).fetchall()
    nodes = [
        run_driver.view_node(node, row[-1], executions)
        for node, row in zip(read_nodes(tx, rows), rows, strict=True)
    ]
    return RunDetail(read_run(id, tuple(columns)), tuple(nodes), finished_at)


# Numbers rise by one with each attempt: what is older than the newest is not even read.
_ATTEMPTS: Final = """
SELECT e.id, a.attempt, a.outcome, a.worker, a.started_at, a.ended_at
  FROM execution r CROSS JOIN node ON node.run = r.n AND node.of IS NULL
       CROSS JOIN execution e ON e.tenant = r.tenant AND e.id = node.execution
       CROSS JOIN attempt a ON a.execution = e.n AND a.attempt >= e.attempt - ?3
 WHERE r.tenant = ?1 AND r.id = ?2
"""
_LAST_ATTEMPTS: Final = """
SELECT e.id, e.attempt, e.outcome, e.worker, e.started_at, e.finished_at
  FROM execution r CROSS JOIN node ON node.run = r.n AND node.of IS NULL
       CROSS JOIN execution e ON e.tenant = r.tenant AND e.id = node.execution
 WHERE r.tenant = ?1 AND r.id = ?2 AND (e.outcome IS NOT NULL OR e.state = 5)
"""


def node_attempts(
    tx: Transaction, owner: int, id: UUID, limit: int
) -> dict[UUID, tuple[AttemptSpan, ...]]:
    rows = tx.execute(_ATTEMPTS, (owner, id.bytes, limit)).fetchall()
    rows += tx.execute(_LAST_ATTEMPTS, (owner, id.bytes)).fetchall()
    return run_driver.newest_spans(((UUID(bytes=row[0]), _span(*row[1:])) for row in rows), limit)


def _span(
    attempt: int,
    outcome: int | None,
    worker: bytes | None,
    started_at: Instant | None,
    ended_at: Instant | None,
) -> AttemptSpan:
    ended_as = None if outcome is None else OUTCOMES[outcome]
    return AttemptSpan(attempt, ended_as, uuid_or_none(worker), started_at, ended_at)

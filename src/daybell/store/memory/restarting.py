"""Runs that have ended, and begin again."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Enqueued, NewExecution
from daybell.core.instant import Instant
from daybell.core.restart import Restart, restart
from daybell.errors import ExecutionNotFound
from daybell.store import checks
from daybell.store.driving import is_over, no_run
from daybell.store.memory import quotas
from daybell.store.memory.enqueue import enqueue
from daybell.store.memory.tables import NodeRow, RunRow, Tables

RunKey = tuple[str, UUID]


def revive(tables: Tables, key: RunKey) -> None:
    """Have a dead run begin again with what did not succeed, once it is claimed."""
    row = tables.runs.get(key)
    if row is not None and is_over(row.run):
        nodes = [one.node for one in row.nodes.values()]
        tables.runs[key] = begun_again(row, restart(row.run, nodes))


def rerun(
    tables: Tables, key: RunKey, new: NewExecution, labels: Sequence[str] | None, now: Instant
) -> Enqueued:
    """Begin a new run with nodes of an old one."""
    old = tables.rows.get(key)
    if old is None:
        raise ExecutionNotFound(f"no execution {key[1]}")
    row = tables.runs.get(key)
    if row is None or old.execution.state not in TERMINAL:
        raise no_run(key[1], old.execution.state)
    nodes = [one.node for one in row.nodes.values()]
    again = restart(row.run, nodes, labels=labels, id=new.id)
    new, before = replace(new, job=old.execution.job), len(tables.rows)
    checks.check_batch([new])
    (answer,) = enqueue(tables, key[0], [new], now)
    quotas.charge(tables, key[0], len(tables.rows) - before, now)
    if len(tables.rows) > before and not answer.skipped:
        tables.runs[key[0], new.id] = begun_again(row, again)
        made = tables.rows[key[0], new.id]
        execution = replace(made.execution, version=old.execution.version)
        tables.put(replace(made, execution=execution))
    return answer


def begun_again(row: RunRow, again: Restart) -> RunRow:
    """A run with its nodes as they are to be."""
    nodes: dict[str, NodeRow] = {}
    for node in (*again.kept, *again.changed):
        kept = replace(row.nodes[node.label], node=node)
        nodes[node.label] = replace(kept, result=None) if node.label in again.forgotten else kept
    return RunRow(again.run, nodes)

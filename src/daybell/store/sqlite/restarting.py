"""Runs that have ended, and begin again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Enqueued, NewExecution
from daybell.core.restart import restart
from daybell.core.run import Advance, NewNode, Node, Run
from daybell.errors import ExecutionNotFound
from daybell.store import checks
from daybell.store.codes import STATES
from daybell.store.driving import is_over, no_run
from daybell.store.sqlite.enqueue import create
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.node_rows import insert_nodes, read_texts, update_all_of
from daybell.store.sqlite.quotas import Meter
from daybell.store.sqlite.run_rows import RUN_COLUMNS, RunRows, insert_run, read_run

_RUN: Final = f"SELECT {RUN_COLUMNS} FROM run r WHERE r.execution = ?"
_DROP: Final = "DELETE FROM node WHERE run = ? AND of = ?"
_FORGET: Final = "UPDATE node SET result = NULL WHERE run = ? AND label = ?"


def revive(tx: Transaction, n: int, id: UUID) -> None:
    """Have a dead run begin again with what did not succeed, once it is claimed."""
    run = find_run(tx, n, id)
    if run is None or not is_over(run):
        return
    tx.names.nodes.forget(n)
    rows = RunRows(tx, n)
    again = restart(run, rows.all())
    tx.executemany(_DROP, [(n, group) for group in again.dropped])
    tx.executemany(_FORGET, [(n, label) for label in again.forgotten])
    # All of it: what a node has from before goes, too.
    update_all_of(tx, n, again.changed, {})
    rows.write(Advance(again.run), is_todo=True)


_OLD: Final = "SELECT n, state, version FROM execution WHERE tenant = ? AND id = ?"
_FIND: Final = "SELECT n FROM execution WHERE tenant = ? AND id = ?"
_SET_VERSION: Final = "UPDATE execution SET version = ? WHERE n = ?"


def rerun(
    tx: Transaction, tenant: str, id: UUID, new: NewExecution, labels: Sequence[str] | None
) -> Enqueued:
    """Begin a new run with nodes of an old one."""
    owner = tx.names.tenant(tx, tenant)
    row = tx.execute(_OLD, (owner, id.bytes)).fetchone()
    if row is None:
        raise ExecutionNotFound(f"no execution {id}")
    n, state, version = row
    run = find_run(tx, n, id)
    if run is None or STATES[state] not in TERMINAL:
        raise no_run(id, STATES[state])
    again = restart(run, RunRows(tx, n).all(), labels=labels, id=new.id)
    new = replace(new, job=tx.names.version(tx, version).name)
    checks.check_batch([new])
    is_known = tx.execute(_FIND, (owner, new.id.bytes)).fetchone() is not None
    meter = Meter(tx, owner)
    (answer,) = create(tx, owner, [new])
    meter.charge(tenant)
    if not is_known and answer.created and not answer.skipped:
        (made,) = tx.execute(_FIND, (owner, new.id.bytes)).fetchone()
        tx.execute(_SET_VERSION, (version, made))
        insert_run(tx, made, again.run)
        take_over(tx, n, made, [*again.kept, *again.changed], again.forgotten)
    return answer


_KEPT: Final = "SELECT label, spec, input, result FROM node WHERE run = ?"


def take_over(
    tx: Transaction, old: int, made: int, nodes: Sequence[Node], forgotten: frozenset[str]
) -> None:
    """Keep these nodes for a new run, with what is kept beside them."""
    kept = {label: rest for label, *rest in tx.execute(_KEPT, (old,))}
    specs = read_texts(tx, {spec for spec, _, _ in kept.values()})
    results = {
        node.label: result
        for node in nodes
        if (result := kept[node.label][2]) is not None and node.label not in forgotten
    }
    new = [NewNode(node, specs[kept[node.label][0]], kept[node.label][1]) for node in nodes]
    insert_nodes(tx, made, new)
    update_all_of(tx, made, nodes, results)


def find_run(tx: Transaction, n: int, id: UUID) -> Run | None:
    row = tx.execute(_RUN, (n,)).fetchone()
    return None if row is None else read_run(id, row)

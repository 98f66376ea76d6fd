"""Runs and their nodes as rows, and what is asked about them while they go on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.rules import Counts
from daybell.core.run import (
    Advance,
    Ask,
    Edges,
    ItemResults,
    Leaves,
    NewNode,
    Node,
    Read,
    Ready,
    Results,
    Run,
    Specs,
    Stopping,
    Todo,
    Unstarted,
)
from daybell.store.codes import NODE_CODES, NODE_STATES, RULE_CODES, RULES
from daybell.store.driving import stamped
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.rows import Row, uuids

RUN_COLUMNS: Final = """
r.total, r.unended, r.running, r.ready, r.lost_leaves, r.max_running, r.fail_fast, r.is_todo,
r.stopping, r.failed
"""


def read_run(id: UUID, row: Row) -> Run:
    total, left, running, ready, lost, max_running, fail_fast, is_todo, stopping, failed = row
    return Run(
        id=id,
        total=total,
        left=left,
        running=running,
        ready=ready,
        lost_leaves=lost,
        max_running=max_running,
        fail_fast=bool(fail_fast),
        is_todo=bool(is_todo),
        stopping=None if stopping is None else Stopping(stopping),
        failed=failed,
    )


_INSERT_RUN: Final = """
INSERT INTO run (execution, total, unended, running, ready, lost_leaves, max_running, fail_fast,
                 is_todo, stopping, failed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_RUN: Final = """
UPDATE run
   SET unended = ?, running = ?, ready = ?, lost_leaves = ?, is_todo = ?, stopping = ?, failed = ?
 WHERE execution = ?
"""


def insert_run(tx: Transaction, n: int, run: Run) -> None:
    values = (
        n,
        run.total,
        run.left,
        run.running,
        run.ready,
        run.lost_leaves,
        run.max_running,
        int(run.fail_fast),
        int(run.is_todo),
        run.stopping,
        run.failed,
    )
    tx.execute(_INSERT_RUN, values)


NODE_COLUMNS: Final = """
label, place, state, rule, total, succeeded, failed, skipped, told, items, spawned, items_ended,
items_lost, is_wanted, is_map, started_at, finished_at, execution, of, reason, edges
"""
_NO_EDGES: Final = "[]"
_READ_EDGES: Final = msgspec.json.Decoder(Edges)
_SHORT: Final = 200


@lru_cache(maxsize=1024)
def _short_edges(text: str) -> Edges:
    """Many nodes have the same child."""
    return _READ_EDGES.decode(text)


def read_nodes(rows: list[Row]) -> list[Node]:
    executions = iter(uuids([row[17] for row in rows if row[17] is not None]))
    return [read_node(row, None if row[17] is None else next(executions)) for row in rows]


def read_node(row: Row, execution: UUID | None) -> Node:
    text = row[20]
    if text == _NO_EDGES:
        edges: Edges = ()
    else:
        edges = _READ_EDGES.decode(text) if len(text) > _SHORT else _short_edges(text)
    return Node(
        label=row[0],
        order=row[1],
        state=NODE_STATES[row[2]],
        rule=RULES[row[3]],
        parents=Counts(row[4], row[5], row[6], row[7]),
        told=row[8],
        items=row[9],
        spawned=row[10],
        items_ended=row[11],
        items_lost=row[12],
        is_wanted=bool(row[13]),
        is_map=bool(row[14]),
        started_at=row[15],
        finished_at=row[16],
        execution=execution,
        group=row[18],
        reason=row[19],
        edges=edges,
    )


_INSERT_NODES: Final = Bulk(
    """
INSERT INTO node (state, succeeded, failed, skipped, told, items, spawned, items_ended, items_lost,
                  is_todo, started_at, finished_at, execution, reason,
                  run, label, place, rule, total, is_wanted, is_map, of, edges, spec, input, result)
VALUES""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
)
_UPDATE_NODES: Final = Bulk(
    """
UPDATE node
   SET state = column1, succeeded = column2, failed = column3, skipped = column4, told = column5,
       items = column6, spawned = column7, items_ended = column8, items_lost = column9,
       is_todo = column10, started_at = column11, finished_at = column12, execution = column13,
       reason = column14, result = ifnull(column16, result)
  FROM (VALUES""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ") WHERE run = ? AND label = column15",
)


def changing(node: Node, now: Instant) -> Row:
    """The values of what changes of a node."""
    node = stamped(node, now)
    parents = node.parents
    return (
        NODE_CODES[node.state],
        parents.succeeded,
        parents.failed,
        parents.skipped,
        node.told,
        node.items,
        node.spawned,
        node.items_ended,
        node.items_lost,
        int(node.is_todo),
        node.started_at,
        node.finished_at,
        None if node.execution is None else node.execution.bytes,
        node.reason,
    )


def insert_nodes(
    tx: Transaction, n: int, nodes: Iterable[NewNode], results: dict[str, str]
) -> None:
    rows: list[Any] = []
    for new in nodes:
        node = new.node
        rows += changing(node, tx.now)
        rows += (
            n,
            node.label,
            node.order,
            RULE_CODES[node.rule],
            node.parents.total,
            int(node.is_wanted),
            int(node.is_map),
            node.group,
            msgspec.json.encode(node.edges).decode() if node.edges else _NO_EDGES,
            new.spec,
            new.input,
            results.get(node.label),
        )
    _INSERT_NODES.run(tx, rows)


def write(tx: Transaction, n: int, step: Advance, *, is_todo: bool) -> None:
    """Keep what has changed of a run and its nodes."""
    insert_nodes(tx, n, step.new, step.results)
    rows: list[Any] = []
    for node in step.changed:
        rows += changing(node, tx.now)
        rows += node.label, step.results.get(node.label)
    _UPDATE_NODES.run(tx, rows, last=(n,))
    run = step.run
    counts = run.left, run.running, run.ready, run.lost_leaves
    tx.execute(_UPDATE_RUN, (*counts, int(is_todo), run.stopping, run.failed, n))


_BY_LABEL: Final = "run = ? AND label IN (SELECT value FROM json_each(?))"
_READ_NODES: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE {_BY_LABEL}"
_TODO: Final = f"""
SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND is_todo = 1 ORDER BY place LIMIT ?
"""
_READY: Final = f"""
SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND state = 2 ORDER BY place LIMIT ?
"""
_UNSTARTED: Final = f"""
SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND state IN (1, 2) ORDER BY place LIMIT ?
"""
_LEAVES: Final = f"""
SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND of IS NULL AND edges = '[]' ORDER BY place
"""
_SPECS: Final = f"SELECT label, spec, input FROM node WHERE {_BY_LABEL}"
_RESULTS: Final = f"SELECT label, result FROM node WHERE {_BY_LABEL} AND result IS NOT NULL"
# The labels of items are their node's with a bracket behind it; "\\" comes next after "[".
_ITEM_RESULTS: Final = """
SELECT label, result FROM node
 WHERE run = ? AND label > ? || '[' AND label < ? || '\\' AND of = ? AND result IS NOT NULL
"""


def answer(tx: Transaction, n: int, ask: Ask) -> Any:
    """What the file knows of a run's nodes."""
    match ask:
        case Read(labels):
            return _nodes(tx, _READ_NODES, n, _json(labels))
        case Todo(limit):
            return _nodes(tx, _TODO, n, limit)
        case Ready(limit):
            return _nodes(tx, _READY, n, limit)
        case Unstarted(limit):
            return _nodes(tx, _UNSTARTED, n, limit)
        case Leaves():
            return _nodes(tx, _LEAVES, n)
        case Specs(labels):
            rows = tx.execute(_SPECS, (n, _json(labels)))
            return {label: (spec, given) for label, spec, given in rows}
        case Results(labels):
            return dict(tx.execute(_RESULTS, (n, _json(labels))).fetchall())
        case ItemResults(group):
            return dict(tx.execute(_ITEM_RESULTS, (n, group, group, group)).fetchall())


def _nodes(tx: Transaction, statement: str, *values: Any) -> list[Node]:
    return read_nodes(tx.execute(statement, values).fetchall())


def _json(labels: tuple[str, ...]) -> str:
    return msgspec.json.encode(labels).decode()

"""Runs and their nodes as rows, and what is asked about them while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.run import (
    Advance,
    Ask,
    Failed,
    ItemResults,
    Leaves,
    Node,
    NodeState,
    Read,
    Ready,
    Results,
    Run,
    Specs,
    Stopping,
    Todo,
    Unstarted,
)
from daybell.store.codes import NODE_CODES
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.node_memory import Rows
from daybell.store.sqlite.node_rows import (
    NODE_COLUMNS,
    SPEC,
    insert_nodes,
    read_nodes,
    read_texts,
    update_all_of,
    update_nodes,
)
from daybell.store.sqlite.rows import Row

RUN_COLUMNS: Final = """
r.total, r.unended, r.running, r.ready, r.lost_leaves, r.max_running, r.fail_fast, r.is_todo,
r.stopping, r.failed, r.is_blocked
"""


def read_run(id: UUID, row: Row) -> Run:
    total, left, running, ready, lost, max_running, fail_fast, is_todo, *others = row
    stopping, failed, is_blocked = others
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
        is_blocked=bool(is_blocked),
    )


_INSERT_RUN: Final = """
INSERT INTO run (execution, total, unended, running, ready, lost_leaves, max_running, fail_fast,
                 is_todo, stopping, failed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_RUN: Final = """
UPDATE run
   SET unended = ?, running = ?, ready = ?, lost_leaves = ?, is_todo = ?, is_blocked = ?,
       stopping = ?, failed = ?
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


_BY_LABEL: Final = "run = ? AND label IN (SELECT value FROM json_each(?))"
_READ: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE {_BY_LABEL}"
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
SELECT {NODE_COLUMNS} FROM node WHERE run = ? AND of IS NULL AND edges IS NULL ORDER BY place
"""
_FAILED: Final = f"""
SELECT {NODE_COLUMNS} FROM node
 WHERE run = ? AND state = {NODE_CODES[NodeState.FAILED]} AND of IS NULL ORDER BY place LIMIT ?
"""
_ALL: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE run = ?"
_INPUTS: Final = f"SELECT label, input FROM node WHERE {_BY_LABEL}"
_RESULTS: Final = f"SELECT label, result FROM node WHERE {_BY_LABEL} AND result IS NOT NULL"
# The labels of items are their node's with a bracket behind it; "\\" comes next after "[".
_ITEM_RESULTS: Final = """
SELECT label, result FROM node
 WHERE run = ? AND label > ? || '[' AND label < ? || '\\' AND of = ? AND result IS NOT NULL
"""


class RunRows:
    """The rows of one run: answers what is asked about its nodes, and writes what has changed."""

    def __init__(self, tx: Transaction, n: int) -> None:
        self._tx = tx
        self._n = n
        self._known = tx.names.nodes.of(tx, n)
        self._rows: Rows = {}  # that are in hand

    def answer(self, ask: Ask) -> Any:
        """What the file knows of a run's nodes."""
        n, execute = self._n, self._tx.execute
        match ask:
            case Read(labels):
                return self._by_label(labels)
            case Todo(limit):
                return self._nodes(_TODO, n, limit)
            case Ready(limit):
                return self._nodes(_READY, n, limit)
            case Unstarted(limit):
                return self._nodes(_UNSTARTED, n, limit)
            case Failed(limit):
                return self._nodes(_FAILED, n, limit)
            case Leaves():
                return self._nodes(_LEAVES, n)
            case Specs(labels):
                return self._specs(labels)
            case Results(labels):
                return dict(execute(_RESULTS, (n, _json(labels))).fetchall())
            case ItemResults(group):
                return dict(execute(_ITEM_RESULTS, (n, group, group, group)).fetchall())

    def all(self) -> list[Node]:
        """All nodes and items."""
        return self._nodes(_ALL, self._n)

    def _by_label(self, labels: Sequence[str]) -> list[Node]:
        known = self._known
        found = {label: known[label] for label in labels if label in known}
        self._rows |= found
        nodes = [node for _, _, node in found.values()]
        if len(found) < len(labels):
            missing = [label for label in labels if label not in found]
            nodes += self._nodes(_READ, self._n, _json(missing))
        return nodes

    def _nodes(self, statement: str, *values: Any) -> list[Node]:
        rows = self._tx.execute(statement, values).fetchall()
        new = [row for row in rows if row[1] not in self._known]
        for row, node in zip(new, read_nodes(self._tx, new), strict=True):
            self._rows[node.label] = row[0], row[SPEC], node
        if len(new) < len(rows):
            self._rows |= {row[1]: self._known[row[1]] for row in rows if row[1] in self._known}
        return [self._rows[row[1]][2] for row in rows]

    def _specs(self, labels: tuple[str, ...]) -> dict[str, tuple[str, str | None]]:
        """Of nodes that were read before, as all are that can be started."""
        numbers = {label: self._rows[label][1] for label in labels}
        texts = read_texts(self._tx, set(numbers.values()))
        items = _json([label for label in labels if label[-1] == "]"])
        inputs = {} if items == "[]" else dict(self._tx.execute(_INPUTS, (self._n, items)))
        return {label: (texts[spec], inputs.get(label)) for label, spec in numbers.items()}

    def write(self, step: Advance, *, is_todo: bool) -> None:
        """Keep what has changed of a run and its nodes."""
        tx, n, run = self._tx, self._n, step.run
        if step.new:
            self._known |= insert_nodes(tx, n, step.new)
            ended = [new.node for new in step.new if new.node.is_ended]
            for node in ended:
                del self._known[node.label]
            update_all_of(tx, n, ended, step.results)
        update_nodes(tx, n, step.changed, step.results, self._rows, self._known)
        counts = run.left, run.running, run.ready, run.lost_leaves
        marks = int(is_todo), int(run.is_blocked)
        tx.execute(_UPDATE_RUN, (*counts, *marks, run.stopping, run.failed, n))


def _json(labels: Sequence[str]) -> str:
    return msgspec.json.encode(labels).decode()

"""Nodes of runs as rows.

A run may have tens of thousands, and each is written three times: when it is made, started and
ended. So a row is short, and is found by its number. The two common changes write what they
change and nothing else, many rows in one statement. Texts that many nodes have in common are kept
once, in `node_text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from daybell.core.instant import Instant
from daybell.core.rules import Counts
from daybell.core.run import Edges, NewNode, Node, NodeState
from daybell.store.codes import NODE_CODES, NODE_STATES, RULE_CODES, RULES
from daybell.store.driving import stamped
from daybell.store.sqlite.bulk import Bulk, Groups
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.node_memory import Rows
from daybell.store.sqlite.rows import Row, uuids

NODE_COLUMNS: Final = """
n, label, place, state, rule, total, succeeded, failed, skipped, told, is_wanted, is_map, of,
started_at, finished_at, reason, execution, edges, items, spawned, items_ended, items_lost, spec
"""
_EXECUTION: Final = 16
_EDGES: Final = 17
SPEC: Final = 22

_TEXTS: Final = "SELECT n, text FROM node_text WHERE n IN (SELECT value FROM json_each(?))"


def read_texts(tx: Transaction, numbers: Iterable[int]) -> dict[int, str]:
    """Texts by their number."""
    wanted = msgspec.json.encode(list(numbers)).decode()
    return dict(tx.execute(_TEXTS, (wanted,)).fetchall())


_READ_EDGES: Final = msgspec.json.Decoder(Edges)


@lru_cache(maxsize=64)  # one that has thousands of children is read again for each part of them
def _edges(text: str) -> Edges:
    return _READ_EDGES.decode(text)


def read_nodes(tx: Transaction, rows: Sequence[Row]) -> list[Node]:
    """Nodes from NODE_COLUMNS."""
    executions = iter(uuids([row[_EXECUTION] for row in rows if row[_EXECUTION] is not None]))
    edges: dict[int | None, Edges] = {None: ()}
    numbers = {row[_EDGES] for row in rows} - {None}
    if numbers:
        edges |= {n: _edges(text) for n, text in read_texts(tx, numbers).items()}
    nodes: list[Node] = []
    for row in rows:
        # By position is not possible, and what is named takes time: see what is usual.
        execution = None if row[_EXECUTION] is None else next(executions)
        if row[11] or row[15] is not None or row[13] is not None or row[14] is not None:
            nodes.append(_read_all(row, execution, edges[row[_EDGES]]))
            continue
        nodes.append(
            Node(
                label=row[1],
                order=row[2],
                state=NODE_STATES[row[3]],
                rule=RULES[row[4]],
                parents=Counts(row[5], row[6], row[7], row[8]),
                told=row[9],
                is_wanted=row[10] == 1,
                group=row[12],
                execution=execution,
                edges=edges[row[_EDGES]],
            )
        )
    return nodes


def _read_all(row: Row, execution: Any, edges: Edges) -> Node:
    """A node that has begun to make items, or has ended."""
    return Node(
        label=row[1],
        order=row[2],
        state=NODE_STATES[row[3]],
        rule=RULES[row[4]],
        parents=Counts(row[5], row[6], row[7], row[8]),
        told=row[9],
        is_wanted=row[10] == 1,
        is_map=row[11] == 1,
        group=row[12],
        started_at=row[13],
        finished_at=row[14],
        reason=row[15],
        execution=execution,
        edges=edges,
        items=row[18],
        spawned=row[19],
        items_ended=row[20],
        items_lost=row[21],
    )


# --- new ones -------------------------------------------------------------------------------------

_TEXTS_SO_FAR: Final = "SELECT ifnull(max(n), 0) FROM node_text"
_INSERT_TEXTS: Final = Bulk("INSERT INTO node_text (n, run, text) VALUES", "(?, ?, ?)")


class _Texts:
    """Gives numbers to texts, to equal ones the same."""

    def __init__(self, tx: Transaction) -> None:
        (self._last,) = tx.execute(_TEXTS_SO_FAR).fetchone()
        self._numbers: dict[Any, int] = {}
        self._texts: list[tuple[int, str]] = []

    def number(self, text: str) -> int:
        return self._numbers.get(text) or self._add(text, text)

    def number_of_edges(self, edges: Edges) -> int | None:
        if not edges:
            return None
        return self._numbers.get(edges) or self._add(edges, msgspec.json.encode(edges).decode())

    def _add(self, key: Any, text: str) -> int:
        self._last += 1
        self._numbers[key] = self._last
        self._texts.append((self._last, text))
        return self._last

    def insert(self, tx: Transaction, run: int) -> None:
        values = [value for n, text in self._texts for value in (n, run, text)]
        _INSERT_TEXTS.run(tx, values)


_INSERT: Final = Bulk(
    """
INSERT INTO node (run, state, rule, total, is_wanted, is_map, of, n, label, place, execution,
                  edges, spec, input)
VALUES""",
    "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?, ?, ?, ?, ?, ?, ?)",
    shared=7,
)
_LAST: Final = "SELECT ifnull(max(n), 0) FROM node"


def insert_nodes(tx: Transaction, run: int, new: Sequence[NewNode]) -> Rows:
    """Keep new nodes, as they are before anything has happened to them but a start."""
    rows: Rows = {}
    if not new:
        return rows
    (last,) = tx.execute(_LAST).fetchone()
    texts = _Texts(tx)
    groups = Groups()
    for n, one in enumerate(new, last + 1):
        node, label = one.node, one.node.label
        execution, spec = node.execution, texts.number(one.spec)
        rows[label] = n, spec, node
        shared = (
            run,
            NODE_CODES[node.state],
            RULE_CODES[node.rule],
            node.parents.total,
            1 if node.is_wanted else 0,
            1 if node.is_map else 0,
            node.group,
        )
        groups[shared] += (
            n,
            label,
            node.order,
            None if execution is None else execution.bytes,
            texts.number_of_edges(node.edges),
            spec,
            one.input,
        )
    texts.insert(tx, run)
    groups.run(tx, _INSERT)
    return rows


# --- changes --------------------------------------------------------------------------------------

_START: Final = Bulk(
    """
UPDATE node SET state = 3, succeeded = ?1, failed = ?2, skipped = ?3, execution = column2
  FROM (VALUES""",
    "(?, ?)",
    ") WHERE n = column1",
    shared=3,
)
_END: Final = Bulk(
    """
UPDATE node
   SET state = ?1, told = ?2, is_todo = ?3, finished_at = ?4, reason = ?5, started_at = column2,
       result = ifnull(column3, result)
  FROM (VALUES""",
    "(?, ?, ?)",
    ") WHERE n = column1",
    shared=5,
)
_UPDATE: Final = Bulk(
    """
UPDATE node
   SET state = column2, succeeded = column3, failed = column4, skipped = column5, told = column6,
       items = column7, spawned = column8, items_ended = column9, items_lost = column10,
       is_todo = column11, started_at = column12, finished_at = column13, execution = column14,
       reason = column15, result = ifnull(column16, result)
  FROM (VALUES""",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ") WHERE run = ? AND label = column1",
)


def update_nodes(
    tx: Transaction,
    run: int,
    changed: Iterable[Node],
    results: dict[str, str],
    rows: Rows,
    known: Rows,
) -> None:
    """Keep what has changed of nodes, which were read from these rows, and remember it."""
    started, ended = Groups(), Groups()
    others: list[Node] = []
    for node in changed:
        execution, label = node.execution, node.label
        n, spec, _ = rows[label]
        if execution is not None and node.state is NodeState.STARTED:
            parents = node.parents
            counts = parents.succeeded, parents.failed, parents.skipped
            started[counts] += n, execution.bytes
            is_over = False
        elif execution is not None and node.finished_at is not None:
            # What its parents did was written when it was started.
            is_over = not node.has_to_tell
            is_todo = 0 if is_over else 1
            how = NODE_CODES[node.state], node.told, is_todo, node.finished_at, node.reason
            ended[how] += n, node.started_at, results.get(label)
        else:
            node = stamped(node, tx.now)
            others.append(node)
            is_over = node.is_ended and not node.has_to_tell
        if is_over:
            known.pop(label, None)
        else:
            known[label] = n, spec, node
    started.run(tx, _START)
    ended.run(tx, _END)
    update_all_of(tx, run, others, results)


def update_all_of(
    tx: Transaction, run: int, nodes: Iterable[Node], results: dict[str, str]
) -> None:
    """Keep all that can change of nodes."""
    values: list[Any] = []
    for node in nodes:
        values += (node.label, *_changing(node, tx.now), results.get(node.label))
    _UPDATE.run(tx, values, last=(run,))


def _changing(node: Node, now: Instant) -> Row:
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
        1 if node.is_todo else 0,
        node.started_at,
        node.finished_at,
        None if node.execution is None else node.execution.bytes,
        node.reason,
    )

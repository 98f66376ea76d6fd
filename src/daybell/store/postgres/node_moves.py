"""Executions of nodes that have succeeded, each with the node that it ends.

A run may have tens of thousands of them, so no more is read of each than is not known of all: they
have started, as this execution, and nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from daybell.core.execution import State
from daybell.core.run import Node, NodeEnd, NodeState
from daybell.store.codes import NODE_CODES, RULES, STATE_CODES
from daybell.store.postgres.columns import BEGAN
from daybell.store.postgres.connection import Row
from daybell.store.postgres.run_rows import Place, Seen, counted, read_edges

Fence = tuple[UUID, int]

STARTED: Final = NODE_CODES[NodeState.STARTED]

# As `read` takes them apart. Who was not met is asked for, and seen to be something else.
MOVED: Final = f"""
    SELECT i.id, i.attempt, {STATE_CODES[State.SUCCEEDED]}::smallint AS state, i.parent, i.node,
           i.started_at, i.finished_at, CASE WHEN n.is_wanted THEN i.result END AS result, n.place,
           n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges, n.is_wanted, n.of,
           n.lies_at
      FROM i LEFT JOIN LATERAL (
             SELECT n.*, n.ctid AS lies_at FROM daybell.node n
              WHERE n.run = i.parent AND n.label = i.node AND n.tenant = $1
                AND n.state = {STARTED} AND n.execution = i.id LIMIT 1) n ON true
"""
TOLD: Final = f"id, attempt, parent, node, {BEGAN}, finished_at, result"


def read(rows: Iterable[Row]) -> tuple[dict[Fence, Row], dict[UUID, list[NodeEnd]], Seen]:
    """What was moved, what runs hear of it, and the nodes."""
    made: dict[Fence, Row] = {}
    ends: dict[UUID, list[NodeEnd]] = {}
    seen = Seen()
    run, told, nodes, places = None, list[NodeEnd](), dict[str, Node](), dict[str, Place]()
    for row in rows:
        (
            id, attempt, _, parent, label, started_at, finished_at, result, place, rule, total,
            succeeded, failed, skipped, edges, is_wanted, of, lies_at,
        ) = row  # fmt: skip
        if parent != run:
            run, told = parent, ends.setdefault(parent, [])
            nodes, places = seen.nodes.setdefault(run, {}), seen.places.setdefault(run, {})
        made[id, attempt] = row
        told.append(NodeEnd(label, id, State.SUCCEEDED, result, None, started_at, finished_at))
        if place is not None:
            parents = counted(total, succeeded, failed, skipped)
            nodes[label] = Node(
                label, place, NodeState.STARTED, RULES[rule], parents, read_edges(edges), 0,
                is_wanted, of, False, 0, 0, 0, 0, id,
            )  # fmt: skip
            places[label] = lies_at
    return made, ends, seen

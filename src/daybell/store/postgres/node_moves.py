"""Executions of nodes that have succeeded, with the nodes that end by it.

A run may have tens of thousands of them. Where nobody wants the result, nodes with the same few
children come as one: how many there are, and where their rows lie. No more is read of the others
than is not known of all: they have started, as this execution, and nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from daybell.core.execution import State
from daybell.core.lifecycle import Transition
from daybell.core.run import Node, NodeEnd, NodeState, Same
from daybell.store.codes import NODE_CODES, RULES, STATE_CODES
from daybell.store.postgres.columns import BEGAN
from daybell.store.postgres.connection import Row
from daybell.store.postgres.run_rows import Moved, Seen, counted, read_edges

STARTED: Final = NODE_CODES[NodeState.STARTED]
EDGES_FEW: Final = 100  # characters: all these children are read at once
MADE: Final = {"state": STATE_CODES[State.SUCCEEDED]}  # all that is asked of a row that was made

TOLD: Final = f"id, parent, node, {BEGAN}, finished_at, result"
# As `read` takes them apart. Who was not met is asked for, and seen to be something else.
MOVED: Final = f"""
    e AS MATERIALIZED (
      SELECT i.*, n.place, n.rule, n.total, n.succeeded, n.failed, n.skipped, n.edges, n.is_wanted,
             n.of, n.lies_at, NOT n.is_wanted AND length(n.edges) < {EDGES_FEW} AS is_usual
        FROM i LEFT JOIN LATERAL (
               SELECT n.*, n.ctid AS lies_at FROM daybell.node n
                WHERE n.run = i.parent AND n.label = i.node AND n.tenant = $1
                  AND n.state = {STARTED} AND n.execution = i.id LIMIT 1) n ON true)
    SELECT parent, max(finished_at) AS finished_at, edges, of, array_agg(id) AS ids,
           array_agg(lies_at) AS places, array_agg(started_at) AS starts, NULL::record AS one
      FROM e WHERE is_usual GROUP BY parent, edges, of
    UNION ALL
    SELECT parent, finished_at, edges, of, ARRAY[id], ARRAY[lies_at], ARRAY[started_at],
           ROW(node, CASE WHEN is_wanted THEN result END, place, rule, total, succeeded, failed,
               skipped, is_wanted)
      FROM e WHERE is_usual IS NOT TRUE
"""


def read(
    rows: Iterable[Row], moves: Sequence[Transition]
) -> tuple[dict[tuple[UUID, int], Any], dict[UUID, list[NodeEnd]], Seen]:
    """Which of these moves were made, what runs hear of it, and the nodes."""
    ended: set[UUID] = set()
    ends: dict[UUID, list[NodeEnd]] = {}
    seen = Seen()
    for run, finished_at, edges, of, ids, places, starts, one in rows:
        ended.update(ids)
        told = ends.setdefault(run, [])
        if one is None:
            same = Same(len(ids), () if of is not None else read_edges(edges), of)
            seen.moved.setdefault(run, []).append(Moved(same, places, starts, finished_at))
            continue
        (id,), (lies_at,), (started_at,) = ids, places, starts
        label, result, place, rule, total, succeeded, failed, skipped, is_wanted = one
        told.append(NodeEnd(label, id, State.SUCCEEDED, result, None, started_at, finished_at))
        if place is not None:
            parents = counted(total, succeeded, failed, skipped)
            seen.nodes.setdefault(run, {})[label] = Node(
                label, place, NodeState.STARTED, RULES[rule], parents, read_edges(edges), 0,
                is_wanted, of, False, 0, 0, 0, 0, id,
            )  # fmt: skip
            seen.places.setdefault(run, {})[label] = lies_at
    made = [move for move in moves if move.id in ended] if len(ended) < len(moves) else moves
    return {(move.id, move.attempt): MADE for move in made}, ends, seen

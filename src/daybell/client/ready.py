"""Since when a node of a run could have been started: nothing but a worker, or room, was missing.

That is not kept. It follows from the ends of the nodes before it, since a node is started in the
transaction that ends the last one it waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from daybell.core.execution import State
from daybell.core.graph import GraphEdge
from daybell.core.instant import Instant
from daybell.core.rules import Rule
from daybell.core.run import UPSTREAM_FAILED

if TYPE_CHECKING:
    from daybell.client.workflows import RunNode


def ready_times(
    nodes: Sequence[RunNode], edges: Iterable[GraphEdge], *, begun: Instant | None
) -> dict[str, Instant]:
    """By name, for nodes that were begun since the run was."""
    if begun is None:
        return {}
    by_name = {one.name: one for one in nodes}
    parents: Mapping[str, list[RunNode]] = defaultdict(list)
    for edge in edges:
        parents[edge.child].append(by_name[edge.parent])
    found: dict[str, Instant] = {}
    for node in nodes:
        is_older = node.finished_at is not None and node.finished_at < begun  # it was taken over
        if node.is_begun and not is_older:
            at = max(begun, _decided_at(node, parents[node.name]) or begun)
            found[node.name] = at if node.started_at is None else min(at, node.started_at)
    return found


def _decided_at(node: RunNode, parents: Sequence[RunNode]) -> Instant | None:
    """The end of the parent that decided."""
    if node.rule == Rule.ALWAYS:
        return None
    if node.rule == Rule.ONE_SUCCESS:
        return min(_ends(one for one in parents if one.status is State.SUCCEEDED), default=None)
    if node.rule == Rule.ONE_FAILED:
        return min(_ends(filter(_is_lost, parents)), default=None)
    return max(_ends(parents), default=None)


def _ends(nodes: Iterable[RunNode]) -> list[Instant]:
    return [one.finished_at for one in nodes if one.finished_at is not None]


def _is_lost(node: RunNode) -> bool:
    return node.status in (State.DEAD, State.CANCELLED) or node.reason == UPSTREAM_FAILED

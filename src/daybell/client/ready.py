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
    nodes: Sequence[RunNode], edges: Iterable[GraphEdge], *, begins: Sequence[Instant]
) -> dict[str, Instant]:
    """By name, for nodes that were begun. `begins` is when the run was: a retry begins it again,
    and keeps nodes of before. What a new run took over from another began there, and of such it is
    known only if a node came before it.
    """
    by_name = {one.name: one for one in nodes}
    parents: Mapping[str, list[RunNode]] = defaultdict(list)
    for edge in edges:
        parents[edge.child].append(by_name[edge.parent])
    found: dict[str, Instant] = {}
    for node in nodes:
        if node.is_begun:
            # A mapped node may have ended since the retry of some items.
            seen = node.finished_at if node.items is None else node.started_at
            own = (at for at in begins if seen is None or at <= seen)
            at = max([*own, *_decided_at(node, parents[node.name])], default=None)
            if at is not None:
                found[node.name] = at if node.started_at is None else min(at, node.started_at)
    return found


def _decided_at(node: RunNode, parents: Sequence[RunNode]) -> list[Instant]:
    """The end of the parent that decided, if one did."""
    if node.rule == Rule.ALWAYS:
        return []
    if node.rule == Rule.ONE_SUCCESS:
        return sorted(_ends(one for one in parents if one.status is State.SUCCEEDED))[:1]
    if node.rule == Rule.ONE_FAILED:
        return sorted(_ends(filter(_is_lost, parents)))[:1]
    return sorted(_ends(parents))[-1:]


def _ends(nodes: Iterable[RunNode]) -> list[Instant]:
    return [one.finished_at for one in nodes if one.finished_at is not None]


def _is_lost(node: RunNode) -> bool:
    return node.status in (State.DEAD, State.CANCELLED) or node.reason == UPSTREAM_FAILED

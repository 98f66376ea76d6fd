"""Restart of an ended run: the nodes that are kept, and those that run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.workflow.rules import ParentCounts, Rule
from daybell.core.workflow.run import FAIL_FAST, LOST, Node, NodeState, Run, StopReason, node_name
from daybell.errors import UsageError, listed, shown, suggested


class Restart(msgspec.Struct, frozen=True):
    """A run and its rows after a restart."""

    run: Run
    kept: tuple[Node, ...]  # unchanged rows, with their results
    changed: tuple[Node, ...]
    forgotten: frozenset[str]  # labels of changed rows that lose their results
    dropped: frozenset[str]  # mapped nodes that lose their items and will make new ones


def restart(
    run: Run, nodes: Iterable[Node], *, labels: Iterable[str] | None = None, id: UUID | None = None
) -> Restart:
    """Restart an ended run from some of its nodes; everything that depends on them runs again.

    Without `labels`, nodes that did not succeed run again, and of a mapped node only such items.
    `nodes` are all rows of the run. `id` is the id of a new run. Raises UsageError for an unknown
    label, and if no node would run.
    """
    rows = {node.label: node for node in nodes}
    graph = {label: node for label, node in rows.items() if node.group is None}
    named = set(labels or ())
    if labels is None:
        seeds = _find_lost(run, graph)
    else:
        _check_labels(named, rows)
        seeds = {node_name(label) for label in named}
    below = _below(seeds, graph)
    again = seeds | below
    reset, dropped = _reset_nodes(rows, again, named, whole=below | named)
    changed = reset | _parents_of(again, graph)
    kept = [
        node
        for label, node in rows.items()
        if label not in changed and (node.group is None or node.group not in dropped)
    ]
    return Restart(
        run=_reset_run(run, [*kept, *changed.values()], id=id),
        kept=tuple(kept),
        changed=tuple(changed.values()),
        forgotten=frozenset(reset),
        dropped=frozenset(dropped),
    )


def _find_lost(run: Run, graph: Mapping[str, Node]) -> set[str]:
    """Return the nodes that did not succeed."""
    lost = {label for label, node in graph.items() if _is_lost(node)}
    if not lost and run.stopping is not StopReason.CANCEL:  # a cancel may follow the last end
        raise UsageError("all of its nodes have succeeded; name one to begin with", field="from")
    return lost


def _reset_nodes(
    rows: Mapping[str, Node], again: set[str], named: set[str], *, whole: set[str]
) -> tuple[dict[str, Node], set[str]]:
    """Return the rows that run again, and the mapped nodes that drop their items. A mapped node
    outside `whole` keeps its usable items.
    """
    items = _items_by_group(rows, again)
    reset: dict[str, Node] = {}
    dropped: set[str] = set()
    for label in again:
        node = rows[label]
        some = None if label in whole else _some_items(node, items.get(label, ()), named)
        if some is not None:
            reset |= some
            continue
        reset[label] = _reset_node(node)
        if node.is_map:
            dropped.add(label)
    return reset, dropped


def _parents_of(again: set[str], graph: Mapping[str, Node]) -> dict[str, Node]:
    """Return kept nodes with children that run again; they have to notify these again."""
    return {
        label: replace(node, told=0)
        for label, node in graph.items()
        if label not in again and any(child in again for child, _ in node.edges)
    }


def _is_lost(node: Node) -> bool:
    return node.state in LOST or (node.state is NodeState.SKIPPED and node.reason == FAIL_FAST)


def _check_labels(labels: Iterable[str], rows: Mapping[str, Node]) -> None:
    found = False
    for label in labels:
        found = True
        if label not in rows:
            raise UsageError(
                f"the run has no node {shown(label)}; {_meant(label, rows)}", field="from"
            )
    if not found:
        raise UsageError("no node is named to begin with", field="from")


def _meant(label: str, rows: Mapping[str, Node]) -> str:
    """Suggest a label for an unknown one."""
    node = rows.get(node_name(label))
    if node is not None and node.spawned:
        return f"its items are {node.label}[0] to {node.label}[{node.spawned - 1}]"
    there = sorted((one for one in rows.values() if one.group is None), key=lambda one: one.order)
    names = [one.label for one in there]
    return suggested(label, names, otherwise=f"it has {listed(names)}")


def _below(seeds: Iterable[str], graph: Mapping[str, Node]) -> set[str]:
    """Return all nodes that depend on these."""
    found: set[str] = set()
    waiting = list(seeds)
    while waiting:
        for child, _ in graph[waiting.pop()].edges:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _items_by_group(rows: Mapping[str, Node], groups: set[str]) -> dict[str, list[Node]]:
    items: dict[str, list[Node]] = {}
    for node in rows.values():
        if node.group is not None and node.group in groups:
            items.setdefault(node.group, []).append(node)
    return items


def _some_items(node: Node, items: Iterable[Node], named: set[str]) -> dict[str, Node] | None:
    """Return a mapped node that keeps its succeeded items, and the items that run again; None: it
    has no items to keep.
    """
    listed = list(items)
    lost = [item for item in listed if item.state is not NodeState.SUCCEEDED or item.label in named]
    kept = len(listed) - len(lost)
    if not node.is_map or not kept or (not lost and node.spawned == node.items):
        return None
    still_lost = [item for item in lost if named and item.label not in named]
    if still_lost:
        lost = [item for item in lost if item.label in named]
    going = replace(
        _reset_node(node),
        state=NodeState.STARTED,
        items=node.items,
        spawned=node.spawned,
        items_ended=kept + len(still_lost),
        items_lost=len(still_lost),
        started_at=node.started_at,
    )
    return {node.label: going, **{item.label: _reset_node(item) for item in lost}}


def _reset_node(node: Node) -> Node:
    is_ready = node.parents.total == 0 or node.rule is Rule.ALWAYS
    return replace(
        node,
        state=NodeState.READY if is_ready else NodeState.WAITING,
        parents=ParentCounts(node.parents.total),
        told=0,
        items=0,
        spawned=0,
        items_ended=0,
        items_lost=0,
        execution=None,
        reason=None,
        started_at=None,
        finished_at=None,
    )


def _reset_run(run: Run, rows: Iterable[Node], *, id: UUID | None) -> Run:
    left = ready = lost_leaves = 0
    failed: Node | None = None
    for node in rows:
        left += node.group is None and not node.is_ended
        ready += node.state is NodeState.READY
        lost_leaves += node.is_leaf and node.state in LOST
        if node.state is NodeState.FAILED and (failed is None or node.order < failed.order):
            failed = node
    return replace(
        run,
        id=run.id if id is None else id,
        left=left,
        running=0,
        ready=ready,
        stopping=None,
        lost_leaves=lost_leaves,
        failed=None if failed is None else failed.label,
        is_todo=True,
        is_blocked=False,
    )

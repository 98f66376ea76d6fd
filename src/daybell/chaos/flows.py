"""Workflows under fire: graphs that a seed draws, and what must become of each of their nodes.

A graph is made of parts, one after the other: a node, a fan with its join, a branch, a map, another
workflow, a durable function. Each begins where the one before ends, at its tail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any, Final

import msgspec

from daybell.chaos.app import CRASHES_MAX, QUEUE
from daybell.chaos.nodes import choose, durable, part, spread
from daybell.client.requests import read_definition
from daybell.core.execution import State
from daybell.core.graph import Graph
from daybell.core.job import JobDefinition
from daybell.core.rules import Rule
from daybell.core.run import NodeState, item_label

INNER: Final = "flow-inner"
OUTER: Final = tuple(f"flow-{number}" for number in range(8))  # as many as there are kinds of parts
NAMES: Final = (*OUTER, INNER)
ALWAYS_FAILS: Final = 1_000_000
SECONDS: Final = (0, 0, 0.1, 0.3)  # that a node takes: who does not wait for it is seen to
SUCCEEDED: Final = NodeState.SUCCEEDED


class Flow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow, and what must become of it."""

    name: str
    graph: Graph
    fates: Mapping[str, NodeState]  # of its nodes
    weights: Mapping[str, int]  # what they return, those that return one
    items: Mapping[str, int]  # of mapped nodes
    inner: Mapping[str, Flow]  # of nodes that are workflows
    end: State

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """The nodes that each waits for."""
        found: dict[str, list[str]] = {node.name: [] for node in self.graph.nodes}
        for edge in self.graph.edges:
            found[edge.child].append(edge.parent)
        return found

    def labels(self, name: str) -> list[str]:
        """The executions of a node that runs."""
        if name in self.items:
            return [item_label(name, index) for index in range(self.items[name])]
        return [name]

    def definition(self) -> JobDefinition:
        """As the store is to keep it."""
        tasks = {task.name: task.definition for task in (part, choose, spread, durable)}
        return read_definition(
            self.name,
            kind="workflow",
            queue=QUEUE,
            max_crashes=CRASHES_MAX,
            settings=self.graph.inherit(tasks),
        )


def draw(seed: int) -> dict[str, Flow]:
    """The workflows of a run of chaos, by name: each ends with another kind of part."""
    dice = Random(f"flows {seed}")
    inner = _Drawing(INNER, dice)
    inner.node()
    inner.map()
    flows = {INNER: inner.flow()}
    for number, name in enumerate(OUTER):
        drawing = _Drawing(name, dice, flows[INNER])
        for kind in (*dice.choices(_SMALL, k=dice.randint(1, 2)), _KINDS[number]):
            kind(drawing)
        flows[name] = drawing.flow()
    return flows


class _Drawing:
    """A workflow while it is drawn."""

    def __init__(self, name: str, dice: Random, inner: Flow | None = None) -> None:
        self.dice = dice
        self._name = name
        self._inner = inner
        self._nodes: list[dict[str, Any]] = []
        self._edges: list[Any] = []
        self._max_running: int | None = None
        self._fates: dict[str, NodeState] = {}
        self._weights: dict[str, int] = {}
        self._items: dict[str, int] = {}
        self._runs: dict[str, Flow] = {}
        self._end = State.SUCCEEDED
        self._tail: list[str] = []  # at most one

    def flow(self) -> Flow:
        graph = {
            "nodes": self._nodes,
            "edges": self._edges,
            "max_running": self._max_running,
        }
        return Flow(
            name=self._name,
            graph=Graph.parse(graph),
            fates=self._fates,
            weights=self._weights,
            items=self._items,
            inner=self._runs,
            end=self._end,
        )

    def node(self) -> None:
        """One more, which perhaps fails at first."""
        self._tail = [self._part(self._tail, fails=self.dice.choice((0, 0, 1)))]

    def fan(self) -> None:
        """Many at a time, and a join."""
        if self._max_running is None and self.dice.random() < 0.5:
            self._max_running = self.dice.randint(3, 10)
        many = [self._part(self._tail) for _ in range(self.dice.randint(20, 50))]
        self._tail = [self._part(many)]

    def branch(self) -> None:
        """Some of three ways, of two nodes each, and where they meet."""
        ways = self.dice.sample(range(3), k=self.dice.randint(1, 2))
        first = [f"way{len(self._nodes)}-{number}" for number in range(3)]
        chosen = [first[number] for number in ways]
        choice = self._add("choose", choose.name, {"names": chosen}, branch=first)
        self._edges += [[one, choice] for one in self._tail]
        ends: list[str] = []
        for name in first:
            fate = SUCCEEDED if name in chosen else NodeState.SKIPPED
            self._part([], name=name, fate=fate)
            ends.append(self._part([name], fate=fate))
        self._tail = [self._part(ends, rule=str(Rule.NONE_FAILED_MIN_ONE_SUCCESS))]

    def map(self) -> None:
        """A list, one execution for each of its items, and what they come to."""
        count = self.dice.randint(2, 6)
        given = self._sum(self._tail)
        listed = self._add("spread", spread.name, {"ups": _outputs(self._tail), "count": count})
        args = {"ups": [{"item": True}]}
        mapped = self._add("map", part.name, args, map={"output": listed})
        self._items[mapped] = count
        self._weights[mapped] = given + count
        self._tail = [self._part([mapped])]

    def run(self) -> None:
        """Another workflow."""
        assert self._inner is not None
        name = f"run{len(self._nodes)}"
        self._nodes.append({"name": name, "job": self._inner.name})
        self._edges += [[one, name] for one in self._tail]
        self._fates[name] = SUCCEEDED
        self._runs[name] = self._inner
        (self._weights[name],) = (self._inner.weights[leaf] for leaf in _leaves(self._inner))
        self._tail = [name]

    def durable(self) -> None:
        """A durable function."""
        given = self._sum(self._tail)
        name = self._add("durable", durable.name, {"ups": _outputs(self._tail)})
        self._weights[name] = 1 + given
        self._tail = [name]

    def condition(self) -> None:
        """An edge that leads nowhere, and what comes after it."""
        self.node()
        (before,) = self._tail
        name = f"never{len(self._nodes)}"
        self._part([], name=name, fate=NodeState.SKIPPED)
        self._part([name], fate=NodeState.SKIPPED)
        self._edges.append({"from": before, "to": name, "when": "result < 0"})

    def fail(self) -> None:
        """One that fails for good, what mends that, and perhaps one that does not run for it."""
        failing = self._part(self._tail, fails=ALWAYS_FAILS, fate=NodeState.FAILED, retries=0)
        if self.dice.random() < 0.5:
            self._part([failing], fate=NodeState.UPSTREAM_FAILED)
            self._end = State.DEAD
        self._tail = [self._part([failing], rule=str(Rule.ONE_FAILED))]

    def _part(
        self,
        ups: Sequence[str],
        *,
        fails: int = 0,
        fate: NodeState = SUCCEEDED,
        name: str = "",
        **fields: Any,
    ) -> str:
        given = self._sum(ups)
        args = {"ups": _outputs(ups), "fails": fails, "seconds": self.dice.choice(SECONDS)}
        added = self._add("part", part.name, args, name=name, fate=fate, **fields)
        if fate is SUCCEEDED:
            self._weights[added] = 1 + given
        return added

    def _add(
        self,
        kind: str,
        task: str,
        args: Mapping[str, Any],
        *,
        name: str = "",
        fate: NodeState = SUCCEEDED,
        **fields: Any,
    ) -> str:
        name = name or f"{kind}{len(self._nodes)}"
        self._nodes.append({"name": name, "task": task, "args": args, **fields})
        self._fates[name] = fate
        return name

    def _sum(self, ups: Sequence[str]) -> int:
        return sum(self._weights.get(up, 0) for up in ups)


_SMALL: Final = (
    _Drawing.node,
    _Drawing.branch,
    _Drawing.map,
    _Drawing.run,
    _Drawing.durable,
    _Drawing.condition,
)
_KINDS: Final = (*_SMALL, _Drawing.fan, _Drawing.fail)


def _outputs(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"output": name} for name in names]


def _leaves(flow: Flow) -> list[str]:
    parents = {edge.parent for edge in flow.graph.edges}
    return [node.name for node in flow.graph.nodes if node.name not in parents]


def definitions(flows: Mapping[str, Flow]) -> list[JobDefinition]:
    """All of them; the inner one first."""
    return [flow.definition() for flow in flows.values()]

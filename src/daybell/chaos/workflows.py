"""Workflows drawn from a seed, the expected state of each node, and the runs at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.chaos.tasks import CRASHES_MAX, QUEUE, choose, durable, part, spread
from daybell.client import Client
from daybell.client.requests import read_definition
from daybell.core.event import Step
from daybell.core.execution import Execution, State
from daybell.core.job import JobDefinition
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import NodeState, RunDetail, item_label

INNER: Final = "flow-inner"
OUTER: Final = tuple(f"flow-{number}" for number in range(8))  # one for each kind of part
NAMES: Final = (*OUTER, INNER)
ALWAYS_FAILS: Final = 1_000_000
SECONDS: Final = (0, 0, 0.1, 0.3)  # that a node takes, for checks that a child waits for it
SUCCEEDED: Final = NodeState.SUCCEEDED


class Flow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow, and its expected course."""

    name: str
    graph: Graph
    fates: Mapping[str, NodeState]  # of its nodes
    weights: Mapping[str, int]  # results of the nodes that return one
    items: Mapping[str, int]  # of mapped nodes
    inner: Mapping[str, Flow]  # of nodes that are workflows
    end: State

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """Return the nodes that each node waits for."""
        found: dict[str, list[str]] = {node.name: [] for node in self.graph.nodes}
        for edge in self.graph.edges:
            found[edge.child].append(edge.parent)
        return found

    def labels(self, name: str) -> list[str]:
        """Return the executions of a node that runs."""
        if name in self.items:
            return [item_label(name, index) for index in range(self.items[name])]
        return [name]

    def definition(self) -> JobDefinition:
        """Return the definition for the store."""
        tasks = {task.name: task.definition for task in (part, choose, spread, durable)}
        return read_definition(
            self.name,
            kind="workflow",
            queue=QUEUE,
            max_crashes=CRASHES_MAX,
            settings=self.graph.inherit(tasks),
        )


def draw_workflows(seed: int) -> dict[str, Flow]:
    """Draw the workflows of a chaos run, by name: each ends with another kind of part."""
    dice = Random(f"flows {seed}")
    inner = _WorkflowBuilder(INNER, dice)
    inner.node()
    inner.map()
    flows = {INNER: inner.flow()}
    for number, name in enumerate(OUTER):
        drawing = _WorkflowBuilder(name, dice, flows[INNER])
        for kind in (*dice.choices(_SMALL, k=dice.randint(1, 2)), _KINDS[number]):
            kind(drawing)
        flows[name] = drawing.flow()
    return flows


class _WorkflowBuilder:
    """A workflow under construction."""

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
        """Add a node, which may fail at first."""
        self._tail = [self._part(self._tail, fails=self.dice.choice((0, 0, 1)))]

    def fan(self) -> None:
        """Add parallel nodes, and a join."""
        if self._max_running is None and self.dice.random() < 0.5:
            self._max_running = self.dice.randint(3, 10)
        many = [self._part(self._tail) for _ in range(self.dice.randint(20, 50))]
        self._tail = [self._part(many)]

    def branch(self) -> None:
        """Add a choice of three ways, of two nodes each, and their join."""
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
        """Add a list, a node mapped over it, and the sum."""
        count = self.dice.randint(2, 6)
        given = self._sum(self._tail)
        listed = self._add("spread", spread.name, {"ups": _outputs(self._tail), "count": count})
        args = {"ups": [{"item": True}]}
        mapped = self._add("map", part.name, args, map={"output": listed})
        self._items[mapped] = count
        self._weights[mapped] = given + count
        self._tail = [self._part([mapped])]

    def run(self) -> None:
        """Add another workflow."""
        assert self._inner is not None
        name = f"run{len(self._nodes)}"
        self._nodes.append({"name": name, "job": self._inner.name})
        self._edges += [[one, name] for one in self._tail]
        self._fates[name] = SUCCEEDED
        self._runs[name] = self._inner
        (self._weights[name],) = (self._inner.weights[leaf] for leaf in _leaves(self._inner))
        self._tail = [name]

    def durable(self) -> None:
        """Add a durable function."""
        given = self._sum(self._tail)
        name = self._add("durable", durable.name, {"ups": _outputs(self._tail)})
        self._weights[name] = 1 + given
        self._tail = [name]

    def condition(self) -> None:
        """Add an edge with an unmet condition, and the skipped node."""
        self.node()
        (before,) = self._tail
        name = f"never{len(self._nodes)}"
        self._part([], name=name, fate=NodeState.SKIPPED)
        self._part([name], fate=NodeState.SKIPPED)
        self._edges.append({"from": before, "to": name, "when": "result < 0"})

    def fail(self) -> None:
        """Add a node that fails for good, one that handles the failure, and perhaps one that is
        skipped for it.
        """
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
    _WorkflowBuilder.node,
    _WorkflowBuilder.branch,
    _WorkflowBuilder.map,
    _WorkflowBuilder.run,
    _WorkflowBuilder.durable,
    _WorkflowBuilder.condition,
)
_KINDS: Final = (*_SMALL, _WorkflowBuilder.fan, _WorkflowBuilder.fail)


def _outputs(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"output": name} for name in names]


def _leaves(flow: Flow) -> list[str]:
    parents = {edge.parent for edge in flow.graph.edges}
    return [node.name for node in flow.graph.nodes if node.name not in parents]


def definitions(flows: Mapping[str, Flow]) -> list[JobDefinition]:
    """Return all definitions; the inner one first."""
    return [flow.definition() for flow in flows.values()]


# The workflows of a chaos run, as the store has them at the end.


class FlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workflow, perhaps inside another one."""

    flow: Flow
    execution: Execution
    detail: RunDetail | None  # None: it has not begun
    root: UUID  # the outermost run that it belongs to; often itself
    nodes: Mapping[str, Sequence[Execution]]  # by label

    @property
    def id(self) -> UUID:
        return self.execution.id

    def executions(self, name: str) -> list[Execution]:
        """Return the executions of a node, several if it is mapped."""
        labels = self.flow.labels(name)
        return [one for label in labels for one in self.nodes.get(label, ())]


class WorkflowFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of runs, nodes and steps."""

    asked: int
    acknowledged: int
    states: dict[str, int]  # of runs
    nodes: int  # executions of nodes that are no runs
    steps: int  # on record, of durable functions
    steps_again: int  # repeated, since they were not on record when their worker was lost


def _is_run(execution: Execution, executions: Mapping[UUID, Execution]) -> bool:
    """True if it is a workflow's own execution. Nodes have the job of their run; an inner run has
    its own.
    """
    if execution.job not in NAMES or execution.node is None:
        return execution.job in NAMES
    around = executions.get(execution.parent) if execution.parent else None
    return around is None or around.job != execution.job


async def flow_runs(
    client: Client, flows: Mapping[str, Flow], executions: Mapping[UUID, Execution]
) -> dict[UUID, FlowRun]:
    """Return all runs among these executions."""
    nodes: dict[UUID, dict[str, list[Execution]]] = {}
    for one in executions.values():
        if one.node is not None and one.parent is not None:
            nodes.setdefault(one.parent, {}).setdefault(one.node, []).append(one)
    return {
        one.id: FlowRun(
            flow=flows[one.job],
            execution=one,
            detail=await client.store.runs.get_run(client.tenant, one.id),
            root=list(lineage(one, executions))[-1].id,
            nodes=nodes.get(one.id, {}),
        )
        for one in executions.values()
        if _is_run(one, executions)
    }


def lineage(execution: Execution, executions: Mapping[UUID, Execution]) -> Iterator[Execution]:
    """Yield the execution, the run of which it is a node, the run around that, and so on."""
    found: Execution | None = execution
    while found is not None:
        yield found
        found = executions.get(found.parent) if found.parent else None


async def recorded_steps(
    client: Client, executions: Mapping[UUID, Execution]
) -> dict[UUID, list[Step]]:
    """Return the steps of durable functions, by execution."""
    return {
        one.id: await client.store.runs.steps(client.tenant, one.id)
        for one in executions.values()
        if is_durable(one)
    }


def is_durable(execution: Execution) -> bool:
    return (execution.node or execution.job).startswith(durable.name)

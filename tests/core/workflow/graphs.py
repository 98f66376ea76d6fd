"""Runs of workflows over plain dicts, and a reference that says how they must end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.workflow.expressions import Condition
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.progress import advance
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import (
    LOST,
    Advance,
    Edges,
    NewNode,
    Node,
    NodeEnd,
    NodeState,
    Plan,
    Run,
    RunEnd,
    RunQuery,
    RunRead,
    Start,
    StopReason,
    SucceededGroup,
)
from daybell.store.run_driver import drive

OPEN = (NodeState.WAITING, NodeState.READY)
OUTCOMES = (State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED)


@dataclass
class Rows:
    """What a store keeps of one run."""

    run: Run
    nodes: dict[str, Node]
    specs: dict[str, tuple[str, str | None]]
    results: dict[str, str] = field(default_factory=dict[str, str])
    running: dict[str, Start] = field(default_factory=dict[str, Start])
    begun: list[str] = field(default_factory=list[str])  # labels, in order of their start
    end: RunEnd | None = None
    is_grouping: bool = True  # ends that are alike are told as one
    minted: int = 0
    quota: float = inf  # executions of nodes that may be unfinished

    @classmethod
    def of(cls, plan: Plan, *, quota: float = inf) -> Rows:
        rows = cls(plan.run(UUID(int=1)), {}, {}, quota=quota)
        rows.insert(plan.nodes)
        return rows

    def insert(self, new: Iterable[NewNode]) -> None:
        for one in new:
            assert one.node.label not in self.nodes, "made twice"
            self.nodes[one.node.label] = one.node
            self.specs[one.node.label] = one.spec, one.input

    def mint(self) -> UUID:
        self.minted += 1
        return UUID(int=1000 + self.minted)

    def answer(self, ask: RunQuery) -> Any:
        ordered = sorted(self.nodes.values(), key=lambda node: node.order)
        labels, most = ask.labels, ask.limit
        match ask.read:
            case RunRead.NODES:
                return [self.nodes[label] for label in labels if label in self.nodes]
            case RunRead.MARKED:
                return [node for node in ordered if node.is_todo][:most]
            case RunRead.READY:
                return [node for node in ordered if node.state is NodeState.READY][:most]
            case RunRead.UNSTARTED:
                return [node for node in ordered if node.state in OPEN][:most]
            case RunRead.SPECS:
                return {label: self.specs[label] for label in labels}
            case RunRead.RESULTS:
                return {label: self.results[label] for label in labels if label in self.results}
            case RunRead.ITEM_RESULTS:
                items = {label for label, node in self.nodes.items() if node.group == labels[0]}
                return {label: text for label, text in self.results.items() if label in items}
            case RunRead.FAILED:
                failed = [node for node in ordered if node.state is NodeState.FAILED]
                return [node for node in failed if node.group is None][:most]
            case RunRead.LEAVES:
                return [node for node in ordered if node.is_leaf]
            case _:
                raise AssertionError(f"the driver answers {ask.read}")

    def advance(self, ended: Iterable[NodeEnd] = (), *, limit: int = 1000) -> None:
        ends = list(ended)
        usual = [end for end in ends if self.is_usual(end)] if self.is_grouping else []
        same = Counter(self.kind_of(self.nodes[end.label]) for end in usual)
        asking = advance(
            self.run,
            [end for end in ends if end not in usual],
            [SucceededGroup(count, *kind) for kind, count in same.items()],
            mint=self.mint,
            limit=limit,
        )
        step = drive(asking, self.answer, lambda: max(0, self.quota - len(self.running)))
        for node in [self.nodes[end.label] for end in usual]:
            told = len(node.edges) if node.group is None else 1
            self.nodes[node.label] = replace(node, state=NodeState.SUCCEEDED, told=told)
        self.write(step)
        size = len(step.changed) + len(step.new)
        assert size <= 3 * limit + 2 * len(ends) + 2 * limit, "a bounded part of the work"

    def is_usual(self, end: NodeEnd) -> bool:
        """Whether a store need not tell of this end by itself."""
        node = self.nodes[end.label]
        is_its = node.state is NodeState.STARTED and node.execution == end.execution
        has_few = len(node.edges) < 3 and all(condition is None for _, condition in node.edges)
        return is_its and has_few and not node.is_wanted and end.state is State.SUCCEEDED

    def kind_of(self, node: Node) -> tuple[Edges, str | None]:
        return (node.edges if node.group is None else (), node.group)

    def write(self, step: Advance) -> None:
        assert self.end is None, "it had ended"
        self.run = step.run
        for node in step.changed:
            assert node.label in self.nodes
            self.nodes[node.label] = node
        self.insert(step.new)
        self.results |= step.results
        for start in step.starts:
            assert start.label not in self.running, "started twice"
            self.running[start.label] = start
            self.begun.append(start.label)
        self.end = step.end
        self.check_counts()

    def check_counts(self) -> None:
        """What is counted is what there is, and work is never forgotten."""
        rows = list(self.nodes.values())
        run = self.run
        assert run.left == sum(not row.is_ended for row in rows if row.group is None)
        assert run.ready == sum(row.state is NodeState.READY for row in rows)
        assert run.running == len(self.running)
        assert run.lost_leaves == sum(row.state in LOST for row in rows if row.is_leaf)
        assert run.max_running is None or run.running <= run.max_running
        assert run.running <= max(1, self.quota)
        if self.end is not None:
            assert run.left == 0
            assert not run.is_todo
        elif not run.is_todo:
            assert not self.has_work()
            waits = run.stopping is None and run.ready > 0 and run.running >= self.quota
            has_own_room = run.max_running is None or run.running < run.max_running
            assert run.is_blocked == (waits and has_own_room)
            assert run.left, "it has ended, and nobody said so"

    def has_work(self) -> bool:
        rows = self.nodes.values()
        if self.run.stopping is not None:
            return any(row.state in OPEN or row.is_todo for row in rows)
        has_room = self.run.running < min(self.run.max_running or inf, max(1, self.quota))
        return any(row.is_todo for row in rows) or (self.run.ready > 0 and has_room)

    def settle(self, *, limit: int) -> None:
        """Do all that can be done without anybody's end."""
        calls = 10 + 4 * sum(2 + len(row.edges) + row.items for row in self.nodes.values())
        while self.run.is_todo:
            self.advance(limit=limit)
            calls -= 1
            assert calls, "there is something to do, for ever"

    def ended(self, label: str, outcome: State, result: str | None) -> NodeEnd:
        start = self.running.pop(label)
        assert self.nodes[label].execution == start.id
        return NodeEnd(label, start.id, outcome, result if outcome is State.SUCCEEDED else None)

    def cancel(self) -> None:
        self.run = replace(self.run, stopping=StopReason.CANCEL, is_todo=True)


def play(
    rows: Rows,
    outcomes: Mapping[str, State],
    results: Mapping[str, str],
    *,
    seed: int = 0,
    limit: int = 1000,
    cancel_after: int | None = None,
) -> None:
    """Run it to its end: executions end in an order that the seed decides on, in batches."""
    dice = random.Random(seed)
    rows.advance(limit=limit)
    steps = 0
    while rows.end is None:
        if rows.run.is_todo and (not rows.running or dice.random() < 0.5):
            rows.settle(limit=limit)
            continue
        assert rows.running, "nothing runs, and it has not ended"
        if cancel_after is not None and steps >= cancel_after:
            rows.cancel()
            cancel_after = None
        batch = dice.sample(sorted(rows.running), dice.randint(1, len(rows.running)))
        ends = [
            rows.ended(label, outcomes.get(label, State.SUCCEEDED), results.get(label, "1"))
            for label in batch
        ]
        # Of what a node ran before it was started anew.
        stale = [
            replace(end, execution=UUID(int=7), state=State.DEAD, result=None) for end in ends[:1]
        ]
        rows.advance([*stale, *ends], limit=limit)
        steps += 1


# --- the reference --------------------------------------------------------------------------------


def verdict(rule: Rule, fates: list[str]) -> str:
    """What a rule says once all parents have ended: run, skip or fail."""
    succeeded, failed, skipped = (fates.count(one) for one in ("succeeded", "failed", "skipped"))
    if not fates:
        return "run"
    answers = {
        Rule.ALWAYS: "run",
        Rule.ALL_DONE: "run",
        Rule.ALL_SUCCESS: "fail" if failed else "skip" if skipped else "run",
        Rule.ALL_FAILED: "run" if failed == len(fates) else "skip",
        Rule.ONE_SUCCESS: "run" if succeeded else "fail" if failed else "skip",
        Rule.ONE_FAILED: "run" if failed else "skip",
        Rule.NONE_FAILED: "fail" if failed else "run",
        Rule.NONE_FAILED_MIN_ONE_SUCCESS: "fail" if failed else "run" if succeeded else "skip",
        Rule.NONE_SKIPPED: "skip" if skipped else "run",
    }
    return answers[rule]


@dataclass
class Reference:
    """A workflow evaluated as a whole: each node when all before it are known."""

    graph: Graph
    outcomes: Mapping[str, State]
    results: Mapping[str, str]
    states: dict[str, NodeState] = field(default_factory=dict[str, NodeState])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: dict[str, NodeState] = field(default_factory=dict[str, NodeState])  # from an earlier run

    def evaluate(self) -> Reference:
        self.states |= self.fixed
        for name in self.graph.order:
            node = self.graph.by_name[name]
            if name in self.fixed:
                continue
            match verdict(node.rule, self.fates(name)):
                case "run" if node.map is not None:
                    self.run_items(name, node.map)
                case "run":
                    self.states[name] = self.run(name)
                case "skip":
                    self.states[name] = NodeState.SKIPPED
                case _:
                    self.states[name] = NodeState.UPSTREAM_FAILED
        return self

    def run(self, label: str) -> NodeState:
        state = {
            State.SUCCEEDED: NodeState.SUCCEEDED,
            State.DEAD: NodeState.FAILED,
            State.CANCELLED: NodeState.CANCELLED,
            State.SKIPPED: NodeState.SKIPPED,
        }[self.outcomes.get(label, State.SUCCEEDED)]
        if state is NodeState.SUCCEEDED:
            self.values[label] = self.value_of(label)
        return state

    def value_of(self, label: str) -> Any:
        return json.loads(self.results.get(label, "1"))

    def run_items(self, name: str, over: Any) -> None:
        items = over if isinstance(over, list) else self.values.get(over["output"])
        if not isinstance(items, list):
            self.states[name] = NodeState.FAILED
            return
        states = [self.run(f"{name}[{n}]") for n in range(len(items))]
        for n, state in enumerate(states):
            self.states[f"{name}[{n}]"] = state
        is_whole = all(state is NodeState.SUCCEEDED for state in states)
        self.states[name] = NodeState.SUCCEEDED if is_whole else NodeState.FAILED
        self.values[name] = [self.values.get(f"{name}[{n}]") for n in range(len(items))]

    def fates(self, name: str) -> list[str]:
        return [
            self.fate(edge.parent, edge.when) for edge in self.graph.edges if edge.child == name
        ]

    def fate(self, name: str, when: str | None) -> str:
        state = self.states[name]
        if state in LOST:
            return "failed"
        if state is not NodeState.SUCCEEDED:
            return "skipped"
        is_met = when is None or Condition.parse(when).holds(self.values.get(name))
        return "succeeded" if is_met else "skipped"

    @property
    def leaves(self) -> list[str]:
        parents = {edge.parent for edge in self.graph.edges}
        return [name for name in self.graph.order if name not in parents]

    @property
    def is_lost(self) -> bool:
        return any(self.states[name] in LOST for name in self.leaves)

    @property
    def result(self) -> Any:
        told = {
            name: self.values[name]
            for name in self.leaves
            if self.states[name] is NodeState.SUCCEEDED
        }
        if len(self.leaves) == 1:
            return told.get(self.leaves[0])
        return told or None

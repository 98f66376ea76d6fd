"""Random workflows, and random fates of their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from daybell.core.execution import State
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.rules import Rule
from tests.core.workflow.graphs import OUTCOMES

CONDITIONS = (None, None, None, "result > 0", "result == 1 or len(result) > 1", "not result")


@dataclass(frozen=True)
class Story:
    """A workflow, and how each of its executions would end."""

    graph: Graph
    outcomes: dict[str, State]
    results: dict[str, str]


@st.composite
def stories(
    draw: st.DrawFn, *, nodes_max: int = 40, is_stoppable: bool = False, has_always: bool = True
) -> Story:
    """Few random draws decide: a seed makes the rest, so that large graphs are cheap."""
    dice = draw(st.randoms(use_true_random=False))
    count = draw(st.integers(1, nodes_max))
    density = draw(st.sampled_from([0.05, 0.2, 0.6]))
    rules = [rule for rule in Rule if has_always or rule is not Rule.ALWAYS]
    rules += [Rule.ALL_SUCCESS] * 9
    failing = draw(st.sampled_from([0.0, 0.1, 0.4]))
    names = [f"n{number}" for number in range(count)]
    outcomes: dict[str, State] = {}
    results: dict[str, str] = {}
    nodes: list[dict[str, Any]] = []
    edges: list[Any] = []
    for place, name in enumerate(names):
        node: dict[str, Any] = {"name": name, "task": "t", "rule": str(dice.choice(rules))}
        results[name] = dice.choice(["1", "0", "null", "[1,2]", "[]", "[1,2,3,4,5]"])
        if dice.random() < 0.2:
            lists = [{"output": dice.choice(names[:place])}] if place else []
            node["map"] = dice.choice([*lists, list(range(dice.randint(0, 5)))])
        for label in (name, *(f"{name}[{n}]" for n in range(5))):
            if dice.random() < failing:
                outcomes[label] = dice.choice(OUTCOMES)
        nodes.append(node)
        for parent in names[:place]:
            if dice.random() < density:
                when = dice.choice(CONDITIONS)
                edges.append({"from": parent, "to": name, "when": when} if when else [parent, name])
    said = {"nodes": nodes, "edges": edges}
    if is_stoppable:
        said["fail_fast"] = draw(st.booleans())
    said["max_running"] = draw(st.sampled_from([None, None, 1, 2, 7]))
    return Story(Graph.parse(said), outcomes, results)

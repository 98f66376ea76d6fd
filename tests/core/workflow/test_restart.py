"""Runs that begin again keep what was not in question, and end as the reference says."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.restart import restart
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import FAIL_FAST, LOST, NodeState, StopReason
from daybell.errors import UsageError
from tests.core.workflow.graph_strategies import Story, stories
from tests.core.workflow.graphs import OUTCOMES, Reference, Rows, play

EARLY = (Rule.ALWAYS, Rule.ONE_SUCCESS, Rule.ONE_FAILED)


def begin_again(rows: Rows, *, labels: list[str] | None = None) -> Rows:
    """Write what is said of a restart, into rows of their own."""
    made = restart(rows.run, rows.nodes.values(), labels=labels, id=UUID(int=2))
    nodes = {node.label: node for node in (*made.kept, *made.changed)}
    again = Rows(made.run, nodes, {label: rows.specs[label] for label in nodes})
    again.results = {
        label: text
        for label, text in rows.results.items()
        if label in nodes and label not in made.forgotten
    }
    again.minted = rows.minted
    again.check_counts()
    return again


def downstream(graph: Graph, names: set[str]) -> set[str]:
    below = {edge.child for edge in graph.edges if edge.parent in names}
    return below if below <= names else downstream(graph, names | below) | below


def reference_after(
    story: Story, before: Rows, later: Mapping[str, State], named: set[str] | None
) -> Reference:
    """What must come of it: what is kept is as it was, the rest is evaluated."""
    lost = {
        label
        for label, node in before.nodes.items()
        if node.group is None and (node.state in LOST or node.reason == FAIL_FAST)
    }
    seeds = lost if named is None else named
    below = downstream(story.graph, seeds)
    outcomes = dict(later)
    for label, node in before.nodes.items():
        group = node.group
        is_kept = group in seeds and group not in below and node.state is NodeState.SUCCEEDED
        if named is None and group is not None and is_kept:
            outcomes[label] = State.SUCCEEDED
    reference = Reference(story.graph, outcomes, story.results)
    for name in story.graph.order:
        if name not in seeds | below:
            keep(reference, before, name)
    return reference


def keep(reference: Reference, before: Rows, name: str) -> None:
    for label, node in before.nodes.items():
        if label == name or node.group == name:
            reference.fixed[label] = node.state
            if node.state is NodeState.SUCCEEDED and not node.is_map:
                reference.values[label] = reference.value_of(label)
    node = before.nodes[name]
    # What was stopped left no list.
    if node.is_map and (node.state is NodeState.SUCCEEDED or name in before.results):
        reference.values[name] = [reference.values.get(f"{name}[{n}]") for n in range(node.items)]


@settings(deadline=None, max_examples=60)
@given(
    stories(is_stoppable=True, nodes_max=25),
    st.sampled_from([1, 2, 5, 1000]),
    st.integers(0, 2**16),
    st.none() | st.integers(0, 5),
    st.booleans(),
)
def test_a_run_that_begins_again_ends_as_the_reference_says(
    story: Story, limit: int, seed: int, cancel_after: int | None, is_named: bool
) -> None:
    assume(not any(node.outputs and node.rule in EARLY for node in story.graph.nodes))
    dice = random.Random(seed)
    before = Rows.of(story.graph.plan())
    play(before, story.outcomes, story.results, seed=seed, limit=limit, cancel_after=cancel_after)
    before.run = replace(before.run, fail_fast=False)
    labels = [dice.choice([node.name for node in story.graph.nodes])] if is_named else None
    later = {label: dice.choice(OUTCOMES) for label in story.outcomes if dice.random() < 0.3}
    try:
        again = begin_again(before, labels=labels)
    except UsageError:
        assert labels is None
        assert not any(node.state in LOST for node in before.nodes.values() if not node.group)
        return

    expected = reference_after(story, before, later, None if labels is None else set(labels))
    expected.evaluate()
    play(again, later, story.results, seed=seed + 1, limit=limit)

    assert {label: node.state for label, node in again.nodes.items()} == expected.states
    assert again.end is not None
    assert again.end.state is (State.DEAD if expected.is_lost else State.SUCCEEDED)


def a_run(said: Mapping[str, object], outcomes: Mapping[str, State]) -> Rows:
    rows = Rows.of(Graph.parse(said).plan())
    play(rows, outcomes, {})
    return rows


def test_only_what_failed_and_what_depends_on_it_runs_again() -> None:
    said = {
        "nodes": [{"name": name, "task": "t"} for name in ("extract", "a", "b", "c", "load")],
        "edges": [["extract", n] for n in "abc"] + [[n, "load"] for n in "abc"],
    }
    rows = a_run(said, {"b": State.DEAD})

    again = begin_again(rows)
    play(again, {}, {})

    assert again.begun == ["b", "load"]
    assert again.end is not None
    assert again.end.state is State.SUCCEEDED


def test_of_a_mapped_node_only_the_items_that_failed_run_again() -> None:
    said = {"nodes": [{"name": "each", "task": "t", "map": [1, 2, 3, 4]}]}
    rows = a_run(said, {"each[2]": State.DEAD})

    again = begin_again(rows)
    play(again, {}, {"each[2]": '"now"'})

    assert again.begun == ["each[2]"]
    assert again.end is not None
    assert again.end.result == '[1,1,"now",1]'


def test_a_named_item_runs_again_and_the_others_stay() -> None:
    said = {"nodes": [{"name": "each", "task": "t", "map": [1, 2, 3]}]}
    rows = a_run(said, {"each[2]": State.DEAD})

    again = begin_again(rows, labels=["each[0]"])
    play(again, {}, {})

    assert again.begun == ["each[0]"]
    assert again.nodes["each"].state is NodeState.FAILED
    assert again.nodes["each[2]"].state is NodeState.FAILED


def test_a_node_that_is_named_runs_all_its_items_again() -> None:
    said = {"nodes": [{"name": "each", "task": "t", "map": [1, 2, 3]}]}
    rows = a_run(said, {})

    again = begin_again(rows, labels=["each"])
    play(again, {}, {})

    assert sorted(again.begun) == ["each[0]", "each[1]", "each[2]"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["lod"], "the run has no node 'lod'; did you mean 'load'?"),
        (["x"], "the run has no node 'x'; it has load, each"),
        (["load[0]"], "the run has no node 'load[0]'; did you mean 'load'?"),
        (["each[3]"], "the run has no node 'each[3]'; its items are each[0] to each[2]"),
        ([], "no node is named"),
        (None, "all of its nodes have succeeded"),
    ],
)
def test_what_cannot_begin_again_is_refused(labels: list[str] | None, said: str) -> None:
    each = {"name": "each", "task": "t", "map": [1, 2, 3]}
    rows = a_run({"nodes": [{"name": "load", "task": "t"}, each]}, {})

    with pytest.raises(UsageError, match=re.escape(said)):
        begin_again(rows, labels=labels)


def test_a_run_that_was_cancelled_when_all_had_succeeded_has_nothing_left_to_do() -> None:
    rows = a_run({"nodes": [{"name": "load", "task": "t"}]}, {})
    rows.run = replace(rows.run, stopping=StopReason.CANCEL)

    again = begin_again(rows)
    play(again, {}, {})

    assert again.begun == []
    assert again.end is not None
    assert again.end.state is State.SUCCEEDED


def test_a_mapped_node_whose_list_may_be_another_begins_with_no_items() -> None:
    said = {
        "nodes": [
            {"name": "list", "task": "t"},
            {"name": "each", "task": "t", "map": {"output": "list"}},
        ]
    }
    rows = Rows.of(Graph.parse(said).plan())
    play(rows, {"each[1]": State.DEAD}, {"list": "[1,2,3]"})

    again = begin_again(rows, labels=["list"])
    play(again, {}, {"list": "[7,8]"})

    assert sorted(again.begun) == ["each[0]", "each[1]", "list"]
    assert again.specs["each[0]"][1] == "7"


def test_what_waits_for_nobody_starts_at_once_again() -> None:
    said = {
        "nodes": [{"name": "a", "task": "t"}, {"name": "b", "task": "t", "rule": "always"}],
        "edges": [["a", "b"]],
    }
    rows = a_run(said, {"a": State.DEAD})

    again = begin_again(rows)
    again.advance()

    assert again.begun == ["a", "b"]

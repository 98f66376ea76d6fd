"""How runs go on, against a reference that evaluates the whole workflow at once."""

from __future__ import annotations

import itertools
import json
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.execution import State
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.rules import NodeDecision, ParentCounts, Rule, decide
from daybell.core.workflow.run import FAIL_FAST, LOST, NodeState, StopReason
from tests.core.workflow.graph_strategies import Story, stories
from tests.core.workflow.graphs import Reference, Rows, play, verdict

LIMITS = st.sampled_from([1, 2, 3, 4, 5, 1000])
SEEDS = st.integers(0, 2**16)
QUOTAS = st.sampled_from([0, 1, 3, inf])


@pytest.mark.parametrize("rule", Rule)
def test_a_rule_is_answered_as_soon_as_no_later_end_can_change_the_answer(rule: Rule) -> None:
    words = {NodeDecision.RUN: "run", NodeDecision.SKIP: "skip", NodeDecision.FAIL: "fail"}
    for total in range(1, 6):
        for succeeded, failed, skipped in itertools.product(range(total + 1), repeat=3):
            open_parents = total - succeeded - failed - skipped
            if open_parents < 0:
                continue
            ended = ["succeeded"] * succeeded + ["failed"] * failed + ["skipped"] * skipped
            answers = {
                verdict(rule, [*ended, *rest])
                for rest in itertools.combinations_with_replacement(
                    ("succeeded", "failed", "skipped"), open_parents
                )
            }

            decision = decide(rule, ParentCounts(total, succeeded, failed, skipped))

            if decision is NodeDecision.WAIT:
                assert len(answers) > 1 or rule is Rule.ALL_DONE
            else:
                assert answers == {words[decision]}


@settings(deadline=None, max_examples=80)
@given(stories(), LIMITS, SEEDS, QUOTAS)
def test_a_run_ends_as_the_reference_says_whatever_the_order(
    story: Story, limit: int, seed: int, quota: float
) -> None:
    expected = Reference(story.graph, story.outcomes, story.results).evaluate()
    # A node that runs at once may look for a list that is not there yet.
    early = {
        node.name
        for node in story.graph.nodes
        if node.map is not None and node.rule in (Rule.ALWAYS, Rule.ONE_SUCCESS, Rule.ONE_FAILED)
    }
    if any(node.outputs and node.name in early for node in story.graph.nodes):
        return
    rows = Rows.of(story.graph.plan(), quota=quota)

    play(rows, story.outcomes, story.results, seed=seed, limit=limit)

    assert {label: node.state for label, node in rows.nodes.items()} == expected.states
    assert len(rows.begun) == len(set(rows.begun))
    assert rows.end is not None
    assert rows.end.state is (State.DEAD if expected.is_lost else State.SUCCEEDED)
    if not expected.is_lost:
        result = None if rows.end.result is None else json.loads(rows.end.result)
        assert result == expected.result


@settings(deadline=None, max_examples=80)
@given(stories(is_stoppable=True), LIMITS, SEEDS, QUOTAS, st.none() | st.integers(0, 5))
def test_a_run_that_is_stopped_ends_and_starts_nothing_that_its_rule_forbids(
    story: Story, limit: int, seed: int, quota: float, cancel_after: int | None
) -> None:
    rows = Rows.of(story.graph.plan(), quota=quota)

    play(rows, story.outcomes, story.results, seed=seed, limit=limit, cancel_after=cancel_after)

    assert rows.end is not None
    assert all(node.is_ended for node in rows.nodes.values())
    started = {rows.nodes[label].group or label for label in rows.begun}
    for name in started:
        node = rows.nodes[name]
        counts = node.parents
        is_root = counts.total == 0
        assert is_root or decide(node.rule, counts) is NodeDecision.RUN
    stopped = [node for node in rows.nodes.values() if node.reason == FAIL_FAST]
    if stopped:
        assert story.graph.fail_fast
        assert rows.end.state in (State.DEAD, State.CANCELLED)
    if any(node.state in LOST for node in rows.nodes.values() if node.is_leaf):
        assert rows.end.state is not State.SUCCEEDED


def test_a_mapped_node_that_was_not_cut_short_succeeds_although_the_run_stops() -> None:
    graph = Graph.parse(
        {
            "nodes": [{"name": "bad", "task": "t"}, {"name": "each", "task": "t", "map": [1, 2]}],
            "fail_fast": True,
        }
    )
    rows = Rows.of(graph.plan())
    rows.advance()
    rows.settle(limit=1000)

    rows.advance([rows.ended("bad", State.DEAD, None)])
    rows.advance([rows.ended(f"each[{n}]", State.SUCCEEDED, "1") for n in range(2)])

    assert rows.nodes["each"].state is NodeState.SUCCEEDED
    assert rows.end is not None
    assert rows.end.state is State.DEAD


def test_parents_that_end_alike_are_all_counted() -> None:
    names = [f"n{n}" for n in range(5)]
    graph = Graph.parse(
        {
            "nodes": [{"name": name, "task": "t"} for name in (*names, "join")],
            "edges": [[name, "join"] for name in names],
        }
    )
    rows = Rows.of(graph.plan())
    rows.advance()

    rows.advance([rows.ended(name, State.SUCCEEDED, "1") for name in names[:3]])
    assert "join" not in rows.running
    rows.advance([rows.ended(name, State.SUCCEEDED, "1") for name in names[3:]])

    assert list(rows.running) == ["join"]


def test_what_was_started_with_others_is_not_stopped_as_if_it_waited() -> None:
    names = [f"n{n}" for n in range(5)]
    bad = {"name": "bad", "task": "t", "map": {"output": "first"}}  # which is no list
    graph = Graph.parse(
        {
            "nodes": [{"name": name, "task": "t"} for name in ("first", *names)] + [bad],
            "edges": [["first", name] for name in names],
            "fail_fast": True,
        }
    )
    rows = Rows.of(graph.plan())
    rows.advance()

    rows.advance([rows.ended("first", State.SUCCEEDED, "1")])

    assert rows.run.stopping is StopReason.FAIL_FAST
    assert sorted(rows.running) == names
    assert {rows.nodes[name].state for name in names} == {NodeState.STARTED}


def test_a_mapped_node_that_was_cut_short_has_not_succeeded() -> None:
    graph = Graph.parse({"nodes": [{"name": "each", "task": "t", "map": [1, 2, 3, 4, 5]}]})
    rows = Rows.of(graph.plan())
    while not rows.running:
        rows.advance(limit=3)
    rows.cancel()
    rows.settle(limit=1000)

    rows.advance([rows.ended(label, State.SUCCEEDED, "1") for label in list(rows.running)])

    assert rows.nodes["each"].state is NodeState.CANCELLED
    assert len(rows.nodes) < 6
    assert rows.end is not None
    assert rows.end.state is State.CANCELLED


def test_rows_that_wait_for_room_do_not_hide_what_has_to_be_told() -> None:
    nodes = [{"name": f"n{n}", "task": "t"} for n in range(30)]
    said = {
        "nodes": [*nodes, {"name": "last", "task": "t", "rule": "all_done"}],
        "edges": [[f"n{n}", "last"] for n in range(30)],
        "max_running": 1,
    }
    rows = Rows.of(Graph.parse(said).plan())

    play(rows, {}, {}, limit=2)

    assert rows.begun[-1] == "last"


def test_nodes_start_in_the_order_of_the_graph() -> None:
    nodes = [{"name": f"n{n}", "task": "t"} for n in range(20)]
    rows = Rows.of(Graph.parse({"nodes": nodes, "max_running": 3}).plan())

    play(rows, {}, {}, limit=4)

    assert rows.begun == [f"n{n}" for n in range(20)]


def test_results_too_large_to_be_one_fail_the_node() -> None:
    graph = Graph.parse(
        {
            "nodes": [
                {"name": "each", "task": "t", "map": [1, 2, 3]},
                {"name": "all", "task": "t", "args": {"rows": {"output": "each"}}},
            ]
        }
    )
    rows = Rows.of(graph.plan())
    large = json.dumps("x" * 500_000)

    play(rows, {}, {f"each[{n}]": large for n in range(3)})

    assert rows.nodes["each"].state is NodeState.FAILED
    assert "1,048,576 bytes" in (rows.nodes["each"].reason or "")
    assert rows.nodes["all"].state is NodeState.UPSTREAM_FAILED
    assert rows.end is not None
    assert "each failed" in (rows.end.error or "")


def test_mapped_nodes_without_items_make_room_for_the_next() -> None:
    nodes = [{"name": f"n{n}", "task": "t", "map": []} for n in range(4)]
    said = {"nodes": [*nodes, {"name": "last", "task": "t"}], "max_running": 1}
    rows = Rows.of(Graph.parse(said).plan())

    rows.advance()

    assert rows.begun == ["last"]
    assert all(rows.nodes[f"n{n}"].state is NodeState.SUCCEEDED for n in range(4))


def test_a_mapped_node_does_not_end_before_all_its_items_are_there() -> None:
    graph = Graph.parse({"nodes": [{"name": "each", "task": "t", "map": [1, 2, 3]}]})
    rows = Rows.of(graph.plan())
    rows.advance(limit=3)
    assert (rows.begun, rows.nodes["each"].spawned) == (["each[0]"], 1)

    rows.advance([rows.ended("each[0]", State.SUCCEEDED, "1")], limit=3)

    assert rows.nodes["each"].state is NodeState.STARTED
    play(rows, {}, {}, limit=3)
    assert rows.end is not None
    assert rows.end.result == "[1,1,1]"

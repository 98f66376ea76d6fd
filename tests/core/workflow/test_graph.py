"""Graphs of workflows: what is read, what is refused and where, and the plan of a run."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.job import JobDefinition
from daybell.core.limits import WORKFLOW_BYTES_MAX
from daybell.core.retry import Retry
from daybell.core.workflow.graph import Graph, GraphEdge
from daybell.core.workflow.node import describe_condition
from daybell.core.workflow.run import ORDER_STEP, NodeState, Spec
from daybell.errors import InvalidWorkflow
from tests.core.workflow.graph_strategies import Story, stories


def a_node(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": "t", **fields}


def a_graph(*nodes: Any, edges: Any = (), **fields: Any) -> Graph:
    return Graph.parse({"nodes": list(nodes), "edges": list(edges), **fields})


ETL = {
    "nodes": [
        {"name": "load", "task": "load", "args": {"rows": {"output": "b"}}, "retries": 2},
        {"name": "extract", "http": "https://example.org/rows", "timeout": "5m", "queue": "web"},
        {"name": "a", "command": ["tr", {"output": "extract", "path": "body"}], "env": {"X": "1"}},
        {"name": "b", "task": "clean", "map": {"output": "a"}, "args": {"row": {"item": True}}},
        {"name": "tell", "notify": {"to": "json://x", "body": "done"}, "rule": "all_done"},
        {"name": "more", "job": "other", "priority": "high"},
    ],
    "edges": [["load", "tell"], {"from": "extract", "to": "more", "when": "result.status == 200"}],
    "max_running": 5,
}  # fmt: skip


def test_references_make_edges_and_parents_come_first() -> None:
    graph = Graph.parse(ETL)

    assert graph.order == ("extract", "a", "more", "b", "load", "tell")
    assert set(graph.edges) == {
        GraphEdge("extract", "a"),
        GraphEdge("extract", "more", "result.status == 200"),
        GraphEdge("a", "b"),
        GraphEdge("b", "load"),
        GraphEdge("load", "tell"),
    }
    assert graph.tasks == {"load", "clean"}
    assert graph.jobs == {"other"}


def test_a_plan_says_all_that_a_run_needs() -> None:
    plan = Graph.parse(ETL).plan()
    rows = {new.node.label: new.node for new in plan.nodes}
    specs = {new.node.label: msgspec.json.decode(new.spec, type=Spec) for new in plan.nodes}

    assert [node.order for node in rows.values()] == [n * ORDER_STEP for n in range(6)]
    ready = {label for label, node in rows.items() if node.state is NodeState.READY}
    assert ready == {"extract"}
    assert {label: node.parents.total for label, node in rows.items() if node.parents.total} == {
        "a": 1, "b": 1, "load": 1, "tell": 1, "more": 1,
    }  # fmt: skip
    assert {label for label, node in rows.items() if not node.is_wanted} == {"load"}
    assert specs["extract"] == Spec(needs="http", queue="web", timeout=300.0)
    assert specs["a"].args == '{"extract":{"output":"extract"}}'
    assert specs["a"].outputs == ("extract",)
    assert rows["b"].is_map
    assert specs["b"].map == '{"output":"a"}'
    assert specs["more"] == Spec(job="other", priority=Priority.HIGH)
    assert specs["load"].retries == 2
    assert plan.max_running == 5


@settings(deadline=None, max_examples=30)
@given(stories(nodes_max=20, is_stoppable=True))
def test_a_graph_is_the_same_when_it_is_read_again(story: Story) -> None:
    graph = story.graph
    text = payload.encode(graph.to_settings(), bytes_max=WORKFLOW_BYTES_MAX)

    assert Graph.from_settings(text) == graph
    assert Graph.parse(graph.to_settings()) == graph
    place = {name: n for n, name in enumerate(graph.order)}
    assert all(place[edge.parent] < place[edge.child] for edge in graph.edges)


def test_edges_in_another_order_are_the_same_graph() -> None:
    nodes = [a_node(name) for name in "abc"]
    edges = [["a", "b"], ["a", "c"], ["b", "c"]]

    one, other = (a_graph(*nodes, edges=some) for some in (edges, edges[::-1]))

    assert one.to_settings() == other.to_settings()


def test_all_kinds_come_back_from_what_is_kept() -> None:
    graph = Graph.parse(ETL)

    again = Graph.from_settings(payload.encode(graph.to_settings()))

    assert again == graph
    assert Graph.parse(graph.to_settings()) == graph


@pytest.mark.parametrize(
    ("said", "field", "words"),
    [
        (5, "workflow", "must be an object with nodes"),
        ({"nodes": []}, "workflow.nodes", "has no nodes"),
        ({}, "workflow.nodes", "has no nodes"),
        ({"nodes": {"a": 1}}, "workflow.nodes", "must be a list"),
        ({"nodes": [a_node()], "fial_fast": True}, "workflow.fial_fast", "mean 'fail_fast'?"),
        ({"nodes": [a_node()], "fail_fast": 1}, "workflow.fail_fast", "true or false"),
        ({"nodes": [a_node()], "max_running": 0}, "workflow.max_running", "from 1 to"),
        ({"nodes": [a_node()] * 10_001}, "workflow.nodes", "the limit is 10,000"),
        ({"nodes": [a_node()], "edges": 5}, "workflow.edges", "must be a list"),
        ({"nodes": [a_node()], "edges": [["a"]]}, "workflow.edges[0]", "is no edge; write"),
        ({"nodes": [a_node()], "edges": [["a", 5]]}, "workflow.edges[0]", "names 5, which"),
        ({"nodes": [a_node()], "edges": [["a", []]]}, "workflow.edges[0]", "from 'a' to [] names"),
        ({"nodes": [a_node()], "edges": [["a", "aa"]]}, "workflow.edges[0]", "mean 'a'?"),
        ({"nodes": [a_node()], "edges": [["a", "a"]]}, "workflow.edges[0]", "wait for itself"),
        (
            {"nodes": [a_node()], "edges": [{"from": "a", "to": "b", "if": "x"}]},
            "workflow.edges[0].if",
            "an edge has no 'if'",
        ),
    ],
)
def test_what_is_no_workflow_is_refused_with_its_place(said: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        Graph.parse(said)

    assert words in str(refused.value)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("node", "field", "words"),
    [
        (5, "", "5 is no node"),
        ({"task": "t"}, ".name", "a node has no name"),
        ({"name": "b"}, ".task", "does not say what it runs; give one of task, command"),
        ({"name": "b", "task": "t", "http": "x"}, ".http", "has task and http, two things"),
        ({"name": "b", "workflow": {}}, ".workflow", 'name it here as {"job": "its name"}'),
        (a_node("a"), ".name", "two nodes are called 'a'"),
        (a_node("b[1]"), ".name", "contains '['"),
        (a_node("item"), ".name", "stands for the item"),
        (a_node("b", taks=1), ".taks", "did you mean 'task'?"),
        (a_node("b", task=5), ".task", "task name must be text"),
        (a_node("b", rule="one_sucess"), ".rule", "did you mean 'one_success'?"),
        (a_node("b", rule=["x"]), ".rule", "there are all_success"),
        (a_node("b", retries=-1), ".retries", "from 0 to 1000"),
        (a_node("b", timeout="soon"), ".timeout", "cannot be read"),
        (a_node("b", priority="urgent"), ".priority", "is not a priority"),
        (a_node("b", queue="a/b"), ".queue", "contains '/'"),
        (a_node("b", shell=True), ".shell", "is for a command"),
        (a_node("b", args=[1]), ".args", "given by name, as an object"),
        (a_node("b", args={"x": {"output": "c"}}), ".args", "names 'c', which is no node"),
        (a_node("b", args={"x": {"output": "b"}}), ".args", "refers to its own result"),
        (a_node("b", args={"x": {"item": True}}), ".task", "is mapped over nothing"),
        (a_node("b", args={"x": {"output": "a", "path": "x..y"}}), ".path", "has an empty part"),
        (a_node("b", map="abc"), ".map", "give a list, or"),
        (a_node("b", map={"item": True}), ".map", "mapped over its own item"),
        ({"name": "b", "http": "ftp://x"}, ".http.url", "must begin with http://"),
        ({"name": "b", "http": "http://x", "args": {"x": 1}}, ".args", "which a http takes none"),
        ({"name": "b", "sql": {"connection": "w"}}, ".sql.statement", "sql has no statement"),
        (
            {"name": "b", "sql": {"connection": "w", "statement": {"output": "a"}}},
            ".sql.statement",
            "statement={'output': 'a'} must be SQL",
        ),
        ({"name": "b", "command": "a 'b"}, ".command", "cannot be split into words"),
    ],
)
def test_what_is_no_node_is_refused_with_its_place(node: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        a_graph(a_node(), node)

    assert words in str(refused.value)
    assert refused.value.field == f"workflow.nodes[1]{field}"


def test_a_circle_is_refused_by_name() -> None:
    nodes = [a_node(name) for name in "dcbae"]

    with pytest.raises(InvalidWorkflow, match=r"circle: a -> b -> c -> a$"):
        a_graph(*nodes, edges=[["a", "b"], ["b", "c"], ["c", "a"], ["c", "d"], ["e", "a"]])
    with pytest.raises(InvalidWorkflow, match=r"circle: a -> b -> a$"):
        a_graph(a_node("a", args={"x": {"output": "b"}}), a_node("b"), edges=[["a", "b"]])
    long = [a_node(f"n{n}") for n in range(1000)]
    edges = [[f"n{n}", f"n{(n + 1) % 1000}"] for n in range(1000)]
    with pytest.raises(InvalidWorkflow, match=r"circle: n0 -> n1 -> .* -> … -> n0$"):
        a_graph(*long, edges=edges)


def test_values_by_name_are_no_reference_as_a_whole() -> None:
    graph = a_graph(
        a_node("a"),
        {"name": "b", "command": {"run": ["x"], "env": {"output": "a"}}},
        {"name": "c", "http": {"url": "http://x", "headers": {"output": {"output": "a"}}}},
    )

    assert graph.edges == (GraphEdge("a", "c"),)
    assert graph.by_name["b"].runs == {"run": ["x"], "env": {"output": "a"}}


def test_how_a_node_is_run_comes_from_it_then_from_its_task_then_from_the_workflow() -> None:
    workflow = JobDefinition(name="etl", kind="workflow", timeout=60.0, retry=Retry(retries=9))
    task = JobDefinition(name="t", queue="gpu", retry=Retry(retries=5))
    graph = a_graph(a_node("a", retries=1), a_node("b"), {"name": "c", "command": "x"})

    nodes = graph.inherit({"t": task})
    a, b, c = (nodes.definition_of(name, workflow) for name in ("a", "b[3]", "c"))

    assert (a.retry.retries, b.retry.retries, c.retry.retries) == (1, 5, 9)
    assert (a.queue, c.queue) == ("gpu", "default")
    assert (a.timeout, a.kind, a.settings) == (60.0, "task", '{"task":"t"}')
    assert (c.kind, c.settings, c.needs) == ("command", '{"run":"x"}', "command")


def test_reading_takes_steps_in_proportion_to_the_graph() -> None:
    def steps(count: int) -> int:
        nodes = [
            a_node(f"n{n}", args={"x": {"output": f"n{n - 1}"}} if n else {}) for n in range(count)
        ]
        edges = [[f"n{n}", f"n{n + step}"] for step in (3, 2) for n in range(count - step)][::-1]
        calls = 0

        def count_one(*_: Any) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count_one)
        try:
            a_graph(*nodes, edges=edges).plan()
        finally:
            sys.setprofile(None)
        return calls

    small, large = steps(200), steps(1000)

    assert large < 5.2 * small


def test_a_branch_makes_edges_with_conditions_and_is_kept_as_it_was_written() -> None:
    graph = a_graph(a_node("choose", branch=["b", "a"]), a_node("a"), a_node("b"))

    assert {(one.child, describe_condition(one.when or "", one.child)) for one in graph.edges} == {
        ("a", "it says a"), ("b", "it says b")
    }  # fmt: skip
    settings = graph.to_settings()
    assert "edges" not in settings
    assert Graph.from_settings(payload.encode(settings)) == graph == Graph.parse(settings)


@pytest.mark.parametrize(
    ("node", "edges", "said", "field"),
    [
        (a_node("x", branch=["b"]), [], "'b', which is no node", "[1].branch"),
        (a_node("x", branch=["x"]), [], "branches to itself", "[1].branch"),
        (a_node("x", branch=["a", "a"]), [], "names a node twice", "[1].branch"),
        (a_node("x", branch=[]), [], "must be a list of names", "[1].branch"),
        (a_node("x", branch="a"), [], "must be a list of names", "[1].branch"),
        ({"name": "x", "job": "j", "branch": ["a"]}, [], "this is a job", "[1].branch"),
        (
            a_node("x", branch=["a"]),
            [{"from": "x", "to": "a", "when": "result == 1"}],
            "an edge with a condition between them",
            "[1].branch",
        ),
        ({"name": "x", "command": "true", "map": {"output": "z"}}, [], "'z', which is", "[1].map"),
    ],
)
def test_what_a_node_cannot_choose_or_be_mapped_over_is_refused_with_its_place(
    node: Any, edges: Any, said: str, field: str
) -> None:
    with pytest.raises(InvalidWorkflow, match=said) as caught:
        a_graph(a_node("a"), node, edges=edges)

    assert caught.value.field == f"workflow.nodes{field}"

"""Writing workflows in Python: what a block makes, and what it refuses."""

# pyright: reportUnusedExpression=false

import json
import threading
from typing import Any

import pytest

from daybell import App, Retry, cron, job
from daybell.core.graph import Graph
from daybell.errors import InvalidArguments, InvalidWorkflow, UsageError
from daybell.sdk.workflow import Workflow


@pytest.fixture
def app():
    """An app with the tasks of a small warehouse."""
    app = App("memory://")

    @app.task
    def extract():
        return {"rows": [1, 2, 3]}

    @app.task(queue="heavy", retries=7, timeout="30s")
    def clean(extract):
        return extract["rows"]

    @app.task
    def count(extract, factor: int = 1):
        return len(extract["rows"]) * factor

    @app.task
    def load(rows, table: str = "t"):
        return [rows, table]

    @app.task
    def nap():
        return None

    return app


class Tasks:
    """An app's tasks as attributes."""

    def __init__(self, app):
        self.__dict__ |= app.tasks


@pytest.fixture
def t(app: App):
    return Tasks(app)


def graph(workflow: Workflow) -> dict[str, Any]:
    return json.loads(workflow.definition.settings)


def nodes(workflow: Workflow) -> dict[str, Any]:
    return {node["name"]: node for node in graph(workflow)["nodes"]}


def edges(workflow: Workflow) -> list[list[str]]:
    return [
        edge if isinstance(edge, list) else list(edge.values())
        for edge in graph(workflow).get("edges", [])
    ]


def test_the_order_of_tasks_is_said_with_arrows_and_lists(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.extract >> [t.clean, t.count] >> t.load.bind(1)

    assert etl.definition.kind == "workflow"
    assert [node["name"] for node in graph(etl)["nodes"]] == ["extract", "clean", "count", "load"]
    assert sorted(edges(etl)) == [
        ["clean", "load"], ["count", "load"], ["extract", "clean"], ["extract", "count"],
    ]  # fmt: skip


def test_arrows_may_point_the_other_way(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.load.bind(1) << [t.clean, t.count] << t.extract
        [t.nap] >> t.extract

    assert sorted(edges(etl)) == [
        ["clean", "load"], ["count", "load"], ["extract", "clean"], ["extract", "count"],
        ["nap", "extract"],
    ]  # fmt: skip


def test_results_are_passed_by_the_names_of_parameters(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.extract >> [t.clean, t.count]

    assert nodes(etl)["clean"]["args"] == {"extract": {"output": "extract"}}
    assert nodes(etl)["count"]["args"] == {"extract": {"output": "extract"}}


def test_only_results_of_direct_parents_are_passed_by_name(app: App, t: Any):
    @app.task
    def report(extract=None):
        return extract

    with app.workflow("etl") as etl:
        t.extract >> t.clean >> report

    assert "args" not in nodes(etl)["report"]


def test_arguments_can_be_bound_to_constants_outputs_and_parts_of_them(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.load.bind(t.extract.output["rows"][0], table="other")

    assert nodes(etl)["load"]["args"] == {
        "rows": {"output": "extract", "path": "rows.0"},
        "table": "other",
    }
    assert edges(etl) == [["extract", "load"]]


def test_outputs_may_be_anywhere_in_what_is_bound(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.load.bind(rows={"all": [t.extract.output, 5]})

    assert nodes(etl)["load"]["args"]["rows"] == {"all": [{"output": "extract"}, 5]}


def test_one_task_can_be_several_nodes(app: App, t: Any):
    with app.workflow("naps") as naps:
        t.nap.node("n1") >> t.nap.node("n2") >> t.nap

    assert [node["task"] for node in graph(naps)["nodes"]] == ["nap", "nap", "nap"]
    assert edges(naps) == [["n1", "n2"], ["n2", "nap"]]


def test_the_same_name_of_the_same_task_is_the_same_node(app: App, t: Any):
    with app.workflow("naps") as naps:
        t.nap.node("n1") >> t.nap
        t.nap.node("n1", timeout="5s") >> t.nap

    assert edges(naps) == [["n1", "nap"]]
    assert nodes(naps)["n1"]["timeout"] == "5s"


def test_a_node_runs_as_its_task_says_unless_it_says_something_else(app: App, t: Any):
    with app.workflow("etl", queue="etl") as etl:
        t.extract.node(retries=Retry.fixed("2s", retries=4), priority="high") >> t.clean
        t.clean.node("quick", timeout=1, queue="fast", retries=0).bind(1)

    assert nodes(etl)["extract"]["retries"]["delay"] == 2.0
    assert nodes(etl)["extract"]["priority"] == "high"
    assert "queue" not in nodes(etl)["extract"]
    assert nodes(etl)["clean"].items() >= {"queue": "heavy", "retries": 7, "timeout": "30s"}.items()
    assert nodes(etl)["quick"].items() >= {"queue": "fast", "retries": 0, "timeout": "1s"}.items()


def test_conditions_branches_and_rules(app: App, t: Any):
    with app.workflow("choice") as choice:
        t.extract.when("len(result.rows) > 0") >> t.clean
        t.count.bind(1).branch(t.nap.node("a"), t.nap.node("b")) >> t.nap.node(rule="one_success")

    found = {(one.parent, one.child): one.when for one in choice.graph.edges}
    assert found["extract", "clean"] == "len(result.rows) > 0"
    assert found["count", "a"] == 'result == "a" or result[0] != null and "a" in result'
    assert ["a", "nap"] in edges(choice)
    assert nodes(choice)["count"]["branch"] == ["a", "b"]
    assert nodes(choice)["nap"]["rule"] == "one_success"


@pytest.mark.parametrize("is_turned", [False, True])
def test_what_comes_before_a_branch_comes_before_the_node_that_chooses(
    app: App, t: Any, is_turned: bool
):
    with app.workflow("choice") as choice:
        a, b, end = t.nap.node("a"), t.nap.node("b"), t.nap.node("end", rule="one_success")
        if is_turned:
            end << t.count.branch(a, b) << t.extract
        else:
            t.extract >> t.count.branch(a, b) >> end

    pairs = {(one.parent, one.child) for one in choice.graph.edges}
    assert pairs == {
        ("extract", "count"), ("count", "a"), ("count", "b"), ("a", "end"), ("b", "end")
    }  # fmt: skip
    assert Graph.parse(graph(choice)) == choice.graph


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("a >> (b >> c) >> d", "ab bc cd"),
        ("a >> [b >> c] >> d", "ab bc cd"),
        ("a >> (b >> (c >> d))", "ab bc cd"),
        ("a >> [b >> c, d]", "ab bc ad"),
        ("d << (c << b) << a", "ab bc cd"),
        ("d << (b >> c) << a", "ab bc cd"),
        ("a >> (c << b) >> d", "ab bc cd"),
        ("[a] >> (b >> c) >> d", "ab bc cd"),
        # Without brackets, one goes on from the node that was named last.
        ("a >> b << c >> d", "ab cb cd"),
        ("a << b >> c >> d", "ba bc cd"),
    ],
)
def test_a_chain_in_brackets_is_meant_as_a_whole(app: App, t: Any, how: str, expected: str):
    with app.workflow("w") as chain:
        eval(how, {name: t.nap.node(name) for name in "abcd"})

    pairs = {one.parent + one.child for one in chain.graph.edges}
    assert pairs == set(expected.split())


def test_a_branch_is_of_a_task_whose_result_is_kept_and_into_nodes(app: App, t: Any):
    @app.task(store_result=False)
    def forgets():
        return "nap"

    with pytest.raises(InvalidWorkflow, match="is a job, and branch"), app.workflow("w1"):
        job("other").branch(t.nap)
    with pytest.raises(InvalidWorkflow, match="store_result=False"), app.workflow("w2"):
        forgets.branch(t.nap)
    with pytest.raises(InvalidWorkflow, match="was given a chain"), app.workflow("w3"):
        t.extract.branch(t.nap.node("a") >> t.nap.node("b"))
    with pytest.raises(InvalidWorkflow, match="this is a mapped node"), app.workflow("w4"):
        t.count.map([1, 2]).branch(t.nap)


def test_a_chain_goes_on_from_a_condition(app: App, t: Any):
    with app.workflow("choice") as choice:
        t.nap >> t.extract.when("result.rows") >> [t.clean, t.count]

    assert sorted(edges(choice)) == [
        ["extract", "clean", "result.rows"],
        ["extract", "count", "result.rows"],
        ["nap", "extract"],
    ]


def test_a_mapped_task_gets_the_item_as_its_first_free_argument(app: App, t: Any):
    with app.workflow("maps") as maps:
        t.load.map(t.extract.output["rows"])
        t.load.node("by name").bind(5).map(table=["x", "y"])

    assert nodes(maps)["load"].items() >= {
        "map": {"output": "extract", "path": "rows"}, "args": {"rows": {"item": True}},
    }.items()  # fmt: skip
    assert nodes(maps)["by name"]["args"] == {"rows": 5, "table": {"item": True}}
    assert nodes(maps)["by name"]["map"] == ["x", "y"]


def test_workflows_and_jobs_of_others_can_be_nodes(app: App, t: Any):
    with app.workflow("inner") as inner:
        t.extract.node()
    with app.workflow("outer") as outer:
        t.nap >> inner >> job("elsewhere").bind(day=inner.output) >> job("elsewhere", "again")

    assert nodes(outer)["inner"] == {"name": "inner", "job": "inner"}
    assert nodes(outer)["elsewhere"]["args"] == {"day": {"output": "inner"}}
    assert nodes(outer)["again"]["job"] == "elsewhere"


def test_a_workflow_as_a_node_has_neither_retries_nor_arguments(app: App, t: Any):
    with app.workflow("inner") as inner:
        t.nap.node()

    assert "no timeout=" in refused(app, lambda: inner.node(timeout=5))
    assert "has no parameter 'day'" in refused(app, lambda: inner.bind(day=1))
    assert "of itself" in refused(app, lambda: app.workflow("etl").node())


def test_a_workflow_is_a_job_with_a_schedule(app: App, t: Any):
    with app.workflow("etl", schedule=cron("0 2 * * *"), max_running=5, fail_fast=True) as etl:
        t.extract >> t.count

    assert etl.definition in app.definitions()
    assert len(etl.definition.schedules) == 1
    assert graph(etl)["max_running"] == 5
    assert graph(etl)["fail_fast"] is True


def test_tasks_called_inside_the_block_just_run(app: App, t: Any):
    with app.workflow("etl"):
        assert t.count({"rows": [1, 2]}, factor=2) == 4
        t.extract >> t.count


def refused(app: App, write: Any) -> str:
    """What is said of a block."""
    with pytest.raises(UsageError) as raised, app.workflow("etl"):
        write()
    return str(raised.value)


def test_arguments_that_do_not_fit_are_refused_by_node_and_parameter(app: App, t: Any):
    missing = refused(app, lambda: t.extract >> t.load)
    unknown = refused(app, lambda: t.extract >> t.count.bind(fractor=2))
    wrong = refused(app, lambda: t.extract >> t.count.bind(factor="many"))

    assert "node 'load' of workflow 'etl'" in missing and "missing 'rows'" in missing
    assert "load.bind(rows=…)" in missing
    assert "node 'count'" in unknown and "'fractor'" in unknown and "'factor'" in unknown
    assert "node 'count'" in wrong and "factor" in wrong


def test_what_makes_no_graph_is_refused(app: App, t: Any):
    def circle():
        t.extract >> t.count >> t.nap >> t.extract

    assert "circle" in refused(app, circle) and "count" in refused(app, circle)
    assert "has no nodes" in refused(app, lambda: None)
    assert "cannot wait for itself" in refused(app, lambda: t.nap >> t.nap)
    assert "cannot be a node" in refused(app, lambda: t.nap >> len)
    assert "branches into nothing" in refused(app, lambda: t.nap.branch([]))
    assert "has two conditions" in refused(
        app, lambda: (t.nap.when("result") >> t.extract, t.nap.when("not result") >> t.extract)
    )
    assert "is mapped twice" in refused(app, lambda: t.load.map([1]).map([2]))
    assert "no list" in refused(app, lambda: t.count.map("text"))
    assert "no argument left" in refused(app, lambda: t.nap.map([1, 2]))
    assert "twice" in refused(app, lambda: t.load.bind(1).bind(rows=2))
    assert ".output" in refused(app, lambda: t.load.bind(t.extract))
    assert "two of timeout=" in refused(app, lambda: (t.nap.node(timeout=1), t.nap.node(timeout=2)))
    assert "'rul'" in refused(app, lambda: t.nap.node(rul="all_done"))
    assert "all_dun" in refused(app, lambda: t.extract >> t.nap.node(rule="all_dun"))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda t: t.nap >> [], "node 'nap' of workflow 'etl' has an empty list after it"),
        (lambda t: [] >> t.nap, "node 'nap' of workflow 'etl' has an empty list before it"),
        (lambda t: t.nap << [], "node 'nap' of workflow 'etl' has an empty list before it"),
        (lambda t: [] << t.nap, "node 'nap' of workflow 'etl' has an empty list after it"),
        (lambda t: t.extract >> t.nap >> [[], ()], "node 'nap' of workflow 'etl' has an empty"),
    ],
)
def test_an_empty_list_is_not_a_list_of_nodes(app: App, t: Any, write: Any, said: str):
    assert said in refused(app, lambda: write(t))


def test_a_name_is_one_nodes(app: App, t: Any):
    said = refused(app, lambda: (t.nap.node("x"), t.extract.node("x")))

    assert "'x'" in said and "runs 'nap'" in said


def test_arrows_outside_of_a_block_are_refused(app: App, t: Any):
    with pytest.raises(InvalidWorkflow, match=r"with app\.workflow"):
        t.extract >> t.clean
    with pytest.raises(InvalidWorkflow, match=r"with app\.workflow"):
        _ = t.extract.output
    with pytest.raises(InvalidWorkflow, match=r"with app\.workflow"):
        job("elsewhere")


def test_a_node_belongs_to_one_block(app: App, t: Any):
    with app.workflow("first"):
        node = t.nap.node("kept")

    said = refused(app, lambda: node >> t.extract)
    with pytest.raises(InvalidWorkflow) as later:
        node.bind()

    assert "'kept' of workflow 'first'" in said and "'etl'" in said
    assert "has ended" in str(later.value)


def test_a_block_that_failed_leaves_nothing_behind(app: App, t: Any):
    with pytest.raises(ZeroDivisionError), app.workflow("etl"):
        t.extract >> t.clean
        _ = 1 / 0

    assert "etl" not in app.workflows
    with app.workflow("etl") as etl:
        t.extract >> t.clean
    assert app.workflows["etl"] is etl


def test_blocks_do_not_nest_and_are_written_once(app: App, t: Any):
    with app.workflow("etl") as etl:
        t.nap.node()
        with pytest.raises(InvalidWorkflow, match="'etl'"), app.workflow("inner"):
            pass

    with pytest.raises(InvalidWorkflow, match="one block"), etl:
        pass
    with pytest.raises(InvalidWorkflow, match="has not been written"):
        _ = app.workflow("never").definition


def test_names_of_tasks_and_workflows_are_told_apart(app: App, t: Any):
    with pytest.raises(UsageError, match="a task named 'nap'"):
        app.workflow("nap")
    with app.workflow("etl"):
        t.nap.node()
    with pytest.raises(UsageError, match="a workflow named 'etl'"):
        app.workflow("etl")
    with pytest.raises(UsageError, match="a workflow named 'etl'"):
        app.task(name="etl")(lambda: None)


def test_what_a_workflow_has_not_is_said(app: App, t: Any):
    with pytest.raises(UsageError, match="store_result"):
        app.workflow("etl", store_result=False)
    with pytest.raises(UsageError, match="has no 'failfast'"):
        app.workflow("etl", failfast=True)  # pyright: ignore[reportCallIssue]
    with app.workflow("etl") as etl:
        t.nap.node()
    with pytest.raises(UsageError, match="nodes of a workflow"):
        etl.options(retries=3)
    with pytest.raises(InvalidArguments, match="takes no arguments"):
        etl.bound((1,), {})


def test_things_of_another_app_are_refused(app: App, t: Any):
    other = App("memory://")

    @other.task
    def foreign():
        return None

    assert "job('foreign')" in refused(app, lambda: foreign >> t.nap)
    assert "node(delay=…)" in refused(app, lambda: t.nap.options(delay=5) >> t.extract)


def test_a_promise_that_nodes_cannot_keep_is_refused(app: App, t: Any):
    @app.task(on_lost="dead")
    def once():
        return None

    assert "job('once')" in refused(app, lambda: once.node())
    with app.workflow("fragile", on_lost="dead") as fragile:
        once.node()
    assert fragile.definition.on_lost == "dead"


def test_each_thread_writes_its_own_block(app: App, t: Any):
    problems = []

    def other():
        try:
            t.nap >> t.extract
        except InvalidWorkflow as error:
            problems.append(str(error))

    with app.workflow("etl") as etl:
        t.nap.node()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert len(problems) == 1
    assert [*nodes(etl)] == ["nap"]


def test_an_output_is_not_gone_through(app: App, t: Any):
    with app.workflow("etl"):
        with pytest.raises(TypeError):
            list(t.extract.output)
        with pytest.raises(InvalidWorkflow, match=r"'a\.b'"):
            t.extract.output["a.b"]


def test_what_people_write_by_mistake_is_refused_with_the_way_to_say_it(app: App, t: Any):
    with app.workflow("good"):
        t.load.node("l2").bind(1).node(retries=3)
        with pytest.raises(InvalidWorkflow, match=r"load\.node\('l3'\)\.bind"):
            t.load.bind(1).node("l3")
        with pytest.raises(InvalidWorkflow, match=r"count\.bind\(factor=…\)\.map\("):
            t.count.bind(1).map([1], factor=3)
        with pytest.raises(AttributeError, match=r"extract\.output\['rows'\]\['first'\]"):
            _ = t.extract.output["rows"].first
    with (
        pytest.raises(InvalidWorkflow, match=r"a condition, result\.rows, and nothing depends"),
        app.workflow("bad"),
    ):
        t.extract.when("result.rows")

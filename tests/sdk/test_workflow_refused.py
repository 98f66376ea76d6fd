"""Writing workflows in Python: what a block refuses, and with which words."""

# pyright: reportUnusedExpression=false

from typing import Any

import pytest

from daybell import App, job
from daybell.errors import InvalidArguments, InvalidWorkflow, UsageError
from tests.sdk.warehouse import Tasks, a_warehouse


@pytest.fixture
def app():
    return a_warehouse()


@pytest.fixture
def t(app: App):
    return Tasks(app)


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


def test_a_workflow_as_a_node_has_neither_retries_nor_arguments(app: App, t: Any):
    with app.workflow("inner") as inner:
        t.nap.node()

    assert "no timeout=" in refused(app, lambda: inner.node(timeout=5))
    assert "has no parameter 'day'" in refused(app, lambda: inner.bind(day=1))
    assert "of itself" in refused(app, lambda: app.workflow("etl").node())


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


def test_an_output_is_not_gone_through(app: App, t: Any):
    with app.workflow("etl"):
        for look in (list, len, max):
            with pytest.raises(InvalidWorkflow, match=r"is not known while .*\.map\("):
                look(t.extract.output)
        with pytest.raises(InvalidWorkflow, match=r"'a\.b'"):
            t.extract.output["a.b"]


@pytest.mark.parametrize(
    "compare",
    [
        lambda one: one > 3,
        lambda one: one >= 3,
        lambda one: one < 3,
        lambda one: one <= 3,
        lambda one: 3 in one,
        lambda one: sorted([one, one]),
    ],
)
def test_what_is_not_known_yet_is_not_compared(app: App, t: Any, compare: Any):
    with app.workflow("etl", params={"day": 1}) as etl:
        for one in (t.extract.output["rows"], etl.params["day"]):
            with pytest.raises(InvalidWorkflow, match=r"is not known while .*\.when\("):
                compare(one)
        t.nap.node()


def test_a_list_of_results_is_an_output(app: App, t: Any):
    said = "mapped over <Task extract> itself; did you mean .output, the list that it returns?"

    assert said in refused(app, lambda: t.count.map(t.extract))
    assert "itself; did you mean .output" in refused(app, lambda: t.count.map(t.extract.node()))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda t: t.nap.output, ".output makes"),
        (lambda t: t.nap.bind(), "bind() makes"),
        (lambda t: t.count.map([1]), "map() makes"),
        (lambda t: t.nap.when("result"), "when() makes"),
        (lambda t: t.nap.branch(t.extract), "branch() makes"),
        (lambda t: t.nap.node(), "node() makes"),
    ],
)
def test_what_is_for_a_block_says_so_in_its_own_name(t: Any, write: Any, said: str):
    with pytest.raises(InvalidWorkflow) as raised:
        write(t)

    assert str(raised.value).startswith(said)


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

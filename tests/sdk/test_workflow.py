"""Workflows in Python: what a block makes and refuses, and workflows that would run each other."""

# pyright: reportUnusedExpression=false

import threading
from typing import Any, cast

import pytest

from daybell import App, ExecutionFailed, Retry, cron, job
from daybell.core.execution import State
from daybell.core.workflow.graph import Graph
from daybell.errors import InvalidArguments, InvalidWorkflow, JobNotFound, UsageError
from tests.refusals import refuses
from tests.sdk.warehouse import Tasks, a_warehouse, edges, graph, nodes


@pytest.fixture
def app():
    return a_warehouse()


@pytest.fixture
def t(app: App):
    return Tasks(app)


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


# Workflows in code that would run each other without end, and jobs that they name.

LONG = 20.0  # seconds; nothing here takes so long


def an_app(url: str, **workflows: str) -> App:
    """An app whose workflows have a task, and run these jobs by name."""
    app = App(url)

    @app.task
    def nap() -> None: ...

    for name, names in workflows.items():
        with app.workflow(name):
            for one in names.split():
                _ = nap.node(f"before-{one}") >> job(one)
            nap.node("last")
    return app


@pytest.mark.parametrize(
    ("workflows", "circle"),
    [
        ({"w": "w"}, "w -> w"),
        ({"w": "v", "v": "w"}, "w -> v -> w"),
        ({"u": "w", "w": "nap v", "v": "nap x", "x": "w"}, "w -> v -> x -> w"),
    ],
)
async def test_workflows_that_run_each_other_are_refused(file_url, workflows, circle):
    app = an_app(file_url, **workflows)

    with pytest.raises(InvalidWorkflow) as refused:
        await app.open()

    assert str(refused.value) == f"workflows would run each other without end: {circle}"
    async with an_app(file_url) as other:
        with pytest.raises(JobNotFound):
            await other.client().job("w")


async def test_one_that_is_a_node_may_run_the_other_by_name(file_url):
    app = an_app(file_url, inner="outer")
    with app.workflow("outer"):
        app.workflows["inner"].node()

    with pytest.raises(InvalidWorkflow, match="inner -> outer -> inner"):
        await app.open()


async def test_a_circle_may_go_through_jobs_that_the_code_does_not_have(file_url):
    async with an_app(file_url, w="") as app:
        around = {"nodes": [{"name": "n", "job": "w"}]}
        await app.client().create("around", workflow=around)
        await app.client().create("far", workflow={"nodes": [{"name": "n", "job": "around"}]})

    with pytest.raises(InvalidWorkflow, match="w -> far -> around -> w"):
        await an_app(file_url, w="far").open()
    async with an_app(file_url, w="far", around="") as app:  # code says what that is from now on
        assert "far" in (await app.client().job("w")).definition.settings


async def test_a_version_that_would_close_a_circle_does_not_come_back(file_url):
    async with an_app(file_url, w="v", v="") as app:
        first = (await app.client().job("w")).version
    async with an_app(file_url, w="", v="w") as app:
        with pytest.raises(InvalidWorkflow, match="w -> v -> w"):
            await app.client().rollback("w", first)


async def test_many_workflows_in_a_row_are_no_circle(file_url):
    chain = {f"w{n}": f"w{n + 1}" for n in range(300)}

    async with an_app(file_url, **chain, w300="nap elsewhere") as app:
        assert (await app.client().job("w0")).version == 1


async def test_a_run_too_deep_inside_others_fails_for_good(file_url, monkeypatch):
    monkeypatch.setattr("daybell.core.limits.WORKFLOW_LEVELS_MAX", 2)
    app = an_app(file_url, w0="w1", w1="w2", w2="w3", w3="")

    async with app, app.worker():
        with pytest.raises(ExecutionFailed):
            await (await app.workflows["w0"].enqueue()).result(LONG)

        (deepest,) = (await app.client().executions(job="w2", nodes=True)).items
        assert (deepest.status, deepest.attempt) == (State.DEAD, 1)
        assert "workflows inside workflows deeper than 2 levels" in deepest.error["message"]
        assert (await app.client().executions(job="w3", nodes=True)).items == ()


# Writing workflows in Python: what a block refuses, and with which words.


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
    with refuses(InvalidWorkflow, field="workflow.nodes[0].branch"), app.workflow("w4"):
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
    with refuses(UsageError, field="store_result"):
        app.workflow("etl", store_result=False)
    with refuses(UsageError, field="failfast"):
        app.workflow("etl", failfast=True)  # pyright: ignore[reportCallIssue]
    with app.workflow("etl") as etl:
        t.nap.node()
    with pytest.raises(UsageError, match="nodes of a workflow"):
        etl.options(retries=3)
    with pytest.raises(InvalidArguments, match="takes no arguments"):
        etl.check_args((1,), {})


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


OF_JOBS: dict[str, dict[str, Any]] = {
    "concurrency": {"concurrency": 2},
    "rate": {"rate": "10/m"},
    "share": {"share": "customer"},
    "debounce": {"debounce": "1s"},
    "throttle": {"throttle": "1/m"},
    "singleton": {"singleton": "running"},
    "cache_for": {"cache_for": "1h"},
}


@pytest.mark.parametrize(("name", "options"), OF_JOBS.items())
def test_a_task_with_an_option_of_jobs_is_a_node_only_as_a_job(name, options, app: App, t: Any):
    @app.task(**options)
    def forecast(customer: str = "acme"):
        return None

    said = refused(app, lambda: forecast.node())
    assert f"has {name}, and only jobs obey it" in said
    assert "job('forecast')" in said
    with app.workflow("weather") as weather:
        t.nap >> job("forecast")
    assert nodes(weather)["forecast"] == {"name": "forecast", "job": "forecast"}


def test_a_node_has_the_demands_of_its_task_or_its_own(app: App, t: Any):
    @app.task(requires={"gpu": "a100"}, resources={"memory": "4GB"})
    def train():
        return None

    with app.workflow("ml") as ml:
        train.node("first") >> train.node(
            "second", requires={"zone": ["eu"]}, prefer={"disk": "ssd"}
        )

    first, second = nodes(ml)["first"], nodes(ml)["second"]
    assert first == {
        "name": "first", "task": "train", "requires": {"gpu": ["a100"]},
        "resources": {"memory": 4e9},
    }  # fmt: skip
    assert second == {
        "name": "second", "task": "train", "requires": {"zone": ["eu"]},
        "prefer": {"disk": ["ssd"]},
    }  # fmt: skip
    assert ml.graph.by_name["first"].spec().needs == train.definition.needs
    assert "a100" in train.definition.needs


@pytest.mark.parametrize("name", ["requires", "prefer", "resources"])
def test_a_workflow_demands_nothing_of_workers_itself(name, app: App):
    with pytest.raises(UsageError, match=f"no {name}=; say it for the tasks"):
        app.workflow("ml", **cast("Any", {name: {"gpu": 1 if name == "resources" else "a100"}}))


@pytest.mark.parametrize(
    "name", ["batch", "concurrency", "rate", "cache_for", "share", "singleton"]
)
def test_a_node_takes_no_option_of_jobs(name, app: App, t: Any):
    with app.workflow("etl"), pytest.raises(UsageError, match=name):
        t.nap.node(**{name: 1})


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

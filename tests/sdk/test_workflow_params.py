"""Workflows with parameters in Python: declared, passed on, refused, and run."""

# pyright: reportUnusedExpression=false

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from daybell import App, ExecutionFailed, cron, job
from daybell.core.execution import State
from daybell.errors import InvalidArguments, InvalidWorkflow, UsageError
from daybell.sdk.task import Handle
from daybell.sdk.workflow import Workflow
from daybell.testing import Bench
from tests.refusals import refuses
from tests.sdk.test_handlers import ended, output, working

LONG = 20.0  # seconds; nothing here takes so long


def args_of(workflow: Workflow, node: str) -> Any:
    return workflow.graph.by_name[node].args


@pytest.fixture
def plain() -> App:
    """An app that is never opened."""
    app = App("memory://")

    @app.task
    def extract(day): ...

    @app.task
    def load(extract, day, limit: int = 5, mode="append"): ...

    return app


def refused(app: App, write: Callable[[Workflow], Any], **options: Any) -> str:
    options.setdefault("params", {"day": ..., "limit": 10})
    with pytest.raises(UsageError) as error, app.workflow("etl", **options) as etl:
        write(etl)
    return str(error.value)


def test_parameters_are_passed_by_name_after_what_is_bound_and_results(plain: App):
    extract, load = plain.tasks["extract"], plain.tasks["load"]

    with plain.workflow("etl", params={"day": ..., "limit": 10, "extract": 1, "mode": "x"}) as etl:
        extract >> load.bind(mode="replace")

    assert args_of(etl, "extract") == {"day": {"param": "day"}}
    assert args_of(etl, "load") == {
        "mode": "replace",
        "extract": {"output": "extract"},
        "day": {"param": "day"},
        "limit": {"param": "limit"},
    }
    assert json.loads(etl.definition.settings)["params"][:2] == [
        {"name": "day"},
        {"name": "limit", "default": 10},
    ]


def test_parameters_and_parts_of_them_are_bound_and_mapped_over(plain: App):
    extract, load = plain.tasks["extract"], plain.tasks["load"]

    with plain.workflow("etl", params={"conf": ..., "days": [1]}) as etl:
        one = extract.map(etl.params["days"])
        one >> load.bind(day=etl.params["conf"]["x"][0], limit=[etl.params["conf"]])

    assert etl.graph.by_name["extract"].map == {"param": "days"}
    assert args_of(etl, "load")["day"] == {"param": "conf", "path": "x.0"}
    assert args_of(etl, "load")["limit"] == [{"param": "conf"}]
    assert (list(etl.params), repr(etl.params)) == (
        ["conf", "days"],
        "<Params of etl: conf, days=[1]>",
    )


def test_what_is_wrong_is_refused_in_the_block(plain: App):
    extract, load = plain.tasks["extract"], plain.tasks["load"]
    with plain.workflow("other", params={"day": 1}) as other:
        extract.node()

    said = refused(plain, lambda etl: extract.bind(etl.params["dya"]))
    assert "has no parameter 'dya'; did you mean 'day'?" in said
    said = refused(plain, lambda etl: extract.bind(other.params["day"]))
    assert "is given <Param other.params['day']>, which is another workflow's" in said
    said = refused(plain, lambda _: load.bind(1), params={"limit": 1})
    assert "a parameter of the workflow, or say load.bind(day=…)" in said
    said = refused(plain, lambda etl: extract.bind(etl.params["day"][""]))
    assert "cannot name a part of a parameter" in said
    with refuses(InvalidWorkflow, field="params[0].name"):
        plain.workflow("etl", params={"a b": 1})
    with refuses(InvalidWorkflow, field="params"):
        plain.workflow("etl", params=["day"])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("look", [bool, "{}".format, lambda one: one == "monday"])
def test_what_only_a_run_will_know_is_not_looked_at_before(plain: App, look: Callable[[Any], Any]):
    extract = plain.tasks["extract"]

    for said in (
        refused(plain, lambda etl: look(etl.params["day"])),
        refused(plain, lambda _: look(extract.output)),
    ):
        assert "is not known while the workflow is written" in said
    with plain.workflow("etl", params={"day": 1}) as etl:
        with pytest.raises(AttributeError, match=r"one of them is etl.params\['day'\]"):
            _ = etl.params.day
        extract.bind({"join": ["from ", etl.params["day"]]})
    assert args_of(etl, "extract") == {"day": {"join": ["from ", {"param": "day"}]}}


def test_a_schedule_calls_a_workflow_as_args_say(plain: App):
    extract, nightly = plain.tasks["extract"], cron("0 2 * * *")

    said = refused(plain, lambda _: extract.node(), schedule=nightly)
    assert said == (
        "its schedule has the wrong arguments: workflow 'etl' must be given day; it takes day,"
        " limit=10; say args"
    )
    said = refused(plain, lambda _: extract.node(), schedule=nightly, args={"dya": 1})
    assert "has no parameter 'dya'; did you mean 'day'?" in said
    with plain.workflow("etl", params={"day": ...}, schedule=nightly, args={"day": 1}) as etl:
        extract.node()
    assert etl.definition.args == '{"day":1}'


def test_a_workflow_in_another_is_called_like_a_task(plain: App):
    extract, load = plain.tasks["extract"], plain.tasks["load"]
    with plain.workflow("inner", params={"day": ..., "extract": None}) as inner:
        extract >> load

    with plain.workflow("outer", params={"day": ..., "days": []}) as outer:
        extract >> inner
        inner.node("each").map(outer.params["days"])
        inner.node("other").bind(day=1)

    assert args_of(outer, "inner") == {"day": {"param": "day"}, "extract": {"output": "extract"}}
    assert args_of(outer, "each") == {"day": {"item": True}}
    assert args_of(outer, "other") == {"day": 1}
    assert "must be given day" in refused(plain, lambda _: inner.node(), params={})
    assert "has no parameter 'dy'" in refused(plain, lambda _: inner.bind(day=1, dy=1))
    said = refused(plain, lambda _: inner.bind(day=[{"secret": "T"}]))
    assert "takes its parameters as data, and day names the secret T; name it in the node" in said


async def test_a_call_is_checked_where_it_is_made(app: App):
    @app.task
    def load(day, limit): ...

    with app.workflow("etl", params={"day": ..., "limit": 10}) as etl:
        load.node()

    with pytest.raises(InvalidArguments, match="'etl' must be given day; it takes day, limit=10"):
        await etl.enqueue()
    with pytest.raises(InvalidArguments, match="no parameter 'dya'; did you mean 'day'"):
        await etl.enqueue(day=1, dya=2)
    with pytest.raises(InvalidArguments, match="by name: enqueue\\(day=…, limit=…\\)"):
        await etl.enqueue("monday")
    with refuses(InvalidArguments, field="day"):
        await etl.enqueue_many([{"day": 1}, {"limit": 2}])
    with refuses(InvalidArguments, field="args"):
        await app.schedule(etl, "0 2 * * *")
    assert (await app.schedule(etl, "0 2 * * *", args={"day": 1})).args == {"day": 1}
    assert (await app.client().count()).executions == {}


async def test_runs_are_given_what_they_are_called_with(app: App):
    @app.task
    def load(day, limit):
        return [day, limit]

    @app.task
    def double(file, limit):
        return file * limit

    @app.task
    def join(load, double, table):
        return [load, double, table]

    with app.workflow("inner", params={"day": ..., "limit": 1}) as inner:
        load.node()
    with app.workflow("etl", params={"day": ..., "limit": 2, "files": ["a"], "conf": {}}) as etl:
        inner.node("load") >> join.bind(table=etl.params["conf"]["tables"][0])
        double.map(etl.params["files"]) >> join

    async with app.worker():
        usual, other = await etl.enqueue_many(
            [
                {"day": "monday"},
                {"day": 2, "limit": 3, "files": ["b", "c"], "conf": {"tables": ["t"]}},
            ]
        )
        assert await usual.result(LONG) == [["monday", 2], ["aa"], None]
        assert await other.result(LONG) == [[2, 3], ["bbb", "ccc"], "t"]
        assert (await usual.execution()).args == {"day": "monday"}


async def test_whatever_looks_like_a_reference_is_data_all_the_way(app: App):
    odd = {"a": {"secret": "NO"}, "b": {"output": "load"}, "c": {"as_is": {"item": True}}}

    @app.task
    def load(day, **more):
        return day

    with app.workflow("inner", params={"day": ...}) as inner:
        load.node()
    with app.workflow("etl", params={"day": ...}) as etl:
        inner.node()
        load.bind(deep=[etl.params["day"]])
        load.node("part").bind(etl.params["day"]["a"])

    async with app.worker():
        handle = await etl.enqueue(day=odd)
        assert await handle.result(LONG) == {
            "inner": odd, "load": odd, "part": {"secret": "NO"},
        }  # fmt: skip


async def test_commands_have_parameters_in_their_words(app: App):
    say = [sys.executable, "-c", "import sys; print(*sys.argv[1:])"]
    node = {
        "name": "say",
        "command": [*say, {"param": "day"}, {"join": ["n=", {"param": "conf", "path": "n"}]}],
    }
    params = ["day", {"name": "conf", "default": {"n": 1}}]

    async with app, working(app, allow_command=True):
        client = app.client()
        await client.create("etl", workflow={"params": params, "nodes": [node]})
        id = (await client.enqueue("etl", {"day": {"secret": "NO"}})).id
        done = await ended(client, id)

    assert done.status is State.SUCCEEDED, done.error
    assert output(done) == ['{"secret":"NO"} n=1']


async def test_a_run_that_nobody_looked_at_is_dead_at_once_and_says_why(app: App):
    @app.task
    def load(day): ...

    with app.workflow("inner", params={"day": ...}) as inner:
        load.node()
    with app.workflow("etl") as etl:
        job("inner").bind(dya=1)

    async with app.worker():
        with pytest.raises(ExecutionFailed, match="has no parameter 'dya'; did you mean 'day'"):
            await (await etl.enqueue()).result(LONG)
        (run,) = (await app.client().executions(job="inner", nodes=True)).items
    assert (run.status, run.attempt) == (State.DEAD, 1)
    assert inner.definition.retry.retries > 0


async def test_what_runs_again_has_what_it_was_given(app: App):
    seen: list[Any] = []

    @app.task(retries=0)
    def load(day, rows):
        seen.append((day, rows))
        if len(seen) == 1:
            raise ValueError("not today")

    with app.workflow("etl", params={"day": ..., "rows": [1]}) as etl:
        load.node()

    async with app.worker():
        handle = await etl.enqueue(day="monday")
        with pytest.raises(ExecutionFailed):
            await handle.result(LONG)
        client = app.client()
        await client.retry(handle.id)
        await handle.result(LONG)
        again = Handle(app.client_for, (await client.retry(handle.id, from_="load")).id)
        await again.result(LONG)
        assert (await again.execution()).args == {"day": "monday"}

    assert seen == [("monday", [1])] * 3


def test_a_bench_and_code_without_a_loop_call_it_by_name():
    app = App("memory://")

    @app.task
    def load(day, limit):
        return [day, limit]

    with app.workflow("etl", params={"day": ..., "limit": 10}) as etl:
        load.node()

    with Bench(app) as bench:
        assert bench.sync.run(etl, day=1) == [1, 10]
        with refuses(InvalidArguments, field="day"):
            bench.sync.run(etl)
        etl.sync.enqueue(day=2)
        etl.sync.enqueue_many([{"day": 3, "limit": 4}])
        assert bench.enqueued(etl) == [{"day": 2}, {"day": 3, "limit": 4}]


async def test_what_does_not_fit_a_task_is_refused_where_the_run_is_asked_for(caplog):
    app = App("memory://")

    @app.task
    def load(rows: int, day: str = "today", mode: Any = None) -> None: ...

    with app.workflow("inner", params={"rows": 1}) as inner:
        load.node("deep")
    with app.workflow("etl", params={"rows": ..., "day": "monday", "count": 2}) as etl:
        load >> inner.bind(rows=etl.params["count"])

    async with Bench(app):
        await etl.enqueue(rows=3)
        with pytest.raises(InvalidArguments) as outer:
            await etl.enqueue(rows="abc")
        with pytest.raises(InvalidArguments) as deep:
            await etl.enqueue(rows=1, count="many")
        with refuses(InvalidArguments, field="rows"):
            await etl.enqueue_many([{"rows": 1}, {"rows": "abc"}])

    assert str(outer.value).startswith(
        "workflow 'etl': parameter 'rows' does not fit node 'load': load(), argument 'rows':"
    )
    assert outer.value.field == "rows"
    assert "workflow 'etl', node 'inner': parameter 'rows' does not fit node 'deep'" in str(
        deep.value
    )
    assert not caplog.records


async def test_what_may_never_get_to_a_task_is_not_judged():
    app = App("memory://")

    @app.task
    def choose() -> str:
        return "full"

    @app.task
    def part(limit: int) -> None: ...

    @app.task
    def last(limit: int, part: None = None) -> None: ...

    @app.task
    def joined(text: str) -> None: ...

    with app.workflow("etl", params={"limit": None, "items": []}) as etl:
        choose.when("result == 'part'") >> part >> last
        part.node("each").map(etl.params["items"])
        joined.bind(text={"join": ["at ", etl.params["limit"]]})

    async with Bench(app):
        assert await etl.enqueue(limit="none", items=[])


def test_a_parameter_that_no_node_uses_is_told_in_code_too(plain: App, caplog):
    with plain.workflow("etl", params={"day": ..., "dya": 1}):
        plain.tasks["extract"].node()

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("workflow 'etl': parameter 'dya' is used by no node;")

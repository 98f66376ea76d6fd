"""Workflows as workers run them: results, failures, conditions, maps, workflows in workflows."""

# pyright: reportUnusedExpression=false

import asyncio
from contextlib import suppress

import pytest

from daybell import App, ExecutionFailed, Retry, job
from daybell.core.execution import State
from daybell.core.workflow.run import NodeState
from daybell.sdk.workflow import Workflow

SOON = Retry.fixed(0.01, retries=2)
LONG = 20.0  # seconds; nothing here takes so long


async def result_of(app: App, workflow: Workflow):
    async with app.worker():
        handle = await workflow.enqueue()
        return await handle.result(LONG)


async def ended(app: App, workflow: Workflow):
    """Run it; answers the execution and how its nodes ended, whatever that is."""
    async with app.worker():
        handle = await workflow.enqueue()
        with suppress(ExecutionFailed):
            await handle.result(LONG)
        run = await app.client().store.runs.get_run("default", handle.id)
        assert run is not None
        return await handle.execution(), {one.node.label: one.node for one in run.nodes}


async def test_a_classic_runs_in_order_and_passes_results_on(app: App):
    order = []

    @app.task
    async def extract() -> dict:
        order.append("extract")
        return {"rows": [3, 1, 2]}

    @app.task
    def clean(extract):
        order.append("clean")
        return sorted(extract["rows"])

    @app.task
    async def count(extract):
        order.append("count")
        return len(extract["rows"])

    @app.task
    def load(clean: list[int], count: int):
        order.append("load")
        return {"rows": clean, "count": count}

    with app.workflow("etl") as etl:
        extract >> [clean, count] >> load

    assert await result_of(app, etl) == {"rows": [1, 2, 3], "count": 3}
    assert order[0] == "extract" and order[-1] == "load" and len(order) == 4


async def test_a_node_that_fails_is_tried_again_as_its_task_says(app: App):
    tries = []

    @app.task(retries=SOON)
    def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "at last"

    @app.task
    def load(flaky):
        return flaky

    with app.workflow("etl") as etl:
        flaky >> load

    assert await result_of(app, etl) == "at last"
    assert len(tries) == 3


async def test_a_failure_is_the_runs_and_what_can_still_run_does(app: App):
    ran = []

    @app.task(retries=0)
    def broken():
        raise ValueError("no")

    @app.task
    def after(broken):
        ran.append("after")

    @app.task
    def apart():
        ran.append("apart")
        return "well"

    @app.task
    def tidy():
        ran.append("tidy")

    with app.workflow("etl") as etl:
        broken >> after >> tidy.node(rule="all_done")
        apart.node()

    execution, nodes = await ended(app, etl)

    assert execution.status is State.SUCCEEDED or execution.status is State.DEAD
    assert sorted(ran) == ["apart", "tidy"]
    assert nodes["broken"].state is NodeState.FAILED
    assert nodes["after"].state is NodeState.UPSTREAM_FAILED
    assert nodes["tidy"].state is NodeState.SUCCEEDED


async def test_a_run_whose_last_node_could_not_run_is_dead_and_says_which_failed(app: App):
    @app.task(retries=0)
    def broken():
        raise ValueError("no")

    @app.task
    def after(broken):
        return None

    with app.workflow("etl") as etl:
        broken >> after

    async with app.worker():
        handle = await etl.enqueue()
        with pytest.raises(ExecutionFailed, match=r"nodes_failed.*broken failed"):
            await handle.result(LONG)


async def test_conditions_and_branches_skip_what_is_not_taken(app: App):
    @app.task
    def choose():
        return "left"

    @app.task
    def step():
        return "ran"

    @app.task
    def empty():
        return {"rows": 0}

    with app.workflow("choice") as choice:
        choose.branch(step.node("left"), step.node("right")) >> step.node(
            "join", rule="none_failed_min_one_success"
        )
        empty.when("result.rows > 0") >> step.node("never") >> step.node("nor this")

    execution, nodes = await ended(app, choice)

    assert execution.status is State.SUCCEEDED
    skipped = {label for label, node in nodes.items() if node.state is NodeState.SKIPPED}
    assert skipped == {"right", "never", "nor this"}


@pytest.mark.parametrize(("said", "told"), [("lft", "'lft'"), (3, "3"), (None, "None")])
async def test_a_branch_that_names_no_node_of_it_fails_at_once(app: App, said: object, told: str):
    tries = []

    @app.task(retries=SOON)
    def choose():
        tries.append(1)
        return said

    @app.task
    def step():
        return "ran"

    with app.workflow("choice") as choice:
        choose.branch(step.node("left"), step.node("right"))

    async with app.worker():
        handle = await choice.enqueue()
        with pytest.raises(ExecutionFailed, match="choose failed"):
            await handle.result(LONG)
        run = (await app.client().execution(handle.id)).workflow
        assert run is not None
        (one,) = [node for node in run.nodes if node.name == "choose"]
        assert one.execution_id is not None
        detail = await app.client().execution(one.execution_id)
    error = detail.error["message"]
    assert f"returned {told}, which is none of its nodes" in error
    assert "'left', 'right'" in error
    assert len(tries) == 1


async def test_a_branch_may_take_several_nodes_or_none(app: App):
    taken = ["left", "right"]

    @app.task
    def choose():
        return taken

    @app.task
    def step():
        return "ran"

    with app.workflow("choice") as choice:
        choose.branch(step.node("left"), step.node("right"))

    assert await result_of(app, choice) == {"left": "ran", "right": "ran"}
    taken.clear()
    execution, nodes = await ended(app, choice)
    assert execution.status is State.SUCCEEDED
    assert {nodes[name].state for name in ("left", "right")} == {NodeState.SKIPPED}


async def test_a_map_runs_once_for_each_item_and_the_join_gets_the_list(app: App):
    @app.task
    def extract():
        return list(range(25))

    @app.task
    async def square(number: int, add: int = 0):
        return number * number + add

    @app.task
    def load(square: list[int]):
        return sum(square)

    with app.workflow("maps", max_running=4) as maps:
        square.bind(add=1).map(extract.output) >> load

    assert await result_of(app, maps) == sum(n * n + 1 for n in range(25))


async def test_a_map_over_nothing_and_over_constants(app: App):
    @app.task
    def none():
        return []

    @app.task
    def double(n):
        return 2 * n

    with app.workflow("maps") as maps:
        double.node("empty").map(none.output)
        double.node("fixed").map([1, 2])

    assert await result_of(app, maps) == {"empty": [], "fixed": [2, 4]}


async def test_a_workflow_in_a_workflow_is_one_node_with_its_result(app: App):
    @app.task
    def one():
        return 1

    @app.task
    def add(inner, one):
        return inner + one

    with app.workflow("inner") as inner:
        one.node("first") >> one
    with app.workflow("outer") as outer:
        [inner, one] >> add

    assert await result_of(app, outer) == 2


async def test_a_job_made_by_hand_is_a_node_with_its_own_definition(app: App):
    @app.task(name="greet")
    def greet(name):
        return f"hello {name}"

    @app.task
    def who():
        return "ada"

    with app.workflow("hello") as hello:
        job("greeting").bind(name=who.output)

    client = await app.open()
    await client.define("greeting", settings={"task": "greet"})

    assert await result_of(app, hello) == "hello ada"


async def test_data_that_looks_like_a_reference_is_data(app: App):
    strange = {"secret": "NOT_ONE", "as_is": 1}
    looks = [{"secret": "NOT_ONE"}, {"as_is": 5}, {"output": "give"}, {"parameter": "p"}, strange]

    @app.task
    def give():
        return looks

    @app.task
    def take(give, one):
        return [give, one]

    with app.workflow("data") as data:
        give >> take.map(one=give.output)

    assert await result_of(app, data) == [[looks, one] for one in looks]


async def test_a_cancelled_run_cancels_its_nodes(app: App, short_lease: None):
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def forever():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @app.task
    def after(forever):
        return None

    with app.workflow("long") as long:
        forever >> after

    async with app.worker():
        handle = await long.enqueue()
        await asyncio.wait_for(begun.wait(), LONG)
        assert await handle.cancel() == "requested"
        with pytest.raises(ExecutionFailed, match="is cancelled"):
            await handle.result(LONG)
        assert stopped.is_set()
        assert not await handle.cancel()
        run = await app.client().store.runs.get_run("default", handle.id)
        assert run is not None

    assert [one.node.state for one in run.nodes] == [NodeState.CANCELLED] * 2


async def test_a_run_is_held_by_nobody_while_its_nodes_wait(app: App):
    begun, released = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait():
        begun.set()
        await released.wait()

    with app.workflow("long") as long:
        wait.node()

    async with app.worker():
        handle = await long.enqueue()
        await asyncio.wait_for(begun.wait(), LONG)
        execution = await handle.execution()
        released.set()
        await handle.result(LONG)

    assert (execution.status, execution.worker_id) == (State.RUNNING, None)


async def test_enqueue_options_are_those_of_a_job(app: App):
    @app.task
    def nap():
        return "woke"

    with app.workflow("naps") as naps:
        nap.node()

    first = await naps.options(unique_key="one").enqueue()
    second = await naps.options(unique_key="one").enqueue()

    assert (first.created, second.created) == (True, False)
    assert first.id == second.id


def test_a_workflow_is_enqueued_without_a_loop(file_url):
    app = App(file_url)

    @app.task
    def nap():
        return "woke"

    with app.workflow("naps") as naps:
        nap.node()

    handle = naps.sync.enqueue()

    assert handle.status() is State.QUEUED


async def test_a_worker_serves_the_queues_of_nodes(app: App):
    @app.task
    def nap():
        return "woke"

    with app.workflow("naps", queue="dreams") as naps:
        nap.node(queue="deep")

    assert app.queues == {"default", "dreams", "deep"}
    assert await result_of(app, naps) == "woke"


async def test_a_job_with_cached_results_runs_once_for_many_nodes(app: App):
    calls = []

    @app.task(cache_for="1h")
    def forecast(city: str):
        calls.append(city)
        return f"rain in {city}"

    @app.task
    def say(first: str, second: str):
        return [first, second]

    with app.workflow("weather") as weather:
        first = job("forecast").bind(city="Oslo")
        second = job("forecast", "second").bind(city="Oslo")
        first >> second >> say.bind(first=first.output, second=second.output)

    async with app.worker():
        for _ in range(2):
            assert await (await weather.enqueue()).result(LONG) == ["rain in Oslo"] * 2
        assert await (await forecast.enqueue(city="Oslo")).result(LONG) == "rain in Oslo"
    assert calls == ["Oslo"]

"""Runs of workflows: start of nodes, end of the run, nested runs, reasons and rows."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import currentframe

import msgspec
import pytest

from daybell.client import Client
from daybell.core.execution import TERMINAL, Cancellation, Failure, Outcome, Priority, State
from daybell.core.views import ExecutionFilter
from daybell.core.workflow.rules import ParentCounts
from daybell.core.workflow.run import Spec
from daybell.errors import InvalidWorkflow
from tests.builders import TENANT, apply, claim, death, look, registered, retry, success
from tests.store.runs import (
    a_mapped_plan,
    a_plan,
    begun,
    detail,
    end,
    labels,
    nodes,
    reasons,
    run_to_end,
    state,
    take,
    taken_run,
)

CHAIN = {"extract": ["clean"], "clean": ["load"]}
DIAMOND = {"extract": ["a", "b", "c"], "a": ["load"], "b": ["load"], "c": ["load"]}


async def test_a_chain_runs_in_order(store):
    run = await begun(store, a_plan(CHAIN))

    assert await run_to_end(store) == [["extract"], ["clean"], ["load"]]
    assert await state(store, run) is State.SUCCEEDED


async def test_the_nodes_of_a_diamond_run_together_even_if_one_is_retried(store, clock):
    run = await begun(store, a_plan(DIAMOND))
    await end(store, await take(store))
    hands = await take(store)
    assert labels(hands) == ["a", "b", "c"]

    moves = [retry(one) if one.node == "b" else success(one) for one in hands.executions]
    await apply(store, hands, *moves)
    assert (await take(store)).executions == []
    await clock.advance(10)
    again = await take(store)
    await apply(store, again, retry(again.one))
    await clock.advance(10)
    await end(store, await take(store))

    last = await take(store)
    assert labels(last) == ["load"]
    await end(store, last)
    assert await state(store, run) is State.SUCCEEDED


async def test_a_run_that_has_begun_is_in_nobodys_hands(store, clock):
    hands = await taken_run(store)

    assert await store.runs.expand(
        TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN)
    )

    run = await look(store, hands.one.id)
    assert (run.state, run.worker, run.attempt) == (State.RUNNING, None, 1)
    assert run.started_at == clock.now()
    (worker,) = await store.catalog.list_workers(TENANT)
    assert worker.running == 0


async def test_a_node_is_an_execution_of_its_run(store):
    run = await begun(store, a_plan({"extract": []}), queue="nights", priority=Priority.HIGH)

    (one,) = (await take(store, queues=["nights"])).executions

    assert (one.node, one.parent, one.job, one.version) == ("extract", run, "etl", 1)
    assert (one.kind, one.queue, one.priority) == ("task", "nights", Priority.HIGH)
    shown = await look(store, one.id)
    assert (shown.node, shown.parent) == ("extract", run)


async def test_a_node_has_what_it_says_itself(store):
    spec = Spec(
        needs="sql:main",
        queue="heavy",
        priority=Priority.LOW,
        retries=2,
        timeout=30.0,
        args='{"day": 1}',
    )
    await begun(store, a_plan({"extract": []}, specs={"extract": spec}))

    hands = await claim(store, kinds=("sql:main",), queues=["heavy"])

    assert (hands.one.kind, hands.one.queue, hands.one.priority) == (
        "sql:main",
        "heavy",
        Priority.LOW,
    )
    assert (hands.one.retries, hands.one.timeout, hands.one.args) == (2, 30.0, '{"day": 1}')


async def test_who_listens_is_woken_when_a_node_can_be_started(store):
    await begun(store, a_plan(CHAIN))
    hands = await take(store)
    woken = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], woken.set)
    woken.clear()

    await end(store, hands)

    await asyncio.wait_for(woken.wait(), 300)
    await stop()


async def test_results_are_passed_on(store):
    spec = Spec(
        needs="task", args='{"rows": {"output": "extract", "path": "n"}}', outputs=("extract",)
    )
    await begun(store, a_plan({"extract": ["load"]}, specs={"load": spec}))

    await end(store, await take(store), results={"extract": {"n": [1, 2]}})

    assert json.loads((await take(store)).one.args) == {"rows": [1, 2]}


async def test_the_result_of_a_run_is_that_of_its_leaf_or_of_all(store, clock):
    chain = await begun(store, a_plan(CHAIN))
    await run_to_end(store, results={"load": 5})
    fork = await begun(store, a_plan({"extract": ["a", "b"]}))
    await run_to_end(store, results={"a": 1, "b": [2]})

    ended = await look(store, chain)
    assert (ended.result, ended.outcome) == ("5", Outcome.SUCCEEDED)
    assert ended.finished_at == clock.now()
    assert json.loads((await look(store, fork)).result or "") == {"a": 1, "b": [2]}


async def test_a_failed_leaf_makes_the_run_a_dead_letter(store):
    run = await begun(store, a_plan(DIAMOND))

    await run_to_end(store, failing=["b"])

    ended = await look(store, run)
    assert (ended.state, ended.reason, ended.is_discarded) == (State.DEAD, "nodes_failed", False)
    assert json.loads(ended.error or "")["type"] == "NodesFailed"
    assert "b failed" in json.loads(ended.error or "")["message"]
    shown = await nodes(store, run)
    assert shown == {
        "extract": State.SUCCEEDED,
        "a": State.SUCCEEDED,
        "b": State.DEAD,
        "c": State.SUCCEEDED,
        "load": State.SKIPPED,
    }
    assert (await reasons(store, run))["load"] == "upstream_failed"


# Runs inside runs: how deep they may be, and how they end together.

LEVELS = 25
FRAMES = 60  # that a call may have inside it: recursion takes two or more for each level
PLAN = a_plan({"work": [], "inner": []}, specs={"inner": Spec(job="deep")})


@contextmanager
def few_frames() -> Iterator[None]:
    """As if Python's stack were small, so that a few runs are as many as can be."""
    depth, frame = 0, currentframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.fixture
def levels(monkeypatch):
    """Sets how deep runs may be."""
    return lambda most: monkeypatch.setattr("daybell.core.limits.WORKFLOW_LEVELS_MAX", most)


async def nested(store, count):
    """A workflow that runs itself, begun so many times; answers the runs, the outermost first."""
    runs = [await begun(store, PLAN, job="deep")]
    worker = await registered(store)
    for _ in range(count - 1):
        hands = await claim(store, 1, kinds=("workflow",), worker=worker)
        assert await store.runs.expand(TENANT, worker=worker, claimed=hands.one, plan=PLAN)
        runs.append(hands.one.id)
    return runs


async def unfinished(store):
    where = ExecutionFilter(states=frozenset(State) - TERMINAL)
    return [*(await store.catalog.list_executions(TENANT, where, limit=1_000)).items]


async def test_runs_inside_runs_have_an_end(store, levels):
    levels(3)
    runs = await nested(store, 3)
    hands = await claim(store, 1, kinds=("workflow",))

    with pytest.raises(InvalidWorkflow, match="deeper than 3 levels; look whether these run each"):
        await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=PLAN)

    assert await store.runs.get_run(TENANT, hands.one.id) is None
    assert await state(store, hands.one.id) is State.RUNNING  # still in the worker's hands
    assert await apply(store, hands, death(hands.one, run=hands.one.parent)) == []
    assert await nodes(store, runs[-1]) == {"work": State.QUEUED, "inner": State.DEAD}
    await run_to_end(store)
    assert [await state(store, run) for run in runs] == [State.DEAD] * 3


async def test_levels_are_counted_from_the_outermost_run(store, levels):
    levels(2)
    first = await nested(store, 2)
    await store.queue.cancel(TENANT, first[:1])

    assert len(await nested(store, 2)) == 2


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_runs_are_cancelled_however_deep_they_are(store, levels, how):
    levels(LEVELS)
    runs = await nested(store, LEVELS)

    with few_frames():
        if how == "cancel":
            assert await store.queue.cancel(TENANT, runs[:1]) == [Cancellation.CANCELLED]
        else:
            assert await Client(store).delete_job("deep") > 0

    assert await unfinished(store) == []
    assert {await state(store, run) for run in runs} == {State.CANCELLED}


async def test_what_a_worker_has_in_hand_ends_all_runs_around_it(store, levels):
    levels(LEVELS)
    runs = await nested(store, LEVELS)
    hands = await take(store)
    (last,) = [one for one in hands.executions if one.parent == runs[-1] and one.node == "work"]

    with few_frames():
        assert await store.queue.cancel(TENANT, runs[:1]) == [Cancellation.REQUESTED]
        others = [success(one) for one in hands.executions if one.id != last.id]
        await apply(store, hands, *others)
        assert await state(store, runs[0]) is State.RUNNING
        await apply(store, hands, success(last))

    assert await unfinished(store) == []
    assert {await state(store, run) for run in runs} == {State.CANCELLED}


# Why a run has failed is said with the run: the first node's error, and how many there are.


async def fail(store, hands, message):
    """Report all of it dead, with an error of its own."""
    moves = [
        msgspec.structs.replace(
            death(one, error=Failure(type="ValueError", message=message).to_json()),
            run=one.parent,
            node=one.node,
        )
        for one in hands.executions
    ]
    assert await apply(store, hands, *moves) == []


async def message(store, run):
    ended = await look(store, run)
    assert ended.state is State.DEAD
    return json.loads(ended.error or "")["message"]


async def test_a_run_tells_why_its_node_failed(store):
    run = await begun(store, a_plan({"fragile": ["load"]}))
    hands = await take(store)

    await fail(store, hands, "broken\n  for good")

    assert await message(store, run) == (
        f"fragile failed: ValueError: broken for good (execution {hands.one.id})"
    )
    assert await reasons(store, run) == {
        "fragile": "ValueError: broken for good",
        "load": "upstream_failed",
    }
    assert (await look(store, hands.one.id)).reason == "retries_used_up"


async def test_it_tells_how_many_more_have_failed(store):
    run = await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    first = await take(store, limit=1)
    await fail(store, first, "first")
    rest = await take(store, limit=2)
    await fail(store, rest, "later")
    assert await state(store, run) is State.RUNNING

    await end(store, await take(store))

    assert await message(store, run) == (
        f"a failed: ValueError: first (execution {first.one.id}); 2 more nodes failed"
    )


async def test_of_a_mapped_node_it_tells_how_many_more_items_have_failed(store):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2, 3]})
    hands = await take(store, limit=1)
    await fail(store, hands, "odd")
    await fail(store, await take(store), "even")

    assert await message(store, run) == (
        f"each[0] failed: ValueError: odd (execution {hands.one.id}); 2 more items of it did not"
        " succeed"
    )


async def test_of_a_mapped_node_it_tells_of_an_item(store):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2]})
    hands = await take(store, limit=1)
    await fail(store, hands, "odd")

    await end(store, await take(store))

    assert await message(store, run) == (
        f"each[0] failed: ValueError: odd (execution {hands.one.id})"
    )
    assert (await reasons(store, run))["each"] == "1 of 2 items did not succeed"


async def test_what_could_not_start_has_its_reason_and_no_execution(store):
    run = await begun(store, a_mapped_plan())

    await end(store, await take(store), results={"list": 7})

    said = await message(store, run)
    assert said.startswith("each failed: ")
    assert "no list" in said
    assert "execution" not in said


# Many nodes that start and end together are kept as one that does so alone.

NAMES = [f"n{number:02}" for number in range(24)]
LEAVES = NAMES[:12]
FAN = {"first": NAMES} | {name: ["last"] for name in NAMES[12:]}


@pytest.mark.parametrize("failing", [[], LEAVES], ids=["all succeed", "half of them fail"])
async def test_nodes_that_end_together_are_kept_whole(store, failing):
    run = await begun(store, a_plan(FAN))
    await end(store, await take(store))
    hands = await take(store)
    executions = {one.node: one.id for one in hands.executions}

    await end(store, hands, failing=failing)

    found = {one.node.label: one for one in (await detail(store, run)).nodes}
    assert set(NAMES) < found.keys()
    for name in NAMES:
        node = found[name].node
        assert (node.parents, node.told) == (ParentCounts(1, 1), int(name not in LEAVES))
        assert found[name].state is (State.DEAD if name in failing else State.SUCCEEDED)
        assert node.execution == executions[name]
        assert node.started_at is not None and node.finished_at is not None
        assert node.started_at <= node.finished_at
    for name in LEAVES:
        assert found[name].result == (None if failing else f'"{name}"')


async def test_nodes_that_have_no_room_are_stopped_with_their_run(store):
    run = await begun(store, a_plan({"first": NAMES}, max_running=1))
    await end(store, await take(store))

    await store.queue.cancel(TENANT, [run])

    assert set((await nodes(store, run)).values()) == {State.SUCCEEDED, State.CANCELLED}
    assert await state(store, run) is State.CANCELLED

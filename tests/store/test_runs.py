"""Runs of workflows: a node starts when its parents let it, and the last one ends the run."""

import asyncio
import json

from daybell.core.execution import Outcome, Priority, State
from daybell.core.workflow.run import Spec
from tests.builders import TENANT, apply, claim, look, retry, success
from tests.store.runs import (
    a_plan,
    begun,
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

    assert await store.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN))

    run = await look(store, hands.one.id)
    assert (run.state, run.worker, run.attempt) == (State.RUNNING, None, 1)
    assert run.started_at == clock.now()
    (worker,) = await store.list_workers(TENANT)
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

    await asyncio.wait_for(woken.wait(), 60)
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

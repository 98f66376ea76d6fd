"""Cached results of nodes of workflows."""

import asyncio
import json

from daybell.core.execution import State
from daybell.core.workflow.run import Spec
from daybell.store.postgres import connection
from tests.builders import TENANT, an_execution, apply, claim, death, defined, look, success
from tests.store.runs import (
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
)

SPEC = Spec(job="report", args='{"n": 1}')
NEXT = Spec(needs="task", args='{"x": {"output": "a"}}', outputs=("a",))
PLAN = a_plan({"a": ["b"]}, specs={"a": SPEC, "b": NEXT})


async def cached(store, **options):
    await defined(store, "report", cache_for=600.0, **options)


async def ask(store, n=1, **options):
    new = an_execution("report", args=f'{{"n": {n}}}', **options)
    (answer,) = await store.queue.enqueue(TENANT, [new])
    return answer


async def test_a_node_takes_a_cached_result_and_its_children_get_it(store):
    await cached(store)
    first = await ask(store)
    hands = await claim(store)
    await apply(store, hands, success(hands.one, result='"r"'))

    run = await begun(store, PLAN)

    hands = await take(store)
    assert labels(hands) == ["b"]
    assert json.loads(hands.one.args) == {"x": "r"}
    assert (await nodes(store, run))["a"] is State.SUCCEEDED
    assert (await reasons(store, run))["a"] == f"cached result of execution {first.id}"
    (node, _) = (await detail(store, run)).nodes
    assert (node.node.execution, node.result) == (None, '"r"')
    await end(store, hands)
    assert await state(store, run) is State.SUCCEEDED


async def test_a_run_of_which_all_nodes_are_cached_succeeds(store):
    await cached(store)
    plan = a_plan({"a": []}, specs={"a": SPEC})
    await begun(store, plan)
    await run_to_end(store, results={"a": "r"})

    run = await begun(store, plan)

    assert (await take(store)).executions == []
    found = await look(store, run)
    assert (found.state, found.result) == (State.SUCCEEDED, '"r"')


async def test_the_result_of_a_node_answers_requests_until_it_is_too_old(store, clock):
    await cached(store)
    run = await begun(store, PLAN)
    hands = await take(store)
    assert not (await ask(store)).created, "they join the node that runs"
    await end(store, hands, results={"a": "r"})
    await clock.advance(599)

    held = await ask(store)

    assert (held.id, held.created) == ((await detail(store, run)).nodes[0].node.execution, False)
    assert (await look(store, held.id)).result == '"r"'
    assert (await ask(store, 2)).created
    await clock.advance(1)
    assert (await ask(store)).created


async def test_a_node_runs_if_the_result_is_too_old_or_of_other_arguments(store, clock):
    await cached(store)
    await begun(store, PLAN)
    await run_to_end(store)
    other = Spec(job="report", args='{"n": 2}')

    await begun(store, a_plan({"a": []}, specs={"a": other}))
    assert labels(await take(store)) == ["a"]

    await clock.advance(600)
    await begun(store, PLAN)
    assert labels(await take(store)) == ["a"]


async def test_a_node_does_not_take_a_failure_or_the_result_of_another_version(store):
    await cached(store)
    await ask(store)
    hands = await claim(store)
    await apply(store, hands, death(hands.one))
    await begun(store, PLAN)
    await run_to_end(store)

    await cached(store, cache_version="2")

    await begun(store, PLAN)
    assert labels(await take(store)) == ["a"]


async def test_a_node_runs_beside_an_unfinished_execution_which_stays_the_latest(store):
    await cached(store)
    first = await ask(store)

    await begun(store, PLAN)

    assert labels(await take(store)) == ["None", "a"]
    assert (await ask(store)).id == first.id


async def test_items_of_a_mapped_node_take_cached_results(store):
    await cached(store)
    for n in (1, 2):
        await ask(store, n)
    hands = await claim(store)
    results = {one.id: json.loads(one.args)["n"] * 10 for one in hands.executions}
    moves = [success(one, result=str(results[one.id])) for one in hands.executions]
    await apply(store, hands, *moves)
    mapped = Spec(job="report", args='{"n": {"item": true}}', map="[1, 2, 3]")

    run = await begun(store, a_plan({"each": []}, specs={"each": mapped}))

    hands = await take(store)
    assert labels(hands) == ["each[2]"]
    await end(store, hands, results={"each[2]": 30})
    assert (await look(store, run)).result == "[10,20,30]"


async def test_a_job_without_a_cache_runs_as_a_node_each_time(store):
    await defined(store, "report")
    await begun(store, PLAN)
    await run_to_end(store)

    await begun(store, PLAN)

    assert labels(await take(store)) == ["a"]


async def test_nodes_end_and_start_while_requests_lock_their_keys(crowd, monkeypatch):
    monkeypatch.setattr(connection, "CONFLICT_TRIES", 1)  # a deadlock is not made up for
    await cached(crowd[0])
    graph = {"go": ["a", "b"], "a": ["c"], "b": ["c"]}
    specs = {"a": SPEC, "b": Spec(job="report", args='{"n": 0}'), "c": SPEC}
    runs = [await begun(crowd[0], a_plan(graph, specs=specs)) for _ in range(10)]

    async def request(store):
        for n in range(10):
            await ask(store, n % 2, refresh=n % 3 == 0)

    await asyncio.gather(*(each(one) for one in crowd for each in (run_to_end, request)))
    await run_to_end(crowd[0])

    assert {await state(crowd[0], run) for run in runs} == {State.SUCCEEDED}
    assert not (await ask(crowd[0])).created

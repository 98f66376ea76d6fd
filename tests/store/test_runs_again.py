"""Runs that have ended begin again: a dead one itself, any other as a new one."""

import json

import pytest

from daybell.core.execution import Cancellation, Revival, State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.errors import ExecutionNotFound, UsageError
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    claim,
    look,
)
from tests.store.runs import (
    SETTINGS,
    a_mapped_plan,
    a_plan,
    begun,
    detail,
    end,
    labels,
    nodes,
    run_to_end,
    state,
    take,
    waiting_run,
)
from tests.sweeps import advance_runs

DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"]}
NO_PLAN = a_plan({"wrong": []})


async def expanded(store):
    """Begin what was put back; its nodes are known, so nobody looks at the plan."""
    hands = await claim(store, kinds=("workflow",))
    assert await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=NO_PLAN)
    return hands.one.id


async def test_a_dead_run_goes_on_with_what_failed(store):
    run = await begun(store, a_plan(DIAMOND))
    await run_to_end(store, failing=["b"], results={"c": 5})
    before = await detail(store, run)

    assert await store.queue.revive(TENANT, [run]) == [Revival.REVIVED]
    assert await state(store, run) is State.QUEUED
    assert await advance_runs(store) == 0  # nobody has claimed it
    assert await expanded(store) == run

    assert await run_to_end(store) == [["b"], ["d"]]
    ended = await look(store, run)
    assert (ended.state, ended.result, ended.error) == (State.SUCCEEDED, '"d"', None)
    after = {one.node.label: one for one in (await detail(store, run)).nodes}
    kept = {one.node.label: one for one in before.nodes}
    assert after["c"].node.execution == kept["c"].node.execution
    assert after["c"].result == "5"
    assert after["b"].node.execution != kept["b"].node.execution
    assert set(await nodes(store, run)) == {"a", "b", "c", "d"}


async def test_a_revived_run_does_not_go_on_before_it_is_expanded(store):
    run = await begun(store, a_plan(DIAMOND))
    await run_to_end(store, failing=["b"])
    await store.queue.revive(TENANT, [run])

    for _ in ("queued", "in a worker's hands"):
        assert await advance_runs(store) == 0
        assert (await claim(store)).executions == []
        await claim(store, kinds=("workflow",))


async def test_what_is_to_run_again_has_no_result(store):
    graph = {"a": ["b"], "b": [], "x": []}
    run = await begun(store, a_plan(graph, rules={"b": "all_done"}))
    await run_to_end(store, failing=["a", "x"], results={"b": 7})
    (_, b, _) = (await detail(store, run)).nodes
    assert b.result == "7"

    await store.queue.revive(TENANT, [run])

    (_, b, _) = (await detail(store, run)).nodes
    assert (b.state, b.result) == (State.WAITING, None)


async def test_a_run_that_fails_again_is_a_dead_letter_again(store):
    run = await begun(store, a_plan(DIAMOND, fail_fast=True))
    await run_to_end(store, failing=["b"])
    await store.queue.revive(TENANT, [run])
    await expanded(store)

    await run_to_end(store, failing=["b"])

    letters = await store.catalog.list_executions(TENANT, ExecutionFilter(dead_letters=True))
    assert [one.id for one in letters.items] == [run]
    assert await store.queue.revive(TENANT, [run]) == [Revival.REVIVED]


async def test_only_the_failed_items_of_a_mapped_node_run_again(store):
    run = await begun(store, a_mapped_plan())
    results = {"list": [1, 2, 3], "each[0]": 10, "each[1]": 20, "each[2]": 30}
    await run_to_end(store, results=results, failing=["each[1]"])
    await store.queue.revive(TENANT, [run])
    await expanded(store)

    hands = await take(store)
    assert labels(hands) == ["each[1]"]
    assert json.loads(hands.one.args) == {"x": 2}
    await end(store, hands, results=results)

    assert json.loads((await take(store)).one.args) == {"all": [10, 20, 30]}


async def test_a_revived_run_can_be_cancelled_before_it_goes_on(store):
    run = await begun(store, a_plan(DIAMOND))
    await run_to_end(store, failing=["b"])
    await store.queue.revive(TENANT, [run])

    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.CANCELLED]

    shown = await nodes(store, run)
    assert (shown["a"], shown["b"], shown["d"]) == (
        State.SUCCEEDED,
        State.CANCELLED,
        State.CANCELLED,
    )
    assert (await take(store)).executions == []


async def test_a_revived_run_that_is_to_be_cancelled_ends_instead_of_going_on(store):
    run = await begun(store, a_plan(DIAMOND))
    await run_to_end(store, failing=["b"])
    await store.queue.revive(TENANT, [run])
    hands = await claim(store, kinds=("workflow",))
    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.REQUESTED]

    assert await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=NO_PLAN)

    assert await state(store, run) is State.CANCELLED
    assert (await nodes(store, run))["b"] is State.CANCELLED
    assert (await take(store)).executions == []


async def test_a_revived_run_waits_for_its_slot(store):
    run = await begun(store, a_plan(DIAMOND), overlap="queue")
    await run_to_end(store, failing=["b"])
    other = await begun(store, a_plan({"x": []}), overlap="queue")

    await store.queue.revive(TENANT, [run])

    assert await state(store, run) is State.WAITING
    await end(store, await take(store))
    assert await state(store, other) is State.SUCCEEDED
    assert await expanded(store) == run
    assert await run_to_end(store) == [["b"], ["d"]]


@pytest.mark.parametrize("failing", [[], ["d"]])
async def test_a_run_is_begun_anew_from_a_chosen_node(store, failing):
    old = await begun(store, a_plan(DIAMOND))
    await run_to_end(store, failing=failing, results={"c": 5})
    new = an_execution("etl")

    answer = await store.runs.rerun(TENANT, old, new, labels=["b"])
    assert (answer.id, answer.created) == (new.id, True)
    assert await expanded(store) == new.id

    assert await run_to_end(store) == [["b"], ["d"]]
    assert await state(store, new.id) is State.SUCCEEDED
    taken_over = {one.node.label: one for one in (await detail(store, new.id)).nodes}
    assert (taken_over["c"].state, taken_over["c"].result) == (State.SUCCEEDED, "5")
    assert await state(store, old) is (State.DEAD if failing else State.SUCCEEDED)
    assert (await nodes(store, old))["d"] is (State.DEAD if failing else State.SUCCEEDED)


async def test_a_cancelled_run_is_begun_anew_with_what_did_not_succeed(store):
    old = await begun(store, a_plan(DIAMOND))
    await end(store, await take(store))
    await store.queue.cancel(TENANT, [old])
    new = an_execution("etl")

    await store.runs.rerun(TENANT, old, new)
    await expanded(store)

    assert await run_to_end(store) == [["b", "c"], ["d"]]
    assert await state(store, new.id) is State.SUCCEEDED
    assert await state(store, old) is State.CANCELLED


async def test_a_new_run_has_the_version_of_the_old_one(store):
    old = await begun(store, a_plan(DIAMOND))
    await run_to_end(store)
    changed = a_job("etl", kind="workflow", settings=SETTINGS, timeout=5.0)
    (job,) = await store.catalog.define_jobs(TENANT, [changed])
    assert job.version == 2
    new = an_execution("etl")

    await store.runs.rerun(TENANT, old, new, labels=["d"])
    await expanded(store)

    assert (await look(store, new.id)).version == 1
    assert (await take(store)).one.version == 1


async def test_asking_for_a_new_run_twice_makes_one(store):
    old = await begun(store, a_plan(DIAMOND))
    await run_to_end(store)
    new = an_execution("etl")
    await store.runs.rerun(TENANT, old, new, labels=["d"])
    await expanded(store)

    answer = await store.runs.rerun(TENANT, old, new, labels=["d"])

    assert answer.id == new.id
    assert await run_to_end(store) == [["d"]]


async def test_a_unique_key_that_is_held_makes_no_new_run(store):
    old = await begun(store, a_plan(DIAMOND))
    await run_to_end(store)
    holder = await waiting_run(store, unique_key="k")
    new = an_execution("etl", unique_key="k")

    answer = await store.runs.rerun(TENANT, old, new, labels=["d"])

    assert (answer.id, answer.created) == (holder, False)
    assert await store.runs.get_run(TENANT, new.id) is None


async def test_what_cannot_be_begun_anew_is_refused(store):
    waiting = await waiting_run(store)
    with pytest.raises(UsageError, match="is queued"):
        await store.runs.rerun(TENANT, waiting, an_execution("etl"))
    await store.queue.cancel(TENANT, [waiting])
    with pytest.raises(UsageError, match="no run"):
        await store.runs.rerun(TENANT, waiting, an_execution("etl"))
    old = await begun(store, a_plan(DIAMOND))
    with pytest.raises(UsageError, match="is running"):
        await store.runs.rerun(TENANT, old, an_execution("etl"))
    await run_to_end(store)
    with pytest.raises(UsageError, match="'nowhere'"):
        await store.runs.rerun(TENANT, old, an_execution("etl"), labels=["nowhere"])
    with pytest.raises(UsageError, match="succeeded"):
        await store.runs.rerun(TENANT, old, an_execution("etl"))
    with pytest.raises(ExecutionNotFound):
        await store.runs.rerun(TENANT, mint(), an_execution("etl"))

    every = await store.catalog.list_executions(TENANT, ExecutionFilter())
    assert {one.id for one in every.items} == {waiting, old}

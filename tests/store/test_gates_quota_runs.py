"""Quotas and runs of workflows: nodes enter as the quota allows."""

import asyncio
import json

import pytest

from daybell.core.execution import TERMINAL, Revival, State
from daybell.core.views import ExecutionFilter
from daybell.core.workflow.run import Spec
from daybell.errors import QuotaExceeded
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    apply,
    claim,
    defined,
    registered,
    success,
)
from tests.store.runs import (
    SETTINGS,
    a_mapped_plan,
    a_plan,
    begun,
    end,
    labels,
    reasons,
    run_to_end,
    state,
    take,
    waiting_run,
)
from tests.sweeps import advance_runs, expire


async def everything(store):
    """Executions that have not ended, nodes included."""
    where = ExecutionFilter(with_nodes=True, states=frozenset(State) - TERMINAL)
    return (await store.catalog.list_executions(TENANT, where, limit=1_000)).items


async def unfinished(store):
    return len(await everything(store))


async def leaves(store):
    """How many of them are no runs that wait for their nodes."""
    found = await everything(store)
    return sum(one.state is not State.RUNNING or one.worker is not None for one in found)


async def expand_all(store, plan):
    """Begin all runs that wait to be claimed."""
    hands = await claim(store, 100, kinds=("workflow",))
    for one in hands.executions:
        assert await store.runs.expand(TENANT, worker=hands.worker, claimed=one, plan=plan)


async def work_off(store, quota, *, results=None, at_once=500):
    """Run all there is; answers how many executions were unfinished at most."""
    worker, most = await registered(store), 0
    while True:
        most = max(most, await unfinished(store))
        assert most <= quota
        hands = await take(store, at_once, worker=worker)
        if not hands.executions:
            return most
        await end(store, hands, results=results)


def fan(count):
    return {"first": [f"n{place}" for place in range(count)]}


async def test_items_of_a_map_enter_as_others_end(store):
    await store.admin.set_quotas(TENANT, queued=10)
    run = await begun(store, a_mapped_plan())

    most = await work_off(store, 10, results={"list": list(range(250))}, at_once=7)

    assert (most, await state(store, run)) == (10, State.SUCCEEDED)


@pytest.mark.parametrize("options", [{}, {"max_running": 30}], ids=["freely", "within_its_own"])
async def test_plain_nodes_enter_as_others_end(store, options):
    await store.admin.set_quotas(TENANT, queued=10)
    run = await begun(store, a_plan(fan(100), **options))

    assert (await work_off(store, 10), await state(store, run)) == (10, State.SUCCEEDED)


async def test_an_end_elsewhere_makes_room_for_a_run_that_waits(store):
    await defined(store, "resize")
    await store.admin.set_quotas(TENANT, queued=4)
    await store.queue.enqueue(TENANT, [an_execution() for _ in range(3)])
    others = await claim(store, kinds=("task",))
    await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    hands = await take(store)
    assert labels(hands) == ["a"]  # one enters whatever the quota says

    await apply(store, others, success(others.executions[0]), success(others.executions[1]))

    assert labels(await take(store)) == ["b"]
    await store.queue.cancel(TENANT, [others.executions[2].id])
    await apply(store, others, success(others.executions[2]))
    assert labels(await take(store)) == ["c"]
    await end(store, hands)
    assert labels(await take(store)) == ["d"]


async def test_what_is_cancelled_or_too_late_makes_room(store, clock):
    await store.admin.set_quotas(TENANT, queued=3)
    await defined(store, "resize")
    waiting = [an_execution(queue="slow"), an_execution(queue="slow", expires_in=5.0)]
    await store.queue.enqueue(TENANT, waiting)
    await begun(store, a_plan({"a": [], "b": [], "c": []}))
    assert labels(await take(store)) == ["a"]

    await store.queue.cancel(TENANT, [waiting[0].id])
    await clock.advance(6.0)
    assert await expire(store) == 1
    await advance_runs(store)

    assert labels(await take(store)) == ["b"]


async def test_upkeep_lets_a_run_go_on_when_its_tenant_gets_more_room(store):
    await store.admin.set_quotas(TENANT, queued=2)
    await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    assert labels(await take(store)) == ["a"]
    assert (await store.queue.lost()).is_any_waiting
    await advance_runs(store)
    assert labels(await take(store)) == []

    await store.admin.set_quotas(TENANT, queued=3)
    await advance_runs(store)
    assert labels(await take(store)) == ["b"]
    await store.admin.set_quotas(TENANT, queued=None)
    await advance_runs(store)

    assert labels(await take(store)) == ["c", "d"]
    assert not (await store.queue.lost()).is_any_waiting


async def test_runs_that_fill_the_quota_do_not_wait_for_each_other(store):
    await store.admin.set_quotas(TENANT, queued=3)
    runs = [await waiting_run(store) for _ in range(3)]
    await expand_all(store, a_plan({"a": ["b"], "b": ["c"], "x": []}))

    assert await work_off(store, 6) == 6  # each run, and one node of it

    assert [await state(store, run) for run in runs] == [State.SUCCEEDED] * 3


@pytest.mark.parametrize("quota", [1, 4])
async def test_runs_inside_runs_do_not_wait_for_each_other(store, quota):
    await store.admin.set_quotas(TENANT, queued=quota)
    await store.catalog.define_jobs(TENANT, [a_job("etl", kind="workflow", settings=SETTINGS)])
    inner = Spec(job="etl", map=json.dumps(list(range(6))))
    outer = await begun(store, a_plan({"each": []}, specs={"each": inner}), job="outer")
    worker, most = await registered(store), 0
    while await unfinished(store):
        await expand_all(store, a_plan({"a": [], "b": [], "c": []}))
        most = max(most, await leaves(store))
        await end(store, await claim(store, 500, kinds=("task",), worker=worker))

    assert most <= quota and await state(store, outer) is State.SUCCEEDED


async def test_an_enqueue_is_refused_while_nodes_fill_the_quota(store):
    await defined(store, "resize")
    await store.admin.set_quotas(TENANT, queued=5)
    await begun(store, a_plan(fan(10)))
    await end(store, await take(store))

    with pytest.raises(QuotaExceeded):
        await store.queue.enqueue(TENANT, [an_execution()])


async def test_a_run_that_waits_for_the_quota_can_be_cancelled(store):
    await store.admin.set_quotas(TENANT, queued=3)
    run = await begun(store, a_plan(fan(10)))
    await end(store, hands := await take(store))

    await store.queue.cancel(TENANT, [run])

    assert await state(store, run) is State.CANCELLED
    assert await unfinished(store) == 0 and hands.executions


async def test_a_run_that_stops_at_a_failure_starts_nothing_more(store):
    await store.admin.set_quotas(TENANT, queued=3)
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}, fail_fast=True))

    assert await run_to_end(store, failing=["a"]) == [["a", "b"]]

    assert await state(store, run) is State.DEAD


async def test_a_run_that_begins_again_enters_as_the_quota_allows(store):
    plan = a_plan({name: [] for name in "abcdefgh"})
    run = await begun(store, plan)
    await run_to_end(store, failing=list("abcdefgh"))
    await store.admin.set_quotas(TENANT, queued=4)

    assert await store.queue.revive(TENANT, [run]) == [Revival.REVIVED]
    hands = await claim(store, kinds=("workflow",))
    assert await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=plan)

    assert (await work_off(store, 4), await state(store, run)) == (4, State.SUCCEEDED)


async def test_many_who_end_nodes_at_once_never_exceed_the_quota(crowd):
    store, quota = crowd[0], 12
    await store.admin.set_quotas(TENANT, queued=quota)
    runs = [await waiting_run(store) for _ in range(3)]
    await expand_all(store, a_plan(fan(25)))
    await asyncio.gather(*(work_with(one, quota) for one in crowd))

    assert [await state(store, run) for run in runs] == [State.SUCCEEDED] * len(runs)


async def work_with(store, quota):
    """Take one at a time until nothing is left."""
    worker = await registered(store)
    while await unfinished(store):
        hands = await take(store, 1, worker=worker)
        await end(store, hands)
        assert await leaves(store) <= quota


async def test_a_list_that_is_too_long_fails_its_node(store):
    over = Spec(needs="task", map=json.dumps([1, 2, 3]), max_items=2)
    run = await begun(store, a_plan({"each": []}, specs={"each": over}))

    assert (await reasons(store, run))["each"].startswith("3 items are too many; the limit is 2.")
    assert await state(store, run) is State.DEAD

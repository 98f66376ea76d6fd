"""Runs that are stopped with the one around them: not all in one transaction."""

from collections import Counter

from daybell.core.execution import Cancellation, State
from daybell.core.workflow.run import Spec
from daybell.store.run_driver import ADVANCE_ROUNDS
from tests.builders import TENANT, claim, defined
from tests.store.runs import SETTINGS, a_plan, begun, state, take


async def test_what_one_transaction_leaves_is_stopped_by_the_next(store, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.progress.STOPS_MAX", 3)
    await defined(store, "inner", kind="workflow", settings=SETTINGS)
    outer = await begun(store, a_plan_of_runs("inner", 8))
    inner = await expanded(store, 8, a_plan({"work": []}))

    assert await store.cancel(TENANT, [outer]) == [Cancellation.REQUESTED]

    assert {await state(store, run) for run in (outer, *inner)} == {State.CANCELLED}


async def test_so_is_what_the_next_one_leaves_in_runs_further_inside(store, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.progress.STOPS_MAX", 2)
    for job in ("middle", "inner"):
        await defined(store, job, kind="workflow", settings=SETTINGS)
    outer = await begun(store, a_plan_of_runs("middle", 4))
    middle = await expanded(store, 4, a_plan_of_runs("inner", 4))
    inner = await expanded(store, 16, a_plan({"work": []}))

    await store.cancel(TENANT, [outer])

    assert (await take(store)).executions == []
    assert {await state(store, run) for run in (outer, *middle, *inner)} == {State.CANCELLED}


async def test_each_run_gets_so_many_parts_before_it_is_left_to_upkeep(store, monkeypatch):
    asked = Counter()

    def go_on(tx, key, parts):
        asked[key] += parts
        assert asked[key] <= ADVANCE_ROUNDS
        return [(1, b"a"), (1, b"b")]

    monkeypatch.setattr("daybell.store.sqlite.progress.continue_run", go_on)

    await store._go_on([(1, b"a")])

    assert asked == {(1, b"a"): ADVANCE_ROUNDS, (1, b"b"): ADVANCE_ROUNDS}


def a_plan_of_runs(job, count):
    return a_plan({"each": []}, specs={"each": Spec(job=job, map=str([*range(count)]))})


async def expanded(store, count, plan):
    """Begin so many runs, and answer which."""
    hands = await claim(store, count, kinds=("workflow",))
    assert len(hands.executions) == count
    for one in hands.executions:
        assert await store.expand(TENANT, worker=hands.worker, claimed=one, plan=plan)
    return [one.id for one in hands.executions]

"""Runs that a schedule has fired: their nodes run for the same tick, and do not tell it."""

from daybell.core.execution import State
from daybell.core.workflow.run import Spec
from tests.builders import TENANT, a_schedule, look
from tests.store.runs import (
    a_plan,
    begun,
    end,
    nodes,
    state,
    take,
    waiting_run,
)

CHAIN = {"extract": ["load"]}


async def scheduled(store, clock):
    """A schedule of the workflow."""
    await waiting_run(store)
    await end(store, await take(store))
    schedule = a_schedule("etl", next_at=clock.now())
    await store.schedules.put_schedules(TENANT, [schedule])
    return schedule


async def succeeded_for(store):
    (schedule,) = await store.schedules.list_schedules(TENANT)
    return schedule.succeeded_for


async def test_nodes_know_for_which_tick_they_run_and_which_has_succeeded_before(store, clock):
    schedule = await scheduled(store, clock)
    first, second = clock.now() - 60, clock.now() - 30
    run = await begun(store, a_plan(CHAIN), schedule=schedule.id, scheduled_for=first)
    hands = await take(store)
    assert (hands.one.scheduled_for, hands.one.previous_success) == (first, None)
    assert hands.one.schedule is None
    await end(store, hands)
    assert await succeeded_for(store) is None  # the run tells, and not its nodes
    hands = await take(store)
    assert hands.one.scheduled_for == first
    await end(store, hands)
    assert await state(store, run) is State.SUCCEEDED
    assert await succeeded_for(store) == first

    await begun(store, a_plan(CHAIN), schedule=schedule.id, scheduled_for=second)

    hands = await take(store)
    assert (hands.one.scheduled_for, hands.one.previous_success) == (second, first)
    assert (await look(store, hands.one.id)).scheduled_for == second


async def test_so_do_nodes_of_a_workflow_inside(store, clock):
    schedule = await scheduled(store, clock)
    await waiting_run(store, job="inner")
    await end(store, await take(store))
    at = clock.now() - 60
    plan = a_plan({"inside": []}, specs={"inside": Spec(job="inner")})
    run = await begun(store, plan, schedule=schedule.id, scheduled_for=at)
    inner = await take(store)
    assert inner.one.scheduled_for == at

    assert await store.runs.expand(
        TENANT, worker=inner.worker, claimed=inner.one, plan=a_plan({"deep": []})
    )

    hands = await take(store)
    assert (hands.one.node, hands.one.scheduled_for) == ("deep", at)
    await end(store, hands)
    assert await nodes(store, run) == {"inside": State.SUCCEEDED}
    assert await succeeded_for(store) == at


async def test_nodes_of_a_run_that_nobody_scheduled_run_for_no_tick(store):
    await begun(store, a_plan(CHAIN))

    hands = await take(store)

    assert (hands.one.scheduled_for, hands.one.previous_success) == (None, None)

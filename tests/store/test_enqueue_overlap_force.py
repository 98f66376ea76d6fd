"""Executions that are forced past whatever is in their way."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from daybell.errors import UsageError
from tests.builders import TENANT, an_execution, claimed, defined, enqueued, look, states
from tests.store.overlaps import RULES, ended, refused
from tests.sweeps import set_gates

QUEUED, WAITING, RUNNING = State.QUEUED, State.WAITING, State.RUNNING


@pytest.mark.parametrize("rule", RULES)
async def test_force_runs_beside_the_others_whatever_the_rule(store, rule):
    await defined(store, overlap=rule)
    first = await claimed(store)

    second = await claimed(store, force=True)

    assert await states(store, [first.one.id, second.one.id]) == [RUNNING, RUNNING]
    assert (await look(store, first.one.id)).cancel_requested_at is None


async def test_one_that_waits_gets_in_when_those_who_were_forced_have_ended_too(store):
    await defined(store, overlap=Overlap.QUEUE)
    first = await claimed(store)
    second = await claimed(store, force=True)
    (third,) = await enqueued(store)

    await ended(store, first)
    assert await states(store, [third]) == [WAITING]
    await ended(store, second)
    assert await states(store, [third]) == [QUEUED]


async def test_one_that_was_forced_is_in_the_way_of_the_next(store):
    await defined(store, overlap=Overlap.SKIP)
    (first,) = await enqueued(store, force=True)

    assert (await refused(store)).execution == first


async def test_force_passes_a_gate_that_is_full(store):
    await set_gates(store, TENANT, {"g": 1})
    first = await claimed(store, gate="g")
    second = await claimed(store, gate="g", force=True)
    (third,) = await enqueued(store, gate="g")

    await ended(store, first)
    assert await states(store, [third]) == [WAITING]
    await ended(store, second)
    assert await states(store, [third]) == [QUEUED]


async def test_force_means_nothing_where_nothing_is_in_the_way(store):
    ids = await enqueued(store, 2, force=True)

    assert await states(store, ids) == [QUEUED, QUEUED]


async def test_load_takes_no_force_and_no_tick(store):
    await defined(store)

    for bad in (an_execution(force=True), an_execution(schedule=mint())):
        with pytest.raises(UsageError, match=r"executions\[0\]"):
            await store.queue.load(TENANT, [bad])

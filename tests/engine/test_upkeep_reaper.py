"""Taking work out of dead workers' hands."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling, Verdict
from daybell.core.limits import REAP_BATCH_MAX
from daybell.core.worker import WorkerState
from daybell.engine.events import Events, WorkerLost
from daybell.engine.loop import AGAIN, ManualClock
from daybell.engine.upkeep import Reaper, Upkeep
from daybell.errors import Unavailable
from tests.builders import LEASE, TENANT, apply, claimed, defined, look, registered, states, success
from tests.engine.faults import faulty
from tests.engine.tasks import a_store


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


def a_reaper(store, clock, observe: Callable[[Any], None] | None = None):
    events = Events()
    if observe:
        events.observe(observe)
    return Reaper(store, clock=clock, events=events)


async def test_living_workers_keep_what_they_have(store, clock):
    hands = await claimed(store, 2)
    reaper = a_reaper(store, clock)

    clock.advance(LEASE)

    assert await reaper.tick() is None
    assert await states(store, [one.id for one in hands.executions]) == [State.RUNNING] * 2


async def test_what_a_dead_worker_held_is_put_back_and_counted_as_a_crash(store, clock, caplog):
    seen = []
    hands = await claimed(store, 3)
    clock.advance(LEASE + 1)

    await a_reaper(store, clock, seen.append).tick()

    found = [await look(store, one.id) for one in hands.executions]
    assert [(e.state, e.attempt, e.crashes, e.failures) for e in found] == [
        (State.QUEUED, 2, 1, 0)
    ] * 3
    assert [type(event) for event in seen] == [WorkerLost] * 3
    assert f"worker {hands.worker} is gone; 3 executions were taken from it" in caplog.text
    assert [verdict.ruling for verdict in await apply(store, hands, success(hands.executions[0]))]


async def test_what_keeps_killing_its_workers_ends_dead(store, clock):
    await defined(store, "resize", max_crashes=2)
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE + 1)
    await reaper.tick()
    worker = await registered(store)
    await store.claim(TENANT, worker=worker, lease=worker, queues=["default"], limit=1)

    clock.advance(LEASE + 1)
    await reaper.tick()

    found = await look(store, hands.one.id)
    assert (found.state, found.reason, found.crashes) == (State.DEAD, "worker_lost", 2)


async def test_a_job_that_must_not_start_twice_ends_dead_at_once(store, clock):
    await defined(store, "resize", on_lost="dead")
    hands = await claimed(store)
    clock.advance(LEASE + 1)

    await a_reaper(store, clock).tick()

    assert (await look(store, hands.one.id)).state is State.DEAD


async def test_several_workers_of_several_tenants_are_reaped_in_one_tick(store, clock):
    await store.add_tenants(["acme"])
    hands = [await claimed(store, 2), await claimed(store, 1), await claimed(store, 2)]
    theirs = await claimed(store, 2, tenant="acme")
    clock.advance(LEASE + 1)

    await a_reaper(store, clock).tick()

    ids = [one.id for each in hands for one in each.executions]
    assert await states(store, ids) == [State.QUEUED] * 5
    assert (
        await states(store, [one.id for one in theirs.executions], tenant="acme")
        == [State.QUEUED] * 2
    )
    assert store.count("apply") == 4
    assert all(asked["wait"] is False for asked in store.asked("apply"))


async def test_a_full_batch_is_followed_by_another_at_once(store, clock):
    first = await claimed(store, REAP_BATCH_MAX)
    second = await claimed(store, 10)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE + 1)

    assert await reaper.tick() == AGAIN
    assert await reaper.tick() is None

    ids = [one.id for hands in (first, second) for one in hands.executions]
    assert set(await states(store, ids)) == {State.QUEUED}


async def test_rows_that_others_have_locked_are_left_for_the_next_time(store, clock, caplog):
    seen = []
    hands = await claimed(store, 2)
    busy, free = hands.executions
    moved = store.store.apply

    async def half(tenant, *, worker, transitions, wait=True):
        others = [move for move in transitions if move.id != busy.id]
        verdicts = await moved(tenant, worker=worker, transitions=others, wait=wait)
        return [*verdicts, Verdict(busy.id, busy.attempt, Ruling.BUSY)]

    store.store.apply = half
    reaper = a_reaper(store, clock, seen.append)
    clock.advance(LEASE + 1)

    assert await reaper.tick() is None
    assert await states(store, [busy.id, free.id]) == [State.RUNNING, State.QUEUED]
    assert "1 executions were taken" in caplog.text
    store.store.apply = moved
    await reaper.tick()

    assert (await look(store, busy.id)).state is State.QUEUED
    assert [event.claimed.id for event in seen] == [free.id, busy.id]


async def test_what_was_to_be_cancelled_is_over_then(store, clock):
    seen = []
    hands = await claimed(store)
    await store.cancel(TENANT, [hands.one.id])
    clock.advance(LEASE + 1)

    await a_reaper(store, clock, seen.append).tick()

    assert (await look(store, hands.one.id)).state is State.CANCELLED
    assert len(seen) == 1


async def test_two_reapers_take_each_execution_once(store, clock):
    hands = await claimed(store, 5)
    seen = []
    clock.advance(LEASE + 1)

    await asyncio.gather(
        a_reaper(store, clock, seen.append).tick(), a_reaper(store, clock, seen.append).tick()
    )

    found = [await look(store, one.id) for one in hands.executions]
    assert [(e.state, e.attempt, e.crashes) for e in found] == [(State.QUEUED, 2, 1)] * 5


async def test_after_an_outage_the_living_have_time_to_be_heard_of(store, clock):
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()
    clock.advance(LEASE + 1)  # nobody could renew
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()
    clock.advance(LEASE + 1)

    assert await reaper.tick() is None
    clock.advance(LEASE - 1)
    await reaper.tick()
    await store.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    clock.advance(2)
    await reaper.tick()
    assert (await look(store, hands.one.id)).state is State.RUNNING

    clock.advance(LEASE)
    await reaper.tick()
    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_one_answer_that_does_not_come_is_no_outage(store, clock):
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE - 1)
    await reaper.tick()
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()

    clock.advance(2)
    await reaper.tick()

    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_the_living_have_the_time_of_their_own_lease(store, clock):
    worker = await registered(store)
    await store.renew(TENANT, worker=worker, lease=300.0, leases=[])
    upkeep = Upkeep(store, clock=clock, mint=mint, events=Events(), lease=LEASE)
    store.fail("lost")
    with pytest.raises(Unavailable):
        await upkeep.reaper.tick()
    clock.advance(LEASE)
    await upkeep.reaper.tick()

    clock.advance(299)
    await upkeep.reaper.tick()
    assert [one.state for one in await store.list_workers(TENANT)] == [WorkerState.LIVE]
    clock.advance(2)
    await upkeep.reaper.tick()

    assert await store.list_workers(TENANT) == []

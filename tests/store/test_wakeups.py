"""Wake-ups: an enqueue is heard by who listens, in this process and in others."""

import asyncio

import pytest

from daybell.core.schedule import Overlap
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    claimed,
    defined,
    enqueued,
    put,
)
from tests.sweeps import rearm_schedules

DEADLINE = 60.0


async def heard(event):
    await asyncio.wait_for(event.wait(), DEADLINE)
    event.clear()


async def test_an_enqueue_wakes_who_listens(store):
    await defined(store)
    woken = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], woken.set)
    woken.clear()

    await enqueued(store)

    await heard(woken)
    await stop()


async def test_an_enqueue_through_another_store_wakes_who_listens(place, store):
    await defined(store)
    woken = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], woken.set)
    woken.clear()
    other = place.connect()
    await other.open()

    await enqueued(other)

    await heard(woken)
    await stop()
    if other is not store:
        await other.close()


async def test_who_has_stopped_listening_hears_nothing(store):
    await defined(store)
    calls = []
    stop = await store.listen(TENANT, ["default"], lambda: calls.append(1))
    await stop()
    calls.clear()

    await enqueued(store)
    await enqueued(store)

    assert calls == []


async def test_who_runs_something_hears_that_it_is_to_be_cancelled(store):
    hands = await claimed(store, 2)
    asked, woken = asyncio.Event(), asyncio.Event()
    stop = await store.listen(TENANT, ["default"], woken.set, ask=asked.set)
    asked.clear()

    await store.queue.cancel(TENANT, [hands.executions[0].id])
    await heard(asked)
    await stop()


async def test_a_worker_hears_that_it_is_to_drain(store):
    hands = await claimed(store)
    asked = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], lambda: None, ask=asked.set)
    asked.clear()

    await store.queue.drain(TENANT, hands.worker)
    await heard(asked)
    await stop()


async def test_who_runs_something_hears_that_it_is_to_be_replaced(store):
    await defined(store, overlap=Overlap.REPLACE)
    await claimed(store)
    asked = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], lambda: None, ask=asked.set)
    asked.clear()

    await enqueued(store)

    await heard(asked)
    await stop()


async def put_one(store, at):
    await store.schedules.put_schedules(TENANT, [a_schedule(next_at=at)])


async def declare_one(store, at):
    job = a_job(timeout=5.0, declared=[a_schedule(next_at=at)])
    await store.catalog.define_jobs(TENANT, [job])


async def resume_one(store, at):
    await store.schedules.resume_job(TENANT, "paused")


async def rearm_one(store, at):
    assert await rearm_schedules(store) == 1


@pytest.mark.parametrize("change", [put_one, declare_one, resume_one, rearm_one])
@pytest.mark.parametrize("is_other", [False, True], ids=["here", "elsewhere"])
async def test_a_changed_schedule_wakes_who_waits_for_schedules(
    place, store, clock, change, is_other
):
    at = clock.now() + 60
    await put(store, a_schedule("paused", next_at=at), a_schedule("delay", delay=5.0))
    await store.schedules.pause_job(TENANT, "paused")
    await defined(store)
    other = place.connect() if is_other else store
    await other.open()
    woken = asyncio.Event()
    stop = await store.listen_schedules(woken.set)
    await settled(woken)

    await change(other, at)

    await heard(woken)
    await stop()
    if other is not store:
        await other.close()


async def settled(woken):
    """Wait until what was done before listening is not heard any more."""
    quiet = False
    while not quiet:
        woken.clear()
        try:
            await asyncio.wait_for(woken.wait(), 0.2)
        except TimeoutError:
            quiet = True


async def test_who_has_stopped_waiting_for_schedules_hears_nothing(store, clock):
    await defined(store)
    calls = []
    stop = await store.listen_schedules(lambda: calls.append(1))
    await stop()
    calls.clear()

    await put_one(store, clock.now())

    assert calls == []

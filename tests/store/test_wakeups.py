"""Wake-ups: an enqueue is heard by who listens, in this process and in others."""

import asyncio

from tests.builders import TENANT, claimed, defined, enqueued

DEADLINE = 10.0


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
    other = place.connect()  # of the memory store there is only one
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

    await store.cancel(TENANT, [hands.executions[0].id])
    await heard(asked)
    await stop()


async def test_a_worker_hears_that_it_is_to_drain(store):
    hands = await claimed(store)
    asked = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], lambda: None, ask=asked.set)
    asked.clear()

    await store.drain(TENANT, hands.worker)
    await heard(asked)
    await stop()

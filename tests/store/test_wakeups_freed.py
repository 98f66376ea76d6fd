"""Wake-ups by what lets others start: whoever waits for work hears it when it can be claimed.

Not with SQLite, where who listens hears every change of the file.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from tests.builders import (
    TENANT,
    apply,
    claim,
    claimed,
    dead,
    defined,
    enqueued,
    registered,
    retry,
    success,
)
from tests.stores import POSTGRES, open_place
from tests.sweeps import admit, expire, set_gates

DEADLINE = 60.0
KINDS = ["memory", *(pytest.param(kind, marks=pytest.mark.postgres) for kind in POSTGRES)]


@pytest.fixture(params=KINDS)
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@asynccontextmanager
async def listening(place, store):
    """Somebody else who waits for work in the queue `mail`; what was said before is over."""
    woken, marked = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        other = store if place.memory else await stack.enter_async_context(place.opened())
        stack.push_async_callback(await other.listen(TENANT, ["mail"], woken.set))
        stack.push_async_callback(await other.listen(TENANT, ["marker"], marked.set))
        marked.clear()

        async def say_marker():
            await enqueued(store, job="marker")
            await asyncio.wait_for(marked.wait(), DEADLINE)
            marked.clear()

        await say_marker()
        woken.clear()
        yield woken, say_marker


async def behind_another(store, **options):
    """One in a worker's hands, and one that waits for its end in a queue of its own."""
    await defined(store, overlap=Overlap.QUEUE_ALL)
    hands = await claimed(store)
    return hands, await enqueued(store, queue="mail", **options)


async def end(store, clock):
    hands, _ = await behind_another(store)
    return lambda: apply(store, hands, success(hands.one))


async def cancel(store, clock):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    [first, _] = [(await enqueued(store, queue=queue))[0] for queue in ("default", "mail")]
    return lambda: store.queue.cancel(TENANT, [first])


async def let_expire(store, clock):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    await enqueued(store, expires_in=60.0)
    await enqueued(store, queue="mail")
    await clock.advance(60)
    return lambda: expire(store)


async def widen(store, clock):
    await set_gates(store, TENANT, {"disk": 1})
    await enqueued(store, 2, gate="disk", queue="mail")
    await claim(store, 1, queues=["mail"])
    return lambda: set_gates(store, TENANT, {"disk": 2})


async def release_dependent(store, clock):
    await defined(store, "extract")
    await defined(store, "load", dependencies=("extract",))
    [id] = await enqueued(
        store, job="load", queue="mail", wait_for_dependencies=True, schedule=mint()
    )
    return lambda: store.schedules.release_dependents(TENANT, [id])


async def rule_out_dependent(store, clock):
    await defined(store, "extract")
    await defined(store, dependencies=("extract",), overlap=Overlap.QUEUE_ALL)
    [first] = await enqueued(store, wait_for_dependencies=True, schedule=mint())
    await enqueued(store, queue="mail")
    return lambda: store.schedules.rule_out_dependents(TENANT, [first])


async def revive(store, clock):
    [letter] = await dead(store, queue="mail")
    return lambda: store.queue.revive(TENANT, [letter])


async def revive_at_gate(store, clock):
    await set_gates(store, TENANT, {"disk": 1})
    [letter] = await dead(store, gate="disk", queue="mail")
    return lambda: store.queue.revive(TENANT, [letter])


async def try_again_soon(store, clock):
    hands = await claimed(store, queue="mail")
    return lambda: apply(store, hands, retry(hands.one, delay=0.5))


async def give_back(store, clock):
    await enqueued(store, queue="mail")
    lease, worker = mint(), await registered(store)
    await claim(store, worker=worker, lease=lease, queues=["mail"])
    return lambda: store.queue.release(TENANT, worker=worker, leases=[lease])


async def resume_queue(store, clock):
    await enqueued(store, queue="mail")
    await store.catalog.pause_queue(TENANT, "mail", paused=True)
    return lambda: store.catalog.pause_queue(TENANT, "mail", paused=False)


WAYS = [
    end,
    cancel,
    let_expire,
    widen,
    release_dependent,
    rule_out_dependent,
    revive,
    revive_at_gate,
    try_again_soon,
    give_back,
    resume_queue,
]


@pytest.mark.parametrize("way", WAYS)
async def test_what_can_be_claimed_now_is_heard_of_elsewhere(place, store, clock, way):
    await defined(store, "marker", queue="marker")
    act = await way(store, clock)
    async with listening(place, store) as (woken, _):
        await act()
        await asyncio.wait_for(woken.wait(), DEADLINE)


async def test_what_waits_for_its_time_at_a_gate_is_heard_of_when_it_is_let_in(place, store, clock):
    await defined(store, "marker", queue="marker")
    await set_gates(store, TENANT, {"disk": 1})
    await enqueued(store, gate="disk", queue="mail", delay=60.0)
    await clock.advance(60)
    async with listening(place, store) as (woken, _):
        assert await admit(store) == 1
        await asyncio.wait_for(woken.wait(), DEADLINE)


async def test_a_retry_that_is_far_off_wakes_nobody(place, store):
    if place.memory:
        pytest.skip("there, a look costs nothing")
    await defined(store, "marker", queue="marker")
    hands = await claimed(store, queue="mail")
    async with listening(place, store) as (woken, say_marker):
        await apply(store, hands, retry(hands.one, delay=60.0))
        await say_marker()
        assert not woken.is_set()

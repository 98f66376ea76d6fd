"""What any node does for all."""

import asyncio

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_wait
from daybell.engine.events import Events
from daybell.engine.upkeep import BATCH_MAX, EXPIRE_SECONDS, SWEEP_SECONDS, Upkeep
from tests.builders import TENANT, a_step, apply, claimed, enqueued, states
from tests.engine.tasks import a_store
from tests.engine.virtual import VirtualClock, in_virtual_time


@in_virtual_time
async def test_what_no_worker_asks_for_expires_all_the_same():
    store = await a_store()
    ids = await enqueued(store, BATCH_MAX + 1, queue="nobody", expires_in=5.0)
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(EXPIRE_SECONDS + 1)

    assert set(await states(store, ids)) == {State.SKIPPED}
    await upkeep.stop()


@in_virtual_time
async def test_what_waits_at_a_gate_is_let_in_soon_after_its_time_has_come():
    store = await a_store()
    await store.set_gates(TENANT, {"g": 1})
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(1)
    ids = await enqueued(store, gate="g", delay=2 * SWEEP_SECONDS)

    await asyncio.sleep(2 * SWEEP_SECONDS - 0.1)
    assert await states(store, ids) == [State.WAITING]
    await asyncio.sleep(SWEEP_SECONDS + 0.2)

    assert await states(store, ids) == [State.QUEUED]
    await upkeep.stop()


@in_virtual_time
async def test_what_has_waited_long_enough_for_an_event_goes_on_soon():
    store = await a_store()
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(1)
    hands = await claimed(store)
    wait = a_step(hands.one, event="paid", timeout=2 * SWEEP_SECONDS)
    await store.record(TENANT, worker=hands.worker, steps=[wait])
    await apply(store, hands, after_wait(hands.one, ran=0.0))

    await asyncio.sleep(2 * SWEEP_SECONDS - 0.1)
    assert await states(store, [hands.one.id]) == [State.WAITING]
    await asyncio.sleep(SWEEP_SECONDS + 0.2)

    assert await states(store, [hands.one.id]) == [State.QUEUED]
    await upkeep.stop()

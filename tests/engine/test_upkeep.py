"""What any node does for all."""

import asyncio

from daybell.core.execution import State
from daybell.engine.events import Events
from daybell.engine.node import BATCH_MAX, EXPIRE_SECONDS, Upkeep
from daybell.store.ids import mint
from tests.builders import enqueued, states
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

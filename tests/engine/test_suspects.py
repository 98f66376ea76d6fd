"""What has lost its worker time and again does not take innocent neighbours with it."""

import asyncio

from daybell.core.execution import State
from daybell.core.lifecycle import after_loss
from tests.builders import LEASE, TENANT, claim, enqueued, look, states
from tests.engine.tasks import Tasks, a_store, a_worker
from tests.engine.virtual import in_virtual_time

CRASHES = 2


async def suspects(store, count):
    """Executions that have lost two workers."""
    ids = await enqueued(store, count)
    for _ in range(CRASHES):
        hands = await claim(store)
        assert len(hands.executions) == count
        await asyncio.sleep(LEASE + 1)
        moves = [
            after_loss(lost.claimed, max_crashes=3) for lost in (await store.lost()).executions
        ]
        await store.apply(TENANT, worker=hands.worker, transitions=moves)
    return ids


@in_virtual_time
async def test_suspects_run_one_at_a_time_and_others_beside_them():
    running, most, seen = set(), [], set()

    async def work(run):
        suspicious = run.claimed.crashes == CRASHES
        running.add((run.claimed.id, suspicious))
        most.append(sum(is_one for _, is_one in running))
        await asyncio.sleep(3)
        running.discard((run.claimed.id, suspicious))
        seen.add(run.claimed.id)

    store = await a_store()
    ids = await suspects(store, 3)
    innocent = await enqueued(store, 5)
    worker = a_worker(store, Tasks(resize=work), concurrency=10)
    await worker.start()
    await asyncio.sleep(4)
    assert seen > set(innocent), "who is not suspected does not wait"
    await asyncio.sleep(60)

    assert max(most) == 1
    assert await states(store, ids) == [State.SUCCEEDED] * 3
    assert [(await look(store, id)).failures for id in ids] == [0] * 3
    await worker.stop()

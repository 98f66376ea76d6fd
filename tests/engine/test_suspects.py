"""What has lost its worker time and again does not take innocent neighbours with it."""

import asyncio

import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import after_loss
from daybell.engine.events import Events
from daybell.engine.node import Upkeep
from daybell.store.ids import mint
from tests.builders import LEASE, TENANT, claim, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Task, Tasks, a_store, a_worker, endless
from tests.engine.virtual import VirtualClock, in_virtual_time, turns, until

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


@in_virtual_time
async def test_short_suspects_follow_each_other_without_a_pause():
    running, most = set(), [0]

    async def short(run):
        running.add(run.claimed.id)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(run.claimed.id)

    store = await a_store()
    ids = await suspects(store, 100)
    worker = a_worker(store, Tasks(resize=short), concurrency=100)
    await worker.start()
    await asyncio.sleep(1.5)

    assert await states(store, ids) == [State.SUCCEEDED] * 100
    assert max(most) == 1
    assert {(await look(store, id)).attempt for id in ids} == {CRASHES + 1}
    await worker.stop()


@in_virtual_time
async def test_suspects_behind_a_long_one_go_back_so_that_others_can_have_them():
    store = await a_store()
    ids = await suspects(store, 3)
    worker = a_worker(store, Tasks(resize=endless))
    await worker.start()
    await asyncio.sleep(1.5)

    found = sorted(await states(store, ids))
    assert found == [State.RUNNING, State.SCHEDULED, State.SCHEDULED]
    await worker.stop()


@in_virtual_time
@pytest.mark.parametrize(
    ("count", "seconds", "most"),
    [(12, 5.0, 40), (60, 1.5, 70), (100, 0.3, 27)],  # one worker would take 60, 90 and 30
)
async def test_several_workers_share_the_suspects(count, seconds, most):
    async def work(run):
        await asyncio.sleep(seconds)

    store = await a_store()
    ids = await suspects(store, count)
    workers = [a_worker(store, Tasks(resize=work), concurrency=10) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await asyncio.sleep(0.137)
    await asyncio.sleep(most)

    assert set(await states(store, ids)) == {State.SUCCEEDED}
    for worker in workers:
        await worker.stop()


@in_virtual_time
async def test_only_the_suspect_that_had_begun_is_charged_with_the_loss_of_its_worker():
    begun = asyncio.Event()

    async def kill(_):
        begun.set()
        await asyncio.sleep(3600)

    store = await a_store()
    ids = await suspects(store, 5)
    worker = a_worker(store, Tasks(resize=kill), lease=LEASE)
    await worker.start()
    await begun.wait()
    await worker._stop_loops(worker._loops)  # as if it were dead

    await asyncio.sleep(LEASE + 1)
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events(), lease=LEASE)
    await upkeep.reaper.tick()

    found = [await look(store, id) for id in ids]
    assert sorted((one.state, one.crashes) for one in found) == [
        (State.DEAD, 3),
        *[(State.QUEUED, 2)] * 4,
    ]


@in_virtual_time
async def test_a_suspect_does_not_begin_before_that_is_on_record():
    ran = []

    async def work(run):
        ran.append(run.claimed.id)

    store = faulty(await a_store())
    (id,) = await suspects(store, 1)
    store.fail("report")
    worker = a_worker(store, Tasks(resize=work))
    await worker.start()
    await asyncio.sleep(0.5)
    assert ran == []
    assert (await look(store, id)).state is not State.RUNNING
    await asyncio.sleep(2)

    assert ran == [id]
    assert await states(store, [id]) == [State.SUCCEEDED]
    await worker.stop()


@in_virtual_time
async def test_a_suspect_does_not_begin_without_a_lease_even_if_it_may_go_on_without_one():
    ran = []

    async def work(run):
        ran.append(run.claimed.id)

    store = faulty(await a_store())
    await suspects(store, 1)
    gate = store.hold("report")
    worker = a_worker(store, Tasks(resize=Task(work, goes_on=True)), lease=LEASE)
    await worker.start()
    await until(lambda: store.count("report"), within=5)

    worker._lost(worker.id)  # while that it begins is on its way to the store
    worker._is_stopping = True
    gate.set()
    await turns(20)

    assert ran == []
    await worker.stop()

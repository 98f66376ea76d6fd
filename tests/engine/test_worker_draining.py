"""Workers that stop: what runs ends, the rest goes back, and nobody waits for long."""

import asyncio

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.ids import mint
from daybell.engine.upkeep import Process
from tests.builders import TENANT, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker, counts, deaf, endless, quick
from tests.engine.virtual import in_virtual_time, seconds, turns, until


@in_virtual_time
async def test_what_has_not_started_is_given_back_at_once_when_it_stops():
    store = faulty(await a_store())
    ids = await enqueued(store, 6)
    worker = a_worker(store, Tasks(resize=endless), concurrency=2, drain_timeout=100.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 2)
    # As if the tasks before these had been quick: what was claimed ahead is in the buffer.
    claim = await store.queue.claim(
        TENANT, worker=worker.id, lease=mint(), queues=["default"], limit=4
    )
    worker.current.leases.answer(claim.lease, 4)
    worker.current.dispatcher._buffer.extend(claim.executions)

    stopping = asyncio.ensure_future(worker.stop())
    await turns()

    found = await counts(store)
    assert found == {State.RUNNING: 2, State.QUEUED: 4} and seconds() < 1
    await stopping
    assert await counts(store) == {State.QUEUED: 6}
    assert {(await look(store, id)).failures for id in ids} == {0}


@in_virtual_time
async def test_what_the_last_claim_brings_is_given_back_at_once_too():
    store = faulty(await a_store())
    await enqueued(store, 1)
    worker = a_worker(store, Tasks(resize=endless), drain_timeout=100.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 1)
    gate = store.hold("claim")
    await enqueued(store, 4)
    await turns()

    stopping = asyncio.ensure_future(worker.stop())
    await turns()
    gate.set()
    await turns()

    assert await counts(store) == {State.RUNNING: 1, State.QUEUED: 4}
    assert len(worker.executor) == 1 and seconds() < 1
    await stopping


@in_virtual_time
async def test_a_stopping_worker_lets_what_runs_end():
    async def task(_):
        await asyncio.sleep(20)
        return '"done"'

    store = faulty(await a_store())
    ids = await enqueued(store, 3)
    worker = a_worker(store, Tasks(resize=task), drain_timeout=30.0)
    await worker.start()
    await asyncio.sleep(5)

    await worker.stop()

    assert await states(store, ids) == [State.SUCCEEDED] * 3
    assert seconds() == pytest.approx(20, abs=0.1)
    assert await store.catalog.list_workers(TENANT) == []  # it said goodbye
    assert store.count("renew") >= 3  # it held its lease to the end


@in_virtual_time
async def test_what_does_not_end_in_time_is_released_uncharged():
    store = await a_store()
    ids = await enqueued(store, 3)
    worker = a_worker(store, Tasks(resize=endless), drain_timeout=10.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 3)

    await worker.stop()

    found = [await look(store, id) for id in ids]
    assert [(e.state, e.attempt, e.failures, e.crashes) for e in found] == [
        (State.QUEUED, 2, 0, 0)
    ] * 3
    assert seconds() == pytest.approx(10, abs=0.1)


@in_virtual_time
async def test_what_does_not_stop_even_then_does_not_keep_the_worker(caplog):
    store = await a_store()
    ids = await enqueued(store, 2)
    worker = a_worker(store, Tasks(resize=deaf), drain_timeout=10.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 2)

    await worker.stop()

    assert seconds() == pytest.approx(15, abs=0.1)
    assert "was stopped and goes on running" in caplog.text
    assert await states(store, ids) == [State.QUEUED] * 2
    assert {attempt.outcome for id in ids for attempt in (await detail(store, id)).attempts} == {
        Outcome.RELEASED
    }


async def detail(store, id):
    return await store.catalog.get_execution(TENANT, id)


@in_virtual_time
async def test_a_claim_without_an_answer_goes_back_uncharged_when_it_stops():
    store = faulty(await a_store())
    ids = await enqueued(store, 3)
    worker = a_worker(store, Tasks(resize=quick))
    store.fail("claim", after=True)
    await worker.start()
    await turns()
    assert await states(store, ids) == [State.RUNNING] * 3

    await worker.stop()

    found = [await look(store, id) for id in ids]
    assert [(e.state, e.crashes) for e in found] == [(State.QUEUED, 0)] * 3


@in_virtual_time
async def test_a_claim_without_an_answer_does_not_wait_for_what_still_runs_when_it_stops():
    store = faulty(await a_store())
    await enqueued(store)
    worker = a_worker(store, Tasks(resize=endless), drain_timeout=30)
    await worker.start()
    await until(lambda: len(worker.executor) == 1)
    store.fail("claim", after=True)
    [id] = await enqueued(store)
    worker.wake()
    await turns()
    assert await states(store, [id]) == [State.RUNNING]

    stopping = asyncio.ensure_future(worker.stop())
    await asyncio.sleep(0.5)

    assert not stopping.done()
    assert await states(store, [id]) == [State.QUEUED]
    await stopping


@in_virtual_time
async def test_stopping_twice_and_stopping_what_never_started_is_fine():
    store = faulty(await a_store())
    worker = a_worker(store, Tasks())
    await a_worker(store, Tasks()).stop()

    await worker.start()
    await asyncio.gather(worker.stop(), worker.stop())
    await worker.stop()

    assert store.count("register") == 1


@in_virtual_time
async def test_a_store_that_comes_back_during_a_drain_gets_what_has_ended():
    async def task(_):
        await asyncio.sleep(3)

    store = faulty(await a_store())
    ids = await enqueued(store, 3)
    worker = a_worker(store, Tasks(resize=task))
    await worker.start()
    await asyncio.sleep(1)
    store.is_away = True

    stopping = asyncio.ensure_future(worker.stop())
    await asyncio.sleep(6)
    store.is_away = False
    await stopping

    assert await states(store, ids) == [State.SUCCEEDED] * 3


@in_virtual_time
async def test_the_workers_of_a_node_drain_together():
    store = await a_store()
    await enqueued(store, 2)
    workers = [
        a_worker(store, Tasks(resize=endless), concurrency=1, drain_timeout=10.0) for _ in range(2)
    ]
    node = Process(workers=workers)
    await node.start()
    await until(lambda: all(len(worker.executor) == 1 for worker in workers))

    await node.stop()

    assert seconds() == pytest.approx(10, abs=0.1)
    assert await counts(store) == {State.QUEUED: 2}

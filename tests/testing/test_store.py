"""The store of a bench: one customer, any thread, and no lease that ends."""

import asyncio
import threading

import pytest

from daybell import App
from daybell.core.execution import NewExecution, State
from daybell.core.ids import mint
from daybell.core.job import DEFAULT_TENANT, JobDefinition, NewJob
from daybell.core.worker import NewWorker
from daybell.testing import Bench
from daybell.testing.driver import BenchClock
from daybell.testing.store import BenchStore
from tests.sweeps import set_gates

WORKER = mint()


@pytest.fixture
def clock():
    return BenchClock()


@pytest.fixture
async def store(clock):
    store = BenchStore(clock=clock.now, tenants=())
    job = NewJob(id=mint(), definition=JobDefinition(name="work"))
    await store.catalog.define_jobs(DEFAULT_TENANT, [job])
    await store.queue.register(DEFAULT_TENANT, NewWorker(id=WORKER, name="w"), lease=1.0)
    return store


async def claimed(store: BenchStore):
    claim = await store.queue.claim(
        DEFAULT_TENANT, worker=WORKER, lease=mint(), queues=["elsewhere"], limit=10
    )
    return [one.id for one in claim.executions]


async def test_only_a_worker_of_the_bench_gets_something_and_one_at_a_time(store: BenchStore):
    ids = [mint(), mint()]
    await store.queue.enqueue(DEFAULT_TENANT, [NewExecution(id=id, job="work") for id in ids])

    assert await claimed(store) == []
    store.serve(WORKER, lambda execution: True, on_cancel=list)
    assert await claimed(store) == ids[:1]
    store.dismiss(WORKER)
    assert await claimed(store) == []
    assert [one.id for one in store.executions()] == ids


async def test_nobody_is_woken_or_loses_its_lease(store: BenchStore, clock):
    woken = []

    await store.listen(DEFAULT_TENANT, ["default"], lambda: woken.append(1))
    await store.queue.enqueue(DEFAULT_TENANT, [NewExecution(id=mint(), job="work")])
    clock.move_to(clock.now() + 1e6)
    await store.queue.lost()
    await store.queue.renew(DEFAULT_TENANT, worker=WORKER, lease=1.0, leases=[])
    clock.move_to(clock.now() + 1e6)
    await store.queue.lost()

    assert woken == []
    assert len(await store.catalog.list_workers(DEFAULT_TENANT)) == 1


def test_threads_with_loops_of_their_own_share_a_bench(app: App, bench: Bench):
    @app.task
    async def work(thread: int):
        pass

    async def enqueue(number: int) -> None:
        await work.enqueue(number)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(enqueue(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one["thread"] for one in bench.enqueued(work)) == [0, 1, 2, 3]


async def test_what_cannot_run_does_not_stop_time(app: App, bench: Bench):
    @app.task
    async def work():
        pass

    client = await app.client_for()
    await client.define("shell", kind="command", settings={"run": "true"})
    await client.enqueue("shell")
    await work.options(queue="stopped").enqueue()
    await client.pause_queue("stopped")
    await set_gates(client.store, DEFAULT_TENANT, {"narrow": 0})
    await client.store.queue.enqueue(
        DEFAULT_TENANT, [NewExecution(id=mint(), job="work", gate="narrow")]
    )
    await work.options(delay="1h").enqueue()
    (run,) = await bench.advance("2h")

    assert run.state is State.SUCCEEDED

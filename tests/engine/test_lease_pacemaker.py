"""A lease that is kept while the event loop stands still, and what happens when it cannot be."""

import asyncio
import threading
import time

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.events import Events
from daybell.engine.lease import NO_WORKER, Pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.upkeep import Upkeep
from daybell.errors import Unavailable
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, defined, enqueued, states
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_worker
from tests.sdk.waiting import eventually

LEASE = 0.6
WAIT = 60.0


@pytest.fixture
async def path(tmp_path):
    store = SqliteStore(str(tmp_path / "daybell.db"))
    await store.migrate()
    await store.open()
    await defined(store)
    await store.close()
    return str(tmp_path / "daybell.db")


class Crew:
    """A worker with a pacemaker, and a reaper in a thread of its own that looks all the time."""

    def __init__(self, path, *, on_stuck=None, **tasks):
        self.store = SqliteStore(path)
        self.beating = faulty(SqliteStore(path))  # what the pacemaker renews with
        self._path, self._tasks, self._on_stuck = path, tasks, on_stuck
        self._is_over = threading.Event()
        self._reaping = threading.Thread(target=lambda: asyncio.run(self._reap()))

    async def __aenter__(self):
        await self.store.open()
        clock = SystemClock()
        pacemaker = Pacemaker(lambda: self.beating, clock=clock)
        self.worker = a_worker(
            self.store,
            Tasks(**self._tasks),
            clock=clock,
            lease=LEASE,
            pacemaker=pacemaker,
            on_stuck=self._on_stuck,
        )
        self._reaping.start()
        return self

    async def __aexit__(self, *_):
        self._is_over.set()
        await asyncio.to_thread(self._reaping.join)
        await self.worker.stop()
        await self.store.close()

    async def _reap(self):
        store = SqliteStore(self._path)
        await store.open()
        upkeep = Upkeep(store, clock=SystemClock(), mint=mint, events=Events(), lease=LEASE)
        while not self._is_over.wait(0.05):
            await upkeep.reaper.tick()
        await store.close()


async def became(state, store, ids):
    await eventually(lambda: states(store, ids), lambda found: set(found) == {state})


async def test_a_task_that_blocks_the_loop_for_longer_than_the_lease_keeps_it(path):
    starts = []

    async def block(running):
        starts.append(running.claimed.attempt)
        time.sleep(3 * LEASE)  # noqa: ASYNC251, what such tasks do

    async with Crew(path, resize=block) as crew:
        ids = await enqueued(crew.store)
        await crew.worker.start()
        await became(State.SUCCEEDED, crew.store, ids)
        workers = await crew.store.catalog.list_workers(TENANT, include_dead=True)

    assert starts == [1]
    assert [worker.id for worker in workers] == [crew.worker.id]


async def test_it_hears_of_cancels_and_drains_in_the_loop(path):
    heard = []
    started = asyncio.Event()

    async def wait(running):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            heard.append(threading.get_ident())

    async with Crew(path, resize=wait) as crew:
        [id] = await enqueued(crew.store)
        await crew.worker.start()
        await asyncio.wait_for(started.wait(), WAIT)
        await crew.store.queue.cancel(TENANT, [id])
        await crew.store.queue.drain(TENANT, crew.worker.id)
        await asyncio.wait_for(crew.worker.is_draining.wait(), WAIT)
        await became(State.CANCELLED, crew.store, [id])

    assert heard == [threading.get_ident()]


async def test_work_that_blocks_the_loop_while_the_lease_ends_ends_the_process(path):
    stuck = threading.Event()

    async def block(running):
        assert stuck.wait(WAIT)

    async with Crew(path, on_stuck=stuck.set, resize=block) as crew:
        await enqueued(crew.store)
        crew.beating.fail("renew", *[Unavailable("the store is away")] * 1000)
        await crew.worker.start()
        await asyncio.wait_for(asyncio.to_thread(stuck.wait, WAIT), WAIT)

    assert stuck.is_set()


async def test_work_that_hears_of_the_end_is_no_reason_to_end_the_process(path, caplog):
    stuck, stopped = threading.Event(), asyncio.Event()

    async def wait(running):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def worker_id():
        return crew.worker.id

    async with Crew(path, on_stuck=stuck.set, resize=wait) as crew:
        await enqueued(crew.store)
        first = crew.worker.id
        crew.beating.fail("renew", *[Unavailable("the store is away")] * 1000)
        await crew.worker.start()
        await asyncio.wait_for(stopped.wait(), WAIT)
        await eventually(worker_id, lambda id: id != first)

    assert not stuck.is_set()


async def test_its_store_is_opened_before_there_is_a_lease_to_renew(path):
    async with Crew(path) as crew:
        crew.beating.fail("open")

        with pytest.raises(Unavailable):
            await crew.worker.start()

        assert await crew.store.catalog.list_workers(TENANT, include_dead=True) == []


async def test_its_store_stays_open_when_the_worker_begins_anew(path):
    async def renewed_by():
        return {asked["worker"] for asked in crew.beating.asked("renew")} - {NO_WORKER}

    async with Crew(path) as crew:
        await crew.worker.start()
        first = crew.worker.id
        for lives in range(1, 4):
            await eventually(renewed_by, lambda ids, lives=lives: len(ids) == lives)
            await crew.store.queue.retire(TENANT, crew.worker.id)

        assert crew.worker.id != first
        assert (crew.beating.count("open"), crew.beating.count("close")) == (1, 0)
    assert crew.beating.count("close") == 1

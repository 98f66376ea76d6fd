"""What a worker cannot run and another live one can goes back for a moment, and not for longer."""

import asyncio
from typing import cast

import pytest

from daybell.core.execution import Outcome, State
from daybell.engine.claim import RETURN_SECONDS_MAX, RETURN_SPREAD, TaskRouting
from daybell.errors import Unavailable
from daybell.store.protocol import Store
from tests.builders import TENANT, enqueued, look, states
from tests.builders import a_worker as a_new_worker
from tests.engine.tasks import Tasks, a_claimed, a_store, a_worker, endless, quick
from tests.engine.virtual import VirtualClock, in_virtual_time


async def two_apps(store, *, here=quick, **more):
    """A worker that has another task, and one that has the task of what is enqueued."""
    other = a_worker(store, Tasks(other=quick), concurrency=10)
    right = a_worker(store, Tasks(resize=here), concurrency=10, **more)
    await other.start()
    await asyncio.sleep(0.137)
    await right.start()
    return other, right


async def stop(*workers):
    await asyncio.gather(*(worker.stop() for worker in workers))


@in_virtual_time
async def test_a_task_of_another_live_worker_runs_there_a_moment_later():
    store = await a_store()
    workers = await two_apps(store)
    for _ in range(20):
        await enqueued(store, 1)
        ids = await enqueued(store, 1)
        await asyncio.sleep(1.5)

        assert await states(store, ids) == [State.SUCCEEDED]
        assert (await look(store, ids[0])).attempt <= 2
    await stop(*workers)


@in_virtual_time
async def test_two_that_take_each_others_work_do_so_once():
    store = await a_store()
    workers = await two_apps(store)
    ids = []
    for _ in range(20):
        for job in ("resize", "other"):
            ids += await enqueued(store, 1, job=job)
            await asyncio.sleep(0.33)
    await asyncio.sleep(1)

    assert set(await states(store, ids)) == {State.SUCCEEDED}
    assert max([(await look(store, id)).attempt for id in ids]) == 2
    await stop(*workers)


@in_virtual_time
async def test_what_nobody_has_waits_longer_until_somebody_comes():
    store = await a_store()
    other = a_worker(store, Tasks(other=quick))
    await other.start()
    ids = await enqueued(store, 1)
    await asyncio.sleep(1)
    first = await look(store, ids[0])
    await asyncio.sleep(9)
    assert first.reason == "unknown_task"
    assert (await look(store, ids[0])).attempt == 4  # after 2, 4 and 8 seconds

    right = a_worker(store, Tasks(resize=quick))
    await right.start()
    await asyncio.sleep(5)
    assert await states(store, ids) == [State.SUCCEEDED]
    await stop(other, right)


@in_virtual_time
async def test_while_the_other_is_full_what_it_has_comes_again_ever_more_seldom():
    store = await a_store()
    workers = await two_apps(store, here=endless, drain_timeout=0.0)
    await enqueued(store, 10)
    await asyncio.sleep(3)
    ids = await enqueued(store, 1)

    await asyncio.sleep(60)
    found = await look(store, ids[0])
    assert found.run_at - (await store.health()).now <= 60 / 8 * (1 + RETURN_SPREAD) + 1
    assert (found.failures, found.reason) == (0, None)

    await asyncio.sleep(3600)
    assert (await look(store, ids[0])).attempt <= 3600 / RETURN_SECONDS_MAX + 40
    await stop(*workers)


@in_virtual_time
async def test_what_is_ours_does_not_wait_long_behind_what_is_not():
    began = []

    async def ours(_):
        began.append(asyncio.get_running_loop().time())

    store = await a_store()
    other = a_worker(store, Tasks(other=ours), concurrency=100)
    right = a_worker(store, Tasks(resize=endless), concurrency=10, drain_timeout=0.0)
    await right.start()
    await enqueued(store, 1000)
    await enqueued(store, 1, job="other")
    enqueued_at = asyncio.get_running_loop().time()
    await other.start()
    await asyncio.sleep(30)

    assert began and began[0] - enqueued_at < 3
    await stop(other, right)


@in_virtual_time
async def test_a_backlog_of_others_is_not_taken_away_from_them():
    async def short(_):
        await asyncio.sleep(0.05)

    store = await a_store()
    workers = await two_apps(store, here=short)
    ids = await enqueued(store, 600)  # three seconds of work
    await asyncio.sleep(6)

    assert set(await states(store, ids)) == {State.SUCCEEDED}
    attempts = [(await look(store, id)).attempt for id in ids]
    assert sum(attempts) - len(ids) <= 6 * 500
    await stop(*workers)


@in_virtual_time
async def test_what_was_claimed_together_is_looked_for_once():
    store = await a_store()
    await store.queue.register(
        TENANT, a_new_worker(queues=("default",), tasks={"resize": "default"}), lease=60
    )
    asked = []

    class Counting:
        @property
        def catalog(self):
            return self

        async def offers(self, tenant):
            asked.append(tenant)
            await asyncio.sleep(0.01)
            return await store.catalog.offers(tenant)

    elsewhere = TaskRouting(cast("Store", Counting()), tenant=TENANT, clock=VirtualClock())
    delays = await asyncio.gather(
        *(elsewhere.delay(a_claimed(), "task:resize") for _ in range(10)),
        elsewhere.delay(a_claimed(queue="mail"), "task:resize"),
    )

    assert None not in delays[:10]
    assert delays[10] is None, "nobody takes that queue"
    assert asked == [TENANT]


@in_virtual_time
async def test_others_come_first_and_much_earlier_to_what_went_back_here():
    store, clock = await a_store(), VirtualClock()
    able = a_new_worker(queues=("default",), tasks={"resize": "default"})
    await store.queue.register(TENANT, able, lease=60)
    elsewhere = TaskRouting(store, tenant=TENANT, clock=clock)
    assert elsewhere.patience(clock.now()) == 0

    delay = await elsewhere.delay(a_claimed(), "task:resize")

    assert delay is not None
    assert elsewhere.patience(clock.now() + delay + 0.01) > 10 * elsewhere.patience(clock.now())
    assert elsewhere.patience(clock.now()) > 0
    assert elsewhere.patience(clock.now() + delay + 1) == elsewhere.patience(clock.now())
    await asyncio.sleep(10)
    assert elsewhere.patience(clock.now()) == 0


class Silent:
    """Does not answer; when it does, it is to say that it could not."""

    @property
    def catalog(self):
        return self

    async def offers(self, tenant):
        await asyncio.sleep(30)
        raise Unavailable("away")


@in_virtual_time
async def test_all_who_ask_a_store_that_does_not_answer_wait_once_and_not_for_long():
    clock = VirtualClock()
    elsewhere = TaskRouting(cast("Store", Silent()), tenant=TENANT, clock=clock)
    began = clock.monotonic()

    delays = await asyncio.gather(*(elsewhere.delay(a_claimed(), "task:resize") for _ in range(10)))

    assert set(delays) == {None}
    assert clock.monotonic() - began <= 2.5


@in_virtual_time
async def test_a_store_that_is_away_knows_nobody():
    class Away:
        @property
        def catalog(self):
            return self

        async def offers(self, tenant):
            raise Unavailable("away")

    elsewhere = TaskRouting(cast("Store", Away()), tenant=TENANT, clock=VirtualClock())

    assert await elsewhere.delay(a_claimed(), "task:resize") is None


@in_virtual_time
@pytest.mark.parametrize("is_there", [True, False])
async def test_what_turns_out_to_need_another_worker_goes_there_if_there_is_one(is_there):
    async def refuse(running):
        running.lacking, running.is_hopeless = "http:private", True
        raise RuntimeError("not from here")

    store = await a_store()
    if is_there:
        able = a_new_worker(queues=("default",), kinds=("http", "http:private"))
        await store.queue.register(TENANT, able, lease=60)
    worker = a_worker(store, Tasks(resize=refuse))
    await worker.start()
    (id,) = await enqueued(store, 1)
    await asyncio.sleep(0.5)

    detail = await store.catalog.get_execution(TENANT, id)
    expected = (State.SCHEDULED, Outcome.RELEASED) if is_there else (State.DEAD, Outcome.FAILED)
    assert (detail.execution.state, detail.attempts[0].outcome) == expected
    assert detail.execution.failures == (not is_there)
    await worker.stop()

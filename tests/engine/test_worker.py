"""A whole worker, also while the store is away; and tasks that block its event loop."""

import asyncio
import logging
import threading
from collections import Counter

import pytest

from daybell.core.execution import Priority, State
from daybell.core.ids import mint
from daybell.core.retry import Retry
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock, SystemClock
from daybell.engine.upkeep import Process, Upkeep
from daybell.engine.worker import BLOCKED_SECONDS, LoopWatch
from daybell.errors import Unavailable
from tests.builders import TENANT, an_execution, defined, enqueued, look
from tests.engine.faults import faulty
from tests.engine.tasks import Log, Task, Tasks, a_claimed, a_store, a_worker, counts, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, seconds, turns, until
from tests.stores import connect


@pytest.fixture
async def sqlite(tmp_path):
    """An open SQLite store on the real clock."""
    store = connect("sqlite", str(tmp_path / "daybell.db"))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@in_virtual_time
async def test_five_hundred_executions_are_run_once_each_in_memory():
    store, log = await a_store(), Log()
    ids = await enqueued(store, 500)
    worker = a_worker(store, Tasks(resize=log), concurrency=20)

    await worker.start()
    await until(lambda: len(log.ran) == 500)
    await worker.stop()

    assert sorted(log.ran) == sorted(ids)
    assert await counts(store) == {State.SUCCEEDED: 500}


async def test_five_hundred_executions_are_run_once_each_on_sqlite(sqlite):
    log = Log()
    ids = await enqueued(sqlite, 500)
    worker = a_worker(sqlite, Tasks(resize=log), concurrency=20, clock=SystemClock())

    await worker.start()
    await until(lambda: len(log.ran) == 500, within=30)
    await worker.stop()

    assert sorted(log.ran) == sorted(ids)
    assert await counts(sqlite) == {State.SUCCEEDED: 500}


async def test_new_executions_are_found_at_once_on_sqlite(sqlite):
    log = Log()
    await defined(sqlite)
    worker = a_worker(sqlite, Tasks(resize=log), clock=SystemClock())
    await worker.start()
    await turns()

    for count in range(1, 6):
        await enqueued(sqlite)
        await until(lambda count=count: len(log.ran) == count, within=10)
    await worker.stop()

    assert await counts(sqlite) == {State.SUCCEEDED: 5}


async def test_two_workers_on_one_sqlite_file_share_the_work(sqlite):
    logs = [Log(), Log()]
    ids = await enqueued(sqlite, 300)
    workers = [
        a_worker(sqlite, Tasks(resize=log), concurrency=5, clock=SystemClock()) for log in logs
    ]
    node = Process(workers=workers)

    await node.start()
    await until(lambda: sum(len(log.ran) for log in logs) == 300, within=30)
    await node.stop()

    assert sorted(logs[0].ran + logs[1].ran) == sorted(ids)
    assert logs[0].ran and logs[1].ran
    assert await counts(sqlite) == {State.SUCCEEDED: 300}


@in_virtual_time
async def test_an_idle_worker_sleeps():
    store = faulty(await a_store())
    await defined(store)
    worker = a_worker(store, Tasks(resize=quick))

    await worker.start()
    await asyncio.sleep(60)

    assert 59 <= store.count("claim") <= 61
    assert len(store.calls) < 80
    await worker.stop()


@in_virtual_time
async def test_a_worker_with_little_to_do_does_not_claim_for_every_end():
    store = faulty(await a_store())
    ids = await enqueued(store, 10)

    async def task(running):
        await asyncio.sleep(0.01 * (1 + ids.index(running.claimed.id)))

    worker = a_worker(store, Tasks(resize=task))
    await worker.start()
    await asyncio.sleep(0.5)

    assert await counts(store) == {State.SUCCEEDED: 10}
    assert store.count("claim") == 1
    await worker.stop()


@in_virtual_time
async def test_retries_and_delays_are_on_time():
    starts = {}

    async def task(running):
        starts.setdefault(running.claimed.id, []).append(round(seconds(), 3))
        if running.claimed.attempt < 3:
            raise ValueError

    store = await a_store()
    [id] = await enqueued(store, delay=2.35)
    policy = Retry.fixed(0.3, jitter=0.0)
    worker = a_worker(store, Tasks(resize=Task(task, retry=policy)))

    await worker.start()
    await until(lambda: len(starts.get(id, ())) == 3)
    await worker.stop()

    assert starts[id] == [2.35, 2.65, 2.95]
    assert (await look(store, id)).failures == 2


@in_virtual_time
async def test_the_better_priority_is_run_first():
    order = []

    async def task(running):
        order.append(running.claimed.priority)

    store = await a_store()
    await defined(store)
    for priority in (Priority.LOW, Priority.NORMAL, Priority.CRITICAL, Priority.HIGH) * 5:
        await store.queue.enqueue(TENANT, [an_execution(priority=priority)])
    worker = a_worker(store, Tasks(resize=task), concurrency=1)

    await worker.start()
    await until(lambda: len(order) == 20)
    await worker.stop()

    assert order == sorted(order)


@in_virtual_time
async def test_queues_get_their_share():
    order = []

    async def task(running):
        order.append(running.claimed.queue)
        await asyncio.sleep(1)

    store = await a_store()
    for queue in ("mail", "bulk"):
        await enqueued(store, 80, queue=queue)
    worker = a_worker(store, Tasks(resize=task), concurrency=1, queues="mail=3,bulk=1")

    await worker.start()
    await until(lambda: len(order) == 80)
    await worker.stop()

    assert Counter(order[:80]) == {"mail": 60, "bulk": 20}


@in_virtual_time
async def test_what_was_claimed_ahead_and_waits_behind_slow_ones_goes_to_others():
    store = await a_store()
    ran = Counter()

    def a_task(name):
        async def task(running):
            if ran.total() > 400:
                ran[name] += 1
                await asyncio.sleep(30)
            ran[name] += 1

        return task

    await enqueued(store, 600)
    first = a_worker(store, Tasks(resize=a_task("first")), concurrency=10)
    first.current.dispatcher._rate = 10_000.0  # as after many quick ones
    await first.start()
    await until(lambda: ran.total() > 400 and len(first.executor) == 10)
    assert (await counts(store))[State.RUNNING] > 20
    second = a_worker(store, Tasks(resize=a_task("second")), concurrency=200)
    await second.start()

    await asyncio.sleep(4)

    assert len(first.executor) == 10 and len(second.executor) > 100
    assert (await counts(store))[State.RUNNING] == len(first.executor) + len(second.executor)
    await asyncio.gather(first.stop(), second.stop())


@in_virtual_time
async def test_a_start_now_and_then_does_not_keep_what_was_claimed_ahead():
    store = await a_store()
    ran = Counter()

    async def task(running):
        ran["all"] += 1
        if ran["all"] > 400:
            await asyncio.sleep(0.5 * (1 + ran["all"] % 10))

    await enqueued(store, 600)
    worker = a_worker(store, Tasks(resize=task), concurrency=10)
    worker.current.dispatcher._rate = 10_000.0  # as after many quick ones
    await worker.start()
    await until(lambda: ran["all"] > 400 and len(worker.executor) == 10)
    assert (await counts(store))[State.RUNNING] > 50

    await asyncio.sleep(4)

    assert (await counts(store))[State.RUNNING] == len(worker.executor)
    await worker.stop()


@in_virtual_time
async def test_a_store_that_is_away_in_the_middle_loses_nothing():
    store, log = faulty(await a_store()), Log()
    ids = await enqueued(store, 200)

    async def task(running):
        await asyncio.sleep(0.1)
        await log(running)

    worker = a_worker(store, Tasks(resize=task), concurrency=5)
    await worker.start()
    for _ in range(3):
        await asyncio.sleep(0.55)
        store.is_away = True
        await asyncio.sleep(4)
        store.is_away = False
        await asyncio.sleep(6)
    await until(lambda: len(log.ran) >= 200)
    await worker.stop()

    assert sorted(log.ran) == sorted(ids)  # shorter than the lease: not even run twice
    assert await counts(store) == {State.SUCCEEDED: 200}


@pytest.mark.parametrize("operation", ["claim", "apply", "renew", "report"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_answers_that_are_lost_now_and_then_change_nothing(operation, is_committed):
    @in_virtual_time
    async def run():
        store, log = faulty(await a_store()), Log()
        ids = await enqueued(store, 100)

        async def task(running):
            running.report(progress=50)
            await asyncio.sleep(0.7)
            await log(running)

        worker = a_worker(store, Tasks(resize=task), concurrency=10, lease=2.0)
        calls = 0

        def every_third():
            nonlocal calls
            calls += 1
            if calls % 3 == 0:
                store.fail(operation, Unavailable("the answer is lost"), after=is_committed)

        store.hook(operation, every_third)
        await worker.start()
        await until(lambda: len(log.ran) >= 100)
        await worker.stop()

        assert sorted(log.ran) == sorted(ids)
        assert await counts(store) == {State.SUCCEEDED: 100}
        assert worker.current.completer.stale == 0

    run()


@in_virtual_time
async def test_two_thousand_sleeping_executions_run_at_once():
    store = faulty(await a_store())
    await enqueued(store, 2000)

    async def task(_):
        await asyncio.sleep(30)

    worker = a_worker(store, Tasks(resize=task), concurrency=2000)
    await worker.start()
    await until(lambda: len(worker.executor) == 2000, within=5)
    began = seconds()
    await until(lambda: len(worker.executor) == 0)
    await worker.stop()

    assert seconds() - began == pytest.approx(30, abs=1)
    assert await counts(store) == {State.SUCCEEDED: 2000}


@in_virtual_time
async def test_a_node_that_cannot_start_leaves_nothing_behind():
    store = faulty(await a_store())
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    node = Process(workers=[a_worker(store, Tasks()), a_worker(store, Tasks())], upkeep=upkeep)
    store.hook("register", lambda: setattr(store, "is_away", store.count("register") == 2))

    with pytest.raises(Unavailable):
        await node.start()
    store.is_away = False
    before = len(store.calls)
    await asyncio.sleep(60)

    assert len(store.calls) == before


@in_virtual_time
async def test_a_worker_that_starts_patiently_registers_when_the_store_is_there():
    log, store = Log(), faulty(await a_store())
    ids = await enqueued(store, 2)
    worker = a_worker(store, Tasks(resize=log))
    store.fail("register", *[Unavailable("away")] * 3)

    await worker.start_patiently()
    assert log.ran == []
    await until(lambda: len(log.ran) == 2, within=30)

    assert sorted(log.ran) == sorted(ids)
    await worker.stop()


# A task that blocks the event loop is noticed and named.


async def test_a_loop_that_turns_is_left_alone(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("resize"))

    for _ in range(3):
        watch.look(asyncio.get_running_loop(), threading.get_ident())
        clock.advance(BLOCKED_SECONDS / 2)
        await asyncio.sleep(0)  # the loop turns

    assert watch.blocked == 0
    assert not caplog.records


async def test_a_task_that_keeps_the_loop_from_turning_is_named_once(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("resize"))

    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            watch.look(asyncio.get_running_loop(), threading.get_ident())
            clock.advance(BLOCKED_SECONDS)

    assert watch.blocked == 1
    (record,) = caplog.records
    assert "the task 'resize' has blocked the event loop" in record.getMessage()
    assert "test_worker.py" in record.getMessage()
    assert "Make it a plain `def`" in record.getMessage()


async def test_nobody_is_told_to_change_the_code_of_a_job_without_code(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: a_claimed("alive", kind="http"))

    with caplog.at_level(logging.WARNING):
        watch.look(asyncio.get_running_loop(), threading.get_ident())
        clock.advance(BLOCKED_SECONDS)
        watch.look(asyncio.get_running_loop(), threading.get_ident())

    (record,) = caplog.records
    assert "the job 'alive' (http) has blocked the event loop" in record.getMessage()
    assert "def" not in record.getMessage().partition("\n")[0]


async def test_it_warns_again_after_the_loop_has_turned(caplog):
    clock = ManualClock()
    watch = LoopWatch(clock=clock, claimed_of=lambda _: None)
    loop, ident = asyncio.get_running_loop(), threading.get_ident()

    for _ in range(2):
        watch.look(loop, ident)
        clock.advance(BLOCKED_SECONDS)
        watch.look(loop, ident)
        await asyncio.sleep(0)

    assert watch.blocked == 2

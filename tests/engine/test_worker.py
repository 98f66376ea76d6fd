"""A whole worker: everything once, nothing lost, and out of the way in good order."""

import asyncio
from collections import Counter

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.priority import Priority
from daybell.core.retry import Retry
from daybell.core.view import ExecutionFilter
from daybell.engine.clock import SystemClock
from daybell.engine.events import Ended, Events, Started
from daybell.engine.node import Node, Upkeep
from daybell.errors import Unavailable
from daybell.store.ids import mint
from tests.builders import TENANT, an_execution, defined, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Log, Task, Tasks, a_store, a_worker, deaf, endless, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, turns, until
from tests.stores import connect


@pytest.fixture
async def sqlite(tmp_path):
    """An open SQLite store on the real clock."""
    store = connect("sqlite", str(tmp_path / "daybell.db"))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


async def counts(store):
    return await store.count_executions(TENANT, ExecutionFilter())


def seconds():
    return asyncio.get_running_loop().time()


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
    node = Node(workers=workers)

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
        await store.enqueue(TENANT, [an_execution(priority=priority)])
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
    first.dispatcher._rate = 10_000.0  # as after many quick ones
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
async def test_what_has_not_started_is_given_back_at_once_when_it_stops():
    store = faulty(await a_store())
    ids = await enqueued(store, 6)
    worker = a_worker(store, Tasks(resize=endless), concurrency=2, drain_timeout=100.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 2)
    # As if the tasks before these had been quick: what was claimed ahead is in the buffer.
    claim = await store.claim(TENANT, worker=worker.id, lease=mint(), queues=["default"], limit=4)
    worker._leases.answer(claim.lease, 4)
    worker.dispatcher._buffer.extend(claim.executions)

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
    assert await store.list_workers(TENANT) == []  # it said goodbye
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
    return await store.get_execution(TENANT, id)


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
        assert worker.completer.stale == 0

    run()


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
async def test_long_runs_are_shown_and_short_ones_are_not_written():
    async def task(running):
        if running.claimed.job == "long":
            running.report(progress=40, note="half way")
            await asyncio.sleep(3)

    store = faulty(await a_store())
    [long] = await enqueued(store, job="long")
    await enqueued(store, 20, job="short")
    worker = a_worker(store, Tasks(long=task, short=task))
    await worker.start()
    await asyncio.sleep(1)

    shown = await look(store, long)
    assert (shown.progress, shown.note, shown.started_at) == (
        40,
        "half way",
        VirtualClock().now() - 1,
    )
    assert {len(asked["reports"]) for asked in store.asked("report")} == {1}
    await worker.stop()


@in_virtual_time
async def test_what_a_run_shows_is_sent_again_if_it_could_not_be_written():
    async def task(running):
        running.report(note="once", checkpoint="[1]")
        await asyncio.sleep(3)

    store = faulty(await a_store())
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=task))
    store.fail("report", Unavailable("1"), Unavailable("2"))
    await worker.start()
    await asyncio.sleep(2)

    shown = await look(store, id)
    assert (shown.note, shown.checkpoint) == ("once", "[1]")
    assert store.count("report") == 3
    await worker.stop()


@in_virtual_time
async def test_a_note_that_cannot_be_kept_does_not_hide_the_others():
    async def task(running):
        running.report(note="\0" if running.claimed.job == "bad" else "fine")
        await asyncio.sleep(3)

    store = faulty(await a_store())
    ids = await enqueued(store, 3, job="good")
    await enqueued(store, 1, job="bad")
    worker = a_worker(store, Tasks(good=task, bad=task))
    await worker.start()
    await asyncio.sleep(2)

    assert [(await look(store, id)).note for id in ids] == ["fine"] * 3
    await worker.stop()


@in_virtual_time
async def test_observers_hear_of_starts_and_ends():
    heard = []
    events = Events()
    events.observe(lambda event: heard.append((type(event), event.claimed.id)))
    store = await a_store()
    [id] = await enqueued(store)
    worker = a_worker(store, Tasks(resize=quick), events=events)

    await worker.start()
    await until(lambda: len(heard) == 2)
    await worker.stop()

    assert heard == [(Started, id), (Ended, id)]


@in_virtual_time
async def test_a_node_that_cannot_start_leaves_nothing_behind():
    store = faulty(await a_store())
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    node = Node(workers=[a_worker(store, Tasks()), a_worker(store, Tasks())], upkeep=upkeep)
    store.hook("register", lambda: setattr(store, "is_away", store.count("register") == 2))

    with pytest.raises(Unavailable):
        await node.start()
    store.is_away = False
    before = len(store.calls)
    await asyncio.sleep(60)

    assert len(store.calls) == before


@in_virtual_time
async def test_the_workers_of_a_node_drain_together():
    store = await a_store()
    await enqueued(store, 2)
    workers = [
        a_worker(store, Tasks(resize=endless), concurrency=1, drain_timeout=10.0) for _ in range(2)
    ]
    node = Node(workers=workers)
    await node.start()
    await until(lambda: all(len(worker.executor) == 1 for worker in workers))

    await node.stop()

    assert seconds() == pytest.approx(10, abs=0.1)
    assert await counts(store) == {State.QUEUED: 2}


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

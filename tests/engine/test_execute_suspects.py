"""What has lost its worker time and again does not take innocent neighbours with it."""

import asyncio
from uuid import UUID

import pytest

from daybell.core.execution import PENDING, State
from daybell.core.lifecycle import after_loss
from daybell.engine.attempt import Stop
from daybell.engine.events import Events
from daybell.engine.execute import PROBATION_SECONDS, SUSPECT_HOLD_SECONDS
from daybell.engine.upkeep import Reaper
from daybell.engine.worker import Worker
from tests.builders import LEASE, TENANT, a_report, claim, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Task, Tasks, a_store, a_worker, counts, endless
from tests.engine.virtual import VirtualClock, in_virtual_time, seconds, turns, until

CRASHES = 2
ALONE = 4  # crashes of those that run one at a time


async def suspects(store, count, crashes=CRASHES):
    """Executions that have lost so many workers, of all of them together."""
    ids = await enqueued(store, count)
    for _ in range(crashes):
        hands = await claim(store, limit=count)
        assert len(hands.executions) == count
        await store.queue.retire(TENANT, hands.worker)
        moves = [
            after_loss(lost.claimed, max_crashes=3, is_sole=False)
            for lost in (await store.queue.lost()).executions
        ]
        await store.queue.apply(TENANT, worker=hands.worker, transitions=moves)
    return ids


class Crowd:
    """A task that counts how many are at work, and how many of them are suspects."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.running, self.most, self.seen = {}, 0, set()

    async def __call__(self, run):
        self.running[run.claimed.id] = run.claimed.crashes >= CRASHES
        self.most = max(self.most, sum(self.running.values()))
        await asyncio.sleep(self.seconds)
        del self.running[run.claimed.id]
        self.seen.add(run.claimed.id)


@in_virtual_time
async def test_innocent_suspects_are_over_as_soon_as_others():
    store = await a_store()
    ids = await suspects(store, 20)
    worker = a_worker(store, Tasks(resize=Crowd(3)), concurrency=40)
    await worker.start()
    await asyncio.sleep(3.5)

    assert await states(store, ids) == [State.SUCCEEDED] * 20
    assert {(await look(store, id)).attempt for id in ids} == {CRASHES + 1}
    await worker.stop()


@in_virtual_time
@pytest.mark.parametrize(("crashes", "most"), [(2, 32), (3, 6), (4, 1), (6, 1)])
async def test_groups_are_smaller_after_every_loss_and_others_run_beside_them(crashes, most):
    store, crowd = await a_store(), Crowd(2)
    ids = await suspects(store, 40, crashes)
    innocent = await enqueued(store, 5)
    worker = a_worker(store, Tasks(resize=crowd), concurrency=50)
    await worker.start()
    await asyncio.sleep(2.5)
    assert crowd.seen > set(innocent), "who is not suspected does not wait"
    await asyncio.sleep(100)

    assert crowd.most == most
    assert set(await states(store, ids)) == {State.SUCCEEDED}
    assert {(await look(store, id)).failures for id in ids} == {0}
    await worker.stop()


@in_virtual_time
async def test_short_suspects_follow_each_other_without_a_pause():
    store, crowd = await a_store(), Crowd(0.01)
    ids = await suspects(store, 100, ALONE)
    worker = a_worker(store, Tasks(resize=crowd), concurrency=100)
    await worker.start()
    await asyncio.sleep(1.5)

    assert await states(store, ids) == [State.SUCCEEDED] * 100
    assert crowd.most == 1
    assert {(await look(store, id)).attempt for id in ids} == {ALONE + 1}
    await worker.stop()


@in_virtual_time
async def test_who_has_outlived_its_probation_blocks_nobody():
    store, crowd = await a_store(), Crowd(3600)
    await suspects(store, 3, ALONE)
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await asyncio.sleep(PROBATION_SECONDS - 0.5)
    assert len(crowd.running) == 1

    await until(lambda: len(crowd.running) == 3, within=2 * PROBATION_SECONDS + 5)
    await worker.stop()


@in_virtual_time
async def test_the_probation_is_longer_than_what_it_ran_when_its_workers_were_lost():
    store, crowd = await a_store(), Crowd(3600)
    ids = await enqueued(store, 2)
    for _ in range(ALONE):
        hands = await claim(store)
        await asyncio.sleep(100)
        reports = [a_report(one, ran=100.0) for one in hands.executions]
        await store.queue.report(TENANT, worker=hands.worker, reports=reports)
        await store.queue.retire(TENANT, hands.worker)
        for lost in (await store.queue.lost()).executions:
            move = after_loss(lost.claimed, max_crashes=3, is_sole=False)
            await store.queue.apply(TENANT, worker=hands.worker, transitions=[move])
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await asyncio.sleep(100)
    assert len(crowd.running) == 1
    await until(lambda: len(crowd.running) == 2, within=PROBATION_SECONDS + 2)

    attempts = [(await look(store, id)).attempt for id in ids]
    assert max(attempts) <= ALONE + 1 + 6, "who waits goes back later and later"
    await worker.stop()


@in_virtual_time
async def test_suspects_behind_a_long_one_go_back_so_that_others_can_have_them():
    store = await a_store()
    ids = await suspects(store, 3, ALONE)
    worker = a_worker(store, Tasks(resize=endless))
    await worker.start()
    await asyncio.sleep(SUSPECT_HOLD_SECONDS + 1.0)

    found = sorted(await states(store, ids))
    assert found == [State.RUNNING, State.SCHEDULED, State.SCHEDULED]
    await worker.stop()


@in_virtual_time
@pytest.mark.parametrize(
    ("count", "seconds", "most"),
    [(12, 5.0, 45), (30, 2.0, 55)],  # one worker would take 60
)
async def test_several_workers_share_the_suspects(count, seconds, most):
    async def work(run):
        await asyncio.sleep(seconds)

    store = await a_store()
    ids = await suspects(store, count, ALONE)
    workers = [a_worker(store, Tasks(resize=work), concurrency=10) for _ in range(3)]
    for worker in workers:
        await worker.start()
        await asyncio.sleep(0.137)
    await asyncio.sleep(most)

    assert set(await states(store, ids)) == {State.SUCCEEDED}
    for worker in workers:
        await worker.stop()


async def lost_with(store, worker):
    """Have a worker die, and taken from it what it ran."""
    await worker.current.stop_loops()
    await store.queue.retire(TENANT, worker.id)
    await Reaper(store, clock=VirtualClock(), events=Events(), lease=LEASE).tick()


@in_virtual_time
async def test_only_the_suspect_that_had_begun_is_charged_with_the_loss_of_its_worker():
    store, crowd = await a_store(), Crowd(3600)
    ids = await suspects(store, 5, ALONE)
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await until(lambda: crowd.running)

    await lost_with(store, worker)

    found = [await look(store, id) for id in ids]
    assert sorted((one.state, one.crashes) for one in found) == [
        (State.DEAD, ALONE + 1),
        *[(State.QUEUED, ALONE)] * 4,
    ]


@in_virtual_time
async def test_nobody_ends_dead_because_of_the_loss_of_a_worker_that_ran_several_suspects():
    store, crowd = await a_store(), Crowd(3600)
    ids = await suspects(store, 5)
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await until(lambda: len(crowd.running) == 5)

    await lost_with(store, worker)

    found = [await look(store, id) for id in ids]
    assert {(one.state, one.crashes) for one in found} == {(State.QUEUED, CRASHES + 1)}


@in_virtual_time
async def test_a_suspect_that_gets_company_is_not_the_only_one_any_more():
    store, crowd = await a_store(), Crowd(3600)
    (first,) = await suspects(store, 1)
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await until(lambda: first in crowd.running)
    (second,) = await others_of(store)
    worker.wake()
    await until(lambda: second in crowd.running)

    await lost_with(store, worker)

    found = [await look(store, id) for id in (first, second)]
    assert {(one.state, one.crashes) for one in found} == {(State.QUEUED, CRASHES + 1)}


async def others_of(store):
    """One more suspect, while another one runs."""
    ids = await enqueued(store, 1)
    for _ in range(CRASHES):
        hands = await claim(store)
        await store.queue.retire(TENANT, hands.worker)
        for lost in (await store.queue.lost()).executions:
            move = after_loss(lost.claimed, max_crashes=3)
            await store.queue.apply(TENANT, worker=hands.worker, transitions=[move])
    return ids


@in_virtual_time
async def test_a_record_that_may_have_been_made_is_withdrawn_before_there_is_company():
    store, crowd = faulty(await a_store()), Crowd(3600)
    await suspects(store, 1)
    store.fail("record_sole", after=True)
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await until(lambda: store.count("record_sole"))
    await others_of(store)
    worker.wake()
    await until(lambda: len(crowd.running) == 2)

    await lost_with(store, worker)

    assert await counts(store) == {State.QUEUED: 2}


class Fleet:
    """A worker that is started again, a second after something in it has killed it."""

    worker: Worker

    def __init__(self, store, culprit: UUID, seconds, kill_after):
        self.store = store
        self.culprit = culprit
        self.seconds = seconds
        self.kill_after = kill_after
        self.kills = 0
        self.killed = asyncio.Event()

    async def work(self, run):
        is_culprit = run.claimed.id == self.culprit
        await asyncio.sleep(self.kill_after if is_culprit else self.seconds)
        if is_culprit:
            self.kill()

    def kill(self):
        """From now on, nothing in the worker begins, and nothing is told."""
        self.kills += 1
        self.worker.current.dispatcher.close()
        self.worker.executor._finish = lambda *_: None
        self.worker.executor.stop_all(Stop.ABANDON)
        self.killed.set()

    async def run(self, *, within):
        """Until nothing is left to do; answers how long that took."""
        began = seconds()
        while await self._is_busy():
            self.killed.clear()
            self.worker = a_worker(self.store, Tasks(resize=self.work), concurrency=60)
            await self.worker.start()
            while not self.killed.is_set() and await self._is_busy():
                assert seconds() - began < within
                await asyncio.sleep(0.01)
            await lost_with(self.store, self.worker)
            await asyncio.sleep(1)
        return seconds() - began

    async def _is_busy(self):
        found = await counts(self.store)
        return any(found.get(state) for state in (State.RUNNING, *PENDING))


@in_virtual_time
@pytest.mark.parametrize(
    ("length", "kill_after", "kills", "within"),
    # One more where innocent ones go on beside it after their probation.
    [(3.0, 0.0, 5, 60), (3.0, 2.9, 5, 90), (60.0, 10.0, 6, 500), (0.5, 0.2, 5, 30)],
)
async def test_one_culprit_among_fifty_ends_dead_and_nobody_else(length, kill_after, kills, within):
    store = await a_store()
    ids = await enqueued(store, 51)
    fleet = Fleet(store, ids[25], length, kill_after)

    took = await fleet.run(within=within)

    found = {id: await look(store, id) for id in ids}
    assert {id for id, one in found.items() if one.state is State.DEAD} == {fleet.culprit}
    assert [one.state for one in found.values()].count(State.SUCCEEDED) == 50
    assert found[fleet.culprit].reason == "worker_lost"
    assert fleet.kills <= kills, f"{fleet.kills} in {took} s"
    assert max(one.attempt for one in found.values()) <= fleet.kills + 10


@in_virtual_time
async def test_a_culprit_by_itself_ends_dead_after_three_kills():
    store = await a_store()
    (id,) = await enqueued(store, 1)
    fleet = Fleet(store, id, 1.0, 5.0)

    await fleet.run(within=60)

    found = await look(store, id)
    assert (fleet.kills, found.state, found.crashes) == (3, State.DEAD, 3)


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

    worker.current.lose()  # while that it begins is on its way to the store
    worker._is_stopping = True
    gate.set()
    await turns(20)

    assert ran == []
    await worker.stop()


@in_virtual_time
async def test_the_run_of_a_suspect_begins_when_that_is_on_record():
    """A rate counts from the start, which a slow store delays."""
    store, crowd = faulty(await a_store()), Crowd(2)
    (id,) = await suspects(store, 1)
    gate = store.hold("report")
    worker = a_worker(store, Tasks(resize=crowd))
    await worker.start()
    await until(lambda: store.count("report"), within=5)
    await asyncio.sleep(1.5)
    gate.set()

    await until(lambda: crowd.seen == {id}, within=5)
    await worker.stop()

    done = await look(store, id)
    assert done.started_at is not None
    assert done.finished_at == pytest.approx(done.started_at + 2, abs=0.1)

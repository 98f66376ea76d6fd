"""Renewal of the lease, and what a worker does when it cannot be renewed."""

import asyncio
from typing import Any
from uuid import UUID

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.worker import WorkerState
from daybell.engine.events import Events
from daybell.engine.lease import Pacemaker
from daybell.engine.upkeep import Upkeep
from tests.builders import TENANT, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Log, Task, Tasks, a_store, a_worker, deaf, endless, quick
from tests.engine.virtual import VirtualClock, in_virtual_time, turns, until

LEASE = 15.0


async def a_busy_worker(*, count=3, **tasks):
    """A worker with some executions running, on a store with faults."""
    store = faulty(await a_store())
    ids = await enqueued(store, count)
    worker = a_worker(store, Tasks(**tasks or {"resize": endless}), lease=LEASE)
    await worker.start()
    await until(lambda: len(worker.executor) == count)
    return store, worker, ids


@in_virtual_time
async def test_a_renewal_names_the_leases_in_flight():
    store, worker, ids = await a_busy_worker()

    await worker.current.heartbeat.tick()

    [lease] = {asked["lease"] for asked in store.asked("claim")} & set(
        worker.current.leases.known()
    )
    assert store.asked("renew")[-1]["leases"] == [lease]
    assert await states(store, ids) == [State.RUNNING] * 3
    await worker.stop()


@in_virtual_time
async def test_a_claim_without_an_answer_is_named_too():
    store, worker, _ = await a_busy_worker()
    await enqueued(store, 2, job="resize")
    store.fail("claim", after=True)
    worker.wake()
    await turns()

    await worker.current.heartbeat.tick()

    asked = store.asked("claim")[-1]["lease"]
    assert asked in store.asked("renew")[-1]["leases"]
    await until(lambda: len(worker.executor) == 5)
    await worker.stop()


@in_virtual_time
async def test_nothing_is_claimed_that_a_renewal_under_way_could_not_name():
    store, worker, _ = await a_busy_worker()
    gate = store.hold("renew")
    await until(lambda: store.count("renew") == 2)
    claims = store.count("claim")

    ids = await enqueued(store, 2)
    await asyncio.sleep(3)
    assert store.count("claim") == claims
    gate.set()
    await until(lambda: len(worker.executor) == 5, within=1.0)

    assert await states(store, ids) == [State.RUNNING] * 2
    assert [(await look(store, id)).attempt for id in ids] == [1, 1]
    await worker.stop()


@in_virtual_time
async def test_the_lease_is_renewed_three_times_in_its_length():
    store, worker, _ = await a_busy_worker()

    await asyncio.sleep(60)

    assert 12 <= store.count("renew") <= 13
    assert [each.id for each in await store.catalog.list_workers(TENANT)] == [worker.id]
    await worker.stop()


@in_virtual_time
async def test_a_request_to_cancel_stops_the_run_at_the_next_renewal():
    store, worker, ids = await a_busy_worker()

    await store.queue.cancel(TENANT, ids[:1])
    await until(lambda: len(worker.executor) == 2, within=LEASE / 3 + 0.1)
    await turns()

    assert await states(store, ids) == [State.CANCELLED, State.RUNNING, State.RUNNING]
    await worker.stop()


@in_virtual_time
async def test_a_worker_that_is_to_drain_learns_it():
    store, worker, _ = await a_busy_worker()

    await store.queue.drain(TENANT, worker.id)
    await asyncio.wait_for(worker.is_draining.wait(), LEASE / 3 + 0.1)

    await worker.stop()


@in_virtual_time
async def test_a_worker_that_was_declared_dead_drops_everything_and_begins_anew(caplog):
    store, worker, ids = await a_busy_worker()
    first = worker.id

    await store.queue.retire(TENANT, first)
    await until(lambda: worker.id != first and worker.current.is_registered)

    assert len(worker.executor) == 0
    assert "lost its lease" in caplog.text
    # Nothing was reported: they still are in the dead one's hands, for the reaper to take.
    assert [(await look(store, id)).worker for id in ids] == [first] * 3
    assert store.count("apply") == 0
    [alive] = await store.catalog.list_workers(TENANT)
    assert (alive.id, alive.state) == (worker.id, WorkerState.LIVE)
    await worker.stop()


@in_virtual_time
async def test_a_claim_tells_a_dead_worker_too(caplog):
    store, worker, _ = await a_busy_worker()
    first = worker.id

    await store.queue.retire(TENANT, first)
    worker.wake()
    await until(lambda: worker.id != first, within=1.0)

    assert "Traceback" not in caplog.text
    await worker.stop()


@in_virtual_time
async def test_it_goes_on_working_under_its_new_id():
    log = Log()
    store, worker, _ = await a_busy_worker(resize=endless, other=log)
    first = worker.id
    await store.queue.retire(TENANT, first)
    await until(lambda: worker.id != first)

    ids = await enqueued(store, 5, job="other")
    await until(lambda: len(log.ran) == 5)
    await worker.stop()

    assert await states(store, ids) == [State.SUCCEEDED] * 5


async def stopped_in_time(store, worker, ids):
    """When the worker stopped its runs, which must be before anybody could take them away."""
    ends = {each.id: each.lease_until for each in await store.store.catalog.list_workers(TENANT)}
    lease_until = ends[worker.id]
    await until(lambda: worker.current.is_lost or len(worker.executor) == 0, within=2 * LEASE)
    assert VirtualClock().now() < lease_until
    assert await states(store.store, ids) == [State.RUNNING] * len(ids)


@in_virtual_time
async def test_a_worker_that_cannot_renew_stops_before_its_lease_can_end(caplog):
    store, worker, ids = await a_busy_worker()
    await asyncio.sleep(7)

    store.is_away = True
    await stopped_in_time(store, worker, ids)
    await until(lambda: len(worker.executor) == 0)

    assert "stopping before the lease ends" in caplog.text
    store.is_away = False
    await worker.stop()


@in_virtual_time
async def test_a_renewal_without_an_answer_does_not_keep_it_from_stopping_in_time():
    store, worker, ids = await a_busy_worker()
    gate = store.hold("renew")

    first = worker.id
    [lease_until] = [each.lease_until for each in await store.store.catalog.list_workers(TENANT)]
    await until(lambda: worker.id != first, within=2 * LEASE)

    assert VirtualClock().now() < lease_until
    assert [(await look(store.store, id)).worker for id in ids] != [first] * 3
    gate.set()
    await worker.stop()


@in_virtual_time
async def test_after_an_outage_it_comes_back_and_everything_is_done_once_more():
    log = Log()
    store = faulty(await a_store())
    stuck: set[UUID] = set()

    async def task(running):
        if running.claimed.id not in stuck:  # the first time it hangs
            stuck.add(running.claimed.id)
            await endless(running)
        await log(running)

    ids = await enqueued(store, 4)
    worker = a_worker(store, Tasks(resize=task), lease=LEASE)
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    await worker.start()
    upkeep.start()
    await until(lambda: len(worker.executor) == 4)

    store.is_away = True
    await asyncio.sleep(120)
    store.is_away = False
    await until(lambda: len(log.ran) == 4)
    await worker.stop()
    await upkeep.stop()

    assert await states(store, ids) == [State.SUCCEEDED] * 4
    assert [(await look(store, id)).attempt for id in ids] == [2] * 4
    # It has not given up its new lease because it was without one for so long.
    assert len(await store.catalog.list_workers(TENANT, include_dead=True)) == 2


@in_virtual_time
async def test_a_worker_without_its_store_can_be_stopped():
    store, worker, _ = await a_busy_worker()
    store.is_away = True
    await asyncio.sleep(60)

    began = VirtualClock().now()
    await worker.stop()

    assert VirtualClock().now() - began < 1
    calls = len(store.calls)
    await asyncio.sleep(100)
    assert store.calls[calls:] == [], "the store may be closed by now"


@in_virtual_time
async def test_a_lease_lost_during_a_drain_ends_it_and_begins_nothing_anew():
    store, worker, ids = await a_busy_worker()
    first = worker.id
    stopping = asyncio.ensure_future(worker.stop())
    await turns()

    await store.queue.retire(TENANT, first)
    await stopping

    assert worker.id == first and store.count("apply") == 0 and store.count("register") == 1
    assert await states(store, ids) == [State.RUNNING] * 3
    claims = store.count("claim")
    await asyncio.sleep(10)
    assert store.count("claim") == claims


@in_virtual_time
async def test_a_task_that_does_not_stop_does_not_keep_it_from_beginning_anew(caplog):
    store, worker, _ = await a_busy_worker(resize=deaf, other=quick)
    first = worker.id

    await store.queue.retire(TENANT, first)
    await until(lambda: worker.id != first and worker.current.is_registered, within=60)
    [id] = await enqueued(store, job="other")
    await until(lambda: len(worker.executor) == 0, within=60)
    await turns()

    assert "goes on running" in caplog.text
    assert await states(store, [id]) == [State.SUCCEEDED]
    await worker.stop()
    await asyncio.sleep(4000)
    assert store.count("apply") == 1


@in_virtual_time
async def test_registering_anew_is_tried_until_the_store_is_there():
    store, worker, _ = await a_busy_worker()
    first = worker.id
    store.fail("register", after=True)
    await store.queue.retire(TENANT, first)

    await until(lambda: worker.id != first and worker.current.is_registered)

    assert store.count("register") == 3
    await worker.stop()


@in_virtual_time
async def test_a_registration_that_was_buried_before_it_was_heard_of_is_made_anew():
    store, worker, _ = await a_busy_worker()
    first = worker.id
    store.fail("register", after=True)
    await store.queue.retire(TENANT, first)
    await until(lambda: store.count("register") == 2)

    second = worker.id
    await store.queue.retire(TENANT, second)
    await until(lambda: worker.current.is_registered)

    assert worker.id not in (first, second)
    [alive] = await store.catalog.list_workers(TENANT)
    assert alive.id == worker.id
    await worker.stop()


@in_virtual_time
async def test_a_request_to_cancel_is_heard_at_once_where_the_store_tells():
    store, worker, ids = await a_busy_worker()
    await asyncio.sleep(0.5)  # between two renewals
    before = asyncio.get_running_loop().time()

    await store.queue.cancel(TENANT, ids[:1])
    await until(lambda: len(worker.executor) == 2)

    assert asyncio.get_running_loop().time() - before < 0.2
    await worker.stop()


@in_virtual_time
async def test_work_that_may_go_on_without_a_lease_does_and_is_still_fenced():
    ends = []

    async def work(running):
        await asyncio.sleep(30)
        ends.append((running.claimed.attempt, running.is_cancelled))

    store, worker, [stays, taken] = await a_busy_worker(count=2, resize=Task(work, goes_on=True))
    first = worker.id
    store.is_away = True
    await asyncio.sleep(LEASE)
    store.is_away = False
    [lost] = [one for one in (await store.queue.lost()).executions if one.claimed.id == taken]
    await store.queue.apply(
        TENANT, worker=first, transitions=[after_loss(lost.claimed, max_crashes=3)]
    )
    await until(lambda: len(ends) == 3)
    await asyncio.sleep(1)

    assert worker.id != first, "the worker itself has begun anew"
    assert sorted(ends) == [(1, False), (1, False), (2, False)]
    assert await states(store, [stays, taken]) == [State.SUCCEEDED] * 2
    assert [(await look(store, id)).attempt for id in (stays, taken)] == [1, 2]
    await worker.stop()


@in_virtual_time
async def test_what_has_ended_is_told_after_an_outage_in_which_the_lease_was_lost():
    async def work(_):
        await asyncio.sleep(5)

    store, worker, ids = await a_busy_worker(resize=work)
    first = worker.id
    store.is_away = True
    await asyncio.sleep(120)
    store.is_away = False
    await until(lambda: worker.id != first and worker.current.is_registered)
    await asyncio.sleep(6)  # before any lease has ended that counts from now

    assert await states(store, ids) == [State.SUCCEEDED] * 3
    assert [(await look(store, id)).attempt for id in ids] == [1] * 3
    await worker.stop()


@in_virtual_time
async def test_what_an_outage_has_stopped_goes_back_at_once_and_is_not_charged():
    store, worker, ids = await a_busy_worker()
    for outage in range(1, 5):  # more often than workers may be lost
        first = worker.id
        store.is_away = True
        await asyncio.sleep(120)
        store.is_away = False
        await until(lambda first=first: worker.id != first and len(worker.executor) == 3, within=11)

        found = [await look(store, id) for id in ids]
        assert [(one.attempt, one.crashes) for one in found] == [(outage + 1, 0)] * 3
    await worker.stop()


@in_virtual_time
async def test_what_goes_on_although_it_was_stopped_is_not_given_back_by_an_outage():
    store, worker, ids = await a_busy_worker(resize=deaf)
    first = worker.id
    store.is_away = True
    await asyncio.sleep(60)
    store.is_away = False
    await until(lambda: worker.id != first and worker.current.is_registered)
    await asyncio.sleep(10)

    assert [(await look(store, id)).worker for id in ids] == [first] * 3
    await worker.stop()


@in_virtual_time
async def test_what_may_begin_once_only_does_not_go_back_from_an_outage_or_a_drain():
    once = Task(endless, starts_once=True)
    store, worker, ids = await a_busy_worker(resize=once)
    first = worker.id
    store.is_away = True
    await asyncio.sleep(60)
    store.is_away = False
    await until(lambda: worker.id != first and worker.current.is_registered)
    await asyncio.sleep(10)
    assert [(await look(store, id)).worker for id in ids] == [first] * 3

    [other] = await enqueued(store)
    await until(lambda: len(worker.executor) == 1)
    await worker.stop()

    found = await look(store, other)
    assert (found.state, found.reason, found.attempt) == (State.DEAD, "worker_lost", 1)
    assert "was cut short because its worker was stopped" in (found.error or "")


class LoopPacemaker(Pacemaker):
    """Beats on the loop of the test, whose time is virtual, as if it were a thread."""

    def _launch(self):
        self._loop = asyncio.get_running_loop()

    def _do(self, work):
        return asyncio.ensure_future(work())

    async def close(self):
        await self.stop()  # the store is the worker's, too


async def charged(store, ids):
    """How often each was charged with the loss of a worker."""
    return {(await look(store, id)).crashes for id in ids}


@in_virtual_time
async def test_a_slow_store_costs_no_lease_however_long_it_takes_to_open():
    store = faulty(await a_store())
    beating = faulty(store.store)  # the pacemaker's way to it
    for one in (store, beating):
        one.delay = lambda operation: 12.0 if operation == "open" else 0.8
    ids = await enqueued(store.store, 40)
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events(), lease=5.0)
    pacemaker = LoopPacemaker(lambda: beating, clock=VirtualClock())

    async def work(_):
        await asyncio.sleep(3)

    tasks = Tasks(resize=work)
    worker = a_worker(store, tasks, lease=5.0, concurrency=5, pacemaker=pacemaker)
    await worker.start()
    upkeep.start()
    await asyncio.sleep(60)
    await worker.stop()
    await upkeep.stop()

    assert len(await store.store.catalog.list_workers(TENANT, include_dead=True)) == 1
    assert set(await states(store.store, ids)) == {State.SUCCEEDED}
    assert {(await look(store.store, id)).attempt for id in ids} == {1}


@in_virtual_time
async def test_renewals_are_sent_at_thirds_of_the_lease_however_late_their_answers_come():
    store, worker, _ = await a_busy_worker()
    store.delay = lambda operation: 4.0
    await asyncio.sleep(LEASE)
    before = store.count("renew")

    await asyncio.sleep(60)

    assert store.count("renew") - before == 12
    await worker.stop()


async def begun_anew_beside_a_reaper(*, starve):
    """A worker whose renewal, and all that it has to report, has no answer while the lease ends;
    answers how often its executions are charged when a reaper has taken them, and whether the
    worker asked that they are not.
    """
    store, worker, ids = await a_busy_worker()
    upkeep = Upkeep(store.store, clock=VirtualClock(), mint=mint, events=Events(), lease=LEASE)
    upkeep.start()
    await asyncio.sleep(LEASE)
    first = worker.id
    renewals = store.count("renew")
    unanswered, unreported = store.hold("renew"), store.hold("apply")
    await until(lambda: store.count("renew") > renewals)
    if starve:
        loop: Any = asyncio.get_running_loop()
        loop._moment += LEASE - 1  # a task lets nothing else run for so long
    await until(lambda: worker.id != first and worker.current.is_registered)
    unanswered.set()
    await asyncio.sleep(LEASE + 5)
    found = await charged(store.store, ids)
    assert {(await look(store.store, id)).attempt for id in ids} == {2}
    unreported.set()
    await worker.stop()
    await upkeep.stop()
    return found, store.asked("register")[-1]["replaces"] == first


@in_virtual_time
async def test_nothing_is_charged_for_a_store_that_is_late_even_if_a_reaper_comes_first():
    assert await begun_anew_beside_a_reaper(starve=False) == ({0}, True)


@in_virtual_time
async def test_what_starves_its_worker_is_charged_although_an_answer_is_missing():
    assert await begun_anew_beside_a_reaper(starve=True) == ({1}, False)


@in_virtual_time
async def test_a_registration_that_is_answered_too_late_is_the_stores_fault():
    store = faulty(await a_store())
    ids = await enqueued(store, 3)
    upkeep = Upkeep(store.store, clock=VirtualClock(), mint=mint, events=Events(), lease=LEASE)
    upkeep.start()
    late = {"register": 0.9 * LEASE, "renew": 0.5 * LEASE}
    store.delay = lambda operation: late.get(operation, 0.0)
    worker = a_worker(store, Tasks(resize=endless), lease=LEASE)

    first = worker.id
    await worker.start()
    await asyncio.sleep(120)

    assert store.asked("register")[1]["replaces"] == first
    assert await charged(store.store, ids) == {0}
    await worker.stop()
    await upkeep.stop()

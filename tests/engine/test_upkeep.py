"""Upkeep: the sweeps, dead workers, the leader and retention."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling, Verdict, after_wait
from daybell.core.limits import REAP_BATCH_MAX
from daybell.core.monitoring.stats import StatQuery
from daybell.core.views import Removed, Retention, Swept
from daybell.core.worker import WorkerState
from daybell.engine.events import Events, WorkerLost
from daybell.engine.loop import AGAIN, ManualClock
from daybell.engine.upkeep import (
    BATCH_MAX,
    DUTY_PAUSE_SECONDS,
    DUTY_SECONDS,
    EXPIRE_SECONDS,
    FOLD_SECONDS,
    LEADER_TERM_SECONDS,
    SWEEP_SECONDS,
    Janitor,
    Leader,
    Reaper,
    Upkeep,
)
from daybell.errors import ExecutionNotFound, Unavailable
from tests.builders import (
    LEASE,
    TENANT,
    a_step,
    add_tenants,
    apply,
    claimed,
    dead,
    defined,
    enqueued,
    finished,
    look,
    registered,
    states,
    success,
)
from tests.engine.faults import faulty
from tests.engine.tasks import a_store
from tests.engine.virtual import VirtualClock, in_virtual_time
from tests.sweeps import set_gates


@in_virtual_time
async def test_what_no_worker_asks_for_expires_all_the_same():
    store = await a_store()
    ids = await enqueued(store, BATCH_MAX + 1, queue="nobody", expires_in=5.0)
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(EXPIRE_SECONDS + 1)

    assert set(await states(store, ids)) == {State.SKIPPED}
    await upkeep.stop()


@in_virtual_time
async def test_what_waits_at_a_gate_is_let_in_soon_after_its_time_has_come():
    store = await a_store()
    await set_gates(store, TENANT, {"g": 1})
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(1)
    ids = await enqueued(store, gate="g", delay=2 * SWEEP_SECONDS)

    await asyncio.sleep(2 * SWEEP_SECONDS - 0.1)
    assert await states(store, ids) == [State.WAITING]
    await asyncio.sleep(SWEEP_SECONDS + 0.2)

    assert await states(store, ids) == [State.QUEUED]
    await upkeep.stop()


@in_virtual_time
async def test_what_has_waited_long_enough_for_an_event_goes_on_soon():
    store = await a_store()
    upkeep = Upkeep(store, clock=VirtualClock(), mint=mint, events=Events())
    upkeep.start()
    await asyncio.sleep(1)
    hands = await claimed(store)
    wait = a_step(hands.one, event="paid", timeout=2 * SWEEP_SECONDS)
    await store.runs.record(TENANT, worker=hands.worker, steps=[wait])
    await apply(store, hands, after_wait(hands.one, ran=0.0))

    await asyncio.sleep(2 * SWEEP_SECONDS - 0.1)
    assert await states(store, [hands.one.id]) == [State.WAITING]
    await asyncio.sleep(SWEEP_SECONDS + 0.2)

    assert await states(store, [hands.one.id]) == [State.QUEUED]
    await upkeep.stop()


# Taking work out of dead workers' hands.


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


def a_reaper(store, clock, observe: Callable[[Any], None] | None = None):
    events = Events()
    if observe:
        events.observe(observe)
    return Reaper(store, clock=clock, events=events)


async def test_living_workers_keep_what_they_have(store, clock):
    hands = await claimed(store, 2)
    reaper = a_reaper(store, clock)

    clock.advance(LEASE)

    assert await reaper.tick() is None
    assert await states(store, [one.id for one in hands.executions]) == [State.RUNNING] * 2


async def test_what_a_dead_worker_held_is_put_back_and_counted_as_a_crash(store, clock, caplog):
    seen = []
    hands = await claimed(store, 3)
    clock.advance(LEASE + 1)

    await a_reaper(store, clock, seen.append).tick()

    found = [await look(store, one.id) for one in hands.executions]
    assert [(e.state, e.attempt, e.crashes, e.failures) for e in found] == [
        (State.QUEUED, 2, 1, 0)
    ] * 3
    assert [type(event) for event in seen] == [WorkerLost] * 3
    assert f"worker {hands.worker} is gone; 3 executions were taken from it" in caplog.text
    assert [verdict.ruling for verdict in await apply(store, hands, success(hands.executions[0]))]


async def test_what_keeps_killing_its_workers_ends_dead(store, clock):
    await defined(store, "resize", max_crashes=2)
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE + 1)
    await reaper.tick()
    worker = await registered(store)
    await store.queue.claim(TENANT, worker=worker, lease=worker, queues=["default"], limit=1)

    clock.advance(LEASE + 1)
    await reaper.tick()

    found = await look(store, hands.one.id)
    assert (found.state, found.reason, found.crashes) == (State.DEAD, "worker_lost", 2)


async def test_a_job_that_must_not_start_twice_ends_dead_at_once(store, clock):
    await defined(store, "resize", on_lost="dead")
    hands = await claimed(store)
    clock.advance(LEASE + 1)

    await a_reaper(store, clock).tick()

    assert (await look(store, hands.one.id)).state is State.DEAD


async def test_several_workers_of_several_tenants_are_reaped_in_one_tick(store, clock):
    await add_tenants(store, ["acme"])
    hands = [await claimed(store, 2), await claimed(store, 1), await claimed(store, 2)]
    theirs = await claimed(store, 2, tenant="acme")
    clock.advance(LEASE + 1)

    await a_reaper(store, clock).tick()

    ids = [one.id for each in hands for one in each.executions]
    assert await states(store, ids) == [State.QUEUED] * 5
    assert (
        await states(store, [one.id for one in theirs.executions], tenant="acme")
        == [State.QUEUED] * 2
    )
    assert store.count("apply") == 4
    assert all(asked["wait"] is False for asked in store.asked("apply"))


async def test_a_full_batch_is_followed_by_another_at_once(store, clock):
    first = await claimed(store, REAP_BATCH_MAX)
    second = await claimed(store, 10)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE + 1)

    assert await reaper.tick() == AGAIN
    assert await reaper.tick() is None

    ids = [one.id for hands in (first, second) for one in hands.executions]
    assert set(await states(store, ids)) == {State.QUEUED}


async def test_rows_that_others_have_locked_are_left_for_the_next_time(store, clock, caplog):
    seen = []
    hands = await claimed(store, 2)
    busy, free = hands.executions
    moved = store.store.queue.apply

    async def half(tenant, *, worker, transitions, wait=True):
        others = [move for move in transitions if move.id != busy.id]
        verdicts = await moved(tenant, worker=worker, transitions=others, wait=wait)
        return [*verdicts, Verdict(busy.id, busy.attempt, Ruling.BUSY)]

    store.store.queue.apply = half
    reaper = a_reaper(store, clock, seen.append)
    clock.advance(LEASE + 1)

    assert await reaper.tick() is None
    assert await states(store, [busy.id, free.id]) == [State.RUNNING, State.QUEUED]
    assert "1 executions were taken" in caplog.text
    store.store.queue.apply = moved
    await reaper.tick()

    assert (await look(store, busy.id)).state is State.QUEUED
    assert [event.claimed.id for event in seen] == [free.id, busy.id]


async def test_what_was_to_be_cancelled_is_over_then(store, clock):
    seen = []
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    clock.advance(LEASE + 1)

    await a_reaper(store, clock, seen.append).tick()

    assert (await look(store, hands.one.id)).state is State.CANCELLED
    assert len(seen) == 1


async def test_two_reapers_take_each_execution_once(store, clock):
    hands = await claimed(store, 5)
    seen = []
    clock.advance(LEASE + 1)

    await asyncio.gather(
        a_reaper(store, clock, seen.append).tick(), a_reaper(store, clock, seen.append).tick()
    )

    found = [await look(store, one.id) for one in hands.executions]
    assert [(e.state, e.attempt, e.crashes) for e in found] == [(State.QUEUED, 2, 1)] * 5


async def test_after_an_outage_the_living_have_time_to_be_heard_of(store, clock):
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()
    clock.advance(LEASE + 1)  # nobody could renew
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()
    clock.advance(LEASE + 1)

    assert await reaper.tick() is None
    clock.advance(LEASE - 1)
    await reaper.tick()
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    clock.advance(2)
    await reaper.tick()
    assert (await look(store, hands.one.id)).state is State.RUNNING

    clock.advance(LEASE)
    await reaper.tick()
    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_one_answer_that_does_not_come_is_no_outage(store, clock):
    hands = await claimed(store)
    reaper = a_reaper(store, clock)
    clock.advance(LEASE - 1)
    await reaper.tick()
    store.fail("lost")
    with pytest.raises(Unavailable):
        await reaper.tick()

    clock.advance(2)
    await reaper.tick()

    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_the_living_have_the_time_of_their_own_lease(store, clock):
    worker = await registered(store)
    await store.queue.renew(TENANT, worker=worker, lease=300.0, leases=[])
    upkeep = Upkeep(store, clock=clock, mint=mint, events=Events(), lease=LEASE)
    store.fail("lost")
    with pytest.raises(Unavailable):
        await upkeep.reaper.tick()
    clock.advance(LEASE)
    await upkeep.reaper.tick()

    clock.advance(299)
    await upkeep.reaper.tick()
    assert [one.state for one in await store.catalog.list_workers(TENANT)] == [WorkerState.LIVE]
    clock.advance(2)
    await upkeep.reaper.tick()

    assert await store.catalog.list_workers(TENANT) == []


# The small lease for upkeep.


class Duty:
    """A duty that is done when its list of answers is used up."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.done = 0

    async def __call__(self):
        self.done += 1
        answer = self._answers.pop(0) if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_leader(store, clock, *duties):
    return Leader(store, holder=mint(), clock=clock, duties=duties)


async def test_one_of_several_leads(store, clock):
    first, second = Duty(), Duty()
    leaders = [a_leader(store, clock, first), a_leader(store, clock, second)]

    for _ in range(3):
        for leader in leaders:
            await leader.tick()
        clock.advance(LEADER_TERM_SECONDS / 3)

    assert [leader.epoch for leader in leaders] == [1, None]
    assert (first.done, second.done) == (1, 0)


async def test_who_resigns_is_followed_at_once(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()
    await other.tick()

    await one.resign()
    await other.tick()
    await one.tick()

    assert (one.epoch, other.epoch) == (None, 2)


async def test_who_does_not_lead_has_nothing_to_resign(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()
    await other.tick()

    await other.resign()

    assert store.count("resign") == 0


async def test_who_is_silent_is_followed_when_its_lease_has_ended(store, clock):
    one, other = a_leader(store, clock), a_leader(store, clock)
    await one.tick()

    clock.advance(LEADER_TERM_SECONDS + 1)
    await other.tick()
    await one.tick()

    assert (one.epoch, other.epoch) == (None, 2)


async def test_duties_are_done_once_a_period(store, clock):
    duty = Duty()
    leader = a_leader(store, clock, duty)

    done = []
    for _ in range(3):
        for _ in range(4):
            assert await leader.tick() is None
            clock.advance(DUTY_SECONDS / 4)
        done.append(duty.done)

    assert done == [1, 2, 3]


async def test_duties_are_repeated_soon_while_there_is_more(store, clock):
    long, short = Duty(True, True), Duty()
    leader = a_leader(store, clock, long, short)

    pauses = [await leader.tick() for _ in range(5)]

    assert pauses == [DUTY_PAUSE_SECONDS, DUTY_PAUSE_SECONDS, None, None, None]
    assert (long.done, short.done) == (3, 3)
    assert store.count("lead") == 5


async def test_a_duty_that_failed_is_done_at_the_next_tick(store, clock):
    duty = Duty(Unavailable("away"))
    leader = a_leader(store, clock, duty)

    with pytest.raises(Unavailable):
        await leader.tick()
    await leader.tick()
    await leader.tick()

    assert duty.done == 2


# Removing what is over and old.

DAY = 86400.0


async def test_what_is_old_is_removed_and_the_rest_is_kept(store, clock, caplog):
    caplog.set_level(logging.INFO)
    [old] = await finished(store)
    [letter] = await dead(store)
    clock.advance(2 * DAY)
    [recent] = await finished(store)
    [waiting] = await enqueued(store)

    assert await Janitor(store, Retention(finished=DAY)).clean() is False

    with pytest.raises(ExecutionNotFound):
        await look(store, old)
    for kept in (letter, recent, waiting):
        assert (await look(store, kept)).id == kept
    assert "removed" in caplog.text


async def test_with_nothing_to_remove_nothing_is_said(store, caplog):
    caplog.set_level(logging.INFO)

    assert await Janitor(store, Retention()).clean() is False

    assert caplog.messages == []


async def test_it_says_that_there_is_more(store):
    async def some(*, sweeps, policy):
        return Swept(removed=Removed(executions=1000, is_complete=False))

    store.store.upkeep = some

    assert await Janitor(store, Retention()).clean() is True


async def test_as_a_duty_it_cleans_once_a_period(store, clock):
    janitor = Janitor(store, Retention(finished=DAY))
    leader = Leader(store, holder=mint(), clock=clock, duties=[janitor.clean])

    for _ in range(10):
        await leader.tick()
        clock.advance(DUTY_SECONDS / 5)

    assert store.count("upkeep") == 4  # two sweeps each time


@in_virtual_time
async def test_the_process_that_leads_adds_ends_to_the_statistics():
    store = await a_store()
    processes = [Upkeep(store, clock=VirtualClock(), mint=mint, events=Events()) for _ in "ab"]
    for one in processes:
        one.start()
    await finished(store, 3)
    await asyncio.sleep(FOLD_SECONDS * 2 + 1)

    query = StatQuery(since=0.0, until=9e9 // 3600 * 3600, step=3600)
    rows = await store.catalog.read_stats(TENANT, query, with_unfinished=False)
    assert sum(tally.value("succeeded") or 0 for tally in rows.tallies.values()) == 3
    for one in processes:
        await one.stop()

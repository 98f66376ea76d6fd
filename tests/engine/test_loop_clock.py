"""The engine's idea of the store's time, and what becomes of it when that jumps."""

import pytest

from daybell.core.execution import State
from daybell.engine.events import Events
from daybell.engine.loop import JUMP_SECONDS, SystemClock
from daybell.engine.upkeep import Reaper
from daybell.errors import Unavailable
from daybell.store.sqlite import SqliteStore
from tests.builders import LEASE, TENANT, claimed, states
from tests.engine.faults import faulty


class Seconds:
    """Monotonic time that is moved by hand."""

    value = 100.0

    def __call__(self) -> float:
        return self.value


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def clock(seconds):
    clock = SystemClock(seconds)
    clock.correct(1_700_000_000.0, seconds())
    return clock


def test_the_stores_time_goes_on_between_its_answers(clock, seconds):
    assert clock.now() == 1_700_000_000.0
    seconds.value += 5
    assert clock.now() == 1_700_000_005.0


def test_an_answer_that_took_long_is_no_jump(clock, seconds, caplog):
    sent = seconds()
    seconds.value += 30
    clock.correct(1_700_000_001.0, sent)  # it was answered after one second, and heard much later

    assert clock.now() == 1_700_000_030.0
    assert clock.steady_since() == 1_700_000_000.0 and not caplog.records


@pytest.mark.parametrize("jump", [3600.0, -3600.0, JUMP_SECONDS + 0.1])
def test_a_jump_is_noticed_and_told(clock, seconds, caplog, jump):
    seconds.value += 1
    clock.correct(1_700_000_001.0 + jump, seconds())

    assert clock.now() == 1_700_000_001.0 + jump
    assert f"has jumped by {jump:+.1f} s" in caplog.text
    seconds.value += 7
    clock.correct(1_700_000_008.0 + jump, seconds())
    assert clock.steady_since() == 1_700_000_001.0 + jump


def test_the_first_answer_is_no_jump(seconds, caplog):
    clock = SystemClock(seconds)
    assert clock.steady_since() == float("inf")
    clock.correct(5.0, seconds())

    assert (clock.now(), clock.steady_since()) == (5.0, 5.0) and not caplog.records


async def test_nobody_is_taken_for_dead_because_the_stores_clock_has_jumped(clock, seconds):
    jumped = 0.0
    store = SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds() - 100.0 + jumped)
    await store.open()
    hands = await claimed(store)
    reaper = Reaper(store, clock=clock, events=Events(), lease=LEASE)

    async def sweep():
        await reaper.tick()
        return (await states(store, [hands.one.id]))[0]

    jumped = 3600.0
    assert await sweep() is State.RUNNING  # before anybody has noticed
    assert await sweep() is State.RUNNING
    seconds.value += LEASE - 1
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    seconds.value += 2
    assert await sweep() is State.RUNNING, "whoever lives has renewed meanwhile"

    seconds.value += LEASE
    assert await sweep() is State.QUEUED


async def test_a_node_that_has_just_started_buries_nobody_for_a_lease(seconds):
    jumped = 0.0
    store = SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds() + jumped)
    await store.open()
    living, dead = await claimed(store), await claimed(store)
    jumped = 3600.0  # and nobody was there to see it

    reaper = Reaper(store, clock=SystemClock(seconds), events=Events(), lease=LEASE)
    for _ in range(3):
        await reaper.tick()
        seconds.value += LEASE / 3 - 1
    await store.queue.renew(TENANT, worker=living.worker, lease=LEASE, leases=[living.lease])
    assert await states(store, [living.one.id, dead.one.id]) == [State.RUNNING] * 2

    seconds.value += 4
    await reaper.tick()
    assert await states(store, [living.one.id, dead.one.id]) == [State.RUNNING, State.QUEUED]


async def test_a_node_without_workers_sees_the_clock_go_back_and_forth(seconds):
    jumped = 0.0
    store = SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds() + jumped)
    await store.open()
    hands = await claimed(store)
    reaper = Reaper(store, clock=SystemClock(seconds), events=Events(), lease=LEASE)
    await reaper.tick()
    seconds.value += 2 * LEASE
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    await reaper.tick()

    jumped = -3600.0
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    await reaper.tick()
    jumped = 0.0  # all that was seen before seems to be true again
    for _ in range(2):
        seconds.value += 1
        await reaper.tick()

    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_an_answer_that_took_long_does_not_hide_what_the_clock_did_meanwhile(seconds):
    jumped = 0.0
    store = faulty(SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds() + jumped))
    await store.open()
    hands = await claimed(store)
    reaper = Reaper(store, clock=SystemClock(seconds), events=Events(), lease=LEASE)
    await reaper.tick()
    seconds.value += 4 * LEASE
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    await reaper.tick()

    def take_long() -> None:  # and the clock goes back and forth, nearly to where it was
        nonlocal jumped
        jumped = -(LEASE / 3)
        seconds.value += LEASE / 2

    jumped = -2 * LEASE
    seconds.value += 1
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    store.hook("lost", take_long)
    await reaper.tick()
    store.hook("lost", lambda: None)
    seconds.value += 1
    await reaper.tick()

    assert await states(store, [hands.one.id]) == [State.RUNNING]


@pytest.fixture
def node(seconds):
    """Make a process that looks for the dead; its machine's clock is anything."""

    def make(store):
        clock = SystemClock(seconds)
        clock._offset += 12_345
        return Reaper(store, clock=clock, events=Events(), lease=LEASE)

    return make


async def live(reaper, seconds, length, *, sweep=LEASE / 5):
    """Let it live for so long."""
    for _ in range(int(length / sweep)):
        await reaper.tick()
        seconds.value += sweep
    seconds.value += length % sweep


async def test_orphans_come_back_although_no_process_lives_for_a_whole_lease(seconds, node):
    store = SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds())
    await store.open()
    hands = await claimed(store)
    began, life = seconds(), 0.9 * LEASE

    while await states(store, [hands.one.id]) == [State.RUNNING]:
        assert seconds() - began < 3 * LEASE
        await live(node(store), seconds, life)
        seconds.value += 1

    assert seconds() - began > LEASE


async def test_a_jump_between_two_short_lives_takes_nobody_for_dead(seconds, node):
    jump = [0.0]
    store = SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds() + jump[0])
    await store.open()
    hands = await claimed(store)
    for _ in range(10):
        await live(node(store), seconds, LEASE / 5)
        jump[0] += 3600
        await live(node(store), seconds, LEASE / 5)
        jump[0] -= 1800
        await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])

    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_an_absence_of_the_store_is_not_watched_by_who_comes_after_it(seconds, node):
    store = faulty(SqliteStore.in_memory(clock=lambda: 1_700_000_000.0 + seconds()))
    await store.open()
    hands = await claimed(store)
    first = node(store)
    await live(first, seconds, 0.8 * LEASE)
    store.is_away = True
    for _ in range(10):
        with pytest.raises(Unavailable):
            await first.tick()
        seconds.value += LEASE / 5
    store.is_away = False
    await first.tick()

    await live(node(store), seconds, 0.9 * LEASE)

    assert await states(store, [hands.one.id]) == [State.RUNNING]

"""Claims: when, how many, each once, and from which queue first."""

import asyncio
from collections import Counter

import pytest

from daybell.core.execution import State
from daybell.engine.attempt import Stop
from daybell.engine.claim import (
    AHEAD_MAX,
    LIMITED_SECONDS,
    LIMITED_SECONDS_MAX,
    POLL_SECONDS,
    Queues,
)
from daybell.engine.loop import AGAIN, ManualClock
from daybell.errors import Unavailable, UsageError
from tests.builders import TENANT, claim, enqueued, look, states
from tests.engine.faults import faulty
from tests.engine.tasks import Log, Tasks, a_bench, a_store, endless, quick
from tests.engine.virtual import in_virtual_time, turns


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


async def test_slow_tasks_are_claimed_only_into_free_slots(store, clock):
    await enqueued(store, 30)
    bench = await a_bench(store, Tasks(resize=endless), concurrency=10, clock=clock)

    for _ in range(5):
        await bench.dispatcher.tick()
        clock.advance(1)
        await turns()

    assert store.count("claim") == 1
    assert len(bench.executor) == 10
    assert len((await claim(store, 100)).executions) == 20


async def test_fast_tasks_are_claimed_ahead_but_not_without_end(store, clock):
    await enqueued(store, 2000)
    bench = await a_bench(store, Tasks(resize=quick), concurrency=10, clock=clock)
    store.hook("claim", lambda: clock.advance(0.01))

    for _ in range(30):
        await bench.dispatcher.tick()
        assert len(bench.executor) <= 10
        await turns()

    limits = [asked["limit"] for asked in store.asked("claim")]
    assert limits[0] == 10
    assert 20 < limits[-1] <= 10 + AHEAD_MAX
    assert len(bench.ends) == len({move.id for _, move in bench.ends}) > 300


async def test_with_few_slots_fast_tasks_are_claimed_as_far_ahead_as_is_asked_for(store, clock):
    await enqueued(store, 2000)
    bench = await a_bench(store, Tasks(resize=quick), concurrency=2, ahead=0.5, clock=clock)
    store.hook("claim", lambda: clock.advance(0.01))

    for _ in range(30):
        await bench.dispatcher.tick()
        await turns()

    limits = [asked["limit"] for asked in store.asked("claim")]
    assert limits[0] == 2
    assert max(limits) > 50  # two claims' worth would be a few


async def test_a_slow_store_is_no_reason_to_take_more_of_slow_tasks_ahead(store, clock):
    release = asyncio.Event()

    async def slow(_):
        await release.wait()

    await enqueued(store, 500)
    bench = await a_bench(store, Tasks(resize=slow), concurrency=20, clock=clock)
    store.hook("claim", lambda: clock.advance(1.0))

    for _ in range(10):  # 20 starts a second, and claims that take as long
        await bench.dispatcher.tick()
        release.set()
        await bench.executor.wait()
        release.clear()

    assert {asked["limit"] for asked in store.asked("claim")} == {20}


async def test_a_tenant_at_its_quota_is_asked_again_as_soon_as_something_ends(store, clock):
    release = asyncio.Event()

    async def slow(_):
        await release.wait()

    await enqueued(store, 5)
    await store.admin.set_quotas(TENANT, running=2)
    bench = await a_bench(store, Tasks(resize=slow), concurrency=10, clock=clock)
    woken = asyncio.Event()
    bench.heard.woken = woken.set

    assert await bench.dispatcher.tick() == LIMITED_SECONDS
    assert len(bench.executor) == 2
    assert not woken.is_set()
    release.set()
    await turns()
    assert woken.is_set()

    await store.admin.set_quotas(TENANT, running=None)
    assert await bench.dispatcher.tick() == POLL_SECONDS  # the other three, and that is all


async def test_a_tenant_at_its_quota_is_asked_ever_less_often_until_something_ends_here(
    store, clock
):
    release = asyncio.Event()

    async def slow(_):
        await release.wait()

    await enqueued(store, 5)
    await store.admin.set_quotas(TENANT, running=1)
    bench = await a_bench(store, Tasks(resize=slow), concurrency=10, clock=clock)
    waits = [await bench.dispatcher.tick() for _ in range(6)]

    assert waits == [LIMITED_SECONDS, 0.2, 0.4, 0.8, LIMITED_SECONDS_MAX, LIMITED_SECONDS_MAX]
    release.set()
    await turns()
    await store.admin.set_quotas(TENANT, running=0)
    assert await bench.dispatcher.tick() == LIMITED_SECONDS


async def test_never_more_run_at_once_than_there_are_slots(store, clock):
    running, most = 0, 0

    async def task(_):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(running % 3 + 1):
            await asyncio.sleep(0)
        running -= 1

    await enqueued(store, 300)
    bench = await a_bench(store, Tasks(resize=task), concurrency=7, clock=clock)
    store.hook("claim", lambda: clock.advance(0.01))

    while len(bench.ends) < 300:
        await bench.dispatcher.tick()
        await turns()

    assert most == 7
    assert len({move.id for _, move in bench.ends}) == 300


async def test_a_full_claim_is_followed_by_another_at_once(store, clock):
    await enqueued(store, 25)
    bench = await a_bench(store, Tasks(resize=quick), concurrency=10, clock=clock)

    assert await bench.dispatcher.tick() == AGAIN
    await bench.executor.wait()
    assert await bench.dispatcher.tick() == AGAIN
    await bench.executor.wait()
    assert await bench.dispatcher.tick() == POLL_SECONDS


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_claim_without_an_answer_is_asked_again_by_its_lease(store, clock, is_committed):
    log = Log()
    ids = await enqueued(store, 5)
    bench = await a_bench(store, Tasks(resize=log), clock=clock)
    store.fail("claim", Unavailable("1"), Unavailable("2"), after=is_committed)

    for _ in range(2):
        with pytest.raises(Unavailable):
            await bench.dispatcher.tick()
    lease = store.asked("claim")[0]["lease"]
    assert bench.leases.known() == [lease]  # a renewal must not give it back meanwhile
    # More may be due than the claim took then: it is not known yet how long to sleep.
    assert await bench.dispatcher.tick() == AGAIN
    await bench.executor.wait()
    await bench.dispatcher.tick()

    leases = [asked["lease"] for asked in store.asked("claim")]
    assert leases[:3] == [lease] * 3 and leases[3] != lease
    assert sorted(log.ran) == sorted(ids)
    assert {move.lease for _, move in bench.ends} == {lease}


async def test_delayed_executions_start_on_time(store, clock):
    log = Log()
    [soon] = await enqueued(store, delay=0.25)
    [later] = await enqueued(store, delay=5.0)
    bench = await a_bench(store, Tasks(resize=log), clock=clock)

    pause = await bench.dispatcher.tick()
    assert pause == pytest.approx(0.25)
    clock.advance(pause)
    # The store cannot tell everybody of everything: there is a look at least once a second.
    assert await bench.dispatcher.tick() == POLL_SECONDS
    await bench.executor.wait()
    assert log.ran == [soon]
    clock.advance(4.25)
    assert await bench.dispatcher.tick() == pytest.approx(0.5)
    clock.advance(0.5)
    await bench.dispatcher.tick()
    await bench.executor.wait()

    assert log.ran == [soon, later]


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(store, clock):
    [id] = await enqueued(store, queue="mail")
    bench = await a_bench(store, Tasks(resize=quick), queues="mail,default", clock=clock)
    await store.catalog.pause_queue(TENANT, "mail", paused=True)

    assert await bench.dispatcher.tick() == POLL_SECONDS
    assert len(bench.executor) == 0
    await store.catalog.pause_queue(TENANT, "mail", paused=False)
    await bench.dispatcher.tick()
    await bench.executor.wait()

    assert [move.id for _, move in bench.ends] == [id]


async def test_an_end_makes_room_and_asks_for_more(store, clock):
    await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=quick), concurrency=1, clock=clock)
    woken = []
    bench.heard.woken = lambda: woken.append(len(bench.ends))

    await bench.dispatcher.tick()
    assert woken == []
    await bench.executor.wait()

    assert woken == [1]


async def test_closing_hands_over_what_was_not_started(store, clock):
    ids = await enqueued(store, 100)
    stop_here = asyncio.Event()

    async def task(_):
        if len(bench.ends) >= 40:
            await stop_here.wait()

    bench = await a_bench(store, Tasks(resize=task), concurrency=5, clock=clock)
    store.hook("claim", lambda: clock.advance(0.01))
    for _ in range(20):
        await bench.dispatcher.tick()
        await turns()

    unstarted = bench.dispatcher.close()

    in_hand = {claimed.id for claimed in unstarted} | {run.claimed.id for run in bench.executor}
    running = {id for id in ids if (await look(store, id)).state is State.RUNNING}
    assert unstarted and len(bench.executor) == 5
    assert in_hand | {move.id for _, move in bench.ends} == running
    assert bench.dispatcher.close() == []
    before = store.count("claim")
    assert await bench.dispatcher.tick() is None
    assert store.count("claim") == before


@in_virtual_time
async def test_a_claim_that_is_answered_after_closing_starts_nothing():
    store = faulty(await a_store())
    ids = await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=quick))
    gate = store.hold("claim")
    ticking = asyncio.ensure_future(bench.dispatcher.tick())
    await turns()

    assert bench.dispatcher.close() == []
    gate.set()
    await ticking

    assert {claimed.id for claimed in bench.dispatcher.close()} == set(ids)
    assert len(bench.executor) == 0
    assert await states(store, ids) == [State.RUNNING] * 3


@in_virtual_time
async def test_no_new_lease_is_asked_for_while_a_renewal_names_the_others():
    store = faulty(await a_store())
    await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=quick))

    woken = []
    bench.heard.named = lambda: woken.append(True)
    with bench.leases.naming() as named:
        await bench.dispatcher.tick()
        assert (named, bench.leases.known(), woken) == ([], [], [])
    assert store.count("claim") == 0

    assert woken == [True]
    await bench.dispatcher.tick()
    assert store.count("claim") == 1
    with bench.leases.naming():
        pass
    assert woken == [True], "nobody waited this time"


async def test_nothing_is_started_from_an_answer_that_came_after_the_lease(store, clock):
    log, lost = Log(), []
    await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=log), clock=clock)
    bench.heard.lost = lambda: lost.append(clock.monotonic())
    bench.executor.held_until = clock.monotonic() + 12.0
    store.hook("claim", lambda: clock.advance(12.0))  # the process stands still

    await bench.dispatcher.tick()
    await turns()

    assert (len(lost), log.ran) == (1, [])


async def test_nothing_begins_that_was_started_just_before_the_process_stood_still(store, clock):
    log = Log()
    await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=log), clock=clock)
    bench.heard.lost = lambda: bench.executor.stop_all(Stop.ABANDON)
    bench.executor.held_until = clock.monotonic() + 12.0

    await bench.dispatcher.tick()
    clock.advance(12.0)
    await turns()

    assert (log.ran, bench.ends, len(bench.executor)) == ([], [], 0)


# Which queue is asked first.


def test_without_any_it_is_the_default_queue():
    assert Queues.parse("").order() == ["default"]


def test_names_and_weights_are_read():
    queues = Queues.parse(" mail = 3, default ,,reports=2")

    assert queues.names == ("mail", "default", "reports")


def test_every_order_has_every_queue():
    queues = Queues.parse("a=5,b,c=2")

    assert all(sorted(queues.order()) == ["a", "b", "c"] for _ in range(100))


def test_a_queue_is_first_as_often_as_its_weight_says():
    queues = Queues.parse("mail=3,default=1,bulk=6")

    first = Counter(queues.order()[0] for _ in range(1000))

    assert first == {"mail": 300, "default": 100, "bulk": 600}


def test_turns_are_spread_and_not_taken_in_a_row():
    queues = Queues.parse("a=5,b=1,c=1")

    first = "".join(queues.order()[0] for _ in range(7))

    assert first == "aabacaa"


@pytest.mark.parametrize(
    "text",
    [
        "mail=",
        "mail=x",
        "mail=-1",
        "mail=0",
        "mail=1001",
        "mail=1.5",
        "mail=3=4",
        "=3",
        "mail=" + "9" * 5000,
        "a/b",
        "-mail",
        "mail,mail=2",
    ],
)
def test_what_is_no_list_of_queues_is_refused(text):
    with pytest.raises(UsageError):
        Queues.parse(text)

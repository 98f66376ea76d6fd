"""Taking work: what, in which order, and never twice."""

import pytest

from daybell.core.execution import Priority, State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.errors import LeaseLost, UsageError
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    enqueued,
    look,
    registered,
    retry,
    states,
    success,
)

EVERYTHING = ExecutionFilter()


def ids(hands):
    return [one.id for one in hands.executions]


async def test_a_claimed_execution_carries_all_that_a_worker_needs(store, clock):
    await defined(store, "call", kind="http", queue="web", expires=60.0)
    worker, lease = await registered(store), mint()
    new = an_execution(
        "call",
        args='{"n": 1}',
        priority=Priority.HIGH,
        retries=4,
        timeout=2.5,
        scheduled_for=clock.now() - 5,
    )
    await store.queue.enqueue(TENANT, [new])
    await clock.advance(3)

    answer = await store.queue.claim(
        TENANT, worker=worker, lease=lease, queues=["web"], limit=5, kinds=["http"]
    )

    assert (answer.lease, answer.now) == (lease, clock.now())
    (one,) = answer.executions
    assert (one.id, one.attempt, one.lease) == (new.id, 1, lease)
    assert (one.tenant, one.job, one.version, one.kind) == (TENANT, "call", 1, "http")
    assert (one.queue, one.priority, one.args) == ("web", Priority.HIGH, '{"n": 1}')
    assert (one.failures, one.crashes) == (0, 0)
    assert one.created_at == one.run_at == clock.now() - 3
    assert (one.expires_at, one.scheduled_for) == (clock.now() + 57, new.scheduled_for)
    assert (one.retries, one.timeout) == (4, 2.5)
    assert (one.checkpoint, one.gate, one.cancel_requested) == (None, None, False)


async def test_a_claimed_execution_is_running_in_its_workers_hands(store):
    hands = await claimed(store)

    seen = await look(store, hands.one.id)

    assert (seen.state, seen.worker) == (State.RUNNING, hands.worker)
    assert (seen.started_at, seen.finished_at, seen.outcome) == (None, None, None)


async def test_no_execution_is_given_to_two_claims(store):
    await enqueued(store, 10)

    first = await claim(store, 4)
    second = await claim(store, 4)
    third = await claim(store, 4)

    taken = ids(first) + ids(second) + ids(third)
    assert len(taken) == len(set(taken)) == 10
    assert (await claim(store)).executions == []


async def test_a_claim_takes_no_more_than_asked_for(store):
    await enqueued(store, 5)

    hands = await claim(store, 2)

    assert len(hands.executions) == 2
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {
        State.QUEUED: 3,
        State.RUNNING: 2,
    }


async def test_better_priorities_go_first_whatever_their_age_and_queue(store, clock):
    await defined(store)
    wanted = {}
    for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL):
        queue = "b" if priority is Priority.CRITICAL else "a"
        (wanted[priority],) = await enqueued(store, priority=priority, queue=queue)
        await clock.advance(1)

    hands = await claim(store, queues=["a", "b"])

    assert ids(hands) == [wanted[priority] for priority in sorted(Priority)]


async def test_within_a_priority_queues_go_in_the_order_given(store, clock):
    (late,) = await enqueued(store, queue="b")
    await clock.advance(1)
    (early,) = await enqueued(store, queue="a")

    first = await claim(store, 1, queues=["a", "b"])
    second = await claim(store, 1, queues=["a", "b"])

    assert (ids(first), ids(second)) == ([early], [late])


async def test_within_a_queue_the_oldest_time_goes_first(store, clock):
    (third,) = await enqueued(store, delay=3.0)
    (first,) = await enqueued(store, delay=1.0)
    (second,) = await enqueued(store, delay=2.0)
    await clock.advance(5)

    assert ids(await claim(store)) == [first, second, third]


async def test_of_the_same_time_the_older_id_goes_first(store):
    wanted = await enqueued(store, 5)

    assert ids(await claim(store)) == wanted


async def test_the_order_holds_over_many_claims(store, clock):
    wanted = []
    for _ in range(4):
        wanted += await enqueued(store, 3)
        await clock.advance(1)

    taken = [id for _ in range(6) for id in ids(await claim(store, 2))]

    assert taken == wanted


async def test_only_the_queues_asked_for_give_anything(store):
    (wanted,) = await enqueued(store, queue="a")
    await enqueued(store, queue="b")

    assert ids(await claim(store, queues=["a", "nothing"])) == [wanted]
    assert ids(await claim(store, queues=[])) == []


async def test_only_the_kinds_asked_for_are_given(store):
    await defined(store, "http", kind="http")
    await defined(store, "flow", kind="workflow")
    (task,) = await enqueued(store)
    (http,) = await enqueued(store, job="http")
    await enqueued(store, job="flow")

    assert ids(await claim(store)) == [task]
    assert ids(await claim(store, kinds=["task", "http"])) == [http]
    assert ids(await claim(store, kinds=[])) == []


async def test_kinds_of_one_queue_share_its_order(store, clock):
    await defined(store, "http", kind="http")
    wanted = []
    for job in ("http", "resize", "resize", "http"):
        wanted += await enqueued(store, job=job)
        await clock.advance(1)

    taken = [id for _ in range(4) for id in ids(await claim(store, 1, kinds=["task", "http"]))]

    assert taken == wanted


async def test_a_future_execution_is_not_given(store, clock):
    await enqueued(store, delay=5.0)
    await clock.advance(4.5)

    assert ids(await claim(store)) == []


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(store):
    (id,) = await enqueued(store)
    worker = await registered(store)

    await store.catalog.pause_queue(TENANT, "default", paused=True)
    assert ids(await claim(store, worker=worker)) == []

    await store.catalog.pause_queue(TENANT, "default", paused=False)
    assert ids(await claim(store, worker=worker)) == [id]


async def test_a_draining_worker_gets_nothing_more(store):
    await enqueued(store)
    worker = await registered(store)

    await store.queue.drain(TENANT, worker)

    assert ids(await claim(store, worker=worker)) == []


async def test_an_unknown_worker_has_lost_its_lease(store):
    await enqueued(store)

    with pytest.raises(LeaseLost):
        await claim(store, worker=mint())


async def test_a_dead_worker_has_lost_its_lease(store):
    (id,) = await enqueued(store)
    worker = await registered(store)
    await store.queue.retire(TENANT, worker)

    with pytest.raises(LeaseLost):
        await claim(store, worker=worker)

    assert await states(store, [id]) == [State.QUEUED]


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_claim_asks_for_one_at_least(store, limit):
    worker = await registered(store)

    with pytest.raises(UsageError):
        await claim(store, limit, worker=worker)


async def test_asking_again_under_a_lease_gives_the_same_and_no_more(store):
    await enqueued(store, 3)
    first = await claim(store, 2)

    again = await claim(store, 2, worker=first.worker, lease=first.lease)

    assert sorted(again.executions, key=by_id) == sorted(first.executions, key=by_id)
    assert len(ids(await claim(store))) == 1


async def test_asking_again_leaves_out_what_has_ended(store):
    hands = await claimed(store, 4)
    done, retried, *unfinished = hands.executions
    await apply(store, hands, success(done), retry(retried, delay=0.0))

    again = await claim(store, worker=hands.worker, lease=hands.lease)

    assert sorted(ids(again)) == sorted(one.id for one in unfinished)


async def test_asking_again_is_answered_for_a_draining_worker(store):
    hands = await claimed(store, 2)
    await store.queue.drain(TENANT, hands.worker)

    again = await claim(store, worker=hands.worker, lease=hands.lease)

    assert sorted(ids(again)) == sorted(ids(hands))


async def test_asking_again_tells_that_cancelling_was_asked_for(store):
    hands = await claimed(store, 2)
    await store.queue.cancel(TENANT, [hands.executions[0].id])

    again = await claim(store, worker=hands.worker, lease=hands.lease)

    asked = {one.id: one.cancel_requested for one in again.executions}
    assert asked == {hands.executions[0].id: True, hands.executions[1].id: False}


async def test_a_lease_that_took_nothing_can_be_used_again(store):
    worker, lease = await registered(store), mint()
    await claim(store, worker=worker, lease=lease)
    (id,) = await enqueued(store)

    assert ids(await claim(store, worker=worker, lease=lease)) == [id]


async def test_another_workers_lease_gives_nothing(store):
    hands = await claimed(store)
    (waiting,) = await enqueued(store)

    stolen = await claim(store, lease=hands.lease)

    assert ids(stolen) == []
    assert await states(store, [hands.one.id, waiting]) == [State.RUNNING, State.QUEUED]
    assert (await look(store, hands.one.id)).worker == hands.worker


async def test_a_worker_can_hold_several_leases(store):
    worker = await registered(store)
    first = await claimed(store, 2, worker=worker)

    second = await claimed(store, 3, worker=worker)

    assert first.lease != second.lease
    assert (await store.catalog.list_workers(TENANT))[0].running == 5


async def test_the_next_due_time_is_the_earliest_that_such_a_claim_could_take(store, clock):
    await defined(store, "http", kind="http")
    await enqueued(store, queue="a", delay=20.0)
    await enqueued(store, queue="a", delay=10.0)
    await enqueued(store, queue="b", delay=5.0)
    await enqueued(store, queue="a", job="http", delay=1.0)

    now = clock.now()
    assert (await claim(store, queues=["a"])).next_due == now + 10
    assert (await claim(store, queues=["a", "b"])).next_due == now + 5
    assert (await claim(store, queues=["a"], kinds=["http"])).next_due == now + 1
    assert (await claim(store, queues=["a"], kinds=["task", "http"])).next_due == now + 1
    assert (await claim(store, queues=["nothing"])).next_due is None


async def test_a_resumed_queue_gives_the_best_and_the_oldest_first(store, clock):
    worker = await registered(store)
    await defined(store)
    await claim(store, worker=worker)
    await store.catalog.pause_queue(TENANT, "default", paused=True)
    old = await enqueued(store, 2)
    urgent = await enqueued(store, priority=Priority.HIGH)
    for _ in range(2):
        await clock.advance(0.3)
        assert (await claim(store, worker=worker)).executions == []
    young = await enqueued(store)

    await store.catalog.pause_queue(TENANT, "default", paused=False)
    started = [(await claim(store, 1, worker=worker)).executions[0].id for _ in range(4)]

    assert started == [*urgent, *old, *young]


async def test_what_is_claimed_or_finished_or_paused_is_not_due(store, clock):
    hands = await claimed(store)
    assert (await claim(store)).next_due is None

    await apply(store, hands, retry(hands.one, delay=30.0))
    assert (await claim(store)).next_due == clock.now() + 30

    await store.catalog.pause_queue(TENANT, "default", paused=True)
    assert (await claim(store)).next_due is None


def by_id(one):
    return one.id


async def test_a_claim_that_comes_back_short_says_when_the_next_one_is_due(store, clock):
    await enqueued(store, 1)
    await enqueued(store, 1, delay=30.0)
    await enqueued(store, 1, delay=10.0)
    worker = await registered(store)

    claim = await store.queue.claim(
        TENANT, worker=worker, lease=mint(), queues=["default"], limit=5
    )

    assert len(claim.executions) == 1
    assert claim.next_due == pytest.approx(clock.now() + 10.0, abs=1.0)


async def test_a_full_claim_or_one_with_nothing_to_come_names_no_time(store):
    await enqueued(store, 2)
    worker = await registered(store)

    full = await store.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=1)
    last = await store.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=5)

    assert full.next_due is None
    assert last.next_due is None

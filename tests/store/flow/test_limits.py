"""Limits: so many run at a time, of a job, of a key, and of a name that jobs share."""

import asyncio
from math import inf

import pytest

from daybell.core.execution import State
from daybell.core.flow import ConcurrencyOption, LimitChange, RateOption
from daybell.core.lifecycle import after_release
from tests.builders import (
    TENANT,
    a_job,
    a_report,
    an_execution,
    apply,
    claim,
    death,
    enqueued,
    look,
    registered,
    retry,
    states,
    success,
)
from tests.sweeps import retain

CANCELLED, QUEUED, RETRYING, RUNNING = State.CANCELLED, State.QUEUED, State.RETRYING, State.RUNNING
SKIPPED, WAITING = State.SKIPPED, State.WAITING


def at_most(limit, **options):
    return (ConcurrencyOption(limit=limit, **options),)


async def limited(store, name="resize", *, concurrency=None, **options):
    """A job with limits."""
    job = a_job(name, concurrency=at_most(2) if concurrency is None else concurrency, **options)
    return await store.catalog.define_jobs(TENANT, [job])


def ids(hands):
    return [one.id for one in hands.executions]


async def test_no_more_run_at_a_time_than_the_limit(store):
    await limited(store)
    asked = await enqueued(store, 5)

    first = await claim(store)
    second = await claim(store)

    assert ids(first) == asked[:2]
    assert first.executions[0].kind == "task"
    assert ids(second) == []
    assert await states(store, asked) == [RUNNING, RUNNING, WAITING, WAITING, WAITING]
    assert (await look(store, asked[2])).reason == "limit"


async def test_each_end_admits_the_next(store):
    await limited(store)
    asked = await enqueued(store, 4)
    first = await claim(store)

    assert await apply(store, first, success(first.executions[0])) == []

    assert ids(await claim(store)) == asked[2:3]
    assert await apply(store, first, success(first.executions[1])) == []
    assert ids(await claim(store)) == asked[3:]


async def test_a_limit_is_held_only_while_a_worker_has_the_execution(store, clock):
    await limited(store, concurrency=at_most(1))
    asked = await enqueued(store, 2)
    first = await claim(store)

    await apply(store, first, retry(first.one, delay=10))
    second = await claim(store)
    assert ids(second) == asked[1:]
    assert await states(store, asked) == [RETRYING, RUNNING]

    await clock.advance(10)
    assert ids(await claim(store)) == []
    await apply(store, second, success(second.one))
    third = await claim(store)
    assert ids(third) == asked[:1]
    assert third.one.attempt == 2


async def test_a_released_execution_gives_its_slot_to_the_next(store, clock):
    await limited(store, concurrency=at_most(1))
    asked = await enqueued(store, 2)
    first = await claim(store)

    await apply(store, first, after_release(first.one, delay=0.0))

    # It asked first, and gets the slot again.
    assert ids(await claim(store)) == asked[:1]


async def test_the_slots_of_a_lost_worker_are_released(store, clock):
    await limited(store)
    asked = await enqueued(store, 3)
    worker = await registered(store, lease=10)
    await claim(store, worker=worker)
    await clock.advance(30)

    lost = (await store.queue.lost()).executions
    assert {one.claimed.id for one in lost} == set(asked[:2])
    assert ids(await claim(store)) == []
    moves = [after_release(one.claimed) for one in lost]
    await store.queue.apply(TENANT, worker=worker, transitions=moves, wait=False)
    await clock.advance(3)

    assert len(ids(await claim(store))) == 2


async def test_each_value_of_a_key_has_a_limit_of_its_own(store):
    await limited(store, concurrency=at_most(1, key="order.account"))
    new = [
        an_execution(args=f'{{"order": {{"account": {account}}}}}')
        for account in ('"a"', '"a"', '"b"', "7", '"7"', "null", "null")
    ]
    await store.queue.enqueue(TENANT, new)

    hands = await claim(store)

    # A number and the text of it are one value.
    assert sorted(ids(hands)) == sorted(new[n].id for n in (0, 2, 3, 5))


async def test_jobs_that_name_a_limit_share_it(store):
    await limited(store, "charge", concurrency=at_most(2, name="stripe"), queue="a")
    await limited(store, "refund", concurrency=at_most(2, name="stripe"), queue="b")
    charges = await enqueued(store, 2, job="charge")
    refunds = await enqueued(store, 2, job="refund")

    first = await claim(store, queues=["a"])
    assert ids(first) == charges
    worker = await registered(store)
    assert ids(await claim(store, worker=worker, queues=["b"])) == []
    assert await states(store, refunds) == [WAITING, WAITING]
    await apply(store, first, *map(success, first.executions))

    assert ids(await claim(store, worker=worker, queues=["b"])) == refunds


async def test_an_execution_takes_all_of_its_limits_or_none(store):
    both = (*at_most(1, key="a"), *at_most(1, key="b"))
    await limited(store, concurrency=both)
    new = [an_execution(args=f'{{"a": {a}, "b": {b}}}') for a, b in ((1, 1), (1, 2), (3, 2))]
    await store.queue.enqueue(TENANT, new)

    hands = await claim(store)

    # The second waits for a=1. Meanwhile it does not have b=2, which the third takes.
    assert ids(hands) == [new[0].id, new[2].id]
    await apply(store, hands, success(hands.executions[0]))
    assert ids(await claim(store)) == []
    await apply(store, hands, success(hands.executions[1]))
    assert ids(await claim(store)) == [new[1].id]


async def test_an_unlimited_job_of_the_queue_does_not_wait_behind_limited_ones(store):
    await limited(store, concurrency=at_most(1))
    asked = await enqueued(store, 50)
    plain = await enqueued(store, 2, job="plain")

    assert set(ids(await claim(store))) == {asked[0], *plain}


async def test_the_best_priority_is_admitted_first_and_then_the_oldest(store):
    await limited(store, concurrency=at_most(1))
    low = await enqueued(store, 1, priority=3)
    first = await claim(store)
    normal = await enqueued(store, 2, priority=2)
    critical = await enqueued(store, 1, priority=0)
    assert ids(first) == low

    order = []
    hands = first
    for _ in range(3):
        await apply(store, hands, success(hands.one))
        hands = await claim(store)
        order += ids(hands)

    assert order == [*critical, *normal]


@pytest.mark.parametrize("is_admitted", [True, False])
async def test_a_cancelled_execution_leaves_no_slot_behind(store, clock, is_admitted):
    await limited(store, concurrency=at_most(1))
    asked = await enqueued(store, 3)
    hands = await claim(store, 0 + 1)
    victim = asked[1]
    if is_admitted:
        # Admitted by a claim that takes nothing more, then cancelled before a worker has it.
        await apply(store, hands, success(hands.one))
        worker = await registered(store)
        await store.catalog.pause_queue(TENANT, "other", paused=True)
        await claim(store, worker=worker, kinds=["command"])

    await store.queue.cancel(TENANT, [victim])
    if not is_admitted:
        await apply(store, hands, success(hands.one))
    await clock.advance(3)

    assert ids(await claim(store)) == asked[2:]
    assert (await look(store, victim)).state is CANCELLED


async def test_a_full_limit_may_skip_the_new_execution(store):
    await limited(store, concurrency=at_most(1), on_full="skip")
    asked = await enqueued(store, 2)

    assert ids(await claim(store)) == asked[:1]
    skipped = await look(store, asked[1])
    assert (skipped.state, skipped.reason) == (SKIPPED, "limit")


async def test_a_full_limit_may_cancel_the_oldest(store, clock):
    await limited(store, concurrency=at_most(1), on_full="cancel_oldest")
    (first,) = await enqueued(store, 1)
    hands = await claim(store)
    (second,) = await enqueued(store, 1)
    assert ids(await claim(store)) == []
    (third,) = await enqueued(store, 1)
    assert ids(await claim(store)) == []

    assert await states(store, [first, second, third]) == [RUNNING, CANCELLED, WAITING]
    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60, leases=[hands.lease])
    assert renewal.cancel == ((first, 1),)
    await apply(store, hands, success(hands.one))
    assert ids(await claim(store)) == [third]


async def test_the_oldest_of_jobs_without_the_rule_is_never_cancelled(store):
    await limited(store, "patient", concurrency=at_most(2, name="shared"))
    hasty = {"concurrency": at_most(2, name="shared"), "on_full": "cancel_oldest"}
    await limited(store, "hasty", **hasty)
    (patient,) = await enqueued(store, 1, job="patient")
    hands = await claim(store)
    (older,) = await enqueued(store, 1, job="hasty")
    taken = await claim(store)
    (waits,) = await enqueued(store, 1, job="patient")
    await claim(store)

    (newer,) = await enqueued(store, 1, job="hasty")
    await claim(store)

    renewals = [
        await store.queue.renew(TENANT, worker=one.worker, lease=60, leases=[one.lease])
        for one in (hands, taken)
    ]
    assert [one.cancel for one in renewals] == [(), ((older, 1),)]
    assert await states(store, [patient, waits, newer]) == [RUNNING, WAITING, WAITING]


async def test_a_full_limit_may_keep_only_the_newest_that_waits(store):
    await limited(store, concurrency=at_most(1), on_full="keep_newest")
    (first,) = await enqueued(store, 1)
    hands = await claim(store)
    some = await enqueued(store, 2)
    await claim(store)
    (last,) = await enqueued(store, 1)
    await claim(store)

    assert await states(store, [*some, last]) == [SKIPPED, SKIPPED, WAITING]
    assert ids(hands) == [first]
    await apply(store, hands, success(hands.one))
    assert ids(await claim(store)) == [last]


async def test_a_job_that_keeps_the_newest_leaves_those_of_other_jobs_waiting(store):
    await limited(store, "patient", concurrency=at_most(1, name="shared"))
    await limited(store, "hasty", concurrency=at_most(1, name="shared"), on_full="keep_newest")
    await enqueued(store, 1, job="patient")
    hands = await claim(store)
    (waits,) = await enqueued(store, 1, job="patient")
    await claim(store)
    (older,) = await enqueued(store, 1, job="hasty")
    await claim(store)
    (newer,) = await enqueued(store, 1, job="hasty")
    await claim(store)

    assert len(hands.executions) == 1
    assert await states(store, [waits, older, newer]) == [WAITING, SKIPPED, WAITING]


async def test_a_delayed_execution_asks_for_its_limits_when_it_is_due(store, clock):
    await limited(store, concurrency=at_most(1))
    (later,) = await enqueued(store, 1, delay=30.0)
    (now,) = await enqueued(store, 1)

    hands = await claim(store)
    assert ids(hands) == [now]
    await apply(store, hands, success(hands.one))
    idle = await claim(store)
    assert idle.next_due == clock.now() + 30
    await clock.advance(30)

    assert ids(await claim(store)) == [later]


async def test_a_dead_letter_that_runs_again_asks_for_its_limits(store):
    await limited(store, concurrency=at_most(1))
    (letter,) = await enqueued(store, 1)
    hands = await claim(store)
    await apply(store, hands, death(hands.one))
    (other,) = await enqueued(store, 1)
    hands = await claim(store)

    await store.queue.revive(TENANT, [letter])

    assert ids(await claim(store)) == []
    await apply(store, hands, success(hands.one))
    assert ids(await claim(store)) == [letter]
    assert ids(hands) == [other]


async def test_admitted_work_that_no_live_worker_takes_gives_way(store, clock):
    shared = at_most(1, name="stripe")
    await limited(store, "charge", concurrency=shared, queue="a")
    await limited(store, "refund", concurrency=shared, queue="b")
    (charge,) = await enqueued(store, 1, job="charge")
    # The worker of queue a asks, admits its execution, and dies before it takes it.
    gone = await registered(store, lease=1)
    await claim(store, worker=gone, limit=1, queues=["a"], kinds=["task"])
    (refund,) = await enqueued(store, 1, job="refund")
    await clock.advance(60)
    lost = (await store.queue.lost()).executions
    moves = [after_release(one.claimed) for one in lost]
    await store.queue.apply(TENANT, worker=gone, transitions=moves, wait=False)
    await clock.advance(3)

    assert ids(await claim(store, queues=["b"])) == [refund]
    assert (await look(store, charge)).state in (QUEUED, WAITING)


async def test_two_stores_never_admit_one_too_many(crowd):
    first, *others = crowd
    await limited(first, concurrency=at_most(3))
    asked = await enqueued(first, 40)
    running, most, done = 0, 0, []

    async def work(store):
        nonlocal running, most
        worker = await registered(store)
        for _ in range(60):
            hands = await claim(store, worker=worker, limit=2)
            running += len(hands.executions)
            most = max(most, running)
            await asyncio.sleep(0)
            running -= len(hands.executions)
            done.extend(ids(hands))
            await apply(store, hands, *map(success, hands.executions))

    await asyncio.gather(*(work(store) for store in [first, *others]))

    assert most <= 3
    assert len(set(done)) == len(done)
    assert len(done) == len(asked)


def at_rate(rate, **options):
    return (RateOption(rate=rate, **options),)


async def test_no_window_sees_more_starts_than_the_rate(store, clock):
    await limited(store, concurrency=(), rate=at_rate("2/m"))
    asked = await enqueued(store, 5)

    first = await claim(store)
    assert ids(first) == asked[:2]
    await clock.advance(30)
    # They began ten seconds ago: the window begins there, however late that is reported.
    await apply(store, first, *(success(one, ran=10.0) for one in first.executions))
    idle = await claim(store)
    assert ids(idle) == []
    assert idle.next_due == pytest.approx(min(clock.now() + 2, clock.now() + 50), abs=0.01)
    await clock.advance(50)
    assert ids(await claim(store)) == []
    await clock.advance(1)
    assert ids(await claim(store)) == asked[2:4]


async def test_a_long_execution_counts_from_its_reported_start(store, clock):
    await limited(store, concurrency=(), rate=at_rate("1/m"))
    asked = await enqueued(store, 2)
    hands = await claim(store)
    await clock.advance(5)
    report = a_report(hands.one, ran=4.0)
    await store.queue.report(TENANT, worker=hands.worker, reports=[report])

    await clock.advance(55)
    assert ids(await claim(store)) == []
    await clock.advance(3)
    assert ids(await claim(store)) == asked[1:]


async def test_a_burst_bounds_how_many_start_at_once(store, clock):
    await limited(store, concurrency=(), rate=at_rate("6/m", burst=2))
    asked = await enqueued(store, 6)

    hands = await claim(store)
    assert ids(hands) == asked[:2]
    await apply(store, hands, *(success(one, ran=0.0) for one in hands.executions))
    await clock.advance(19)
    assert ids(await claim(store)) == []
    await clock.advance(2)
    assert ids(await claim(store)) == asked[2:4]


async def test_time_in_which_nothing_runs_is_not_saved_up(store, clock):
    await limited(store, concurrency=(), rate=at_rate("2/m"))
    asked = await enqueued(store, 9)
    await clock.advance(3600)

    assert ids(await claim(store)) == asked[:2]


async def test_a_start_may_cost_more_than_one(store):
    await limited(store, concurrency=(), rate=at_rate("10/m", cost="pages"))
    new = [an_execution(args=f'{{"pages": {pages}}}') for pages in (6, 5, 4)]
    await store.queue.enqueue(TENANT, new)

    # The second does not fit. The third does, and is not held up by it.
    assert ids(await claim(store)) == [new[0].id, new[2].id]


async def test_a_limit_can_be_changed_and_lowering_ends_nothing(store):
    await limited(store)
    asked = await enqueued(store, 8)
    hands = await claim(store)

    assert await store.catalog.change_limit(TENANT, "resize", LimitChange(limit=5))
    more = await claim(store)
    assert ids(more) == asked[2:5]
    await store.catalog.change_limit(TENANT, "resize", LimitChange(limit=1))
    await apply(store, hands, *map(success, hands.executions))
    assert ids(await claim(store)) == []
    assert await states(store, ids(more)) == [RUNNING] * 3
    await store.catalog.change_limit(TENANT, "resize", LimitChange(limit=None))
    await apply(store, more, success(more.executions[0]))
    assert ids(await claim(store)) == []
    await apply(store, more, success(more.executions[1]))
    assert ids(await claim(store)) == asked[5:6]
    assert not await store.catalog.change_limit(TENANT, "nothing", LimitChange(limit=5))


@pytest.mark.parametrize("item", [None, "a"])
async def test_a_paused_limit_starts_nothing_until_then(store, clock, item):
    await limited(store, concurrency=at_most(1, key="k"))
    new = [an_execution(args=f'{{"k": "{k}"}}') for k in "ab"]
    await store.catalog.change_limit(TENANT, "resize:k", LimitChange(pause=30.0, item=item))
    await store.queue.enqueue(TENANT, new)

    assert ids(await claim(store)) == ([] if item is None else [new[1].id])
    await clock.advance(29)
    assert ids(await claim(store)) == []
    await clock.advance(1)
    assert ids(await claim(store))[:1] == [new[0].id]


async def test_a_limit_that_is_paused_without_an_end_is_resumed(store, clock):
    await limited(store)
    await store.catalog.change_limit(TENANT, "resize", LimitChange(pause=inf))
    asked = await enqueued(store, 1)
    await clock.advance(10**6)
    assert ids(await claim(store)) == []

    (shown,) = await store.catalog.list_limits(TENANT)
    assert shown.paused_until == inf
    await store.catalog.change_limit(TENANT, "resize", LimitChange(pause=None))
    assert ids(await claim(store)) == asked


async def test_limits_are_listed_with_their_numbers(store, clock):
    await limited(store, concurrency=at_most(2, key="k"), rate=at_rate("3/m", key="k"))
    new = [an_execution(args=f'{{"k": "{k}"}}') for k in "aaabc"]
    await store.queue.enqueue(TENANT, new)
    await claim(store)

    (shown,) = await store.catalog.list_limits(TENANT)
    assert (shown.name, shown.terms.limit, shown.held, shown.waiting, shown.items) == (
        "resize:k", 2, 4, 1, 3,
    )  # fmt: skip
    (one,) = await store.catalog.list_limits(TENANT, "resize:k")
    first = one.buckets[0]
    assert (first.item, first.held, first.waiting, first.starts) == ("a", 2, 1, (0,))
    assert first.holders == (new[0].id, new[1].id)
    assert await store.catalog.list_limits(TENANT, "none") == []


async def test_a_waiting_execution_knows_its_limit_and_its_place(store):
    await limited(store, concurrency=at_most(1))
    asked = await enqueued(store, 3)
    await claim(store)

    wait = await store.catalog.limit_wait(TENANT, asked[2])

    assert wait is not None
    assert (wait.name, wait.item, wait.ahead, wait.held) == ("resize", "", 1, 1)
    assert wait.holders == (asked[0],)
    assert wait.room_at is None
    assert await store.catalog.limit_wait(TENANT, asked[0]) is None


async def test_the_backlog_of_a_queue_names_what_a_worker_has_to_offer(store):
    await limited(store, concurrency=at_most(1))
    await enqueued(store, 2)
    await enqueued(store, 1, job="plain")

    (one,) = await store.catalog.list_backlogs(TENANT, "default")

    assert (one.needs, one.due) == ("task", 3)


async def test_a_claim_says_which_executions_hold_limits(store):
    await limited(store, concurrency=at_most(1))
    await enqueued(store, 1)
    await enqueued(store, 1, job="plain")

    hands = await claim(store)

    assert {one.job: one.is_limited for one in hands.executions} == {"resize": True, "plain": False}


async def test_buckets_without_use_are_removed(store, clock):
    await limited(store, concurrency=at_most(1, key="k"))
    await store.queue.enqueue(
        TENANT, [an_execution(args='{"k": 1}'), an_execution(args='{"k": 2}')]
    )
    hands = await claim(store)
    await apply(store, hands, success(hands.executions[0]))
    await claim(store)
    await clock.advance(2 * 3600)

    await retain(store)

    (one,) = await store.catalog.list_limits(TENANT, "resize:k")
    assert [bucket.item for bucket in one.buckets] == ["2"]
    again = await store.queue.enqueue(TENANT, [an_execution(args='{"k": 1}')])
    assert ids(await claim(store)) == [again[0].id]

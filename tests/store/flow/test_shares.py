"""Fair shares: the keys of a queue take turns."""

from __future__ import annotations

from collections import Counter

import msgspec

from daybell.core.execution import State
from daybell.core.flow import ConcurrencyOption
from daybell.core.flow.shares import PARKED_MAX, read_share
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    apply,
    claim,
    registered,
    retry,
    states,
    success,
)


async def shared(store, name="resize", *, share: object = "customer", **options):
    """A job whose executions take turns."""
    job = a_job(name, share=read_share(share, "share"), **options)
    return await store.catalog.define_jobs(TENANT, [job])


async def asked(store, count, job="resize", **args):
    """So many executions with the same arguments."""
    news = [an_execution(job=job, args=msgspec.json.encode(args).decode()) for _ in range(count)]
    await store.queue.enqueue(TENANT, news)
    return [new.id for new in news]


async def served(store, limit, *, turns=1, key="customer"):
    """The keys of the executions of the next claims, in their order."""
    found = []
    for _ in range(turns):
        hands = await claim(store, limit=limit)
        found += [msgspec.json.decode(one.args)[key] for one in hands.executions]
        await apply(store, hands, *map(success, hands.executions))
    return found


async def test_a_key_with_little_work_does_not_wait_for_one_with_much(store):
    await shared(store)
    await asked(store, 50, customer="a")
    assert await served(store, 4) == ["a"] * 4

    await asked(store, 1, customer="b")

    assert sorted(await served(store, 2)) == ["a", "b"]


async def test_keys_take_turns_by_their_weights(store):
    await shared(store, share={"key": "customer", "weights": {"a": 3}})
    await asked(store, 60, customer="a")
    await asked(store, 60, customer="b")

    assert Counter(await served(store, 8, turns=5)) == {"a": 30, "b": 10}


async def test_no_turn_is_left_unused(store):
    await shared(store)
    await asked(store, 3, customer="a")
    await asked(store, 20, customer="b")

    assert Counter(await served(store, 16)) == {"a": 3, "b": 13}
    assert await served(store, 16) == ["b"] * 7
    assert await served(store, 16) == []


async def test_time_without_work_is_not_saved_up(store):
    await shared(store)
    await asked(store, 60, customer="a")
    await served(store, 30)
    await asked(store, 40, customer="b")

    assert Counter(await served(store, 20)) == {"a": 10, "b": 10}


async def test_users_share_the_turns_of_their_organization(store):
    await shared(store, share=["org", "user"])
    for user in range(10):
        await asked(store, 10, org="many", user=user)
    await asked(store, 40, org="one", user=1)

    assert Counter(await served(store, 10, turns=4, key="org")) == {"many": 20, "one": 20}


async def test_a_share_without_a_key_is_that_of_the_user(store):
    await shared(store, "a", share=True, user_id="ann")
    await shared(store, "b", share=True, user_id="bob")
    await asked(store, 30, "a")
    await asked(store, 30, "b")

    hands = await claim(store, limit=10)

    assert Counter(one.job for one in hands.executions) == {"a": 5, "b": 5}


async def test_priorities_order_the_work_of_one_key(store):
    await shared(store)
    await asked(store, 3, customer="a")
    urgent = an_execution(job="resize", args='{"customer": "a"}', priority=0)
    await store.queue.enqueue(TENANT, [urgent])

    assert (await claim(store, limit=1)).one.id == urgent.id


async def test_work_that_comes_back_takes_another_turn(store, clock):
    await shared(store)
    await asked(store, 2, customer="a")
    hands = await claim(store, limit=2)
    await apply(store, hands, *(retry(one, delay=5) for one in hands.executions))
    await asked(store, 10, customer="b")
    assert await served(store, 4) == ["b"] * 4

    await clock.advance(6)

    assert Counter(await served(store, 4, turns=2)) == {"a": 2, "b": 6}


async def test_delayed_work_takes_its_turn_when_it_is_due(store, clock):
    await shared(store)
    later = [an_execution(job="resize", args='{"customer": "b"}', delay=5) for _ in range(3)]
    await store.queue.enqueue(TENANT, later)
    await asked(store, 20, customer="a")
    assert await served(store, 2) == ["a"] * 2

    await clock.advance(6)

    assert Counter(await served(store, 6)) == {"a": 3, "b": 3}


async def test_work_with_a_share_keeps_its_limits(store):
    await shared(store, concurrency=(ConcurrencyOption(limit=2),))
    first = await asked(store, 3, customer="a")
    second = await asked(store, 3, customer="b")

    hands = await claim(store, limit=10)

    assert len(hands.executions) == 2
    assert {one.id for one in hands.executions} == {first[0], second[0]}


async def test_two_workers_together_take_turns(store):
    await shared(store)
    other = await registered(store)
    await asked(store, 30, customer="a")
    await asked(store, 30, customer="b")

    one, two = await claim(store, limit=6), await claim(store, worker=other, limit=6)

    both = [msgspec.json.decode(e.args)["customer"] for e in (*one.executions, *two.executions)]
    assert Counter(both) == {"a": 6, "b": 6}


async def test_work_whose_turn_passed_unclaimed_is_claimed_first(store, clock):
    await shared(store)
    await asked(store, 30, customer="a")
    await store.catalog.pause_queue(TENANT, "default", paused=True)
    assert await served(store, 5) == []
    await store.catalog.pause_queue(TENANT, "default", paused=False)
    await clock.advance(1)

    assert await served(store, 5) == ["a"] * 5


async def test_a_cancelled_execution_takes_no_turn(store):
    await shared(store)
    gone = await asked(store, 3, customer="a")
    await asked(store, 3, customer="b")
    await store.queue.cancel(TENANT, gone)

    assert await states(store, gone) == [State.CANCELLED] * 3
    assert await served(store, 5) == ["b"] * 3


async def test_lanes_of_keys_without_work_are_used_again(store):
    await shared(store)
    for customer in range(30):
        await asked(store, 1, customer=str(customer))
        assert await served(store, 5) == [str(customer)]

    assert await served(store, 5) == []
    await asked(store, 2, customer="0")
    assert await served(store, 5) == ["0", "0"]


async def test_a_full_limit_is_shared_fairly_and_blocks_no_other_job(store, clock):
    await shared(store, concurrency=(ConcurrencyOption(limit=1, name="api"),))
    await shared(store, "free")
    await asked(store, 300, customer="a")
    running = await claim(store, limit=100)
    for _ in range(4):
        assert (await claim(store, limit=100)).executions == []

    (late,) = await asked(store, 1, customer="b")
    (other,) = await asked(store, 1, "free", customer="a")

    assert (await claim(store, limit=100)).one.id == other
    for _ in range(2 * PARKED_MAX):
        await clock.advance(0.1)
        await apply(store, running, success(running.one))
        running = await claim(store, limit=100)
        if running.one.id == late:
            break

    assert running.one.id == late


async def test_a_blocked_value_of_a_limit_does_not_block_the_others_of_a_key(store):
    await shared(store, concurrency=(ConcurrencyOption(limit=1, key="account"),))
    await asked(store, 20, customer="a", account=1)
    await asked(store, 1, customer="a", account=2)

    found = [one for _ in range(5) for one in (await claim(store, limit=10)).executions]

    assert sorted(msgspec.json.decode(one.args)["account"] for one in found) == [1, 2]

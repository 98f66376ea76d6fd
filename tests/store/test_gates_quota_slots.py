"""Quotas of executions that run at the same time."""

import asyncio

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.errors import DaybellError
from tests.builders import TENANT, apply, claim, enqueued, limit, registered, success


async def test_no_more_run_at_the_same_time_than_the_quota(store):
    await enqueued(store, 10)
    await limit(store, running=3)

    first = await claim(store, 2)
    second = await claim(store, 5)
    third = await claim(store, 5)

    assert [len(hands.executions) for hands in (first, second, third)] == [2, 1, 0]
    await apply(store, first, *(success(one) for one in first.executions))
    assert len((await claim(store, 5)).executions) == 2


async def test_a_claim_says_whether_the_quota_made_it_short(store):
    await enqueued(store, 4)
    await limit(store, running=3)
    worker = await registered(store)

    async def ask(most):
        return await store.claim(
            TENANT, worker=worker, lease=mint(), queues=["default"], limit=most
        )

    assert not (await ask(2)).is_limited
    assert (await ask(2)).is_limited
    assert (await ask(2)).is_limited
    await limit(store)
    assert not (await ask(2)).is_limited
    await limit(store, running=3)
    await enqueued(store, delay=60.0)
    assert not (await ask(2)).is_limited  # there is nothing that could be taken


async def test_a_claim_that_is_asked_again_answers_what_it_took(store):
    await enqueued(store, 10)
    await limit(store, running=3)
    hands = await claim(store, 5)

    again = await claim(store, 5, worker=hands.worker, lease=hands.lease)

    assert again.executions == hands.executions and len(hands.executions) == 3
    none = await claim(store, 5, worker=hands.worker)
    assert (await claim(store, 5, worker=hands.worker, lease=none.lease)).executions == []


async def test_who_is_over_a_new_quota_finishes_and_gets_no_more(store):
    await enqueued(store, 10)
    hands = await claim(store, 5)
    await limit(store, running=2)

    assert (await claim(store, 5)).executions == []
    await apply(store, hands, *(success(one) for one in hands.executions[:3]))
    assert (await claim(store, 5)).executions == []
    await apply(store, hands, *(success(one) for one in hands.executions[3:]))
    assert len((await claim(store, 5)).executions) == 2


async def test_a_quota_of_nothing_lets_nothing_run(store):
    await enqueued(store)
    await limit(store, running=0)
    worker = await registered(store)

    assert (await claim(store, worker=worker)).executions == []
    with pytest.raises(DaybellError):
        await claim(store, worker=mint())


async def test_many_who_claim_at_once_never_exceed_the_quota(crowd):
    await enqueued(crowd[0], 100)
    await limit(crowd[0], running=7)
    workers = [await registered(crowd[0]) for _ in range(12)]

    claims = [claim(crowd[i % 4], 3, worker=worker) for i, worker in enumerate(workers)]
    hands = await asyncio.gather(*claims)

    assert sum(len(one.executions) for one in hands) == 7
    counts = await crowd[0].count_executions(TENANT, ExecutionFilter())
    assert counts[State.RUNNING] == 7

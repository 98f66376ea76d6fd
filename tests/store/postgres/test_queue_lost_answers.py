"""Answers that never arrive: whoever asks again hears what the first answer would have said."""

import asyncio

import msgspec
import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling
from daybell.errors import Unavailable
from daybell.store.postgres.connection import POOL_CONNECTIONS_MAX
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    claimed,
    death,
    defined,
    enqueued,
    look,
    registered,
    retry,
    states,
    success,
)
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import Fate, Stop, settle, stepped_store, warmed


async def terminate_open_transaction(sql, processes):
    """End the one session of these that is inside a transaction, and wait until it is gone."""
    gone = await sql.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE pid = ANY($1::int[]) AND state = 'idle in transaction'",
        processes,
    )
    assert len(gone) == 1


async def ask(store, worker, lease):
    return await store.queue.claim(TENANT, worker=worker, lease=lease, queues=["default"], limit=2)


async def test_a_claim_whose_session_dies_before_the_commit_takes_nothing(stepped, store, sql):
    ids = await enqueued(store, 2)
    worker, lease = await registered(store), mint()
    stepped.pace.stop = Stop(1)  # the claim
    first = asyncio.create_task(ask(stepped, worker, lease))
    await stepped.pace.stop.arrival()

    await terminate_open_transaction(sql, stepped.pace.processes)
    stepped.pace.stop.resumed.set()

    with pytest.raises(Unavailable):
        await first
    assert await states(store, ids) == [State.QUEUED] * 2
    again = await ask(store, worker, lease)
    assert [one.id for one in again.executions] == ids


async def test_a_claim_whose_session_dies_after_the_commit_is_answered_by_its_lease(
    stepped, store, sql
):
    ids = await enqueued(store, 4)
    worker, lease = await registered(store), mint()
    await warmed(stepped)
    stepped.pace.stop = Stop(1, Fate.UNANSWERED)
    first = asyncio.create_task(ask(stepped, worker, lease))
    await stepped.pace.stop.arrival()
    stepped.pace.stop.resumed.set()
    with pytest.raises(Unavailable):
        await first

    again = await ask(store, worker, lease)

    assert [one.id for one in again.executions] == ids[:2]
    assert [one.lease for one in again.executions] == [lease] * 2
    assert await states(store, ids) == [State.RUNNING] * 2 + [State.QUEUED] * 2
    assert await violations(sql) == []


async def test_a_claim_asked_again_while_its_twin_is_under_way_takes_nothing_more(
    stepped, place, store, sql
):
    ids = await enqueued(store, 4)
    worker, lease = await registered(store), mint()
    await warmed(stepped)
    stepped.pace.stop = Stop(1)
    first = asyncio.create_task(ask(stepped, worker, lease))
    await stepped.pace.stop.arrival()
    twin = await stepped_store(place.url)

    second = asyncio.create_task(ask(twin, worker, lease))
    assert await settle(sql, second, twin.pace.processes), "the twin should wait"
    stepped.pace.stop.resumed.set()

    assert [one.id for one in (await first).executions] == ids[:2]
    assert [one.id for one in (await second).executions] == ids[:2]
    assert await states(store, ids[2:]) == [State.QUEUED] * 2
    assert await violations(sql) == []
    await twin.close()


async def test_a_finish_sent_twice_leaves_its_neighbours_in_their_lease(store, sql):
    hands = await claimed(store, 2)
    first, second = hands.executions

    assert await apply(store, hands, success(first)) == []
    assert await apply(store, hands, success(first)) == []
    await claim(store, worker=hands.worker)

    assert await violations(sql) == []
    assert await apply(store, hands, success(second)) == []


async def test_a_retry_sent_twice_in_one_batch_leaves_its_neighbours_in_their_lease(store, sql):
    hands = await claimed(store, 2)
    first, second = hands.executions

    assert await apply(store, hands, retry(first), retry(first)) == []
    await claim(store, worker=hands.worker)

    assert await violations(sql) == []
    assert await apply(store, hands, success(second)) == []


async def test_a_finish_by_a_stranger_does_not_end_the_lease_of_the_holder(store, sql):
    hands = await claimed(store)
    stranger = await registered(store)

    (verdict,) = await store.queue.apply(TENANT, worker=stranger, transitions=[success(hands.one)])
    assert verdict.ruling is Ruling.STALE
    await claim(store, worker=hands.worker)

    assert await violations(sql) == []
    assert await apply(store, hands, success(hands.one)) == []


async def test_a_finish_by_an_attempt_that_never_was_does_not_end_the_lease(store, sql):
    hands = await claimed(store)
    strange = success(hands.one)

    (verdict,) = await apply(store, hands, msgspec.structs.replace(strange, attempt=7))
    assert verdict.ruling is Ruling.STALE
    await claim(store, worker=hands.worker)

    assert await violations(sql) == []
    assert await apply(store, hands, success(hands.one)) == []


async def test_a_finish_under_another_lease_of_the_same_worker_is_stale(store, sql):
    worker = await registered(store)
    first = await claimed(store, 2, worker=worker)
    second = await claimed(store, 1, worker=worker)
    wrong = msgspec.structs.replace(success(second.one), lease=first.lease)

    verdicts = await apply(store, first, success(first.executions[0]), wrong)
    await claim(store, worker=worker)

    assert [(verdict.id, verdict.ruling) for verdict in verdicts] == [(wrong.id, Ruling.STALE)]
    assert await violations(sql) == []


async def test_a_finish_that_names_the_wrong_one_of_two_leases_is_stale(store, sql):
    worker = await registered(store)
    first = await claimed(store, 2, worker=worker)
    second = await claimed(store, 2, worker=worker)
    right = [success(first.executions[0]), success(second.executions[0])]
    wrong = msgspec.structs.replace(success(second.executions[1]), lease=first.lease)

    verdicts = await apply(store, first, *right, wrong)
    await claim(store, worker=worker)

    assert await violations(sql) == []
    assert [(verdict.id, verdict.ruling) for verdict in verdicts] == [(wrong.id, Ruling.STALE)]


@pytest.fixture
async def new(store):
    """Something to enqueue that is not of the shortest way."""
    await defined(store)
    return [an_execution(retries=1), an_execution(unique_key="k")]


def created(new):
    return [(one.id, True) for one in new]


def said(answers):
    return [(answer.id, answer.created) for answer in answers]


async def test_an_enqueue_repeated_finds_the_first_copy_committed(store, sql, new):
    await store.queue.enqueue(TENANT, new)

    assert said(await store.queue.enqueue(TENANT, new, repeat=True)) == created(new)
    assert await violations(sql) == []


async def test_an_enqueue_repeated_finds_the_first_copy_finished(store, sql, new):
    await store.queue.enqueue(TENANT, new)
    hands = await claim(store)
    await apply(store, hands, *[success(one) for one in hands.executions])

    assert said(await store.queue.enqueue(TENANT, new, repeat=True)) == created(new)
    assert await states(store, [one.id for one in new]) == [State.SUCCEEDED] * 2
    assert await violations(sql) == []


async def test_an_enqueue_repeated_finds_the_first_copy_half_dead_half_alive(store, sql, new):
    await store.queue.enqueue(TENANT, new)
    hands = await claim(store, 1)
    await apply(store, hands, death(hands.one))

    assert said(await store.queue.enqueue(TENANT, new, repeat=True)) == created(new)
    assert await states(store, [one.id for one in new]) == [State.DEAD, State.QUEUED]
    assert await violations(sql) == []


async def test_an_enqueue_repeated_finds_the_first_copy_finished_and_its_key_taken(store, new):
    keyed = new[1]
    await store.queue.enqueue(TENANT, [keyed])
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert said(await store.queue.enqueue(TENANT, [keyed], repeat=True)) == created([keyed])
    assert (await look(store, keyed.id)).state is State.SUCCEEDED


async def test_an_enqueue_repeated_creates_what_was_never_committed(store, sql, new):
    assert said(await store.queue.enqueue(TENANT, new, repeat=True)) == created(new)
    assert await states(store, [one.id for one in new]) == [State.QUEUED] * 2
    assert await violations(sql) == []


@pytest.mark.parametrize("fate", [Fate.GOES_ON, Fate.BREAKS])
async def test_an_enqueue_repeated_waits_for_a_first_copy_still_under_way(
    stepped, place, store, sql, new, fate
):
    await warmed(stepped)
    stop = stepped.pace.stop = Stop(1, fate)  # the rows
    first = asyncio.create_task(stepped.queue.enqueue(TENANT, new))
    await stop.arrival()
    twin = await stepped_store(place.url)

    second = asyncio.create_task(twin.queue.enqueue(TENANT, new, repeat=True))
    assert await settle(sql, second, twin.pace.processes), "the repetition should wait"
    stepped.pace.stop.resumed.set()

    if fate is Fate.BREAKS:
        with pytest.raises(Unavailable):
            await first
    else:
        assert said(await first) == created(new)
    assert said(await second) == created(new)
    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 2
    assert await violations(sql) == []
    await twin.close()


async def test_many_claims_asked_again_at_once_do_not_wait_for_each_other(store):
    count = 2 * POOL_CONNECTIONS_MAX
    await enqueued(store, count)
    worker = await registered(store)
    firsts = [await claim(store, 1, worker=worker) for _ in range(count)]

    async with asyncio.timeout(300):
        agains = await asyncio.gather(
            *[claim(store, 1, worker=worker, lease=first.lease) for first in firsts]
        )

    assert [again.one.id for again in agains] == [first.one.id for first in firsts]


@pytest.mark.parametrize("after", [1, 2])
async def test_an_enqueue_repeated_slowly_does_not_create_what_ended_meanwhile(
    stepped, place, store, sql, new, after
):
    await stepped.queue.enqueue(TENANT, [an_execution(retries=1)])
    await apply(store, hands := await claim(store), success(hands.one))
    stop = stepped.pace.stop = Stop(after)
    repeating = asyncio.create_task(stepped.queue.enqueue(TENANT, new, repeat=True))
    await stop.arrival()
    twin = await stepped_store(place.url)

    async def live():
        await twin.queue.enqueue(TENANT, new)
        hands = await claim(twin)
        await apply(twin, hands, *[success(one) for one in hands.executions])

    living = asyncio.create_task(live())
    await settle(sql, living, twin.pace.processes)
    stop.resumed.set()

    assert said(await repeating) == created(new)
    await living
    assert await states(store, [one.id for one in new]) == [State.SUCCEEDED] * 2
    assert await violations(sql) == []
    await twin.close()

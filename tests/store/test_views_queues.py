"""Queues as people see them."""

import pytest

from daybell.core.execution import State
from daybell.errors import UsageError
from tests.builders import TENANT, apply, claim, claimed, defined, enqueued, finished, retry, states
from tests.sweeps import set_gates


async def queue(store, name):
    return {queue.name: queue for queue in await store.catalog.list_queues(TENANT)}[name]


async def names(store):
    return [queue.name for queue in await store.catalog.list_queues(TENANT)]


async def test_a_store_without_jobs_has_no_queues(store):
    assert await store.catalog.list_queues(TENANT) == []


async def test_queues_of_jobs_of_work_and_paused_ones_are_listed_by_name(store):
    await defined(store, "a", queue="mail")
    await defined(store, "b", queue="Images")
    await store.catalog.pause_queue(TENANT, "zoo", paused=True)
    await enqueued(store, job="a", queue="extra")

    assert await names(store) == ["Images", "extra", "mail", "zoo"]


async def test_a_queue_of_a_superseded_version_or_a_deleted_job_is_gone(store):
    await defined(store, "a", queue="old")
    await defined(store, "a", queue="new")
    await defined(store, "b", queue="gone")

    await store.catalog.delete_job(TENANT, "b")

    assert await names(store) == ["new"]


async def test_a_queue_that_is_nobodys_is_listed_while_it_has_work(store):
    await finished(store, queue="extra")
    assert await names(store) == ["default"]

    await enqueued(store, queue="extra")

    assert await names(store) == ["default", "extra"]


async def test_a_queue_counts_what_it_has(store, clock):
    await set_gates(store, TENANT, {"closed": 0})
    hands = await claimed(store, 3)
    await apply(store, hands, retry(hands.executions[0], delay=60.0))
    await enqueued(store, 3)
    await enqueued(store, 2, delay=60.0)
    await enqueued(store, 1, gate="closed")
    await finished(store, 2, queue="other")

    seen = await queue(store, "default")

    assert (seen.queued, seen.scheduled, seen.running, seen.waiting) == (3, 3, 2, 1)
    assert seen.retrying == 1
    assert seen.is_paused is False


async def test_a_retry_that_is_due_or_runs_is_not_retrying_any_more(store, clock):
    hands = await claimed(store, 2)
    await apply(store, hands, *(retry(one, delay=60.0) for one in hands.executions))
    assert (await queue(store, "default")).retrying == 2

    await clock.advance(60)
    await claim(store, 1)

    seen = await queue(store, "default")
    assert (seen.retrying, seen.scheduled, seen.queued, seen.running) == (0, 0, 1, 1)


async def test_an_empty_queue_counts_nothing(store):
    await defined(store)

    seen = await queue(store, "default")

    assert (seen.queued, seen.scheduled, seen.running, seen.waiting) == (0, 0, 0, 0)
    assert seen.oldest_run_at is None


async def test_a_queue_knows_how_late_it_is(store, clock):
    await enqueued(store, delay=5.0)
    await enqueued(store, delay=60.0)
    assert (await queue(store, "default")).oldest_run_at is None

    await clock.advance(10)

    seen = await queue(store, "default")
    assert (seen.queued, seen.scheduled) == (1, 1)
    assert seen.oldest_run_at == clock.now() - 5


async def test_what_is_claimed_makes_a_queue_no_later(store):
    await claimed(store)

    assert (await queue(store, "default")).oldest_run_at is None


async def test_a_queue_can_be_paused_before_it_exists(store):
    await store.catalog.pause_queue(TENANT, "later", paused=True)

    await enqueued(store, queue="later")

    assert (await queue(store, "later")).is_paused
    assert (await claim(store, queues=["later"])).executions == []


async def test_pausing_stops_claims_and_nothing_else(store):
    hands = await claimed(store)
    await store.catalog.pause_queue(TENANT, "default", paused=True)

    (id,) = await enqueued(store)
    await apply(store, hands, retry(hands.one, delay=0.0))

    assert await states(store, [id, hands.one.id]) == [State.QUEUED, State.QUEUED]
    seen = await queue(store, "default")
    assert (seen.is_paused, seen.queued, seen.running) == (True, 2, 0)


async def test_pausing_one_queue_leaves_the_others(store):
    await store.catalog.pause_queue(TENANT, "a", paused=True)
    await enqueued(store, queue="a")
    (id,) = await enqueued(store, queue="b")

    assert (await claim(store, queues=["a", "b"])).one.id == id


async def test_pausing_and_resuming_can_be_repeated(store):
    await defined(store)

    for paused in (True, True, False, False):
        await store.catalog.pause_queue(TENANT, "default", paused=paused)
        assert (await queue(store, "default")).is_paused is paused


async def test_a_queue_needs_a_proper_name(store):
    with pytest.raises(UsageError):
        await store.catalog.pause_queue(TENANT, "a,b", paused=True)

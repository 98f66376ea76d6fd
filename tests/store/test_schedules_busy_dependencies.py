"""Jobs that depend on jobs which are busy: what counts may be far from the newest."""

import pytest

from daybell.core.execution import State
from daybell.core.schedule import LOOKED_AT_MAX, Ended
from tests.builders import TENANT, apply, claimed, dead, death, enqueued, finished, success

MANY = LOOKED_AT_MAX + 50


async def many(store, end, **options):
    """A crowd of executions of the job, all ended alike."""
    hands = await claimed(store, MANY, job="extract", **options)
    assert await apply(store, hands, *(end(one) for one in hands.executions)) == []


async def test_the_last_to_end_counts_and_not_the_last_that_was_made(store, clock):
    hands = await claimed(store, 2, job="extract")
    older, newer = hands.executions
    started = clock.now()
    await clock.advance(10)
    await apply(store, hands, success(newer))
    await clock.advance(10)
    await apply(store, hands, success(older))

    [ended] = await store.ended_since(TENANT, [("extract", started)])

    # Or the one that ended later would be a round of its own.
    assert ended == Ended(succeeded_at=started + 20, ended_at=started + 20, state=State.SUCCEEDED)


async def test_a_success_is_found_behind_a_crowd(store, clock):
    hands = await claimed(store, job="extract")
    await many(store, success)
    since = clock.now()
    await clock.advance(10)
    await apply(store, hands, success(hands.one))
    asked = [("extract", since), ("extract", since + 10)]

    [found, later] = await store.ended_since(TENANT, asked, thoroughly=True)

    assert found == Ended(succeeded_at=since + 10, ended_at=since + 10, state=State.SUCCEEDED)
    assert later == Ended()


async def test_a_failure_is_found_behind_a_crowd(store, clock):
    hands = await claimed(store, job="extract")
    await many(store, success)
    since = clock.now()
    await clock.advance(10)
    await apply(store, hands, death(hands.one))

    [found] = await store.ended_since(TENANT, [("extract", since)])

    assert found == Ended(ended_at=since + 10, state=State.DEAD)


@pytest.mark.parametrize("timed", [False, True])
async def test_the_latest_that_was_due_is_found_behind_a_crowd(store, clock, timed):
    at = clock.now()
    await dead(store, job="extract", **({"scheduled_for": at} if timed else {}))
    await clock.advance(10)
    await many(store, success, **({"scheduled_for": at + 10} if timed else {}))

    [then, now] = await store.upstream(TENANT, [("extract", at), ("extract", clock.now())])

    assert (then.state, then.has_newer_success) == (State.DEAD, True)
    assert (now.state, now.has_newer_success) == (State.SUCCEEDED, False)


async def test_a_backfill_of_many_does_not_hide_what_was_due_later(store, clock):
    at = clock.now()
    await dead(store, job="extract", scheduled_for=at)
    await many(store, success, scheduled_for=at - 1000)

    [one] = await store.upstream(TENANT, [("extract", at)])

    assert one.state is State.DEAD


async def test_an_unfinished_one_is_found_at_the_end_of_a_long_queue(store, clock):
    await finished(store, job="extract")
    await clock.advance(1)
    at = clock.now()
    [first] = await enqueued(store, job="extract")
    await clock.advance(1)
    await enqueued(store, MANY, job="extract")

    [one] = await store.upstream(TENANT, [("extract", at)])
    assert one.state is State.QUEUED

    await store.cancel(TENANT, [first])
    [one] = await store.upstream(TENANT, [("extract", at)])
    assert one.state is State.CANCELLED

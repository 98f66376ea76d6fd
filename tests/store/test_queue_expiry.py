"""What nobody starts in time is skipped, whether a worker asks for it or not."""

from daybell.core.execution import State
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    enqueued,
    look,
    retry,
    states,
)


async def test_what_has_expired_is_skipped_and_nothing_else(store, clock):
    expired = await enqueued(store, 2, expires_in=5.0)
    other = await enqueued(store, 1, expires_in=50.0)
    endless = await enqueued(store)
    later = await enqueued(store, 1, delay=10.0, expires_in=5.0)
    await clock.advance(5.0)

    assert await store.expire() == 2
    assert await store.expire() == 0
    assert await states(store, expired) == [State.SKIPPED, State.SKIPPED]
    assert await states(store, [*other, *endless, *later]) == [
        State.QUEUED,
        State.QUEUED,
        State.SCHEDULED,
    ]
    skipped = await look(store, expired[0])
    assert (skipped.reason, skipped.finished_at) == ("expired", clock.now())
    assert {one.id for one in (await claim(store)).executions} == {*other, *endless}


async def test_a_bounded_amount_at_a_time(store, clock):
    await enqueued(store, 5, expires_in=5.0)
    await clock.advance(6.0)

    assert [await store.expire(limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_runs_does_not_expire(store, clock):
    hands = await claimed(store, 1, expires_in=5.0)
    await clock.advance(6.0)

    assert await store.expire() == 0
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_what_waits_for_its_retry_expires_too(store, clock):
    hands = await claimed(store, 1, expires_in=5.0)
    await apply(store, hands, retry(hands.one, delay=100.0))
    await clock.advance(6.0)

    assert await store.expire() == 1
    assert await states(store, [hands.one.id]) == [State.SKIPPED]


async def test_it_frees_the_unique_key_and_the_slot(store, clock):
    await defined(store)
    await store.set_gates(TENANT, {"one": 1})
    held = an_execution(gate="one", unique_key="k", expires_in=5.0)
    parked = an_execution(gate="one", expires_in=50.0)
    too_late = an_execution(gate="one", expires_in=5.0)
    await store.enqueue(TENANT, [held, parked, too_late])
    await clock.advance(6.0)

    assert await store.expire() == 2
    assert await states(store, [held.id, parked.id, too_late.id]) == [
        State.SKIPPED,
        State.QUEUED,
        State.SKIPPED,
    ]
    (again,) = await store.enqueue(TENANT, [an_execution(unique_key="k")])
    assert again.created


async def test_those_who_expire_together_keep_no_slot(store, clock):
    await defined(store, "resize")
    await store.set_gates(TENANT, {"one": 1})
    ids = await enqueued(store, 3, gate="one", expires_in=5.0)
    (last,) = await enqueued(store, gate="one")
    await clock.advance(5.0)

    assert await store.expire() == 3

    assert await states(store, ids) == [State.SKIPPED] * 3
    assert await states(store, [last]) == [State.QUEUED]
    assert await store.recount_gates() == []


async def test_a_paused_queue_does_not_keep_it(store, clock):
    (id,) = await enqueued(store, 1, expires_in=5.0)
    await store.pause_queue(TENANT, "default", paused=True)
    await clock.advance(6.0)

    assert await store.expire() == 1
    assert await states(store, [id]) == [State.SKIPPED]

"""Overlap rules that let one wait for another, or take its place."""

from daybell.core.execution import State
from daybell.core.schedule import Overlap
from tests.builders import TENANT, apply, claim, claimed, defined, enqueued, look, states, success
from tests.store.overlaps import ended, refused, ticked
from tests.sweeps import admit, set_gates

QUEUED, WAITING, RUNNING = State.QUEUED, State.WAITING, State.RUNNING
CANCELLED = State.CANCELLED


async def test_queue_lets_one_wait_and_refuses_the_next(store):
    await defined(store, overlap=Overlap.QUEUE)
    hands = await claimed(store)
    (second,) = await enqueued(store)
    waiting = await look(store, second)
    assert (waiting.state, waiting.reason) == (WAITING, "overlap")

    error = await refused(store)
    assert error.execution in (hands.one.id, second)
    assert "queue" in str(error)
    assert (await ticked(store)).skipped

    await ended(store, hands)
    assert await states(store, [second]) == [QUEUED]
    (third,) = await enqueued(store)
    assert await states(store, [third]) == [WAITING]


async def test_queue_all_runs_them_one_after_the_other(store):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    ids = await enqueued(store, 2)
    ids.append((await ticked(store)).id)
    assert await states(store, ids) == [QUEUED, WAITING, WAITING]

    for expected in ids:
        hands = await claim(store)
        assert hands.one.id == expected
        await ended(store, hands)

    assert set(await states(store, ids)) == {State.SUCCEEDED}


async def test_replace_takes_the_place_of_what_has_not_started(store):
    await defined(store, overlap=Overlap.REPLACE)
    (first,) = await enqueued(store)

    (second,) = await enqueued(store)

    assert await states(store, [first, second]) == [CANCELLED, QUEUED]
    assert (await claim(store)).one.id == second


async def test_replace_leaves_what_is_to_start_later(store, clock):
    await defined(store, overlap=Overlap.REPLACE)
    (delayed,) = await enqueued(store, delay=60.0)
    await enqueued(store)

    (second,) = await enqueued(store)

    assert (await look(store, delayed)).state is not CANCELLED
    hands = await claim(store)
    assert hands.one.id == second
    await apply(store, hands, success(hands.one))
    await clock.advance(60)
    await admit(store)
    assert (await claim(store)).one.id == delayed


async def test_replace_starts_when_the_running_one_has_really_ended(store):
    await defined(store, overlap=Overlap.REPLACE)
    hands = await claimed(store)
    first = hands.one.id

    (second,) = await enqueued(store)

    seen = await look(store, first)
    assert (seen.state, seen.cancel_requested_at is None) == (RUNNING, False)
    assert await states(store, [second]) == [WAITING]
    (third,) = await enqueued(store)
    assert await states(store, [second, third]) == [CANCELLED, WAITING]
    assert (await claim(store)).executions == []
    await apply(store, hands, success(hands.one))
    assert await states(store, [first, third]) == [CANCELLED, QUEUED]


async def test_replace_leaves_what_is_at_another_gate(store):
    await set_gates(store, TENANT, {"other": 1})
    await defined(store, overlap=Overlap.REPLACE)
    (beside,) = await enqueued(store, gate="other")

    await enqueued(store, 2)

    assert await states(store, [beside]) == [QUEUED]

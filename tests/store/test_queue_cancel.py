"""Cancellation and expiry of executions."""

import pytest

from daybell.core.execution import Cancellation, Outcome, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling, after_cancel, after_loss, after_release
from tests.builders import (
    TENANT,
    a_move,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    look,
    retry,
    states,
    success,
)
from tests.sweeps import expire, set_gates


async def test_what_has_not_started_ends_at_once(store, clock):
    (queued,) = await enqueued(store)
    (scheduled,) = await enqueued(store, delay=60.0)
    await clock.advance(1)

    answers = await store.queue.cancel(TENANT, [scheduled, queued])

    assert answers == [Cancellation.CANCELLED, Cancellation.CANCELLED]
    for id in (queued, scheduled):
        seen = await look(store, id)
        assert (seen.state, seen.finished_at) == (State.CANCELLED, clock.now())
        assert (seen.outcome, seen.worker, seen.attempt) == (None, None, 1)


async def test_a_cancelled_one_is_never_claimed(store, clock):
    ids = [*(await enqueued(store)), *(await enqueued(store, delay=60.0))]

    await store.queue.cancel(TENANT, ids)

    await clock.advance(120)
    found = await claim(store)
    assert (found.executions, found.next_due) == ([], None)


async def test_a_retrying_one_ends_at_once_with_its_attempts_on_record(store):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, error='"e"'))

    assert await store.queue.cancel(TENANT, [hands.one.id]) == [Cancellation.CANCELLED]

    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    assert (detail.execution.state, detail.execution.error) == (State.CANCELLED, '"e"')
    assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, Outcome.FAILED)]


async def test_a_waiting_one_ends_at_once(store):
    await set_gates(store, TENANT, {"closed": 0})
    (id,) = await enqueued(store, gate="closed")

    assert await store.queue.cancel(TENANT, [id]) == [Cancellation.CANCELLED]

    seen = await look(store, id)
    assert (seen.state, seen.reason) == (State.CANCELLED, None)


async def test_a_running_one_is_asked_and_stays_running(store, clock):
    hands = await claimed(store)
    await clock.advance(3)

    assert await store.queue.cancel(TENANT, [hands.one.id]) == [Cancellation.REQUESTED]

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.worker) == (State.RUNNING, hands.worker)
    assert seen.cancel_requested_at == clock.now()


async def test_asking_again_changes_nothing(store, clock):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    before = await look(store, hands.one.id)
    await clock.advance(3)

    assert await store.queue.cancel(TENANT, [hands.one.id]) == [Cancellation.REQUESTED]

    assert await look(store, hands.one.id) == before


@pytest.mark.parametrize("make", [finished, dead], ids=["succeeded", "dead"])
async def test_a_finished_one_stays_as_it_is(store, make):
    (id,) = await make(store)
    before = await look(store, id)

    assert await store.queue.cancel(TENANT, [id]) == [Cancellation.FINISHED]

    assert await look(store, id) == before


async def test_a_cancelled_one_is_finished(store):
    (id,) = await enqueued(store)
    await store.queue.cancel(TENANT, [id])

    assert await store.queue.cancel(TENANT, [id]) == [Cancellation.FINISHED]


async def test_answers_come_in_the_order_given(store):
    (done,) = await finished(store)
    hands = await claimed(store)
    (queued,) = await enqueued(store)

    answers = await store.queue.cancel(TENANT, [mint(), queued, done, hands.one.id])

    assert answers == [
        Cancellation.UNKNOWN,
        Cancellation.CANCELLED,
        Cancellation.FINISHED,
        Cancellation.REQUESTED,
    ]


async def test_cancelling_nothing_is_answered_with_nothing(store):
    assert await store.queue.cancel(TENANT, []) == []


@pytest.mark.parametrize(
    "move",
    [
        success,
        retry,
        death,
        after_release,
        lambda claimed: after_loss(claimed, max_crashes=9),
        lambda claimed: a_move(claimed, State.WAITING, Outcome.RELEASED, reason="event"),
    ],
    ids=["success", "retry", "death", "release", "loss", "wait"],
)
async def test_whatever_is_reported_later_ends_it_as_cancelled(store, clock, move):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    await clock.advance(2)

    (verdict,) = await apply(store, hands, move(hands.one))

    assert (verdict.id, verdict.attempt) == (hands.one.id, 1)
    assert verdict.ruling is Ruling.CANCELLED
    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    seen = detail.execution
    assert (seen.state, seen.outcome, seen.finished_at) == (
        State.CANCELLED,
        Outcome.CANCELLED,
        clock.now(),
    )
    assert (seen.attempt, seen.result, seen.reason) == (1, None, None)
    assert seen.worker == hands.worker
    assert seen.cancel_requested_at == clock.now() - 2
    assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, Outcome.CANCELLED)]


async def test_a_task_that_obeys_ends_as_cancelled(store):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])

    await apply(store, hands, after_cancel(hands.one, ran=1.0))

    assert await states(store, [hands.one.id]) == [State.CANCELLED]


async def test_the_answer_that_it_was_cancelled_can_be_asked_for_again(store):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    first = await apply(store, hands, success(hands.one))

    again = await apply(store, hands, success(hands.one))

    assert [verdict.ruling for verdict in (*first, *again)] == [Ruling.CANCELLED] * 2


async def test_neighbours_in_the_batch_are_not_cancelled(store):
    hands = await claimed(store, 3)
    await store.queue.cancel(TENANT, [hands.executions[1].id])

    verdicts = await apply(store, hands, *(success(one) for one in hands.executions))

    assert [verdict.id for verdict in verdicts] == [hands.executions[1].id]
    assert await states(store, [one.id for one in hands.executions]) == [
        State.SUCCEEDED,
        State.CANCELLED,
        State.SUCCEEDED,
    ]


async def test_a_running_one_keeps_its_unique_key_until_it_ends(store):
    hands = await claimed(store, unique_key="k")
    await store.queue.cancel(TENANT, [hands.one.id])
    (held,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert (held.id, held.created) == (hands.one.id, False)

    await apply(store, hands, success(hands.one))

    (free,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert free.created


async def test_cancelling_what_has_not_started_frees_its_unique_key(store):
    (id,) = await enqueued(store, unique_key="k")

    await store.queue.cancel(TENANT, [id])

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert answer.created


async def test_what_was_cancelled_cannot_be_revived(store):
    (id,) = await enqueued(store)
    await store.queue.cancel(TENANT, [id])

    await store.queue.revive(TENANT, [id])

    assert await states(store, [id]) == [State.CANCELLED]


# What nobody starts in time is skipped, whether a worker asks for it or not.


async def test_what_has_expired_is_skipped_and_nothing_else(store, clock):
    expired = await enqueued(store, 2, expires_in=5.0)
    other = await enqueued(store, 1, expires_in=50.0)
    endless = await enqueued(store)
    later = await enqueued(store, 1, delay=10.0, expires_in=5.0)
    await clock.advance(5.0)

    assert await expire(store) == 2
    assert await expire(store) == 0
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

    assert [await expire(store, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_runs_does_not_expire(store, clock):
    hands = await claimed(store, 1, expires_in=5.0)
    await clock.advance(6.0)

    assert await expire(store) == 0
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_what_waits_for_its_retry_expires_too(store, clock):
    hands = await claimed(store, 1, expires_in=5.0)
    await apply(store, hands, retry(hands.one, delay=100.0))
    await clock.advance(6.0)

    assert await expire(store) == 1
    assert await states(store, [hands.one.id]) == [State.SKIPPED]


async def test_it_frees_the_unique_key_and_the_slot(store, clock):
    await defined(store)
    await set_gates(store, TENANT, {"one": 1})
    held = an_execution(gate="one", unique_key="k", expires_in=5.0)
    parked = an_execution(gate="one", expires_in=50.0)
    too_late = an_execution(gate="one", expires_in=5.0)
    await store.queue.enqueue(TENANT, [held, parked, too_late])
    await clock.advance(6.0)

    assert await expire(store) == 2
    assert await states(store, [held.id, parked.id, too_late.id]) == [
        State.SKIPPED,
        State.QUEUED,
        State.SKIPPED,
    ]
    (again,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    assert again.created


async def test_those_who_expire_together_keep_no_slot(store, clock):
    await defined(store, "resize")
    await set_gates(store, TENANT, {"one": 1})
    ids = await enqueued(store, 3, gate="one", expires_in=5.0)
    (last,) = await enqueued(store, gate="one")
    await clock.advance(5.0)

    assert await expire(store) == 3

    assert await states(store, ids) == [State.SKIPPED] * 3
    assert await states(store, [last]) == [State.QUEUED]
    assert await store.catalog.miscounts() == []


async def test_a_paused_queue_does_not_keep_it(store, clock):
    (id,) = await enqueued(store, 1, expires_in=5.0)
    await store.catalog.pause_queue(TENANT, "default", paused=True)
    await clock.advance(6.0)

    assert await expire(store) == 1
    assert await states(store, [id]) == [State.SKIPPED]

"""The fence: a move is made only by who holds this very start of the execution."""

import msgspec
import pytest

from daybell.core.execution import Outcome, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling, after_loss, after_release
from tests.builders import (
    TENANT,
    a_report,
    apply,
    claim,
    claimed,
    dead,
    death,
    look,
    registered,
    retry,
    success,
)

replace = msgspec.structs.replace


def rulings(verdicts):
    return [(verdict.id, verdict.attempt, verdict.ruling) for verdict in verdicts]


async def snapshot(store, id):
    return await store.catalog.get_execution(TENANT, id)


async def test_a_worker_that_lost_its_lease_cannot_complete_the_job(store, clock):
    late = await claimed(store)
    await clock.advance(61)
    (lost,) = (await store.queue.lost()).executions
    move = after_loss(lost.claimed, max_crashes=lost.max_crashes)
    await store.queue.apply(TENANT, worker=lost.worker, transitions=[move], wait=False)

    verdicts = await apply(store, late, success(late.one))

    assert rulings(verdicts) == [(late.one.id, 1, Ruling.STALE)]
    assert verdicts[0].current == 2
    assert (await look(store, late.one.id)).state is State.QUEUED


async def test_an_older_attempt_cannot_end_a_newer_one_of_the_same_worker(store):
    first = await claimed(store)
    await apply(store, first, after_release(first.one))
    second = await claim(store, worker=first.worker)
    before = await snapshot(store, first.one.id)

    # The lease of the second claim, so that nothing but the attempt is wrong.
    late = replace(success(first.one), lease=second.lease)
    verdicts = await apply(store, second, late)

    assert rulings(verdicts) == [(first.one.id, 1, Ruling.STALE)]
    assert await snapshot(store, first.one.id) == before
    assert (await look(store, first.one.id)).state is State.RUNNING


@pytest.mark.parametrize("attempt", [0, 2, 3, -1, 2**31, 2**63])
async def test_only_the_current_attempt_counts(store, attempt):
    hands = await claimed(store)

    verdicts = await apply(store, hands, replace(success(hands.one), attempt=attempt))

    assert len(verdicts) == 1
    assert verdicts[0].ruling in (Ruling.STALE, Ruling.REFUSED)
    assert (await look(store, hands.one.id)).state is State.RUNNING


async def test_only_the_lease_that_it_was_claimed_under_counts(store):
    hands = await claimed(store)

    verdicts = await apply(store, hands, replace(success(hands.one), lease=mint()))

    assert rulings(verdicts) == [(hands.one.id, 1, Ruling.STALE)]
    assert (await look(store, hands.one.id)).state is State.RUNNING


async def test_another_lease_of_the_same_worker_does_not_count(store):
    first = await claimed(store)
    second = await claimed(store, worker=first.worker)

    verdicts = await apply(store, first, replace(success(first.one), lease=second.lease))

    assert rulings(verdicts) == [(first.one.id, 1, Ruling.STALE)]
    assert (await look(store, first.one.id)).state is State.RUNNING


async def test_only_the_worker_that_claimed_it_counts(store):
    hands = await claimed(store)
    other = await registered(store)

    verdicts = await store.queue.apply(TENANT, worker=other, transitions=[success(hands.one)])

    assert rulings(verdicts) == [(hands.one.id, 1, Ruling.STALE)]
    assert (await look(store, hands.one.id)).state is State.RUNNING


async def test_an_unknown_execution_is_stale(store):
    hands = await claimed(store)
    unknown = mint()

    verdicts = await apply(store, hands, replace(success(hands.one), id=unknown))

    assert rulings(verdicts) == [(unknown, 1, Ruling.STALE)]
    assert verdicts[0].current is None


async def test_an_execution_that_nobody_claimed_is_stale(store):
    hands = await claimed(store)
    await apply(store, hands, after_release(hands.one))
    before = await snapshot(store, hands.one.id)

    verdicts = await apply(store, hands, replace(success(hands.one), attempt=2))

    assert rulings(verdicts) == [(hands.one.id, 2, Ruling.STALE)]
    assert await snapshot(store, hands.one.id) == before


async def test_a_finished_execution_never_moves(store, clock):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one, result="1"))
    before = await snapshot(store, hands.one.id)
    await clock.advance(5)

    verdicts = await apply(store, hands, death(hands.one))
    verdicts += await apply(store, hands, retry(hands.one))

    assert [verdict.ruling for verdict in verdicts] == [Ruling.STALE, Ruling.STALE]
    assert await snapshot(store, hands.one.id) == before


@pytest.mark.parametrize(
    "move", [success, retry, death, after_release], ids=["success", "retry", "death", "release"]
)
async def test_a_move_that_was_made_is_answered_as_made_when_it_is_sent_again(store, clock, move):
    hands = await claimed(store)
    await apply(store, hands, move(hands.one))
    before = await snapshot(store, hands.one.id)
    await clock.advance(1)

    assert await apply(store, hands, move(hands.one)) == []

    after = await snapshot(store, hands.one.id)
    assert after.attempts == before.attempts
    assert (after.execution.attempt, after.execution.run_at) == (
        before.execution.attempt,
        before.execution.run_at,
    )


async def test_a_repetition_is_recognised_after_others_have_gone_on(store):
    first = await claimed(store)
    await apply(store, first, retry(first.one, delay=0.0))
    second = await claim(store)
    await apply(store, second, retry(second.one, delay=0.0))
    third = await claim(store)
    await apply(store, third, success(third.one))

    assert await apply(store, first, retry(first.one, delay=0.0)) == []
    assert await apply(store, second, retry(second.one, delay=0.0)) == []
    assert await apply(store, third, success(third.one)) == []

    detail = await snapshot(store, first.one.id)
    assert [a.attempt for a in detail.attempts] == [1, 2, 3]


async def test_a_repetition_with_another_outcome_is_stale(store):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one))

    verdicts = await apply(store, hands, success(hands.one))

    assert rulings(verdicts) == [(hands.one.id, 1, Ruling.STALE)]


async def test_a_repetition_by_another_worker_is_stale(store):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))
    other = await registered(store)

    verdicts = await store.queue.apply(TENANT, worker=other, transitions=[success(hands.one)])

    assert rulings(verdicts) == [(hands.one.id, 1, Ruling.STALE)]


async def test_a_death_that_was_revived_since_is_still_answered_as_made(store):
    hands = await claimed(store)
    await apply(store, hands, death(hands.one))
    await store.queue.revive(TENANT, [hands.one.id])

    assert await apply(store, hands, death(hands.one)) == []

    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_two_workers_that_both_think_they_hold_it_cannot_both_succeed(store, clock):
    first = await claimed(store)
    await clock.advance(61)
    (lost,) = (await store.queue.lost()).executions
    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=3)]
    )
    second = await claim(store)

    late = await apply(store, first, success(first.one, result='"late"'))
    good = await apply(store, second, success(second.one, result='"good"'))

    assert rulings(late) == [(first.one.id, 1, Ruling.STALE)]
    assert good == []
    detail = await snapshot(store, first.one.id)
    assert detail.execution.result == '"good"'
    assert [a.outcome for a in detail.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]


async def test_the_attempt_rises_with_every_way_back_and_never_falls(store, clock):
    seen = []
    hands = await claimed(store)
    id = hands.one.id
    for move in (retry, after_release, death, after_loss_of_many):
        seen.append((await look(store, id)).attempt)
        await apply(store, hands, move(hands.one))
        await store.queue.revive(TENANT, [id])
        await clock.advance(60)
        await store.queue.renew(TENANT, worker=hands.worker, lease=600, leases=[])
        hands = await claim(store, worker=hands.worker)
    seen.append((await look(store, id)).attempt)

    assert seen == [1, 2, 3, 4, 5]


def after_loss_of_many(claimed):
    return after_loss(claimed, max_crashes=100)


@pytest.mark.parametrize("wrong", ["attempt", "lease", "id"])
async def test_a_report_goes_through_the_same_fence(store, wrong):
    hands = await claimed(store)
    value = 2 if wrong == "attempt" else mint()
    report = replace(a_report(hands.one, progress=9.0), **{wrong: value})

    stale = await store.queue.report(TENANT, worker=hands.worker, reports=[report])

    assert stale == [(report.id, report.attempt)]
    assert (await look(store, hands.one.id)).progress is None


async def test_a_report_by_another_worker_is_stale(store):
    hands = await claimed(store)
    other = await registered(store)

    stale = await store.queue.report(
        TENANT, worker=other, reports=[a_report(hands.one, progress=9.0)]
    )

    assert stale == [(hands.one.id, 1)]
    assert (await look(store, hands.one.id)).progress is None


async def test_a_report_about_a_dead_letter_is_stale(store):
    (id,) = await dead(store)
    hands = await claimed(store)

    stale = await store.queue.report(
        TENANT, worker=hands.worker, reports=[replace(a_report(hands.one), id=id)]
    )

    assert stale == [(id, 1)]

"""Moves of running executions: ends, ways back, and what is on record of them."""

import pytest
from msgspec.structs import replace

from daybell.core.execution import Outcome, State
from daybell.core.lifecycle import (
    Ruling,
    after_cancel,
    after_expiry,
    after_loss,
    after_release,
    after_retry_later,
    after_success,
)
from daybell.errors import JobNotFound
from tests.builders import (
    TENANT,
    a_move,
    a_report,
    an_execution,
    apply,
    claim,
    claimed,
    death,
    enqueued,
    look,
    retry,
    success,
)
from tests.sweeps import set_gates


async def attempts(store, id):
    return (await store.catalog.get_execution(TENANT, id)).attempts


async def test_a_success_ends_it_with_its_result(store, clock):
    hands = await claimed(store)
    await clock.advance(5)

    verdicts = await apply(store, hands, after_success(hands.one, result='{"n": 1}', ran=2.0))

    assert verdicts == []
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.outcome) == (State.SUCCEEDED, Outcome.SUCCEEDED)
    assert (seen.result, seen.error, seen.reason) == ('{"n": 1}', None, None)
    assert (seen.finished_at, seen.started_at) == (clock.now(), clock.now() - 2)
    assert (seen.worker, seen.attempt) == (hands.worker, 1)


async def test_a_success_without_a_result_has_none(store):
    hands = await claimed(store)

    await apply(store, hands, after_success(hands.one, result=None, ran=0.0))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.result) == (State.SUCCEEDED, None)


async def test_a_failure_goes_back_and_waits(store, clock):
    hands = await claimed(store)
    await clock.advance(5)

    verdicts = await apply(store, hands, retry(hands.one, delay=10.0, error='{"type": "X"}'))

    assert verdicts == []
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.failures) == (State.RETRYING, 2, 1)
    assert seen.run_at == clock.now() + 10
    assert seen.error == '{"type": "X"}'
    assert (seen.worker, seen.started_at, seen.finished_at) == (None, None, None)
    assert (seen.outcome, seen.result, seen.reason) == (None, None, None)


async def test_a_retry_is_due_when_its_wait_is_over_and_not_before(store, clock):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=10.0))

    await clock.advance(9.5)
    assert (await claim(store)).executions == []
    await clock.advance(0.5)
    assert (await look(store, hands.one.id)).state is State.QUEUED

    again = (await claim(store)).one
    assert (again.id, again.attempt, again.failures) == (hands.one.id, 2, 1)


async def test_a_retry_without_a_wait_can_be_claimed_at_once(store):
    hands = await claimed(store)

    await apply(store, hands, retry(hands.one, delay=0.0))

    assert (await look(store, hands.one.id)).state is State.QUEUED
    assert (await claim(store)).one.attempt == 2


async def test_a_death_is_kept_with_its_reason(store, clock):
    hands = await claimed(store)

    verdicts = await apply(store, hands, death(hands.one, error='{"type": "X"}', ran=3.0))

    assert verdicts == []
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.outcome, seen.reason) == (
        State.DEAD,
        Outcome.FAILED,
        "retries_used_up",
    )
    assert (seen.error, seen.failures, seen.attempt) == ('{"type": "X"}', 1, 1)
    assert (seen.finished_at, seen.started_at) == (clock.now(), clock.now() - 3)
    assert seen.is_discarded is False


async def test_a_task_that_asks_to_come_back_is_scheduled_and_not_charged(store, clock):
    hands = await claimed(store)

    await apply(store, hands, after_retry_later(hands.one, delay=30.0, ran=1.0))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.failures) == (State.SCHEDULED, 2, 0)
    assert seen.run_at == clock.now() + 30


async def test_a_moment_wins_over_a_delay(store, clock):
    hands = await claimed(store)
    at = clock.now() + 3600

    await apply(store, hands, after_retry_later(hands.one, delay=5.0, at=at, ran=1.0))

    assert (await look(store, hands.one.id)).run_at == at


async def test_a_moment_in_the_past_means_now(store, clock):
    hands = await claimed(store)

    await apply(store, hands, after_retry_later(hands.one, at=1.0, ran=1.0))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.run_at) == (State.QUEUED, clock.now())


async def test_a_released_execution_can_be_claimed_at_once(store, clock):
    hands = await claimed(store)
    await clock.advance(2)

    await apply(store, hands, after_release(hands.one))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.failures) == (State.QUEUED, 2, 0)
    assert seen.run_at == clock.now()
    assert (await claim(store)).one.attempt == 2


async def test_a_release_with_a_delay_is_scheduled_until_then(store, clock):
    hands = await claimed(store)

    await apply(store, hands, after_release(hands.one, delay=10.0))

    assert (await look(store, hands.one.id)).state is State.SCHEDULED
    assert (await claim(store)).executions == []
    await clock.advance(10)
    assert (await look(store, hands.one.id)).state is State.QUEUED


async def test_a_loss_counts_a_crash_and_no_failure(store):
    hands = await claimed(store)

    await apply(store, hands, after_loss(hands.one, max_crashes=3))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.failures, seen.crashes) == (State.QUEUED, 2, 0, 1)
    assert "WorkerLost" in (seen.error or "")


async def test_an_expired_one_is_skipped(store):
    hands = await claimed(store)

    await apply(store, hands, after_expiry(hands.one))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.reason) == (State.SKIPPED, "expired")
    assert (seen.outcome, seen.started_at) == (Outcome.RELEASED, None)


async def test_a_task_that_stops_by_itself_as_cancelled_is_simply_made(store):
    hands = await claimed(store)

    verdicts = await apply(store, hands, after_cancel(hands.one, ran=1.0))

    assert verdicts == []
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.outcome) == (State.CANCELLED, Outcome.CANCELLED)


async def test_what_waits_for_something_else_cannot_be_claimed(store, clock):
    hands = await claimed(store)

    verdicts = await apply(
        store, hands, a_move(hands.one, State.WAITING, Outcome.RELEASED, reason="files")
    )

    assert verdicts == []
    await clock.advance(3600)
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.attempt, seen.reason) == (State.WAITING, 2, "files")
    found = await claim(store)
    assert (found.executions, found.next_due) == ([], None)


async def test_an_error_is_shown_until_a_success(store):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=0.0, error='{"type": "X"}'))
    second = await claim(store)
    await apply(store, second, after_release(second.one))
    assert (await look(store, hands.one.id)).error == '{"type": "X"}'
    third = await claim(store)

    await apply(store, third, success(third.one))

    assert (await look(store, hands.one.id)).error is None


async def test_every_ended_attempt_is_on_record_oldest_first(store, clock):
    first = await claimed(store)
    id = first.one.id
    await clock.advance(5)
    await apply(store, first, retry(first.one, delay=0.0, error='"e"', ran=2.0))
    second = await claim(store)
    await clock.advance(5)
    await apply(store, second, after_release(second.one))
    third = await claim(store)
    await clock.advance(5)
    await apply(store, third, success(third.one, ran=4.0))

    seen = await attempts(store, id)

    end = clock.now()
    assert [(a.attempt, a.outcome, a.worker, a.error) for a in seen] == [
        (1, Outcome.FAILED, first.worker, '"e"'),
        (2, Outcome.RELEASED, second.worker, None),
        (3, Outcome.SUCCEEDED, third.worker, None),
    ]
    assert [a.ended_at for a in seen] == [end - 10, end - 5, end]
    assert [a.started_at for a in seen] == [end - 12, None, end - 4]


async def test_a_running_attempt_is_not_on_record_yet(store):
    hands = await claimed(store)

    assert await attempts(store, hands.one.id) == ()


async def test_a_checkpoint_is_given_to_the_next_attempt(store):
    hands = await claimed(store)

    await apply(store, hands, retry(hands.one, delay=0.0, checkpoint='{"page": 7}'))

    assert (await look(store, hands.one.id)).checkpoint == '{"page": 7}'
    second = await claim(store)
    assert second.one.checkpoint == '{"page": 7}'
    await apply(store, second, retry(second.one, delay=0.0))
    assert (await claim(store)).one.checkpoint == '{"page": 7}'


async def test_moves_of_a_batch_stand_alone(store):
    hands = await claimed(store, 4)
    one, two, three, four = hands.executions
    await apply(store, hands, success(two))

    verdicts = await apply(
        store, hands, success(one), death(two), retry(three), success(four, result="4")
    )

    assert [(v.id, v.attempt, v.ruling) for v in verdicts] == [(two.id, 1, Ruling.STALE)]
    seen = [(await look(store, e.id)).state for e in hands.executions]
    assert seen == [State.SUCCEEDED, State.SUCCEEDED, State.RETRYING, State.SUCCEEDED]


async def test_applying_nothing_is_answered_with_nothing(store):
    hands = await claimed(store)

    assert await apply(store, hands) == []


async def test_of_two_moves_for_one_execution_the_first_is_made(store):
    hands = await claimed(store)

    verdicts = await apply(store, hands, success(hands.one), death(hands.one))

    assert [v.ruling for v in verdicts] == [Ruling.STALE]
    assert (await look(store, hands.one.id)).state is State.SUCCEEDED


async def test_moves_without_waiting_are_made_where_nobody_is_in_the_way(store):
    hands = await claimed(store)

    verdicts = await store.queue.apply(
        TENANT, worker=hands.worker, transitions=[success(hands.one)], wait=False
    )

    assert verdicts == []
    assert (await look(store, hands.one.id)).state is State.SUCCEEDED


async def test_a_deleted_jobs_executions_can_end(store):
    hands = await claimed(store)
    await store.catalog.delete_job(TENANT, "resize")

    assert await apply(store, hands, success(hands.one)) == []

    assert (await look(store, hands.one.id)).state is State.SUCCEEDED
    with pytest.raises(JobNotFound):
        await store.queue.enqueue(TENANT, [an_execution()])


async def test_what_a_task_shows_of_itself_is_seen_while_it_runs(store, clock):
    hands = await claimed(store)
    await clock.advance(5)

    stale = await store.queue.report(
        TENANT,
        worker=hands.worker,
        reports=[a_report(hands.one, ran=2.0, progress=40.0, note="page 4", checkpoint="[4]")],
    )

    assert stale == []
    seen = await look(store, hands.one.id)
    assert (seen.state, seen.worker) == (State.RUNNING, hands.worker)
    assert seen.started_at == clock.now() - 2
    assert (seen.progress, seen.note, seen.checkpoint) == (40.0, "page 4", "[4]")


async def test_what_a_report_does_not_say_stays(store):
    hands = await claimed(store)
    full = a_report(hands.one, progress=40.0, note="page 4", checkpoint="[4]")
    await store.queue.report(TENANT, worker=hands.worker, reports=[full])

    await store.queue.report(
        TENANT, worker=hands.worker, reports=[a_report(hands.one, progress=50.0)]
    )

    seen = await look(store, hands.one.id)
    assert (seen.progress, seen.note, seen.checkpoint) == (50.0, "page 4", "[4]")


async def test_progress_is_forgotten_on_a_way_back_and_the_checkpoint_is_not(store):
    hands = await claimed(store)
    full = a_report(hands.one, progress=40.0, note="page 4", checkpoint="[4]")
    await store.queue.report(TENANT, worker=hands.worker, reports=[full])

    await apply(store, hands, retry(hands.one, delay=0.0))

    seen = await look(store, hands.one.id)
    assert (seen.progress, seen.note, seen.started_at) == (None, None, None)
    assert seen.checkpoint == "[4]"
    assert (await claim(store)).one.checkpoint == "[4]"


LAST = {"progress": 90.0, "note": "page 9", "checkpoint": "[9]"}


@pytest.mark.parametrize("gate", [None, "printer"])
@pytest.mark.parametrize("end", ["success", "death", "cancel"])
async def test_an_end_has_the_progress_that_no_report_had(store, gate, end):
    await set_gates(store, TENANT, {"printer": 2})
    hands = await claimed(store, 2, gate=gate)
    shown, silent = hands.executions
    for one in hands.executions:
        full = a_report(one, progress=40.0, note="page 4", checkpoint="[4]")
        await store.queue.report(TENANT, worker=hands.worker, reports=[full])
    if end == "cancel":
        await store.queue.cancel(TENANT, [one.id for one in hands.executions])
    move = death if end == "death" else success

    await apply(store, hands, replace(move(shown), **LAST), move(silent))

    seen = await look(store, shown.id)
    assert (seen.progress, seen.note, seen.checkpoint) == (90.0, "page 9", "[9]")
    assert seen.state is {"success": State.SUCCEEDED, "death": State.DEAD}.get(end, State.CANCELLED)
    seen = await look(store, silent.id)
    assert (seen.progress, seen.note, seen.checkpoint) == (40.0, "page 4", "[4]")


async def test_a_way_back_forgets_the_last_progress(store):
    hands = await claimed(store)

    await apply(store, hands, replace(retry(hands.one, delay=0.0), **LAST))

    seen = await look(store, hands.one.id)
    assert (seen.progress, seen.note, seen.checkpoint) == (None, None, "[9]")


async def test_progress_of_an_end_that_comes_too_late_is_not_kept(store):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))

    await apply(store, hands, replace(death(hands.one), **LAST))

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.progress, seen.checkpoint) == (State.SUCCEEDED, None, None)


async def test_a_report_of_an_attempt_that_has_ended_is_stale(store):
    hands = await claimed(store, 2)
    ended, running = hands.executions
    await apply(store, hands, retry(ended, delay=0.0))

    stale = await store.queue.report(
        TENANT,
        worker=hands.worker,
        reports=[a_report(ended, progress=1.0), a_report(running, progress=2.0)],
    )

    assert stale == [(ended.id, 1)]
    assert (await look(store, ended.id)).progress is None
    assert (await look(store, running.id)).progress == 2.0


async def test_results_come_back_character_by_character(store):
    hands = await claimed(store)
    text = '"äöü 🔔 \\u0000 \\\\ %s $1"'

    await apply(store, hands, success(hands.one, result=text))

    assert (await look(store, hands.one.id)).result == text


async def test_a_finished_execution_is_not_given_again(store, clock):
    await enqueued(store, 3)
    hands = await claim(store)
    await apply(
        store,
        hands,
        success(hands.executions[0]),
        death(hands.executions[1]),
        after_cancel(hands.executions[2]),
    )
    await clock.advance(3600)

    assert (await claim(store)).executions == []

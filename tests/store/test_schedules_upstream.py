"""How a job stands to those that depend on it: what has ended, and for which time."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Ended, Upstream
from tests.builders import (
    TENANT,
    a_schedule,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    fired,
    put,
    retry,
    success,
)


async def test_nothing_has_ended_of_what_never_ran_or_is_unknown(store, clock):
    await defined(store, "extract")
    await enqueued(store, job="extract")

    assert await store.ended_since(TENANT, [("extract", 0.0), ("nobody", 0.0)]) == [
        Ended(),
        Ended(),
    ]
    [known, unknown] = await store.upstream(TENANT, [("extract", clock.now()), ("nobody", 1e10)])
    assert (known.state, unknown) == (State.QUEUED, Upstream())


async def test_what_ended_since_is_told_by_the_newest(store, clock):
    await finished(store, job="extract")
    first = clock.now()
    await clock.advance(10)
    await dead(store, job="extract")
    second = clock.now()

    [all_of_it, since, later] = await store.ended_since(
        TENANT, [("extract", 0.0), ("extract", first), ("extract", second)]
    )

    assert all_of_it == Ended(succeeded_at=first, ended_at=second, state=State.DEAD)
    assert since == Ended(ended_at=second, state=State.DEAD)
    assert later == Ended()


async def test_what_an_overlap_rule_skipped_does_not_count(store, clock):
    schedule = a_schedule("extract", next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule)
    first = clock.now()
    await clock.advance(60)
    await fired(store, schedule)  # skipped: the one before has not ended

    assert await store.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    [one] = await store.upstream(TENANT, [("extract", first + 60)])
    assert one.state is State.QUEUED


async def test_the_latest_that_was_due_counts_and_not_the_last_that_was_made(store, clock):
    await defined(store, "extract")
    schedule = a_schedule("extract", next_at=100.0)
    await store.put_schedules(TENANT, [schedule])
    for at in (300.0, 200.0):  # as when a backfill makes up for the first
        hands = await claimed(store, job="extract", schedule=schedule.id, scheduled_for=at)
        end = success if at == 200.0 else death
        await apply(store, hands, end(hands.executions[0]))

    asked = [("extract", at) for at in (199.0, 200.0, 299.0, 300.0, 400.0)]
    found = await store.upstream(TENANT, asked)

    assert [one.state for one in found] == [
        None,
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.DEAD,
        State.DEAD,
    ]
    assert [one.has_newer_success for one in found] == [True, False, False, False, False]
    assert [one.is_behind for one in found] == [True] * 5  # it has still to fire for 100


@pytest.mark.parametrize("timed", [False, True])
async def test_if_none_was_due_a_later_failure_is_told(store, clock, timed):
    at = clock.now()
    await defined(store, "extract")
    assert await store.upstream(TENANT, [("extract", at)]) == [Upstream()]

    await clock.advance(10)
    await dead(store, job="extract", **({"scheduled_for": at + 10} if timed else {}))
    assert await store.upstream(TENANT, [("extract", at)]) == [Upstream(has_newer_failure=True)]
    [due] = await store.upstream(TENANT, [("extract", at + 10)])
    assert (due.state, due.has_newer_failure) == (State.DEAD, False)

    await finished(store, job="extract")
    [both] = await store.upstream(TENANT, [("extract", at)])
    assert (both.has_newer_success, both.has_newer_failure) == (True, True)


async def test_if_none_was_due_a_later_cancel_is_told(store, clock):
    at = clock.now()
    await clock.advance(10)
    [id] = await enqueued(store, job="extract")
    await store.cancel(TENANT, [id])

    assert await store.upstream(TENANT, [("extract", at)]) == [Upstream(has_newer_failure=True)]


async def test_of_two_for_one_time_the_later_counts(store, clock):
    await defined(store, "extract")
    for end in (death, success):
        hands = await claimed(store, job="extract", scheduled_for=100.0, schedule=mint())
        await apply(store, hands, end(hands.executions[0]))

    [one] = await store.upstream(TENANT, [("extract", 100.0)])

    assert one.state is State.SUCCEEDED


@pytest.mark.parametrize("paused", [False, True])
async def test_a_tick_that_is_still_to_fire_is_waited_for(store, clock, paused):
    schedule = a_schedule("extract", next_at=clock.now())
    await put(store, schedule)
    if paused:
        await store.pause_job(TENANT, "extract")

    [before, then] = await store.upstream(
        TENANT, [("extract", clock.now() - 1), ("extract", clock.now())]
    )

    assert (before.is_behind, then.is_behind) == (False, not paused)


async def test_a_delayed_one_is_due_at_its_time_and_a_retry_does_not_move_it(store, clock):
    await defined(store, "extract")
    now = clock.now()
    await enqueued(store, job="extract", delay=100.0)
    [before, after] = await store.upstream(TENANT, [("extract", now), ("extract", now + 100)])
    assert (before.state, after.state) == (None, State.SCHEDULED)

    await clock.advance(101)
    hands = await claim(store)
    await apply(store, hands, retry(hands.executions[0], delay=1000.0))

    [one] = await store.upstream(TENANT, [("extract", clock.now())])
    assert one.state is State.RETRYING


async def test_a_retried_dead_letter_has_not_ended(store, clock):
    [id] = await dead(store, job="extract")
    await store.revive(TENANT, [id])

    assert await store.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    [one] = await store.upstream(TENANT, [("extract", clock.now())])
    assert one.state is State.QUEUED


async def test_a_deleted_job_has_no_executions(store, clock):
    await finished(store, job="extract")
    await store.delete_job(TENANT, "extract")

    assert await store.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    assert await store.upstream(TENANT, [("extract", clock.now())]) == [Upstream()]


async def test_another_tenant_has_other_jobs(store, clock):
    await store.add_tenant("acme")
    await finished(store, job="extract")

    assert await store.ended_since("acme", [("extract", 0.0)]) == [Ended()]
    assert await store.upstream("acme", [("extract", clock.now())]) == [Upstream()]

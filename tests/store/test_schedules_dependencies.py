"""Executions that wait for other jobs, also for busy ones, and the state of these jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import LOOKED_AT_MAX, Ended, OnFailure, Overlap, Upstream, backfill_gate
from tests.builders import (
    TENANT,
    a_schedule,
    a_tick,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    fired,
    look,
    put,
    retry,
    shown,
    states,
    success,
)
from tests.sweeps import expire

DEPENDS: dict[str, Any] = {"dependencies": ("extract",)}


async def a_dependent(store, clock, **definition):
    """A schedule of a job that depends on another, and is due."""
    await defined(store, "extract")
    schedule = a_schedule("load", next_at=clock.now())
    await put(store, schedule, **{**DEPENDS, **definition})
    return schedule


async def waits(store, schedule, at=None, **options):
    """Fire it: its execution minds the dependencies of the job."""
    at = (await shown(store, schedule)).next_at if at is None else at
    tick = a_tick(at, job="load", schedule=schedule.id, wait_for_dependencies=True, **options)
    [id] = await fired(store, schedule, tick)
    return id


async def test_a_tick_of_a_job_with_dependencies_waits_for_them(store, clock):
    schedule = await a_dependent(store, clock, on_dependency_failure=OnFailure.SKIP)

    id = await waits(store, schedule)

    one = await look(store, id)
    assert (one.state, one.reason) == (State.WAITING, "dependencies")
    assert (await claim(store)).executions == []
    [found] = (await store.schedules.dependents()).waiting
    assert (found.tenant, found.id, found.job) == (TENANT, id, "load")
    assert (found.at, found.dependencies) == (one.scheduled_for, ("extract",))
    assert found.on_failure is OnFailure.SKIP


async def test_what_people_enqueue_begins_at_once(store, clock):
    await a_dependent(store, clock)

    [id] = await enqueued(store, job="load")

    assert await states(store, [id]) == [State.QUEUED]
    assert (await store.schedules.dependents()).waiting == ()


async def test_a_tick_of_a_job_without_dependencies_begins_at_once(store, clock):
    await defined(store, "extract")
    schedule = a_schedule("load", next_at=clock.now())
    await put(store, schedule)

    assert await states(store, [await waits(store, schedule)]) == [State.QUEUED]


async def test_what_is_released_can_be_claimed(store, clock):
    id = await waits(store, await a_dependent(store, clock))
    await clock.advance(60)

    assert await store.schedules.release_dependents(TENANT, [id, mint()]) == 1

    assert [one.id for one in (await claim(store)).executions] == [id]
    assert await store.schedules.release_dependents(TENANT, [id]) == 0
    assert (await store.schedules.dependents()).waiting == ()


async def test_what_is_ruled_out_is_skipped_and_frees_its_slot(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.SKIP)
    id = await waits(store, schedule)

    assert await store.schedules.rule_out_dependents(TENANT, [id, mint()]) == 1

    one = await look(store, id)
    assert (one.state, one.reason) == (State.SKIPPED, "upstream_failed")
    assert one.finished_at == clock.now()
    assert await store.schedules.rule_out_dependents(TENANT, [id]) == 0
    await clock.advance(60)
    assert await states(store, [await waits(store, schedule)]) == [State.WAITING]
    assert await store.catalog.miscounts() == []


async def test_what_was_released_is_not_ruled_out_and_the_other_way_round(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.ALLOW)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)

    assert await store.schedules.release_dependents(TENANT, [first]) == 1
    assert await store.schedules.rule_out_dependents(TENANT, [first, second]) == 1
    assert await store.schedules.release_dependents(TENANT, [first, second]) == 0

    assert await states(store, [first, second]) == [State.QUEUED, State.SKIPPED]


async def test_one_that_waits_holds_the_slot_of_its_job(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.SKIP)
    first = await waits(store, schedule)
    await clock.advance(60)

    second = await waits(store, schedule)

    assert await states(store, [first, second]) == [State.WAITING, State.SKIPPED]
    assert (await look(store, second)).reason == "overlap"
    assert await store.catalog.miscounts() == []


async def test_behind_one_that_waits_for_dependencies_others_wait_for_the_slot(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.QUEUE_ALL)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)
    assert len((await store.schedules.dependents()).waiting) == 2

    # Let go by its dependencies before it has the slot, it waits for that alone.
    await store.schedules.release_dependents(TENANT, [second])
    assert (await look(store, second)).reason == "overlap"
    assert (await claim(store)).executions == []

    await store.schedules.release_dependents(TENANT, [first])
    hands = await claim(store)
    assert [one.id for one in hands.executions] == [first]
    await apply(store, hands, *map(success, hands.executions))
    assert [one.id for one in (await claim(store)).executions] == [second]
    assert await store.catalog.miscounts() == []


async def test_who_gets_the_slot_still_waits_for_dependencies(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.QUEUE_ALL)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)

    await store.queue.cancel(TENANT, [first])

    one = await look(store, second)
    assert (one.state, one.reason) == (State.WAITING, "dependencies")
    assert (await claim(store)).executions == []
    await store.schedules.release_dependents(TENANT, [second])
    assert [one.id for one in (await claim(store)).executions] == [second]
    assert await store.catalog.miscounts() == []


async def test_a_backfill_waits_behind_its_own_gate(store, clock):
    schedule = await a_dependent(store, clock)
    gate = backfill_gate(mint(), 1)
    ids = await enqueued(
        store,
        2,
        job="load",
        schedule=schedule.id,
        scheduled_for=1.0,
        gate=gate,
        wait_for_dependencies=True,
    )

    await store.schedules.release_dependents(TENANT, ids)

    found = {one.id: one for one in [await look(store, id) for id in ids]}
    assert sorted((one.state, one.reason) for one in found.values()) == [
        (State.QUEUED, None),
        (State.WAITING, "gate"),
    ]
    assert await store.catalog.miscounts() == []


async def test_a_late_tick_is_looked_at_when_its_time_has_come(store, clock):
    schedule = await a_dependent(store, clock)
    id = await waits(store, schedule, at=clock.now())
    await store.schedules.rule_out_dependents(TENANT, [id])
    await clock.advance(60)
    later = await waits(store, schedule)
    assert [one.id for one in (await store.schedules.dependents()).waiting] == [later]
    await store.schedules.rule_out_dependents(TENANT, [later])
    await clock.advance(60)

    at = (await shown(store, schedule)).next_at
    assert at is not None
    tick = a_tick(at, job="load", schedule=schedule.id, wait_for_dependencies=True)
    assert tick.execution is not None
    tick = replace(tick, execution=replace(tick.execution, at=clock.now() + 5))  # its jitter
    await fired(store, schedule, tick)

    assert (await store.schedules.dependents()).waiting == ()
    await clock.advance(6)
    assert len((await store.schedules.dependents()).waiting) == 1


async def test_the_current_definition_says_what_is_waited_for(store, clock):
    await waits(store, await a_dependent(store, clock))

    await defined(store, "load")

    [found] = (await store.schedules.dependents()).waiting
    assert found.dependencies == ()


async def test_they_are_listed_in_pages(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.ALLOW)
    ids = []
    for _ in range(3):
        ids.append(await waits(store, schedule))
        await clock.advance(60)

    first = (await store.schedules.dependents(limit=2)).waiting
    rest = (await store.schedules.dependents(limit=2, after=first[-1].id)).waiting

    assert [one.id for one in (*first, *rest)] == sorted(ids)


async def test_one_that_waits_expires_like_any_other(store, clock):
    schedule = await a_dependent(store, clock)
    id = await waits(store, schedule, expires_in=30.0)
    await clock.advance(31)

    assert await expire(store) == 1

    assert (await look(store, id)).reason == "expired"
    assert (await store.schedules.dependents()).waiting == ()
    assert await store.catalog.miscounts() == []


# Jobs that depend on jobs which are busy: what counts may be far from the newest.

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

    [ended] = await store.schedules.ended_since(TENANT, [("extract", started)])

    # Or the one that ended later would be a round of its own.
    assert ended == Ended(succeeded_at=started + 20, ended_at=started + 20, state=State.SUCCEEDED)


async def test_a_success_is_found_behind_a_crowd(store, clock):
    hands = await claimed(store, job="extract")
    await many(store, success)
    since = clock.now()
    await clock.advance(10)
    await apply(store, hands, success(hands.one))
    asked = [("extract", since), ("extract", since + 10)]

    [found, later] = await store.schedules.ended_since(TENANT, asked, thoroughly=True)

    assert found == Ended(succeeded_at=since + 10, ended_at=since + 10, state=State.SUCCEEDED)
    assert later == Ended()


async def test_a_failure_is_found_behind_a_crowd(store, clock):
    hands = await claimed(store, job="extract")
    await many(store, success)
    since = clock.now()
    await clock.advance(10)
    await apply(store, hands, death(hands.one))

    [found] = await store.schedules.ended_since(TENANT, [("extract", since)])

    assert found == Ended(ended_at=since + 10, state=State.DEAD)


@pytest.mark.parametrize("timed", [False, True])
async def test_the_latest_that_was_due_is_found_behind_a_crowd(store, clock, timed):
    at = clock.now()
    await dead(store, job="extract", **({"scheduled_for": at} if timed else {}))
    await clock.advance(10)
    await many(store, success, **({"scheduled_for": at + 10} if timed else {}))

    [then, now] = await store.schedules.upstream(
        TENANT, [("extract", at), ("extract", clock.now())]
    )

    assert (then.state, then.has_newer_success) == (State.DEAD, True)
    assert (now.state, now.has_newer_success) == (State.SUCCEEDED, False)


async def test_a_backfill_of_many_does_not_hide_what_was_due_later(store, clock):
    at = clock.now()
    await dead(store, job="extract", scheduled_for=at)
    await many(store, success, scheduled_for=at - 1000)

    [one] = await store.schedules.upstream(TENANT, [("extract", at)])

    assert one.state is State.DEAD


async def test_an_unfinished_one_is_found_at_the_end_of_a_long_queue(store, clock):
    await finished(store, job="extract")
    await clock.advance(1)
    at = clock.now()
    [first] = await enqueued(store, job="extract")
    await clock.advance(1)
    await enqueued(store, MANY, job="extract")

    [one] = await store.schedules.upstream(TENANT, [("extract", at)])
    assert one.state is State.QUEUED

    await store.queue.cancel(TENANT, [first])
    [one] = await store.schedules.upstream(TENANT, [("extract", at)])
    assert one.state is State.CANCELLED


# How a job stands to those that depend on it: what has ended, and for which time.


async def test_nothing_has_ended_of_what_never_ran_or_is_unknown(store, clock):
    await defined(store, "extract")
    await enqueued(store, job="extract")

    assert await store.schedules.ended_since(TENANT, [("extract", 0.0), ("nobody", 0.0)]) == [
        Ended(),
        Ended(),
    ]
    [known, unknown] = await store.schedules.upstream(
        TENANT, [("extract", clock.now()), ("nobody", 1e10)]
    )
    assert (known.state, unknown) == (State.QUEUED, Upstream())


async def test_what_ended_since_is_told_by_the_newest(store, clock):
    await finished(store, job="extract")
    first = clock.now()
    await clock.advance(10)
    await dead(store, job="extract")
    second = clock.now()

    [all_of_it, since, later] = await store.schedules.ended_since(
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

    assert await store.schedules.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    [one] = await store.schedules.upstream(TENANT, [("extract", first + 60)])
    assert one.state is State.QUEUED


async def test_the_latest_that_was_due_counts_and_not_the_last_that_was_made(store, clock):
    await defined(store, "extract")
    schedule = a_schedule("extract", next_at=100.0)
    await store.schedules.put_schedules(TENANT, [schedule])
    for at in (300.0, 200.0):  # as when a backfill makes up for the first
        hands = await claimed(store, job="extract", schedule=schedule.id, scheduled_for=at)
        end = success if at == 200.0 else death
        await apply(store, hands, end(hands.executions[0]))

    asked = [("extract", at) for at in (199.0, 200.0, 299.0, 300.0, 400.0)]
    found = await store.schedules.upstream(TENANT, asked)

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
    assert await store.schedules.upstream(TENANT, [("extract", at)]) == [Upstream()]

    await clock.advance(10)
    await dead(store, job="extract", **({"scheduled_for": at + 10} if timed else {}))
    assert await store.schedules.upstream(TENANT, [("extract", at)]) == [
        Upstream(has_newer_failure=True)
    ]
    [due] = await store.schedules.upstream(TENANT, [("extract", at + 10)])
    assert (due.state, due.has_newer_failure) == (State.DEAD, False)

    await finished(store, job="extract")
    [both] = await store.schedules.upstream(TENANT, [("extract", at)])
    assert (both.has_newer_success, both.has_newer_failure) == (True, True)


async def test_if_none_was_due_a_later_cancel_is_told(store, clock):
    at = clock.now()
    await clock.advance(10)
    [id] = await enqueued(store, job="extract")
    await store.queue.cancel(TENANT, [id])

    assert await store.schedules.upstream(TENANT, [("extract", at)]) == [
        Upstream(has_newer_failure=True)
    ]


async def test_of_two_for_one_time_the_later_counts(store, clock):
    await defined(store, "extract")
    for end in (death, success):
        hands = await claimed(store, job="extract", scheduled_for=100.0, schedule=mint())
        await apply(store, hands, end(hands.executions[0]))

    [one] = await store.schedules.upstream(TENANT, [("extract", 100.0)])

    assert one.state is State.SUCCEEDED


async def test_the_one_created_last_counts_whatever_the_order_of_the_ids(store, clock):
    early, late, latest = mint(), mint(), mint()
    await dead(store, job="extract", id=latest)  # by a client whose clock is ahead
    await enqueued(store, job="extract", id=late)
    await store.queue.cancel(TENANT, [late])
    await clock.advance(10)
    await finished(store, job="extract", id=early)

    [one] = await store.schedules.upstream(TENANT, [("extract", clock.now())])

    assert one.state is State.SUCCEEDED


@pytest.mark.parametrize("paused", [False, True])
async def test_a_tick_that_is_still_to_fire_is_waited_for(store, clock, paused):
    schedule = a_schedule("extract", next_at=clock.now())
    await put(store, schedule)
    if paused:
        await store.schedules.pause_job(TENANT, "extract")

    [before, then] = await store.schedules.upstream(
        TENANT, [("extract", clock.now() - 1), ("extract", clock.now())]
    )

    assert (before.is_behind, then.is_behind) == (False, not paused)


async def test_a_delayed_one_is_due_at_its_time_and_a_retry_does_not_move_it(store, clock):
    await defined(store, "extract")
    now = clock.now()
    await enqueued(store, job="extract", delay=100.0)
    [before, after] = await store.schedules.upstream(
        TENANT, [("extract", now), ("extract", now + 100)]
    )
    assert (before.state, after.state) == (None, State.SCHEDULED)

    await clock.advance(101)
    hands = await claim(store)
    await apply(store, hands, retry(hands.executions[0], delay=1000.0))

    [one] = await store.schedules.upstream(TENANT, [("extract", clock.now())])
    assert one.state is State.RETRYING


async def test_a_retried_dead_letter_has_not_ended(store, clock):
    [id] = await dead(store, job="extract")
    await store.queue.revive(TENANT, [id])

    assert await store.schedules.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    [one] = await store.schedules.upstream(TENANT, [("extract", clock.now())])
    assert one.state is State.QUEUED


async def test_a_deleted_job_has_no_executions(store, clock):
    await finished(store, job="extract")
    await store.catalog.delete_job(TENANT, "extract")

    assert await store.schedules.ended_since(TENANT, [("extract", 0.0)]) == [Ended()]
    assert await store.schedules.upstream(TENANT, [("extract", clock.now())]) == [Upstream()]


async def test_another_tenant_has_other_jobs(store, clock):
    await store.admin.add_tenant("acme")
    await finished(store, job="extract")

    assert await store.schedules.ended_since("acme", [("extract", 0.0)]) == [Ended()]
    assert await store.schedules.upstream("acme", [("extract", clock.now())]) == [Upstream()]

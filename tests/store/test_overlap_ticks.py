"""Overlap of ticks: which are skipped, which wait, and in what order they are asked."""

from daybell.core.execution import State
from daybell.core.overlap import Overlap
from daybell.core.schedule import Decision
from tests.builders import (
    TENANT,
    a_schedule,
    a_tick,
    claim,
    claimed,
    defined,
    enqueued,
    fired,
    look,
    put,
    shown,
    states,
)
from tests.store.overlaps import ended, refused, ticked

QUEUED, WAITING = State.QUEUED, State.WAITING
SCHEDULED, SKIPPED, CANCELLED = State.SCHEDULED, State.SKIPPED, State.CANCELLED


async def test_a_tick_that_is_not_let_in_is_recorded_as_skipped(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    (first,) = await fired(store, schedule)

    (second,) = await fired(store, schedule)

    seen = await look(store, second)
    assert (seen.state, seen.reason, seen.outcome) == (SKIPPED, "overlap", None)
    assert (seen.created_at, seen.finished_at) == (clock.now(), clock.now())
    assert (seen.schedule, seen.scheduled_for) == (schedule.id, clock.now() + 60)
    record, before = await store.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.reason) == (Decision.SKIPPED, "overlap")
    assert (record.at, record.execution) == (clock.now() + 60, second)
    assert (before.decision, before.execution) == (Decision.FIRED, first)
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (1, 1, clock.now())
    assert after.next_at == clock.now() + 120
    assert (await claim(store)).one.id == first


async def test_a_skipped_one_is_answered_as_such_and_takes_no_slot(store):
    await defined(store, overlap=Overlap.SKIP)
    hands = await claimed(store)

    answer = await ticked(store)

    assert answer.skipped
    assert await states(store, [answer.id]) == [SKIPPED]
    await ended(store, hands)
    assert not (await ticked(store)).skipped


async def test_a_scheduled_job_is_not_run_twice_at_a_time_unless_asked(store, clock):
    await defined(store, "minds")
    await defined(store, "allows", overlap=Overlap.ALLOW)
    minds = [await ticked(store, job="minds") for _ in range(2)]
    allows = [await ticked(store, job="allows") for _ in range(2)]

    assert [one.skipped for one in minds + allows] == [False, True, False, False]
    # What a person enqueues beside it is asked only if the job itself says so.
    assert await states(store, await enqueued(store, 2, job="minds")) == [QUEUED] * 2


async def test_a_definition_with_schedules_minds_what_people_enqueue_too(store):
    await defined(store, schedules=('{"every": 60}',))
    (first,) = await enqueued(store)

    assert (await refused(store)).execution == first


async def test_replace_by_a_tick_is_on_record_as_fired(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap=Overlap.REPLACE)
    (first,) = await fired(store, schedule)

    (second,) = await fired(store, schedule)

    assert await states(store, [first, second]) == [CANCELLED, QUEUED]
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (2, 0, clock.now() + 60)


async def test_a_tick_whose_time_is_put_off_takes_its_slot_at_once(store, clock):
    await defined(store, overlap=Overlap.SKIP)

    first = await ticked(store, delay=10.0)

    assert await states(store, [first.id]) == [SCHEDULED]
    assert (await ticked(store)).skipped
    assert (await refused(store)).execution == first.id
    assert (await claim(store)).executions == []
    await clock.advance(10)
    hands = await claim(store)
    assert hands.one.id == first.id
    await ended(store, hands)
    assert not (await ticked(store)).skipped


async def test_a_tick_whose_time_is_put_off_waits_if_it_has_to(store, clock):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    hands = await claimed(store)

    second = await ticked(store, delay=10.0)

    assert await states(store, [second.id]) == [WAITING]
    await ended(store, hands)
    assert await store.admit() == 0
    await clock.advance(10)
    assert await store.admit() == 1
    assert await states(store, [second.id]) == [QUEUED]


async def test_ticks_of_one_firing_are_asked_one_after_the_other(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap=Overlap.QUEUE)

    ids = await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in range(4)))

    assert await states(store, ids) == [QUEUED, WAITING, SKIPPED, SKIPPED]
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (2, 2, at + 1)
    decisions = [tick.decision for tick in await store.list_ticks(TENANT, schedule.id)]
    assert decisions == [Decision.SKIPPED] * 2 + [Decision.FIRED] * 2


async def test_two_schedules_of_one_job_are_in_each_others_way(store, clock):
    first, second = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now())
    await put(store, first, second)

    ids = await fired(store, first) + await fired(store, second)

    assert await states(store, ids) == [QUEUED, SKIPPED]


async def test_a_schedule_added_at_run_time_gates_its_ticks_and_nothing_else(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)  # of a job that says nothing about overlap

    (by_hand, again) = await enqueued(store, 2)
    (first,) = await fired(store, schedule)
    await fired(store, schedule)

    assert await states(store, [by_hand, again, first]) == [State.QUEUED] * 3
    seen = await shown(store, schedule)
    assert (seen.fired, seen.skipped) == (1, 1)


async def test_a_fixed_delay_begins_with_the_end_of_what_came_in_the_place_of_another(store, clock):
    await defined(store, overlap=Overlap.REPLACE)
    schedule = a_schedule(next_at=clock.now(), delay=5.0)
    await store.put_schedules(TENANT, [schedule])
    await fired(store, schedule, next_at=None)
    again = a_schedule(id=schedule.id, next_at=clock.now() + 1, delay=5.0)
    await store.put_schedules(TENANT, [again])
    await clock.advance(1.0)

    (second,) = await fired(store, again, next_at=None)

    assert (await shown(store, schedule)).next_at is None
    hands = await claim(store)
    assert hands.one.id == second
    await ended(store, hands)
    assert (await shown(store, schedule)).next_at == clock.now() + 5

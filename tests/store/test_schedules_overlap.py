"""Overlap of ticks: which are skipped, which wait, and in what order they are asked."""

import pytest

from daybell.core.execution import Cancellation, Revival, State
from daybell.core.schedule import Decision, Overlap, gate_of
from tests.builders import (
    TENANT,
    a_schedule,
    a_tick,
    add_tenants,
    apply,
    claim,
    claimed,
    death,
    defined,
    enqueued,
    fired,
    look,
    put,
    shown,
    states,
)
from tests.store.overlaps import ended, refused, ticked
from tests.sweeps import admit

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
    record, before = await store.schedules.list_ticks(TENANT, schedule.id)
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
    assert await admit(store) == 0
    await clock.advance(10)
    assert await admit(store) == 1
    assert await states(store, [second.id]) == [QUEUED]


async def test_ticks_of_one_firing_are_asked_one_after_the_other(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap=Overlap.QUEUE)

    ids = await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in range(4)))

    assert await states(store, ids) == [QUEUED, WAITING, SKIPPED, SKIPPED]
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (2, 2, at + 1)
    decisions = [tick.decision for tick in await store.schedules.list_ticks(TENANT, schedule.id)]
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
    await store.schedules.put_schedules(TENANT, [schedule])
    await fired(store, schedule, next_at=None)
    again = a_schedule(id=schedule.id, next_at=clock.now() + 1, delay=5.0)
    await store.schedules.put_schedules(TENANT, [again])
    await clock.advance(1.0)

    (second,) = await fired(store, again, next_at=None)

    assert (await shown(store, schedule)).next_at is None
    hands = await claim(store)
    assert hands.one.id == second
    await ended(store, hands)
    assert (await shown(store, schedule)).next_at == clock.now() + 5


# Schedules that have a gate of their own.


async def test_schedules_with_gates_of_their_own_are_not_in_each_others_way(store, clock):
    some = [a_schedule(next_at=clock.now(), own_gate=True) for _ in range(3)]
    await put(store, *some)

    first = [id for one in some for id in await fired(store, one)]
    again = [id for one in some for id in await fired(store, one)]

    assert await states(store, first) == [QUEUED] * 3
    assert await states(store, again) == [SKIPPED] * 3
    assert [(one.fired, one.skipped) for one in await store.schedules.list_schedules(TENANT)] == [
        (1, 1)
    ] * 3
    for hands in [await claim(store, 1) for _ in range(3)]:
        await ended(store, hands)
    third = [id for one in some for id in await fired(store, one)]
    assert await states(store, third) == [QUEUED] * 3
    assert await store.catalog.miscounts() == []


async def test_a_schedule_with_a_gate_of_its_own_and_the_job_do_not_see_each_other(store, clock):
    own, joined = a_schedule(next_at=clock.now(), own_gate=True), a_schedule(next_at=clock.now())
    await put(store, own, joined, overlap=Overlap.SKIP)
    (by_hand,) = await enqueued(store)

    ids = await fired(store, own) + await fired(store, joined)

    assert await states(store, ids) == [QUEUED, SKIPPED]
    assert (await refused(store)).execution == by_hand
    gates = [(await look(store, id)).gate for id in (ids[0], by_hand, ids[1])]
    assert gates == [gate_of("resize", own.id), gate_of("resize"), gate_of("resize")]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Overlap.QUEUE, [QUEUED, WAITING, SKIPPED]),
        (Overlap.QUEUE_ALL, [QUEUED, WAITING, WAITING]),
        (Overlap.REPLACE, [CANCELLED, CANCELLED, QUEUED]),
        (Overlap.ALLOW, [QUEUED, QUEUED, QUEUED]),
    ],
)
async def test_each_rule_holds_within_one_schedule(store, clock, rule, expected):
    some = [a_schedule(next_at=clock.now(), own_gate=True) for _ in range(2)]
    await put(store, *some, overlap=rule)

    rounds = [[(await fired(store, one))[0] for one in some] for _ in range(3)]

    for of_one in zip(*rounds, strict=True):
        assert await states(store, of_one) == expected


async def test_what_waits_for_its_schedule_goes_on_when_that_one_has_ended(store, clock):
    some = [a_schedule(next_at=clock.now(), own_gate=True) for _ in range(2)]
    await put(store, *some, overlap=Overlap.QUEUE_ALL)
    rounds = [[(await fired(store, one))[0] for one in some] for _ in range(2)]

    hands = await claim(store, 1)
    await ended(store, hands)

    index = rounds[0].index(hands.one.id)
    expected = [WAITING, WAITING]
    expected[index] = QUEUED
    assert await states(store, rounds[1]) == expected


async def test_a_dead_letter_of_a_schedule_comes_back_through_its_gate(store, clock):
    own, other = (a_schedule(next_at=clock.now(), own_gate=True) for _ in range(2))
    await put(store, own, other)
    (letter,) = await fired(store, own)
    hands = await claim(store)
    await apply(store, hands, death(hands.one))
    await fired(store, other)
    (later,) = await fired(store, own)

    assert await store.queue.revive(TENANT, [letter]) == [Revival.REVIVED]

    seen = await look(store, letter)
    assert (seen.state, seen.reason) == (WAITING, "overlap")
    assert await store.queue.cancel(TENANT, [later]) == [Cancellation.CANCELLED]
    assert await states(store, [letter]) == [QUEUED]


async def test_a_schedule_leaves_its_gate_and_comes_back_to_it(store, clock):
    schedule = a_schedule(next_at=clock.now(), own_gate=True)
    await put(store, schedule)
    (apart,) = await fired(store, schedule)

    joined = a_schedule(id=schedule.id, next_at=clock.now() + 60)
    await store.schedules.put_schedules(TENANT, [joined])
    assert (await shown(store, joined)).overlap_by == "job"
    (at_job,) = await fired(store, joined)
    back = a_schedule(id=schedule.id, next_at=clock.now() + 120, own_gate=True)
    await store.schedules.put_schedules(TENANT, [back])
    (skipped,) = await fired(store, back)

    assert await states(store, [apart, at_job, skipped]) == [QUEUED, QUEUED, SKIPPED]
    assert (await shown(store, back)).overlap_by == "schedule"


async def test_two_tenants_have_gates_of_their_own_for_one_id(store, clock):
    await add_tenants(store, ["other"])
    schedule = a_schedule(next_at=clock.now(), own_gate=True)
    for tenant in (TENANT, "other"):
        await put(store, schedule, tenant=tenant)

    (ours,) = await fired(store, schedule)
    (theirs,) = await fired(store, schedule, tenant="other")

    assert await states(store, [ours]) == [QUEUED]
    assert (await look(store, theirs, tenant="other")).state is QUEUED

"""Firing: one caller advances a cursor, and every tick exists once, also on short ways."""

from dataclasses import dataclass

import pytest

from daybell.core.execution import State
from daybell.core.schedule import Decision, Firing, Overlap, Tick
from daybell.core.views import ExecutionFilter
from daybell.errors import JobNotFound, UsageError
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    a_tick,
    add_tenants,
    an_execution,
    apply,
    claim,
    count,
    defined,
    enqueued,
    fired,
    look,
    put,
    shown,
    success,
)
from tests.sweeps import set_gates

EVERYTHING = ExecutionFilter()


async def only(store):
    (schedule,) = await store.schedules.list_schedules(TENANT)
    return schedule


async def test_a_firing_advances_records_and_creates_as_one(store, clock):
    at = clock.now() - 3
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    new = an_execution(scheduled_for=at, schedule=schedule.id, args='{"n": 1}')
    tick = Tick(at=at, execution=new)

    assert await store.schedules.fire([a_firing(schedule, tick, next_at=at + 60)]) == [True]

    seen = await only(store)
    assert (seen.next_at, seen.last_at, seen.fired) == (at + 60, at, 1)
    (record,) = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.schedule, record.at, record.decision) == (schedule.id, at, Decision.FIRED)
    assert (record.reason, record.until, record.execution) == (None, None, new.id)
    execution = await look(store, new.id)
    assert (execution.state, execution.args) == (State.QUEUED, '{"n": 1}')
    assert (execution.schedule, execution.scheduled_for) == (schedule.id, at)
    assert (await claim(store)).one.scheduled_for == at


async def test_only_one_of_two_firings_from_the_same_cursor_is_made(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    first = await store.schedules.fire([a_firing(schedule)])
    second = await store.schedules.fire([a_firing(schedule)])

    assert (first, second) == ([True], [False])
    assert await count(store) == 1
    assert (await only(store)).fired == 1


async def test_of_two_firings_from_the_same_cursor_in_a_batch_the_first_is_made(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    assert await store.schedules.fire([a_firing(schedule), a_firing(schedule)]) == [True, False]

    assert await count(store) == 1


async def test_a_paused_or_deleted_schedule_does_not_fire(store, clock):
    paused = a_schedule("paused", next_at=clock.now())
    gone = a_schedule(next_at=clock.now())
    alive = a_schedule(next_at=clock.now())
    await put(store, paused, gone, alive)
    await store.schedules.pause_job(TENANT, "paused")
    await store.schedules.delete_schedules(TENANT, [gone.id])

    answers = await store.schedules.fire([a_firing(paused), a_firing(gone), a_firing(alive)])

    assert answers == [False, False, True]
    assert await count(store) == 1
    assert await store.schedules.list_ticks(TENANT, paused.id) == []
    assert await store.schedules.list_ticks(TENANT, gone.id) == []


async def test_a_schedule_of_a_deleted_job_does_not_fire(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.catalog.delete_job(TENANT, "resize")

    assert await store.schedules.fire([a_firing(schedule)]) == [False]

    assert (await store.schedules.due_schedules()).schedules == ()


async def test_another_tenants_schedule_does_not_fire(store, clock):
    await add_tenants(store, ["acme"])
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await defined(store, tenant="acme")

    answers = await store.schedules.fire(
        [a_firing(schedule, tenant="acme"), a_firing(schedule, tenant="nobody")]
    )

    assert answers == [False, False]
    assert (await only(store)).next_at == schedule.next_at


async def test_firing_nothing_is_answered_with_nothing(store):
    assert await store.schedules.fire([]) == []


async def test_a_schedule_can_come_to_its_end(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    await store.schedules.fire([a_firing(schedule, next_at=None)])

    assert (await only(store)).next_at is None
    assert (await store.schedules.due_schedules()).schedules == ()


async def test_a_schedule_does_not_end_with_a_tick_that_is_skipped(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap="skip")
    one, two, three = (a_tick(at + late, schedule=schedule.id) for late in (0, 1, 2))

    await fired(store, schedule, one, two, next_at=None, if_refused_at=at + 2)
    stood_at = (await only(store)).next_at
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await fired(store, schedule, three, next_at=None, if_refused_at=at + 3)

    assert stood_at == at + 2
    after = await only(store)
    assert (after.next_at, after.fired, after.skipped) == (None, 2, 1)


async def test_a_schedule_does_not_end_with_a_tick_that_was_on_record(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    await fired(store, schedule, a_tick(at), next_at=at + 1)

    await fired(store, schedule, a_tick(at), next_at=None, if_refused_at=at + 2)

    after = await only(store)
    assert (after.next_at, after.fired) == (at + 2, 1)


async def test_skipped_and_missed_ticks_are_recorded_without_an_execution(store, clock):
    at = clock.now() - 300
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    ticks = (
        Tick(at=at, decision=Decision.MISSED, reason="downtime", until=at + 180, count=4),
        Tick(at=at + 240, decision=Decision.SKIPPED, reason="overlap"),
        a_tick(at + 300),
    )

    await store.schedules.fire([a_firing(schedule, *ticks, next_at=at + 360)])

    records = await store.schedules.list_ticks(TENANT, schedule.id)
    assert [(r.at, r.decision, r.reason, r.until, r.count) for r in records] == [
        (at + 300, Decision.FIRED, None, None, 1),
        (at + 240, Decision.SKIPPED, "overlap", None, 1),
        (at, Decision.MISSED, "downtime", at + 180, 4),
    ]
    assert [r.execution is None for r in records] == [False, True, True]
    seen = await only(store)
    assert (seen.fired, seen.last_at) == (1, at + 300)
    assert (seen.skipped, seen.missed) == (1, 4)
    assert await count(store) == 1


async def test_a_missed_range_is_not_lost_to_a_tick_of_its_name(store, clock):
    at = clock.now() - 300
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap=Overlap.ALLOW)
    await fired(store, schedule, next_at=at + 60)
    await store.schedules.put_schedules(TENANT, [schedule])  # back to where it was

    def missed(first, *, count):
        return Tick(at=first, decision=Decision.MISSED, until=at + 240, count=count)

    lost = a_firing(schedule, missed(at, count=5), a_tick(at + 300), next_at=at + 360)
    assert await store.schedules.fire([lost]) == [False]
    before = await only(store)
    assert (before.next_at, before.missed, before.fired) == (at, 0, 1)
    assert len(await store.schedules.list_ticks(TENANT, schedule.id)) == 1

    await fired(store, schedule, missed(at + 60, count=4), a_tick(at + 300), next_at=at + 360)
    after = await only(store)
    assert (after.next_at, after.missed, after.fired) == (at + 360, 4, 2)
    records = await store.schedules.list_ticks(TENANT, schedule.id)
    assert [(one.at, one.until) for one in records] == [
        (at + 300, None),
        (at + 60, at + 240),
        (at, None),
    ]


async def test_a_range_that_would_be_lost_holds_up_nobody_else(store, clock):
    at = clock.now()
    first, second = a_schedule(next_at=at), a_schedule("other", next_at=at)
    await put(store, first, second)
    await fired(store, first, next_at=at + 60)
    await store.schedules.put_schedules(TENANT, [first])
    missed = Tick(at=at, decision=Decision.MISSED, until=at + 60, count=2)

    assert await store.schedules.fire([a_firing(first, missed), a_firing(second, missed)]) == [
        False,
        True,
    ]


async def test_a_firing_without_a_fired_tick_leaves_the_last_one(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.fire([a_firing(schedule)])
    later = clock.now() + 60

    skipped = Tick(at=later, decision=Decision.SKIPPED, reason="overlap")
    firing = Firing(
        tenant=TENANT, schedule=schedule.id, expect=later, next_at=later + 60, ticks=(skipped,)
    )
    assert await store.schedules.fire([firing]) == [True]

    seen = await only(store)
    assert (seen.fired, seen.last_at) == (1, clock.now())


async def test_a_tick_on_record_creates_no_second_execution(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    await store.schedules.fire([a_firing(schedule)])
    # The cursor is set back, as by a person who replaces the schedule.
    await store.schedules.put_schedules(TENANT, [schedule])

    fired = await store.schedules.fire(
        [a_firing(schedule, a_tick(at), a_tick(at + 30), next_at=at + 60)]
    )

    assert fired == [True]
    assert await count(store) == 2
    assert [r.at for r in await store.schedules.list_ticks(TENANT, schedule.id)] == [at + 30, at]
    assert (await only(store)).next_at == at + 60


async def test_a_fired_execution_obeys_unique_keys(store, clock):
    at = clock.now()
    (holder,) = await enqueued(store, unique_key="k")
    schedule = a_schedule(next_at=at)
    await put(store, schedule)

    await store.schedules.fire([a_firing(schedule, a_tick(at, unique_key="k"))])

    (record,) = await store.schedules.list_ticks(TENANT, schedule.id)
    assert record.execution == holder
    assert await count(store) == 1


async def test_a_fired_execution_goes_through_its_gate(store, clock):
    at = clock.now()
    await set_gates(store, TENANT, {"narrow": 1})
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    ticks = a_tick(at, gate="narrow"), a_tick(at + 1, gate="narrow")

    await store.schedules.fire([a_firing(schedule, *ticks)])

    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {
        State.QUEUED: 1,
        State.WAITING: 1,
    }


@pytest.mark.parametrize(
    "bad",
    [an_execution(args="\ud800"), an_execution(gate="nothing"), an_execution("nothing")],
    ids=["surrogate", "gate", "job"],
)
async def test_a_firing_with_a_bad_execution_leaves_no_half(store, clock, bad):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    with pytest.raises((UsageError, JobNotFound)):
        await store.schedules.fire([a_firing(schedule, Tick(at=clock.now(), execution=bad))])

    assert (await only(store)).next_at == schedule.next_at
    assert await store.schedules.list_ticks(TENANT, schedule.id) == []
    assert await count(store) == 0


# Firings that ask for nothing special, for which a store may take a shorter way: whichever it is,
# the outcome is the same.


@dataclass
class Crowd:
    """Schedules that are due, and their firings."""

    schedules: list
    firings: list

    @property
    def ids(self):
        return [firing.ticks[-1].execution.id for firing in self.firings]


async def a_crowd(
    store, clock, size=5, jobs=("mail", "resize"), own_gate=False, overlap="allow", **options
):
    at = clock.now() - 1
    schedules = [
        a_schedule(jobs[n % len(jobs)], next_at=at - n, args=f'{{"n": {n}}}', own_gate=own_gate)
        for n in range(size)
    ]
    await put(store, *schedules, overlap=overlap, **options)
    return Crowd(schedules, [a_firing(one) for one in schedules])


async def test_many_fire_at_once_each_with_its_own_time(store, clock):
    crowd = await a_crowd(store, clock)

    assert await store.schedules.fire(crowd.firings) == [True] * 5

    for schedule, firing in zip(crowd.schedules, crowd.firings, strict=True):
        at, new = schedule.next_at, firing.ticks[0].execution
        seen = await shown(store, schedule)
        assert (seen.next_at, seen.last_at, seen.fired) == (at + 60, at, 1)
        (record,) = await store.schedules.list_ticks(TENANT, schedule.id)
        assert (record.at, record.decision, record.execution) == (at, Decision.FIRED, new.id)
        assert (record.count, record.until, record.reason) == (1, None, None)
        execution = await look(store, new.id)
        assert (execution.state, execution.job) == (State.QUEUED, schedule.job)
        assert (execution.args, execution.version) == (new.args, 1)
        assert (execution.schedule, execution.scheduled_for) == (schedule.id, at)


async def test_a_batch_that_comes_again_fires_nothing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.schedules.fire(crowd.firings[:3])

    assert await store.schedules.fire(crowd.firings) == [False] * 3 + [True] * 2
    assert await store.schedules.fire(crowd.firings) == [False] * 5

    assert await count(store) == 5
    assert {(await shown(store, one)).fired for one in crowd.schedules} == {1}


async def test_a_plan_that_is_out_of_date_fires_nothing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.schedules.fire(crowd.firings)
    stale = [
        a_firing(one, a_tick(one.next_at + 0.5, job=one.job, schedule=one.id))
        for one in crowd.schedules
    ]

    assert await store.schedules.fire(stale) == [False] * 5

    assert await count(store) == 5


async def test_the_like_and_the_unlike_fire_together(store, clock):
    crowd = await a_crowd(store, clock)
    at = clock.now() - 1
    minding, late = a_schedule("minding", next_at=at), a_schedule("late", next_at=at)
    missing, jittery = a_schedule("mail", next_at=at - 120), a_schedule("mail", next_at=at)
    await put(store, minding, overlap="skip")
    await put(store, late, overlap="allow", expires=30.0)
    await store.schedules.put_schedules(TENANT, [missing, jittery])
    jittered = an_execution("mail", scheduled_for=at, schedule=jittery.id, at=at + 600)
    missed = Tick(at=at - 120, decision=Decision.MISSED, until=at - 60, count=2)
    others = [
        a_firing(minding),
        a_firing(late),
        a_firing(missing, missed, a_tick(at, job="mail", schedule=missing.id), next_at=at + 60),
        a_firing(jittery, Tick(at=at, execution=jittered)),
    ]

    assert await store.schedules.fire([*others[:2], *crowd.firings, *others[2:]]) == [True] * 9

    made = [one.ticks[-1].execution for one in others]
    found = [await look(store, one.id) for one in made if one is not None]
    states = [State.QUEUED, State.QUEUED, State.QUEUED, State.SCHEDULED]
    assert [one.state for one in found] == states
    assert found[1].expires_at is not None
    assert ((await shown(store, missing)).missed, await count(store)) == (2, 9)


async def test_a_tick_on_record_keeps_nobody_else_from_firing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.schedules.fire(crowd.firings[:1])
    await store.schedules.put_schedules(TENANT, crowd.schedules[:1])  # sets its cursor back
    again = [a_firing(one) for one in crowd.schedules]

    assert await store.schedules.fire(again) == [True] * 5

    assert await count(store) == 5
    assert {(await shown(store, one)).fired for one in crowd.schedules} == {1}


async def test_an_id_that_exists_keeps_nobody_else_from_firing(store, clock):
    crowd = await a_crowd(store, clock)
    taken = crowd.firings[2].ticks[0].execution
    await store.queue.enqueue(TENANT, [taken])

    assert await store.schedules.fire(crowd.firings) == [True] * 5

    assert await count(store) == 5


async def test_a_job_that_has_changed_fires_in_its_new_version(store, clock, place):
    crowd = await a_crowd(store, clock)
    await store.schedules.fire(crowd.firings[:2])  # it has seen the jobs
    other = place.connect()
    await other.open()
    await defined(other, "mail", overlap="allow", queue="urgent")
    if other is not store:
        await other.close()

    assert await store.schedules.fire(crowd.firings[2:]) == [True] * 3

    found = [await look(store, id) for id in crowd.ids[2:]]
    assert [(one.job, one.version) for one in found] == [("mail", 2), ("resize", 1), ("mail", 2)]
    assert found[0].queue == "urgent"


@pytest.mark.parametrize("gone", ["paused", "deleted"])
async def test_a_job_that_is_gone_keeps_nobody_else_from_firing(store, clock, gone):
    crowd = await a_crowd(store, clock)
    if gone == "paused":
        await store.schedules.pause_job(TENANT, "mail")
    else:
        await store.catalog.delete_job(TENANT, "mail")

    assert await store.schedules.fire(crowd.firings) == [False, True, False, True, False]


@pytest.mark.parametrize("overlap", [None, "skip", "queue", "queue_all", "replace"])
async def test_schedules_with_gates_of_their_own_fire_and_take_the_slots(store, clock, overlap):
    crowd = await a_crowd(store, clock, own_gate=True, overlap=overlap)

    assert await store.schedules.fire(crowd.firings) == [True] * 5

    found = [await look(store, id) for id in crowd.ids]
    assert [one.state for one in found] == [State.QUEUED] * 5
    assert len({one.gate for one in found}) == 5
    assert await store.catalog.miscounts() == []


async def test_those_whose_gate_is_taken_are_skipped_and_the_others_fire(store, clock):
    crowd = await a_crowd(store, clock, own_gate=True, overlap="skip")
    await store.schedules.fire(crowd.firings[:2])
    firings = [a_firing(await shown(store, one)) for one in crowd.schedules]

    assert await store.schedules.fire(firings) == [True] * 5

    seen = [await shown(store, one) for one in crowd.schedules]
    assert [(one.fired, one.skipped) for one in seen] == [(1, 1)] * 2 + [(1, 0)] * 3
    found = [await look(store, id) for id in Crowd(crowd.schedules, firings).ids]
    assert [one.state for one in found] == [State.SKIPPED] * 2 + [State.QUEUED] * 3
    assert await store.catalog.miscounts() == []


async def test_of_schedules_that_share_a_gate_one_fires(store, clock):
    crowd = await a_crowd(store, clock, overlap="skip")

    assert await store.schedules.fire(crowd.firings) == [True] * 5

    found = [await look(store, id) for id in crowd.ids]
    queued = [one.job for one in found if one.state is State.QUEUED]
    assert sorted(queued) == ["mail", "resize"]
    assert [one.state for one in found].count(State.SKIPPED) == 3
    assert await store.catalog.miscounts() == []


async def test_what_waits_at_a_gate_comes_before_a_tick(store, clock):
    crowd = await a_crowd(store, clock, size=2, overlap="queue")
    await store.queue.enqueue(TENANT, [an_execution("mail", at=clock.now() + 5)])
    await clock.advance(10)

    assert await store.schedules.fire(crowd.firings) == [True] * 2

    found = [await look(store, id) for id in crowd.ids]
    assert [one.state for one in found] == [State.SKIPPED, State.QUEUED]


async def test_what_fires_counts_towards_the_quota(store, clock):
    await store.admin.set_quotas(TENANT, per_minute=100)
    crowd = await a_crowd(store, clock)

    assert await store.schedules.fire(crowd.firings) == [True] * 5

    assert await count(store) == 5

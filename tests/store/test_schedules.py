"""Schedules: cursors that one caller advances, and ticks that exist once."""

import pytest

from daybell.core.execution import State
from daybell.core.overlap import Overlap
from daybell.core.schedule import Decision, Firing, Tick
from daybell.core.view import ExecutionFilter
from daybell.errors import JobNotFound, UsageError
from daybell.store.ids import mint
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    a_tick,
    an_execution,
    apply,
    claim,
    death,
    defined,
    enqueued,
    fired,
    look,
    put,
    shown,
    success,
)

EVERYTHING = ExecutionFilter()


async def only(store):
    (schedule,) = await store.list_schedules(TENANT)
    return schedule


async def count(store):
    return sum((await store.count_executions(TENANT, EVERYTHING)).values())


async def test_a_schedule_is_kept_as_it_is(store, clock):
    new = a_schedule(rule='{"cron": "0 6 * * *", "tz": "Europe/Rome"}', next_at=clock.now() + 0.25)

    await put(store, new)

    seen = await only(store)
    assert (seen.id, seen.tenant, seen.job, seen.rule) == (new.id, TENANT, "resize", new.rule)
    assert (seen.next_at, seen.last_at, seen.fired) == (new.next_at, None, 0)
    assert (seen.name, seen.args, seen.misfire, seen.delay) == ("", "{}", "", None)
    assert (seen.skipped, seen.missed, seen.failures, seen.succeeded_for) == (0, 0, 0, None)
    assert not (seen.is_paused or seen.is_reboot or seen.is_declared)


async def test_all_that_a_schedule_says_is_kept(store):
    new = a_schedule(
        name="nightly",
        args='{"size": "größer"}',
        misfire='{"rule": "skip"}',
        delay=2.5,
        is_reboot=True,
        is_declared=True,
    )

    await put(store, new)

    seen = await only(store)
    assert (seen.name, seen.args, seen.misfire) == (new.name, new.args, new.misfire)
    assert (seen.delay, seen.is_reboot, seen.is_declared) == (2.5, True, True)


async def test_schedules_are_listed_by_id_of_all_jobs_or_one(store):
    schedules = [a_schedule(job) for job in "abab"]

    await put(store, *schedules[::-1])

    ids = [schedule.id for schedule in schedules]
    assert [s.id for s in await store.list_schedules(TENANT)] == ids
    assert [s.id for s in await store.list_schedules(TENANT, job="a")] == ids[::2]
    assert await store.list_schedules(TENANT, job="nothing") == []


async def test_an_unknown_job_stops_the_whole_batch(store):
    await defined(store)

    with pytest.raises(JobNotFound, match="nothing"):
        await store.put_schedules(TENANT, [a_schedule(), a_schedule("nothing")])

    assert await store.list_schedules(TENANT) == []


async def test_a_replaced_schedule_keeps_its_counts_and_last_times(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at, pause_after=9)
    await put(store, schedule)
    missed = Tick(at=at - 60, decision=Decision.MISSED, until=at - 20, count=3)
    first = a_tick(at, schedule=schedule.id)
    await fired(store, schedule, missed, first, a_tick(at + 1, schedule=schedule.id))
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await fired(store, schedule)
    hands = await claim(store)
    await apply(store, hands, death(hands.one))

    new = a_schedule("mail", id=schedule.id, rule='"new"', args="[]", next_at=at + 5)
    await put(store, new)

    seen = await only(store)
    assert (seen.job, seen.rule, seen.args, seen.next_at) == ("mail", '"new"', "[]", at + 5)
    assert (seen.fired, seen.skipped, seen.missed, seen.failures) == (2, 1, 3, 1)
    assert (seen.last_at, seen.succeeded_for) == (at + 60, at)


async def test_deleted_schedules_are_gone_and_counted(store):
    first, second = a_schedule(), a_schedule()
    await put(store, first, second)

    assert await store.delete_schedules(TENANT, [first.id, mint()]) == 1

    assert (await only(store)).id == second.id
    assert await store.delete_schedules(TENANT, [first.id]) == 0
    assert await store.delete_schedules(TENANT, []) == 0


async def test_the_ticks_of_a_deleted_schedule_stay_on_record(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.fire([a_firing(schedule)])

    await store.delete_schedules(TENANT, [schedule.id])

    assert len(await store.list_ticks(TENANT, schedule.id)) == 1


async def test_due_schedules_are_those_whose_time_has_come_earliest_first(store, clock):
    now = clock.now()
    late, early = a_schedule(next_at=now), a_schedule(next_at=now - 60)
    future, paused = a_schedule(next_at=now + 1), a_schedule("paused", next_at=now)
    await put(store, late, early, future, paused, a_schedule(next_at=None))
    await store.pause_job(TENANT, "paused")

    due = await store.due_schedules()

    assert [schedule.id for schedule in due.schedules] == [early.id, late.id]
    assert due.schedules[0] == await shown(store, early)
    assert due.now == now
    assert [one.id for one in (await store.due_schedules(limit=1)).schedules] == [early.id]
    await clock.advance(1)
    assert len((await store.due_schedules()).schedules) == 3


async def test_due_schedules_are_found_for_all_tenants(store, clock):
    await store.add_tenants(["acme"])
    here, there = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now())
    await put(store, here)
    await put(store, there, tenant="acme")

    due = await store.due_schedules()

    assert {(s.tenant, s.id) for s in due.schedules} == {(TENANT, here.id), ("acme", there.id)}


async def test_who_looks_for_due_schedules_hears_when_to_look_again(store, clock):
    now = clock.now()
    assert (await store.due_schedules()).next_at is None
    await put(store, a_schedule(next_at=None), a_schedule("paused", next_at=now + 5))
    await store.pause_job(TENANT, "paused")
    assert (await store.due_schedules()).next_at is None

    await put(store, a_schedule(next_at=now + 30), a_schedule(next_at=now + 20))
    assert (await store.due_schedules()).next_at == now + 20

    await clock.advance(20)
    assert (await store.due_schedules()).next_at == now + 30


async def test_the_time_to_look_again_is_now_if_not_all_that_is_due_was_found(store, clock):
    now = clock.now()
    await put(store, *(a_schedule(next_at=now - n) for n in range(3)))

    due = await store.due_schedules(limit=2)

    assert [one.next_at for one in due.schedules] == [now - 2, now - 1]
    assert due.next_at == now


async def test_a_firing_advances_records_and_creates_as_one(store, clock):
    at = clock.now() - 3
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    new = an_execution(scheduled_for=at, schedule=schedule.id, args='{"n": 1}')
    tick = Tick(at=at, execution=new)

    assert await store.fire([a_firing(schedule, tick, next_at=at + 60)]) == [True]

    seen = await only(store)
    assert (seen.next_at, seen.last_at, seen.fired) == (at + 60, at, 1)
    (record,) = await store.list_ticks(TENANT, schedule.id)
    assert (record.schedule, record.at, record.decision) == (schedule.id, at, Decision.FIRED)
    assert (record.reason, record.until, record.execution) == (None, None, new.id)
    execution = await look(store, new.id)
    assert (execution.state, execution.args) == (State.QUEUED, '{"n": 1}')
    assert (execution.schedule, execution.scheduled_for) == (schedule.id, at)
    assert (await claim(store)).one.scheduled_for == at


async def test_only_one_of_two_firings_from_the_same_cursor_is_made(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    first = await store.fire([a_firing(schedule)])
    second = await store.fire([a_firing(schedule)])

    assert (first, second) == ([True], [False])
    assert await count(store) == 1
    assert (await only(store)).fired == 1


async def test_of_two_firings_from_the_same_cursor_in_a_batch_the_first_is_made(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    assert await store.fire([a_firing(schedule), a_firing(schedule)]) == [True, False]

    assert await count(store) == 1


async def test_a_paused_or_deleted_schedule_does_not_fire(store, clock):
    paused = a_schedule("paused", next_at=clock.now())
    gone = a_schedule(next_at=clock.now())
    alive = a_schedule(next_at=clock.now())
    await put(store, paused, gone, alive)
    await store.pause_job(TENANT, "paused")
    await store.delete_schedules(TENANT, [gone.id])

    answers = await store.fire([a_firing(paused), a_firing(gone), a_firing(alive)])

    assert answers == [False, False, True]
    assert await count(store) == 1
    assert await store.list_ticks(TENANT, paused.id) == []
    assert await store.list_ticks(TENANT, gone.id) == []


async def test_a_schedule_of_a_deleted_job_does_not_fire(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.delete_job(TENANT, "resize")

    assert await store.fire([a_firing(schedule)]) == [False]

    assert (await store.due_schedules()).schedules == ()


async def test_another_tenants_schedule_does_not_fire(store, clock):
    await store.add_tenants(["acme"])
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await defined(store, tenant="acme")

    answers = await store.fire(
        [a_firing(schedule, tenant="acme"), a_firing(schedule, tenant="nobody")]
    )

    assert answers == [False, False]
    assert (await only(store)).next_at == schedule.next_at


async def test_firing_nothing_is_answered_with_nothing(store):
    assert await store.fire([]) == []


async def test_a_schedule_can_come_to_its_end(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    await store.fire([a_firing(schedule, next_at=None)])

    assert (await only(store)).next_at is None
    assert (await store.due_schedules()).schedules == ()


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

    await store.fire([a_firing(schedule, *ticks, next_at=at + 360)])

    records = await store.list_ticks(TENANT, schedule.id)
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
    await store.put_schedules(TENANT, [schedule])  # back to where it was

    def missed(first, *, count):
        return Tick(at=first, decision=Decision.MISSED, until=at + 240, count=count)

    lost = a_firing(schedule, missed(at, count=5), a_tick(at + 300), next_at=at + 360)
    assert await store.fire([lost]) == [False]
    before = await only(store)
    assert (before.next_at, before.missed, before.fired) == (at, 0, 1)
    assert len(await store.list_ticks(TENANT, schedule.id)) == 1

    await fired(store, schedule, missed(at + 60, count=4), a_tick(at + 300), next_at=at + 360)
    after = await only(store)
    assert (after.next_at, after.missed, after.fired) == (at + 360, 4, 2)
    records = await store.list_ticks(TENANT, schedule.id)
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
    await store.put_schedules(TENANT, [first])
    missed = Tick(at=at, decision=Decision.MISSED, until=at + 60, count=2)

    assert await store.fire([a_firing(first, missed), a_firing(second, missed)]) == [False, True]


async def test_a_firing_without_a_fired_tick_leaves_the_last_one(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.fire([a_firing(schedule)])
    later = clock.now() + 60

    skipped = Tick(at=later, decision=Decision.SKIPPED, reason="overlap")
    firing = Firing(
        tenant=TENANT, schedule=schedule.id, expect=later, next_at=later + 60, ticks=(skipped,)
    )
    assert await store.fire([firing]) == [True]

    seen = await only(store)
    assert (seen.fired, seen.last_at) == (1, clock.now())


async def test_a_tick_on_record_creates_no_second_execution(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    await store.fire([a_firing(schedule)])
    # The cursor is set back, as by a person who replaces the schedule.
    await store.put_schedules(TENANT, [schedule])

    fired = await store.fire([a_firing(schedule, a_tick(at), a_tick(at + 30), next_at=at + 60)])

    assert fired == [True]
    assert await count(store) == 2
    assert [r.at for r in await store.list_ticks(TENANT, schedule.id)] == [at + 30, at]
    assert (await only(store)).next_at == at + 60


async def test_a_fired_execution_obeys_unique_keys(store, clock):
    at = clock.now()
    (holder,) = await enqueued(store, unique_key="k")
    schedule = a_schedule(next_at=at)
    await put(store, schedule)

    await store.fire([a_firing(schedule, a_tick(at, unique_key="k"))])

    (record,) = await store.list_ticks(TENANT, schedule.id)
    assert record.execution == holder
    assert await count(store) == 1


async def test_a_fired_execution_goes_through_its_gate(store, clock):
    at = clock.now()
    await store.set_gates(TENANT, {"narrow": 1})
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    ticks = a_tick(at, gate="narrow"), a_tick(at + 1, gate="narrow")

    await store.fire([a_firing(schedule, *ticks)])

    assert await store.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 1, State.WAITING: 1}


@pytest.mark.parametrize(
    "bad",
    [an_execution(args="\ud800"), an_execution(gate="nothing"), an_execution("nothing")],
    ids=["surrogate", "gate", "job"],
)
async def test_a_firing_with_a_bad_execution_leaves_no_half(store, clock, bad):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    with pytest.raises((UsageError, JobNotFound)):
        await store.fire([a_firing(schedule, Tick(at=clock.now(), execution=bad))])

    assert (await only(store)).next_at == schedule.next_at
    assert await store.list_ticks(TENANT, schedule.id) == []
    assert await count(store) == 0


async def test_ticks_are_listed_newest_first_in_pages(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    await store.fire([a_firing(schedule, *(a_tick(at + n) for n in range(5)))])

    first = await store.list_ticks(TENANT, schedule.id, limit=2)
    second = await store.list_ticks(TENANT, schedule.id, limit=9, before=first[-1].at)

    assert [tick.at - at for tick in first] == [4, 3]
    assert [tick.at - at for tick in second] == [2, 1, 0]
    assert await store.list_ticks(TENANT, mint()) == []


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_is_one_at_least(store, limit):
    with pytest.raises(UsageError):
        await store.list_ticks(TENANT, mint(), limit=limit)
    with pytest.raises(UsageError):
        await store.due_schedules(limit=limit)

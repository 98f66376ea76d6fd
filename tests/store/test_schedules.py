"""Schedules: how they are kept, listed, replaced and deleted, and which are due."""

import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Decision, Tick
from daybell.errors import JobNotFound, UsageError
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    a_tick,
    add_tenants,
    apply,
    claim,
    death,
    defined,
    fired,
    put,
    shown,
    success,
)


async def only(store):
    (schedule,) = await store.schedules.list_schedules(TENANT)
    return schedule


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
    assert [s.id for s in await store.schedules.list_schedules(TENANT)] == ids
    for start in range(4):
        after = ids[start - 1] if start else None
        page = await store.schedules.list_schedules(TENANT, after=after, limit=2)
        assert [s.id for s in page] == ids[start : start + 2]
    with pytest.raises(UsageError, match="limit"):
        await store.schedules.list_schedules(TENANT, limit=1_001)


async def test_schedules_are_found_by_their_ids(store):
    schedules = [a_schedule(job) for job in "abab"]
    await put(store, *schedules)
    await add_tenants(store, ["other"])
    theirs = a_schedule("a")
    await put(store, theirs, tenant="other")
    ids = [schedules[3].id, schedules[0].id, schedules[0].id, mint(), theirs.id]

    found = await store.schedules.list_schedules(TENANT, ids=ids)

    assert found == [await shown(store, schedules[0]), await shown(store, schedules[3])]
    assert await store.schedules.list_schedules(TENANT, job="a", ids=ids) == found[:1]
    assert await store.schedules.list_schedules(TENANT, ids=[]) == []


async def test_an_unknown_job_stops_the_whole_batch(store):
    await defined(store)

    with pytest.raises(JobNotFound, match="nothing"):
        await store.schedules.put_schedules(TENANT, [a_schedule(), a_schedule("nothing")])

    assert await store.schedules.list_schedules(TENANT) == []


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

    assert await store.schedules.delete_schedules(TENANT, [first.id, mint()]) == 1

    assert (await only(store)).id == second.id
    assert await store.schedules.delete_schedules(TENANT, [first.id]) == 0
    assert await store.schedules.delete_schedules(TENANT, []) == 0


async def test_the_ticks_of_a_deleted_schedule_stay_on_record(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.fire([a_firing(schedule)])

    await store.schedules.delete_schedules(TENANT, [schedule.id])

    assert len(await store.schedules.list_ticks(TENANT, schedule.id)) == 1


async def test_due_schedules_are_those_whose_time_has_come_earliest_first(store, clock):
    now = clock.now()
    late, early = a_schedule(next_at=now), a_schedule(next_at=now - 60)
    future, paused = a_schedule(next_at=now + 1), a_schedule("paused", next_at=now)
    await put(store, late, early, future, paused, a_schedule(next_at=None))
    await store.schedules.pause_job(TENANT, "paused")

    due = await store.schedules.due_schedules()

    assert [schedule.id for schedule in due.schedules] == [early.id, late.id]
    assert due.schedules[0] == await shown(store, early)
    assert due.now == now
    assert [one.id for one in (await store.schedules.due_schedules(limit=1)).schedules] == [
        early.id
    ]
    await clock.advance(1)
    assert len((await store.schedules.due_schedules()).schedules) == 3


async def test_due_schedules_are_found_for_all_tenants(store, clock):
    await add_tenants(store, ["acme"])
    here, there = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now())
    await put(store, here)
    await put(store, there, tenant="acme")

    due = await store.schedules.due_schedules()

    assert {(s.tenant, s.id) for s in due.schedules} == {(TENANT, here.id), ("acme", there.id)}


async def test_who_looks_for_due_schedules_hears_when_to_look_again(store, clock):
    now = clock.now()
    assert (await store.schedules.due_schedules()).next_at is None
    await put(store, a_schedule(next_at=None), a_schedule("paused", next_at=now + 5))
    await store.schedules.pause_job(TENANT, "paused")
    assert (await store.schedules.due_schedules()).next_at is None

    await put(store, a_schedule(next_at=now + 30), a_schedule(next_at=now + 20))
    assert (await store.schedules.due_schedules()).next_at == now + 20

    await clock.advance(20)
    assert (await store.schedules.due_schedules()).next_at == now + 30


async def test_the_time_to_look_again_is_now_if_not_all_that_is_due_was_found(store, clock):
    now = clock.now()
    await put(store, *(a_schedule(next_at=now - n) for n in range(3)))

    due = await store.schedules.due_schedules(limit=2)

    assert [one.next_at for one in due.schedules] == [now - 2, now - 1]
    assert due.next_at == now


async def test_ticks_are_listed_newest_first_in_pages(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    await store.schedules.fire([a_firing(schedule, *(a_tick(at + n) for n in range(5)))])

    first = await store.schedules.list_ticks(TENANT, schedule.id, limit=2)
    second = await store.schedules.list_ticks(TENANT, schedule.id, limit=9, before=first[-1].at)

    assert [tick.at - at for tick in first] == [4, 3]
    assert [tick.at - at for tick in second] == [2, 1, 0]
    assert await store.schedules.list_ticks(TENANT, mint()) == []


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_is_one_at_least(store, limit):
    with pytest.raises(UsageError):
        await store.schedules.list_ticks(TENANT, mint(), limit=limit)
    with pytest.raises(UsageError):
        await store.schedules.due_schedules(limit=limit)


async def test_due_schedules_can_be_read_from_one_of_them_on(store, clock):
    now = clock.now()
    times = [now - 3, now - 2, now - 2, now - 2, now - 1, now + 60]
    await put(store, *[a_schedule(next_at=at) for at in times])
    everything = (await store.schedules.due_schedules()).schedules

    for place, one in enumerate(everything):
        rest = await store.schedules.due_schedules(limit=2, after=one)

        assert rest.schedules == everything[place + 1 : place + 3]
        assert rest.next_at == [*times, None][place + 3 if place < 3 else 5]


async def test_the_next_schedules_of_a_tenant_are_listed_in_the_order_of_their_times(store, clock):
    await add_tenants(store, ["other"])
    await defined(store, "resize")
    await defined(store, "held")
    await defined(store, "resize", tenant="other")
    now = clock.now()
    for name, at in (("late", now + 300), ("soon", now + 10), ("never", None)):
        await store.schedules.put_schedules(TENANT, [a_schedule(name=name, next_at=at)])
    await store.schedules.put_schedules(TENANT, [a_schedule("held", next_at=now + 5)])
    await store.schedules.pause_job(TENANT, "held")
    await store.schedules.put_schedules("other", [a_schedule(next_at=now + 1)])

    found = await store.schedules.next_schedules(TENANT)

    assert [one.name for one in found] == ["soon", "late"]
    assert len(await store.schedules.next_schedules(TENANT, limit=1)) == 1

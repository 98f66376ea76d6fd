"""Leadership: one holder, an epoch, and schedules that are due after a reboot."""

import asyncio

from daybell.core.ids import mint
from tests.builders import TENANT, a_schedule, add_tenants, put, shown

ADA, BOB = mint(), mint()


async def test_the_first_to_ask_leads(store, clock):
    leadership = await store.admin.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.name, leadership.holder) == ("upkeep", ADA)
    assert (leadership.epoch, leadership.until) == (1, clock.now() + 30)


async def test_nobody_else_leads_while_the_lease_lasts(store, clock):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(29)

    assert await store.admin.lead("upkeep", holder=BOB, lease=30.0) is None


async def test_the_holder_keeps_it_by_asking_again(store, clock):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(20)

    leadership = await store.admin.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.epoch, leadership.until) == (1, clock.now() + 30)
    await clock.advance(29)
    assert await store.admin.lead("upkeep", holder=BOB, lease=30.0) is None


async def test_a_lease_that_ended_can_be_taken_with_a_higher_epoch(store, clock):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(31)

    leadership = await store.admin.lead("upkeep", holder=BOB, lease=30.0)

    assert (leadership.holder, leadership.epoch) == (BOB, 2)
    assert await store.admin.lead("upkeep", holder=ADA, lease=30.0) is None


async def test_a_holder_that_was_away_comes_back_with_a_higher_epoch(store, clock):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    await clock.advance(31)

    leadership = await store.admin.lead("upkeep", holder=ADA, lease=30.0)

    assert (leadership.holder, leadership.epoch) == (ADA, 2)


async def test_one_who_resigns_lets_another_lead_at_once(store):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)

    await store.admin.resign("upkeep", holder=ADA)

    leadership = await store.admin.lead("upkeep", holder=BOB, lease=30.0)
    assert (leadership.holder, leadership.epoch) == (BOB, 2)


async def test_only_the_holder_can_resign(store):
    await store.admin.lead("upkeep", holder=ADA, lease=30.0)

    await store.admin.resign("upkeep", holder=BOB)
    await store.admin.resign("nothing", holder=BOB)

    assert await store.admin.lead("upkeep", holder=BOB, lease=30.0) is None
    assert (await store.admin.lead("upkeep", holder=ADA, lease=30.0)).epoch == 1


async def test_names_do_not_know_each_other(store):
    first = await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    second = await store.admin.lead("metrics", holder=BOB, lease=30.0)

    assert (first.epoch, second.epoch) == (1, 1)


async def test_who_leads_is_listed_by_name_while_it_lasts(store, clock):
    assert await store.admin.list_leaders() == []
    later = await store.admin.lead("upkeep", holder=ADA, lease=30.0)
    sooner = await store.admin.lead("scheduler", holder=BOB, lease=10.0)

    assert await store.admin.list_leaders() == [sooner, later]

    await clock.advance(10)
    assert await store.admin.list_leaders() == [later]
    await store.admin.resign("upkeep", holder=ADA)
    assert await store.admin.list_leaders() == []


# Reboots: schedules that are due when a scheduler comes up and nobody was there before him.

LEASE = 30.0


async def a_reboot(store, **options):
    schedule = a_schedule(is_reboot=True, **options)
    await put(store, schedule)
    return schedule


async def lead(store, holder, *, since):
    leadership = await store.admin.lead("upkeep", holder=holder, lease=LEASE, since=since)
    assert leadership is not None
    return leadership.epoch


async def next_at(store, schedule):
    return (await shown(store, schedule)).next_at


async def test_the_first_leader_of_all_makes_them_due(store, clock):
    schedule, other = await a_reboot(store), a_schedule(next_at=None)
    await put(store, other)

    await lead(store, ADA, since=clock.now())

    assert await next_at(store, schedule) == clock.now()
    assert await next_at(store, other) is None
    assert [one.id for one in (await store.schedules.due_schedules()).schedules] == [schedule.id]


async def test_a_renewal_makes_nothing_due(store, clock):
    await lead(store, ADA, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(5)

    assert await lead(store, ADA, since=clock.now()) == 1

    assert await next_at(store, schedule) is None


async def test_who_takes_over_from_one_that_led_since_he_came_up_makes_nothing_due(store, clock):
    came_up = clock.now()
    await lead(store, ADA, since=came_up)
    schedule = await a_reboot(store)
    await clock.advance(LEASE + 1)

    assert await lead(store, BOB, since=came_up) == 2

    assert await next_at(store, schedule) is None


async def test_who_was_there_at_the_last_renewal_makes_nothing_due(store, clock):
    await lead(store, ADA, since=clock.now())
    await clock.advance(20)
    came_up = clock.now()
    await lead(store, ADA, since=0.0)
    schedule = await a_reboot(store)
    await clock.advance(LEASE + 1)

    await lead(store, BOB, since=came_up)

    assert await next_at(store, schedule) is None


async def test_who_comes_up_after_the_last_one_has_gone_makes_them_due(store, clock):
    await lead(store, ADA, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(10)
    came_up = clock.now()
    assert await store.admin.lead("upkeep", holder=BOB, lease=LEASE, since=came_up) is None
    assert await next_at(store, schedule) is None
    await clock.advance(LEASE)

    assert await lead(store, BOB, since=came_up) == 2

    assert await next_at(store, schedule) == clock.now()


async def test_one_that_resigns_was_there_until_then(store, clock):
    await lead(store, ADA, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(10)
    came_up = clock.now()
    await clock.advance(5)
    await store.admin.resign("upkeep", holder=ADA)

    assert await lead(store, BOB, since=came_up) == 2

    assert await next_at(store, schedule) is None


async def test_who_comes_up_after_a_resignation_makes_them_due(store, clock):
    await lead(store, ADA, since=clock.now())
    await store.admin.resign("upkeep", holder=ADA)
    schedule = await a_reboot(store)
    await clock.advance(1)

    assert await lead(store, ADA, since=clock.now()) == 2

    assert await next_at(store, schedule) == clock.now()


async def test_who_does_not_say_when_he_came_up_makes_nothing_due(store):
    schedule = await a_reboot(store)

    await store.admin.lead("upkeep", holder=ADA, lease=LEASE)

    assert await next_at(store, schedule) is None


async def test_they_are_due_for_all_tenants_and_whatever_their_cursor(store, clock):
    await add_tenants(store, ["acme"])
    here = await a_reboot(store, next_at=clock.now() + 500)
    there = a_schedule(is_reboot=True)
    await put(store, there, tenant="acme")

    await lead(store, ADA, since=clock.now())

    due = (await store.schedules.due_schedules()).schedules
    assert {(one.tenant, one.id) for one in due} == {(TENANT, here.id), ("acme", there.id)}


async def test_who_waits_for_schedules_is_woken(store, clock):
    await a_reboot(store)
    woken = asyncio.Event()
    stop = await store.listen_schedules(woken.set)
    woken.clear()

    await lead(store, ADA, since=clock.now())

    await asyncio.wait_for(woken.wait(), 300)
    await stop()


CAT = mint()


async def stand_by(store, holder, *, since):
    assert await store.admin.lead("upkeep", holder=holder, lease=LEASE, since=since) is None


async def test_who_takes_over_while_another_stands_by_makes_nothing_due(store, clock):
    await lead(store, ADA, since=clock.now())
    await stand_by(store, CAT, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(5)
    await store.admin.resign("upkeep", holder=ADA)
    await clock.advance(1)
    came_up = clock.now()

    assert await lead(store, BOB, since=came_up) == 2
    await clock.advance(5)
    await stand_by(store, CAT, since=came_up - 6)
    await clock.advance(LEASE - 10)
    assert await lead(store, BOB, since=came_up) == 2  # while the other may be there
    await clock.advance(LEASE - 1)
    assert await lead(store, BOB, since=came_up) == 2  # and when it is gone

    assert await next_at(store, schedule) is None


async def test_one_who_has_just_come_to_stand_by_was_there_too(store, clock):
    await lead(store, ADA, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(5)
    await stand_by(store, CAT, since=clock.now())
    await clock.advance(1)
    await store.admin.resign("upkeep", holder=ADA)  # the first to say that it was there as well
    await clock.advance(1)

    await lead(store, BOB, since=clock.now())

    assert await next_at(store, schedule) is None


async def test_it_is_a_reboot_after_all_when_nothing_more_is_heard_of_who_stood_by(store, clock):
    await lead(store, ADA, since=clock.now())
    await stand_by(store, CAT, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(5)
    await store.admin.resign("upkeep", holder=ADA)
    await clock.advance(1)
    came_up = clock.now()
    await lead(store, BOB, since=came_up)
    await clock.advance(LEASE - 7)
    await lead(store, BOB, since=came_up)
    assert await next_at(store, schedule) is None

    await clock.advance(2)
    assert await lead(store, BOB, since=came_up) == 2

    assert await next_at(store, schedule) == clock.now()


async def test_who_leaves_before_he_knows_leaves_the_question_to_the_next(store, clock):
    await lead(store, ADA, since=clock.now())
    await stand_by(store, CAT, since=clock.now())
    schedule = await a_reboot(store)
    await store.admin.resign("upkeep", holder=ADA)
    await clock.advance(1)
    await lead(store, BOB, since=clock.now())
    await store.admin.resign("upkeep", holder=BOB)
    await clock.advance(LEASE)

    await lead(store, ADA, since=clock.now() - LEASE)

    assert await next_at(store, schedule) == clock.now()


async def test_when_all_have_resigned_the_next_makes_them_due_at_once(store, clock):
    await lead(store, ADA, since=clock.now())
    await stand_by(store, CAT, since=clock.now())
    schedule = await a_reboot(store)
    await store.admin.resign("upkeep", holder=ADA)
    await store.admin.resign("upkeep", holder=CAT)
    await clock.advance(1)

    await lead(store, BOB, since=clock.now())

    assert await next_at(store, schedule) == clock.now()


async def test_of_two_who_come_up_after_a_crash_one_makes_them_due(store, clock):
    await lead(store, ADA, since=clock.now())
    schedule = await a_reboot(store)
    await clock.advance(5)
    came_up = clock.now()
    for _ in range(3):
        await stand_by(store, BOB, since=came_up)
        await stand_by(store, CAT, since=came_up)
        await clock.advance(8)
    await clock.advance(8)

    await lead(store, BOB, since=came_up)

    assert await next_at(store, schedule) == clock.now()


async def test_who_stands_by_leads_nothing(store, clock):
    leadership = await store.admin.lead("upkeep", holder=ADA, lease=LEASE, since=clock.now())

    await stand_by(store, CAT, since=clock.now())

    assert await store.admin.list_leaders() == [leadership]

"""Firing what is due."""

import asyncio

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Overlap
from daybell.core.units import from_iso
from daybell.core.when import cron, every
from daybell.engine.events import Events, Fired
from daybell.engine.loop import AGAIN, ManualClock
from daybell.engine.scheduler import (
    BATCH_MAX,
    COLLISION_SECONDS,
    EXECUTIONS_MAX,
    POLL_SECONDS,
    TERM_SECONDS,
    Scheduler,
)
from daybell.errors import Unavailable
from tests.builders import TENANT, a_schedule, apply, claim, defined, put, shown, success
from tests.engine.faults import faulty
from tests.engine.tasks import a_store
from tests.sweeps import rearm_schedules

NOON = from_iso("2026-06-01T12:00:00+00:00")
MINUTELY = cron("* * * * *").to_json()


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


def a_scheduler(store, clock, *, events=None):
    return Scheduler(store, clock=clock, mint=mint, events=events or Events())


async def ticks(store, schedule):
    return sorted(
        (tick.at - NOON, tick.decision)
        for tick in await store.schedules.list_ticks(TENANT, schedule.id)
    )


async def executions(store, job="resize"):
    from daybell.core.views import ExecutionFilter

    page = await store.catalog.list_executions(TENANT, ExecutionFilter(job=job), limit=100)
    return list(page.items)


async def test_a_tick_is_fired_when_it_is_due_and_not_before(store, clock):
    schedule = a_schedule(rule=MINUTELY, next_at=NOON + 60, args='{"size":3}')
    await put(store, schedule, overlap="allow")
    scheduler = a_scheduler(store, clock)

    clock.advance(59.5)
    assert await scheduler.tick() == pytest.approx(0.5)
    assert await executions(store) == []

    clock.advance(0.5)
    assert await scheduler.tick() == POLL_SECONDS
    (execution,) = await executions(store)
    assert (execution.scheduled_for, execution.schedule) == (NOON + 60, schedule.id)
    assert (execution.args, execution.state) == ('{"size":3}', State.QUEUED)
    assert (await shown(store, schedule)).next_at == NOON + 120


async def test_it_sleeps_until_the_next_tick_but_no_longer_than_a_poll(store, clock):
    soon = a_schedule(rule=every("1.5s").to_json(), next_at=NOON)
    await put(store, soon, overlap="allow")

    assert await a_scheduler(store, clock).tick() == pytest.approx(1.5)

    await store.schedules.delete_schedules(TENANT, [soon.id])
    await put(store, a_schedule(rule=MINUTELY, next_at=NOON + 60))
    assert await a_scheduler(store, clock).tick() == POLL_SECONDS


async def test_two_schedulers_fire_each_tick_once(store, clock):
    schedules = [a_schedule(f"job-{n}", rule=MINUTELY, next_at=NOON) for n in range(5)]
    await put(store, *schedules, overlap="allow")
    one, other = a_scheduler(store, clock), a_scheduler(store, clock)
    due = await store.schedules.due_schedules()
    late = other.plan(due)  # as they were, before the first has fired them

    await one.tick()

    assert await store.schedules.fire(late) == [False] * 5
    assert [await ticks(store, one) for one in schedules] == [[(0.0, Decision.FIRED)]] * 5


async def test_what_another_scheduler_has_in_its_hands_is_looked_at_again_soon(store, clock):
    schedule = a_schedule(rule=MINUTELY, next_at=NOON)
    await put(store, schedule)
    other = a_scheduler(store, clock)
    due = await store.schedules.due_schedules()
    store.hook("fire", lambda: None)
    fire = store.store.schedules.fire

    async def outrun(firings):
        await fire(other.plan(due))
        return await fire(firings)

    store.store.schedules.fire = outrun

    assert await a_scheduler(store, clock).tick() == COLLISION_SECONDS


async def test_more_than_a_batch_is_fired_without_a_pause(store, clock):
    schedules = [
        a_schedule(f"job-{n % 7}", rule=MINUTELY, next_at=NOON) for n in range(BATCH_MAX + 1)
    ]
    await put(store, *schedules, overlap="allow")
    scheduler = a_scheduler(store, clock)

    assert await scheduler.tick() == AGAIN
    assert await scheduler.tick() != AGAIN
    assert (await store.schedules.due_schedules()).schedules == ()


async def two_batches(store, clock):
    """A scheduler with more than a batch before it; what it asks of the store is written down."""
    schedules = [a_schedule(rule=MINUTELY, next_at=NOON) for _ in range(BATCH_MAX + 1)]
    await put(store, *schedules, overlap="allow")
    asked, look, fire = [], store.store.schedules.due_schedules, store.store.schedules.fire

    async def seen_look(**options):
        asked.append("look" if options.get("after") is None else "look ahead")
        return await look(**options)

    async def seen_fire(firings):
        await asyncio.sleep(0.01)
        asked.append(f"fire {len(firings)}")
        return await fire(firings)

    store.store.schedules.due_schedules, store.store.schedules.fire = seen_look, seen_fire
    return a_scheduler(store, clock), asked


async def test_the_next_batch_is_read_while_one_is_fired(store, clock):
    scheduler, asked = await two_batches(store, clock)

    assert await scheduler.tick() == AGAIN
    assert await scheduler.tick() == POLL_SECONDS
    await scheduler.tick()

    assert asked == ["look", "look ahead", f"fire {BATCH_MAX}", "fire 1", "look"]


async def test_after_a_batch_that_is_not_all_fired_it_begins_with_the_earliest(store, clock):
    scheduler, asked = await two_batches(store, clock)
    fire = store.store.schedules.fire

    async def outrun(firings):
        return [False, *(await fire(firings[1:]))]

    store.store.schedules.fire = outrun
    assert await scheduler.tick() == AGAIN
    assert await scheduler.tick() == COLLISION_SECONDS

    assert asked == ["look", "look ahead", f"fire {BATCH_MAX - 1}", "look", "fire 1"]


async def test_what_was_read_ahead_is_forgotten_when_firing_fails(store, clock):
    scheduler, asked = await two_batches(store, clock)
    fire = store.store.schedules.fire

    async def away(firings):
        await asyncio.sleep(0.01)
        raise Unavailable("away")

    store.store.schedules.fire = away
    with pytest.raises(Unavailable):
        await scheduler.tick()
    store.store.schedules.fire = fire
    asked.clear()

    assert [await scheduler.tick(), await scheduler.tick()] == [AGAIN, POLL_SECONDS]
    assert asked[0] == "look"
    assert (await store.schedules.due_schedules()).schedules == ()


async def test_schedules_that_catch_up_are_fired_in_bounded_batches(store, clock):
    schedules = [
        a_schedule(rule=MINUTELY, next_at=NOON, misfire='{"policy":"fire_all"}') for _ in range(100)
    ]
    await put(store, *schedules, overlap="allow")
    clock.advance(3600)
    fire, counts = store.store.schedules.fire, []

    async def counted(firings):
        counts.append(sum(len(firing.ticks) for firing in firings))
        return await fire(firings)

    store.store.schedules.fire = counted
    await a_scheduler(store, clock).tick()

    assert (sum(counts), max(counts) <= EXECUTIONS_MAX) == (6100, True)


async def test_ticks_that_nobody_was_there_for_are_made_up_for_once_and_recorded(store, clock):
    schedule = a_schedule(rule=MINUTELY, next_at=NOON)
    await put(store, schedule)
    clock.advance(3600)

    await a_scheduler(store, clock).tick()

    (execution,) = await executions(store)
    assert execution.scheduled_for == NOON + 3600
    seen = await shown(store, schedule)
    assert (seen.fired, seen.missed) == (1, 60)
    assert seen.next_at == NOON + 3660


async def test_the_rule_for_missed_ticks_is_the_schedules_own(store, clock):
    schedule = a_schedule(
        rule=MINUTELY, next_at=NOON, misfire='{"policy":"fire_all","limit":3,"grace":0}'
    )
    await put(store, schedule, overlap="allow")
    clock.advance(3600)

    await a_scheduler(store, clock).tick()

    fired = [at for at, decision in await ticks(store, schedule) if decision is Decision.FIRED]
    assert fired == [57 * 60, 58 * 60, 59 * 60, 60 * 60]


@pytest.mark.parametrize(
    "what", [{"rule": '{"cron":"61 * * * *"}'}, {"rule": "{"}, {"rule": MINUTELY, "misfire": "{"}]
)
async def test_a_rule_that_cannot_be_read_stops_nobody_else(store, clock, caplog, what):
    broken = a_schedule("broken", next_at=NOON - 5, **what)
    sound = a_schedule("sound", rule=MINUTELY, next_at=NOON)
    await put(store, broken, sound)
    scheduler = a_scheduler(store, clock)

    await scheduler.tick()
    await scheduler.tick()

    assert len(await executions(store, "sound")) == 1
    assert caplog.text.count("cannot be read and does not fire") == 1


async def test_jitter_makes_an_execution_late_not_the_tick(store, clock):
    rule = cron("* * * * *", jitter="30s")
    schedule = a_schedule(rule=rule.to_json(), next_at=NOON)
    await put(store, schedule)

    await a_scheduler(store, clock).tick()

    (execution,) = await executions(store)
    late = rule.jitter_of(NOON, f"{TENANT}/resize/")
    assert (execution.scheduled_for, execution.run_at) == (NOON, NOON + late)
    assert 0 < late < 30
    assert execution.state is State.SCHEDULED


async def test_after_its_last_time_a_schedule_fires_no_more(store, clock):
    schedule = a_schedule(rule=cron("* * * * *", max_executions=2).to_json(), next_at=NOON)
    await put(store, schedule, overlap="allow")
    scheduler = a_scheduler(store, clock)

    for _ in range(4):
        await scheduler.tick()
        clock.advance(60)

    assert len(await executions(store)) == 2
    assert (await shown(store, schedule)).next_at is None


async def test_what_overlap_skips_is_none_of_the_times_that_a_schedule_has(store, clock):
    schedule = a_schedule(rule=cron("* * * * *", max_executions=2).to_json(), next_at=NOON)
    await put(store, schedule, overlap="skip")
    scheduler = a_scheduler(store, clock)

    for _ in range(3):  # the second and the third find the first unfinished
        await scheduler.tick()
        clock.advance(60)
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))
    for _ in range(3):
        await scheduler.tick()
        clock.advance(60)

    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.next_at) == (2, 2, None)


async def test_a_fixed_delay_counts_from_the_end(store, clock):
    rule = every("10s", mode="delay")
    schedule = a_schedule(rule=rule.to_json(), next_at=NOON, delay=rule.delay)
    await put(store, schedule)
    scheduler = a_scheduler(store, clock)

    await scheduler.tick()
    assert (await shown(store, schedule)).next_at is None
    hands = await claim(store, 1)
    clock.advance(7)
    await apply(store, hands, success(hands.one))

    assert (await shown(store, schedule)).next_at == NOON + 17


@pytest.mark.parametrize(
    "options", [{"max_executions": 1}, {"end_at": NOON + 5}], ids=["by count", "by time"]
)
async def test_a_fixed_delay_can_end(store, clock, options):
    rule = every("10s", mode="delay", **options)
    schedule = a_schedule(rule=rule.to_json(), next_at=NOON, delay=rule.delay)
    await put(store, schedule)
    scheduler = a_scheduler(store, clock)

    for _ in range(3):
        await scheduler.tick()
        hands = await claim(store, 1)
        for claimed in hands.executions:
            await apply(store, hands, success(claimed))
        await rearm_schedules(store)
        clock.advance(20)

    assert len(await executions(store)) == 1


async def test_reboot_is_fired_by_who_comes_after_nobody(store, clock):
    schedule = a_schedule(rule=cron("@reboot").to_json(), is_reboot=True)
    await put(store, schedule)
    first, second = a_scheduler(store, clock), a_scheduler(store, clock)

    for scheduler in (first, second):
        await scheduler.lead()
        await scheduler.tick()
    assert len(await executions(store)) == 1  # the second came while the first was there

    clock.advance(5)
    await first.stop()
    clock.advance(1)
    await second.lead()
    await second.tick()
    assert len(await executions(store)) == 1  # it was there all the time

    await second.stop()
    clock.advance(1)
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))
    third = a_scheduler(store, clock)
    await third.lead()
    await third.tick()
    assert len(await executions(store)) == 2


async def test_it_is_no_reboot_when_the_leader_goes_and_another_stood_by(store, clock):
    await put(store, a_schedule(rule=cron("@reboot").to_json(), is_reboot=True))
    first, standby = a_scheduler(store, clock), a_scheduler(store, clock)
    for scheduler in (first, standby):
        await scheduler.lead()
        await scheduler.tick()
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))

    await first.stop()
    clock.advance(1)
    successor = a_scheduler(store, clock)
    for _ in range(4):
        for scheduler in (successor, standby):
            await scheduler.lead()
            await scheduler.tick()
        clock.advance(TERM_SECONDS / 2)

    assert successor.epoch == 2
    assert len(await executions(store)) == 1


async def test_who_only_stood_by_signs_off_too(store, clock):
    await put(store, a_schedule(rule=cron("@reboot").to_json(), is_reboot=True))
    first, standby = a_scheduler(store, clock), a_scheduler(store, clock)
    for scheduler in (first, standby):
        await scheduler.lead()
        await scheduler.tick()
    hands = await claim(store, 1)
    await apply(store, hands, success(hands.one))

    await first.stop()
    await standby.stop()
    clock.advance(1)
    successor = a_scheduler(store, clock)
    await successor.lead()
    await successor.tick()

    assert len(await executions(store)) == 2


async def test_a_schedule_set_back_to_what_is_on_record_loses_nothing_that_was_missed(store, clock):
    schedule = a_schedule(rule=MINUTELY, next_at=NOON)
    await put(store, schedule, overlap=Overlap.ALLOW)
    scheduler = a_scheduler(store, clock)
    for _ in range(2):
        await scheduler.tick()
        clock.advance(60)
    await store.schedules.put_schedules(
        TENANT, [schedule]
    )  # computed before noon, and late to come
    clock.advance(600)

    assert await scheduler.tick() == COLLISION_SECONDS
    await scheduler.tick()

    records = await store.schedules.list_ticks(TENANT, schedule.id)
    assert [((one.at - NOON) / 60, one.decision, one.count) for one in records] == [
        (12, Decision.FIRED, 1),
        (2, Decision.MISSED, 10),
        (1, Decision.FIRED, 1),
        (0, Decision.FIRED, 1),
    ]
    assert (await shown(store, schedule)).next_at == NOON + 13 * 60


async def test_observers_hear_how_late_it_was(store, clock):
    heard, events = [], Events()
    events.observe(heard.append)
    await put(store, a_schedule(rule=MINUTELY, next_at=NOON))
    clock.advance(0.25)

    await a_scheduler(store, clock, events=events).tick()

    (fired,) = heard
    assert isinstance(fired, Fired)
    assert fired.late == 0.25


async def test_a_store_that_is_away_when_it_stops_does_not_stop_it(store, clock):
    scheduler = a_scheduler(store, clock)
    await scheduler.lead()
    store.fail("resign", Unavailable("gone"))

    await scheduler.stop()


async def test_a_deleted_job_is_not_fired(store, clock):
    schedule = a_schedule(rule=MINUTELY, next_at=NOON)
    await put(store, schedule)
    scheduler = a_scheduler(store, clock)
    due = await store.schedules.due_schedules()

    await store.catalog.delete_job(TENANT, "resize")

    assert await store.schedules.fire(scheduler.plan(due)) == [False]
    await defined(store)
    assert await executions(store) == []

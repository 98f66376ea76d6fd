"""Clocks that are wrong: a client's, by which nothing is decided, and a store's that jumps."""

import time
from itertools import takewhile

import pytest
from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Overlap, Tick
from daybell.core.views import ExecutionFilter
from daybell.core.when import cron, every
from daybell.core.when.cursor import first_tick, rewind_schedule
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock as EngineClock
from daybell.engine.scheduler import Scheduler
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    enqueued,
    id_minted_at,
    look,
    put,
    registered,
    retry,
    shown,
    success,
)
from tests.stores import POSTGRES, connect

HOUR = 3600.0


@pytest.fixture(params=[HOUR, -HOUR], ids=["an hour ahead", "an hour behind"])
def skew(request, monkeypatch):
    """The client's clock is wrong by this much."""
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + request.param)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(request.param * 1e9))
    return request.param


async def test_times_on_record_are_the_stores(store, clock, skew):
    hands = await claimed(store)
    await clock.advance(5)
    await apply(store, hands, success(hands.one, ran=2.0))

    seen = await look(store, hands.one.id)

    assert seen.created_at == seen.run_at == clock.now() - 5
    assert (seen.started_at, seen.finished_at) == (clock.now() - 2, clock.now())
    assert (await store.health()).now == clock.now()


async def test_a_delay_ends_by_the_stores_time(store, clock, skew):
    (id,) = await enqueued(store, delay=10.0)
    assert (await look(store, id)).run_at == clock.now() + 10

    await clock.advance(9)
    assert (await claim(store)).executions == []
    await clock.advance(1)
    assert (await claim(store)).one.id == id


async def test_a_retry_waits_by_the_stores_time(store, clock, skew):
    hands = await claimed(store)

    await apply(store, hands, retry(hands.one, delay=10.0))

    assert (await look(store, hands.one.id)).run_at == clock.now() + 10
    assert (await look(store, hands.one.id)).state is State.RETRYING


async def test_leases_end_by_the_stores_time(store, clock, skew):
    hands = await claimed(store)
    await clock.advance(59)
    assert (await store.queue.lost()).executions == []

    await clock.advance(2)

    assert [lost.claimed.id for lost in (await store.queue.lost()).executions] == [hands.one.id]


async def test_leadership_ends_by_the_stores_time(store, clock, skew):
    await store.admin.lead("upkeep", holder=mint(), lease=30.0)
    await clock.advance(29)
    assert await store.admin.lead("upkeep", holder=mint(), lease=30.0) is None

    await clock.advance(2)

    assert await store.admin.lead("upkeep", holder=mint(), lease=30.0) is not None


async def test_workers_are_ordered_by_the_stores_time(store, clock, skew):
    first = await registered(store)
    await clock.advance(1)
    second = await registered(store)

    assert [worker.id for worker in await store.catalog.list_workers(TENANT)] == [first, second]


@pytest.mark.parametrize("first_skew", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_who_waits_longer_goes_first_whatever_the_time_in_the_id(store, clock, first_skew):
    await defined(store)
    first = an_execution(id=id_minted_at(clock.now() + first_skew))
    second = an_execution(id=id_minted_at(clock.now() - first_skew))
    await store.queue.enqueue(TENANT, [first])
    await clock.advance(1)
    await store.queue.enqueue(TENANT, [second])

    hands = await claim(store)

    assert [one.id for one in hands.executions] == [first.id, second.id]


async def test_an_id_from_the_far_future_is_claimed_finished_and_listed(store, clock):
    await defined(store)
    new = [an_execution(id=id_minted_at(at)) for at in (0.0, clock.now() * 2)]
    await store.queue.enqueue(TENANT, new)
    hands = await claim(store)

    assert await apply(store, hands, *(success(one) for one in hands.executions)) == []

    page = await store.catalog.list_executions(TENANT, ExecutionFilter())
    assert [one.id for one in page.items] == [new[1].id, new[0].id]
    assert {one.state for one in page.items} == {State.SUCCEEDED}


async def test_a_span_of_time_goes_by_when_it_was_stored_and_not_by_the_id(store, clock):
    await defined(store)
    new = an_execution(id=id_minted_at(clock.now() - 86_400))
    await store.queue.enqueue(TENANT, [new])

    page = await store.catalog.list_executions(TENANT, ExecutionFilter(since=clock.now()))

    assert [one.id for one in page.items] == [new.id]


@pytest.mark.postgres
@pytest.mark.parametrize("kind", POSTGRES)
async def test_postgres_goes_by_its_own_clock(kind, servers, monkeypatch):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + HOUR)
    async with servers.database(POSTGRES[kind]) as url:
        store = connect(kind, url)
        await store.migrate()
        await store.open()

        (id,) = await enqueued(store)

        assert abs((await look(store, id)).created_at - real()) < HOUR / 2
        assert (await claim(store)).one.id == id
        await store.close()


# A clock that jumps forward and back, and schedules.

FIVE_MINUTES = cron("*/5 * * * *")


def a_scheduler(store):
    return Scheduler(store, clock=EngineClock(), mint=mint, events=Events())


async def a_rhythm(store, clock, rule=FIVE_MINUTES, **options):
    """A schedule by this rule, from the next five minutes on."""
    await clock.advance(300 - clock.now() % 300)
    first = first_tick(rule, clock.now())
    schedule = a_schedule(rule=rule.to_json(), next_at=first, delay=rule.delay, **options)
    await put(store, schedule, overlap=Overlap.ALLOW)
    return schedule


async def fired_for(store, schedule):
    """The ticks that executions stand for."""
    until = 10 * HOUR + (await store.health()).now
    found = await store.schedules.list_occurrences(TENANT, schedule.id, since=0.0, until=until)
    return [one.scheduled_for for one in found]


@pytest.mark.parametrize("misfire", ["", '{"policy":"skip"}', '{"policy":"fire_all"}'])
async def test_each_tick_fires_once_when_the_clock_jumps_forward_and_back(store, clock, misfire):
    schedule = await a_rhythm(store, clock, misfire=misfire)
    start = clock.now()
    scheduler = a_scheduler(store)
    await scheduler.tick()
    await clock.advance(HOUR)
    await scheduler.tick()

    await clock.advance(-HOUR)
    await scheduler.tick()
    await scheduler.rearm()
    for _ in range(24):
        await clock.advance(300)
        await scheduler.tick()

    ticks = list(takewhile(lambda at: at <= clock.now(), FIVE_MINUTES.ticks(start)))
    assert await fired_for(store, schedule) == ticks
    seen = await shown(store, schedule)
    assert (seen.fired, seen.missed) == (len(ticks), 0)


async def test_a_range_that_was_missed_in_part_is_cut_when_the_clock_is_set_back(store, clock):
    schedule = await a_rhythm(store, clock, misfire='{"policy":"skip"}')
    await clock.advance(HOUR + 60)
    await a_scheduler(store).tick()

    await clock.advance(-HOUR + 320)  # the second tick has passed
    scheduler = a_scheduler(store)  # which has not seen the jump
    await scheduler.rearm()

    now = clock.now()
    (missed,) = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (missed.decision, missed.count) == (Decision.MISSED, 1)
    assert now - 300 < missed.at == missed.until < now
    seen = await shown(store, schedule)
    assert (seen.missed, seen.next_at) == (1, FIVE_MINUTES.next_after(now))
    assert await scheduler.tick() is not None
    assert (await shown(store, schedule)) == seen


async def test_a_fixed_delay_counts_from_now_when_the_clock_is_set_back(store, clock):
    schedule = await a_rhythm(store, clock, every("5m", mode="delay"))
    scheduler = a_scheduler(store)
    await clock.advance(300)
    await scheduler.tick()
    hands = await claim(store)
    await clock.advance(HOUR)
    await apply(store, hands, success(hands.executions[0]))

    await clock.advance(-HOUR)
    await scheduler.rearm()

    assert (await shown(store, schedule)).next_at == clock.now() + 300


async def test_a_schedule_that_ended_early_goes_on_when_the_clock_is_set_back(store, clock):
    rule = every("5m", end_at=clock.now() + 1800)
    schedule = await a_rhythm(store, clock, rule)
    scheduler = a_scheduler(store)
    await clock.advance(HOUR)
    await scheduler.tick()
    assert (await shown(store, schedule)).next_at is None

    await clock.advance(-HOUR)
    await scheduler.tick()
    await scheduler.rearm()

    assert (await shown(store, schedule)).next_at == clock.now() + 300


async def test_a_firing_that_was_planned_before_the_clock_was_set_back_is_turned_back(store, clock):
    schedule = await a_rhythm(store, clock)
    assert schedule.next_at is not None
    await clock.advance(HOUR)
    missed = Tick(at=schedule.next_at, decision=Decision.MISSED, until=clock.now() - 1, count=9)
    late = a_firing(schedule, missed, next_at=clock.now() + 300)
    await clock.advance(-HOUR)

    assert await store.schedules.fire([late]) == [True]

    (ahead,) = (await store.schedules.schedules_ahead(by=2.0)).schedules
    assert ahead.id == schedule.id
    await a_scheduler(store).rearm()
    seen = await shown(store, schedule)
    assert seen.next_at is not None and seen.next_at < clock.now() + HOUR


async def test_a_cursor_that_is_not_ahead_or_paused_or_moved_is_not_set_back(store, clock):
    schedule = await a_rhythm(store, clock)
    scheduler = a_scheduler(store)
    await clock.advance(HOUR)
    await scheduler.tick()
    before = await shown(store, schedule)
    await scheduler.rearm()
    assert (await store.schedules.schedules_ahead(by=2.0)).schedules == ()

    await clock.advance(-HOUR)
    (ahead,) = (await store.schedules.schedules_ahead(by=2.0)).schedules
    turn = rewind_schedule(ahead, clock.now())
    assert turn is not None and turn.expect is not None
    assert (await store.schedules.schedules_ahead(by=2.0, after=schedule.id)).schedules == ()
    assert await store.schedules.turn_back([replace(turn, expect=turn.expect + 1)]) == [False]
    await store.schedules.pause_job(TENANT, "resize")
    assert (await store.schedules.schedules_ahead(by=2.0)).schedules == ()
    assert await store.schedules.turn_back([turn]) == [False]

    assert (await shown(store, schedule)).next_at == before.next_at

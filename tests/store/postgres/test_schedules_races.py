"""Schedules and those who change them at the same time: nothing fires that should not, or stops."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Decision, Tick, gate_of
from daybell.core.when import cron
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import BATCH_MAX, Scheduler
from daybell.errors import JobNotFound
from daybell.store.postgres import gates
from daybell.store.postgres import schedules as schedules_room
from tests.builders import TENANT, a_firing, a_schedule, defined, put, shown
from tests.store.postgres.steps import Stop, settle

GATES = "SELECT count(*) FROM daybell.gate WHERE key = $1"
MINUTELY = cron("* * * * *").to_json()


@asynccontextmanager
async def frozen(sql, condition, *args):
    """Somebody has locked these schedules, and does not go on."""
    async with sql.transaction():
        await sql.execute(
            f"SELECT FROM daybell.schedule WHERE {condition} FOR NO KEY UPDATE", *args
        )
        yield


async def putting(slow, schedule):
    """Put a schedule, and stand still before the commit."""
    stop = slow.pace.stop = Stop(4)  # tenant, jobs, gates, schedules
    task = asyncio.create_task(slow.schedules.put_schedules(TENANT, [schedule]))
    await stop.arrival()
    return task, stop.resumed.set


def a_scheduler(store, clock):
    return Scheduler(store, clock=ManualClock(clock.now()), mint=mint, events=Events())


async def test_what_a_job_missed_while_paused_does_not_fire_because_it_was_locked_at_the_resume(
    quick, store, clock, sql
):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.pause_job(TENANT, "resize")
    await clock.advance(600)
    assert schedule.next_at is not None
    missed = Tick(at=schedule.next_at, decision=Decision.MISSED, count=11)
    onward = a_firing(schedule, missed, next_at=clock.now() + 60)

    async with frozen(sql, "true"):
        resuming = asyncio.create_task(quick.schedules.resume_job(TENANT, "resize", [onward]))
        await settle(sql, resuming, quick.pace.processes)
    await resuming

    assert (await store.schedules.due_schedules()).schedules == ()
    seen = await shown(store, schedule)
    assert (seen.missed, seen.next_at) == (11, clock.now() + 60)


async def test_a_job_that_is_deleted_while_it_gets_a_schedule_leaves_none_behind(
    slow, quick, store, clock, sql
):
    await defined(store)
    done, resume = await putting(slow, a_schedule(next_at=clock.now()))

    deleting = asyncio.create_task(quick.catalog.delete_job(TENANT, "resize"))
    await settle(sql, deleting, quick.pace.processes)
    resume()
    await done
    await deleting

    assert await store.schedules.list_schedules(TENANT) == []


async def test_a_job_that_is_paused_while_it_gets_a_schedule_pauses_that_too(
    slow, quick, store, clock, sql
):
    await defined(store)
    schedule = a_schedule(next_at=clock.now())
    done, resume = await putting(slow, schedule)

    pausing = asyncio.create_task(quick.schedules.pause_job(TENANT, "resize"))
    await settle(sql, pausing, quick.pace.processes)
    resume()
    await done
    await pausing

    assert (await shown(store, schedule)).is_paused


async def test_a_deleted_job_gets_no_schedule(store):
    await defined(store)
    await store.catalog.delete_job(TENANT, "resize")

    with pytest.raises(JobNotFound):
        await store.schedules.put_schedules(TENANT, [a_schedule()])


async def test_a_schedule_that_has_lost_its_job_keeps_no_other_from_firing(store, clock, sql):
    orphan, sound = (a_schedule(job, next_at=clock.now()) for job in ("orphan", "sound"))
    await put(store, orphan, sound)
    await sql.execute("UPDATE daybell.job SET deleted_at = 1 WHERE name = 'orphan'")
    store.context.names.forget_job(1, "orphan")

    assert [one.id for one in (await store.schedules.due_schedules()).schedules] == [sound.id]
    assert await store.schedules.fire([a_firing(orphan), a_firing(sound)]) == [False, True]


async def test_a_frozen_scheduler_with_a_whole_batch_in_its_hands_stops_nobody_else(
    store, clock, sql
):
    now = clock.now() // 60 * 60
    stuck = [a_schedule(rule=MINUTELY, next_at=now - 60) for _ in range(BATCH_MAX)]
    free = a_schedule(rule=MINUTELY, next_at=now)
    await put(store, *stuck, free, overlap="allow")
    scheduler = a_scheduler(store, clock)

    async with frozen(sql, "next_at < $1", now):
        await scheduler.tick()
        await scheduler.tick()

        assert (await shown(store, free)).fired == 1
    await scheduler.tick()
    await scheduler.tick()
    assert (await store.schedules.due_schedules()).schedules == ()


async def test_plain_ticks_fire_by_the_short_way_and_step_over_what_is_locked(
    store, clock, sql, monkeypatch
):
    schedules = [a_schedule(next_at=clock.now()) for _ in range(4)]
    await put(store, *schedules, overlap="allow")
    longer, fire_free = [], schedules_room._fire_free

    async def seen(pg, tenant, firings):
        longer.append([firing.schedule for firing in firings])
        return await fire_free(pg, tenant, firings)

    monkeypatch.setattr(schedules_room, "_fire_free", seen)
    async with frozen(sql, "id = $1", schedules[1].id):
        answers = await store.schedules.fire([a_firing(one) for one in schedules])

    assert answers == [True, False, True, True]
    assert longer == [[schedules[1].id]]
    assert await store.schedules.fire([a_firing(schedules[1])]) == [True]
    assert len(longer) == 1


async def test_schedules_that_catch_up_are_more_than_one_transaction(store, clock):
    since = clock.now() // 60 * 60 - 3600
    schedules = [
        a_schedule(rule=MINUTELY, next_at=since, misfire='{"policy":"fire_all"}')
        for _ in range(200)
    ]
    await put(store, *schedules, overlap="allow")

    await a_scheduler(store, clock).tick()

    assert {one.fired for one in await store.schedules.list_schedules(TENANT)} == {61}


async def left_gate(store, clock, sql):
    """A schedule that is gone, and whose gate is still there."""
    schedule = a_schedule(next_at=clock.now(), own_gate=True)
    await put(store, schedule)
    await store.schedules.delete_schedules(TENANT, [schedule.id])
    assert await sql.fetchval(GATES, gate_of("resize", schedule.id)) == 1
    return schedule


async def fires(store, schedule):
    """Whether a schedule fires; without its gate it would never do so."""
    return await store.schedules.fire([a_firing(schedule)])


async def test_the_gate_of_a_schedule_that_comes_back_is_not_removed_before_it_is_there(
    slow, quick, store, clock, sql
):
    schedule = await left_gate(store, clock, sql)
    stop = slow.pace.stop = Stop(6)  # tenant, jobs, gates, schedules, gates of their own, locks
    done = asyncio.create_task(slow.schedules.put_schedules(TENANT, [schedule]))
    await stop.arrival()

    assert await gates.remove_gates(quick.context, clock.now()) == 0
    stop.resumed.set()
    await done

    assert await fires(store, schedule) == [True]


@pytest.mark.parametrize("after", [3, 4, 5])  # it was found, is locked, is removed
async def test_a_schedule_that_comes_back_while_its_gate_is_removed_makes_it_again(
    slow, quick, store, clock, sql, after
):
    schedule = await left_gate(store, clock, sql)
    stop = slow.pace.stop = Stop(after)
    removing = asyncio.create_task(gates.remove_gates(slow.context, clock.now()))
    await stop.arrival()

    putting = asyncio.create_task(quick.schedules.put_schedules(TENANT, [schedule]))
    await settle(sql, putting, quick.pace.processes)
    stop.resumed.set()
    await asyncio.gather(removing, putting)

    assert await sql.fetchval(GATES, gate_of("resize", schedule.id)) == 1
    assert await fires(store, schedule) == [True]


async def test_the_gates_of_many_schedules_are_left_where_they_are_needed(store, clock, sql):
    """A round looks at each gate once, by the key of its schedule."""
    schedules = [a_schedule(next_at=clock.now() + 60, own_gate=True) for _ in range(300)]
    await put(store, *schedules)
    await store.schedules.delete_schedules(TENANT, [one.id for one in schedules[::3]])

    assert await gates.remove_gates(store.context, clock.now()) == 100

    assert await sql.fetchval("SELECT count(*) FROM daybell.gate WHERE key LIKE '%/%'") == 200

"""Schedules that fire after other jobs: a round is fired once."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.schedule import Decision, Firing, OnFailure, Overlap, Tick
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    an_execution,
    claim,
    claimed,
    defined,
    look,
    put,
    shown,
)

DEPENDS: dict[str, Any] = {"dependencies": ("extract",)}


async def a_round(store, clock, **definition):
    """A schedule that fires after others."""
    await defined(store, "extract")
    schedule = a_schedule("load", rule='{"after":["extract"]}', since=clock.now())
    await put(store, schedule, **DEPENDS, **definition)
    return schedule


def a_round_of(schedule, at, *, expect, **options):
    new = an_execution("load", schedule=schedule.id, scheduled_for=at)
    ticks = (Tick(at=at, execution=new),)
    return Firing(
        tenant=TENANT, schedule=schedule.id, expect=expect, next_at=at, ticks=ticks, **options
    )


async def test_a_schedule_after_others_is_found_and_never_due(store, clock):
    schedule = await a_round(store, clock)

    due = await store.schedules.due_schedules()
    assert (due.schedules, due.next_at) == ((), None)
    [found] = (await store.schedules.dependents()).schedules
    assert (found.schedule.id, found.schedule.since) == (schedule.id, schedule.since)
    assert (found.schedule.next_at, found.schedule.cursor) == (None, schedule.since)
    assert (found.dependencies, found.on_failure) == (("extract",), OnFailure.WAIT)


async def test_a_schedule_after_any_names_its_own_jobs(store, clock):
    for name in ("extract", "clean", "audit"):
        await defined(store, name)
    schedule = a_schedule("load", rule='{"after_any":["extract","clean"]}', since=clock.now())
    await put(store, schedule, dependencies=("audit",), on_dependency_failure=OnFailure.RUN)

    [found] = (await store.schedules.dependents()).schedules

    assert (found.dependencies, found.is_any) == (("extract", "clean"), True)
    assert found.on_failure == OnFailure.RUN


async def test_a_round_is_fired_once(store, clock):
    schedule = await a_round(store, clock)
    at = clock.now() + 10
    await clock.advance(11)

    firings = [a_round_of(schedule, at, expect=schedule.since) for _ in range(2)]

    assert await store.schedules.fire(firings) == [True, False]
    one = await shown(store, schedule)
    assert (one.since, one.next_at, one.last_at, one.fired) == (at, None, at, 1)
    [record] = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.at, record.decision) == (at, Decision.FIRED)
    assert [one.id for one in (await claim(store)).executions] == [record.execution]


async def test_a_round_that_is_passed_is_on_record(store, clock):
    schedule = await a_round(store, clock)
    at = clock.now() + 10
    tick = Tick(at=at, decision=Decision.SKIPPED, reason="upstream_failed")
    firing = replace(a_round_of(schedule, at, expect=schedule.since), ticks=(tick,))

    assert await store.schedules.fire([firing]) == [True]

    one = await shown(store, schedule)
    assert (one.since, one.fired, one.skipped) == (at, 0, 1)
    [record] = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.reason) == (Decision.SKIPPED, "upstream_failed")


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.SKIP, Overlap.REPLACE, Overlap.ALLOW])
async def test_an_execution_that_is_skipped_with_its_round_is_in_nobodys_way(store, clock, overlap):
    schedule = await a_round(store, clock, overlap=overlap)
    [running] = (await claimed(store, job="load")).executions
    at = clock.now() + 10
    new = an_execution(
        "load", schedule=schedule.id, scheduled_for=at, wait_for_dependencies=True, force=True
    )
    tick = Tick(at=at, decision=Decision.SKIPPED, reason="upstream_failed", execution=new)
    firing = replace(a_round_of(schedule, at, expect=schedule.since), ticks=(tick,))

    assert await store.schedules.fire([firing, firing]) == [True, False]

    one = await look(store, new.id)
    assert (one.state, one.reason) == (State.SKIPPED, "upstream_failed")
    assert (one.scheduled_for, one.schedule, one.finished_at) == (at, schedule.id, clock.now())
    [record] = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.execution) == (Decision.SKIPPED, new.id)
    counted = await shown(store, schedule)
    assert (counted.since, counted.fired, counted.skipped) == (at, 0, 1)
    assert (await look(store, running.id)).cancel_requested_at is None
    assert await store.catalog.miscounts() == []
    [ended] = await store.schedules.ended_since(TENANT, [("load", 0.0)])
    assert ended.state is State.SKIPPED  # a failure, for who depends on it in turn


@pytest.mark.parametrize("delay", [None, 60.0])
async def test_what_is_skipped_with_its_round_never_runs_even_if_its_job_depends_on_nothing(
    store, clock, delay
):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    new = an_execution(schedule=schedule.id, wait_for_dependencies=True, force=True, delay=delay)
    tick = Tick(at=clock.now(), decision=Decision.SKIPPED, reason="upstream_failed", execution=new)

    assert await store.schedules.fire([a_firing(schedule, tick)]) == [True]

    one = await look(store, new.id)
    assert (one.state, one.reason) == (State.SKIPPED, "upstream_failed")
    await clock.advance(61)
    assert (await claim(store)).executions == []
    assert (await shown(store, schedule)).skipped == 1


async def test_a_paused_one_is_not_found_and_does_not_fire(store, clock):
    schedule = await a_round(store, clock)
    await store.schedules.pause_job(TENANT, "load")

    assert (await store.schedules.dependents()).schedules == ()
    firing = a_round_of(schedule, clock.now(), expect=schedule.since)
    assert await store.schedules.fire([firing]) == [False]

    moved = replace(firing, ticks=(), next_at=clock.now() + 5)
    await store.schedules.resume_job(TENANT, "load", [moved])
    assert (await shown(store, schedule)).since == clock.now() + 5
    assert len((await store.schedules.dependents()).schedules) == 1


async def test_a_definition_that_says_the_same_keeps_the_round(store, clock):
    schedule = await a_round(store, clock)
    at = clock.now() + 10
    await store.schedules.fire([a_round_of(schedule, at, expect=schedule.since)])
    again = replace(schedule, since=clock.now() + 500)
    job = a_job("load", description="new", declared=(again,), **DEPENDS)

    await store.catalog.define_jobs(TENANT, [job])
    assert (await shown(store, schedule)).since == at

    other = replace(again, rule='{"after":["extract","clean"]}')
    await store.catalog.define_jobs(
        TENANT, [a_job("load", description="newer", declared=(other,), **DEPENDS)]
    )
    assert (await shown(store, schedule)).since == again.since


async def test_of_many_who_fire_the_same_round_one_does(crowd, clock):
    store = crowd[0]
    schedule = await a_round(store, clock)
    at = clock.now() + 10
    await clock.advance(11)

    answers = await asyncio.gather(
        *(one.schedules.fire([a_round_of(schedule, at, expect=schedule.since)]) for one in crowd)
    )

    assert sorted(answer for [answer] in answers) == [False, False, False, True]
    assert len((await claim(store)).executions) == 1

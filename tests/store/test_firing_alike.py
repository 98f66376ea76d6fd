"""Firings that ask for nothing special, for which a store may take a shorter way: whichever it is,
the outcome is the same.
"""

from dataclasses import dataclass

import pytest

from daybell.core.execution import State
from daybell.core.schedule import Decision, Tick
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    a_tick,
    an_execution,
    count,
    defined,
    look,
    put,
    shown,
)


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

    assert await store.fire(crowd.firings) == [True] * 5

    for schedule, firing in zip(crowd.schedules, crowd.firings, strict=True):
        at, new = schedule.next_at, firing.ticks[0].execution
        seen = await shown(store, schedule)
        assert (seen.next_at, seen.last_at, seen.fired) == (at + 60, at, 1)
        (record,) = await store.list_ticks(TENANT, schedule.id)
        assert (record.at, record.decision, record.execution) == (at, Decision.FIRED, new.id)
        assert (record.count, record.until, record.reason) == (1, None, None)
        execution = await look(store, new.id)
        assert (execution.state, execution.job) == (State.QUEUED, schedule.job)
        assert (execution.args, execution.version) == (new.args, 1)
        assert (execution.schedule, execution.scheduled_for) == (schedule.id, at)


async def test_a_batch_that_comes_again_fires_nothing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.fire(crowd.firings[:3])

    assert await store.fire(crowd.firings) == [False] * 3 + [True] * 2
    assert await store.fire(crowd.firings) == [False] * 5

    assert await count(store) == 5
    assert {(await shown(store, one)).fired for one in crowd.schedules} == {1}


async def test_a_plan_that_is_out_of_date_fires_nothing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.fire(crowd.firings)
    stale = [
        a_firing(one, a_tick(one.next_at + 0.5, job=one.job, schedule=one.id))
        for one in crowd.schedules
    ]

    assert await store.fire(stale) == [False] * 5

    assert await count(store) == 5


async def test_the_like_and_the_unlike_fire_together(store, clock):
    crowd = await a_crowd(store, clock)
    at = clock.now() - 1
    minding, late = a_schedule("minding", next_at=at), a_schedule("late", next_at=at)
    missing, jittery = a_schedule("mail", next_at=at - 120), a_schedule("mail", next_at=at)
    await put(store, minding, overlap="skip")
    await put(store, late, overlap="allow", expires=30.0)
    await store.put_schedules(TENANT, [missing, jittery])
    jittered = an_execution("mail", scheduled_for=at, schedule=jittery.id, at=at + 600)
    missed = Tick(at=at - 120, decision=Decision.MISSED, until=at - 60, count=2)
    others = [
        a_firing(minding),
        a_firing(late),
        a_firing(missing, missed, a_tick(at, job="mail", schedule=missing.id), next_at=at + 60),
        a_firing(jittery, Tick(at=at, execution=jittered)),
    ]

    assert await store.fire([*others[:2], *crowd.firings, *others[2:]]) == [True] * 9

    made = [one.ticks[-1].execution for one in others]
    found = [await look(store, one.id) for one in made if one is not None]
    states = [State.QUEUED, State.QUEUED, State.QUEUED, State.SCHEDULED]
    assert [one.state for one in found] == states
    assert found[1].expires_at is not None
    assert ((await shown(store, missing)).missed, await count(store)) == (2, 9)


async def test_a_tick_on_record_keeps_nobody_else_from_firing(store, clock):
    crowd = await a_crowd(store, clock)
    await store.fire(crowd.firings[:1])
    await store.put_schedules(TENANT, crowd.schedules[:1])  # sets its cursor back
    again = [a_firing(one) for one in crowd.schedules]

    assert await store.fire(again) == [True] * 5

    assert await count(store) == 5
    assert {(await shown(store, one)).fired for one in crowd.schedules} == {1}


async def test_an_id_that_exists_keeps_nobody_else_from_firing(store, clock):
    crowd = await a_crowd(store, clock)
    taken = crowd.firings[2].ticks[0].execution
    await store.enqueue(TENANT, [taken])

    assert await store.fire(crowd.firings) == [True] * 5

    assert await count(store) == 5


async def test_a_job_that_has_changed_fires_in_its_new_version(store, clock, place):
    crowd = await a_crowd(store, clock)
    await store.fire(crowd.firings[:2])  # it has seen the jobs
    other = place.connect()
    await other.open()
    await defined(other, "mail", overlap="allow", queue="urgent")
    if other is not store:
        await other.close()

    assert await store.fire(crowd.firings[2:]) == [True] * 3

    found = [await look(store, id) for id in crowd.ids[2:]]
    assert [(one.job, one.version) for one in found] == [("mail", 2), ("resize", 1), ("mail", 2)]
    assert found[0].queue == "urgent"


@pytest.mark.parametrize("gone", ["paused", "deleted"])
async def test_a_job_that_is_gone_keeps_nobody_else_from_firing(store, clock, gone):
    crowd = await a_crowd(store, clock)
    if gone == "paused":
        await store.pause_job(TENANT, "mail")
    else:
        await store.delete_job(TENANT, "mail")

    assert await store.fire(crowd.firings) == [False, True, False, True, False]


@pytest.mark.parametrize("overlap", [None, "skip", "queue", "queue_all", "replace"])
async def test_schedules_with_gates_of_their_own_fire_and_take_the_slots(store, clock, overlap):
    crowd = await a_crowd(store, clock, own_gate=True, overlap=overlap)

    assert await store.fire(crowd.firings) == [True] * 5

    found = [await look(store, id) for id in crowd.ids]
    assert [one.state for one in found] == [State.QUEUED] * 5
    assert len({one.gate for one in found}) == 5
    assert await store.recount_gates() == []


async def test_those_whose_gate_is_taken_are_skipped_and_the_others_fire(store, clock):
    crowd = await a_crowd(store, clock, own_gate=True, overlap="skip")
    await store.fire(crowd.firings[:2])
    crowd.firings = [a_firing(await shown(store, one)) for one in crowd.schedules]

    assert await store.fire(crowd.firings) == [True] * 5

    seen = [await shown(store, one) for one in crowd.schedules]
    assert [(one.fired, one.skipped) for one in seen] == [(1, 1)] * 2 + [(1, 0)] * 3
    found = [await look(store, id) for id in crowd.ids]
    assert [one.state for one in found] == [State.SKIPPED] * 2 + [State.QUEUED] * 3
    assert await store.recount_gates() == []


async def test_of_schedules_that_share_a_gate_one_fires(store, clock):
    crowd = await a_crowd(store, clock, overlap="skip")

    assert await store.fire(crowd.firings) == [True] * 5

    found = [await look(store, id) for id in crowd.ids]
    queued = [one.job for one in found if one.state is State.QUEUED]
    assert sorted(queued) == ["mail", "resize"]
    assert [one.state for one in found].count(State.SKIPPED) == 3
    assert await store.recount_gates() == []


async def test_what_waits_at_a_gate_comes_before_a_tick(store, clock):
    crowd = await a_crowd(store, clock, size=2, overlap="queue")
    await store.enqueue(TENANT, [an_execution("mail", at=clock.now() + 5)])
    await clock.advance(10)

    assert await store.fire(crowd.firings) == [True] * 2

    found = [await look(store, id) for id in crowd.ids]
    assert [one.state for one in found] == [State.SKIPPED, State.QUEUED]


async def test_what_fires_counts_towards_the_quota(store, clock):
    await store.set_quotas(TENANT, per_minute=100)
    crowd = await a_crowd(store, clock)

    assert await store.fire(crowd.firings) == [True] * 5

    assert await count(store) == 5

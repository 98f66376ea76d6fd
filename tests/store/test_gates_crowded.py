"""Many at one job's gate: schedulers, people and workers at once, and none of them twice."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Overlap
from daybell.core.views import ExecutionFilter
from daybell.errors import ExecutionInTheWay
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    an_execution,
    apply,
    claim,
    claimed,
    death,
    defined,
    fired,
    put,
    shown,
    success,
)
from tests.store.processes import JOBS, TICKS
from tests.store.test_queue_concurrency import processes

EVERYTHING = ExecutionFilter()


async def count(store):
    return await store.catalog.count_executions(TENANT, EVERYTHING)


async def test_of_many_people_one_gets_in(crowd):
    await defined(crowd[0], overlap=Overlap.SKIP)

    answers = await asyncio.gather(
        *(crowd[n % 4].queue.enqueue(TENANT, [an_execution()]) for n in range(12)),
        return_exceptions=True,
    )

    refused = [answer for answer in answers if isinstance(answer, ExecutionInTheWay)]
    assert len(refused) == 11
    assert await count(crowd[0]) == {State.QUEUED: 1}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Overlap.SKIP, {State.QUEUED: 1, State.SKIPPED: 11}),
        (Overlap.QUEUE, {State.QUEUED: 1, State.WAITING: 1, State.SKIPPED: 10}),
        (Overlap.QUEUE_ALL, {State.QUEUED: 1, State.WAITING: 11}),
        (Overlap.REPLACE, {State.QUEUED: 1, State.CANCELLED: 11}),
        (Overlap.ALLOW, {State.QUEUED: 12}),
    ],
)
async def test_of_many_ticks_as_many_get_in_as_the_rule_says(crowd, rule, expected):
    await defined(crowd[0], overlap=rule)
    new = [an_execution(schedule=mint()) for _ in range(12)]

    answers = await asyncio.gather(
        *(crowd[n % 4].queue.enqueue(TENANT, [one]) for n, one in enumerate(new))
    )

    assert await count(crowd[0]) == expected
    skipped = sum(answer.skipped for (answer,) in answers)
    assert skipped == expected.get(State.SKIPPED, 0)


async def fire_at_last(store, firings):
    """Fire them as a scheduler does, which looks again as long as something is due: what others
    have locked is left for another time. Answers how many were advanced here."""
    fired = 0
    while (await store.schedules.due_schedules()).schedules:
        fired += sum(await store.schedules.fire(firings))
    return fired


async def test_schedules_of_one_job_fired_at_once_start_it_once(crowd, clock):
    schedules = [a_schedule(next_at=clock.now()) for _ in range(8)]
    await put(crowd[0], *schedules)

    answers = await asyncio.gather(
        *(
            fire_at_last(crowd[n % 4], [a_firing(one) for one in schedules[:: -1 if n % 2 else 1]])
            for n in range(4)
        )
    )

    assert sum(answers) == 8
    assert await count(crowd[0]) == {State.QUEUED: 1, State.SKIPPED: 7}
    records = [(await crowd[0].schedules.list_ticks(TENANT, one.id))[0] for one in schedules]
    assert Counter(record.decision for record in records) == {
        Decision.FIRED: 1,
        Decision.SKIPPED: 7,
    }
    after = [await shown(crowd[0], one) for one in schedules]
    assert (sum(one.fired for one in after), sum(one.skipped for one in after)) == (1, 7)


async def test_a_person_and_a_tick_at_once_start_it_once(crowd, clock):
    await defined(crowd[0], overlap=Overlap.SKIP)
    for n in range(8):
        schedule = a_schedule(next_at=clock.now())
        await crowd[0].schedules.put_schedules(TENANT, [schedule])

        answers = await asyncio.gather(
            fire_at_last(crowd[n % 4], [a_firing(schedule)]),
            crowd[(n + 1) % 4].queue.enqueue(TENANT, [an_execution()]),
            return_exceptions=True,
        )

        assert answers[0] == 1
        hands = await claim(crowd[0])
        after = await shown(crowd[0], schedule)
        assert isinstance(answers[1], ExecutionInTheWay) == (after.fired == 1)
        await apply(crowd[0], hands, success(hands.one))


async def test_an_end_and_an_enqueue_at_once_leave_no_slot_unused(crowd):
    await defined(crowd[0], overlap=Overlap.QUEUE_ALL)
    for _ in range(8):
        hands = await claimed(crowd[0])

        await asyncio.gather(
            apply(crowd[0], hands, success(hands.one)),
            crowd[1].queue.enqueue(TENANT, [an_execution()]),
        )

        again = await claim(crowd[2])
        await apply(crowd[2], again, success(again.one))

    assert await count(crowd[0]) == {State.SUCCEEDED: 16}


async def test_failures_at_once_are_all_counted(crowd, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(crowd[0], schedule, overlap=Overlap.ALLOW)
    for _ in range(6):
        await fired(crowd[0], schedule)
    hands = await claim(crowd[0])

    await asyncio.gather(
        *(apply(crowd[n % 4], hands, death(one)) for n, one in enumerate(hands.executions))
    )

    assert (await shown(crowd[0], schedule)).failures == 6


async def test_four_processes_never_have_two_of_a_job_unfinished(place, store):
    await defined(store, *JOBS, overlap=Overlap.SKIP)

    async with processes("overlap", place.kind, place.url) as answers:
        inside = [id for answer in answers for id in answer]

    listed = await store.catalog.list_executions(TENANT, EVERYTHING, limit=1000)
    assert sorted(str(one.id) for one in listed.items) == sorted(inside)
    for job in JOBS:
        # From being created to its end, no other one of the job was there.
        lives = sorted(
            (one.created_at, one.finished_at or float("inf"))
            for one in listed.items
            if one.job == job
        )
        assert lives
        assert all(end <= start for (_, end), (start, _) in pairwise(lives))


async def test_four_processes_fire_each_tick_once(place, store):
    at = place.clock.now() - 3600
    schedules = [a_schedule(f"job {n % 10}", next_at=at) for n in range(20)]
    await put(store, *schedules)

    async with processes("fire", place.kind, place.url) as answers:
        won = sum(answer[0] for answer in answers)

    assert won == 20 * TICKS
    for schedule in schedules:
        ticks = await store.schedules.list_ticks(TENANT, schedule.id)
        assert [tick.at - at for tick in ticks] == list(range(TICKS))[::-1]
        after = await shown(store, schedule)
        assert after.fired + after.skipped == TICKS
    # Nobody has claimed: of each job one execution is there, and the others were skipped.
    assert await count(store) == {State.QUEUED: 10, State.SKIPPED: 20 * TICKS - 10}

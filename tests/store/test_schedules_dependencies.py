"""Executions that wait for other jobs: who waits, who is released, and who is ruled out."""

from typing import Any

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import OnFailure, Overlap, backfill_gate
from tests.builders import (
    TENANT,
    a_schedule,
    a_tick,
    apply,
    claim,
    defined,
    enqueued,
    fired,
    look,
    put,
    shown,
    states,
    success,
)

DEPENDS: dict[str, Any] = {"dependencies": ("extract",)}


async def a_dependent(store, clock, **definition):
    """A schedule of a job that depends on another, and is due."""
    await defined(store, "extract")
    schedule = a_schedule("load", next_at=clock.now())
    await put(store, schedule, **{**DEPENDS, **definition})
    return schedule


async def waits(store, schedule, at=None, **options):
    """Fire it: its execution minds the dependencies of the job."""
    at = (await shown(store, schedule)).next_at if at is None else at
    tick = a_tick(at, job="load", schedule=schedule.id, wait_for_dependencies=True, **options)
    [id] = await fired(store, schedule, tick)
    return id


async def test_a_tick_of_a_job_with_dependencies_waits_for_them(store, clock):
    schedule = await a_dependent(store, clock, on_dependency_failure=OnFailure.SKIP)

    id = await waits(store, schedule)

    one = await look(store, id)
    assert (one.state, one.reason) == (State.WAITING, "dependencies")
    assert (await claim(store)).executions == []
    [found] = (await store.dependents()).waiting
    assert (found.tenant, found.id, found.job) == (TENANT, id, "load")
    assert (found.at, found.dependencies) == (one.scheduled_for, ("extract",))
    assert found.on_failure is OnFailure.SKIP


async def test_what_people_enqueue_begins_at_once(store, clock):
    await a_dependent(store, clock)

    [id] = await enqueued(store, job="load")

    assert await states(store, [id]) == [State.QUEUED]
    assert (await store.dependents()).waiting == ()


async def test_a_tick_of_a_job_without_dependencies_begins_at_once(store, clock):
    await defined(store, "extract")
    schedule = a_schedule("load", next_at=clock.now())
    await put(store, schedule)

    assert await states(store, [await waits(store, schedule)]) == [State.QUEUED]


async def test_what_is_released_can_be_claimed(store, clock):
    id = await waits(store, await a_dependent(store, clock))
    await clock.advance(60)

    assert await store.release_dependents(TENANT, [id, mint()]) == 1

    assert [one.id for one in (await claim(store)).executions] == [id]
    assert await store.release_dependents(TENANT, [id]) == 0
    assert (await store.dependents()).waiting == ()


async def test_what_is_ruled_out_is_skipped_and_frees_its_slot(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.SKIP)
    id = await waits(store, schedule)

    assert await store.rule_out_dependents(TENANT, [id, mint()]) == 1

    one = await look(store, id)
    assert (one.state, one.reason) == (State.SKIPPED, "upstream_failed")
    assert one.finished_at == clock.now()
    assert await store.rule_out_dependents(TENANT, [id]) == 0
    await clock.advance(60)
    assert await states(store, [await waits(store, schedule)]) == [State.WAITING]
    assert await store.recount_gates() == []


async def test_what_was_released_is_not_ruled_out_and_the_other_way_round(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.ALLOW)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)

    assert await store.release_dependents(TENANT, [first]) == 1
    assert await store.rule_out_dependents(TENANT, [first, second]) == 1
    assert await store.release_dependents(TENANT, [first, second]) == 0

    assert await states(store, [first, second]) == [State.QUEUED, State.SKIPPED]


async def test_one_that_waits_holds_the_slot_of_its_job(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.SKIP)
    first = await waits(store, schedule)
    await clock.advance(60)

    second = await waits(store, schedule)

    assert await states(store, [first, second]) == [State.WAITING, State.SKIPPED]
    assert (await look(store, second)).reason == "overlap"
    assert await store.recount_gates() == []


async def test_behind_one_that_waits_for_dependencies_others_wait_for_the_slot(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.QUEUE_ALL)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)
    assert len((await store.dependents()).waiting) == 2

    # Let go by its dependencies before it has the slot, it waits for that alone.
    await store.release_dependents(TENANT, [second])
    assert (await look(store, second)).reason == "overlap"
    assert (await claim(store)).executions == []

    await store.release_dependents(TENANT, [first])
    hands = await claim(store)
    assert [one.id for one in hands.executions] == [first]
    await apply(store, hands, *map(success, hands.executions))
    assert [one.id for one in (await claim(store)).executions] == [second]
    assert await store.recount_gates() == []


async def test_who_gets_the_slot_still_waits_for_dependencies(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.QUEUE_ALL)
    first = await waits(store, schedule)
    await clock.advance(60)
    second = await waits(store, schedule)

    await store.cancel(TENANT, [first])

    one = await look(store, second)
    assert (one.state, one.reason) == (State.WAITING, "dependencies")
    assert (await claim(store)).executions == []
    await store.release_dependents(TENANT, [second])
    assert [one.id for one in (await claim(store)).executions] == [second]
    assert await store.recount_gates() == []


async def test_a_backfill_waits_behind_its_own_gate(store, clock):
    schedule = await a_dependent(store, clock)
    gate = backfill_gate(mint(), 1)
    ids = await enqueued(
        store,
        2,
        job="load",
        schedule=schedule.id,
        scheduled_for=1.0,
        gate=gate,
        wait_for_dependencies=True,
    )

    await store.release_dependents(TENANT, ids)

    found = {one.id: one for one in [await look(store, id) for id in ids]}
    assert sorted((one.state, one.reason) for one in found.values()) == [
        (State.QUEUED, None),
        (State.WAITING, "gate"),
    ]
    assert await store.recount_gates() == []


async def test_a_late_tick_is_looked_at_when_its_time_has_come(store, clock):
    schedule = await a_dependent(store, clock)
    id = await waits(store, schedule, at=clock.now())
    await store.rule_out_dependents(TENANT, [id])
    await clock.advance(60)
    later = await waits(store, schedule)
    assert [one.id for one in (await store.dependents()).waiting] == [later]
    await store.rule_out_dependents(TENANT, [later])
    await clock.advance(60)

    at = (await shown(store, schedule)).next_at
    assert at is not None
    tick = a_tick(at, job="load", schedule=schedule.id, wait_for_dependencies=True)
    assert tick.execution is not None
    tick = replace(tick, execution=replace(tick.execution, at=clock.now() + 5))  # its jitter
    await fired(store, schedule, tick)

    assert (await store.dependents()).waiting == ()
    await clock.advance(6)
    assert len((await store.dependents()).waiting) == 1


async def test_the_current_definition_says_what_is_waited_for(store, clock):
    await waits(store, await a_dependent(store, clock))

    await defined(store, "load")

    [found] = (await store.dependents()).waiting
    assert found.dependencies == ()


async def test_they_are_listed_in_pages(store, clock):
    schedule = await a_dependent(store, clock, overlap=Overlap.ALLOW)
    ids = []
    for _ in range(3):
        ids.append(await waits(store, schedule))
        await clock.advance(60)

    first = (await store.dependents(limit=2)).waiting
    rest = (await store.dependents(limit=2, after=first[-1].id)).waiting

    assert [one.id for one in (*first, *rest)] == sorted(ids)


async def test_one_that_waits_expires_like_any_other(store, clock):
    schedule = await a_dependent(store, clock)
    id = await waits(store, schedule, expires_in=30.0)
    await clock.advance(31)

    assert await store.expire() == 1

    assert (await look(store, id)).reason == "expired"
    assert (await store.dependents()).waiting == ()
    assert await store.recount_gates() == []

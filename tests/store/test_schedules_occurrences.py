"""Occurrences: what has become of a schedule's ticks, and what it learns from them."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap, backfill_gate
from daybell.errors import UsageError
from tests.builders import (
    TENANT,
    a_schedule,
    a_tick,
    add_tenants,
    apply,
    claim,
    death,
    enqueued,
    fired,
    put,
    retry,
    shown,
    success,
)
from tests.sweeps import set_gates

QUEUED, SUCCEEDED, SKIPPED = State.QUEUED, State.SUCCEEDED, State.SKIPPED


async def occurrences(store, schedule, since, until, **options):
    found = await store.schedules.list_occurrences(
        TENANT, schedule.id, since=since, until=until, **options
    )
    return [(one.scheduled_for, one.id, one.state) for one in found]


async def ended(store, move):
    hands = await claim(store)
    assert await apply(store, hands, move(hands.one)) == []


async def test_they_are_listed_by_tick_from_one_time_to_another(store, clock):
    at = clock.now()
    schedule, other = a_schedule(next_at=at), a_schedule("other", next_at=at)
    await put(store, schedule, other, overlap=Overlap.ALLOW)
    ticks = [a_tick(at + n, schedule=schedule.id) for n in (4, 0, 3, 1, 2)]
    ids = await fired(store, schedule, *ticks)
    await fired(store, other)
    by_tick = {tick.at - at: id for tick, id in zip(ticks, ids, strict=True)}

    found = await occurrences(store, schedule, at + 1, at + 3)

    assert found == [(at + n, by_tick[n], QUEUED) for n in (1, 2, 3)]
    assert await occurrences(store, schedule, at + 5, at + 99) == []
    assert await occurrences(store, schedule, at, at + 99, limit=2) == [
        (at + n, by_tick[n], QUEUED) for n in (0, 1)
    ]


async def test_each_is_shown_in_its_state_whether_finished_or_not(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    ids = await fired(store, schedule)
    await ended(store, success)
    ids += await fired(store, schedule)
    await ended(store, death)
    ids += await fired(store, schedule, a_tick(at + 120, schedule=schedule.id, delay=10.0))
    ids += await fired(store, schedule)

    found = await occurrences(store, schedule, at, at + 999)

    wanted = [SUCCEEDED, State.DEAD, State.SCHEDULED, SKIPPED]
    assert found == [(at + 60 * n, ids[n], wanted[n]) for n in range(4)]
    await clock.advance(10)
    assert (await occurrences(store, schedule, at + 120, at + 120))[0][2] is QUEUED


async def test_several_of_one_tick_are_in_the_order_they_were_created(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    (first,) = await fired(store, schedule)
    await ended(store, death)
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 1})
    await clock.advance(1)
    (second,) = await enqueued(store, gate=gate, schedule=schedule.id, scheduled_for=at)
    await ended(store, success)
    await clock.advance(1)
    (third,) = await enqueued(store, gate=gate, schedule=schedule.id, scheduled_for=at)

    found = await occurrences(store, schedule, at, at)

    assert found == [(at, first, State.DEAD), (at, second, SUCCEEDED), (at, third, QUEUED)]


async def test_an_unknown_schedule_has_none_and_a_limit_is_one_at_least(store):
    assert await store.schedules.list_occurrences(TENANT, mint(), since=0.0, until=9e9) == []

    for limit in (0, 10_001):
        with pytest.raises(UsageError):
            await store.schedules.list_occurrences(
                TENANT, mint(), since=0.0, until=9e9, limit=limit
            )


async def test_another_tenant_sees_none(store, clock):
    await add_tenants(store, ["acme"])
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule)

    assert await store.schedules.list_occurrences("acme", schedule.id, since=0.0, until=9e9) == []


async def test_a_task_hears_which_tick_before_it_succeeded_last(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule)
    heard = []

    for end in (death, success, death, success):
        await fired(store, schedule)
        hands = await claim(store)
        assert (hands.one.schedule, hands.one.scheduled_for is None) == (schedule.id, False)
        heard.append(hands.one.previous_success)
        await apply(store, hands, end(hands.one))

    assert heard == [None, None, at + 60, at + 60]
    assert (await shown(store, schedule)).succeeded_for == at + 180


async def test_what_comes_from_no_schedule_hears_nothing(store):
    await enqueued(store)

    one = (await claim(store)).one

    assert (one.schedule, one.previous_success) == (None, None)


async def test_the_last_success_is_that_of_the_latest_tick(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap=Overlap.ALLOW)
    await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in (0, 60)))
    hands = await claim(store)
    early, late = sorted(hands.executions, key=lambda one: one.scheduled_for or 0.0)

    await apply(store, hands, success(late))
    await apply(store, hands, success(early))

    assert (await shown(store, schedule)).succeeded_for == at + 60


async def test_a_success_without_a_tick_leaves_the_last_one(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await enqueued(store, schedule=schedule.id)
    await ended(store, success)
    assert (await shown(store, schedule)).succeeded_for is None

    await fired(store, schedule)
    await ended(store, success)
    await enqueued(store, schedule=schedule.id)
    await ended(store, success)

    assert (await shown(store, schedule)).succeeded_for == clock.now()


@pytest.mark.parametrize("end", [death, retry], ids=["death", "retry"])
async def test_what_did_not_succeed_is_no_success(store, clock, end):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule)

    await ended(store, end)

    assert (await shown(store, schedule)).succeeded_for is None


async def test_a_backfill_is_no_news(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 1})
    await enqueued(store, gate=gate, schedule=schedule.id, scheduled_for=clock.now())

    await ended(store, success)

    assert (await shown(store, schedule)).succeeded_for is None


async def test_a_schedule_that_was_deleted_meanwhile_needs_no_news(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule)
    await fired(store, schedule)
    hands = await claim(store)
    await store.schedules.delete_schedules(TENANT, [schedule.id])

    assert await apply(store, hands, death(hands.one)) == []

    assert (await store.catalog.get_job(TENANT, "resize")).paused_at is None


async def test_an_end_on_record_already_is_no_second_news(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule)
    hands = await claim(store)

    for _ in range(2):
        assert await apply(store, hands, death(hands.one)) == []

    assert (await shown(store, schedule)).failures == 1

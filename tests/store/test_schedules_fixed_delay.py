"""Fixed delays: the end of one execution sets the time of the next."""

import asyncio

import pytest
from msgspec.structs import replace

from daybell.core.ids import mint
from daybell.core.lifecycle import after_cancel, after_expiry, after_loss, after_release
from daybell.core.schedule import Decision, Overlap, Tick, backfill_gate
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    a_tick,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    death,
    enqueued,
    fired,
    put,
    retry,
    shown,
    success,
)
from tests.sweeps import expire, rearm_schedules, set_gates

DELAY = 30.0


async def a_delay(store, clock, **options):
    """A schedule that fires so long after its last execution has ended, and is due."""
    definition = {key: options.pop(key) for key in ("overlap",) if key in options}
    schedule = a_schedule(next_at=clock.now(), delay=DELAY, **options)
    await put(store, schedule, **definition)
    return schedule


async def next_at(store, schedule):
    return (await shown(store, schedule)).next_at


async def test_it_has_no_next_time_while_its_execution_is_unfinished(store, clock):
    schedule = await a_delay(store, clock)

    await fired(store, schedule)

    assert await next_at(store, schedule) is None
    due = await store.schedules.due_schedules()
    assert (due.schedules, due.next_at) == ((), None)


@pytest.mark.parametrize(
    "end",
    [success, death, after_expiry, after_cancel, lambda one: after_loss(one, max_crashes=1)],
    ids=["success", "death", "expiry", "cancel", "loss"],
)
async def test_every_end_that_a_worker_makes_sets_its_next_time(store, clock, end):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    hands = await claim(store)
    await clock.advance(7)

    assert await apply(store, hands, end(hands.one)) == []

    assert await next_at(store, schedule) == clock.now() + DELAY
    assert (await store.schedules.due_schedules()).next_at == clock.now() + DELAY


async def test_the_end_of_one_that_had_to_be_cancelled_sets_its_next_time(store, clock):
    schedule = await a_delay(store, clock)
    (id,) = await fired(store, schedule)
    hands = await claim(store)
    await store.queue.cancel(TENANT, [id])
    assert await next_at(store, schedule) is None
    await clock.advance(7)

    await apply(store, hands, success(hands.one))

    assert await next_at(store, schedule) == clock.now() + DELAY


@pytest.mark.parametrize("end", [success, death], ids=["success", "death"])
async def test_an_end_without_the_name_of_the_schedule_is_told_to_it_all_the_same(
    store, clock, end
):
    schedule = await a_delay(store, clock, overlap=Overlap.ALLOW)
    await fired(store, schedule)
    hands = await claim(store)
    assert hands.one.schedule == schedule.id

    # As a worker of an earlier version sends it.
    assert await apply(store, hands, replace(end(hands.one), schedule=None)) == []

    assert await next_at(store, schedule) == clock.now() + DELAY


async def cancelled(store, clock, id):
    await store.queue.cancel(TENANT, [id])


async def expired(store, clock, id):
    await clock.advance(61)
    assert await expire(store) == 1


async def given_back(store, clock, id):
    hands = await claim(store)
    await store.queue.cancel(TENANT, [id])
    await clock.advance(1)
    assert await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 1


async def unknown_to_its_worker(store, clock, id):
    hands = await claim(store)
    await store.queue.cancel(TENANT, [id])
    await clock.advance(1)
    await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[])


@pytest.mark.parametrize("end", [cancelled, expired, given_back, unknown_to_its_worker])
@pytest.mark.parametrize("rule", [Overlap.SKIP, Overlap.ALLOW])
async def test_every_end_that_no_worker_makes_sets_its_next_time(store, clock, end, rule):
    schedule = await a_delay(store, clock, overlap=rule)
    tick = a_tick(clock.now(), schedule=schedule.id, expires_in=60.0)
    (id,) = await fired(store, schedule, tick)

    await end(store, clock, id)

    assert await next_at(store, schedule) == clock.now() + DELAY


@pytest.mark.parametrize("way_back", [retry, after_release], ids=["retry", "release"])
async def test_a_way_back_is_no_end(store, clock, way_back):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    hands = await claim(store)

    await apply(store, hands, way_back(hands.one))

    assert await next_at(store, schedule) is None


async def test_an_end_moves_no_time_that_is_set(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.ALLOW)
    await fired(store, schedule)
    hands = await claim(store)
    later = clock.now() + 500
    await store.schedules.put_schedules(
        TENANT, [a_schedule(id=schedule.id, next_at=later, delay=DELAY)]
    )

    await apply(store, hands, success(hands.one))

    assert await next_at(store, schedule) == later


async def test_the_end_of_a_schedule_without_a_delay_sets_no_time(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule, next_at=None)
    hands = await claim(store)

    await apply(store, hands, success(hands.one))

    assert await next_at(store, schedule) is None


async def test_what_was_enqueued_by_a_person_is_none_of_its_ends(store, clock):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    await enqueued(store, force=True)
    hands = await claim(store)
    assert len(hands.executions) == 2

    await apply(store, hands, *(success(o) for o in hands.executions if o.schedule is None))

    assert await next_at(store, schedule) is None


async def test_an_end_of_a_backfill_is_none_of_its_ends(store, clock):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 1})
    past = await enqueued(store, 2, gate=gate, schedule=schedule.id, scheduled_for=5.0)
    hands = await claim(store)

    await apply(store, hands, *(success(o) for o in hands.executions if o.gate == gate))
    await store.queue.cancel(TENANT, past)

    after = await shown(store, schedule)
    assert (after.next_at, after.succeeded_for) == (None, None)


async def test_a_tick_that_was_skipped_begins_the_delay_anew(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.SKIP)
    await claimed(store)
    await clock.advance(5)

    await fired(store, schedule)

    after = await shown(store, schedule)
    assert (after.next_at, after.skipped) == (clock.now() + DELAY, 1)


async def test_a_skipped_tick_begins_nothing_while_another_of_its_firing_runs(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.SKIP)
    at = clock.now()

    await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in range(2)))

    after = await shown(store, schedule)
    assert (after.next_at, after.fired, after.skipped) == (None, 1, 1)


async def test_a_tick_whose_key_is_held_begins_the_delay_anew(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.ALLOW)
    (holder,) = await enqueued(store, unique_key="k")

    await fired(store, schedule, a_tick(clock.now(), schedule=schedule.id, unique_key="k"))

    after = await shown(store, schedule)
    assert (after.next_at, after.fired) == (clock.now() + DELAY, 1)
    (record,) = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.execution) == (Decision.FIRED, holder)


async def test_a_firing_that_names_a_next_time_keeps_it(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.SKIP)
    await claimed(store)

    await fired(store, schedule, next_at=clock.now() + 5)

    assert await next_at(store, schedule) == clock.now() + 5


async def test_one_that_is_over_is_not_set_again(store, clock):
    schedule = await a_delay(store, clock)
    await fired(store, schedule, is_over=True)
    hands = await claim(store)

    await apply(store, hands, success(hands.one))

    after = await shown(store, schedule)
    assert (after.next_at, after.delay) == (None, None)
    assert await rearm_schedules(store) == 0


async def test_one_that_would_be_over_is_not_if_the_overlap_rule_says_no(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.SKIP)
    await claimed(store)

    await fired(store, schedule, is_over=True)

    after = await shown(store, schedule)
    assert (after.next_at, after.delay) == (clock.now() + DELAY, DELAY)


async def test_the_sweep_sets_what_waits_for_an_end_that_will_not_come(store, clock):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    # A firing that created nothing, as when its worker's end was lost with an older version.
    await fired(store, schedule, Tick(at=clock.now() + 1, decision=Decision.MISSED))
    assert await next_at(store, schedule) is None
    await clock.advance(7)

    assert await rearm_schedules(store) == 1

    assert await next_at(store, schedule) == clock.now() + DELAY
    assert await rearm_schedules(store) == 0


async def test_the_sweep_leaves_what_waits_with_reason(store, clock):
    schedule = await a_delay(store, clock)
    ended, plain = a_schedule(delay=None), a_schedule(delay=DELAY, next_at=clock.now() + 9)
    await put(store, ended, plain)
    (id,) = await fired(store, schedule)

    assert await rearm_schedules(store) == 0
    hands = await claim(store)
    assert await rearm_schedules(store) == 0
    await apply(store, hands, retry(hands.one, delay=100.0))
    assert await rearm_schedules(store) == 0

    assert hands.one.id == id
    assert [await next_at(store, one) for one in (schedule, ended, plain)] == [
        None,
        None,
        clock.now() + 9,
    ]


async def test_the_sweep_does_not_wait_for_backfills(store, clock):
    schedule = await a_delay(store, clock)
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 1})
    await enqueued(store, 2, gate=gate, schedule=schedule.id, scheduled_for=5.0)
    await fired(store, schedule, Tick(at=clock.now(), decision=Decision.MISSED))

    assert await rearm_schedules(store) == 1


async def test_the_sweep_has_a_limit_and_sees_all_tenants(store, clock):
    await add_tenants(store, ["acme"])
    for tenant in (TENANT, "acme"):
        await put(store, *(a_schedule(delay=DELAY) for _ in range(2)), tenant=tenant)

    counts = [await rearm_schedules(store, limit=3) for _ in range(3)]

    assert counts == [3, 1, 0]


async def test_the_end_wakes_who_waits_for_schedules(store, clock):
    schedule = await a_delay(store, clock)
    await fired(store, schedule)
    hands = await claim(store)
    woken = asyncio.Event()
    stop = await store.listen_schedules(woken.set)
    woken.clear()

    await apply(store, hands, success(hands.one))

    await asyncio.wait_for(woken.wait(), 300)
    await stop()


async def test_a_delay_with_an_execution_that_is_replaced_goes_on(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.REPLACE)
    await fired(store, schedule)

    await store.queue.enqueue(TENANT, [an_execution()])

    assert await next_at(store, schedule) == clock.now() + DELAY


async def test_what_is_over_has_no_next_time_whatever_was_planned(store, clock):
    schedule = a_schedule(next_at=clock.now(), delay=30.0)
    await put(store, schedule)

    assert await store.schedules.fire(
        [a_firing(schedule, next_at=clock.now() + 5, is_over=True)]
    ) == [True]

    after = await shown(store, schedule)
    assert (after.next_at, after.delay) == (None, None)


async def test_the_end_of_a_running_one_that_was_replaced_begins_no_delay(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.REPLACE)
    (first,) = await fired(store, schedule)
    hands = await claim(store)
    await apply(store, hands, death(hands.one))
    await store.queue.revive(TENANT, [first])
    hands = await claim(store)
    await clock.advance(DELAY)
    await fired(store, schedule)
    assert hands.one.id == first

    await clock.advance(1)
    await apply(store, hands, after_cancel(hands.one))

    assert await next_at(store, schedule) is None, "what was fired has not ended"
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    assert await next_at(store, schedule) == clock.now() + DELAY


async def test_a_delay_that_replaces_goes_on_where_its_key_is_held(store, clock):
    schedule = await a_delay(store, clock, overlap=Overlap.REPLACE)
    await store.queue.enqueue(TENANT, [an_execution(unique_key="k", force=True)])
    tick = a_tick(clock.now(), schedule=schedule.id, unique_key="k")

    assert await store.schedules.fire([a_firing(schedule, tick)]) == [True]

    assert await next_at(store, schedule) == clock.now() + DELAY

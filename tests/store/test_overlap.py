"""Overlap: what becomes of an execution while one before it has not finished."""

import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import after_release
from daybell.core.overlap import Overlap, backfill_gate, gate_of
from daybell.core.schedule import Decision
from daybell.core.view import ExecutionFilter
from daybell.errors import ExecutionInTheWay, UsageError
from daybell.store.ids import mint
from daybell.store.outcomes import Revival
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    a_tick,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    fired,
    look,
    put,
    retry,
    shown,
    states,
    success,
)

QUEUED, WAITING, RUNNING = State.QUEUED, State.WAITING, State.RUNNING
SCHEDULED, SKIPPED, CANCELLED = State.SCHEDULED, State.SKIPPED, State.CANCELLED
EVERYTHING = ExecutionFilter()
RULES = [Overlap.SKIP, Overlap.QUEUE, Overlap.QUEUE_ALL, Overlap.REPLACE]


async def count(store):
    return sum((await store.count_executions(TENANT, EVERYTHING)).values())


async def ticked(store, *, schedule=None, job="resize", **options):
    """An execution as a tick enqueues it; the answer, and its id."""
    new = an_execution(job, schedule=schedule or mint(), **options)
    (answer,) = await store.enqueue(TENANT, [new])
    assert (answer.id, answer.created) == (new.id, True)
    return answer


async def refused(store, *executions):
    with pytest.raises(ExecutionInTheWay) as caught:
        await store.enqueue(TENANT, executions or [an_execution()])
    return caught.value


async def ended(store, hands):
    assert await apply(store, hands, success(hands.one)) == []


async def test_a_job_that_says_nothing_runs_beside_itself(store):
    ids = await enqueued(store, 3)

    assert await states(store, ids) == [QUEUED] * 3
    assert (await look(store, ids[0])).gate is None


async def test_a_person_hears_what_is_in_the_way_and_nothing_is_created(store):
    await defined(store, "resize", overlap=Overlap.SKIP)
    await defined(store, "mail")
    (first,) = await enqueued(store)

    error = await refused(store, an_execution("mail"), an_execution())

    assert error.execution == first
    for word in ("resize", "skip", str(first), "force"):
        assert word in str(error)
    assert await count(store) == 1
    assert await states(store, [first]) == [QUEUED]


async def test_two_of_one_batch_are_in_each_others_way(store):
    await defined(store, overlap=Overlap.SKIP)
    first, second = an_execution(), an_execution()

    error = await refused(store, first, second)

    assert error.execution in (first.id, None)  # it was never there
    assert await count(store) == 0
    assert (await claim(store)).executions == []
    await enqueued(store)


@pytest.mark.parametrize("rule", RULES)
async def test_an_idle_job_lets_one_in_at_once(store, rule):
    await defined(store, overlap=rule)

    (first,) = await enqueued(store)

    seen = await look(store, first)
    assert (seen.state, seen.reason, seen.gate) == (QUEUED, None, gate_of("resize"))
    assert (await claim(store)).one.id == first


async def test_an_execution_is_in_the_way_until_it_has_ended(store, clock):
    await defined(store, overlap=Overlap.SKIP)
    hands = await claimed(store)
    assert (await refused(store)).execution == hands.one.id

    await apply(store, hands, retry(hands.one, delay=10.0))
    assert (await refused(store)).execution == hands.one.id

    await clock.advance(10)
    assert (await refused(store)).execution == hands.one.id
    hands = await claim(store)
    await apply(store, hands, after_release(hands.one))
    assert (await refused(store)).execution == hands.one.id


async def cancel(store, clock):
    (id,) = await enqueued(store)
    await store.cancel(TENANT, [id])


async def expire(store, clock):
    await enqueued(store, expires_in=5.0)
    await clock.advance(6)
    assert await store.expire() == 1


async def succeed(store, clock):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))


async def die(store, clock):
    hands = await claimed(store)
    await apply(store, hands, death(hands.one))


async def stop(store, clock):
    hands = await claimed(store)
    await store.cancel(TENANT, [hands.one.id])
    await refused(store)
    await store.release(TENANT, worker=hands.worker, leases=[hands.lease])


ENDS = [cancel, expire, succeed, die, stop]


@pytest.mark.parametrize("end", ENDS)
async def test_after_any_end_the_next_one_gets_in(store, clock, end):
    await defined(store, overlap=Overlap.SKIP)
    await end(store, clock)

    (second,) = await enqueued(store)

    assert await states(store, [second]) == [QUEUED]
    await refused(store)


async def test_a_tick_that_is_not_let_in_is_recorded_as_skipped(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    (first,) = await fired(store, schedule)

    (second,) = await fired(store, schedule)

    seen = await look(store, second)
    assert (seen.state, seen.reason, seen.outcome) == (SKIPPED, "overlap", None)
    assert (seen.created_at, seen.finished_at) == (clock.now(), clock.now())
    assert (seen.schedule, seen.scheduled_for) == (schedule.id, clock.now() + 60)
    record, before = await store.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.reason) == (Decision.SKIPPED, "overlap")
    assert (record.at, record.execution) == (clock.now() + 60, second)
    assert (before.decision, before.execution) == (Decision.FIRED, first)
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (1, 1, clock.now())
    assert after.next_at == clock.now() + 120
    assert (await claim(store)).one.id == first


async def test_a_skipped_one_is_answered_as_such_and_takes_no_slot(store):
    await defined(store, overlap=Overlap.SKIP)
    hands = await claimed(store)

    answer = await ticked(store)

    assert answer.skipped
    assert await states(store, [answer.id]) == [SKIPPED]
    await ended(store, hands)
    assert not (await ticked(store)).skipped


async def test_a_scheduled_job_is_not_run_twice_at_a_time_unless_asked(store, clock):
    await defined(store, "minds")
    await defined(store, "allows", overlap=Overlap.ALLOW)
    minds = [await ticked(store, job="minds") for _ in range(2)]
    allows = [await ticked(store, job="allows") for _ in range(2)]

    assert [one.skipped for one in minds + allows] == [False, True, False, False]
    # What a person enqueues beside it is asked only if the job itself says so.
    assert await states(store, await enqueued(store, 2, job="minds")) == [QUEUED] * 2


async def test_a_definition_with_schedules_minds_what_people_enqueue_too(store):
    await defined(store, schedules=('{"every": 60}',))
    (first,) = await enqueued(store)

    assert (await refused(store)).execution == first


async def test_queue_lets_one_wait_and_refuses_the_next(store):
    await defined(store, overlap=Overlap.QUEUE)
    hands = await claimed(store)
    (second,) = await enqueued(store)
    waiting = await look(store, second)
    assert (waiting.state, waiting.reason) == (WAITING, "overlap")

    error = await refused(store)
    assert error.execution in (hands.one.id, second)
    assert "queue" in str(error)
    assert (await ticked(store)).skipped

    await ended(store, hands)
    assert await states(store, [second]) == [QUEUED]
    (third,) = await enqueued(store)
    assert await states(store, [third]) == [WAITING]


async def test_queue_all_runs_them_one_after_the_other(store):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    ids = await enqueued(store, 2)
    ids.append((await ticked(store)).id)
    assert await states(store, ids) == [QUEUED, WAITING, WAITING]

    for expected in ids:
        hands = await claim(store)
        assert hands.one.id == expected
        await ended(store, hands)

    assert set(await states(store, ids)) == {State.SUCCEEDED}


async def test_replace_takes_the_place_of_what_has_not_started(store):
    await defined(store, overlap=Overlap.REPLACE)
    (first,) = await enqueued(store)

    (second,) = await enqueued(store)

    assert await states(store, [first, second]) == [CANCELLED, QUEUED]
    assert (await claim(store)).one.id == second


async def test_replace_leaves_what_is_to_start_later(store, clock):
    await defined(store, overlap=Overlap.REPLACE)
    (delayed,) = await enqueued(store, delay=60.0)
    await enqueued(store)

    (second,) = await enqueued(store)

    assert (await look(store, delayed)).state is not CANCELLED
    hands = await claim(store)
    assert hands.one.id == second
    await apply(store, hands, success(hands.one))
    await clock.advance(60)
    await store.admit()
    assert (await claim(store)).one.id == delayed


async def test_replace_starts_when_the_running_one_has_really_ended(store):
    await defined(store, overlap=Overlap.REPLACE)
    hands = await claimed(store)
    first = hands.one.id

    (second,) = await enqueued(store)

    seen = await look(store, first)
    assert (seen.state, seen.cancel_requested_at is None) == (RUNNING, False)
    assert await states(store, [second]) == [WAITING]
    (third,) = await enqueued(store)
    assert await states(store, [second, third]) == [CANCELLED, WAITING]
    assert (await claim(store)).executions == []
    await apply(store, hands, success(hands.one))
    assert await states(store, [first, third]) == [CANCELLED, QUEUED]


async def test_replace_by_a_tick_is_on_record_as_fired(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap=Overlap.REPLACE)
    (first,) = await fired(store, schedule)

    (second,) = await fired(store, schedule)

    assert await states(store, [first, second]) == [CANCELLED, QUEUED]
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (2, 0, clock.now() + 60)


async def test_replace_leaves_what_is_at_another_gate(store):
    await store.set_gates(TENANT, {"other": 1})
    await defined(store, overlap=Overlap.REPLACE)
    (beside,) = await enqueued(store, gate="other")

    await enqueued(store, 2)

    assert await states(store, [beside]) == [QUEUED]


@pytest.mark.parametrize("rule", RULES)
async def test_force_runs_beside_the_others_whatever_the_rule(store, rule):
    await defined(store, overlap=rule)
    first = await claimed(store)

    second = await claimed(store, force=True)

    assert await states(store, [first.one.id, second.one.id]) == [RUNNING, RUNNING]
    assert (await look(store, first.one.id)).cancel_requested_at is None


async def test_one_that_waits_gets_in_when_those_who_were_forced_have_ended_too(store):
    await defined(store, overlap=Overlap.QUEUE)
    first = await claimed(store)
    second = await claimed(store, force=True)
    (third,) = await enqueued(store)

    await ended(store, first)
    assert await states(store, [third]) == [WAITING]
    await ended(store, second)
    assert await states(store, [third]) == [QUEUED]


async def test_one_that_was_forced_is_in_the_way_of_the_next(store):
    await defined(store, overlap=Overlap.SKIP)
    (first,) = await enqueued(store, force=True)

    assert (await refused(store)).execution == first


async def test_force_passes_a_gate_that_is_full(store):
    await store.set_gates(TENANT, {"g": 1})
    first = await claimed(store, gate="g")
    second = await claimed(store, gate="g", force=True)
    (third,) = await enqueued(store, gate="g")

    await ended(store, first)
    assert await states(store, [third]) == [WAITING]
    await ended(store, second)
    assert await states(store, [third]) == [QUEUED]


async def test_force_means_nothing_where_nothing_is_in_the_way(store):
    ids = await enqueued(store, 2, force=True)

    assert await states(store, ids) == [QUEUED, QUEUED]


@pytest.mark.parametrize("rule", RULES)
async def test_an_execution_is_never_in_its_own_way(store, rule):
    await defined(store, overlap=rule)
    new = an_execution()
    await store.enqueue(TENANT, [new])

    (again,) = await store.enqueue(TENANT, [new], repeat=True)

    assert (again.id, again.created) == (new.id, True)
    assert await states(store, [new.id]) == [QUEUED]
    hands = await claim(store)
    await ended(store, hands)
    await store.enqueue(TENANT, [new], repeat=True)
    assert await states(store, [new.id]) == [State.SUCCEEDED]
    (second,) = await enqueued(store)
    assert await states(store, [second]) == [QUEUED]


async def test_an_end_that_was_repeated_with_another_at_work_disturbs_nobody(store):
    await defined(store, overlap=Overlap.REPLACE)
    new = an_execution()
    await store.enqueue(TENANT, [new])
    await ended(store, await claim(store))
    hands = await claimed(store)

    (again,) = await store.enqueue(TENANT, [new], repeat=True)

    assert again.created
    assert (await look(store, hands.one.id)).cancel_requested_at is None


async def test_a_skipped_one_that_is_asked_for_again_stays_skipped(store):
    await defined(store, overlap=Overlap.SKIP)
    hands = await claimed(store)
    new = an_execution(schedule=mint())
    await store.enqueue(TENANT, [new])
    await ended(store, hands)

    (again,) = await store.enqueue(TENANT, [new], repeat=True)

    assert again.created
    assert await states(store, [new.id]) == [SKIPPED]
    assert (await claim(store)).executions == []


@pytest.mark.parametrize("rule", RULES)
async def test_a_key_that_is_held_is_answered_with_its_holder(store, rule):
    await defined(store, overlap=rule)
    (first,) = await enqueued(store, unique_key="k")

    (answer,) = await store.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (answer.id, answer.created) == (first, False)
    assert await states(store, [first]) == [QUEUED]
    await ended(store, await claim(store))
    (second,) = await enqueued(store)
    assert await states(store, [second]) == [QUEUED]


async def test_a_tick_whose_time_is_put_off_takes_its_slot_at_once(store, clock):
    await defined(store, overlap=Overlap.SKIP)

    first = await ticked(store, delay=10.0)

    assert await states(store, [first.id]) == [SCHEDULED]
    assert (await ticked(store)).skipped
    assert (await refused(store)).execution == first.id
    assert (await claim(store)).executions == []
    await clock.advance(10)
    hands = await claim(store)
    assert hands.one.id == first.id
    await ended(store, hands)
    assert not (await ticked(store)).skipped


async def test_a_tick_whose_time_is_put_off_waits_if_it_has_to(store, clock):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    hands = await claimed(store)

    second = await ticked(store, delay=10.0)

    assert await states(store, [second.id]) == [WAITING]
    await ended(store, hands)
    assert await store.admit() == 0
    await clock.advance(10)
    assert await store.admit() == 1
    assert await states(store, [second.id]) == [QUEUED]


@pytest.mark.parametrize("rule", RULES)
async def test_a_delayed_one_is_not_asked_before_its_time(store, clock, rule):
    await defined(store, overlap=rule)
    hands = await claimed(store)

    (delayed,) = await enqueued(store, delay=10.0)

    seen = await look(store, delayed)
    assert (seen.state, seen.reason) == (WAITING, "overlap")
    assert (await look(store, hands.one.id)).cancel_requested_at is None
    await clock.advance(10)
    assert await store.admit() == 0
    await ended(store, hands)
    assert await states(store, [delayed]) == [QUEUED]


async def test_a_delayed_one_is_in_the_way_only_when_it_is_due(store, clock):
    await defined(store, overlap=Overlap.SKIP)
    (delayed,) = await enqueued(store, delay=10.0)
    await ended(store, await claimed(store))

    await clock.advance(10)

    assert (await refused(store)).execution == delayed
    assert await store.admit() == 1
    assert (await claim(store)).one.id == delayed


async def test_a_batch_is_asked_in_its_order(store):
    await defined(store, overlap=Overlap.QUEUE)
    news = [an_execution(schedule=mint()) for _ in range(4)]

    answers = await store.enqueue(TENANT, news)

    assert [answer.skipped for answer in answers] == [False, False, True, True]
    assert await states(store, [new.id for new in news]) == [QUEUED, WAITING, SKIPPED, SKIPPED]


async def test_a_batch_with_a_key_in_it_counts_each_slot_once(store):
    await defined(store, "a", "b", overlap=Overlap.SKIP)
    for _ in range(2):
        await store.enqueue(TENANT, [an_execution("a"), an_execution("b", unique_key="k")])
        hands = await claim(store)

        await apply(store, hands, *(success(one) for one in hands.executions))

    assert await store.count_executions(TENANT, EVERYTHING) == {State.SUCCEEDED: 4}


async def test_jobs_are_not_in_each_others_way(store):
    await defined(store, "a", "b", overlap=Overlap.SKIP)

    answers = await store.enqueue(TENANT, [an_execution("a"), an_execution("b")])

    assert await states(store, [answer.id for answer in answers]) == [QUEUED, QUEUED]


async def test_tenants_are_not_in_each_others_way(store):
    await store.add_tenants(["acme"])
    for tenant in (TENANT, "acme"):
        await defined(store, tenant=tenant, overlap=Overlap.SKIP)
        await enqueued(store, tenant=tenant)

    await refused(store)


async def test_one_that_names_a_gate_passes_that_one_instead(store):
    gate = backfill_gate(mint())
    await store.set_gates(TENANT, {gate: 2})
    await defined(store, overlap=Overlap.SKIP)
    (inside,) = await enqueued(store)

    ids = await enqueued(store, 3, gate=gate)

    assert await states(store, [inside, *ids]) == [QUEUED, QUEUED, QUEUED, WAITING]
    assert (await look(store, ids[2])).reason == "gate"


async def test_the_rule_is_that_of_the_current_version(store):
    await defined(store)
    await enqueued(store, 2)

    await defined(store, overlap=Overlap.SKIP)
    (first,) = await enqueued(store)
    assert (await refused(store)).execution == first

    await store.define_jobs(TENANT, [a_job(overlap=Overlap.ALLOW)])
    assert await states(store, await enqueued(store, 2)) == [QUEUED, QUEUED]


async def test_a_dead_one_that_is_revived_waits_for_those_who_came_after(store):
    await defined(store, overlap=Overlap.SKIP)
    (first,) = await dead(store)
    hands = await claimed(store)

    assert await store.revive(TENANT, [first]) == [Revival.REVIVED]

    seen = await look(store, first)
    assert (seen.state, seen.reason) == (WAITING, "overlap")
    await ended(store, hands)
    assert (await claim(store)).one.id == first


@pytest.mark.parametrize("rule", RULES)
async def test_load_takes_no_job_with_a_rule(store, rule):
    await defined(store, "minds", overlap=rule)
    await defined(store, "free")

    with pytest.raises(UsageError, match=r"executions\[1\].*minds"):
        await store.load(TENANT, [an_execution("free"), an_execution("minds")])

    assert await count(store) == 0


async def test_load_takes_no_force_and_no_tick(store):
    await defined(store)

    for bad in (an_execution(force=True), an_execution(schedule=mint())):
        with pytest.raises(UsageError, match=r"executions\[0\]"):
            await store.load(TENANT, [bad])


async def test_ticks_of_one_firing_are_asked_one_after_the_other(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at)
    await put(store, schedule, overlap=Overlap.QUEUE)

    ids = await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in range(4)))

    assert await states(store, ids) == [QUEUED, WAITING, SKIPPED, SKIPPED]
    after = await shown(store, schedule)
    assert (after.fired, after.skipped, after.last_at) == (2, 2, at + 1)
    decisions = [tick.decision for tick in await store.list_ticks(TENANT, schedule.id)]
    assert decisions == [Decision.SKIPPED] * 2 + [Decision.FIRED] * 2


async def test_two_schedules_of_one_job_are_in_each_others_way(store, clock):
    first, second = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now())
    await put(store, first, second)

    ids = await fired(store, first) + await fired(store, second)

    assert await states(store, ids) == [QUEUED, SKIPPED]


async def test_a_schedule_added_at_run_time_gates_its_ticks_and_nothing_else(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)  # of a job that says nothing about overlap

    (by_hand, again) = await enqueued(store, 2)
    (first,) = await fired(store, schedule)
    await fired(store, schedule)

    assert await states(store, [by_hand, again, first]) == [State.QUEUED] * 3
    seen = await shown(store, schedule)
    assert (seen.fired, seen.skipped) == (1, 1)

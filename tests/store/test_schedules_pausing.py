"""Pausing: a job whose schedules stand still, by a person or after too many failures."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Overlap, Tick, backfill_gate
from daybell.errors import JobNotFound
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    a_tick,
    an_execution,
    apply,
    claim,
    death,
    defined,
    enqueued,
    fired,
    put,
    retry,
    shown,
    states,
    success,
)
from tests.sweeps import set_gates


async def job(store, name="resize"):
    return await store.catalog.get_job(TENANT, name)


async def run(store, schedule, end):
    """Fire a schedule once, and let what it fired end."""
    await fired(store, schedule)
    hands = await claim(store)
    await apply(store, hands, end(hands.one))


async def test_a_job_is_not_paused_at_first(store):
    await defined(store)

    assert ((await job(store)).paused_at, (await job(store)).pause_note) == (None, "")


async def test_a_paused_job_says_since_when_and_why(store, clock):
    await defined(store)

    await store.schedules.pause_job(TENANT, "resize", note="größer 🔔")

    paused = await job(store)
    assert (paused.paused_at, paused.pause_note) == (clock.now(), "größer 🔔")
    assert (await store.catalog.list_jobs(TENANT)).items == (paused,)
    assert await store.catalog.define_jobs(TENANT, [a_job()]) == [paused]


async def test_the_schedules_of_a_paused_job_stand_still_and_others_do_not(store, clock):
    here, there = a_schedule(next_at=clock.now()), a_schedule("mail", next_at=clock.now())
    await put(store, here, there)

    await store.schedules.pause_job(TENANT, "resize")

    assert (await shown(store, here)).is_paused
    assert not (await shown(store, there)).is_paused
    assert [one.id for one in (await store.schedules.due_schedules()).schedules] == [there.id]
    assert await store.schedules.fire([a_firing(here), a_firing(there)]) == [False, True]


async def test_a_paused_job_can_still_be_enqueued(store):
    await defined(store)
    await store.schedules.pause_job(TENANT, "resize")

    ids = await enqueued(store)

    assert await states(store, ids) == [State.QUEUED]
    assert (await claim(store)).one.id == ids[0]


async def test_pausing_again_changes_the_note_and_not_the_time(store, clock):
    await defined(store)
    await store.schedules.pause_job(TENANT, "resize", note="one")
    since = clock.now()
    await clock.advance(5)

    await store.schedules.pause_job(TENANT, "resize", note="two")

    paused = await job(store)
    assert (paused.paused_at, paused.pause_note) == (since, "two")


async def test_a_schedule_that_a_paused_job_gets_is_paused(store, clock):
    await defined(store)
    await store.schedules.pause_job(TENANT, "resize")
    late, declared = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now())

    await store.schedules.put_schedules(TENANT, [late])
    await store.catalog.define_jobs(TENANT, [a_job(timeout=5.0, declared=[declared])])

    assert [(await shown(store, one)).is_paused for one in (late, declared)] == [True, True]
    assert (await job(store)).paused_at == clock.now()


async def test_a_schedule_that_moves_to_a_job_that_is_not_paused_fires(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.pause_job(TENANT, "resize")

    moved = a_schedule("mail", id=schedule.id, next_at=clock.now())
    await put(store, moved)

    assert await store.schedules.fire([a_firing(moved)]) == [True]


async def test_a_resumed_job_fires_again(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.pause_job(TENANT, "resize", note="why")

    await store.schedules.resume_job(TENANT, "resize")

    assert ((await job(store)).paused_at, (await job(store)).pause_note) == (None, "")
    assert not (await shown(store, schedule)).is_paused
    assert await store.schedules.fire([a_firing(schedule)]) == [True]


async def test_resuming_goes_on_from_where_it_says(store, clock):
    at = clock.now()
    schedule, other = a_schedule(next_at=at), a_schedule(next_at=at)
    await put(store, schedule, other, overlap=Overlap.ALLOW)
    await store.schedules.pause_job(TENANT, "resize")
    await clock.advance(300)
    missed = Tick(at=at, decision=Decision.MISSED, reason="paused", until=at + 240, count=5)
    new = an_execution(scheduled_for=at + 300, schedule=other.id)
    tick = Tick(at=at + 300, execution=new)

    await store.schedules.resume_job(
        TENANT,
        "resize",
        [a_firing(schedule, missed, next_at=at + 360), a_firing(other, tick, next_at=at + 400)],
    )

    after = await shown(store, schedule)
    assert (after.next_at, after.fired, after.missed) == (at + 360, 0, 5)
    (record,) = await store.schedules.list_ticks(TENANT, schedule.id)
    assert (record.decision, record.reason, record.count) == (Decision.MISSED, "paused", 5)
    assert (await shown(store, other)).next_at == at + 400
    assert (await claim(store)).one.id == new.id
    assert (await store.schedules.due_schedules()).schedules == ()


async def test_resuming_leaves_a_cursor_alone_that_is_somewhere_else(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.pause_job(TENANT, "resize")

    await store.schedules.resume_job(TENANT, "resize", [a_firing(schedule, expect=clock.now() - 1)])

    after = await shown(store, schedule)
    assert (after.next_at, after.fired, after.is_paused) == (clock.now(), 0, False)
    assert await store.schedules.list_ticks(TENANT, schedule.id) == []


async def test_resuming_with_a_bad_firing_leaves_the_job_paused(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await store.schedules.pause_job(TENANT, "resize")

    with pytest.raises(JobNotFound):
        bad = Tick(at=clock.now(), execution=an_execution("nothing"))
        await store.schedules.resume_job(TENANT, "resize", [a_firing(schedule, bad)])

    assert (await job(store)).paused_at is not None
    assert (await shown(store, schedule)).is_paused


async def test_resuming_what_is_not_paused_changes_nothing(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    before = await shown(store, schedule)

    await store.schedules.resume_job(TENANT, "resize")

    assert await shown(store, schedule) == before


async def test_a_job_that_is_not_there_is_neither_paused_nor_resumed(store):
    await defined(store)
    await store.catalog.delete_job(TENANT, "resize")

    for name in ("resize", "nothing"):
        with pytest.raises(JobNotFound, match=name):
            await store.schedules.pause_job(TENANT, name)
        with pytest.raises(JobNotFound, match=name):
            await store.schedules.resume_job(TENANT, name)


async def test_a_deleted_job_that_comes_back_is_not_paused(store, clock):
    await defined(store)
    await store.schedules.pause_job(TENANT, "resize", note="why")

    await store.catalog.delete_job(TENANT, "resize")
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    assert ((await job(store)).paused_at, (await job(store)).pause_note) == (None, "")
    assert not (await shown(store, schedule)).is_paused


async def test_so_many_failures_in_a_row_pause_the_job(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=2)
    twin = a_schedule(next_at=clock.now())
    await put(store, schedule, twin)

    await run(store, schedule, death)
    assert (await job(store)).paused_at is None
    await clock.advance(5)
    await run(store, schedule, death)

    paused = await job(store)
    assert paused.paused_at == clock.now()
    assert paused.pause_note == "paused after 2 failures in a row"
    after = await shown(store, schedule)
    assert (after.failures, after.is_paused) == (2, True)
    assert (await shown(store, twin)).is_paused
    assert (await store.schedules.due_schedules()).schedules == ()


async def test_failures_of_one_batch_are_all_counted(store, clock):
    at = clock.now()
    schedule = a_schedule(next_at=at, pause_after=3)
    await put(store, schedule, overlap=Overlap.ALLOW)
    await fired(store, schedule, *(a_tick(at + n, schedule=schedule.id) for n in range(3)))
    hands = await claim(store)

    await apply(store, hands, *(death(one) for one in hands.executions))

    assert (await shown(store, schedule)).failures == 3
    assert (await job(store)).pause_note == "paused after 3 failures in a row"


async def test_a_success_starts_the_count_anew(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=2)
    await put(store, schedule)

    for end in (death, success, death):
        await run(store, schedule, end)

    assert (await shown(store, schedule)).failures == 1
    assert (await job(store)).paused_at is None


async def test_without_a_limit_no_number_of_failures_pauses(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)

    for _ in range(4):
        await run(store, schedule, death)

    assert (await shown(store, schedule)).failures == 4
    assert (await job(store)).paused_at is None


@pytest.mark.parametrize("end", [retry, "cancel"], ids=["retry", "cancel"])
async def test_what_is_no_failure_is_not_counted(store, clock, end):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule)
    (id,) = await fired(store, schedule)

    if end == "cancel":
        await store.queue.cancel(TENANT, [id])
    else:
        hands = await claim(store)
        await apply(store, hands, end(hands.one))

    assert (await shown(store, schedule)).failures == 0
    assert (await job(store)).paused_at is None


async def test_a_limit_that_was_lowered_counts_at_the_next_failure(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await run(store, schedule, death)
    await run(store, schedule, death)
    lower = a_schedule(id=schedule.id, next_at=clock.now() + 500, pause_after=1)
    await put(store, lower)
    (id,) = await fired(store, lower)

    await store.queue.cancel(TENANT, [id])
    assert (await job(store)).paused_at is None
    await run(store, lower, death)

    assert (await job(store)).pause_note == "paused after 3 failures in a row"


async def test_failures_of_a_backfill_are_not_counted(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule)
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 1})
    await enqueued(store, gate=gate, schedule=schedule.id, scheduled_for=5.0)
    hands = await claim(store)

    await apply(store, hands, death(hands.one))

    assert (await shown(store, schedule)).failures == 0
    assert (await job(store)).paused_at is None


async def test_failures_of_what_people_enqueue_are_not_counted(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule)
    await enqueued(store)
    hands = await claim(store)

    await apply(store, hands, death(hands.one))

    assert (await shown(store, schedule)).failures == 0


async def test_a_failure_after_a_person_has_paused_keeps_his_note(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=1)
    await put(store, schedule)
    await fired(store, schedule)
    hands = await claim(store)
    await store.schedules.pause_job(TENANT, "resize", note="holidays")

    await apply(store, hands, death(hands.one))

    assert (await job(store)).pause_note == "holidays"
    assert (await shown(store, schedule)).failures == 1


async def test_resuming_starts_the_count_anew(store, clock):
    schedule = a_schedule(next_at=clock.now(), pause_after=2)
    await put(store, schedule)
    await run(store, schedule, death)
    await run(store, schedule, death)

    await store.schedules.resume_job(TENANT, "resize")
    assert (await shown(store, schedule)).failures == 0
    await run(store, schedule, death)

    assert (await job(store)).paused_at is None


async def test_a_fixed_delay_of_a_paused_job_waits_to_be_resumed(store, clock):
    schedule = a_schedule(next_at=clock.now(), delay=30.0)
    await put(store, schedule)
    await fired(store, schedule)
    hands = await claim(store)
    await store.schedules.pause_job(TENANT, "resize")

    await apply(store, hands, success(hands.one))

    assert (await shown(store, schedule)).next_at == clock.now() + 30
    assert (await store.schedules.due_schedules()).next_at is None
    await store.schedules.resume_job(TENANT, "resize")
    assert (await store.schedules.due_schedules()).next_at == clock.now() + 30

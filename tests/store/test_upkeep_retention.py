"""Retention of executions and of jobs.

A store may drop whole days, so "old" here is always days older than the policy keeps.
"""

import pytest
from msgspec.structs import replace

from daybell.core.execution import NewLogPart, State
from daybell.core.lifecycle import after_release
from daybell.core.options import Keep
from daybell.core.schedule import Tick
from daybell.core.views import ExecutionFilter, Retention
from daybell.core.worker import WorkerState
from daybell.errors import ExecutionNotFound, JobNotFound
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    defined,
    enqueued,
    finished,
    registered,
    retry,
    success,
)
from tests.sweeps import retain, set_gates

DAY = 86_400.0
EVERYTHING = ExecutionFilter()
WEEK = Retention(finished=7 * DAY, ticks=7 * DAY, workers=7 * DAY)


async def retain_all(store, policy=WEEK):
    """Rounds of retention until one says that it is complete."""
    for _ in range(20):
        if (await retain(store, policy)).is_complete:
            return
    raise AssertionError("retention does not come to an end")


async def listed(store):
    return [one.id for one in (await store.catalog.list_executions(TENANT, EVERYTHING)).items]


async def test_nothing_to_remove_is_complete_at_once(store):
    removed = await retain(store, WEEK)

    assert removed.is_complete
    assert (removed.executions, removed.attempts, removed.ticks, removed.workers) == (0, 0, 0, 0)


async def test_what_ended_long_ago_is_removed(store, clock):
    ids = await finished(store, 2)
    (cancelled,) = await enqueued(store)
    await store.queue.cancel(TENANT, [cancelled])
    await clock.advance(10 * DAY)

    await retain_all(store)

    assert await listed(store) == []
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {}
    with pytest.raises(ExecutionNotFound):
        await store.catalog.get_execution(TENANT, ids[0])


async def test_what_ended_lately_is_kept(store, clock):
    ids = await finished(store, 2)
    await clock.advance(6 * DAY)

    await retain_all(store)

    assert await listed(store) == ids[::-1]


async def test_the_end_counts_and_not_the_beginning(store, clock):
    (old,) = await enqueued(store)
    await clock.advance(20 * DAY)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))

    await retain_all(store)

    assert await listed(store) == [old]


async def test_what_is_unfinished_is_kept_however_old(store, clock):
    await set_gates(store, TENANT, {"closed": 0})
    running = (await claimed(store)).one.id
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=99 * DAY))
    (queued,) = await enqueued(store)
    (waiting,) = await enqueued(store, gate="closed")
    (scheduled,) = await enqueued(store, delay=99 * DAY)
    await clock.advance(30 * DAY)

    await retain_all(store)

    unfinished = [running, hands.one.id, queued, waiting, scheduled]
    assert await listed(store) == unfinished[::-1]


async def test_dead_letters_are_kept_until_a_person_decides(store, clock):
    kept, discarded = await dead(store, 2)
    await store.queue.discard(TENANT, [discarded])
    await clock.advance(30 * DAY)

    await retain_all(store)
    assert await listed(store) == [kept]

    await store.queue.revive(TENANT, [kept])
    assert (await claim(store)).one.id == kept


async def test_a_dead_letter_that_is_discarded_late_goes_in_the_end(store, clock):
    (id,) = await dead(store)
    await clock.advance(30 * DAY)
    await store.queue.discard(TENANT, [id])

    await retain_all(store)
    await clock.advance(10 * DAY)
    await retain_all(store)

    assert await listed(store) == []


async def test_old_attempts_go_too(store, clock):
    hands = await claimed(store)
    await apply(store, hands, after_release(hands.one))
    await clock.advance(10 * DAY)

    await retain_all(store)

    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    assert (detail.execution.state, detail.execution.attempt) == (State.QUEUED, 2)
    assert detail.attempts == ()


async def test_young_attempts_stay(store, clock):
    hands = await claimed(store)
    await apply(store, hands, after_release(hands.one))
    await clock.advance(5 * DAY)

    await retain_all(store)

    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    assert [attempt.attempt for attempt in detail.attempts] == [1]


async def test_old_ticks_go_and_young_ones_stay(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await defined(store)
    await store.schedules.put_schedules(TENANT, [schedule])
    old, young = clock.now(), clock.now() + 8 * DAY
    await store.schedules.fire([a_firing(schedule, Tick(at=old), Tick(at=young))])
    await clock.advance(10 * DAY)

    await retain_all(store)

    assert [tick.at for tick in await store.schedules.list_ticks(TENANT, schedule.id)] == [young]
    assert len(await store.schedules.list_schedules(TENANT)) == 1


async def test_workers_that_died_long_ago_go_once_they_hold_nothing(store, clock):
    gone = await registered(store)
    holding = await claimed(store)
    await clock.advance(100)
    await store.queue.lost()
    await clock.advance(10 * DAY)
    alive = await registered(store)
    retired = await registered(store)
    await store.queue.retire(TENANT, retired)

    await retain_all(store)

    left = {
        worker.id: worker.state
        for worker in await store.catalog.list_workers(TENANT, include_dead=True)
    }
    assert left == {
        holding.worker: WorkerState.DEAD,
        alive: WorkerState.LIVE,
        retired: WorkerState.DEAD,
    }
    assert gone not in left
    assert len((await store.queue.lost()).executions) == 1


async def test_each_kind_of_record_has_its_own_limit(store, clock):
    (id,) = await finished(store)
    await clock.advance(10 * DAY)

    await retain_all(store, Retention(finished=30 * DAY, ticks=0.0, workers=0.0))

    assert await listed(store) == [id]


async def test_days_go_by_and_the_last_week_stays(store, clock):
    made = []
    for _ in range(12):
        made += await finished(store)
        await clock.advance(DAY)
        await retain_all(store)

    left = await listed(store)

    # A day more or less: a store may drop whole days.
    assert left == made[: -len(left) - 1 : -1]
    assert 6 <= len(left) <= 9


async def test_work_goes_on_when_nobody_has_done_the_upkeep_for_long(store, clock):
    await clock.advance(45 * DAY)

    (id,) = await finished(store)

    await retain_all(store)
    (again,) = await finished(store)
    assert await listed(store) == [again, id]


async def test_what_ended_while_nobody_did_the_upkeep_is_removed_too(store, clock):
    await clock.advance(45 * DAY)
    await finished(store)
    await retain_all(store)
    await clock.advance(10 * DAY)

    await retain_all(store)

    assert await listed(store) == []


async def test_all_tenants_are_served(store, clock):
    await add_tenants(store, ["acme"])
    await finished(store, tenant="acme")
    await clock.advance(10 * DAY)

    await retain_all(store)

    assert (await store.catalog.list_executions("acme", EVERYTHING)).items == ()


@pytest.mark.all_only
async def test_more_than_fits_one_round_is_removed_in_several(store, clock):
    await defined(store)
    for _ in range(12):
        batch = [an_execution() for _ in range(1000)]
        await store.queue.enqueue(TENANT, batch)
        await store.queue.cancel(TENANT, [one.id for one in batch])
    await clock.advance(10 * DAY)

    await retain_all(store)

    assert await listed(store) == []


# Retention of jobs: deleted ones and those made to run once go with their last execution.


async def pass_weeks(store, clock, rounds):
    """Let time pass, so much longer than executions are kept that a round of retention follows."""
    for _ in range(rounds):
        await clock.advance(10 * DAY)
        await retain_all(store)


async def is_there(store, name):
    try:
        return bool((await store.catalog.list_versions(TENANT, name)).items)
    except JobNotFound:
        return False


async def test_a_deleted_job_goes_with_its_last_execution(store, clock):
    await finished(store, job="old")
    await defined(store, "other")
    await store.catalog.delete_job(TENANT, "old")
    await clock.advance(6 * DAY)
    await retain_all(store)
    assert await is_there(store, "old")

    await pass_weeks(store, clock, 3)

    assert not await is_there(store, "old")
    assert await store.catalog.job_ids(TENANT, ["old"]) == {}
    (again,) = await defined(store, "old")
    assert again.version == 1


async def test_a_job_that_ran_once_goes_with_its_execution(store, clock):
    _, made = await store.catalog.launch(TENANT, a_job("once", once=True), an_execution(job="once"))
    await store.queue.cancel(TENANT, [made.id])
    await finished(store, job="other")
    await clock.advance(6 * DAY)
    await retain_all(store)
    assert (await store.catalog.get_job(TENANT, "once")).definition.once

    await pass_weeks(store, clock, 3)

    assert not await is_there(store, "once")
    assert await is_there(store, "other")


async def test_jobs_in_use_stay(store, clock):
    used = ["scheduled", "waiting", "letter", "named"]
    await defined(store, *used, once=True)
    await defined(store, "dependent", dependencies=("named",))
    await store.schedules.put_schedules(TENANT, [a_schedule(job="scheduled", next_at=9e9)])
    await enqueued(store, job="waiting", delay=1000 * DAY)
    await dead(store, job="letter")
    await finished(store, job="lasting")

    await pass_weeks(store, clock, 3)

    names = [one.name for one in (await store.catalog.list_jobs(TENANT)).items]
    assert names == sorted([*used, "dependent", "lasting"])


async def test_a_job_that_is_defined_again_stays(store, clock):
    await defined(store, "job", once=True)
    await store.catalog.delete_job(TENANT, "job")
    await defined(store, "other")
    await pass_weeks(store, clock, 1)
    (back,) = await defined(store, "job", description="for good")

    await pass_weeks(store, clock, 3)

    assert await store.catalog.get_job(TENANT, "job") == back


async def test_many_jobs_go_in_several_rounds(store, clock):
    names = [f"one-{n:04}" for n in range(600)]
    await defined(store, *names, once=True)
    await defined(store, "last")
    await pass_weeks(store, clock, 1)
    assert [one.name for one in (await store.catalog.list_jobs(TENANT)).items] == ["last"]

    await pass_weeks(store, clock, 1)

    assert await store.catalog.job_ids(TENANT, names) == {}
    assert (await retain(store, WEEK)).jobs == 0


# Policies of jobs.

MONTH = Retention()


async def test_a_job_keeps_its_executions_for_its_own_time(store, clock):
    await defined(store, "short", keep=Keep(executions=DAY))
    await defined(store, "long", keep=Keep(succeeded=90 * DAY))
    for job in ("short", "long", "other"):
        await finished(store, job=job)
    await clock.advance(4 * DAY)
    await retain_all(store, MONTH)
    assert await jobs_left(store) == {"long", "other"}

    await clock.advance(30 * DAY)
    await retain_all(store, MONTH)
    assert await jobs_left(store) == {"long"}

    await clock.advance(60 * DAY)
    await retain_all(store, MONTH)
    assert await jobs_left(store) == set()


async def jobs_left(store):
    return {one.job for one in (await store.catalog.list_executions(TENANT, EVERYTHING)).items}


async def test_each_end_has_its_own_time(store, clock):
    await defined(store, keep=Keep(succeeded=DAY, cancelled=20 * DAY))
    await finished(store)
    (cancelled,) = await enqueued(store)
    await store.queue.cancel(TENANT, [cancelled])
    await clock.advance(4 * DAY)

    await retain_all(store, MONTH)

    assert await listed(store) == [cancelled]


async def test_a_dead_letter_goes_after_the_time_of_its_job(store, clock):
    await defined(store, "short", keep=Keep(dead=2 * DAY))
    await dead(store, job="short")
    (kept,) = await dead(store, job="other")
    await clock.advance(DAY)
    await retain_all(store, MONTH)
    assert len(await listed(store)) == 2
    await clock.advance(4 * DAY)

    await retain_all(store, MONTH)

    assert await listed(store) == [kept]


async def test_results_and_logs_may_go_before_their_execution(store, clock):
    await defined(store, "brief", keep=Keep(results=DAY, logs=2 * DAY))
    ids = []
    for job in ("brief", "other"):
        first = await claimed(store, job=job)
        await write_log(store, first)
        await apply(store, first, replace(retry(first.one, delay=0.0), log="b"))
        last = await claim(store)
        await write_log(store, last)
        await apply(store, last, replace(success(last.one), log="d"))
        ids.append(last.one.id)
    await clock.advance(3.5 * DAY)

    await retain_all(store, MONTH)

    brief, other = [await store.catalog.get_execution(TENANT, id) for id in ids]
    assert (brief.execution.result, other.execution.result) == (None, '"done"')
    assert len(brief.attempts) == len(other.attempts) == 2
    assert [len(await store.catalog.read_log(TENANT, id)) for id in ids] == [0, 4]


async def write_log(store, hands):
    one = hands.one
    part = NewLogPart(one.id, one.attempt, one.lease, 1, "a")
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[part])


async def test_a_policy_that_is_set_later_reaches_older_executions(store, clock):
    await finished(store)
    await clock.advance(5 * DAY)
    await retain_all(store, MONTH)
    assert len(await listed(store)) == 1

    await defined(store, keep=Keep(executions=DAY))
    await clock.advance(7200.0)
    await retain_all(store, MONTH)

    assert await listed(store) == []


async def test_the_policy_of_the_cluster_is_for_jobs_without_one(store, clock):
    await defined(store, "long", keep=Keep(executions=20 * DAY))
    await finished(store, job="long")
    await finished(store, job="other")
    await clock.advance(10 * DAY)

    await retain_all(store, Retention(keep=Keep(succeeded=5 * DAY)))

    assert await jobs_left(store) == {"long"}


async def test_a_tenant_has_a_policy_for_its_jobs_without_one(store, clock):
    await add_tenants(store, ["acme"])
    changed = await store.admin.set_quotas("acme", keep=Keep(executions=5 * DAY), jobs=9)
    assert changed == await store.admin.get_tenant("acme")
    assert (changed.keep, changed.quotas.jobs) == (Keep(executions=5 * DAY), 9)
    assert (await store.admin.set_quotas("acme", jobs=None)).keep == changed.keep
    await defined(store, "long", tenant="acme", keep=Keep(succeeded=20 * DAY))
    for job in ("long", "other"):
        await finished(store, job=job, tenant="acme")
    (ours,) = await finished(store)
    await clock.advance(10 * DAY)

    await retain_all(store, MONTH)

    left = (await store.catalog.list_executions("acme", EVERYTHING)).items
    assert [one.job for one in left] == ["long"]
    assert await listed(store) == [ours]
    assert (await store.admin.set_quotas("acme", keep=Keep())).keep == Keep()

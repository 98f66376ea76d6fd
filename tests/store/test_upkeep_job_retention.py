"""Retention of jobs: deleted ones and those made to run once go with their last execution."""

from daybell.errors import JobNotFound
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    an_execution,
    dead,
    defined,
    enqueued,
    finished,
)
from tests.store.test_upkeep_retention import DAY, WEEK, retain


async def pass_weeks(store, clock, rounds):
    """Let time pass, so much longer than executions are kept that a round of retention follows."""
    for _ in range(rounds):
        await clock.advance(10 * DAY)
        await retain(store)


async def is_there(store, name):
    try:
        return bool((await store.list_versions(TENANT, name)).items)
    except JobNotFound:
        return False


async def test_a_deleted_job_goes_with_its_last_execution(store, clock):
    await finished(store, job="old")
    await defined(store, "other")
    await store.delete_job(TENANT, "old")
    await clock.advance(6 * DAY)
    await retain(store)
    assert await is_there(store, "old")

    await pass_weeks(store, clock, 3)

    assert not await is_there(store, "old")
    assert await store.job_ids(TENANT, ["old"]) == {}
    (again,) = await defined(store, "old")
    assert again.version == 1


async def test_a_job_that_ran_once_goes_with_its_execution(store, clock):
    _, made = await store.launch(TENANT, a_job("once", once=True), an_execution(job="once"))
    await store.cancel(TENANT, [made.id])
    await finished(store, job="other")
    await clock.advance(6 * DAY)
    await retain(store)
    assert (await store.get_job(TENANT, "once")).definition.once

    await pass_weeks(store, clock, 3)

    assert not await is_there(store, "once")
    assert await is_there(store, "other")


async def test_jobs_in_use_stay(store, clock):
    used = ["scheduled", "waiting", "letter", "named"]
    await defined(store, *used, once=True)
    await defined(store, "dependent", dependencies=("named",))
    await store.put_schedules(TENANT, [a_schedule(job="scheduled", next_at=9e9)])
    await enqueued(store, job="waiting", delay=1000 * DAY)
    await dead(store, job="letter")
    await finished(store, job="lasting")

    await pass_weeks(store, clock, 3)

    names = [one.name for one in (await store.list_jobs(TENANT)).items]
    assert names == sorted([*used, "dependent", "lasting"])


async def test_a_job_that_is_defined_again_stays(store, clock):
    await defined(store, "job", once=True)
    await store.delete_job(TENANT, "job")
    await defined(store, "other")
    await pass_weeks(store, clock, 1)
    (back,) = await defined(store, "job", description="for good")

    await pass_weeks(store, clock, 3)

    assert await store.get_job(TENANT, "job") == back


async def test_many_jobs_go_in_several_rounds(store, clock):
    names = [f"one-{n:04}" for n in range(600)]
    await defined(store, *names, once=True)
    await defined(store, "last")
    await pass_weeks(store, clock, 1)
    assert [one.name for one in (await store.list_jobs(TENANT)).items] == ["last"]

    await pass_weeks(store, clock, 1)

    assert await store.job_ids(TENANT, names) == {}
    assert (await store.retain(WEEK)).jobs == 0

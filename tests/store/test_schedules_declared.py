"""Declared schedules: they come with a job's definition, and go with it."""

import pytest

from daybell.core.schedule import Overlap, gate_of
from daybell.errors import VersionConflict
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    defined,
    enqueued,
    fired,
    look,
    shown,
)


async def listed(store):
    return [one.id for one in await store.schedules.list_schedules(TENANT)]


async def define(store, *declared, **options):
    (job,) = await store.catalog.define_jobs(TENANT, [a_job(declared=declared, **options)])
    return job


async def test_a_new_job_brings_its_schedules(store, clock):
    one, two = a_schedule(next_at=clock.now()), a_schedule(next_at=clock.now() + 5)

    await define(store, one, two)

    assert await listed(store) == [one.id, two.id]
    seen = await shown(store, one)
    assert (seen.job, seen.next_at, seen.is_declared) == ("resize", clock.now(), True)
    assert await store.schedules.fire([a_firing(one)]) == [True]


async def test_an_equal_definition_moves_no_cursor(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await define(store, schedule)
    await fired(store, schedule)
    before = await shown(store, schedule)

    again = a_schedule(id=schedule.id, next_at=clock.now() + 1)
    await define(store, again, a_schedule())

    assert await store.schedules.list_schedules(TENANT) == [before]


async def test_a_new_version_replaces_them_and_keeps_the_counts_of_those_that_stay(store, clock):
    stays, goes, comes = a_schedule(next_at=clock.now()), a_schedule(), a_schedule()
    await define(store, stays, goes)
    await fired(store, stays)

    changed = a_schedule(id=stays.id, rule='"new"', next_at=clock.now() + 7)
    assert (await define(store, changed, comes, timeout=5.0)).version == 2

    assert await listed(store) == [stays.id, comes.id]
    seen = await shown(store, stays)
    assert (seen.rule, seen.next_at) == ('"new"', clock.now() + 7)
    assert (seen.fired, seen.last_at) == (1, clock.now())


async def test_a_new_version_moves_no_cursor_of_a_schedule_that_says_the_same(store, clock):
    overdue = a_schedule(next_at=clock.now())
    awaiting = a_schedule(next_at=clock.now(), delay=30.0)
    await define(store, overdue, awaiting)
    await fired(store, awaiting)
    await clock.advance(5)

    later = clock.now() + 60
    again = [
        a_schedule(id=overdue.id, next_at=later, args='{"size":2}'),
        a_schedule(id=awaiting.id, next_at=later, delay=30.0),
    ]
    assert (await define(store, *again, timeout=5.0)).version == 2

    seen = await shown(store, overdue)
    assert (seen.next_at, seen.args) == (overdue.next_at, '{"size":2}')
    assert (await shown(store, awaiting)).next_at is None


async def test_a_schedule_that_is_over_stays_so_in_a_new_version(store, clock):
    last = a_schedule(next_at=clock.now(), delay=30.0)
    await define(store, last)
    await store.schedules.fire([a_firing(last, next_at=None, is_over=True)])

    await define(store, a_schedule(id=last.id, next_at=clock.now(), delay=30.0), timeout=5.0)

    seen = await shown(store, last)
    assert (seen.next_at, seen.delay) == (None, None)


async def test_a_new_version_without_schedules_ends_them(store):
    await define(store, a_schedule())

    await define(store, timeout=5.0)

    assert await listed(store) == []


async def test_schedules_that_were_put_at_run_time_stay(store, clock):
    put_later = a_schedule(next_at=clock.now())
    await define(store, a_schedule())
    await store.schedules.put_schedules(TENANT, [put_later])

    await define(store, timeout=5.0)

    assert await listed(store) == [put_later.id]
    assert not (await shown(store, put_later)).is_declared


async def test_other_jobs_keep_theirs(store):
    mine, other = a_schedule(), a_schedule("mail")
    await store.catalog.define_jobs(
        TENANT, [a_job(declared=[mine]), a_job("mail", declared=[other])]
    )

    await define(store, timeout=5.0)

    assert await listed(store) == [other.id]


async def test_old_code_in_a_rolling_deploy_does_not_bring_its_schedules_back(store):
    old, new = a_schedule(), a_schedule()
    await define(store, old)
    await define(store, new, timeout=5.0)

    assert (await define(store, old)).version == 2

    assert await listed(store) == [new.id]


async def test_a_definition_that_is_promoted_brings_its_schedules_back(store):
    old, new = a_schedule(), a_schedule()
    await define(store, old)
    await define(store, new, timeout=5.0)

    assert (await define(store, old, promote=True)).version == 3

    assert await listed(store) == [old.id]


async def test_a_deleted_job_that_comes_back_has_its_schedules_again(store):
    schedule = a_schedule()
    await define(store, schedule)
    await store.catalog.delete_job(TENANT, "resize")
    assert await listed(store) == []

    assert (await define(store, schedule)).version == 1

    assert await listed(store) == [schedule.id]


async def test_a_deleted_job_comes_back_as_what_old_code_says(store):
    old, new = a_schedule(), a_schedule()
    await define(store, old)
    await define(store, new, timeout=5.0)
    await store.catalog.delete_job(TENANT, "resize")

    answer = await define(store, old)

    assert (answer.version, answer.definition.timeout) == (3, None)
    assert await listed(store) == [old.id]


async def test_a_version_that_is_refused_changes_no_schedule(store):
    schedule = a_schedule()
    await define(store, schedule)

    with pytest.raises(VersionConflict):
        await define(store, a_schedule(), timeout=5.0, expect=7)

    assert await listed(store) == [schedule.id]


@pytest.mark.parametrize(
    "definition",
    [{"overlap": Overlap.QUEUE}, {"schedules": ('{"every": 60}',)}],
    ids=["overlap", "schedules"],
)
async def test_a_job_that_minds_has_a_gate_of_its_own(store, definition):
    await defined(store, **definition)
    gate = gate_of("resize")

    (id,) = await enqueued(store)

    assert (await look(store, id)).gate == gate
    (named,) = await enqueued(store, gate=gate)
    assert (await look(store, named)).state == "waiting"


async def test_a_job_keeps_its_gate_as_it_is_when_it_is_defined_again(store):
    await defined(store, overlap=Overlap.QUEUE_ALL)
    await enqueued(store, 2)

    await defined(store, overlap=Overlap.QUEUE_ALL, timeout=5.0)

    (third,) = await enqueued(store)
    assert (await look(store, third)).state == "waiting"

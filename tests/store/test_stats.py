"""Statistics over time: each end is counted once, in its minute and its hour."""

import asyncio

import pytest

from daybell.core.execution import Revival, State
from daybell.core.monitoring.stats import (
    COUNTS,
    HOUR,
    HOURS_KEPT_SECONDS,
    MINUTE,
    StatQuery,
    bucket_of,
)
from daybell.core.schedule import Decision, Tick
from daybell.core.views import ExecutionFilter, Retention
from daybell.errors import JobNotFound, TenantNotFound
from tests.builders import (
    TENANT,
    a_schedule,
    add_tenants,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    fired,
    put,
    retry,
    success,
)
from tests.refusals import refuses
from tests.sweeps import expire, fold_stats, retain


async def folded(store, **options):
    """Fold all that there is."""
    while await fold_stats(store, **options):
        pass


def since(clock, *, minutes=600, step=MINUTE, **subject):
    """The query of the last minutes, the present one included."""
    last = clock.now() // step * step
    return StatQuery(since=last - minutes * 60, until=last + step, step=step, **subject)


async def read(store, clock, *, tenant=TENANT, with_unfinished=False, **query):
    return await store.catalog.read_stats(
        tenant, since(clock, **query), with_unfinished=with_unfinished
    )


async def counts(store, clock, **query):
    """The counts of all steps together, without zeros."""
    rows = await read(store, clock, **query)
    found = {name: sum(one.value(name) for one in rows.tallies.values()) for name in COUNTS}
    return {name: number for name, number in found.items() if number}


async def test_what_happened_is_counted_for_all_the_queue_and_the_job(store, clock):
    await finished(store, 3)
    await dead(store, 2, job="report", queue="slow")
    await folded(store)

    of_resize = {"enqueued": 3, "started": 3, "succeeded": 3}
    of_report = {"enqueued": 2, "started": 2, "dead": 2, "failed_attempts": 2}
    everything = {name: of_resize.get(name, 0) + of_report.get(name, 0) for name in COUNTS}
    assert await counts(store, clock) == {name: n for name, n in everything.items() if n}
    assert await counts(store, clock, job="resize") == of_resize
    assert await counts(store, clock, job="report") == of_report
    assert await counts(store, clock, job="report", queue="slow") == of_report
    assert await counts(store, clock, job="report", queue="default") == {}
    assert await counts(store, clock, queue="slow") == of_report


async def test_hours_have_the_same_numbers_as_their_minutes(store, clock):
    for _ in range(3):
        await finished(store, 2)
        await folded(store)
        await clock.advance(25 * 60)
        await dead(store)
    await folded(store)

    assert await counts(store, clock, step=HOUR) == await counts(store, clock)


async def test_folding_twice_changes_nothing(store, clock):
    await finished(store, 5)
    await folded(store)
    before = await counts(store, clock)
    await folded(store)

    assert before == await counts(store, clock) == {"enqueued": 5, "started": 5, "succeeded": 5}


async def test_folding_in_small_batches_counts_the_same(store, clock):
    hands = await claimed(store, 30)
    for claim_ in hands.executions:
        await apply(store, hands, success(claim_))

    await folded(store, limit=1)

    assert (await counts(store, clock))["succeeded"] == 30


async def test_processes_that_fold_at_the_same_time_count_each_end_once(store, crowd, clock):
    for one in crowd:
        await finished(one, 20)

    await asyncio.gather(*(folded(one, limit=7) for one in crowd))

    assert (await counts(store, clock))["succeeded"] == 80


async def test_each_minute_has_what_happened_in_it(store, clock):
    await clock.advance(60 - clock.now() % 60)
    await enqueued(store)
    await clock.advance(60)
    hands = await claim(store)
    await clock.advance(60)
    await apply(store, hands, success(hands.one, ran=60.0))
    await folded(store)

    rows = await read(store, clock)
    last = int(clock.now() // 60)
    minutes = {
        at - last: {name for name, n in zip(COUNTS, tally.counts, strict=True) if n}
        for at, tally in rows.tallies.items()
    }
    assert minutes == {-2: {"enqueued"}, -1: {"started"}, 0: {"succeeded"}}
    assert rows.tallies[last - 1].delay == {bucket_of(60.0): 1}
    assert rows.tallies[last].run == {bucket_of(60.0): 1}


async def test_an_attempt_that_is_retried_counts_and_its_execution_goes_on(store, clock):
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one, delay=5.0))
    await folded(store)
    assert await counts(store, clock) == {"started": 1, "failed_attempts": 1, "retried": 1}

    await clock.advance(5)
    hands = await claim(store)
    await clock.advance(1)
    await apply(store, hands, success(hands.one))
    await folded(store)

    expected = {"started": 2, "failed_attempts": 1, "retried": 1, "enqueued": 1, "succeeded": 1}
    assert await counts(store, clock) == expected
    rows = await read(store, clock)
    delays = {bucket for tally in rows.tallies.values() for bucket in tally.delay}
    assert delays == {bucket_of(-1.0), bucket_of(0.0)}


async def test_a_start_that_comes_a_minute_after_its_time_is_late(store, clock):
    await enqueued(store, 2, delay=10.0)
    await clock.advance(75)
    hands = await claim(store)
    await clock.advance(1)
    await apply(store, hands, *(success(one, ran=1.0) for one in hands.executions))
    await folded(store)

    assert (await counts(store, clock))["late"] == 2


async def test_an_execution_that_never_started_counts_as_ended(store, clock):
    cancelled, expiring = await enqueued(store), await enqueued(store, expires_in=5.0)
    await store.queue.cancel(TENANT, cancelled)
    await clock.advance(10)
    assert await expire(store) == len(expiring)
    await folded(store)

    assert await counts(store, clock) == {"enqueued": 2, "cancelled": 1, "skipped": 1}


async def test_what_an_overlap_rule_skips_is_counted(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap="skip")
    await fired(store, schedule)
    await clock.advance(60)
    await fired(store, schedule)
    await folded(store)

    assert await counts(store, clock) == {"enqueued": 1, "skipped": 1}


async def test_an_attempt_that_is_given_back_is_no_failure(store, clock):
    hands = await claimed(store)
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    await folded(store)

    assert await counts(store, clock) == {}


@pytest.mark.parametrize("is_folded_between", [True, False])
async def test_a_dead_letter_that_is_revived_has_ended_twice(store, clock, is_folded_between):
    ids = await dead(store, 2)
    if is_folded_between:
        await folded(store)
    assert await store.queue.revive(TENANT, ids) == [Revival.REVIVED] * 2
    hands = await claim(store)
    await apply(store, hands, *map(success, hands.executions))
    await folded(store)

    assert await counts(store, clock) == {
        "enqueued": 4, "started": 4, "dead": 2, "failed_attempts": 2, "succeeded": 2,
    }  # fmt: skip


@pytest.mark.parametrize("is_folded_between", [True, False])
async def test_a_dead_letter_that_is_discarded_has_ended_once(store, clock, is_folded_between):
    ids = await dead(store)
    if is_folded_between:
        await folded(store)
    await store.queue.discard(TENANT, ids)
    await folded(store)

    assert await counts(store, clock) == {
        "enqueued": 1, "started": 1, "dead": 1, "failed_attempts": 1,
    }  # fmt: skip


async def test_ends_under_a_clock_that_is_set_back_are_counted(store, clock):
    await finished(store, 2)
    await folded(store)
    await clock.advance(-3600)
    await finished(store, 3)
    await folded(store)
    await clock.advance(3600)

    assert (await counts(store, clock))["succeeded"] == 5


async def test_unfinished_executions_are_counted_by_the_time_of_their_creation(store, clock):
    await clock.advance(60 - clock.now() % 60)
    await enqueued(store, 2)
    await enqueued(store, job="report", queue="slow")
    await clock.advance(60)
    await enqueued(store, delay=3600.0)
    await claim(store, 1)

    last = int(clock.now() // 60)
    found = [
        await read(store, clock, with_unfinished=True, **subject)
        for subject in (
            {},
            {"job": "resize"},
            {"queue": "slow"},
            {"job": "resize", "queue": "slow"},
        )
    ]
    assert [rows.unfinished for rows in found] == [
        {last - 1: 3, last: 1}, {last - 1: 2, last: 1}, {last - 1: 1}, {},
    ]  # fmt: skip
    assert all(rows.is_complete for rows in found)
    assert (await read(store, clock)).unfinished == {}


async def test_enqueued_is_the_number_of_executions_that_there_are(store, clock):
    await finished(store, 3)
    await dead(store)
    await enqueued(store, 4)
    await folded(store)

    rows = await read(store, clock, with_unfinished=True)
    ended = (await counts(store, clock))["enqueued"]
    there_are = await store.catalog.count_executions(TENANT, ExecutionFilter())
    assert ended + sum(rows.unfinished.values()) == there_are.total == 8


async def test_tenants_have_their_own_numbers(store, clock):
    await add_tenants(store, ["acme"])
    await finished(store)
    await finished(store, 2, tenant="acme")
    await folded(store)

    assert (await counts(store, clock))["succeeded"] == 1
    assert (await counts(store, clock, tenant="acme"))["succeeded"] == 2


async def test_an_unknown_job_and_an_unknown_tenant_are_refused(store, clock):
    with refuses(JobNotFound):
        await read(store, clock, job="nobody")
    with refuses(TenantNotFound):
        await read(store, clock, tenant="acme")


async def test_a_job_that_was_deleted_keeps_its_numbers(store, clock):
    await finished(store)
    await store.catalog.delete_job(TENANT, "resize")
    await folded(store)

    assert (await counts(store, clock, job="resize"))["succeeded"] == 1


async def test_minutes_are_kept_for_two_days_and_hours_for_ninety(store, clock):
    await finished(store)
    await folded(store)
    await clock.advance(2 * 86400 + 120)
    await retain(store, Retention())

    assert await counts(store, clock, minutes=3 * 1440) == {}
    assert (await counts(store, clock, minutes=3 * 1440, step=HOUR))["succeeded"] == 1

    await clock.advance(HOURS_KEPT_SECONDS)
    await retain(store, Retention())
    assert await counts(store, clock, minutes=100 * 1440, step=HOUR) == {}


async def test_statistics_outlive_the_executions(store, clock):
    await finished(store, 4)
    await folded(store)
    await clock.advance(40 * 86400)
    while not (await retain(store, Retention())).is_complete:
        pass
    await folded(store)

    there_are = await store.catalog.count_executions(TENANT, ExecutionFilter())
    assert there_are.total == 0
    assert (await counts(store, clock, minutes=41 * 1440, step=HOUR))["succeeded"] == 4


async def test_all_ends_of_a_mix_agree_with_what_the_views_count(store, clock):
    await defined(store, "resize")
    for number in range(6):
        hands = await claimed(store, 5)
        one, two, three, four, _ = hands.executions
        await apply(store, hands, success(one), death(two), retry(three, delay=2.0), success(four))
        await store.queue.cancel(TENANT, await enqueued(store, number))
        await clock.advance(7)
        again = await claim(store)
        await apply(store, again, *map(success, again.executions))
        if number % 2:
            await folded(store)
    await folded(store)

    there_are = await store.catalog.count_executions(TENANT, ExecutionFilter())
    found = await counts(store, clock)
    for state in (State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED):
        assert found.get(state.value, 0) == there_are.of(state)


async def test_a_batch_of_successes_with_a_stale_one_is_counted_once(store, clock):
    hands = await claimed(store, 5)
    first, *rest = (success(one) for one in hands.executions)
    await apply(store, hands, first)
    moves = [first, *rest, rest[0]]
    for _ in range(3):  # the answer was lost
        await apply(store, hands, *moves)
    await folded(store)

    assert (await counts(store, clock))["succeeded"] == 5


async def test_ends_of_claims_that_another_process_made_are_counted(store, crowd, clock):
    hands = await claimed(crowd[0], 3)
    moves = [success(one) for one in hands.executions]
    await apply(crowd[1], hands, *moves)
    await apply(crowd[0], hands, *moves)
    await folded(store)

    assert await counts(store, clock) == {"enqueued": 3, "started": 3, "succeeded": 3}


async def test_running_executions_that_are_cancelled_as_their_worker_leaves_are_counted(
    store, clock
):
    hands = await claimed(store, 3)
    await store.queue.cancel(TENANT, [one.id for one in hands.executions[:2]])
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    await folded(store)

    assert (await counts(store, clock))["cancelled"] == 2


async def test_totals_are_of_queues_and_of_the_busiest_jobs(store, clock):
    for number, job in enumerate(("small", "large", "middle")):
        await finished(store, (1, 3, 2)[number], job=job)
    await dead(store, job="small", queue="slow")
    await defined(store, "ping", kind="http", settings='{"url":"http://localhost/"}')
    await enqueued(store, job="ping")
    hands = await claim(store, kinds=("http",))
    await apply(store, hands, success(hands.one))
    await folded(store)
    await clock.advance(100 * 86400)
    await retain(store, Retention())

    found = await store.catalog.read_totals(TENANT, jobs=2)

    assert {(one.job, one.queue, one.kind, one.tally.value("started")) for one in found} == {
        (None, "default", "task", 6), (None, "default", "http", 1), (None, "slow", "task", 1),
        ("large", "default", "task", 3), ("middle", "default", "task", 2),
    }  # fmt: skip


async def test_missed_times_of_a_schedule_are_counted_for_its_job_in_no_queue(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    missed = Tick(at=clock.now(), until=clock.now() + 120, count=3, decision=Decision.MISSED)
    await fired(store, schedule, missed, next_at=clock.now() + 180)
    await finished(store)
    await folded(store)
    await folded(store)

    expected = {"enqueued": 1, "started": 1, "succeeded": 1, "missed": 3}
    assert await counts(store, clock) == await counts(store, clock, job="resize") == expected
    assert "missed" not in await counts(store, clock, queue="default")
    assert (await counts(store, clock, step=3600))["missed"] == 3


async def test_a_database_tells_its_size(store):
    figures = await store.figures()

    assert figures["bytes"] > 0
    assert {name.partition(":")[0] for name in figures} <= {
        "bytes", "wal_bytes", "log_bytes", "missing_partitions", "oldest_transaction_seconds",
        "dead_tuples",
    }  # fmt: skip

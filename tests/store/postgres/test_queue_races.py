"""Two at the same row: who waits, who wins, and what the other one hears."""

import asyncio

import asyncpg
import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling, after_loss
from daybell.errors import LeaseLost, UsageError
from tests.builders import (
    TENANT,
    a_firing,
    a_schedule,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    enqueued,
    look,
    registered,
    retry,
    states,
    success,
    tenant_names,
)
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import enqueue
from tests.store.postgres.steps import Stop, settle, warmed
from tests.sweeps import set_gates

OTHER = "acme"


async def stopped(store, operation, *, after=1):
    """Start an operation and let it stand still after a statement, its transaction open."""
    stop = store.pace.stop = Stop(after)
    task = asyncio.create_task(operation)
    await stop.arrival()
    return task, stop.resumed.set


async def reap(store):
    """What a reaper does; its verdicts."""
    verdicts = []
    for lost in (await store.queue.lost()).executions:
        move = after_loss(lost.claimed, max_crashes=lost.max_crashes, retry=lost.retry)
        verdicts += await store.queue.apply(
            TENANT, worker=lost.worker, transitions=[move], wait=False
        )
    return verdicts


@pytest.mark.parametrize("others", [0, 2], ids=["idle", "busy"])
async def test_what_was_committed_late_starts_before_younger_work(store, clock, another, others):
    worker = await registered(store)
    await defined(store)
    await claim(store, worker=worker)
    late = another.transaction()
    await late.start()
    old = await enqueue(another)
    for _ in range(2):
        await clock.advance(0.3)
        await enqueued(store, others)
        assert len((await claim(store, worker=worker)).executions) == others
    young = await enqueued(store)

    await late.commit()
    started = [(await claim(store, 1, worker=worker)).executions[0].id for _ in range(2)]

    assert started == [old, *young]


async def test_a_late_commit_is_noticed_that_no_snapshot_lists(store, clock, another, sql):
    # A snapshot lists open transactions only up to the latest that has ended.
    worker = await registered(store)
    await defined(store)
    await claim(store, worker=worker)
    setting, late = sql.transaction(), another.transaction()
    await setting.start()
    await sql.execute("UPDATE daybell_test.clock SET now = now + 0.3")
    await late.start()
    old = await enqueue(another)
    await setting.commit()
    assert (await claim(store, worker=worker)).executions == []
    young = await enqueued(store)

    await late.commit()
    started = [(await claim(store, 1, worker=worker)).executions[0].id for _ in range(2)]

    assert started == [old, *young]


async def test_an_open_transaction_does_not_make_claims_read_everything(store, clock, another, sql):
    worker = await registered(store)
    await defined(store)
    await claim(store, worker=worker)
    async with another.transaction():
        await enqueue(another)
        for _ in range(3):
            await clock.advance(0.1)
            await claimed(store, worker=worker)
        await enqueued(store)
        await sql.execute("UPDATE daybell.agenda SET run_at = run_at - 1")  # as no operation does

        assert (await claim(store, worker=worker)).executions == []


async def test_a_reaper_leaves_a_worker_alone_whose_renewal_is_under_way(slow, store, clock, sql):
    hands = await claimed(store)
    await clock.advance(61.0)
    await slow.catalog.list_workers(TENANT)
    renewing, resume = await stopped(
        slow, slow.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    )

    assert (await store.queue.lost()).executions == []  # it does not even wait
    resume()

    assert (await renewing).lease_until == clock.now() + 60
    assert (await store.queue.lost()).executions == []
    assert await apply(store, hands, success(hands.one)) == []


async def test_a_renewal_that_waits_for_a_reaper_hears_that_it_is_dead(
    slow, quick, store, clock, sql
):
    hands = await claimed(store)
    await clock.advance(61.0)
    reaping, resume = await stopped(slow, slow.queue.lost(), after=3)  # up to the burial

    renewing = asyncio.create_task(
        quick.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    )
    assert await settle(sql, renewing, quick.pace.processes), "it should wait for the reaper"
    resume()

    assert [lost.claimed.id for lost in (await reaping).executions] == [hands.one.id]
    with pytest.raises(LeaseLost):
        await renewing


async def test_a_claim_steps_over_what_another_is_taking(slow, quick, store, sql):
    ids = await enqueued(store, 4)
    workers = [await registered(store) for _ in range(2)]
    for each in (slow, quick):
        await warmed(each)
    first, resume = await stopped(slow, claim(slow, 2, worker=workers[0]))

    second = asyncio.create_task(claim(quick, 2, worker=workers[1]))
    assert not await settle(sql, second, quick.pace.processes), "it should not wait"
    resume()

    taken = [one.id for hands in (await first, await second) for one in hands.executions]
    assert taken == ids
    assert await violations(sql) == []


async def test_what_a_worker_claims_while_it_is_declared_dead_comes_back(slow, store, clock, sql):
    (id,) = await enqueued(store)
    worker = await registered(store)
    await warmed(slow)
    await clock.advance(61.0)
    claiming, resume = await stopped(
        slow,
        slow.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=1),
    )

    assert await reap(store) == []
    resume()
    assert [one.id for one in (await claiming).executions] == [id]
    with pytest.raises(LeaseLost):
        await slow.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=1)
    assert await reap(store) == []

    execution = await look(store, id)
    assert (execution.state, execution.attempt, execution.crashes) == (State.QUEUED, 2, 1)
    assert await violations(sql) == []


async def test_a_frozen_client_keeps_only_its_own_row_from_being_reaped(store, clock, place, sql):
    hands = await claimed(store, 3)
    frozen, *others = [one.id for one in hands.executions]
    await clock.advance(61.0)
    client = await asyncpg.connect(place.url)
    transaction = client.transaction()
    await transaction.start()
    await client.execute("SELECT FROM daybell.live WHERE id = $1 FOR UPDATE", frozen)

    lost = (await store.queue.lost()).executions
    moves = [after_loss(one.claimed, max_crashes=9) for one in lost]
    verdicts = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)

    assert [(verdict.id, verdict.ruling) for verdict in verdicts] == [(frozen, Ruling.BUSY)]
    assert await states(store, others) == [State.QUEUED] * 2
    await transaction.rollback()
    assert await reap(store) == []
    assert (await look(store, frozen)).state is State.QUEUED
    assert await violations(sql) == []
    await client.close()


async def test_a_frozen_client_at_a_gate_keeps_only_that_gate_from_being_reaped(
    store, clock, place, sql
):
    await set_gates(store, TENANT, {"frozen": 1, "free": 1})
    await defined(store)
    new = [an_execution(gate=gate) for gate in ("frozen", "free")]
    await store.queue.enqueue(TENANT, new)
    hands = await claim(store)
    await clock.advance(61.0)
    client = await asyncpg.connect(place.url)
    transaction = client.transaction()
    await transaction.start()
    await client.execute("SELECT FROM daybell.gate WHERE key = 'frozen' FOR UPDATE")

    moves = [
        after_loss(one.claimed, max_crashes=1) for one in (await store.queue.lost()).executions
    ]
    verdicts = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)

    assert [(verdict.id, verdict.ruling) for verdict in verdicts] == [(new[0].id, Ruling.BUSY)]
    assert (await look(store, new[1].id)).state is State.DEAD
    await transaction.rollback()
    await client.close()
    assert await violations(sql) == []


async def test_two_reapers_at_once_charge_each_loss_once(slow, quick, store, clock, sql):
    hands = await claimed(store, 3)
    await clock.advance(61.0)
    await tenant_names(slow)
    first, resume = await stopped(slow, reap(slow), after=6)

    second = asyncio.create_task(reap(quick))
    await settle(sql, second, quick.pace.processes)
    resume()
    await asyncio.gather(first, second)
    await reap(store)

    for one in hands.executions:
        execution = await look(store, one.id)
        assert (execution.state, execution.attempt, execution.crashes) == (State.QUEUED, 2, 1)
    assert await violations(sql) == []


async def test_a_tick_is_fired_once_by_three_schedulers(store, place, clock, sql):
    jobs = [f"job-{n}" for n in range(10)]
    await defined(store, *jobs)
    schedules = [a_schedule(job, next_at=clock.now() - n) for n, job in enumerate(jobs)]
    await store.schedules.put_schedules(TENANT, schedules)
    schedulers = [place.connect() for _ in range(3)]
    for scheduler in schedulers:
        await scheduler.open()

    firings = [a_firing(schedule) for schedule in schedules]
    answers = await asyncio.gather(*[scheduler.schedules.fire(firings) for scheduler in schedulers])

    assert [sum(each) for each in zip(*answers, strict=True)] == [1] * 10
    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 10
    assert [schedule.fired for schedule in await store.schedules.list_schedules(TENANT)] == [1] * 10
    assert await violations(sql) == []
    for scheduler in schedulers:
        await scheduler.close()


async def test_schedulers_that_fire_in_opposite_orders_do_not_stop_each_other(
    store, another_store, clock, sql
):
    jobs = [f"job-{n}" for n in range(8)]
    await defined(store, *jobs)
    for _ in range(10):
        schedules = [a_schedule(job, next_at=clock.now()) for job in jobs]
        await store.schedules.put_schedules(TENANT, schedules)

        answers = await asyncio.gather(
            store.schedules.fire([a_firing(schedule) for schedule in schedules]),
            another_store.schedules.fire([a_firing(schedule) for schedule in reversed(schedules)]),
        )

        assert sorted([*answers[0], *answers[1]]) == [False] * 8 + [True] * 8
    assert await violations(sql) == []


async def test_a_scheduler_that_froze_before_its_commit_delays_only_that_tick(
    slow, store, clock, sql
):
    # Ticks of jobs with an expiry take several statements, the others one.
    await defined(store, "frozen", "free", expires=600.0)
    frozen, twin, free = (
        a_schedule(job, next_at=clock.now()) for job in ("frozen", "frozen", "free")
    )
    await store.schedules.put_schedules(TENANT, [frozen, twin, free])
    await slow.schedules.due_schedules()
    firing, resume = await stopped(slow, slow.schedules.fire([a_firing(frozen)]), after=3)

    # Neither waits for the scheduler that has the job's gate locked.
    assert await store.schedules.fire([a_firing(twin), a_firing(free)]) == [False, True]
    assert len((await store.schedules.due_schedules()).schedules) <= 2
    resume()

    assert await firing == [True]
    assert await violations(sql) == []


async def test_the_same_key_in_two_tenants_is_two_keys(store, sql):
    await add_tenants(store, [OTHER])
    for tenant in (TENANT, OTHER):
        await defined(store, tenant=tenant)

    answers = [
        (await store.queue.enqueue(tenant, [an_execution(unique_key="k")]))[0]
        for tenant in (TENANT, OTHER, TENANT, OTHER)
    ]

    assert [answer.created for answer in answers] == [True, True, False, False]
    assert answers[2].id == answers[0].id
    assert answers[3].id == answers[1].id


async def test_a_key_asked_for_while_its_holder_is_created_names_the_holder(
    slow, quick, store, sql
):
    await defined(store)
    for each in (slow, quick):
        await each.queue.enqueue(TENANT, [an_execution(retries=1)])
    holder, late = an_execution(unique_key="k"), an_execution(unique_key="k")
    first, resume = await stopped(slow, slow.queue.enqueue(TENANT, [holder]))

    second = asyncio.create_task(quick.queue.enqueue(TENANT, [late]))
    assert await settle(sql, second, quick.pace.processes), "it should wait for the holder"
    resume()

    assert [(answer.id, answer.created) for answer in await first] == [(holder.id, True)]
    assert [(answer.id, answer.created) for answer in await second] == [(holder.id, False)]


async def test_a_finish_that_meets_a_cancel_under_way_ends_as_cancelled(slow, quick, store, sql):
    hands = await claimed(store, 2)
    ids = [one.id for one in hands.executions]
    await slow.queue.cancel(TENANT, [mint()])
    cancelling, resume = await stopped(slow, slow.queue.cancel(TENANT, ids[:1]), after=2)

    finishing = asyncio.create_task(
        apply(quick, hands, *[success(one) for one in hands.executions])
    )
    assert await settle(sql, finishing, quick.pace.processes), "it should wait for the cancel"
    resume()

    assert await cancelling == ["requested"]
    assert [(verdict.id, verdict.ruling) for verdict in await finishing] == [
        (ids[0], Ruling.CANCELLED)
    ]
    assert await states(store, ids) == [State.CANCELLED, State.SUCCEEDED]
    assert await violations(sql) == []


async def test_an_old_attempt_cannot_end_what_has_come_back_to_the_same_worker(store, clock, sql):
    worker = await registered(store)
    first = await claimed(store, worker=worker)
    await apply(store, first, retry(first.one, delay=0.0))
    second = await claim(store, worker=worker)

    (verdict,) = await apply(store, first, success(first.one))

    assert verdict.ruling is Ruling.STALE
    assert (second.one.attempt, (await look(store, second.one.id)).state) == (2, State.RUNNING)
    assert await violations(sql) == []


async def test_an_old_attempt_cannot_end_what_waits_to_be_claimed_again(store, sql):
    hands = await claimed(store, 2)
    await apply(store, hands, retry(hands.executions[0], delay=0.0))

    (verdict,) = await apply(store, hands, success(hands.executions[0]))

    assert verdict.ruling is Ruling.STALE
    assert await violations(sql) == []


POISON = {
    "a raw NUL": {"args": '"\0"'},
    "half a pair": {"args": '"\ud800"'},
    "a key with NUL": {"unique_key": "a\0b"},
    "retries beyond counting": {"retries": 2**40},
    "a delay without end": {"delay": float("inf")},
    "a time that is no number": {"at": float("nan")},
    "a timeout below zero": {"timeout": -1.0},
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
async def test_one_bad_row_keeps_the_whole_enqueue_out_and_is_named(store, sql, poison):
    await defined(store)
    new = [an_execution(), an_execution(**poison), an_execution()]

    with pytest.raises(UsageError, match=r"executions\[1\]"):
        await store.queue.enqueue(TENANT, new)

    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 0


async def test_a_row_poisoned_in_the_database_itself_hurts_nobody_else(store, sql):
    bad, good = await enqueued(store, 2)
    await sql.execute("UPDATE daybell.live SET args = 'no json', note = 'x' WHERE id = $1", bad)

    hands = await claim(store)
    verdicts = await apply(store, hands, *[success(one) for one in hands.executions])

    assert verdicts == []
    assert await states(store, [bad, good]) == [State.SUCCEEDED] * 2

"""Overlap: what becomes of an execution while one before it has not finished."""

import pytest

from daybell.core.execution import Revival, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_release
from daybell.core.schedule import Overlap, backfill_gate, gate_of
from daybell.core.views import ExecutionFilter
from daybell.errors import UsageError
from tests.builders import (
    TENANT,
    a_job,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    count,
    dead,
    death,
    defined,
    enqueued,
    look,
    retry,
    states,
    success,
)
from tests.store.overlaps import RULES, ended, refused
from tests.sweeps import admit, expire, set_gates

QUEUED, WAITING = State.QUEUED, State.WAITING
SKIPPED = State.SKIPPED


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
    await store.queue.cancel(TENANT, [id])


async def let_expire(store, clock):
    await enqueued(store, expires_in=5.0)
    await clock.advance(6)
    assert await expire(store) == 1


async def succeed(store, clock):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))


async def die(store, clock):
    hands = await claimed(store)
    await apply(store, hands, death(hands.one))


async def stop(store, clock):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    await refused(store)
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])


ENDS = [cancel, let_expire, succeed, die, stop]


@pytest.mark.parametrize("end", ENDS)
async def test_after_any_end_the_next_one_gets_in(store, clock, end):
    await defined(store, overlap=Overlap.SKIP)
    await end(store, clock)

    (second,) = await enqueued(store)

    assert await states(store, [second]) == [QUEUED]
    await refused(store)


@pytest.mark.parametrize("rule", RULES)
async def test_an_execution_is_never_in_its_own_way(store, rule):
    await defined(store, overlap=rule)
    new = an_execution()
    await store.queue.enqueue(TENANT, [new])

    (again,) = await store.queue.enqueue(TENANT, [new], repeat=True)

    assert (again.id, again.created) == (new.id, True)
    assert await states(store, [new.id]) == [QUEUED]
    hands = await claim(store)
    await ended(store, hands)
    await store.queue.enqueue(TENANT, [new], repeat=True)
    assert await states(store, [new.id]) == [State.SUCCEEDED]
    (second,) = await enqueued(store)
    assert await states(store, [second]) == [QUEUED]


async def test_an_end_that_was_repeated_with_another_at_work_disturbs_nobody(store):
    await defined(store, overlap=Overlap.REPLACE)
    new = an_execution()
    await store.queue.enqueue(TENANT, [new])
    await ended(store, await claim(store))
    hands = await claimed(store)

    (again,) = await store.queue.enqueue(TENANT, [new], repeat=True)

    assert again.created
    assert (await look(store, hands.one.id)).cancel_requested_at is None


async def test_a_skipped_one_that_is_asked_for_again_stays_skipped(store):
    await defined(store, overlap=Overlap.SKIP)
    hands = await claimed(store)
    new = an_execution(schedule=mint())
    await store.queue.enqueue(TENANT, [new])
    await ended(store, hands)

    (again,) = await store.queue.enqueue(TENANT, [new], repeat=True)

    assert again.created
    assert await states(store, [new.id]) == [SKIPPED]
    assert (await claim(store)).executions == []


@pytest.mark.parametrize("rule", RULES)
async def test_a_key_that_is_held_is_answered_with_its_holder(store, rule):
    await defined(store, overlap=rule)
    (first,) = await enqueued(store, unique_key="k")

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (answer.id, answer.created) == (first, False)
    assert await states(store, [first]) == [QUEUED]
    await ended(store, await claim(store))
    (second,) = await enqueued(store)
    assert await states(store, [second]) == [QUEUED]


@pytest.mark.parametrize("rule", RULES)
async def test_a_delayed_one_is_not_asked_before_its_time(store, clock, rule):
    await defined(store, overlap=rule)
    hands = await claimed(store)

    (delayed,) = await enqueued(store, delay=10.0)

    seen = await look(store, delayed)
    assert (seen.state, seen.reason) == (WAITING, "overlap")
    assert (await look(store, hands.one.id)).cancel_requested_at is None
    await clock.advance(10)
    assert await admit(store) == 0
    await ended(store, hands)
    assert await states(store, [delayed]) == [QUEUED]


async def test_a_delayed_one_is_in_the_way_only_when_it_is_due(store, clock):
    await defined(store, overlap=Overlap.SKIP)
    (delayed,) = await enqueued(store, delay=10.0)
    await ended(store, await claimed(store))

    await clock.advance(10)

    assert (await refused(store)).execution == delayed
    assert await admit(store) == 1
    assert (await claim(store)).one.id == delayed


async def test_a_batch_is_asked_in_its_order(store):
    await defined(store, overlap=Overlap.QUEUE)
    news = [an_execution(schedule=mint()) for _ in range(4)]

    answers = await store.queue.enqueue(TENANT, news)

    assert [answer.skipped for answer in answers] == [False, False, True, True]
    assert await states(store, [new.id for new in news]) == [QUEUED, WAITING, SKIPPED, SKIPPED]


async def test_a_batch_with_a_key_in_it_counts_each_slot_once(store):
    await defined(store, "a", "b", overlap=Overlap.SKIP)
    for _ in range(2):
        await store.queue.enqueue(TENANT, [an_execution("a"), an_execution("b", unique_key="k")])
        hands = await claim(store)

        await apply(store, hands, *(success(one) for one in hands.executions))

    assert await store.catalog.count_executions(TENANT, ExecutionFilter()) == {State.SUCCEEDED: 4}


async def test_jobs_are_not_in_each_others_way(store):
    await defined(store, "a", "b", overlap=Overlap.SKIP)

    answers = await store.queue.enqueue(TENANT, [an_execution("a"), an_execution("b")])

    assert await states(store, [answer.id for answer in answers]) == [QUEUED, QUEUED]


async def test_tenants_are_not_in_each_others_way(store):
    await add_tenants(store, ["acme"])
    for tenant in (TENANT, "acme"):
        await defined(store, tenant=tenant, overlap=Overlap.SKIP)
        await enqueued(store, tenant=tenant)

    await refused(store)


async def test_one_that_names_a_gate_passes_that_one_instead(store):
    gate = backfill_gate(mint())
    await set_gates(store, TENANT, {gate: 2})
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

    await store.catalog.define_jobs(TENANT, [a_job(overlap=Overlap.ALLOW)])
    assert await states(store, await enqueued(store, 2)) == [QUEUED, QUEUED]


async def test_a_dead_one_that_is_revived_waits_for_those_who_came_after(store):
    await defined(store, overlap=Overlap.SKIP)
    (first,) = await dead(store)
    hands = await claimed(store)

    assert await store.queue.revive(TENANT, [first]) == [Revival.REVIVED]

    seen = await look(store, first)
    assert (seen.state, seen.reason) == (WAITING, "overlap")
    await ended(store, hands)
    assert (await claim(store)).one.id == first


@pytest.mark.parametrize("rule", RULES)
async def test_load_takes_no_job_with_a_rule(store, rule):
    await defined(store, "minds", overlap=rule)
    await defined(store, "free")

    with pytest.raises(UsageError, match=r"executions\[1\].*minds"):
        await store.queue.load(TENANT, [an_execution("free"), an_execution("minds")])

    assert await count(store) == 0

"""What a job needs of a worker: only who offers that is given its executions, wherever they come
from and however often they come back.
"""

import pytest

from daybell.core.execution import Priority
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    an_execution,
    apply,
    claim,
    death,
    defined,
    enqueued,
    retry,
)
from tests.sweeps import set_gates

OTHERS = ("task", "sql", "sql:other", "sql:pg2", "sql:", "http")
PG = '{"connection": "pg", "statement": "SELECT 1"}'
LITE = '{"connection": "lite", "statement": "SELECT 1"}'


async def only_for(store, needs):
    """Claim for each who offers something else, in vain, and then for who offers this."""
    for other in (*(one for one in OTHERS if one != needs), OTHERS):
        kinds = [other] if isinstance(other, str) else [one for one in other if one != needs]
        assert (await claim(store, kinds=kinds)).executions == []
    assert (await claim(store, kinds=OTHERS[:2])).next_due is None
    return await claim(store, kinds=["task", needs, "http"])


async def enqueue(store, clock):
    await enqueued(store)


async def enqueue_with_a_gate(store, clock):
    await set_gates(store, TENANT, {"narrow": 1})
    await enqueued(store, gate="narrow")


async def load(store, clock):
    await store.queue.load(TENANT, [an_execution()])


async def fire(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await store.schedules.put_schedules(TENANT, [schedule])
    assert await store.schedules.fire([a_firing(schedule)]) == [True]


async def launch(store, clock):
    job = a_job(kind="sql", settings=PG, timeout=5.0)
    await store.catalog.launch(TENANT, job, an_execution())


@pytest.mark.parametrize("way", [enqueue, enqueue_with_a_gate, load, fire, launch])
async def test_an_execution_waits_for_a_worker_that_offers_what_it_needs(store, clock, way):
    await defined(store, kind="sql", settings=PG)

    await way(store, clock)

    hands = await only_for(store, "sql:pg")
    assert (hands.one.kind, hands.one.job) == ("sql:pg", "resize")


async def test_one_that_comes_back_waits_for_the_same(store, clock):
    await defined(store, kind="sql", settings=PG)
    await enqueued(store)

    hands = await only_for(store, "sql:pg")
    await apply(store, hands, retry(hands.one, delay=1.0))
    await clock.advance(2)
    hands = await only_for(store, "sql:pg")
    await clock.advance(61)
    (lost,) = (await store.queue.lost()).executions
    await apply(store, hands, after_loss(lost.claimed, max_crashes=3))
    hands = await only_for(store, "sql:pg")
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    hands = await only_for(store, "sql:pg")
    await apply(store, hands, death(hands.one))
    await store.queue.revive(TENANT, [hands.one.id])
    hands = await only_for(store, "sql:pg")

    assert (hands.one.kind, hands.one.attempt) == ("sql:pg", 5)


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ({"kind": "sql", "settings": PG}, {"kind": "sql", "settings": LITE}, "sql:pg", "sql:lite"),
        ({}, {"kind": "sql", "settings": PG}, "task", "sql:pg"),
        ({"kind": "http"}, {}, "http", "task"),
    ],
)
async def test_of_a_job_that_changes_its_needs_old_executions_stay_where_they_are(
    store, before, after, old, new
):
    await defined(store, **before)
    (first,) = await enqueued(store)
    await defined(store, **after)
    (second,) = await enqueued(store)

    assert (await claim(store, kinds=[new])).one.id == second
    hands = await claim(store, kinds=[old])
    assert (hands.one.id, hands.one.version, hands.one.kind) == (first, 1, old)


async def test_who_begins_to_offer_something_is_given_what_waits_for_it(store):
    await defined(store, kind="sql", settings=PG)
    worker = (await claim(store)).worker
    (id,) = await enqueued(store)

    answer = await store.queue.claim(
        TENANT,
        worker=worker,
        lease=mint(),
        queues=["other", "default"],
        limit=9,
        kinds=["task", "sql:pg"],
    )

    assert [one.id for one in answer.executions] == [id]


async def test_a_lane_that_somebody_else_has_just_made_is_found_by_the_next_claim(crowd):
    kinds = ["task", "http", "sql:pg", "sql:lite"]
    here, there = crowd[0], crowd[1]
    worker = (await claim(here, kinds=kinds)).worker
    for number, settings in enumerate((PG, LITE)):
        await defined(there, f"j{number}", kind="sql", settings=settings)
        (id,) = await enqueued(there, job=f"j{number}")
        assert (await claim(here, worker=worker, kinds=kinds)).one.id == id


async def test_what_is_urgent_in_a_lane_that_somebody_else_has_just_made_comes_first(crowd):
    kinds = ["task", "http"]
    here, there = crowd[0], crowd[1]
    await enqueued(here, 3)
    worker = (await claim(here, 1, kinds=kinds)).worker
    await defined(there, "call", kind="http")
    (id,) = await enqueued(there, job="call", priority=Priority.CRITICAL)

    assert (await claim(here, 1, worker=worker, kinds=kinds)).one.id == id

"""Days: made ahead, missing, made late, and dropped whole, while finishing goes on."""

import asyncio

import asyncpg
import pytest

from daybell.core.execution import State
from daybell.core.views import Retention
from daybell.errors import ExecutionNotFound
from daybell.store.postgres.names import KEPT
from tests.builders import TENANT, apply, claimed, dead, finished, look, retry, states, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import settle, stepped_store
from tests.sweeps import retain

DAY = 86400.0
WEEK = Retention(finished=7 * DAY, ticks=7 * DAY, workers=DAY)


async def days(sql, parent="history"):
    """The parts of a table, without the one for the rest."""
    rows = await sql.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::regclass",
        f"daybell.{parent}",
    )
    return sorted(row["name"] for row in rows if not row["name"].endswith("_rest"))


async def rest(sql, parent="history"):
    return await sql.fetchval(f"SELECT count(*) FROM daybell.{parent}_rest")


async def test_a_day_without_a_partition_does_not_stop_anybody_from_finishing(store, clock, sql):
    await clock.advance(30 * DAY)

    ids = await finished(store, 3)
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one))

    assert await states(store, ids) == [State.SUCCEEDED] * 3
    assert (await rest(sql), await rest(sql, "attempt")) == (3, 1)


async def test_days_made_late_take_over_what_was_put_aside(store, clock, sql):
    await clock.advance(30 * DAY)
    ids = await finished(store, 3)
    hands = await claimed(store)
    await apply(store, hands, retry(hands.one))

    await retain(store, WEEK)

    assert (await rest(sql), await rest(sql, "attempt")) == (0, 0)
    assert await states(store, ids) == [State.SUCCEEDED] * 3
    detail = await store.catalog.get_execution(TENANT, hands.one.id)
    assert [attempt.attempt for attempt in detail.attempts] == [1]
    assert await violations(sql) == []


async def test_days_are_made_ahead_and_once(store, clock, sql):
    await clock.advance(30 * DAY)
    before = await days(sql)

    await retain(store, Retention(finished=300 * DAY))
    after = await days(sql)
    await retain(store, Retention(finished=300 * DAY))

    assert len(after) == len(before) + 4  # today and three more
    assert await days(sql) == after
    assert len(await days(sql, "attempt")) == len(after)


async def test_whole_days_are_dropped_and_younger_ones_are_not(store, clock, sql):
    old = await finished(store)
    await clock.advance(6 * DAY)
    await retain(store, WEEK)
    young = await finished(store)
    assert (await look(store, old[0])).state is State.SUCCEEDED

    await clock.advance(3 * DAY)
    removed = await retain(store, WEEK)

    assert removed.partitions > 0
    assert removed.is_complete
    with pytest.raises(ExecutionNotFound):
        await look(store, old[0])
    assert (await look(store, young[0])).state is State.SUCCEEDED


async def test_a_dead_letter_outlives_its_day_until_it_is_discarded(store, clock):
    ids = await dead(store, 2)
    await clock.advance(20 * DAY)
    await retain(store, WEEK)
    assert await states(store, ids) == [State.DEAD] * 2

    await store.queue.discard(TENANT, ids[:1])
    await retain(store, WEEK)
    # When it is kept from is not promised, but that it goes, and the other stays, is.
    await clock.advance(20 * DAY)
    await retain(store, WEEK)

    with pytest.raises(ExecutionNotFound):
        await look(store, ids[0])
    assert (await look(store, ids[1])).state is State.DEAD


async def test_a_finish_that_meets_a_day_just_made_is_made(stepped, store, clock, place, sql):
    hands = await claimed(store, 3)
    first, second, third = hands.executions
    await clock.advance(30 * DAY)
    await apply(stepped, hands, success(first))  # into the rest, for want of a day
    maker = await asyncpg.connect(place.url)
    transaction = maker.transaction()
    await transaction.start()
    await maker.execute("SELECT daybell.make_days(1)")

    finishing = asyncio.create_task(apply(stepped, hands, success(second), retry(third)))
    assert await settle(sql, finishing, stepped.pace.processes), "it should wait for the new day"
    await transaction.commit()

    assert await finishing == []
    assert (await look(store, second.id)).state is State.SUCCEEDED
    assert (await look(store, third.id)).state is State.RETRYING
    assert await violations(sql) == []
    await maker.close()


async def test_a_day_is_made_while_a_finish_for_it_is_under_way(store, clock, place, sql):
    hands = await claimed(store)
    await clock.advance(30 * DAY)
    finisher = await asyncpg.connect(place.url)
    transaction = finisher.transaction()
    await transaction.start()
    await finisher.execute(
        "WITH d AS (DELETE FROM daybell.live RETURNING *)"
        f" INSERT INTO daybell.history ({KEPT}, failures, crashes, state, finished_at, worker)"
        f" SELECT {KEPT}, failures, crashes, state, daybell.now(), $1::uuid FROM d",
        hands.worker,
    )
    maker = await stepped_store(place.url)

    making = asyncio.create_task(retain(maker, WEEK))
    assert await settle(sql, making, maker.pace.processes), "it should wait for the finish"
    await transaction.commit()

    await making
    assert await rest(sql) == 0
    await finisher.close()
    await maker.close()


async def test_two_who_make_the_same_days_at_once_both_succeed(clock, place, sql):
    await clock.advance(30 * DAY)
    first = await asyncpg.connect(place.url)
    transaction = first.transaction()
    await transaction.start()
    await first.execute("SELECT daybell.make_days(3)")
    second = await stepped_store(place.url)

    making = asyncio.create_task(retain(second, WEEK))
    await settle(sql, making, second.pace.processes)
    await transaction.commit()

    await making
    await first.close()
    await second.close()


async def test_finishing_goes_on_while_days_are_made_and_dropped(store, another_store, clock, sql):
    is_over = False
    has_finished = asyncio.Event()
    ended = []

    async def work():
        while not is_over:
            ended.extend(await finished(store, 5))
            has_finished.set()

    async def upkeep():
        nonlocal is_over
        for _ in range(8):
            await clock.advance(3 * DAY)
            await retain(another_store, WEEK)
            has_finished.clear()
            await asyncio.wait_for(has_finished.wait(), 300)
        is_over = True

    await asyncio.gather(work(), upkeep())

    assert len(ended) == len(set(ended))
    assert await violations(sql) == []

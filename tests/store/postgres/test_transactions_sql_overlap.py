"""`SELECT daybell.enqueue(…)` of a job that minds overlap: the same rule as in the store."""

import asyncpg
import pytest

from daybell.core.execution import State
from daybell.core.schedule import Overlap
from daybell.errors import ExecutionInTheWay, UsageError
from daybell.store.postgres.transactions import SqlCall, send
from tests.builders import TENANT, an_execution, apply, claim, defined, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import enqueue

MANY = "SELECT id FROM daybell.enqueue_many($1, $2::text[])"


async def states(store, *ids):
    return [(await look(store, id)).state for id in ids]


async def test_skip_lets_one_in(store, sql):
    await defined(store, overlap=Overlap.SKIP)
    first = await enqueue(sql)

    with pytest.raises(asyncpg.ObjectInUseError, match=f"not finished execution {first}"):
        await enqueue(sql)

    hands = await claim(store, 2)
    assert hands.one.id == first
    await apply(store, hands, success(hands.one))
    second = await enqueue(sql)
    assert await states(store, first, second) == [State.SUCCEEDED, State.QUEUED]
    assert await violations(sql) == []


async def test_queue_lets_one_wait(store, sql):
    await defined(store, overlap=Overlap.QUEUE)
    first, second = await enqueue(sql), await enqueue(sql)

    with pytest.raises(asyncpg.ObjectInUseError):
        await enqueue(sql)

    assert await states(store, first, second) == [State.QUEUED, State.WAITING]
    hands = await claim(store, 2)
    await apply(store, hands, success(hands.one))
    assert await states(store, second) == [State.QUEUED]
    assert await violations(sql) == []


async def test_queue_all_lets_all_wait(store, sql):
    await defined(store, overlap=Overlap.QUEUE_ALL)

    rows = await sql.fetch(MANY, "resize", ["{}"] * 4)

    seen = await states(store, *[row["id"] for row in rows])
    assert seen == [State.QUEUED, *[State.WAITING] * 3]
    assert await violations(sql) == []


async def test_a_batch_that_does_not_fit_is_refused_whole(store, sql):
    await defined(store, overlap=Overlap.SKIP)

    with pytest.raises(asyncpg.ObjectInUseError, match="the one before it"):
        await sql.fetch(MANY, "resize", ["{}"] * 2)

    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 0


async def test_replace_cannot_be_done_from_a_callers_transaction(store, sql):
    await defined(store, overlap=Overlap.REPLACE)

    with pytest.raises(asyncpg.FeatureNotSupportedError, match="replace"):
        await enqueue(sql)
    with pytest.raises(UsageError, match="replace"):
        await send(sql, SqlCall("resize", ["{}"], "{}", None))


async def test_a_delayed_one_is_in_nobodys_way_until_it_is_due(store, sql, clock):
    await defined(store, overlap=Overlap.SKIP)
    delayed = await enqueue(sql, delay="10s")
    now = await enqueue(sql)

    assert await states(store, delayed, now) == [State.WAITING, State.QUEUED]
    hands = await claim(store, 2)
    await clock.advance(10)
    await apply(store, hands, success(hands.one))
    assert await states(store, delayed) == [State.QUEUED]
    assert await violations(sql) == []


async def test_what_came_by_sql_is_in_the_way_of_the_store_and_the_other_way_round(store, sql):
    await defined(store, overlap=Overlap.SKIP)
    first = await enqueue(sql)

    with pytest.raises(ExecutionInTheWay) as caught:
        await store.queue.enqueue(TENANT, [an_execution()])
    assert caught.value.execution == first

    with pytest.raises(ExecutionInTheWay, match=str(first)):
        await send(sql, SqlCall("resize", ["{}"], "{}", None))


async def test_a_rule_is_left_open_by_a_job_without_schedules(store, sql):
    await defined(store)

    assert await states(store, await enqueue(sql), await enqueue(sql)) == [State.QUEUED] * 2


async def test_a_declared_schedule_makes_the_rule_skip(store, sql):
    await defined(store, schedules=('{"every":60}',))
    await enqueue(sql)

    with pytest.raises(asyncpg.ObjectInUseError, match="skip"):
        await enqueue(sql)

"""First requests that reach the store after their own repeats, and repeats that meet an end."""

import asyncio

import asyncpg
import pytest

from daybell import Client
from daybell.core.limits import REPEAT_SECONDS_KEPT
from daybell.core.views import Retention
from daybell.store.postgres import enqueue
from daybell.store.postgres.enqueue import MARKS_EXIST
from tests.builders import (
    TENANT,
    an_entry,
    an_execution,
    apply,
    claim,
    count,
    defined,
    finished,
    success,
)
from tests.store.postgres.held_requests import holding
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import Stop, settle
from tests.sweeps import retain

SEARCHES = f"SELECT {MARKS_EXIST}"

KINDS = {"alike": {}, "of any kind": {"timeout": 5.0}}


async def run_all(store):
    """Claim what there is, and end it; the ids."""
    hands = await claim(store, 1000)
    assert await apply(store, hands, *(success(one) for one in hands.executions)) == []
    return [one.id for one in hands.executions]


async def marks(sql):
    return {row["id"] for row in await sql.fetch("SELECT id FROM daybell.repeated")}


async def test_what_ends_while_a_repeat_searches_the_history_is_not_created_again(slow, store, sql):
    (ended,) = await finished(store)
    running = an_execution()
    await store.queue.enqueue(TENANT, [running])
    hands = await claim(store)
    await slow.queue.enqueue(
        TENANT, [an_execution(delay=3600.0)], repeat=True
    )  # it knows the job now
    slow.pace.stop = Stop(2)  # its rows, and the search for them in the history
    repeat = asyncio.create_task(
        slow.queue.enqueue(TENANT, [an_execution(id=ended), running], repeat=True)
    )
    await slow.pace.stop.arrival()

    ending = asyncio.create_task(apply(store, hands, success(hands.one)))
    await asyncio.wait_for(ending, 300)
    slow.pace.stop.resumed.set()

    assert [answer.id for answer in await repeat] == [ended, running.id]
    assert await run_all(store) == []
    assert await violations(sql) == []


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
async def test_a_first_request_that_stalls_while_its_repeat_runs_to_the_end_creates_nothing(
    quick, store, sql, another, options
):
    """The statement has begun, and waits for another transaction; then it goes on."""
    await defined(store)
    blocked, overtaken, last = (an_execution(**options) for _ in range(3))
    await quick.queue.enqueue(TENANT, [an_execution(delay=3600.0, **options)])
    transaction = another.transaction()
    await transaction.start()
    await another.execute(
        "INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at,"
        " run_at, args) SELECT tenant, $1, job, version, lane, priority, 1, created_at, run_at, ''"
        " FROM daybell.live",
        blocked.id,
    )
    first = asyncio.create_task(quick.queue.enqueue(TENANT, [blocked, overtaken, last]))
    assert await settle(sql, first, quick.pace.processes), "it should wait for the other row"

    await store.queue.enqueue(TENANT, [overtaken], repeat=True)
    assert await run_all(store) == [overtaken.id]
    await transaction.rollback()

    assert [answer.id for answer in await first] == [blocked.id, overtaken.id, last.id]
    assert await run_all(store) == [blocked.id, last.id]
    assert await violations(sql) == []


@pytest.mark.parametrize("entry", [None, an_entry()], ids=["plain", "recorded"])
@pytest.mark.parametrize("size", [1, 150])
async def test_a_statement_that_arrives_after_its_repeat_has_run_creates_nothing(
    place, store, sql, entry, size
):
    """As a client sees it: the connection breaks, and it asks again over another one."""
    await defined(store)
    news = [an_execution(args=f'{{"n":{n}}}') for n in range(size)]
    async with holding(place.url, news[0].args.encode()) as way, Client(way.url) as client:
        await client.submit_many([an_execution() for _ in range(2)], entry=entry)
        known = await run_all(store)
        await client.submit_many(news, entry=entry)
        assert sorted(await run_all(store)) == [new.id for new in news]

        assert b"C23505" in await way.deliver()  # a unique violation

    assert await run_all(store) == []
    assert await count(store) == len(known) + size
    assert await violations(sql) == []


async def test_first_requests_leave_no_mark_and_repeats_do(store, sql):
    await defined(store)
    first, repeat = an_execution(), an_execution()
    await store.queue.enqueue(TENANT, [first])

    await store.queue.enqueue(TENANT, [first, repeat], repeat=True)

    assert await marks(sql) == {repeat.id}


async def test_marks_are_removed_after_the_documented_time(store, sql, clock):
    await defined(store)
    await store.queue.enqueue(TENANT, [an_execution()], repeat=True)
    await clock.advance(REPEAT_SECONDS_KEPT)
    await retain(store, Retention())
    assert len(await marks(sql)) == 1
    assert await sql.fetchval(SEARCHES), "marks are searched as long as there are some"

    await clock.advance(1.0)
    removed = await retain(store, Retention())

    assert removed.others >= 1
    assert await marks(sql) == set()
    assert not await sql.fetchval(SEARCHES)


async def test_the_search_for_marks_goes_on_while_a_repeat_is_under_way(store, place, sql, clock):
    await defined(store)
    await store.queue.enqueue(TENANT, [an_execution()], repeat=True)
    await clock.advance(REPEAT_SECONDS_KEPT + 1.0)
    other = await asyncpg.connect(place.url)
    async with other.transaction():
        await other.execute(enqueue.MARK_REPEATED, 1, [an_execution().id])

        await retain(store, Retention())

    assert await sql.fetchval(SEARCHES)
    await other.close()


async def test_a_repeat_that_is_rolled_back_leaves_no_mark(slow, store, sql, monkeypatch):
    await defined(store)
    await slow.queue.enqueue(TENANT, [an_execution(delay=3600.0)])
    broken = enqueue.MARK_REPEATED.replace("RETURNING 1", "RETURNING 1 / 0")
    monkeypatch.setattr(enqueue, "MARK_REPEATED", broken)

    with pytest.raises(Exception, match="division"):
        await slow.queue.enqueue(TENANT, [an_execution()], repeat=True)

    assert await marks(sql) == set()
    assert await count(store) == 1

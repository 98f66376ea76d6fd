"""`SELECT daybell.enqueue(…)` with a unique key: it has one holder at a time."""

import asyncio
from collections import Counter

import asyncpg
import pytest

from daybell.core.execution import State
from tests.builders import apply, claim, defined, enqueued, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import MANY, enqueue


async def test_a_key_that_is_held_answers_with_its_holder(store, sql):
    (held,) = await enqueued(store, unique_key="k")

    assert await enqueue(sql, unique_key="k") == held
    (row,) = await sql.fetch(MANY, "resize", ["{}"], '{"unique_key": "k"}')
    assert (row["id"], row["created"]) == (held, False)

    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    assert await enqueue(sql, unique_key="k") != held


async def blocked_by(sql, pid):
    """Wait until somebody waits for this session."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(20):
        while not await sql.fetchval(query, pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_holder_that_is_not_committed_is_waited_for(store, sql, another, place, ends):
    await defined(store)
    looking = await asyncpg.connect(place.url)
    transaction = another.transaction()
    await transaction.start()
    held = await enqueue(another, unique_key="k")

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await getattr(transaction, ends)()

    assert (await waiting == held) is (ends == "commit")
    assert await sql.fetchval("SELECT count(*) FROM daybell.live") == 1
    await looking.close()


async def test_a_holder_that_ends_while_it_is_waited_for_frees_the_key(store, sql, another, place):
    await enqueued(store, unique_key="k")
    looking = await asyncpg.connect(place.url)
    transaction = another.transaction()
    await transaction.start()
    await another.execute("WITH a AS (DELETE FROM daybell.agenda) DELETE FROM daybell.live")

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await transaction.commit()

    assert (await look(store, await waiting)).state is State.QUEUED
    await looking.close()


async def test_a_holder_that_ends_between_two_looks_frees_the_key(store, sql, another, place):
    await enqueued(store, unique_key="k")
    looking = await asyncpg.connect(place.url)
    # Fires after the insert that created nothing, and before the search for the holder.
    await another.execute(
        "CREATE FUNCTION daybell_test.pause() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;"
        "CREATE TRIGGER pause AFTER INSERT ON daybell.agenda EXECUTE FUNCTION daybell_test.pause();"
        "SELECT pg_advisory_lock(7)"
    )

    waiting = asyncio.create_task(enqueue(sql, unique_key="k"))
    await blocked_by(looking, another.get_server_pid())
    await another.execute("WITH a AS (DELETE FROM daybell.agenda) DELETE FROM daybell.live")
    await another.execute("SELECT pg_advisory_unlock(7)")
    id = await waiting
    await another.execute("DROP FUNCTION daybell_test.pause CASCADE")

    assert (await look(store, id)).state is State.QUEUED
    await looking.close()


@pytest.mark.slow
async def test_a_key_under_fire_has_one_holder_at_a_time(store, sql, place):
    await defined(store)
    seen: Counter[object] = Counter()

    async def ask():
        connection = await asyncpg.connect(place.url)
        for turn in range(60):
            transaction = connection.transaction()
            await transaction.start()
            (row,) = await connection.fetch(MANY, "resize", ["{}"], '{"unique_key": "k"}')
            if turn % 3:
                await transaction.commit()
                seen[row["id"]] += row["created"]
            else:
                await transaction.rollback()
        await connection.close()

    async def work():
        while True:
            hands = await claim(store)
            await apply(store, hands, *(success(one) for one in hands.executions))

    worker = asyncio.create_task(work())
    await asyncio.gather(*(ask() for _ in range(4)))
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)

    # Who was told of a holder was told of one that had been created, once.
    assert set(seen.values()) == {1}
    assert await violations(sql) == []

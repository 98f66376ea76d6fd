"""Fair shares on PostgreSQL: enqueues in SQL, open transactions, claims at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from daybell.core.flow.shares import ShareOption
from tests.builders import TENANT, a_job, an_execution, apply, claim, registered, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import enqueue


async def shared(store):
    """A job whose customers take turns."""
    job = a_job("resize", share=ShareOption(key=("customer",)))
    await store.catalog.define_jobs(TENANT, [job])


def of(customer):
    return msgspec.json.encode({"customer": customer}).decode()


async def asked(store, count, customer):
    news = [an_execution("resize", args=of(customer)) for _ in range(count)]
    return [one.id for one in await store.queue.enqueue(TENANT, news)]


def customers(*hands):
    return [msgspec.json.decode(one.args)["customer"] for some in hands for one in some.executions]


async def test_work_that_sql_enqueues_takes_its_turn(store, sql):
    await shared(store)
    await asked(store, 20, "a")
    for _ in range(3):
        await enqueue(sql, args=of("b"))

    assert Counter(customers(await claim(store, limit=6))) == {"a": 3, "b": 3}
    assert await violations(sql) == []


async def test_a_load_takes_its_turns(store, sql):
    await shared(store)
    await asked(store, 20, "a")
    await store.queue.load(TENANT, [an_execution("resize", args=of("b")) for _ in range(20)])

    assert Counter(customers(await claim(store, limit=10))) == {"a": 5, "b": 5}
    assert await violations(sql) == []


async def test_an_open_transaction_delays_nobody_and_saves_no_turns_up(store, sql):
    await shared(store)
    await asked(store, 100, "a")
    await asked(store, 1, "b")
    await claim(store, limit=2)
    async with sql.transaction():
        await enqueue(sql, args=of("b"))
        await sql.execute("SELECT FROM daybell.share WHERE path LIKE '[\"b\",%' FOR KEY SHARE")
        for _ in range(5):
            assert customers(await claim(store, limit=10)) == ["a"] * 10

    await asked(store, 50, "b")
    assert Counter(customers(await claim(store, limit=20))) == {"a": 10, "b": 10}
    assert await violations(sql) == []


async def test_claims_at_the_same_time_serve_all_and_each_once(store, sql):
    await shared(store)
    workers = [await registered(store) for _ in range(4)]
    known = [id for n in range(10) for id in await asked(store, 20, str(n))]
    found = []

    async def work(worker):
        while len(found) < len(known):
            hands = await claim(store, limit=7, worker=worker)
            found.extend(one.id for one in hands.executions)
            await apply(store, hands, *map(success, hands.executions))

    async def enqueue_more():
        for n in range(10):
            known.extend(await asked(store, 3, f"late {n}"))

    await asyncio.gather(enqueue_more(), *map(work, workers))

    assert sorted(found) == sorted(known)
    assert await violations(sql) == []


async def test_a_leaf_is_used_again_when_its_key_has_no_work(store, sql):
    await shared(store)
    for n in range(8):
        await asked(store, 1, str(n))
        assert customers(await claim(store, limit=3)) == [str(n)]

    lanes = "SELECT count(*) FROM daybell.lane WHERE starts_with(needs, 'shares:')"
    assert await sql.fetchval(lanes) <= 3

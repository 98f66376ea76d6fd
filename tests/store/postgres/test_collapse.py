"""Requests in SQL collapse as those of the store do."""

import asyncpg
import msgspec
import pytest

from daybell.core.collapse import CollapseRule, Debounce, RequestThrottle, Singleton, parse_key
from tests.builders import TENANT, an_execution, apply, claim, count, defined, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import MANY, enqueue

KEY = "SELECT daybell.collapse_key($1::text::json, $2, NULL)"


@pytest.mark.parametrize(
    ("key", "args"),
    [
        ("account", '{"account": "a"}'),
        ("account", '{"account": 7}'),
        ("account", "{}"),
        ("account", '{"account": null}'),
        ("order.lines.1.id", '{"order": {"lines": [{"id": 1}, {"id": "ü"}]}}'),
        ("order.lines.9.id", '{"order": {"lines": []}}'),
        ("eu-{account}:{order.id}", '{"account": "a", "order": {"id": true}}'),
        ("account", '{"account": "' + "x" * 999 + '"}'),
    ],
)
async def test_a_key_in_sql_is_that_of_the_rule(sql, key, args):
    rule = CollapseRule(kind="debounce", key=parse_key(key))

    found = await sql.fetchval(KEY, msgspec.json.encode(rule).decode(), args)

    assert found == rule.key_of(args, None)


async def test_debounced_requests_in_sql_and_of_the_store_are_one(store, sql, clock):
    await defined(store, debounce=Debounce(wait=5.0, key="a"), max_wait=60.0)

    first = await enqueue(sql, args='{"a": 1, "n": 1}')
    (second,) = await store.queue.enqueue(TENANT, [an_execution(args='{"a": 1, "n": 2}')])
    await clock.advance(1)
    third = await enqueue(sql, args='{"a": 1, "n": 3}')

    assert first == second.id == third
    assert (await look(store, first)).run_at == clock.now() + 5
    assert await violations(sql) == []
    await clock.advance(5)
    assert (await claim(store)).one.args == '{"a": 1, "n": 3}'


async def test_many_in_sql_are_decided_one_by_one(store, sql):
    await defined(store, throttle=RequestThrottle(limit=1, period=60.0, key="a"))

    rows = await sql.fetch(MANY, "resize", ['{"a": 2}', '{"a": 1}', '{"a": 2}'], "{}")

    assert [row["created"] for row in rows] == [True, True, False]
    assert rows[2]["id"] == rows[0]["id"]
    assert await count(store) == 2


async def test_a_unique_key_is_the_key_of_a_rule_without_one(store, sql):
    await defined(store, singleton=Singleton(scope="unfinished"))

    first = await enqueue(sql, unique_key="k")

    assert await enqueue(sql, unique_key="k") == first
    assert await enqueue(sql, unique_key="l") != first


@pytest.mark.parametrize("conflict", ["error", "replace", "cancel"])
async def test_a_singleton_refuses_in_sql_what_needs_another_transaction(store, sql, conflict):
    await defined(store, singleton=Singleton(scope="unfinished"), on_conflict=conflict)
    first = await enqueue(sql)

    with pytest.raises(asyncpg.ObjectInUseError, match=f"has not finished execution {first}"):
        await enqueue(sql)

    assert await count(store) == 1


async def test_a_debounced_job_with_an_overlap_rule_is_parked(store, sql, clock):
    await defined(store, debounce=Debounce(wait=5.0), overlap="queue_all")
    first = await enqueue(sql, args='{"n": 1}')
    await clock.advance(1)

    assert await enqueue(sql, args='{"n": 2}') == first

    assert await violations(sql) == []
    await clock.advance(5)
    await store.upkeep()
    assert (await claim(store)).one.args == '{"n": 2}'


async def test_a_cached_result_answers_in_sql(store, sql):
    await defined(store, cache_for=60.0)
    first = await enqueue(sql, args='{"a": 1, "b": 2}')
    hands = await claim(store)
    await apply(store, hands, success(hands.one))

    assert await enqueue(sql, args='{"b": 2, "a": 1}') == first
    assert await enqueue(sql, args='{"b": 2, "a": 1}', cache="refresh") != first
    with pytest.raises(asyncpg.InvalidParameterValueError, match="refresh"):
        await enqueue(sql, cache="never")

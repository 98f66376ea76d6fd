"""Quotas, while somebody else is in the middle of using them up; and those of SQL callers."""

import asyncio

import asyncpg
import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.errors import QuotaExceeded
from daybell.store.postgres.gates import LOCK_RUNNING, LOCK_TENANT
from daybell.store.postgres.transactions import SqlCall, send
from tests.builders import TENANT, a_job, an_execution, claim, defined, enqueued
from tests.store.runs import a_plan, begun, end, labels, state, take
from tests.sweeps import advance_runs

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
ENQUEUE = "SELECT daybell.enqueue('resize')"


@pytest.fixture
async def other(place):
    """A connection of somebody else, in a transaction."""
    connection = await asyncpg.connect(place.url)
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


async def waits(sql, work):
    """Start something, and answer once it waits for a lock; it must."""
    task = asyncio.create_task(work)
    while not await sql.fetchval(WAITING):
        assert not task.done(), "it has not waited for the one before it"
    return task


async def test_an_enqueue_counts_what_another_is_about_to_commit(store, other, sql):
    await defined(store)
    await store.admin.set_quotas(TENANT, queued=1)
    await other.execute(ENQUEUE)

    task = await waits(sql, store.queue.enqueue(TENANT, [an_execution()]))
    await other.execute("COMMIT")

    with pytest.raises(QuotaExceeded):
        await task


async def test_an_enqueue_does_not_count_what_another_takes_back(store, other, sql):
    await defined(store)
    await store.admin.set_quotas(TENANT, queued=1)
    await other.execute(ENQUEUE)

    task = await waits(sql, store.queue.enqueue(TENANT, [an_execution()]))
    await other.execute("ROLLBACK")

    assert len(await task) == 1


async def test_a_definition_counts_what_another_is_about_to_commit(store, other, sql):
    await store.admin.set_quotas(TENANT, jobs=1)
    await other.execute("SELECT FROM daybell.tenant WHERE name = 'default' FOR NO KEY UPDATE")
    await other.execute(
        "INSERT INTO daybell.job (id, tenant, name, version, queue)"
        " SELECT gen_random_uuid(), key, 'theirs', 0, '' FROM daybell.tenant"
    )

    task = await waits(sql, store.catalog.define_jobs(TENANT, [a_job("mine")]))
    await other.execute("COMMIT")

    with pytest.raises(QuotaExceeded):
        await task


async def test_a_claim_waits_for_the_one_before_it(store, other, sql):
    await enqueued(store, 3)
    await store.admin.set_quotas(TENANT, running=2)
    await other.execute(LOCK_RUNNING, 1)

    task = await waits(sql, claim(store))
    await other.execute("COMMIT")

    assert len((await task).executions) == 2


async def test_a_nodes_end_does_not_wait_for_who_has_the_tenant(store, other):
    await store.admin.set_quotas(TENANT, queued=3)
    run = await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    hands = await take(store)
    assert labels(hands) == ["a", "b"]
    await other.execute(LOCK_TENANT, 1)

    await end(store, hands)

    hands = await take(store)
    assert labels(hands) == ["c"]  # the one that needs no room
    await other.execute("COMMIT")
    await advance_runs(store)
    assert labels(await take(store)) == ["d"]
    await end(store, hands)
    assert await state(store, run) is State.RUNNING


async def test_who_enqueues_in_sql_is_bound_by_quotas_as_well(store, sql, clock):
    await defined(store)
    await store.admin.set_quotas(TENANT, per_minute=2)
    await sql.execute(ENQUEUE)

    with pytest.raises(asyncpg.ConfigurationLimitExceededError) as caught:
        await sql.fetch("SELECT * FROM daybell.enqueue_many('resize', ARRAY['{}', '{}'])")

    assert "exceeds its quota per_minute, which is 2" in str(caught.value)
    assert "Try again in" in str(caught.value)
    await sql.execute(ENQUEUE)
    with pytest.raises(QuotaExceeded):
        await enqueued(store)
    await clock.advance(60)
    await enqueued(store, 2)


async def test_a_unique_key_that_is_held_costs_no_quota_in_sql(store, sql):
    await defined(store)
    await store.admin.set_quotas(TENANT, queued=1)
    asked = """SELECT id FROM daybell.enqueue_many('resize', ARRAY['{}'], '{"unique_key": "k"}')"""

    assert await sql.fetchval(asked) == await sql.fetchval(asked)


async def test_a_borrowed_connection_hears_of_the_quota_in_our_words(store, sql):
    await defined(store)
    await store.admin.set_quotas(TENANT, queued=0)

    async with sql.transaction():
        with pytest.raises(QuotaExceeded) as caught:
            async with sql.transaction():
                await send(sql, SqlCall(job="resize", args=["{}"], options="{}", parent=None))

    assert caught.value.quota == "queued"


async def test_quotas_are_not_looked_up_each_time(store):
    await enqueued(store)
    await store.catalog.define_jobs(TENANT, [a_job("other")])  # which learns them on the way
    before = store.context.names.known_quotas(1)

    await enqueued(store, 3)
    await claim(store)

    assert before is not None and store.context.names.known_quotas(1) is before


async def test_a_role_that_may_enqueue_cannot_get_past_the_quotas(store, sql):
    name = f"enqueuer_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name}")
    await sql.execute("SELECT daybell.grant_enqueue_to($1)", name)

    may = "SELECT proname FROM pg_proc WHERE pronamespace = 'daybell'::regnamespace"
    rows = await sql.fetch(f"{may} AND has_function_privilege($1, oid, 'EXECUTE')", name)
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")

    assert {row["proname"] for row in rows} & {"enqueue_freely", "charge"} == set()
    assert {"enqueue", "enqueue_many"} <= {row["proname"] for row in rows}

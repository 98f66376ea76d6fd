"""What an idle worker asks of the database: one statement per look, whatever it could run."""

import pytest

from tests.builders import TENANT, claim, defined, enqueued, registered
from tests.store.postgres.steps import Stop, stepped_store

KINDS = ["task", "http", "notify", "command", "sql:a", "sql:b"]
QUEUES = ["default", "mail"]
PG = '{"connection": "a", "statement": "SELECT 1"}'


@pytest.fixture
async def counted(place):
    opened = await stepped_store(place.url)
    yield opened
    await opened.close()


async def statements(store, work):
    """How many statements something takes."""
    store.pace.stop = Stop()
    await work
    return store.pace.stop.statements


async def test_a_claim_is_one_statement_however_many_kinds_it_asks_for(counted):
    worker = await registered(counted)
    await claim(counted, worker=worker, queues=QUEUES, kinds=KINDS)

    for _ in range(3):
        look = claim(counted, worker=worker, queues=QUEUES, kinds=KINDS)
        assert await statements(counted, look) == 1


async def test_lanes_of_what_nobody_has_used_are_not_made(counted, sql):
    await defined(counted, kind="sql", settings=PG, queue="mail")
    await claim(counted, queues=QUEUES, kinds=KINDS)

    rows = await sql.fetch("SELECT queue, needs FROM daybell.lane ORDER BY 1, 2")
    lanes = [("default", "task"), ("mail", "sql:a"), ("mail", "task")]
    assert [tuple(row) for row in rows] == lanes


async def test_a_lane_that_another_process_makes_costs_two_statements_once(counted, another_store):
    worker = await registered(counted)
    await claim(counted, worker=worker, queues=QUEUES, kinds=KINDS)
    await defined(another_store, "call", kind="http", queue="mail")

    # The look itself, what the lane is, and the look again.
    look = claim(counted, worker=worker, queues=QUEUES, kinds=KINDS)
    assert await statements(counted, look) == 3
    look = claim(counted, worker=worker, queues=QUEUES, kinds=KINDS)
    assert await statements(counted, look) == 1


async def test_to_go_on_leading_is_one_statement(counted, clock):
    worker = await registered(counted)
    await counted.lead("upkeep", holder=worker, lease=30.0)

    again = counted.lead("upkeep", holder=worker, lease=30.0)

    assert await statements(counted, again) == 1


async def test_a_quota_of_another_process_is_heeded_by_the_next_claim(counted, another_store):
    worker = await registered(counted)
    await enqueued(counted, 6)
    assert len((await claim(counted, 1, worker=worker)).executions) == 1

    await another_store.set_quotas(TENANT, running=3)
    assert len((await claim(counted, worker=worker)).executions) == 2
    assert len((await claim(counted, worker=worker)).executions) == 0
    await another_store.set_quotas(TENANT, running=None)
    assert len((await claim(counted, worker=worker)).executions) == 3

    look = claim(counted, worker=worker)
    assert await statements(counted, look) == 1


async def test_each_look_of_upkeep_that_finds_nothing_is_one_statement(counted):
    await registered(counted)
    for look in (counted.lost, counted.admit, counted.expire):
        assert await statements(counted, look()) == 1

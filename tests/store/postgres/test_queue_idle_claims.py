"""What an idle worker asks of the database: one statement per look, whatever it could run."""

from functools import partial

from tests.builders import TENANT, claim, defined, enqueued, registered
from tests.store.postgres.steps import Stop
from tests.sweeps import admit, expire

KINDS = ["task", "http", "notify", "command", "sql:a", "sql:b"]
QUEUES = ["default", "mail"]
PG = '{"connection": "a", "statement": "SELECT 1"}'


async def statements(store, work):
    """How many statements something takes."""
    store.pace.stop = Stop()
    await work
    return store.pace.stop.statements


async def test_a_claim_is_one_statement_however_many_kinds_it_asks_for(stepped):
    worker = await registered(stepped)
    await claim(stepped, worker=worker, queues=QUEUES, kinds=KINDS)

    for _ in range(3):
        look = claim(stepped, worker=worker, queues=QUEUES, kinds=KINDS)
        assert await statements(stepped, look) == 1


async def test_lanes_of_what_nobody_has_used_are_not_made(stepped, sql):
    await defined(stepped, kind="sql", settings=PG, queue="mail")
    await claim(stepped, queues=QUEUES, kinds=KINDS)

    rows = await sql.fetch("SELECT queue, needs FROM daybell.lane ORDER BY 1, 2")
    lanes = [("default", "task"), ("mail", "sql:a"), ("mail", "task")]
    assert [tuple(row) for row in rows] == lanes


async def test_a_lane_that_another_process_makes_costs_two_statements_once(stepped, another_store):
    worker = await registered(stepped)
    await claim(stepped, worker=worker, queues=QUEUES, kinds=KINDS)
    await defined(another_store, "call", kind="http", queue="mail")

    # The look itself, what the lane is, and the look again.
    look = claim(stepped, worker=worker, queues=QUEUES, kinds=KINDS)
    assert await statements(stepped, look) == 3
    look = claim(stepped, worker=worker, queues=QUEUES, kinds=KINDS)
    assert await statements(stepped, look) == 1


async def test_to_go_on_leading_is_one_statement(stepped, clock):
    worker = await registered(stepped)
    await stepped.admin.lead("upkeep", holder=worker, lease=30.0)

    again = stepped.admin.lead("upkeep", holder=worker, lease=30.0)

    assert await statements(stepped, again) == 1


async def test_a_quota_of_another_process_is_heeded_by_the_next_claim(stepped, another_store):
    worker = await registered(stepped)
    await enqueued(stepped, 6)
    assert len((await claim(stepped, 1, worker=worker)).executions) == 1

    await another_store.admin.set_quotas(TENANT, running=3)
    assert len((await claim(stepped, worker=worker)).executions) == 2
    assert len((await claim(stepped, worker=worker)).executions) == 0
    await another_store.admin.set_quotas(TENANT, running=None)
    assert len((await claim(stepped, worker=worker)).executions) == 3

    look = claim(stepped, worker=worker)
    assert await statements(stepped, look) == 1


async def test_each_look_of_upkeep_that_finds_nothing_is_one_statement(stepped):
    await registered(stepped)
    for look in (stepped.queue.lost, partial(admit, stepped), partial(expire, stepped)):
        assert await statements(stepped, look()) == 1

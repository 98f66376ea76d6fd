"""A schedule is made, changed and removed by its key, however many its job has."""

import pytest

from daybell.client import Client
from daybell.client import schedules as room
from daybell.store.postgres import PostgresStore
from tests.store.postgres.test_queue_plans import WARM, ExplainedDatabase, nodes

ROWS = 20_000
FILL = f"""
    INSERT INTO daybell.schedule (tenant, id, job, name, rule, next_at, own_gate)
    SELECT tenant, gen_random_uuid(), job, n::text, rule, next_at + 1, true
      FROM (SELECT * FROM daybell.schedule LIMIT 1) s, generate_series(1, {ROWS}) n;
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT tenant, 'job:report/' || replace(id::text, '-', ''), 1 FROM daybell.schedule
        ON CONFLICT DO NOTHING
"""
ROWS_MAX = 20


@pytest.mark.parametrize("analyzed", ["when empty", "when full", "never"])
async def test_a_schedule_is_read_and_written_by_its_key(place, sql, analyzed):
    store = PostgresStore(place.url)
    store.db = store.context.notifier._db = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    client = Client(store)
    await client.define("report")
    if analyzed == "when empty":
        await sql.execute("ANALYZE")

    async def live(name):
        await room.schedule(client, "report", "@hourly", name=name)
        await room.schedule(client, "report", "@daily", name=name)
        await client.unschedule("report", name)

    for n in range(WARM):
        await live(f"n{n}")
    await room.schedule(client, "report", "@hourly", name="kept")
    await sql.execute(FILL)
    if analyzed == "when full":
        await sql.execute("ANALYZE")
    store.db.plans = []
    await live("new")

    seen = 0
    for query, plan in store.db.plans:
        for node in nodes(plan):
            if node.get("Relation Name") in ("schedule", "gate"):
                seen += 1
                rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                assert rows * node["Actual Loops"] <= ROWS_MAX, query
    assert seen > 5
    await store.close()

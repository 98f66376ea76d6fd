"""Statements about steps and events read little, however much is on record."""

from typing import Any

import pytest

from daybell.core.lifecycle import after_wait
from daybell.store.postgres import PostgresStore
from tests.builders import TENANT, a_step, an_event, apply, claim, claimed, success
from tests.store.postgres.test_queue_plans import WARM, ExplainedDatabase, nodes
from tests.sweeps import expire

ROWS = 20_000
FILL = f"""
    INSERT INTO daybell.wait (timeout_at, tenant, n, execution, event, key, match)
    SELECT daybell.now() + 1000, 1, 0, gen_random_uuid(), 'paid', '"order":' || n,
           '{{"order":' || n || '}}'
      FROM generate_series(1, {ROWS}) n;
    INSERT INTO daybell.event (received_at, tenant, id, source, name, data)
    SELECT daybell.now(), 1, n, 'full', 'paid', '{{"order":' || n || '}}'
      FROM generate_series(1, {ROWS}) n;
    INSERT INTO daybell.event_key (received_at, number, tenant, name, key)
    SELECT e.received_at, e.number, 1, 'paid', k.key
      FROM daybell.event e, unnest(ARRAY['', '"order":' || e.id]) k(key) WHERE e.source = 'full';
    INSERT INTO daybell.step (started_at, finished_at, tenant, n, failures, kind, is_done,
                              execution, name)
    SELECT daybell.now(), daybell.now(), 1, 0, 0, 1, true, gen_random_uuid(), 'charge'
      FROM generate_series(1, {ROWS}) n
"""
WATCHED = ("wait", "step", "event", "event_key", "live")
ROWS_MAX = 100


async def live(store, clock, order):
    """All that steps and events are about, for one execution."""
    hands = await claimed(store)
    steps = [
        a_step(hands.one, 0),
        a_step(hands.one, 1, event="paid", match=f'{{"order": {order}}}', timeout=1.0),
    ]
    await store.runs.record(TENANT, worker=hands.worker, steps=steps[:1])
    await store.runs.record(TENANT, worker=hands.worker, steps=steps)
    await apply(store, hands, after_wait(hands.one, ran=0.0))
    published = await store.runs.publish(TENANT, an_event(data=f'{{"order": {order}}}'))
    assert published.resumed == 1
    again = await claim(store)
    wait = a_step(again.one, 2, event="paid", match='{"order": -5}', timeout=1.0)
    await store.runs.record(TENANT, worker=again.worker, steps=[wait])
    await apply(store, again, after_wait(again.one, ran=0.0))
    await clock.advance(1)
    assert (await store.queue.lost()).is_any_overdue
    assert await expire(store) == 1
    assert len(await store.runs.steps(TENANT, hands.one.id)) == 3
    await store.runs.list_events(TENANT, limit=10)
    final = await claim(store)
    await apply(store, final, success(final.one))


@pytest.mark.slow
async def test_what_is_on_record_is_found_by_an_index(place, sql, clock):
    # Earlier tests in this database may have left statistics, and pages without rows.
    await sql.execute(f"TRUNCATE {', '.join(f'daybell.{table}' for table in WATCHED)} CASCADE")
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    for order in range(WARM):
        await live(store, clock, -10 - order)
    await sql.execute(FILL)
    plans: list[tuple[str, Any]] = []
    database.plans = plans

    await live(store, clock, -1)

    wrong = [fault for query, plan in plans for fault in faults(query, plan)]
    assert wrong == [], "\n".join(wrong)
    await store.close()


def faults(query, plan):
    for node in nodes(plan):
        if node.get("Relation Name") in WATCHED and node["Node Type"] != "ModifyTable":
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            if rows * node["Actual Loops"] > ROWS_MAX:
                yield f"{rows} rows of {node['Relation Name']}: {query}"

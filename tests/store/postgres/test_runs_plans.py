"""Statements about runs keep a good plan: prepared on empty tables, run when they are full."""

import pytest

from daybell.core.execution import State
from daybell.store.postgres import PostgresStore
from tests.builders import TENANT, an_event
from tests.store.postgres.test_queue_plans import WARM, ExplainedDatabase, nodes
from tests.store.runs import a_mapped_plan, begun, end, run_to_end, state, take
from tests.sweeps import advance_runs

RUNS = 5_000
NODES = 10  # of each
ROWS_MAX = 100  # that any part of a statement looks at, for runs of a handful of nodes

FILL_RUNS = """
    INSERT INTO daybell.run (id, tenant, total, unended, running, ready, fail_fast, is_todo,
                             finished_at, job, version, lane, priority, depth)
    SELECT gen_random_uuid(), 1, 1, 0, 0, 0, false, false, 1.0, 1, 1, 1, 1, 0
      FROM generate_series(1, $1::int)
"""
FILL_NODES = """
    INSERT INTO daybell.node (run, tenant, place, state, rule, total, succeeded, failed, skipped,
           told, items, spawned, items_ended, items_lost, is_wanted, is_map, is_todo, is_ready,
           label, edges, spec)
    SELECT r.id, 1, n, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, true, false, false, false, 'n' || n,
           '[]', '{}'
      FROM daybell.run r, generate_series(1, $1::int) n
"""
FILL_LIVE = """
    INSERT INTO daybell.live (created_at, run_at, tenant, job, version, lane, state, priority, id,
                              args, parent, node)
    SELECT 0, 0, 1, v.job, v.version, v.lane, 5, 1, gen_random_uuid(), '{}', gen_random_uuid(), 'x'
      FROM generate_series(1, $1::int), (SELECT job, version, lane FROM daybell.live LIMIT 1) v
"""
FILL_ATTEMPTS = """
    INSERT INTO daybell.attempt (tenant, id, attempt, outcome, started_at, ended_at)
    SELECT 1, gen_random_uuid(), 1, 2, daybell.now(), daybell.now()
      FROM generate_series(1, $1::int)
"""
WATCHED = ("run", "node", "live", "attempt", "wait")


async def live(store):
    """A run with a mapped node, one that fails, one that is cancelled, and a look at each."""
    for failing in ([], ["each[1]"]):
        run = await begun(store, a_mapped_plan())
        await run_to_end(store, failing=failing, results={"list": [1, 2, 3]})
        assert await store.runs.get_run(TENANT, run) is not None
        assert await store.runs.node_attempts(TENANT, run)
        assert await store.runs.node_waits(TENANT, run, event=an_event()) == []
    assert (await store.queue.revive(TENANT, [run]))[0] == "revived"
    await store.queue.cancel(TENANT, [run])
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2, 3]})
    await store.queue.cancel(TENANT, [run])
    assert await state(store, run) is State.CANCELLED
    await advance_runs(store)


@pytest.mark.slow
async def test_statements_about_runs_look_at_few_rows(place, sql):
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    for _ in range(WARM):
        await live(store)
    await begun(store, a_mapped_plan())
    for statement, count in (
        (FILL_RUNS, RUNS),
        (FILL_NODES, NODES),
        (FILL_LIVE, RUNS),
        (FILL_ATTEMPTS, RUNS),
    ):
        await sql.execute(statement, count)
    await sql.execute("DELETE FROM daybell.agenda")
    database.plans = seen = []

    await live(store)

    wrong = set()
    for query, plan in seen:
        for node in nodes(plan):
            table = node.get("Relation Name", "").partition("_")[0]  # without the day
            if table in WATCHED and "Actual Rows" in node:
                looked = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                if looked * node["Actual Loops"] > ROWS_MAX:
                    wrong.add(f"{' '.join(query.split())[:300]}: {node['Node Type']} {looked}")
    await store.close()
    assert wrong == set(), "\n".join(wrong)

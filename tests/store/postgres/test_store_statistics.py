"""Hot statements read little, whatever the planner knows of the tables.

A scenario makes the store run the statements of workers, schedulers, clients and upkeep. Each is
prepared once, as a pool keeps it. Then the large tables are loaded in each state of statistics, and
the scenario runs again: the server tells how many rows and pages each statement reads.
"""

import asyncio

import pytest
from msgspec.structs import replace

from daybell.core.execution import NewLogPart
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss, after_release, after_wait
from daybell.core.schedule import Decision, ScheduleRewind, Tick
from daybell.core.views import Retention
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import Database
from tests.builders import (
    TENANT,
    a_firing,
    a_report,
    a_schedule,
    a_step,
    a_tick,
    an_event,
    an_execution,
    apply,
    claim,
    death,
    defined,
    limit,
    put,
    retry,
    success,
)
from tests.store.postgres.statistics import STATES, make_statistics
from tests.store.postgres.test_queue_plans import ExplainedDatabase, nodes
from tests.store.runs import a_mapped_plan, begun, end, run_to_end, take
from tests.sweeps import admit, advance_runs, expire, rearm_schedules, retain, set_gates

ROWS = 20_000
PAGES_MAX = 200  # of a statement about a handful of rows, which looks each up in several indexes

# What others have left in the tables, all of tenant 1: nothing of it is due, lost or over.
LOAD = (
    """
    WITH v AS (
      INSERT INTO daybell.live (created_at, run_at, tenant, job, version, lane, state, priority, id,
                                args, gate, schedule, parent, node, expires_at, unique_key, reason)
      SELECT daybell.now(), daybell.now() + 1e6, 1, j.key, 1, l.key, 1 + n % 5, 1,
             gen_random_uuid(), '{}', CASE n % 5 WHEN 3 THEN 'gate-' || n / 5 % 40 END,
             CASE n % 5 WHEN 1 THEN gen_random_uuid() END,
             CASE n % 5 WHEN 4 THEN gen_random_uuid() END, CASE n % 5 WHEN 4 THEN 'x' END,
             daybell.now() + 1e6, 'key-' || gen_random_uuid(), CASE n % 5 WHEN 3 THEN 'event' END
        FROM generate_series(1, $1::int) n,
             (SELECT key FROM daybell.job WHERE name = 'resize') j,
             (SELECT key FROM daybell.lane ORDER BY key LIMIT 1) l
      RETURNING *, substr(id::text, 1, 2) AS first),
    p AS (
      INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
      SELECT tenant, gate, priority, run_at, id FROM v WHERE gate IS NOT NULL),
    s AS (
      INSERT INTO daybell.schedule (tenant, id, job, rule, next_at, delay)
      SELECT 1, schedule, job, '{"every": 60}', NULL, CASE v.first WHEN '00' THEN 60.0 END
        FROM v WHERE schedule IS NOT NULL),
    g AS (
      INSERT INTO daybell.gate (tenant, key, capacity, holders)
      SELECT DISTINCT 1, gate, 1, 1 FROM v WHERE gate IS NOT NULL
      ON CONFLICT DO NOTHING)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v WHERE state < 4
    """,
    """
    INSERT INTO daybell.history (created_at, run_at, tenant, job, version, lane, state, priority,
                                 attempt, failures, crashes, id, args, node, parent, schedule,
                                 scheduled_for, finished_at)
    SELECT daybell.now(), daybell.now(), 1, j.key, 1, 1, 6 + n % 4, 1, 1, 0, 0, gen_random_uuid(),
           '{}', CASE n % 2 WHEN 1 THEN 'x' END, CASE n % 2 WHEN 1 THEN gen_random_uuid() END,
           CASE n % 4 WHEN 0 THEN gen_random_uuid() END,
           CASE n % 4 WHEN 0 THEN daybell.now() - 100 - n END, daybell.now() - 1000
      FROM generate_series(1, $1::int) n, (SELECT key FROM daybell.job WHERE name = 'resize') j
    """,
    """
    INSERT INTO daybell.dead (created_at, run_at, tenant, job, version, lane, state, priority,
                              attempt, failures, crashes, id, args, finished_at)
    SELECT daybell.now(), daybell.now(), 1, j.key, 1, 1, 7, 1, 1, 0, 0, gen_random_uuid(), '{}',
           daybell.now() - 1000
      FROM generate_series(1, $1::int) n, (SELECT key FROM daybell.job WHERE name = 'resize') j
    """,
    """
    INSERT INTO daybell.attempt (tenant, id, attempt, outcome, started_at, ended_at)
    SELECT 1, gen_random_uuid(), 1, 2, daybell.now(), daybell.now() FROM generate_series(1, $1::int)
    """,
    """
    INSERT INTO daybell.log (written_at, tenant, attempt, number, id, text)
    SELECT daybell.now(), 1, 1, 1, gen_random_uuid(), 'x' FROM generate_series(1, $1::int)
    """,
    """
    WITH w AS (
      INSERT INTO daybell.worker (started_at, renewed_at, lease_until, tenant, pid, capacity, state,
                                  id, name, host, version, queues, kinds, labels, resources)
      SELECT daybell.now(), daybell.now(), daybell.now() + 1e6, 1, 1, 1, 1, gen_random_uuid(),
             'w', 'h', 'v', '{}', '{}', '{}', '{}'
        FROM generate_series(1, $1::int / 10000)
      RETURNING id)
    INSERT INTO daybell.lease (id, worker, tenant, ids, attempts)
    SELECT gen_random_uuid(), id, 1, ARRAY[gen_random_uuid()], ARRAY[1]
      FROM w, generate_series(1, 10)
    """,
    """
    WITH s AS (
      INSERT INTO daybell.schedule (tenant, id, job, rule, next_at)
      SELECT 1, gen_random_uuid(), j.key, '{"every": 60}', daybell.now() + 1e6
        FROM generate_series(1, $1::int) n, (SELECT key FROM daybell.job WHERE name = 'resize') j
      RETURNING id)
    INSERT INTO daybell.tick (tenant, schedule, at, decision) SELECT 1, id, 1e9 + 1e9, 1 FROM s
    """,
    """
    WITH r AS (
      INSERT INTO daybell.run (id, tenant, total, unended, running, ready, fail_fast, is_todo,
                               finished_at, job, version, lane, priority, depth)
      SELECT gen_random_uuid(), 1, 1, 0, 0, 0, false, false, daybell.now(), 1, 1, 1, 1, 0
        FROM generate_series(1, $1::int / 5)
      RETURNING id)
    INSERT INTO daybell.node (run, tenant, place, state, rule, label, edges, spec)
    SELECT id, 1, n, 4, 1, 'n' || n, '[]', '{}' FROM r, generate_series(1, 10) n
    """,
    """
    INSERT INTO daybell.wait (timeout_at, tenant, n, execution, event, key, match)
    SELECT daybell.now() + 1e6, 1, 0, gen_random_uuid(), 'paid', '"order":' || n,
           '{"order":' || n || '}'
      FROM generate_series(1, $1::int) n
    """,
    """
    WITH e AS (
      INSERT INTO daybell.event (received_at, tenant, id, source, name, data)
      SELECT daybell.now(), 1, gen_random_uuid(), 'load', 'paid', '{"order":' || n || '}'
        FROM generate_series(1, $1::int) n
      RETURNING received_at, number)
    INSERT INTO daybell.event_key (received_at, number, tenant, name, key)
    SELECT e.received_at, e.number, 1, 'paid', k.key
      FROM e, unnest(ARRAY['', '"order":' || e.number]) k(key)
    """,
    """
    INSERT INTO daybell.step (started_at, finished_at, tenant, n, failures, kind, is_done,
                              execution, name)
    SELECT daybell.now(), daybell.now(), 1, 0, 0, 1, true, gen_random_uuid(), 'charge'
      FROM generate_series(1, $1::int) n
    """,
    """
    INSERT INTO daybell.repeated (tenant, id)
    SELECT 1, gen_random_uuid() FROM generate_series(1, $1::int) n
    """,
    """
    INSERT INTO daybell.idempotency (tenant, status, id, digest, key)
    SELECT 1, 200, gen_random_uuid(), '', 'key-' || gen_random_uuid()
      FROM generate_series(1, $1::int) n
    """,
)


async def new(store, count=1, **options):
    """Enqueue so many executions; a view would tell whether the job is there."""
    answers = await store.queue.enqueue(TENANT, [an_execution(**options) for _ in range(count)])
    return [answer.id for answer in answers]


async def hold(store, count=1, **options):
    """Enqueue and claim so many."""
    await new(store, count, **options)
    hands = await claim(store, count)
    assert len(hands.executions) == count
    return hands


async def work(store, clock):
    """The moves of a worker's executions, a claim asked for twice, and moves sent twice."""
    hands = await hold(store, 8)
    again = await claim(store, 8, worker=hands.worker, lease=hands.lease)
    assert len(again.executions) == 8
    await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    one, two, three, four, five, six, seven, _ = hands.executions
    await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(one, progress=0.5)])
    part = NewLogPart(id=one.id, attempt=1, lease=one.lease, number=1, text="x")
    await store.queue.write_log(TENANT, worker=hands.worker, parts=[part])
    await store.queue.record_sole(TENANT, worker=hands.worker, execution=one.id)
    moves = [success(one), success(two)], [death(three)], [retry(four, delay=0.0), success(five)]
    for batch in moves:
        assert await apply(store, hands, *batch) == []
        assert await apply(store, hands, *batch) == []
    assert await apply(store, hands, after_release(six)) == []
    await store.queue.cancel(TENANT, [seven.id])
    await apply(store, hands, success(seven))
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    hands = await claim(store, 3)
    await store.queue.drain(TENANT, hands.worker)
    await store.queue.retire(TENANT, hands.worker)
    lost = (await store.queue.lost()).executions
    losses = [after_loss(one.claimed, max_crashes=1) for one in lost]
    await store.queue.apply(TENANT, worker=hands.worker, transitions=losses, wait=False)
    hands = await hold(store, 2)
    await clock.advance(61)
    lost = (await store.queue.lost()).executions
    losses = [after_loss(one.claimed, max_crashes=9) for one in lost]
    await store.queue.apply(TENANT, worker=hands.worker, transitions=losses, wait=False)
    assert await store.queue.revive(TENANT, [three.id]) == ["revived"]
    hands = await take(store)
    await apply(store, hands, *map(death, hands.executions))
    await store.queue.discard(TENANT, [three.id])


async def submit(store, clock):
    """The ways into a queue, some sent twice; delays, keys, expiry and quotas."""
    both = [an_execution(), an_execution(unique_key="k", delay=5.0)]
    await store.queue.enqueue(TENANT, both)
    await store.queue.enqueue(TENANT, both, repeat=True)
    await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])
    await store.queue.load(TENANT, [an_execution(), an_execution()])
    await new(store, 2, expires_in=1.0, delay=100.0)
    await new(store, expires_in=1.0)
    await clock.advance(5)
    await expire(store)
    await limit(store, running=3)
    hands = await claim(store, 10)
    assert len(hands.executions) == 3
    await apply(store, hands, *map(success, hands.executions))
    await new(store)
    await limit(store)
    hands = await claim(store, 10)
    await apply(store, hands, *map(success, hands.executions))
    await store.queue.enqueue(TENANT, both, repeat=True)
    async with store.db.link() as link:
        await link.fetch("SELECT * FROM daybell.enqueue('resize', '{}', '{\"unique_key\": \"q\"}')")
    ids = await new(store, 2, delay=3.0)
    await store.queue.cancel(TENANT, ids)
    hands = await take(store)
    await apply(store, hands, *map(success, hands.executions))


async def pass_gates(store, clock):
    await set_gates(store, TENANT, {"g": 1})
    ids = await new(store, 3, gate="g")
    await new(store, gate="g", delay=1.0)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    hands = await claim(store)
    await apply(store, hands, retry(hands.one, delay=0.0))
    hands = await claim(store)
    await apply(store, hands, death(hands.one))
    await clock.advance(2)
    await store.queue.cancel(TENANT, ids)
    await admit(store)
    hands = await claim(store)
    await store.queue.retire(TENANT, hands.worker)
    lost = [after_loss(one.claimed, max_crashes=0) for one in (await store.queue.lost()).executions]
    await store.queue.apply(TENANT, worker=hands.worker, transitions=lost, wait=False)
    await store.queue.cancel(TENANT, [one.id for one in hands.executions])


async def fire(store, clock, schedule, *ticks, **options):
    due = await store.schedules.due_schedules(limit=10)
    [current] = [one for one in due.schedules if one.id == schedule.id]
    assert await store.schedules.fire([a_firing(current, *ticks, **options)]) == [True]


async def follow_schedules(store, clock):
    plain = a_schedule("report", next_at=clock.now())
    fixed = a_schedule("clean", next_at=clock.now(), delay=5.0, pause_after=3)
    await put(store, plain, fixed)
    await fire(store, clock, plain)
    await fire(store, clock, fixed)
    await clock.advance(60)
    await store.schedules.due_schedules(limit=10, free=True)
    missed = Tick(at=clock.now(), until=clock.now(), count=2, decision=Decision.MISSED)
    tick = a_tick(clock.now(), job="report", schedule=plain.id)
    await fire(store, clock, plain, replace(missed, at=clock.now() - 0.5), tick)
    hands = await claim(store)
    assert len(hands.executions) == 2
    await apply(store, hands, *(success(one) for one in hands.executions))
    await clock.advance(60)
    await fire(store, clock, fixed)
    hands = await claim(store)
    await apply(store, hands, *map(death, hands.executions))
    await rearm_schedules(store)
    back = ScheduleRewind(
        tenant=TENANT, schedule=plain.id, expect=clock.now(), next_at=clock.now(), now=clock.now()
    )
    await store.schedules.turn_back([back])
    await store.schedules.pause_job(TENANT, "report")
    await store.schedules.resume_job(TENANT, "report")
    await store.schedules.delete_schedules(TENANT, [plain.id, fixed.id])


async def follow_dependencies(store, clock):
    await defined(store, "extract")
    schedules = [a_schedule("load", next_at=clock.now()) for _ in range(2)]
    await put(store, *schedules, dependencies=("extract",), overlap="allow")
    for schedule in schedules:
        tick = a_tick(clock.now(), job="load", schedule=schedule.id, wait_for_dependencies=True)
        await fire(store, clock, schedule, tick)
    waiting = (await store.schedules.dependents(limit=10)).waiting
    await store.schedules.ended_since(TENANT, [("extract", 0.0), ("load", clock.now() - 10)])
    assert await store.schedules.release_dependents(TENANT, [waiting[0].id]) == 1
    assert await store.schedules.rule_out_dependents(TENANT, [waiting[1].id]) == 1
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await store.schedules.delete_schedules(TENANT, [schedule.id for schedule in schedules])


async def take_steps(store, clock):
    hands = await hold(store)
    order = f'{{"order": "{mint()}"}}'
    steps = [a_step(hands.one, 0), a_step(hands.one, 1, event="paid", match=order, timeout=1.0)]
    await store.runs.record(TENANT, worker=hands.worker, steps=steps[:1])
    await store.runs.record(TENANT, worker=hands.worker, steps=steps)
    await apply(store, hands, after_wait(hands.one, ran=0.0))
    assert (await store.runs.publish(TENANT, an_event(data=order))).resumed == 1
    again = await claim(store)
    assert len(await store.runs.steps(TENANT, hands.one.id)) == 2
    wait = a_step(again.one, 2, event="paid", match='{"order": -5}', timeout=1.0)
    await store.runs.record(TENANT, worker=again.worker, steps=[wait])
    await apply(store, again, after_wait(again.one, ran=0.0))
    await clock.advance(2)
    await store.queue.lost()
    assert await expire(store) == 1
    final = await claim(store)
    await apply(store, final, success(final.one))


async def follow_runs(store, clock):
    for failing in ([], ["each[1]"]):
        run = await begun(store, a_mapped_plan())
        await run_to_end(store, failing=failing, results={"list": [1, 2, 3]})
    assert (await store.queue.revive(TENANT, [run]))[0] == "revived"
    await store.queue.cancel(TENANT, [run])
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2, 3]})
    await store.queue.cancel(TENANT, [run])
    await advance_runs(store)


async def keep_up(store, clock):
    await store.admin.lead("upkeep", holder=mint(), lease=10.0)
    await retain(store, Retention())
    await admit(store)
    await expire(store)
    await rearm_schedules(store)
    await advance_runs(store)
    await store.queue.lost()


SCENARIO = (
    work,
    submit,
    pass_gates,
    follow_schedules,
    follow_dependencies,
    take_steps,
    follow_runs,
    keep_up,
)


async def play(store, clock):
    await defined(store)
    for part in SCENARIO:
        await part(store, clock)


def faults(query, plan):
    """What is wrong with how a statement was run."""
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if pages > PAGES_MAX:
        scans = {node.get("Index Name") or node.get("Relation Name") for node in nodes(plan)}
        used = sorted(name for name in scans if name is not None)
        yield f"reads {pages} pages through {used}: {' '.join(query.split())[:300]}"


def replan(database):
    """Have every prepared statement planned now, as a pool's connections keep it."""

    async def plan():
        for (connection, _), statement in database.prepared.items():
            count = len(statement.get_parameters())
            values = f"({', '.join(['NULL'] * count)})" if count else ""
            await connection.fetch(f'EXPLAIN EXECUTE "{statement.get_name()}"{values}')

    return plan


# Right statistics are the easy case.
IN_SUITE = [
    pytest.param(state, marks=[pytest.mark.all_only] if state == "full" else []) for state in STATES
]


@pytest.mark.slow
@pytest.mark.parametrize("state", IN_SUITE)
async def test_no_hot_statement_depends_on_statistics(place, sql, clock, state):
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    await play(store, clock)

    async def load(rows):
        for statement in LOAD:
            await sql.execute(statement, rows)

    await make_statistics(sql, state, load, ROWS, plan=replan(database))
    database.plans = seen = []

    await play(store, clock)

    wrong = {fault for query, plan in seen for fault in faults(query, plan)}
    assert not wrong, "\n".join(sorted(wrong))
    await store.close()


@pytest.mark.parametrize(("slow", "looks"), [(60.0, False), (-1.0, True)])
async def test_table_sizes_are_read_after_a_slow_statement_but_not_when_idle(
    place, monkeypatch, slow, looks
):
    settings = {"SIZES_SECONDS": 0.0, "SIZES_FIRST_SECONDS": 0.0, "SLOW_SECONDS": slow}
    for name, value in settings.items():
        monkeypatch.setattr(f"daybell.store.postgres.connection.{name}", value)
    store = PostgresStore(place.url)
    await store.open()

    for _ in range(5):
        await store.catalog.list_workers("default")

    await store.close()
    assert (store.db._table_sizes is not None) == looks


async def test_no_operation_waits_for_the_sizes_of_the_tables(place, monkeypatch):
    settings = {"SIZES_SECONDS": 0.0, "SIZES_FIRST_SECONDS": 0.0, "SLOW_SECONDS": -1.0}
    for name, value in settings.items():
        monkeypatch.setattr(f"daybell.store.postgres.connection.{name}", value)
    is_read, goes_on = asyncio.Event(), asyncio.Event()
    read_sizes = Database.read_sizes

    async def read_late(self, link):
        is_read.set()
        await goes_on.wait()
        await read_sizes(self, link)

    monkeypatch.setattr(Database, "read_sizes", read_late)
    store = PostgresStore(place.url)
    await store.open()
    await store.catalog.list_workers("default")
    await store.catalog.list_workers("default")
    await is_read.wait()

    for _ in range(5):
        await store.catalog.list_workers("default")

    assert store.db._table_sizes is None
    goes_on.set()
    await store.close()
    assert store.db._table_sizes is not None

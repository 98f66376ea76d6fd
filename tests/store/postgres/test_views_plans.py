"""Views read a page, however much waits and however long the history is.

Plans are made when the planner knows least: see `tests.store.postgres.statistics`. Rows are
counted, never time.
"""

from typing import Any
from uuid import UUID

import pytest

from daybell.core.checks import schedule_cursor
from daybell.core.execution import TERMINAL, State
from daybell.core.ids import mint
from daybell.core.job import DECLARED_MAX, LOOKED_AT_MAX, TEMPLATES
from daybell.core.limits import COUNT_ITEMS_MAX, SCAN_ITEMS_MAX
from daybell.core.views import ExecutionFilter
from daybell.store.postgres import PostgresStore
from tests.builders import TENANT, a_schedule, defined
from tests.store.postgres.statistics import STATES, make_statistics
from tests.store.postgres.test_queue_plans import ExplainedDatabase, nodes

PAGE = 50
ROWS = 25_000  # of each, more than any view may read
JOBS = ("common", "rare", "idle", "timed")
BUSY, ABSENT = UUID(int=1), UUID(int=2)
BEHIND = schedule_cursor(a_schedule("timed", next_at=0.0, id=UUID(int=0)))
LARGE = ("live", "agenda", "history", "dead", "attempt", "schedule", "parked")
LIVE = """
    WITH v AS (
      INSERT INTO daybell.live (created_at, run_at, tenant, job, version, lane, state, priority, id,
                                args)
      SELECT daybell.now(), daybell.now() + CASE WHEN n % 20 = 0 THEN 1000 ELSE -n / 1e6 END, 1,
             j.key, 1, l.key, CASE WHEN n % 20 = 0 THEN 2 ELSE 1 END, 1,
             (lpad(to_hex(n + $2::bigint), 12, '0') || substr(md5(random()::text), 1, 20))::uuid,
             '{}'
        FROM generate_series(1, $1::int) n,
             LATERAL (SELECT key FROM daybell.job
                       WHERE name = CASE WHEN n % 1000 = 1 THEN 'rare' ELSE 'common' END) j,
             (SELECT min(key) AS key FROM daybell.lane) l
      RETURNING run_at, lane, priority, id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v
"""
PARKED = """
    WITH v AS (
      INSERT INTO daybell.live (created_at, run_at, tenant, job, version, lane, state, priority, id,
                                args, gate)
      SELECT daybell.now(), daybell.now() - n / 1e6, 1, j.key, 1, l.key, 4, 1,
             (lpad(to_hex(n + $2::bigint), 12, '0') || substr(md5(random()::text), 1, 20))::uuid,
             '{}', 'job:single'
        FROM generate_series(1, $1::int) n,
             (SELECT key FROM daybell.job WHERE name = 'single') j,
             (SELECT min(key) AS key FROM daybell.lane) l
      RETURNING gate, run_at, priority, id)
    INSERT INTO daybell.parked (tenant, gate, priority, run_at, id)
    SELECT 1, gate, priority, run_at, id FROM v
"""
ENDED = f"""
    INSERT INTO daybell.{{}} (created_at, run_at, finished_at, tenant, job, version, lane, state,
                              priority, attempt, failures, crashes, id, args, outcome, worker)
    SELECT 0, 0, daybell.now() - 60, 1, j.key, 1, l.key, {{}}, 1, 1, 0, 0,
           (lpad(to_hex(n + $2::bigint), 12, '0') || substr(md5(random()::text), 1, 20))::uuid,
           '{{{{}}}}', 1, '{BUSY}'
      FROM generate_series(1, $1::int) n, (SELECT key FROM daybell.job WHERE name = 'common') j,
           (SELECT min(key) AS key FROM daybell.lane) l
"""


# The schedules of a job that has nearly all, and of one that has few; next times come in no order.
SCHEDULES = """
    INSERT INTO daybell.schedule (tenant, id, job, name, rule, args, misfire, next_at, is_declared,
                                  is_paused, is_reboot, own_gate)
    SELECT 1, (lpad(to_hex(n + $2::bigint), 12, '0') || substr(md5(random()::text), 1, 20))::uuid,
           j.key, 's' || n + $2::bigint, '{"every":60}', '{}', '',
           CASE WHEN n % 10 > 0 THEN daybell.now() + 1e6 * random() END, n % 5000 = 2, false, false,
           true
      FROM generate_series(1, $1::int) n,
           LATERAL (SELECT key FROM daybell.job
                     WHERE name = CASE WHEN n % 1000 = 1 THEN 'rare' ELSE 'timed' END) j
"""


def listed(most=4 * PAGE, /, **where: Any):
    """A page, and how many rows it may read."""
    return lambda store: store.catalog.list_executions(
        TENANT, ExecutionFilter(**where), limit=PAGE
    ), most


def counted(**where: Any):
    return lambda store: store.catalog.count_executions(
        TENANT, ExecutionFilter(**where)
    ), COUNT_ITEMS_MAX


async def place_of_one(store, state, job):
    where = ExecutionFilter(states=frozenset({state}), job=job)
    for one in (await store.catalog.list_executions(TENANT, where, limit=1)).items:
        await store.catalog.get_position(TENANT, one.id)


PENDING = frozenset({State.QUEUED, State.SCHEDULED, State.RETRYING, State.WAITING})
VIEWS = {
    "jobs": (lambda store: store.catalog.list_jobs(TENANT), 0),
    "looks": (lambda store: store.catalog.job_activity(TENANT, JOBS), 2 * LOOKED_AT_MAX),
    "looks at schedules": (
        lambda store: store.catalog.job_activity(TENANT, ["timed", "rare"]),
        2 * DECLARED_MAX,
    ),
    "job": (lambda store: store.catalog.get_job(TENANT, "common"), 0),
    "jobs by name": (lambda store: store.catalog.get_jobs(TENANT, JOBS), 0),
    "versions": (lambda store: store.catalog.list_versions(TENANT, "common"), 0),
    "schedules": (
        lambda store: store.schedules.list_job_schedules(TENANT, "timed", limit=PAGE),
        2 * PAGE,
    ),
    "few schedules": (
        lambda store: store.schedules.list_job_schedules(TENANT, "rare", limit=PAGE),
        2 * PAGE,
    ),
    "more schedules": (
        lambda store: store.schedules.list_job_schedules(
            TENANT, "timed", limit=PAGE, cursor=BEHIND
        ),
        2 * PAGE,
    ),
    "no schedules": (lambda store: store.schedules.list_job_schedules(TENANT, "idle"), 0),
    "some schedules": (
        lambda store: store.schedules.list_schedules(
            TENANT, job="timed", ids=[mint() for _ in range(5)]
        ),
        0,
    ),
    "all schedules": (
        lambda store: store.schedules.list_schedules(TENANT, after=UUID(int=1), limit=PAGE),
        2 * PAGE,
    ),
    "estimate": (
        lambda store: store.catalog.estimate_executions(TENANT, ExecutionFilter()),
        4 * SCAN_ITEMS_MAX,
    ),
    "queues": (lambda store: store.catalog.list_queues(TENANT), COUNT_ITEMS_MAX),
    "backlogs": (lambda store: store.catalog.list_backlogs(TENANT, "default"), COUNT_ITEMS_MAX),
    "place in a queue": (
        lambda store: place_of_one(store, State.QUEUED, "common"),
        COUNT_ITEMS_MAX,
    ),
    "place at a gate": (
        lambda store: place_of_one(store, State.WAITING, "single"),
        COUNT_ITEMS_MAX,
    ),
    "workers": (lambda store: store.catalog.list_workers(TENANT), 0),
    "activity": (lambda store: store.catalog.activity(TENANT), PAGE),
    "events": (lambda store: store.runs.list_events(TENANT), 0),
    "audit": (lambda store: store.admin.list_audit(TENANT), 0),
    "templates": (lambda store: store.admin.list_records(TENANT, TEMPLATES), 0),
    "all": listed(),
    "queued": listed(states=frozenset({State.QUEUED})),
    "scheduled": listed(30 * PAGE, states=frozenset({State.SCHEDULED})),
    "pending": listed(states=PENDING),
    "running": listed(states=frozenset({State.RUNNING})),
    "waiting": listed(states=frozenset({State.WAITING})),
    "retrying": listed(states=frozenset({State.RETRYING})),
    "succeeded": listed(states=frozenset({State.SUCCEEDED})),
    "cancelled": listed(states=frozenset({State.CANCELLED})),
    "ended": listed(states=TERMINAL),
    "with nodes": listed(with_nodes=True),
    "dead letters": listed(dead_letters=True),
    "dead letters of a job": listed(dead_letters=True, job="rare"),
    "of a job": listed(job="common"),
    "of a rare job": listed(job="rare"),
    "of an idle job": listed(job="idle"),
    "ended of a job": listed(job="common", states=TERMINAL),
    "cancelled of a job": listed(SCAN_ITEMS_MAX, job="common", states=frozenset({State.CANCELLED})),
    "of a worker": listed(worker=BUSY),
    "of an absent worker": listed(SCAN_ITEMS_MAX, worker=ABSENT),
    "of a job and a worker": listed(SCAN_ITEMS_MAX, worker=ABSENT, job="common"),
    "of a queue": listed(queue="default"),
    "of an empty queue": listed(SCAN_ITEMS_MAX, queue="none"),
    "since": listed(SCAN_ITEMS_MAX, since=1e11),
    "until": listed(SCAN_ITEMS_MAX, until=-1.0),
    "of a schedule": listed(schedule=mint()),
    "of a parent": listed(parent=mint()),
    "logs": (lambda store: store.catalog.read_logs(TENANT, [mint() for _ in range(5)]), 0),
    "by ids": listed(ids=frozenset(mint() for _ in range(5))),
    "count": counted(),
    "count of a job": counted(job="common"),
    "count of a worker": counted(worker=BUSY),
    "count of a queue": counted(queue="default", states=PENDING, with_nodes=True),
    "count of dead letters": counted(dead_letters=True),
    "count by ids": counted(ids=frozenset({mint()})),
}


def rows_read(plan):
    """Rows of large tables that one statement has read, by the node that read most."""
    found = [0.0]
    for node in nodes(plan):
        table = node.get("Relation Name", "")
        if table.partition("_")[0] in LARGE and node["Node Type"] != "ModifyTable":
            removed = node.get("Rows Removed by Filter", 0) + node.get(
                "Rows Removed by Index Recheck", 0
            )
            found.append((node["Actual Rows"] + removed) * node["Actual Loops"])
    return max(found)


async def excess(store, names=tuple(VIEWS)):
    """Views that read more than they may."""
    wrong: list[str] = []
    for name in names:
        work, most = VIEWS[name]
        plans: list[tuple[str, Any]] = []
        store.db.plans = plans
        await work(store)
        store.db.plans = None
        read = max((rows_read(plan) for _, plan in plans), default=0)
        if read > most + 20:
            wrong.append(f"{name}: reads {read:.0f} rows, at most {most} expected")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rows", [ROWS, pytest.param(1_000_000, marks=pytest.mark.all_only)])
async def test_no_view_reads_more_than_its_page(place, sql, state, rows):
    store = PostgresStore(place.url)
    store.db = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    await defined(store, *JOBS, "single")
    loads = iter(range(0, 10**12, 10**9))

    async def load(count):
        await sql.execute(PARKED, count, next(loads))
        await sql.execute(LIVE, count, next(loads))
        await sql.execute(ENDED.format("history", 6), count, next(loads))
        await sql.execute(ENDED.format("dead", 7), count, next(loads))
        await sql.execute(SCHEDULES, count, next(loads))

    async def plan():
        assert await excess(store) == []

    try:
        await make_statistics(sql, state, load, rows, plan=plan)

        wrong = await excess(store)
    finally:
        await store.close()

    assert wrong == [], "\n".join(wrong)

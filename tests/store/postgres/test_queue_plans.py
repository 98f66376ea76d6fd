"""Statements keep a good plan: prepared while the tables were empty, run when they are full.

The server itself tells how it ran each statement, by EXPLAIN ANALYZE of what is prepared. Rows and
pages are counted, never time.
"""

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from daybell.core.execution import State
from daybell.core.job import LOOKED_AT_MAX
from daybell.core.lifecycle import after_loss
from daybell.core.worker import LEASE_SECONDS
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import _pace  # pyright: ignore[reportPrivateUsage]
from daybell.store.timeouts import Pace, timeouts_for
from tests.builders import TENANT, apply, claim, claimed, death, enqueued, retry, success
from tests.store.postgres.steps import SteppedDatabase, SteppedLink

ROWS = 200_000
BATCH = 100
PAGES_MAX = 25  # for each execution of a batch
ROWS_MAX = 20  # looked at for each that was wanted
WARM = 7  # after five, the server decides whether to keep one plan for good

FILL = """
    WITH v AS (
      INSERT INTO daybell.live (created_at, run_at, tenant, job, version, lane, state, priority, id,
                                args)
      SELECT daybell.now(), daybell.now() + (n % 2) * 1000, 1, v.job, v.version, v.lane, 1 + n % 2,
             1, gen_random_uuid(), '{}'
        FROM generate_series(1, $1::int) n, (SELECT job, version, lane FROM daybell.live LIMIT 1) v
      RETURNING run_at, lane, priority, id)
    INSERT INTO daybell.agenda (run_at, lane, priority, id)
    SELECT run_at, lane, priority, id FROM v
"""
BIG = ("live", "agenda")


class ExplainedLink(SteppedLink):
    """A connection that keeps every statement prepared, and can tell how each was run."""

    def __init__(self, connection, database):
        super().__init__(connection, database.stop)
        self._database = database

    async def _prepared(self, query, args):
        prepared = self._database.prepared
        if (self.connection, query) not in prepared:
            prepared[self.connection, query] = await self.connection.prepare(query)
        statement = prepared[self.connection, query]
        if self._database.plans is not None:
            self._database.plans.append((query, await self._explained(statement, args)))
        return statement

    async def _explained(self, statement, args):
        """How it is run with these arguments; what it did is undone."""
        values = f"({', '.join(map(literal, args))})" if args else ""
        transaction = self.connection.transaction()
        await transaction.start()
        text = await self.connection.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT JSON)"
            f' EXECUTE "{statement.get_name()}"{values}'
        )
        await transaction.rollback()
        return json.loads(str(text))[0]["Plan"]

    async def fetch(self, query, *args):
        return await (await self._prepared(query, args)).fetch(*args)

    async def fetchrow(self, query, *args):
        return await (await self._prepared(query, args)).fetchrow(*args)

    async def fetchval(self, query, *args):
        return await (await self._prepared(query, args)).fetchval(*args)

    async def execute(self, query, *args):
        statement = await self._prepared(query, args)
        await statement.fetch(*args)
        return statement.get_statusmsg()


class ExplainedDatabase(SteppedDatabase):
    """Hands out such connections."""

    def __init__(self, url, *, reads_sizes=False):
        super().__init__(url)
        self._reads_sizes = reads_sizes  # at each use, rather than now and then
        self.prepared = {}
        self.plans: list[tuple[str, Any]] | None = None  # once plans are wanted

    @asynccontextmanager
    async def _borrowed(self, pace=None):
        async with super()._borrowed(pace) as link:
            if self._reads_sizes:
                await self.read_sizes(link.connection)
            await self.replan(link.connection)
            planning = timeouts_for(LEASE_SECONDS, Pace(pace or _pace.get())).planning
            for name in ("enable_bitmapscan", "enable_mergejoin"):
                await link.connection.execute(f"SET {name} = {planning.get(name, 'on')}")
            yield ExplainedLink(link.connection, self)


def literal(value):
    """A value as it is written in SQL; the parameter knows its type."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return quoted(f"\\x{value.hex()}")
    if isinstance(value, float) and value.is_integer():
        return quoted(f"{value:.0f}")  # for bigint, too
    if isinstance(value, list | tuple):
        items = ["NULL" if item is None else json.dumps(str(item)) for item in value]
        return quoted("{" + ",".join(items) + "}")
    return quoted(str(value))


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def nodes(node):
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)


def faults(query, plan, batch):
    """What is wrong with a plan, for a statement about so many executions."""
    text = " ".join(query.split())[:80]
    for node in nodes(plan):
        kind = node["Node Type"]
        if node.get("Relation Name") not in BIG or kind == "ModifyTable":
            continue
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if kind == "Seq Scan":
            yield f"{text}: reads all of {node['Relation Name']}"
        elif kind.startswith("Index") and "Index Cond" not in node:
            yield f"{text}: walks all of {node['Index Name']}"
        elif rows > ROWS_MAX * batch:
            yield f"{text}: looks at {rows} rows of {node['Relation Name']}"
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if pages > PAGES_MAX * batch:
        yield f"{text}: touches {pages} pages for {batch} executions"


@pytest.fixture
async def filled(place, sql):
    """A store whose statements were all prepared on empty tables, which are full now."""
    store = PostgresStore(place.url)
    store.db = ExplainedDatabase(place.url)
    await store.open()
    for table in BIG:
        await sql.execute(f"ALTER TABLE daybell.{table} SET (autovacuum_enabled = off)")
    for _ in range(WARM):
        hands = await claimed(store, 6)
        await live(store, hands)
        await enqueued(store, 3)
        await lose(store, 3)
    await enqueued(store)
    await sql.execute(FILL, ROWS)
    await store.db.read_sizes(sql)
    yield store
    for table in BIG:
        await sql.execute(f"ALTER TABLE daybell.{table} RESET (autovacuum_enabled)")
    await store.close()


async def live(store, hands):
    """The moves of a life, a third of the executions each."""
    third = len(hands.executions) // 3
    one, two, three = (hands.executions[n * third : (n + 1) * third] for n in range(3))
    await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    assert await apply(store, hands, *map(success, one)) == []
    assert await apply(store, hands, *map(death, two)) == []
    assert await apply(store, hands, *map(retry, three)) == []


async def lose(store, count):
    """Give so many back, then claim them again and be lost with them."""
    hands = await claim(store, count)
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    hands = await claim(store, count, worker=hands.worker)
    await store.queue.retire(TENANT, hands.worker)
    moves = [
        after_loss(lost.claimed, max_crashes=1) for lost in (await store.queue.lost()).executions
    ]
    assert len(moves) == count
    verdicts = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)
    assert verdicts == []


def taken(store, batch):
    """What is wrong with the plans since the last call."""
    seen, store.db.plans = store.db.plans, []
    return [fault for query, plan in seen for fault in faults(query, plan, batch)]


@pytest.mark.slow
async def test_statements_prepared_on_empty_tables_are_as_good_on_full_ones(filled):
    filled.db.plans = []

    hands = await claim(filled, 3 * BATCH)
    assert len(hands.executions) == 3 * BATCH
    wrong = taken(filled, 3 * BATCH)
    await live(filled, hands)
    wrong += taken(filled, BATCH)
    await lose(filled, BATCH)
    wrong += taken(filled, BATCH)
    ids = await enqueued(filled, BATCH)
    await filled.queue.cancel(TENANT, ids)
    wrong += taken(filled, BATCH)

    assert wrong == [], "\n".join(wrong)


OLD = """
    INSERT INTO daybell.{table} (created_at, run_at, tenant, job, version, lane, state, priority,
                                 attempt, failures, crashes, id, args{more})
    SELECT 0, 0, 1, v.job, v.version, v.lane, {state}, 1, 1, 0, 0,
           ('018b0000' || lpad(to_hex(n), 24, '0'))::uuid, '{{}}'{values}
      FROM generate_series(1, $1::int) n, (SELECT job, version, lane FROM daybell.live LIMIT 1) v
"""


@pytest.mark.slow
async def test_a_look_at_the_last_seconds_reads_nothing_old(place, sql):
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url)
    await store.open()
    look = await store.catalog.activity(TENANT)
    hands = await claimed(store, 6)
    await live(store, hands)
    await enqueued(store)
    for table, state, more, values in (
        ("live", 1, "", ""),
        ("history", 6, ", finished_at", ", daybell.now()"),
        ("dead", 7, ", finished_at", ", daybell.now() - 3600"),
    ):
        await sql.execute(
            OLD.format(table=table, state=state, more=more, values=values), ROWS // 10
        )
    await sql.execute(
        "INSERT INTO daybell.attempt (ended_at, tenant, attempt, outcome, id)"
        " SELECT daybell.now() - 3600, 1, 1, 2, gen_random_uuid() FROM generate_series(1, $1::int)",
        ROWS // 10,
    )
    plans: list[tuple[str, Any]] = []
    database.plans = plans

    await store.catalog.activity(TENANT, since=look)

    (plan,) = [plan for query, plan in plans if "first_before" in query]
    scanned = [node for node in nodes(plan) if "Relation Name" in node]
    assert {node["Relation Name"].partition("_")[0] for node in scanned} >= {"live", "dead"}
    for node in scanned:
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        assert rows * node["Actual Loops"] <= 20, node
    await store.close()


@pytest.mark.slow
async def test_a_look_at_jobs_reads_no_more_than_it_says(place, sql):
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url)
    await store.open()
    for _ in range(WARM):
        await store.catalog.job_activity(TENANT, ["resize"])
    hands = await claimed(store, 6)
    await live(store, hands)
    await enqueued(store)
    await sql.execute(FILL, ROWS // 10)
    for table, state in (("history", 6), ("dead", 7)):
        more, values = ", finished_at", ", daybell.now()"
        await sql.execute(
            OLD.format(table=table, state=state, more=more, values=values), ROWS // 10
        )
    await sql.execute("ANALYZE")
    plans: list[tuple[str, Any]] = []
    database.plans = plans

    looks = await store.catalog.job_activity(TENANT, ["resize"])

    assert looks["resize"].unfinished >= {State.QUEUED, State.SCHEDULED}
    assert len(plans) <= 12
    for query, plan in plans:
        for node in nodes(plan):
            if node.get("Relation Name", "").partition("_")[0] in (*BIG, "history", "dead"):
                rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                assert node["Node Type"] != "Seq Scan" or rows == 0, query
                assert rows * node["Actual Loops"] <= LOOKED_AT_MAX + 20, query
    await store.close()

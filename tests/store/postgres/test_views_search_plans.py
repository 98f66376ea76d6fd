"""A page of a search reads a bounded number of rows, however many there are."""

from typing import Any

import pytest

from daybell.core.execution import TERMINAL
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.views import Content, ExecutionFilter
from daybell.store.postgres import PostgresStore
from tests.builders import TENANT, enqueued
from tests.store.postgres.test_queue_plans import FILL, OLD, ExplainedDatabase, nodes

ROWS = 50_000


@pytest.mark.slow
@pytest.mark.parametrize("analysed", ["never", "empty", "full"])
async def test_a_page_of_a_search_reads_a_bounded_number(place, sql, analysed):
    store = PostgresStore(place.url)
    store.db = database = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    await enqueued(store)
    if analysed == "empty":
        await sql.execute("ANALYZE daybell.live, daybell.agenda, daybell.history")
    await sql.execute(FILL, ROWS)
    ended = OLD.format(
        table="history", state=6, more=", finished_at", values=", daybell.now() + (n % 2) * 86400"
    )
    await sql.execute(ended, ROWS)
    if analysed == "full":
        await sql.execute("ANALYZE daybell.live, daybell.agenda, daybell.history")
    now = (await store.health()).now
    plans: list[tuple[str, Any]] = []
    database.plans = plans

    for content in (
        Content(args=(("order_id", "42"),)),
        Content(error="TimeoutError", unique_key="k"),
        Content(ended_until=now, args=(("order_id", "42"),)),
    ):
        plans.clear()
        where = ExecutionFilter(content=content, states=TERMINAL)
        page = await store.catalog.list_executions(TENANT, where)
        assert page.items == () and page.next_cursor is not None
        (plan,) = [plan for query, plan in plans if "daybell.history" in query]
        scanned = [node for node in nodes(plan) if "Relation Name" in node]
        read: dict[str, float] = {}
        for node in scanned:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            name = node["Relation Name"]
            read[name] = read.get(name, 0) + rows * node["Actual Loops"]
        assert sum(read.values()) <= 4 * SCAN_ITEMS_MAX, read
        if content.ended_until is not None:
            # Only today's partition is read, and the one for rows without a day.
            assert len({name for name in read if name.startswith("history_2")}) == 1, read
    await store.close()

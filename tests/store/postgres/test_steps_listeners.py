"""The listeners of an event are found by an index, whatever else the tenant has."""

import pytest

from daybell.store.postgres.schedules import FIELDS
from daybell.store.postgres.steps import KEEP_EVENT, LISTENERS

START = KEEP_EVENT.index("(SELECT true FROM daybell.schedule")
FIRES = KEEP_EVENT[START:].partition(" AS fires")[0]


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT {FIRES}".replace("$4", "'paid'::text"),
        LISTENERS.format(fields=FIELDS).replace("$2", "ARRAY['paid']"),
    ],
    ids=["fires", "listeners"],
)
async def test_listeners_are_found_by_their_index(store, statement):
    async with store.context.db.link() as link:
        rows = await link.fetch("EXPLAIN " + statement.replace("$1", "1"))

    plan = "\n".join(row[0] for row in rows)
    assert "schedule_event" in plan, plan
    assert "schedule_pkey" not in plan, plan
    assert "Seq Scan on schedule" not in plan, plan

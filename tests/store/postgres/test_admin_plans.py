"""How much is read to find a key, a page of the audit log, or what is left of a quota."""

from typing import Any

import pytest

from daybell.core.access import AuditFilter
from daybell.core.ids import mint
from daybell.store.postgres import PostgresStore
from tests.builders import TENANT, a_key, a_session, claim, enqueued
from tests.store.postgres.test_queue_plans import FILL, WARM, ExplainedDatabase, nodes

ROWS = 3000
KEYS = """
    INSERT INTO daybell.api_key (tenant, id, digest, role, name, hint, created_by)
    SELECT 1, gen_random_uuid(), sha256(n::text::bytea), 'viewer', 'k', 'dbk_abcd', ''
      FROM generate_series(1, $1::int) n
"""
ENTRIES = """
    INSERT INTO daybell.audit (at, tenant, id, actor, action, target, source, number, hash)
    SELECT n, 1, gen_random_uuid(), 'ana', 'job.update', 'x', '', n, ''
      FROM generate_series(1, $1::int) n
"""


@pytest.fixture
async def explained(place):
    store = PostgresStore(place.url)
    store.db = ExplainedDatabase(place.url, reads_sizes=True)
    await store.open()
    yield store
    await store.close()


async def plans_of(store, work):
    """The plans of the statements that something takes."""
    plans: list[tuple[str, Any]] = []
    store.db.plans = plans
    await work
    store.db.plans = None
    return [plan for _, plan in plans]


def looked_at(plan, table):
    """How many rows of a table were looked at, and by which sorts of node."""
    found = [node for node in nodes(plan) if node.get("Relation Name") == table]
    rows = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in found
    ]
    return sum(rows), {node["Node Type"] for node in found} - {"ModifyTable"}


async def test_a_key_is_found_by_one_look_at_an_index(explained, sql):
    for _ in range(WARM):
        await explained.admin.find_key(b"x")
        await explained.admin.touch_keys({mint(): 1.0})
    await sql.execute(KEYS, ROWS)
    made = await explained.admin.add_key(TENANT, a_key(digest=b"y" * 32))
    await explained.admin.add_session(TENANT, b"y" * 32, a_session(digest=b"s" * 32))

    (session,) = await plans_of(explained, explained.admin.find_key(b"s" * 32))
    rows, kinds = looked_at(session, "api_key")
    assert rows <= 2 and kinds == {"Index Scan"}  # the session, and its key
    (found,) = await plans_of(explained, explained.admin.find_key(b"y" * 32))
    (touched,) = await plans_of(explained, explained.admin.touch_keys({made.id: 1.0, mint(): 1.0}))

    rows, kinds = looked_at(found, "api_key")
    assert rows <= 1 and kinds == {"Index Scan"}
    assert looked_at(touched, "api_key")[0] <= 4


async def test_a_page_of_the_audit_log_reads_little_more_than_itself(explained, sql):
    for _ in range(WARM):
        await explained.admin.list_audit(TENANT, AuditFilter(since=1.0), cursor=str(mint()))
    await sql.execute(ENTRIES, ROWS)
    page = await explained.admin.list_audit(TENANT, limit=10)

    for where in (AuditFilter(), AuditFilter(until=1000.0), AuditFilter(since=2000.0)):
        (plan,) = await plans_of(explained, explained.admin.list_audit(TENANT, where, limit=10))
        assert looked_at(plan, "audit")[0] <= 30, where
    for going_on in (
        explained.admin.list_audit(TENANT, limit=10, cursor=page.next_cursor),
        explained.admin.read_audit_chain(TENANT, after=500, limit=10),
    ):
        (plan,) = await plans_of(explained, going_on)
        assert looked_at(plan, "audit")[0] <= 30


async def test_what_is_left_of_a_quota_is_counted_up_to_the_quota(explained, sql):
    await explained.admin.set_quotas(TENANT, queued=100_000, per_minute=100_000, running=20)
    for _ in range(WARM):
        await enqueued(explained)
        await claim(explained, 1)
    await sql.execute(FILL, ROWS)
    await explained.admin.set_quotas(TENANT, queued=100_000, running=20)

    plans = await plans_of(explained, claim(explained, 5))

    assert plans
    assert max(looked_at(plan, "live")[0] for plan in plans) <= 40

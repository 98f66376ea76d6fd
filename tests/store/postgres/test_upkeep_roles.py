"""A role that may run Daybell and change nothing of its schema."""

import re

import asyncpg
import pytest

from daybell.core.ids import mint
from daybell.core.views import Retention
from daybell.errors import SchemaError, Unavailable
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.upkeep import READ_ONLY, TABLES
from tests.builders import a_secret, an_entry, finished
from tests.store.postgres.lifecycle import live_through_everything
from tests.sweeps import retain

DAY = 86400.0


@pytest.fixture
async def role(place, store, sql):
    """A fresh role with the rights that running needs, as the owner gives them."""
    name = f"runner_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN")
    await sql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await store.grant(name)
    # The clock of the tests is not of the schema.
    await sql.execute(f"GRANT USAGE ON SCHEMA daybell_test TO {name}")
    await sql.execute(f"GRANT SELECT ON daybell_test.clock TO {name}")
    yield name
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def url(place, role):
    return place.url.replace("//postgres@", f"//{role}@")


@pytest.fixture
async def running(url):
    """A store that is opened by the role."""
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


async def test_a_role_without_ddl_rights_runs_everything(running):
    await live_through_everything(running)


async def test_such_a_role_makes_and_drops_days(running, clock, sql):
    await finished(running)
    await clock.advance(10 * DAY)

    removed = await retain(running, Retention(finished=5 * DAY))
    await finished(running)

    assert removed.partitions > 0
    assert await sql.fetchval("SELECT count(*) FROM daybell.history") == 1
    assert await sql.fetchval("SELECT count(*) FROM daybell.history_rest") == 0


async def test_such_a_role_writes_the_audit_log_and_removes_what_is_old(running, clock):
    await running.admin.write_audit("default", [an_entry()])
    await clock.advance(366 * DAY)
    await running.admin.write_audit("default", [an_entry("new.entry")])

    assert (await retain(running, Retention())).others == 1
    assert [entry.action for entry in (await running.admin.list_audit("default")).items] == [
        "new.entry"
    ]


async def test_such_a_role_may_ask_to_migrate_when_nothing_is_to_be_done(running):
    assert await running.pending_migrations() == ()
    assert await running.migrate() == ()


FORBIDDEN = {
    "create a table": "CREATE TABLE daybell.mine (x int)",
    "create a function": "CREATE FUNCTION daybell.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "drop a table": "DROP TABLE daybell.live",
    "drop a day": "DROP TABLE daybell.history_rest",
    "alter a table": "ALTER TABLE daybell.live ADD x int",
    "truncate a table": "TRUNCATE daybell.live",
    "add an index": "CREATE INDEX ON daybell.live (args)",
    "add a trigger": "CREATE TRIGGER t AFTER INSERT ON daybell.live EXECUTE FUNCTION f()",
    "replace the clock": "CREATE OR REPLACE FUNCTION daybell.now() RETURNS float8 LANGUAGE sql"
    " AS 'SELECT 1.0::float8'",
    "claim a migration": "INSERT INTO daybell.migration VALUES (9, 'x', 'x', true, now())",
    "change a migration": "UPDATE daybell.migration SET checksum = 'x'",
    "forget a migration": "DELETE FROM daybell.migration",
    "give its rights away": "SELECT daybell.grant_to('pg_monitor')",
    "give a part of its rights away": "SELECT daybell.grant_enqueue_to('pg_monitor')",
    "change the audit log": "UPDATE daybell.audit SET actor = 'eve'",
    "cut the audit log": "DELETE FROM daybell.audit",
    "empty the audit log": "TRUNCATE daybell.audit",
    "forge an entry": "INSERT INTO daybell.audit (tenant, id, actor, action, target, source)"
    " VALUES (1, gen_random_uuid(), 'eve', 'a.b', 'x', '')",
    "forge a chain": "INSERT INTO daybell.audit_head (tenant, number, hash) VALUES (1, 0, '')",
    "move the head of a chain": "UPDATE daybell.audit_head SET number = 0",
    "forget a chain": "DELETE FROM daybell.audit_head",
    "put an old secret back": "UPDATE daybell.secret SET sealed = 'x', version = version - 1",
    "put an old value back": "UPDATE daybell.secret SET sealed = 'x'",
    "move a secret": "UPDATE daybell.secret SET name = 'B', version = version + 1",
    "remove a secret": "DELETE FROM daybell.secret",
    "drop the schema": "DROP SCHEMA daybell CASCADE",
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_such_a_role_cannot(url, store, statement):
    await store.admin.set_secret("default", a_secret(key_id="k1"))
    connection = await asyncpg.connect(url)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_days_cannot_be_used_to_make_or_drop_anything_else(url, sql):
    connection = await asyncpg.connect(url)
    before = await tables(sql)
    for parent in ("live", "history; DROP TABLE daybell.live", "history_rest", "migration", "%I"):
        made = "SELECT daybell.make_day($1, '2020-01-01')"
        assert await connection.fetchval(made, parent) is False
        assert await connection.fetchval("SELECT daybell.drop_days($1, 'infinity')", parent) == 0
    assert await tables(sql) == before
    await connection.close()


async def test_decoys_in_a_temporary_schema_do_not_fool_what_runs_as_the_owner(url, sql):
    connection = await asyncpg.connect(url)
    before = await tables(sql)
    await connection.execute(
        "CREATE TEMP TABLE pg_class AS SELECT * FROM pg_catalog.pg_class;"
        "CREATE TEMP TABLE pg_inherits AS SELECT * FROM pg_catalog.pg_inherits;"
        "UPDATE pg_temp.pg_class SET relname = 'history_20000101' WHERE relname = 'history_rest'"
    )
    assert await connection.fetchval("SELECT daybell.drop_days('history', 1e9)") == 0
    assert await tables(sql) == before
    await connection.close()


async def tables(sql, kinds="rpiIS"):
    rows = await sql.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'daybell'::regnamespace"
        " AND strpos($1, relkind::text) > 0 ORDER BY 1",
        kinds,
    )
    return [row["relname"] for row in rows]


async def test_a_role_without_any_rights_is_told_so(place, sql):
    name = f"stranger_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN")
    stranger = PostgresStore(place.url.replace("//postgres@", f"//{name}@"))

    with pytest.raises(Unavailable, match="permission denied") as caught:
        await stranger.open()

    assert re.search("grant|rights", str(caught.value))
    await sql.execute(f"DROP ROLE {name}")


LACKING = {
    "INSERT ON daybell.log": "write daybell.log",
    "SELECT ON daybell.audit": "read daybell.audit",
    "EXECUTE ON FUNCTION daybell.record_audit": "call daybell.record_audit",
    "SELECT ON daybell.live": "read daybell.live",
    "UPDATE ON daybell.live, daybell.dead": "write daybell.dead, daybell.live",
    "EXECUTE ON FUNCTION daybell.make_days": "call daybell.make_days",
}


@pytest.mark.parametrize(("right", "what"), LACKING.items(), ids=LACKING)
async def test_a_role_that_lacks_a_right_is_refused_before_it_starts(sql, role, url, right, what):
    await sql.execute(f"REVOKE {right} FROM {role}")
    lacking = PostgresStore(url)

    with pytest.raises(SchemaError) as caught:
        await lacking.open()

    assert str(caught.value) == (
        f"role {role} may not {what}; run `daybell migrate --grant {role}` as the owner"
    )
    assert not lacking.db.is_open


async def test_every_table_is_asked_for_but_for_days_and_migrations(sql):
    found = set(await tables(sql, kinds="rp"))

    days = {name for name in found if re.search(r"_\d{8}$", name)}

    assert {*TABLES, *READ_ONLY} == found - days - {"migration"}

"""`SELECT daybell.enqueue(…)` by others: who may, and that nothing they set matters."""

import json

import asyncpg
import pytest

from daybell.core.ids import mint
from tests.builders import defined, look
from tests.store.postgres.invariants import violations
from tests.store.postgres.sql_calls import MANY, enqueue


@pytest.fixture
async def role(place, sql):
    """A connection of a role that may enqueue and nothing else."""
    name = f"shop_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN")
    await sql.execute("SELECT daybell.grant_enqueue_to($1)", name)
    connection = await asyncpg.connect(place.url.replace("//postgres@", f"//{name}@"))
    yield connection
    await connection.close()
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_with_the_right_to_enqueue_can_do_that_and_nothing_else(store, sql, role):
    await defined(store)

    id = await enqueue(role, queue="brand-new")
    many = await role.fetch(MANY, "resize", ["{}", "{}"], "{}")

    assert (await look(store, id)).queue == "brand-new"
    assert len(many) == 2
    others = await sql.fetch(
        "SELECT oid::regprocedure::text AS name FROM pg_proc"
        " WHERE pronamespace = 'daybell'::regnamespace"
        " AND has_function_privilege($1, oid, 'EXECUTE')",
        await role.fetchval("SELECT current_user"),
    )
    assert {row["name"].partition("(")[0] for row in others} == {
        "daybell.enqueue",
        "daybell.enqueue_many",
        "daybell.now",
    }
    for statement in (
        "SELECT * FROM daybell.live",
        "INSERT INTO daybell.agenda VALUES (0, 1, 1, gen_random_uuid())",
        "SELECT * FROM daybell.job",
        "SELECT daybell.grant_enqueue_to('pg_monitor')",
        "CREATE TABLE daybell.mine (x int)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await role.execute(statement)


async def test_without_the_right_it_is_refused(store, place, sql):
    name = f"stranger_{mint().hex}"
    await sql.execute(f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA daybell TO {name}")
    stranger = await asyncpg.connect(place.url.replace("//postgres@", f"//{name}@"))

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await enqueue(stranger)

    await stranger.close()
    await sql.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


TRAPS = {
    "now": "() RETURNS float8",
    "clock_timestamp": "() RETURNS timestamptz",
    "gen_random_uuid": "() RETURNS uuid",
    "pg_notify": "(text, text) RETURNS void",
    "jsonb_typeof": "(jsonb) RETURNS text",
    "lower": "(text) RETURNS text",
    "left": "(text, int) RETURNS text",
    "cardinality": "(anyarray) RETURNS int",
    "octet_length": "(text) RETURNS int",
}


async def test_nothing_that_a_caller_sets_matters(store, sql, role):
    await defined(store)
    user = await role.fetchval("SELECT current_user")
    await sql.execute(f"CREATE SCHEMA {user} AUTHORIZATION {user}")
    for name, rest in TRAPS.items():
        await role.execute(
            f'CREATE FUNCTION {user}."{name}"{rest} LANGUAGE plpgsql'
            " AS $$ BEGIN RAISE 'trapped'; END $$"
        )
    await role.execute("CREATE TEMP TABLE lane (trap int); CREATE TEMP TABLE live (trap int)")
    await role.execute(
        f"SET search_path = {user}, pg_temp, pg_catalog; SET standard_conforming_strings = off;"
        " SET escape_string_warning = off; SET TimeZone = 'Asia/Kathmandu';"
        " SET DateStyle = 'SQL, DMY'; SET extra_float_digits = -15; SET transform_null_equals = on;"
        " SET enable_indexscan = off; SET plpgsql.extra_errors = 'all'"
    )

    asked = {"at": "2036-05-04T01:02:03+00:00", "expires": "1.5h", "priority": "HIGH", "queue": "q"}
    id = await enqueue(role, args='{"a": "\\u00e4"}', **asked)

    found = await look(store, id)
    assert (found.run_at, found.queue, json.loads(found.args)) == (2093475723.0, "q", {"a": "ä"})
    assert found.expires_at == found.run_at + 5400
    assert await violations(sql) == []

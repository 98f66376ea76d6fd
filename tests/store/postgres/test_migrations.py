"""The schema: made once, whoever asks, and refused when it does not fit."""

import asyncio

import asyncpg
import pytest

from daybell.errors import SchemaError
from daybell.store.ids import mint
from daybell.store.postgres import PostgresStore
from tests.builders import steps
from tests.store.postgres.lifecycle import live_through_everything
from tests.stores import POSTGRES


@pytest.fixture
async def empty(kind, servers):
    """The URL of a database with nothing in it."""
    async with servers.database(POSTGRES[kind]) as url:
        yield url


@pytest.fixture
async def admin(empty):
    connection = await asyncpg.connect(empty)
    yield connection
    await connection.close()


@pytest.fixture
async def fresh(empty):
    """A store on it, neither migrated nor open."""
    made = PostgresStore(empty)
    yield made
    await made.close()


async def test_a_fresh_database_is_migrated_once(fresh):
    pending = await fresh.pending_migrations()
    assert pending[0] == "0001_initial"

    assert await fresh.migrate() == pending
    assert await fresh.migrate() == ()
    assert await fresh.pending_migrations() == ()


async def test_two_that_migrate_at_once_make_each_step_once(fresh, empty):
    other = PostgresStore(empty)

    answers = await asyncio.gather(fresh.migrate(), other.migrate())

    assert sorted(answers) == [(), steps("postgres")]
    await other.close()


async def test_an_unmigrated_database_is_refused_and_the_way_out_is_named(fresh):
    with pytest.raises(SchemaError, match="daybell migrate"):
        await fresh.open()


async def test_a_migration_that_was_edited_is_noticed(fresh, admin):
    await fresh.migrate()
    await admin.execute("UPDATE daybell.migration SET checksum = 'other'")

    for act in (fresh.open, fresh.migrate, fresh.pending_migrations):
        with pytest.raises(SchemaError, match="0001"):
            await act()


async def test_a_newer_schema_that_is_compatible_is_worked_with(fresh, admin):
    await fresh.migrate()
    await admin.execute("INSERT INTO daybell.migration VALUES (7, 'later', 'x', false)")

    await fresh.open()

    assert (await fresh.health()).schema == 7


async def test_a_newer_schema_that_is_breaking_is_refused_and_named(fresh, admin):
    await fresh.migrate()
    await admin.execute("INSERT INTO daybell.migration VALUES (7, 'later', 'x', true)")

    with pytest.raises(SchemaError, match=r"newer.*0007 \(later\).*[Uu]pgrade"):
        await fresh.open()


async def test_a_migration_that_fails_leaves_nothing_behind(fresh, admin):
    await admin.execute("CREATE SCHEMA daybell; CREATE TABLE daybell.live (x int)")

    with pytest.raises(Exception, match="live"):
        await fresh.migrate()

    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'daybell'")
    assert [row["tablename"] for row in rows] == ["live"]


DECOYS = ["live", "agenda", "lease", "worker", "history", "dead", "attempt", "migration", "tenant"]


async def test_a_hostile_search_path_does_not_matter(empty, admin):
    role = f"runner_{mint().hex}"
    await admin.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
    await admin.execute("CREATE SCHEMA decoy")
    for table in DECOYS:
        await admin.execute(f"CREATE TABLE decoy.{table} (trap int)")
    for name, result in (("now", "float8"), ("make_days", "int"), ("mint", "uuid")):
        await admin.execute(
            f"CREATE FUNCTION decoy.{name}() RETURNS {result} LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE 'the decoy was called'; END $$"
        )
    await admin.execute(f"ALTER ROLE {role} SET search_path = decoy")
    store = PostgresStore(empty.replace("//postgres@", f"//{role}@"))

    try:
        await store.migrate()
        await store.open()
        await live_through_everything(store)
    finally:
        await store.close()

    for table in DECOYS:
        assert await admin.fetchval(f"SELECT count(*) FROM decoy.{table}") == 0
    await admin.execute(f"REASSIGN OWNED BY {role} TO postgres; DROP ROLE {role}")

"""The schema: made once, whoever asks, and refused when it does not fit."""

import asyncio

import asyncpg
import pytest

from daybell.core.ids import mint
from daybell.errors import SchemaError, Unavailable
from daybell.store.postgres import PostgresStore, upkeep
from tests.builders import brings, steps, tenant_names
from tests.store.postgres.lifecycle import live_through_everything
from tests.stores import POSTGRES

OWN = len(steps("postgres"))
NEXT, THEN = f"{OWN + 1:04}_later", f"{OWN + 2:04}_later"


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
    await admin.execute("INSERT INTO daybell.migration VALUES (99, 'later', 'x', false)")

    await fresh.open()

    assert (await fresh.health()).schema == 99


async def test_a_newer_schema_that_is_breaking_is_refused_and_named(fresh, admin):
    await fresh.migrate()
    await admin.execute("INSERT INTO daybell.migration VALUES (99, 'later', 'x', true)")

    with pytest.raises(SchemaError, match=r"newer.*0099 \(later\).*[Uu]pgrade"):
        await fresh.open()


async def test_a_migration_that_fails_leaves_nothing_behind(fresh, admin):
    await admin.execute("CREATE SCHEMA daybell; CREATE TABLE daybell.live (x int)")

    with pytest.raises(Exception, match="live"):
        await fresh.migrate()

    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'daybell'")
    assert [row["tablename"] for row in rows] == ["live"]


async def test_a_step_that_fails_halfway_takes_the_steps_before_it_back(fresh, admin, later):
    await fresh.migrate()
    later(
        "CREATE TABLE daybell.second (x int);", "CREATE TABLE daybell.third (x int); SELECT 1 / 0"
    )

    with pytest.raises(Exception, match="division by zero"):
        await fresh.migrate()

    exists = "SELECT to_regclass('daybell.second') IS NOT NULL"
    assert not await admin.fetchval(exists)
    assert await fresh.pending_migrations() == (NEXT, THEN)
    with pytest.raises(SchemaError, match=f"at version {OWN}; missing: {NEXT}, {THEN}"):
        await fresh.open()
    later("CREATE TABLE daybell.second (x int);", "CREATE TABLE daybell.third (x int);")
    assert await fresh.migrate() == (NEXT, THEN)
    assert await admin.fetchval(exists)


async def test_two_that_upgrade_at_once_make_the_step_once(fresh, empty, later):
    await fresh.migrate()
    later("CREATE TABLE daybell.second (x int);")
    other = PostgresStore(empty)

    answers = await asyncio.gather(fresh.migrate(), other.migrate())

    assert sorted(answers) == [(), (NEXT,)]
    await other.close()


async def test_a_program_from_before_a_breaking_step_is_refused(fresh, later, monkeypatch):
    later("CREATE TABLE daybell.second (x int);")
    await fresh.migrate()
    monkeypatch.undo()

    with pytest.raises(SchemaError, match=rf"{OWN + 1:04} \(later\) is unknown here"):
        await fresh.open()


@pytest.fixture
async def roles(admin):
    """Makes roles that go with the test."""
    made = []

    async def make(kind):
        made.append(f"{kind}_{mint().hex}")
        await admin.execute(f"CREATE ROLE {made[-1]} LOGIN")
        return made[-1]

    yield make
    for name in made:
        await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


LATER = """
    CREATE TABLE daybell.later (x int);
    CREATE FUNCTION daybell.soon() RETURNS int LANGUAGE sql AS 'SELECT 1';
    REVOKE ALL ON FUNCTION daybell.soon FROM PUBLIC;
    DROP FUNCTION daybell.grant_enqueue_to;
    CREATE FUNCTION daybell.grant_enqueue_to(role name) RETURNS void LANGUAGE plpgsql
      SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
      EXECUTE format('GRANT EXECUTE ON FUNCTION daybell.soon, daybell.enqueue TO %I', role);
    END $$;
"""


@pytest.fixture
def later(monkeypatch):
    """Have the program bring these steps after its own."""

    def bring(*sql):
        known = brings(upkeep.MIGRATIONS, *sql)
        monkeypatch.setattr(upkeep, "known_migrations", known)

    return bring


async def test_a_role_that_was_granted_the_schema_goes_on_after_an_upgrade(
    fresh, empty, admin, roles, later
):
    await fresh.migrate()
    runner = await roles("runner")
    await admin.execute("SELECT daybell.grant_to($1)", runner)
    await admin.execute("INSERT INTO daybell.tenant (name) VALUES ('acme')")
    running = PostgresStore(empty.replace("//postgres@", f"//{runner}@"))
    later(LATER)

    assert await fresh.migrate() == (NEXT,)

    try:
        await running.open()
        await live_through_everything(running)
        assert set(await tenant_names(running)) == {"default", "acme"}
    finally:
        await running.close()
    may = "SELECT has_table_privilege($1, $2, 'INSERT')"
    assert await admin.fetchval(may, runner, "daybell.later")
    assert not await admin.fetchval(may, runner, "daybell.migration")


async def test_an_upgrade_gives_nobody_more_than_he_was_given(fresh, admin, roles, later):
    await fresh.migrate()
    enqueuer, reader, by_hand = [await roles(kind) for kind in ("enqueuer", "reader", "by_hand")]
    await admin.execute("SELECT daybell.grant_enqueue_to($1)", enqueuer)
    await admin.execute(
        f"GRANT USAGE ON SCHEMA daybell TO {reader}, {by_hand};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA daybell TO {reader};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON daybell.live TO {by_hand}"
    )
    later(LATER)

    await fresh.migrate()

    may = "SELECT has_table_privilege($1, 'daybell.later', 'SELECT')"
    assert [await admin.fetchval(may, one) for one in (enqueuer, reader, by_hand)] == [False] * 3
    may = "SELECT has_function_privilege($1, 'daybell.soon()', 'EXECUTE')"
    assert [await admin.fetchval(may, one) for one in (enqueuer, reader)] == [True, False]


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


@pytest.fixture
async def backup(empty):
    """A transaction of somebody who reads all tables."""
    connection = await asyncpg.connect(empty)
    yield connection.transaction(), connection
    await connection.close()


@pytest.fixture
async def held_up(fresh, admin, backup, later, monkeypatch):
    """A migration behind somebody who reads what it changes; and how to end that."""
    monkeypatch.setattr("daybell.store.postgres.upkeep.MIGRATE_LOCK_SECONDS", 0.2)
    monkeypatch.setattr("daybell.store.postgres.upkeep.MIGRATE_PAUSE_SECONDS", 0.01)
    await fresh.migrate()
    later("ALTER TABLE daybell.worker ADD later text;")
    reading, connection = backup
    await reading.start()
    await connection.execute("LOCK TABLE daybell.worker IN ACCESS SHARE MODE")
    migrating = asyncio.create_task(fresh.migrate())
    while not await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        pass
    return migrating, reading


async def test_a_migration_that_has_to_wait_keeps_nobody_else_waiting(held_up, admin):
    migrating, reading = held_up

    await admin.execute("SET lock_timeout = '10s'; SELECT count(*) FROM daybell.worker")

    assert not migrating.done()
    await reading.rollback()
    assert len(await migrating) == 1


async def test_a_migration_says_who_is_in_its_way(held_up, monkeypatch):
    monkeypatch.setattr("daybell.store.postgres.upkeep.MIGRATE_TRIES", 2)
    migrating, reading = held_up

    with pytest.raises(Unavailable, match="pg_stat_activity"):
        await migrating

    await reading.rollback()

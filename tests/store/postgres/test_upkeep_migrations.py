"""The schema: made once, whoever asks, and refused when it does not fit."""

import asyncio

import asyncpg
import pytest

from daybell.core.ids import mint
from daybell.core.views import JobFilter
from daybell.errors import SchemaError, Unavailable
from daybell.store.migrate import known_migrations
from daybell.store.postgres import PostgresStore, upkeep
from tests.builders import TENANT, a_firing, a_job, a_schedule, put, shown, steps
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
    await admin.execute("INSERT INTO daybell.migration VALUES (99, 'later', 'x', false)")

    await fresh.open()

    assert (await fresh.health()).schema == 99


async def test_a_newer_schema_that_is_breaking_is_refused_and_named(fresh, admin):
    await fresh.migrate()
    await admin.execute("INSERT INTO daybell.migration VALUES (99, 'later', 'x', true)")

    with pytest.raises(SchemaError, match=r"newer.*0099 \(later\).*[Uu]pgrade"):
        await fresh.open()


async def test_a_program_that_cannot_chain_the_audit_log_is_refused(fresh, monkeypatch):
    await fresh.migrate()
    known = [step for step in known_migrations("daybell.store.postgres") if step.version < 16]
    monkeypatch.setattr(upkeep, "known_migrations", lambda package: known)

    with pytest.raises(SchemaError, match=r"0016 \(audit_chain\) is unknown here"):
        await fresh.open()


async def test_a_migration_that_fails_leaves_nothing_behind(fresh, admin):
    await admin.execute("CREATE SCHEMA daybell; CREATE TABLE daybell.live (x int)")

    with pytest.raises(Exception, match="live"):
        await fresh.migrate()

    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'daybell'")
    assert [row["tablename"] for row in rows] == ["live"]


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


async def migrate_to(admin, version):
    """Make the first steps by hand, as an older program did."""
    await admin.execute(upkeep.CREATE)
    for step in known_migrations("daybell.store.postgres")[:version]:
        await admin.execute(step.sql)
        fields = (step.version, step.name, step.checksum, step.is_breaking)
        await admin.execute(upkeep.RECORD_MIGRATION, *fields)


async def test_run_time_schedules_from_before_get_gates_of_their_own(fresh, admin):
    await fresh.migrate()
    await fresh.open()
    now = (await fresh.health()).now
    added, declared = a_schedule(next_at=now), a_schedule(next_at=now, is_declared=True)
    await put(fresh, added, declared)
    await admin.execute(
        "ALTER TABLE daybell.schedule DROP COLUMN own_gate;"
        "DELETE FROM daybell.migration WHERE name = 'own_gates'"
    )

    assert [name[5:] for name in await fresh.migrate()] == ["own_gates"]

    ways = {one.id: one.overlap_by for one in await fresh.list_schedules(TENANT)}
    assert ways == {added.id: "schedule", declared.id: "job"}
    assert await fresh.fire([a_firing(await shown(fresh, added))]) == [True]
    assert await fresh.fire([a_firing(await shown(fresh, declared))]) == [True]


async def test_a_role_that_was_granted_an_older_schema_goes_on_after_an_upgrade(
    fresh, empty, admin, roles
):
    await migrate_to(admin, 1)
    runner = await roles("runner")
    await admin.execute("SELECT daybell.grant_to($1)", runner)
    await admin.execute("INSERT INTO daybell.tenant (name) VALUES ('acme')")
    running = PostgresStore(empty.replace("//postgres@", f"//{runner}@"))

    await fresh.migrate()

    try:
        await running.open()
        await live_through_everything(running)
        assert set(await running.list_tenants()) == {"default", "acme"}
    finally:
        await running.close()
    may = "SELECT has_table_privilege($1, $2, 'INSERT')"
    assert await admin.fetchval(may, runner, "daybell.log")
    assert not await admin.fetchval(may, runner, "daybell.migration")


async def test_an_upgrade_gives_nobody_more_than_he_was_given(fresh, admin, roles):
    await migrate_to(admin, 2)
    enqueuer, reader, by_hand = [await roles(kind) for kind in ("enqueuer", "reader", "by_hand")]
    await admin.execute("SELECT daybell.grant_enqueue_to($1)", enqueuer)
    await admin.execute(
        f"GRANT USAGE ON SCHEMA daybell TO {reader}, {by_hand};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA daybell TO {reader};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON daybell.live TO {by_hand}"
    )

    await fresh.migrate()

    may = "SELECT has_table_privilege($1, 'daybell.log', 'SELECT')"
    assert [await admin.fetchval(may, one) for one in (enqueuer, reader, by_hand)] == [False] * 3
    may = "SELECT has_function_privilege($1, 'daybell.enqueue(text, jsonb, jsonb)', 'EXECUTE')"
    assert [await admin.fetchval(may, one) for one in (enqueuer, reader)] == [True, False]


async def test_a_role_that_may_enqueue_may_use_what_an_upgrade_brings(fresh, admin, roles):
    await migrate_to(admin, 2)
    enqueuer = await roles("enqueuer")
    await admin.execute("SELECT daybell.grant_enqueue_to($1)", enqueuer)
    # As if it had not been there yet.
    await admin.execute(f"REVOKE EXECUTE ON FUNCTION daybell.enqueue_many FROM {enqueuer}")

    await fresh.migrate()

    may = "SELECT has_function_privilege($1, oid, 'EXECUTE') FROM pg_proc WHERE proname = $2"
    assert await admin.fetchval(may, enqueuer, "enqueue_many")


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


async def test_jobs_from_before_are_found_by_words_and_user(fresh, admin):
    await migrate_to(admin, 6)
    described = {"a": "Make it SMALL", "b": "with a \0"}  # which cannot be text in the database
    for name, description in described.items():
        new = a_job(name, user_id="ada", description=description)
        key = await admin.fetchval(
            "INSERT INTO daybell.job (id, tenant, name, version, queue)"
            " VALUES ($1, 1, $2, 1, 'default') RETURNING key",
            new.id,
            name,
        )
        await admin.execute(
            "INSERT INTO daybell.job_version (job, version, definition, author)"
            " VALUES ($1, 1, $2, '')",
            key,
            new.definition.to_json(),
        )

    await fresh.migrate()

    await fresh.open()
    for where, names in {
        JobFilter(user_id="ada"): ["a"],
        JobFilter(text="it small"): ["a"],
        JobFilter(text="B"): ["b"],
    }.items():
        page = await fresh.list_jobs("default", where)
        assert [job.name for job in page.items] == names


@pytest.fixture
async def backup(empty):
    """A transaction of somebody who reads all tables."""
    connection = await asyncpg.connect(empty)
    yield connection.transaction(), connection
    await connection.close()


@pytest.fixture
async def held_up(fresh, admin, backup, monkeypatch):
    """A migration behind somebody who reads what it changes; and how to end that."""
    monkeypatch.setattr("daybell.store.postgres.upkeep.MIGRATE_LOCK_SECONDS", 0.2)
    monkeypatch.setattr("daybell.store.postgres.upkeep.MIGRATE_PAUSE_SECONDS", 0.01)
    await fresh.migrate()
    await admin.execute(
        "ALTER TABLE daybell.worker DROP COLUMN tasks;"
        " DELETE FROM daybell.migration WHERE version = 12"
    )
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

"""The chain of the audit log in PostgreSQL: its locks, and programs that do not know it."""

import asyncio

from daybell.client import Client
from tests.builders import TENANT, an_entry, an_execution, defined
from tests.store.postgres.test_transactions_sql_keys import blocked_by

OTHER = "acme"
OLD_INSERT = """
    INSERT INTO daybell.audit (tenant, id, actor, action, target, before, after, source)
    SELECT 1, gen_random_uuid(), 'ana', 'job.update', 'x', NULL, '{}', '' FROM generate_series(1, 3)
    ON CONFLICT DO NOTHING
"""


async def test_a_chain_that_is_held_delays_neither_other_tenants_nor_reads(store, another):
    await store.add_tenants([OTHER])
    await defined(store)
    await store.write_audit(TENANT, [an_entry()])
    async with another.transaction():
        await another.execute("SELECT FROM daybell.audit_head FOR UPDATE")

        await store.write_audit(OTHER, [an_entry()])
        await store.enqueue(TENANT, [an_execution()])
        check = await Client(store).verify_audit()
        held = asyncio.create_task(store.write_audit(TENANT, [an_entry()]))
        await blocked_by(another, another.get_server_pid())

    await held
    assert (check.entries, check.broken) == (1, None)
    assert (await Client(store).verify_audit()).entries == 2


async def test_entries_that_an_older_program_inserts_join_the_chain(store, sql):
    await store.write_audit(TENANT, [an_entry()])
    await sql.execute(OLD_INSERT)
    await store.write_audit(TENANT, [an_entry()])

    check = await Client(store).verify_audit()

    assert (check.entries, check.unchained, check.broken) == (5, 0, None)


WATCH = """
    CREATE TABLE daybell_test.seen (is_free boolean);
    CREATE FUNCTION daybell_test.look() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO daybell_test.seen SELECT NOT EXISTS (
        SELECT FROM pg_locks WHERE relation = 'daybell.audit_head'::regclass
                               AND pid = pg_backend_pid());
      RETURN NEW;
    END $$;
    CREATE TRIGGER look BEFORE INSERT ON daybell.agenda
      FOR EACH ROW EXECUTE FUNCTION daybell_test.look();
"""
END_WATCH = """
    DROP TRIGGER look ON daybell.agenda;
    DROP FUNCTION daybell_test.look;
    DROP TABLE daybell_test.seen;
"""


async def test_a_batch_locks_the_chain_after_its_executions_are_written(store, sql):
    await defined(store)
    await store.write_audit(TENANT, [an_entry()])
    await sql.execute(WATCH)
    try:
        await store.enqueue(TENANT, [an_execution(), an_execution()], entries=[an_entry()])

        assert await sql.fetchval("SELECT array_agg(is_free) FROM daybell_test.seen") == [True] * 2
    finally:
        await sql.execute(END_WATCH)

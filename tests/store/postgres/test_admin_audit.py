"""The audit log in PostgreSQL: locks of its chain, and entries of repeated transactions."""

import asyncio

import pytest

from daybell.client import Client
from daybell.errors import Unavailable
from tests.builders import TENANT, a_job, add_tenants, an_entry, an_execution, defined
from tests.store.postgres.test_transactions_sql import blocked_by

OTHER = "acme"


async def test_a_chain_that_is_held_delays_neither_other_tenants_nor_reads(store, another):
    await add_tenants(store, [OTHER])
    await defined(store)
    await store.admin.write_audit(TENANT, [an_entry()])
    async with another.transaction():
        await another.execute("SELECT FROM daybell.audit_head FOR UPDATE")

        await store.admin.write_audit(OTHER, [an_entry()])
        await store.queue.enqueue(TENANT, [an_execution()])
        check = await Client(store).verify_audit()
        held = asyncio.create_task(store.admin.write_audit(TENANT, [an_entry()]))
        await blocked_by(another, another.get_server_pid())

    await held
    assert (check.entries, check.broken) == (1, None)
    assert (await Client(store).verify_audit()).entries == 2


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
    await store.admin.write_audit(TENANT, [an_entry()])
    await sql.execute(WATCH)
    try:
        await store.queue.enqueue(TENANT, [an_execution(), an_execution()], entries=[an_entry()])

        assert await sql.fetchval("SELECT array_agg(is_free) FROM daybell_test.seen") == [True] * 2
    finally:
        await sql.execute(END_WATCH)


# Entries of the audit log when a transaction has to be made again, or was made all the same.

# At the commit: the change and its entry are both there by then.
BREAK = """
    CREATE SEQUENCE daybell_test.tries;
    CREATE FUNCTION daybell_test.break_off() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('daybell_test.tries') <= {times} THEN
        RAISE EXCEPTION 'broken off' USING ERRCODE = '{code}';
      END IF;
      RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER break_off AFTER INSERT ON daybell.audit
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION daybell_test.break_off();
"""
MEND = """
    DROP TRIGGER break_off ON daybell.audit;
    DROP FUNCTION daybell_test.break_off;
    DROP SEQUENCE daybell_test.tries;
"""


@pytest.fixture
async def breaking(sql):
    """Makes the first commits with an entry fail."""

    async def start(times, code):
        await sql.execute(BREAK.format(times=times, code=code))

    yield start
    await sql.execute(MEND)


async def test_a_transaction_that_is_made_again_brings_its_entry_once(store, breaking, sql):
    await breaking(2, "serialization_failure")

    audited = store.audited(TENANT, an_entry())
    await audited.catalog.define_jobs(TENANT, [a_job()])

    assert await sql.fetchval("SELECT last_value FROM daybell_test.tries") == 3
    assert len((await store.admin.list_audit(TENANT)).items) == 1
    assert len((await store.catalog.list_jobs(TENANT)).items) == 1


async def test_a_commit_that_fails_leaves_neither_the_change_nor_its_entry(store, breaking):
    await breaking(1, "admin_shutdown")
    entry = an_entry()

    audited = store.audited(TENANT, entry)
    with pytest.raises(Unavailable):
        await audited.catalog.define_jobs(TENANT, [a_job()])
    assert (await audited.admin.list_audit(TENANT)).items == ()
    assert (await audited.catalog.list_jobs(TENANT)).items == ()

    await audited.catalog.define_jobs(TENANT, [a_job()])

    (kept,) = (await store.admin.list_audit(TENANT)).items
    assert kept.id == entry.id

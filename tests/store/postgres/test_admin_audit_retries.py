"""Entries of the audit log when a transaction has to be made again, or was made all the same."""

import pytest

from daybell.errors import Unavailable
from tests.builders import TENANT, a_job, an_entry

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

    with store.auditing(TENANT, an_entry()):
        await store.define_jobs(TENANT, [a_job()])

    assert await sql.fetchval("SELECT last_value FROM daybell_test.tries") == 3
    assert len((await store.list_audit(TENANT)).items) == 1
    assert len((await store.list_jobs(TENANT)).items) == 1


async def test_a_commit_that_fails_leaves_neither_the_change_nor_its_entry(store, breaking):
    await breaking(1, "admin_shutdown")
    entry = an_entry()

    with store.auditing(TENANT, entry):
        with pytest.raises(Unavailable):
            await store.define_jobs(TENANT, [a_job()])
        assert (await store.list_audit(TENANT)).items == ()
        assert (await store.list_jobs(TENANT)).items == ()

        await store.define_jobs(TENANT, [a_job()])

    (kept,) = (await store.list_audit(TENANT)).items
    assert kept.id == entry.id

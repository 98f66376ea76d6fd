"""The chain of hashes in the audit log finds what is changed in it past the store."""

import asyncio
import sqlite3

import asyncpg
import pytest

from daybell.client import Client
from daybell.core.views import Retention
from daybell.errors import UsageError
from tests.builders import TENANT, a_job, add_tenants, an_entry, an_execution, defined
from tests.sweeps import retain

OTHER = "acme"
DAY = 86400.0


async def verify(store, *, tenant=TENANT, **options):
    return await Client(store, tenant=tenant).verify_audit(**options)


def broken_at(check):
    return None if check.broken is None else check.broken.number


async def write(store, count, *, tenant=TENANT):
    for n in range(count):
        await store.admin.write_audit(tenant, [an_entry(target=f"job {n}")])


async def test_entries_of_every_path_are_one_chain(store, clock):
    await defined(store)
    await clock.advance(0.123457)
    odd = an_entry(actor="Ана 🜨", target="1:-", before='{"ü": "\u2028"}', after="", source="::1")
    await store.admin.write_audit(TENANT, [odd, an_entry(), odd])
    await store.queue.enqueue(
        TENANT, [an_execution(), an_execution()], entries=[an_entry(), an_entry()]
    )
    await store.queue.enqueue(TENANT, [an_execution(unique_key="k")], entries=[an_entry()])
    audited = store.audited(TENANT, an_entry())
    await audited.catalog.define_jobs(TENANT, [a_job("other")])

    check = await verify(store)

    assert (check.entries, check.broken, check.next_cursor) == (6, None, None)
    assert check.head.startswith("6:")


async def test_each_tenant_has_a_chain_of_its_own(store):
    await add_tenants(store, [OTHER])
    await write(store, 3)
    assert (await verify(store, tenant=OTHER)).head == "0:"
    await write(store, 2, tenant=OTHER)

    assert (await verify(store)).entries == 3
    assert (await verify(store, tenant=OTHER)).entries == 2


async def test_processes_that_write_at_the_same_time_make_one_chain(crowd):
    await defined(crowd[0])
    entries = [an_entry() for _ in range(12)]

    async def change(n):
        store = crowd[n % len(crowd)]
        audited = store.audited(TENANT, an_entry())
        await audited.catalog.define_jobs(TENANT, [a_job(f"job {n}")])
        await store.queue.enqueue(TENANT, [an_execution()], entries=[entries[n]])
        await store.admin.write_audit(TENANT, [entries[n - 1], entries[n]])

    await asyncio.gather(*(change(n) for n in range(12)))

    check = await verify(crowd[0])
    assert (check.entries, check.broken) == (24, None)


async def test_a_check_continues_where_another_ended(store):
    await write(store, 7)

    first = await verify(store, limit=3)
    rest = await verify(store, limit=4, cursor=first.next_cursor)

    assert (first.entries, rest.entries, rest.broken) == (3, 4, None)
    end = await verify(store, cursor=rest.head)
    assert (end.entries, end.head, end.broken) == (0, rest.head, None)


async def test_a_head_that_was_kept_elsewhere_finds_a_log_that_was_written_anew(store):
    await write(store, 3)
    kept = "2:" + "ab" * 32

    check = await verify(store, cursor=kept)
    behind = await verify(store, cursor="9:" + "ab" * 32)

    assert (broken_at(check), broken_at(behind)) == (3, 9)
    with pytest.raises(UsageError, match="not a position"):
        await verify(store, cursor="nonsense")


async def test_retention_leaves_a_chain_that_can_be_checked(store, clock):
    await add_tenants(store, [OTHER])
    await write(store, 3)
    await write(store, 1, tenant=OTHER)
    before = await verify(store, limit=1)
    await clock.advance(10)
    await write(store, 2)
    await clock.advance(365 * DAY - 5)

    assert (await retain(store, Retention(finished=0.0))).others == 4
    await write(store, 1)

    kept = await verify(store)
    assert (kept.entries, kept.broken, kept.head[:2]) == (3, None, "6:")
    assert (await verify(store, cursor=before.next_cursor)).broken is None
    empty = await verify(store, tenant=OTHER)
    assert (empty.entries, empty.broken, empty.head[:2]) == (0, None, "1:")


async def test_an_entry_that_is_old_by_its_clock_alone_waits_for_those_before_it(store, clock):
    await write(store, 1)
    await clock.advance(-20 * DAY)
    await write(store, 1)
    await clock.advance(366 * DAY)

    assert (await retain(store, Retention(finished=0.0))).others == 0
    assert (await verify(store)).entries == 2
    await clock.advance(20 * DAY)
    assert (await retain(store, Retention(finished=0.0))).others == 2


# What is done past the store: the statements, the first broken number, and what is said of it.
HASH = "0" * 64
TAMPERED = {
    "altered": (["UPDATE {} SET actor = 'eve' WHERE number = 3"], 3, "altered"),
    "emptied": (["UPDATE {} SET after = '' WHERE number = 3"], 3, "altered"),
    "given another time": (["UPDATE {} SET at = at - 1 WHERE number = 3"], 3, "altered"),
    "with the hash of another": (
        ["UPDATE {0} SET hash = (SELECT hash FROM {0} WHERE number = 2) WHERE number = 3"],
        3,
        "altered",
    ),
    "the first removed": (["DELETE FROM {} WHERE number = 1"], 1, "missing"),
    "some in the middle removed": (["DELETE FROM {} WHERE number IN (3, 4)"], 3, "missing"),
    "the last removed": (["DELETE FROM {} WHERE number = 6"], 6, "missing"),
    "all removed": (["DELETE FROM {}"], 1, "missing"),
    "swapped": (
        [
            "UPDATE {} SET number = 0 WHERE number = 3",
            "UPDATE {} SET number = 3 WHERE number = 4",
            "UPDATE {} SET number = 4 WHERE number = 0",
        ],
        3,
        "altered",
    ),
    "the end cut off with the head": (
        ["DELETE FROM {} WHERE number = 6", "UPDATE {}_head SET number = 5"],
        5,
        "head",
    ),
    "one more than the head knows": (["UPDATE {}_head SET number = 5"], 6, "head"),
    "a head removed": (["DELETE FROM {}_head"], 1, "head"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
async def test_the_first_broken_entry_is_named(place, store, name):
    statements, number, problem = TAMPERED[name]
    await write(store, 6)
    assert (await verify(store)).broken is None

    await past_the_triggers(place, statements)

    for limit in (1000, 1):
        check = await verify(store, limit=limit)
        while check.next_cursor is not None:
            check = await verify(store, limit=limit, cursor=check.next_cursor)
        assert check.broken is not None
        assert (check.broken.number, problem in check.broken.problem) == (number, True)


async def test_the_log_goes_on_after_its_head_was_removed_and_stays_broken(place, store):
    await write(store, 3)
    await past_the_triggers(place, ["DELETE FROM {}_head"])

    await write(store, 2)

    check = await verify(store)
    assert (check.entries, broken_at(check)) == (3, 4)


async def past_the_triggers(place, statements):
    """Change the log as its owner can: without the triggers that forbid it."""
    if place.kind == "sqlite":
        with sqlite3.connect(place.url) as connection:
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'"
            ).fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement.format("audit"))
        return
    connection = await asyncpg.connect(
        place.url, server_settings={"session_replication_role": "replica"}
    )
    try:
        for statement in statements:
            await connection.execute(statement.format("daybell.audit"))
    finally:
        await connection.close()

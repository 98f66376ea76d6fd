"""A database in memory: one connection, no threads, and data that lives as long as the store."""

import asyncio
import threading

import pytest

from daybell.errors import UsageError
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.connection import IN_MEMORY, InlineConnection
from tests.builders import TENANT, defined, enqueued, tenant_names
from tests.stores import ManualClock


@pytest.fixture
async def store():
    store = SqliteStore.in_memory()
    await store.open()
    yield store
    await store.close()


async def test_it_needs_no_migration_and_no_thread():
    before = threading.active_count()
    store = SqliteStore(IN_MEMORY)

    assert await store.pending_migrations() == await store.migrate() == ()
    await store.open()
    await enqueued(store)

    assert threading.active_count() == before
    await store.close()


async def test_an_operation_is_done_before_its_caller_waits(store):
    operation = store.catalog.list_queues(TENANT)

    with pytest.raises(StopIteration) as done:
        operation.send(None)

    assert done.value.value == []


async def test_each_store_has_its_own_data_and_keeps_it_when_it_is_closed(store):
    await defined(store, "kept")
    other = SqliteStore.in_memory()
    await other.open()

    await store.close()
    with pytest.raises(UsageError, match="open"):
        await store.catalog.list_jobs(TENANT)
    await store.open()

    assert [job.definition.name for job in (await store.catalog.list_jobs(TENANT)).items] == [
        "kept"
    ]
    assert (await other.catalog.list_jobs(TENANT)).items == ()
    await other.close()


async def test_it_goes_by_the_clock_it_is_given_from_the_beginning():
    clock = ManualClock()
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()

    assert (await store.admin.get_tenant(TENANT)).created_at == clock.now()
    await store.close()


async def test_a_failed_operation_leaves_nothing_behind(store):
    assert isinstance(store.db.writer, InlineConnection)

    def fail(tx):
        tx.execute("INSERT INTO tenant (name, created_at) VALUES ('half', 0)")
        raise UsageError("on purpose")

    with pytest.raises(UsageError, match="on purpose"):
        await store.db.write(fail)
    with pytest.raises(UsageError, match="on purpose"):
        store.db.writer.run(fail)

    assert await tenant_names(store) == (TENANT,)


def test_event_loops_of_several_threads_take_turns():
    store = SqliteStore.in_memory()
    asyncio.run(store.open())
    asyncio.run(defined(store))

    threads = [
        threading.Thread(target=lambda: asyncio.run(enqueued(store, 50, job="resize")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (queue,) = asyncio.run(store.catalog.list_queues(TENANT))
    assert queue.queued == 200

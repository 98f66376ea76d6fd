"""Others on the same file: `database is locked` is waited out, everywhere."""

import asyncio
import sqlite3
import threading

import pytest

from daybell.core.execution import State
from daybell.core.views import ExecutionFilter
from daybell.errors import Unavailable
from daybell.store.sqlite import SqliteStore, connection
from tests.builders import TENANT, a_job, an_execution, defined, enqueued, steps

EVERYTHING = ExecutionFilter()
SECONDS = 60


async def waited_out(operation, refused, release):
    """Start an operation, let go of the lock once it has been refused, and return its answer."""
    refused.clear()
    task = asyncio.ensure_future(operation)
    assert await asyncio.to_thread(refused.wait, SECONDS)
    assert not task.done()
    release()
    return await task


async def test_a_write_waits_for_the_lock(store, raw, refused):
    await defined(store)
    raw.execute("BEGIN EXCLUSIVE")

    answers = await waited_out(
        store.queue.enqueue(TENANT, [an_execution()]), refused, lambda: raw.execute("ROLLBACK")
    )

    assert [answer.created for answer in answers] == [True]


async def test_reads_do_not_wait_for_a_writer(store, raw):
    await enqueued(store, 2)
    raw.execute("BEGIN EXCLUSIVE")

    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 2}

    raw.execute("ROLLBACK")


@pytest.mark.parametrize("method", ["open", "migrate", "pending_migrations"])
async def test_a_file_that_is_locked_entirely_is_waited_for(path, raw, refused, method):
    raw.execute("PRAGMA locking_mode = EXCLUSIVE")
    raw.execute("UPDATE tenant SET name = name")
    store = SqliteStore(path)

    await waited_out(getattr(store, method)(), refused, raw.close)

    await store.close()


async def test_a_read_is_asked_again_while_somebody_recovers_the_log(store):
    asked = []

    def operation(tx):
        asked.append(tx)
        if len(asked) < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY
            raise error
        return "read"

    assert await store.db.read(operation) == "read"


@pytest.mark.parametrize("lock", ["BEGIN EXCLUSIVE", "BEGIN; SELECT * FROM sqlite_schema"])
async def test_a_file_that_is_not_in_wal_mode_yet_is_waited_for(tmp_path, refused, lock):
    """Before the switch a writer is in everybody's way, and a reader in the way of the switch."""
    path = tmp_path / "old.db"
    raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    raw.execute(f"PRAGMA application_id = {connection.APPLICATION_ID}")
    for statement in lock.split(";"):
        raw.execute(statement).fetchall()
    store = SqliteStore(str(path))

    made = await waited_out(store.migrate(), refused, lambda: raw.execute("ROLLBACK"))

    assert made == steps("sqlite")
    raw.close()


async def test_a_lock_that_is_never_let_go_is_told_in_the_end(store, raw, monkeypatch):
    await defined(store)
    monkeypatch.setattr(connection, "BUSY_SECONDS_MAX", 0.01)
    raw.execute("BEGIN EXCLUSIVE")

    answers = await asyncio.gather(
        *(store.queue.enqueue(TENANT, [an_execution()]) for _ in range(3)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [Unavailable] * 3
    assert "another program has kept it locked" in str(answers[0])
    raw.execute("ROLLBACK")
    await enqueued(store)
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 1}


async def test_what_a_transaction_read_stays_true_until_it_commits(path, refused):
    """A store in the middle of a definition keeps another from making the same version."""
    first, second = SqliteStore(path), SqliteStore(path)
    await first.open()
    await second.open()
    begun, go_on = threading.Event(), threading.Event()

    def hold(tx):
        begun.set()
        go_on.wait()

    refused.clear()
    held = first.db.write(hold)
    await asyncio.to_thread(begun.wait)
    defining = [
        asyncio.ensure_future(store.catalog.define_jobs(TENANT, [a_job(timeout=timeout)]))
        for store, timeout in ((first, 1.0), (second, 2.0))
    ]
    assert await asyncio.to_thread(refused.wait, SECONDS)
    go_on.set()
    await held

    versions = [job.version for (job,) in await asyncio.gather(*defining)]

    assert sorted(versions) == [1, 2]
    await first.close()
    await second.close()

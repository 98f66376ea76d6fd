"""The writing thread: what shares a commit, what does not share a fate, and who is told."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from daybell.core.execution import State
from daybell.core.views import ExecutionFilter
from daybell.errors import JobNotFound, Unavailable, UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    claim,
    defined,
    enqueued,
    look,
    registered,
    states,
    tenant_names,
)
from tests.sweeps import set_gates

EVERYTHING = ExecutionFilter()


@asynccontextmanager
async def busy(store):
    """Keep the writing thread busy, so that operations queue up and become one group."""
    begun, free = threading.Event(), threading.Event()

    def operation(tx):
        begun.set()
        free.wait()

    store.db.write(operation)
    await asyncio.to_thread(begun.wait)
    try:
        yield
    finally:
        free.set()


async def together(store, *operations):
    """Have operations done in one transaction; their answers or errors."""
    async with busy(store):
        tasks = [asyncio.ensure_future(operation) for operation in operations]
        await asyncio.sleep(0)  # lets each be sent
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def counting(path):
    """A store, and the times that it asked for: one per transaction."""
    asked = []

    def clock():
        asked.append(1000.0 + len(asked))
        return asked[-1]

    store = SqliteStore(path, clock=clock)
    await store.open()
    await defined(store)
    asked.clear()
    yield store, asked
    await store.close()


async def test_what_queued_up_shares_a_transaction_and_its_time(counting):
    store, asked = counting
    new = [an_execution() for _ in range(50)]

    await together(store, *(store.queue.enqueue(TENANT, [one]) for one in new))

    assert len(asked) == 2  # one for what kept the thread busy
    assert {(await look(store, one.id)).created_at for one in new} == {1001.0}


async def test_a_lone_operation_is_committed_alone(counting):
    store, asked = counting

    await store.queue.enqueue(TENANT, [an_execution()])
    await store.queue.enqueue(TENANT, [an_execution()])

    assert len(asked) == 2


async def test_an_operation_that_fails_does_not_hurt_its_neighbours(store):
    await defined(store)
    good = [an_execution() for _ in range(10)]
    operations = [store.queue.enqueue(TENANT, [one]) for one in good]
    operations.insert(5, store.queue.enqueue(TENANT, [an_execution(), an_execution("unknown")]))
    operations.insert(3, store.queue.enqueue(TENANT, [an_execution(args="\ud800")]))

    answers = await together(store, *operations)

    failed = [type(answer) for answer in answers if isinstance(answer, Exception)]
    assert failed == [UsageError, JobNotFound]
    assert await states(store, [one.id for one in good]) == [State.QUEUED] * 10
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 10}


async def test_what_a_failed_operation_learned_is_forgotten(store):
    """It made a lane and a version, and both were undone; their numbers mean nothing now."""
    await defined(store)
    bad_jobs = [a_job("resize", timeout=5.0), a_job("resize", expect=99)]
    bad_rows = [an_execution(queue="new"), an_execution("unknown")]

    answers = await together(
        store,
        store.catalog.define_jobs(TENANT, bad_jobs),
        store.queue.enqueue(TENANT, bad_rows),
        store.queue.enqueue(TENANT, [an_execution(queue="newer")]),
        store.queue.enqueue(TENANT, [an_execution(queue="new")]),
    )

    assert [isinstance(answer, Exception) for answer in answers] == [True, True, False, False]
    (one,) = (await claim(store, queues=["new"])).executions
    assert (one.queue, one.version) == ("new", 1)


async def test_a_lone_failure_is_forgotten_too(store):
    await defined(store)
    with pytest.raises(JobNotFound):
        await store.queue.enqueue(TENANT, [an_execution(queue="new"), an_execution("unknown")])

    await enqueued(store, queue="newer")
    await enqueued(store, queue="new")

    assert len((await claim(store, queues=["new"])).executions) == 1


async def test_the_current_version_is_found_whoever_has_changed_it(store, path):
    await defined(store)
    await enqueued(store)
    other = SqliteStore(path)
    await other.open()
    await defined(other, timeout=5.0)

    (id,) = await enqueued(store)

    assert (await look(store, id)).version == 2
    await other.catalog.delete_job(TENANT, "resize")
    with pytest.raises(JobNotFound):
        await store.queue.enqueue(TENANT, [an_execution()])
    await other.close()


async def test_cancelled_callers_do_not_stop_the_thread(store):
    await defined(store)
    new = [an_execution() for _ in range(20)]
    async with busy(store):
        tasks = [asyncio.create_task(store.queue.enqueue(TENANT, [one])) for one in new]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0)

    answers = await asyncio.gather(*tasks, return_exceptions=True)

    cancelled = [isinstance(answer, asyncio.CancelledError) for answer in answers]
    assert cancelled == [True, False] * 10
    kept = await store.catalog.list_executions(TENANT, EVERYTHING)
    assert {one.id for one in kept.items} == {one.id for one in new[1::2]}


async def test_an_operation_under_way_ends_though_nobody_waits(store):
    await defined(store)
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait()
        yield an_execution()

    task = asyncio.create_task(store.queue.load(TENANT, slow()))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    await set_gates(store, TENANT, {})  # comes after it
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 1}


async def test_a_load_whose_rows_raise_leaves_nothing(store):
    await defined(store)

    def rows():
        for _ in range(5000):
            yield an_execution()
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await store.queue.load(TENANT, rows())

    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {}
    await enqueued(store)


async def test_reading_goes_on_while_a_write_is_under_way(store):
    await enqueued(store, 3)

    async with busy(store):
        counts = await store.catalog.count_executions(TENANT, EVERYTHING)

    assert counts == {State.QUEUED: 3}


async def test_no_room_is_told_and_nothing_of_it_is_kept(store):
    await defined(store)
    await registered(store)
    pages = await store.db.write(lambda tx: tx.execute("PRAGMA page_count").fetchone()[0])
    await store.db.write(lambda tx: tx.execute(f"PRAGMA max_page_count = {pages + 4}").fetchone())
    large = [[an_execution(args=f'"{"x" * 50_000}"')] for _ in range(4)]

    answers = await together(store, *(store.queue.enqueue(TENANT, new) for new in large))

    assert [type(answer) for answer in answers] == [Unavailable] * 4
    assert "no room left" in str(answers[0])
    await store.db.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {}
    for new in large:
        await store.queue.enqueue(TENANT, new)
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 4}


async def test_closing_finishes_what_was_asked_for(path):
    store = SqliteStore(path)
    await store.open()
    await defined(store)
    async with busy(store):
        tasks = [
            asyncio.create_task(store.queue.enqueue(TENANT, [an_execution()])) for _ in range(20)
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)

    await closing

    assert all(task.done() and task.result() for task in tasks)
    with pytest.raises(UsageError, match="not open"):
        await tenant_names(store)

"""Ends that are not written yet: a worker that is killed leaves only so many to be run again."""

import asyncio

import pytest

from daybell.core.execution import State
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.engine.claim import POLL_SECONDS
from daybell.engine.report import UNWRITTEN_MAX
from daybell.errors import Unavailable
from tests.builders import enqueued
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker, counts
from tests.engine.virtual import in_virtual_time, until

CONCURRENCY = 50
COUNT = 4 * APPLY_BATCH_MAX


class Unwritten:
    """A task that shows progress, and counts the ends in its worker that are not written."""

    def __init__(self):
        self.most = self.runs = 0

    async def __call__(self, running):
        self.runs += 1
        running.report(progress=50.0)
        await asyncio.sleep(0)
        self.most = max(self.most, len(self.worker.current.completer) + 1)

    async def start(self, store):
        await enqueued(store, COUNT)
        self.worker = a_worker(store, Tasks(resize=self), concurrency=CONCURRENCY)
        await self.worker.start()


async def drained(store, task):
    await until(lambda: task.runs >= COUNT and not len(task.worker.current.completer), within=60)
    assert await counts(store) == {State.SUCCEEDED: COUNT}


@pytest.mark.parametrize("slow", ["apply", "report"])
@in_virtual_time
async def test_a_worker_on_a_slow_store_starts_no_more_than_a_batch_ahead_of_its_reports(slow):
    store, task = faulty(await a_store()), Unwritten()
    store.delay = lambda operation: 2.0 if operation == slow else 0.0
    await task.start(store)

    await drained(store, task)

    assert APPLY_BATCH_MAX / 2 < task.most <= APPLY_BATCH_MAX + CONCURRENCY
    assert task.runs == COUNT  # none was given back and run again
    await task.worker.stop()


@in_virtual_time
async def test_a_store_that_writes_quickly_may_have_more_on_their_way_but_not_without_end():
    store, task = faulty(await a_store()), Unwritten()
    store.delay = lambda operation: 0.1 if operation == "apply" else 0.0
    await task.start(store)

    await drained(store, task)

    assert APPLY_BATCH_MAX < task.most <= UNWRITTEN_MAX + CONCURRENCY
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_whose_reports_are_not_answered_stops_starting_and_goes_on_afterwards():
    store, task = faulty(await a_store()), Unwritten()
    answering = store.hold("apply")
    await task.start(store)
    await asyncio.sleep(10)

    assert APPLY_BATCH_MAX <= task.runs <= APPLY_BATCH_MAX + CONCURRENCY
    answering.set()
    await drained(store, task)
    assert task.most <= UNWRITTEN_MAX + CONCURRENCY
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_whose_reports_fail_stops_starting_and_goes_on_afterwards():
    store, task = faulty(await a_store()), Unwritten()
    store.fail("apply", *(Unavailable("no room on the disk") for _ in range(10)))
    await task.start(store)
    await until(lambda: store.count("apply") == 8)

    assert APPLY_BATCH_MAX <= task.runs <= APPLY_BATCH_MAX + CONCURRENCY
    await drained(store, task)
    await task.worker.stop()


@in_virtual_time
async def test_a_worker_that_was_held_up_hears_of_what_came_meanwhile():
    store, task = faulty(await a_store()), Unwritten()
    answering = store.hold("apply")
    await enqueued(store, APPLY_BATCH_MAX + CONCURRENCY)
    task.worker = a_worker(store, Tasks(resize=task), concurrency=2 * APPLY_BATCH_MAX)
    await task.worker.start()
    await until(lambda: task.runs == APPLY_BATCH_MAX + CONCURRENCY)
    await enqueued(store, 1)
    await asyncio.sleep(POLL_SECONDS / 4)
    asked = store.count("claim")

    answering.set()

    await until(lambda: task.runs == APPLY_BATCH_MAX + CONCURRENCY + 1, within=POLL_SECONDS / 4)
    assert store.count("claim") > asked
    await task.worker.stop()

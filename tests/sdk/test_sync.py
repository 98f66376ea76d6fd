"""The SDK from code without an event loop."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from daybell import App, ExecutionFailed, UsageError
from daybell.core.execution import State
from daybell.errors import InvalidArguments
from daybell.sdk import sync
from tests.sdk.waiting import WAIT, eventually


@pytest.fixture
def app(file_url):
    app = App(file_url)
    yield app
    sync.run(app.close())


@pytest.fixture
def double(app: App):
    @app.task
    def double(number: int) -> int:
        return 2 * number

    return double


def run_all(app: App, count=1):
    """Let a worker in a loop of its own run what there is."""

    async def work():
        async with app, app.worker():
            await eventually(app.client().count, lambda found: found.of(State.SUCCEEDED) >= count)

    asyncio.run(work())


def test_plain_code_enqueues_and_waits(app: App, double):
    handle = double.sync.enqueue(21)
    first, second = double.options(queue="default").sync.enqueue_many([{"number": 1}] * 2)

    assert handle.created and handle.status() is State.QUEUED
    assert first.id != second.id
    run_all(app, 3)
    assert handle.result(timeout=WAIT) == 42
    assert handle.execution().execution_id == handle.id


def test_they_show_what_they_are(app: App, double):
    handle = double.sync.enqueue(21)

    assert repr(handle) == f"<SyncHandle {handle.id}>"
    assert repr(double.sync) == "<SyncTask double>"


def test_errors_are_the_same(app: App, double):
    with pytest.raises(InvalidArguments, match="did you mean 'number'"):
        double.sync.enqueue(numbr=1)

    handle = double.sync.enqueue(1)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    assert handle.cancel()
    with pytest.raises(ExecutionFailed, match="is cancelled"):
        handle.result(timeout=WAIT)
    assert not handle.cancel()


def test_a_held_key_is_told(app: App, double):
    keyed = double.options(unique_key="one")

    assert keyed.sync.enqueue(1).created
    assert not keyed.sync.enqueue(1).created


def test_several_threads_share_one_connection(app: App, double):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(double.sync.enqueue, range(40)))

    assert len({handle.id for handle in handles}) == 40
    assert len([thread for thread in threading.enumerate() if thread.name == "daybell-sync"]) == 1
    assert sync.run(app.client_for()) is sync.run(app.client_for())


async def test_in_an_event_loop_it_is_refused(app: App, double):
    with pytest.raises(UsageError, match=r"runs in an event loop: await .* without \.sync"):
        double.sync.enqueue(1)


def test_a_task_in_a_thread_can_enqueue_its_children(app: App, double):
    ids = {}

    @app.task
    def root() -> None:
        ids["child"] = double.sync.enqueue(4).id

    parent = root.sync.enqueue()
    run_all(app, 2)

    child = sync.run(app.client_for())
    assert sync.run(child.execution(ids["child"])).parent_id == parent.id


def test_memory_is_not_shared_between_loops():
    app = App("memory://")

    @app.task
    def nothing() -> None:
        pass

    async def main():
        async with app:
            await asyncio.to_thread(nothing.sync.enqueue)

    with pytest.raises(UsageError, match="memory:// serves one event loop"):
        asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_opens_its_own_connection(app: App, double):
    double.sync.enqueue(1)
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(double.sync.enqueue(2).id).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        id = pipe.read()
    os.waitpid(child, 0)

    client = sync.run(app.client_for())
    assert sync.run(client.execution(id)).args == {"number": 2}
    assert double.sync.enqueue(3).created

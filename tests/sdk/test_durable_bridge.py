"""Durable calls of tasks in threads."""

import asyncio
import concurrent.futures

import pytest

from daybell.runners.python import Threads
from daybell.sdk import durable


async def test_a_thread_that_is_stopped_waits_for_its_last_write(monkeypatch):
    loop, written = asyncio.get_running_loop(), list[str]()
    begun, is_stopped = asyncio.Event(), asyncio.Event()
    look, wait = concurrent.futures.Future.result, concurrent.futures.wait

    def looks(future, timeout):
        loop.call_soon_threadsafe(begun.set)
        return look(future, timeout)

    def waits(futures, timeout):
        loop.call_soon_threadsafe(is_stopped.set)
        return wait(futures, timeout)

    async def write():
        await is_stopped.wait()
        written.append("step")

    monkeypatch.setattr(durable, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(concurrent.futures.Future, "result", looks)
    monkeypatch.setattr(concurrent.futures, "wait", waits)
    work = durable.Bridge(loop).ask(write)
    task = asyncio.ensure_future(Threads().run(lambda: durable.run_blocking(work)))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert written == ["step"]

"""Ended attempts are freed at once: the garbage collector would take a tenth of a worker's time."""

# ruff: noqa: T201

import asyncio
import gc
import logging

import pytest

from daybell import App, Context
from daybell.core.execution import State
from daybell.engine.attempt import Attempt
from tests.sdk.waiting import eventually


@pytest.fixture
def garbage():
    """Everything that only the garbage collector could free, from now on."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def test_no_cycle_of_references_holds_an_ended_attempt(garbage):
    app = App("memory://")

    @app.task
    async def talk(ctx: Context) -> None:
        print("printed")
        logging.getLogger("shop").warning("logged")
        ctx.progress(50, "half of it")

    @app.task
    async def sleep() -> None:
        await asyncio.sleep(0)

    @app.task
    def block() -> None: ...

    @app.task(retries=0)
    async def fail() -> None:
        raise ValueError("no such customer")

    @app.task(retries=0)
    def fail_in_thread() -> None:
        raise ValueError("no such customer")

    async with app, app.worker():
        # A job that has suspended gets an asyncio task of its own the second time.
        for task in (talk, sleep, block, fail, fail_in_thread) * 2:
            handle = await task.enqueue()
            ended = await eventually(
                handle.execution, lambda one: one.status in (State.SUCCEEDED, State.DEAD)
            )
            assert ended.status == (State.DEAD if "fail" in task.name else State.SUCCEEDED)

    gc.collect()
    held = [one.claimed.job for one in garbage if isinstance(one, Attempt)]
    assert held == []

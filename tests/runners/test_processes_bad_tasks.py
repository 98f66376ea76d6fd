"""Every bad task ends in its documented state, with a reason, and hurts no neighbour."""

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from daybell import App, ExecutionFailed
from daybell.runners.processes import PoolOptions
from tests.runners.bad_tasks import BAD_TASKS, Bad, Kind, neighbour

NEIGHBOURS = 16
CASES = [(bad, kind) for bad in BAD_TASKS for kind in bad.kinds]


def as_kind(function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    if kind != "async":
        return function

    @functools.wraps(function)
    async def on_the_loop(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    return on_the_loop


def declare(app: App, function: Callable[..., Any], kind: Kind, **options: Any):
    isolation: Any = "process" if kind == "process" else None
    return app.task(retries=0, isolation=isolation, **options)(as_kind(function, kind))


@pytest.fixture
def quiet(monkeypatch):
    """What is printed goes on to the worker's own output: here, nowhere."""
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # a fork copies what is in buffers
        yield


@pytest.mark.parametrize(
    ("bad", "kind"), CASES, ids=[f"{bad.function.__name__}-{kind}" for bad, kind in CASES]
)
async def test_a_bad_task_ends_as_documented_and_hurts_nobody(
    bad: Bad, kind: Kind, tmp_path, quiet, caplog
):
    app = App(f"sqlite:///{tmp_path / 'daybell.db'}")
    app.handlers.pool_options = PoolOptions(children=2, grace=0.2)
    good = declare(app, neighbour, kind)
    task = declare(app, bad.function, kind, **bad.options)
    async with app:
        items = [{"number": number} for number in range(NEIGHBOURS)]
        before = await good.enqueue_many(items[: NEIGHBOURS // 2])
        handle = await task.enqueue()
        after = await good.enqueue_many(items[NEIGHBOURS // 2 :])

        async with app.worker():
            result = failure = None
            try:
                result = await handle.result(timeout=300)
            except ExecutionFailed as error:
                failure = error.failure
            numbers = [await one.result(timeout=300) for one in (*before, *after)]
            client = await app.open()
            parts = [part async for part in client.log_parts(handle.id)]
            log = [line.message for part in parts for line in part.lines]

        assert await handle.status() == bad.state
        assert numbers == list(range(NEIGHBOURS))
        assert result == bad.result
        if bad.log is not None:
            assert tuple(log) == bad.log
        if failure is None:
            assert bad.tells("\n".join([*log, caplog.text]))
        else:
            assert failure.type.rpartition(".")[2] == bad.type
            assert bad.tells(failure.message), failure.message

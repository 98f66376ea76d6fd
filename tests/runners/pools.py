"""Child processes to run tasks in, and tasks on their way."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import Any

import pytest

from daybell.core import payload
from daybell.core.execution import DescribedError, Failure
from daybell.runners.processes import FunctionLocation, PoolOptions, Processes, TaskOrder
from daybell.sdk.isolation import COMMAND, place_of, setup
from tests.engine.tasks import a_claimed
from tests.engine.virtual import until
from tests.runners import isolated

SOON = 0.2


class Running:
    """What the task says, as it comes in."""

    is_cancelled = is_watchful = False
    patience = 0.0
    durable = ledger = None
    devices: dict[str, list[int]] | None = None

    def __init__(self, args: dict[str, Any]):
        self.claimed = a_claimed(args=payload.encode(args))
        self.is_hopeless = False
        self.said: list[tuple[str, str, str]] = []
        self.lengths: list[int | None] = []
        self.notes: list[str] = []
        self.checkpoint: str | None = None

    def hide(self, values): ...
    def without_secrets(self, text):
        return text

    def report(self, *, progress=None, note=None, checkpoint=None, pause=None):
        self.notes += [note] if note is not None else []
        self.checkpoint = checkpoint or self.checkpoint

    def say(self, level: str, source: str, message: str, *, length: int | None = None):
        self.said.append((level, source, message))
        self.lengths.append(length)

    def print(self, stream: str, text: str): ...

    async def begin(self): ...

    async def undo(self): ...

    async def told(self) -> list[int]:
        """The process ids of its first note."""
        await until(lambda: self.notes, within=60)
        return [int(word) for word in self.notes[0].split()]


class Started:
    """A task on its way."""

    def __init__(
        self,
        pool: Processes,
        function: Any,
        memory_limit: int | None = None,
        devices: dict[str, list[int]] | None = None,
        **args,
    ):
        place = function if isinstance(function, FunctionLocation) else place_of(function)
        self.running = Running(args)
        claimed = self.running.claimed
        order = TaskOrder(place, claimed, memory_limit=memory_limit, devices=devices or {})
        self.task = asyncio.ensure_future(pool.run(order, self.running))

    async def result(self) -> Any:
        text = await asyncio.wait_for(self.task, 300)
        return None if text is None else payload.decode(text)

    async def failure(self):
        with pytest.raises(DescribedError) as raised:
            await asyncio.wait_for(self.task, 300)
        return Failure.from_exception(raised.value)


async def ran(pool: Processes, function: Any, **args: Any) -> Any:
    return await Started(pool, function, **args).result()


async def failed(pool: Processes, function: Any, **args: Any):
    return await Started(pool, function, **args).failure()


@asynccontextmanager
async def a_pool(**options: Any):
    pool = Processes(COMMAND, setup=setup, options=PoolOptions(**({"children": 1} | options)))
    try:
        yield pool
    finally:
        await pool.close()


async def an_order_in_vain(pool: Processes) -> tuple[int, Started]:
    """A child that is stopped, and a task that it has been given and will not look at."""
    pid = await ran(pool, isolated.whoami)
    os.kill(pid, signal.SIGSTOP)
    started = Started(pool, isolated.whoami)
    for _ in range(3):  # enough to be written
        await asyncio.sleep(0)
    return pid, started

"""The thread that keeps a worker's lease, as a thread of the simulation."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from daybell.engine.lease import Call, Pacemaker
from daybell.engine.loop import Clock
from daybell.store.protocol import Store
from tests.simulation.loop import Process, forever
from tests.simulation.world import Port, World


class SimulatedPacemaker(Pacemaker):
    """Renews beside a process: it continues while the process' own loop stands still."""

    def __init__(self, world: World, process: Process, clock: Clock) -> None:
        super().__init__(self._make_port, clock=clock)
        self._world = world
        self._process = process
        self._beating: Process | None = None
        self._works: list[asyncio.Task[None]] = []

    def _calls_to_worker(self) -> Call:
        return functools.partial(self._world.loop.call_soon, context=self._process.context)

    async def close(self) -> None:
        if self._beating is None:
            return
        await self.stop()
        thread, self._beating, self._loop = self._beating, None, None
        self._world.loop.kill(thread)
        self._process.threads.remove(thread)

    def _launch(self) -> None:
        if self._beating is None:
            self._loop = self._world.loop
            self._beating = Process(f"{self._process.name} pacemaker", self._process)
            self._process.threads.append(self._beating)
            self._loop.start(self._beating, forever)

    def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Awaitable[None]:
        """Make the call in steps of the thread; the caller continues in a step of the process."""
        thread = self._thread_of_steps()
        task = thread.context.run(lambda: self._world.loop.create_task(work()))
        self._works = [one for one in self._works if not one.done()] + [task]
        return task

    def _thread_of_steps(self) -> Process:
        assert self._beating is not None
        return self._beating

    async def _rehearse(self, store: Store) -> None:
        """Do nothing: a call is a message there and back."""

    def _make_port(self) -> Any:
        return Port(self._world, self._thread_of_steps())

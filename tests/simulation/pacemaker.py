"""The thread that keeps a worker's lease, as a thread of the simulation."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

from daybell.engine.clock import Clock
from daybell.engine.heartbeat import Heartbeat
from daybell.engine.pacemaker import Pacemaker
from tests.simulation.loop import Process
from tests.simulation.world import Port, World


class SimulatedPacemaker(Pacemaker):
    """Beats beside a process: it goes on while the process' own loop stands still."""

    def __init__(self, world: World, process: Process, clock: Clock) -> None:
        super().__init__(self._open_port, clock=clock)
        self._world = world
        self._process = process
        self._beating: Process | None = None
        self._has_begun, self._has_ended = asyncio.Event(), asyncio.Event()

    def start(self, heartbeat: Heartbeat) -> None:
        loop, main = self._world.loop, self._process
        heartbeat.call = functools.partial(loop.call_soon, context=main.context)
        self._has_begun, self._has_ended = asyncio.Event(), asyncio.Event()
        self._beating = Process(f"{main.name} pacemaker", main)
        main.threads.append(self._beating)
        loop.start(self._beating, lambda: self._beat(heartbeat))

    async def stop(self) -> None:
        thread, self._beating = self._beating, None
        if thread is None:
            return
        await self._has_begun.wait()
        assert self._stopping is not None
        self._stopping.set()
        await self._has_ended.wait()
        self._world.loop.kill(thread)
        self._process.threads.remove(thread)

    async def _beat(self, heartbeat: Heartbeat) -> None:
        asyncio.get_running_loop().call_soon(self._has_begun.set)
        await self._live(heartbeat, threading.Event())
        self._has_ended.set()

    def _open_port(self) -> Any:
        assert self._beating is not None
        return Port(self._world, self._beating)

"""An event loop for many processes at once, with simulated time.

Every callback belongs to a process, by a context variable that tasks and timers inherit. The
callbacks of a process run in order, as in a real loop; chance selects the next process. Time passes
only when no process has work. So a process can be killed or frozen between any two of its steps,
which are the stretches between two awaits.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final

SPIN_STEPS: Final = 20_000

PROCESS: ContextVar[Process] = ContextVar("process")


class Process:
    """A process of the cluster, from its start to its death; or a thread of one, with an event loop
    of its own, that dies and freezes with it.
    """

    def __init__(self, name: str, main: Process | None = None) -> None:
        self.name = name
        self.main = main or self
        self.threads: list[Process] = []
        self.ready: deque[asyncio.Handle] = deque()
        self.is_dead = False
        self.is_frozen = False
        self.started_at = self.frozen_at = 0.0
        self.thawed_at = float("-inf")
        self.steps_known = 0  # of the store's clock
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks one by one. `before_step` receives the process, and may kill it."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._ident = threading.get_ident()
        self._moment = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        # Remains of dead processes. If they were released, their coroutines would be closed, and
        # would run code of a dead process.
        self._graves: list[object] = []
        self._is_over = False
        self.world = Process("world")
        self.processes: list[Process] = [self.world]
        self.before_step: Callable[[Process], None] = lambda process: None
        self.on_error: Callable[[str], None] = lambda text: None
        self.steps = 0
        self._steps_before = 0  # the present moment

    def time(self) -> float:
        return self._moment

    def call_soon(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._queue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        assert threading.get_ident() == self._ident, "no real thread may have a part in this"
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_over:
            error = context.get("exception")
            self.on_error(f"{context.get('message')}: {error!r}")

    def start(self, process: Process, life: Callable[[], Any]) -> None:
        """Add a process: this coroutine, and all tasks that it starts."""
        self.processes.append(process)
        process.started_at = self._moment
        task = process.context.run(lambda: self.create_task(life()))
        self._graves.append(task)

    def kill(self, process: Process) -> None:
        """Kill a process: it makes no other step, and no cleanup runs."""
        for one in (process, *process.threads):
            if not one.is_dead:
                one.is_dead = True
                self.processes.remove(one)
                self._graves.extend(one.ready)
                one.ready.clear()

    def freeze(self, process: Process, *, threads: bool = True) -> None:
        """Stop a process until it thaws. Without its threads, only its main loop stands still."""
        for one in (process, *(process.threads if threads else ())):
            one.is_frozen = True
            one.frozen_at = self._moment

    def thaw(self, process: Process) -> None:
        for one in (process, *process.threads):
            one.is_frozen = False
            one.thawed_at = self._moment

    def run(self, *, until: float, done: Callable[[], bool]) -> None:
        """Run until that time, or until something is done, which is checked as time passes."""
        asyncio._set_running_loop(self)
        try:
            while self._step() or (not done() and self._pass(until)):
                pass
        finally:
            asyncio._set_running_loop(None)

    def stop(self) -> None:
        """Make no other step."""
        self._is_over = True

    def bury(self) -> None:
        """Release everything, without running it."""
        self._is_over = True
        asyncio._set_running_loop(self)
        try:
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
                with suppress(BaseException):
                    task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess]
        finally:
            asyncio._set_running_loop(None)
        self._graves.clear()
        self._timers.clear()
        for process in self.processes:
            process.ready.clear()
        self.close()

    def _queue(self, handle: asyncio.Handle) -> None:
        context: Context = handle._context  # pyright: ignore[reportAttributeAccessIssue]
        process = context.get(PROCESS, self.world)
        if process.is_dead or self._is_over:
            self._graves.append(handle)
        else:
            process.ready.append(handle)

    def _step(self) -> bool:
        if self._is_over:
            return False
        able = [one for one in self.processes if one.ready and not one.is_frozen]
        if not able:
            return False
        process = able[int(self._chance.random() * len(able))] if len(able) > 1 else able[0]
        handle = process.ready.popleft()
        if handle.cancelled():
            return True
        self.steps += 1
        if self.steps - self._steps_before > SPIN_STEPS:
            self.on_error(f"{process} spins: it makes step after step, and no time passes")
            return False
        self.before_step(process)
        if process.is_dead or process.is_frozen:
            # It was hit just before this step, which it makes later or never.
            if process.is_dead:
                self._graves.append(handle)
            else:
                process.ready.appendleft(handle)
            return True
        handle._run()
        return True

    def _pass(self, until: float) -> bool:
        """Let time pass until a process has work."""
        if self._is_over or not self._timers or self._timers[0][0] > until:
            self._moment = max(self._moment, until)
            return False
        self._moment = max(self._moment, self._timers[0][0])
        self._steps_before = self.steps
        while self._timers and self._timers[0][0] <= self._moment:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._queue(timer)
        return True


async def forever() -> None:
    """Wait for ever; for a process that dies in the middle of a step."""
    await asyncio.get_running_loop().create_future()

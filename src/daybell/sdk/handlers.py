"""An app's tasks as the engine runs them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from daybell.runners.python import PythonHandler, Running
from daybell.runners.threads import Threads
from daybell.sdk.context import Context, current
from daybell.sdk.isolation import COMMAND, Isolation, place_of, setup

if TYPE_CHECKING:
    # A program that only enqueues starts no processes, and should not pay for what could.
    from daybell.runners.processes import PoolOptions, Processes, ProcessHandler
    from daybell.sdk.app import App
    from daybell.sdk.task import Task

    Handler = PythonHandler | ProcessHandler


class AppHandlers:
    """Finds the handler of a job: on the loop, in threads, or in child processes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = Threads()
        self._handlers: dict[tuple[str, bool], Handler] = {}
        self._processes: WeakKeyDictionary[asyncio.AbstractEventLoop, Processes] = (
            WeakKeyDictionary()
        )
        self.pool_options: PoolOptions | None = None
        self.runs_max: int | None = None  # on the loop and in threads, before `is_worn` is set
        self.is_worn = asyncio.Event()
        self._runs = 0

    def find(self, job: str) -> Handler | None:
        # A test's store is in this process, and so is all that it wants to look at.
        key = job, self._app.stand_in is None
        handler = self._handlers.get(key)
        if handler is None and job in self._app.tasks:
            handler = self._handlers[key] = self._make(self._app.tasks[job], isolate=key[1])
        return handler

    def mask(self, text: str) -> str:
        for mask in self._app.masks:
            text = mask(text)
        return text

    async def close(self) -> None:
        """End the child processes of this event loop."""
        processes = self._processes.pop(asyncio.get_running_loop(), None)
        if processes is not None:
            await processes.close()

    def _make(self, task: Task[..., Any, Any], *, isolate: bool) -> Handler:
        definition = task.definition
        how = msgspec.json.decode(definition.settings, type=Isolation)
        if isolate and how.isolation == "process":
            from daybell.runners.processes import ProcessHandler

            return ProcessHandler(
                place_of(task.function),
                retry=definition.retry,
                timeout=definition.timeout,
                store_result=definition.store_result,
                memory_limit=how.memory_limit,
                goes_on=how.on_lease_lost == "continue",
                processes=self._processes_here,
            )
        return PythonHandler(
            task.function,
            retry=definition.retry,
            timeout=definition.timeout,
            store_result=definition.store_result,
            context_names=task.context_names,
            enter=current.set if self.runs_max is None else self._enter,
            make_context=Context,
            threads=self._threads,
            goes_on=how.on_lease_lost == "continue",
        )

    def _enter(self, running: Running) -> None:
        current.set(running)
        self._runs += 1
        if self.runs_max is not None and self._runs >= self.runs_max:
            self.is_worn.set()

    def _processes_here(self) -> Processes:
        from daybell.runners.processes import Processes

        loop = asyncio.get_running_loop()
        processes = self._processes.get(loop)
        if processes is None:
            processes = Processes(
                COMMAND, setup=setup, options=self.pool_options, keeps_logs=self._app.keeps_logs
            )
            self._processes[loop] = processes
        return processes

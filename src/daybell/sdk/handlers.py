"""An app's tasks as the engine runs them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from daybell.core.execution import Claimed
from daybell.core.job import JobDefinition, task_of
from daybell.errors import NotFound, Unavailable
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


logger = logging.getLogger("daybell.sdk")

REMEMBERED_MAX: Final = 10_000  # versions of jobs that run a task of another name


class AppHandlers:
    """Finds the handler of a job: on the loop, in threads, or in child processes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = Threads()
        self._handlers: dict[tuple[str, bool], Handler] = {}
        self._processes: WeakKeyDictionary[asyncio.AbstractEventLoop, Processes] = (
            WeakKeyDictionary()
        )
        self._by_definition: dict[tuple[str, int, bool], Handler] = {}
        self.pool_options: PoolOptions | None = None
        self.runs_max: int | None = None  # on the loop and in threads, before `is_worn` is set
        self.is_worn = asyncio.Event()
        self._runs = 0

    def find(self, job: str) -> Handler | None:
        # A test's store is in this process, and so is all that it wants to look at.
        key = job, self._app.stand_in is None
        handler = self._handlers.get(key)
        if handler is None and job in self._app.tasks:
            handler = self._handlers[key] = self._of(job, isolate=key[1])
        return handler

    async def ask(self, claimed: Claimed) -> Handler | None:
        """The handler of a job that runs a task of another name, as its definition says."""
        key = claimed.job, claimed.version, self._app.stand_in is None
        if key in self._by_definition:
            return self._by_definition[key]
        try:
            client = await self._app.client_for(claimed.tenant)
            definition = (await client.job(claimed.job, version=claimed.version)).definition
        except (NotFound, Unavailable) as error:
            logger.warning("the definition of job %r cannot be read: %s", claimed.job, error)
            return None
        task = self._app.tasks.get(task_of(definition) or "")
        if task is None:
            return None
        if len(self._by_definition) >= REMEMBERED_MAX:
            self._by_definition.clear()
        handler = self._by_definition[key] = self._make(task, definition, isolate=key[2])
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

    def _of(self, name: str, *, isolate: bool) -> Handler:
        task = self._app.tasks[name]
        return self._make(task, task.definition, isolate=isolate)

    def _make(
        self, task: Task[..., Any, Any], definition: JobDefinition, *, isolate: bool
    ) -> Handler:
        """How it is run is up to its code; how often and how long, to the definition."""
        how = msgspec.json.decode(task.definition.settings, type=Isolation)
        if isolate and how.isolation == "process":
            from daybell.runners.processes import ProcessHandler

            return ProcessHandler(
                place_of(task.function),
                retry=definition.retry,
                timeout=definition.timeout,
                store_result=definition.store_result,
                memory_limit=how.memory_limit,
                goes_on=how.on_lease_lost == "continue",
                starts_once=definition.on_lost == "dead",
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
            starts_once=definition.on_lost == "dead",
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

"""An app's tasks as the engine runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from daybell.core.execution import Claimed
from daybell.core.job import Job, JobDefinition, task_of
from daybell.core.masking import Masks
from daybell.core.run import node_name
from daybell.core.worker import TASK
from daybell.errors import NotFound, Unavailable
from daybell.runners.python import PythonHandler, Running
from daybell.runners.threads import Threads
from daybell.sdk.context import Context, current
from daybell.sdk.isolation import COMMAND, Isolation, place_of, setup
from daybell.sdk.kinds import REMEMBERED_MAX, KindOptions, Kinds, Version
from daybell.sdk.masking import masks
from daybell.sdk.secrets import Secrets
from daybell.settings import Settings

if TYPE_CHECKING:
    # A program that only enqueues starts no processes, and should not pay for what could.
    from daybell.core.graph_node import GraphNode
    from daybell.runners.around import Handled
    from daybell.runners.kind import KindHandler
    from daybell.runners.processes import PoolOptions, Processes, ProcessHandler
    from daybell.runners.workflow import BranchHandler, NodeHandler, WorkflowHandler
    from daybell.sdk.app import App
    from daybell.sdk.task import Task

    TaskHandler = PythonHandler | ProcessHandler
    Handler = TaskHandler | Handled | KindHandler | NodeHandler | WorkflowHandler


logger = logging.getLogger("daybell.sdk")

TASKS_TOLD_MAX: Final = 2_000  # of a worker to others


class AppHandlers:
    """Finds the handler of a job: on the loop, in threads, in child processes, or without code."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = Threads()
        self._handlers: dict[tuple[str, bool], TaskHandler] = {}
        self._processes: WeakKeyDictionary[asyncio.AbstractEventLoop, Processes] = (
            WeakKeyDictionary()
        )
        # By what the definition says: a job may have a task's name and run another one.
        self._by_version: dict[tuple[Version, bool], TaskHandler] = {}
        # What runs several nodes of workflows, of which there may be ten thousand.
        self._alike: dict[tuple[object, ...], TaskHandler | BranchHandler] = {}
        # The tasks that jobs and nodes want which are not in this code.
        self._unknown: dict[tuple[Version, str | None], str] = {}
        self._kinds = Kinds(app)
        self.secrets = Secrets(app)
        self.pool_options: PoolOptions | None = None
        self.runs_max: int | None = None  # on the loop and in threads, before `is_worn` is set
        self.is_worn = asyncio.Event()
        self._runs = 0

    @property
    def kind_options(self) -> KindOptions:
        """What is allowed to jobs without code; set before a worker starts."""
        return self._kinds.options

    @kind_options.setter
    def kind_options(self, options: KindOptions) -> None:
        self._kinds.options = options

    @property
    def kinds(self) -> tuple[str, ...]:
        """What a worker with these handlers offers: see `JobDefinition.needs`."""
        return self._kinds.offered

    @property
    def tasks(self) -> dict[str, str] | None:
        """The queue that each task is meant for, by name; None: too many to tell others."""
        tasks = self._app.tasks
        if len(tasks) > TASKS_TOLD_MAX:
            return None
        return {name: tasks[name].definition.queue for name in sorted(tasks)}

    def find(self, claimed: Claimed) -> Handler | None:
        version = claimed.tenant, claimed.job, claimed.version
        if claimed.kind == "workflow":
            return self._kinds.find_workflow(version)
        if claimed.node is not None:
            # A node that is a job of its own belongs to another workflow than its job, if to any.
            workflow = self._kinds.find_workflow(version)
            if workflow is not None:
                return workflow.handlers.get((node_name(claimed.node), self._isolates))
        found = self._by_version.get((version, self._isolates))
        return found or self._kinds.find(version)

    async def ask(self, claimed: Claimed) -> Handler | None:
        """The handler that the job's definition asks for, at the version claimed."""
        version = claimed.tenant, claimed.job, claimed.version
        if self.lacking(claimed) is not None:
            return None  # it was asked for before, and came back
        if self._kinds.find_workflow(version) is None:
            await self._ask_for_job(claimed)
        workflow = self._kinds.find_workflow(version)
        if workflow is not None and claimed.node is not None and claimed.kind != "workflow":
            node = await workflow.node(node_name(claimed.node))
            if node is not None:
                await self._kinds.load(node.kind)
                self._learn_node(workflow, node)
                if node.kind == "task" and node.runs not in self._app.tasks:
                    self._lack(version, node.name, node.runs)
        return self.find(claimed)

    def lacking(self, claimed: Claimed) -> str | None:
        """What another worker must have for it; None: as far as is known, nothing."""
        version = claimed.tenant, claimed.job, claimed.version
        node = None if claimed.node is None else node_name(claimed.node)
        task = self._unknown.get((version, node)) or self._unknown.get((version, None))
        return None if task is None or task in self._app.tasks else f"{TASK}{task}"

    def _lack(self, version: Version, node: str | None, task: str) -> None:
        if len(self._unknown) >= REMEMBERED_MAX:
            self._unknown.clear()
        self._unknown[version, node] = task

    async def _ask_for_job(self, claimed: Claimed) -> None:
        try:
            client = await self._app.client_for(claimed.tenant)
            job = await client.job(claimed.job, version=claimed.version)
        except (NotFound, Unavailable) as error:
            logger.warning("the definition of job %r cannot be read: %s", claimed.job, error)
            return
        await self._kinds.load(job.definition.kind)
        self.learn([job])

    def learn(self, jobs: Iterable[Job]) -> None:
        """Know what runs these versions of jobs, without asking for it."""
        for job in jobs:
            if job.definition.kind == "task":
                self._learn_task(job)
            else:
                self._kinds.learn(job)

    def _learn_task(self, job: Job) -> None:
        name = task_of(job.definition) or job.name
        task = self._app.tasks.get(name)
        if task is None:
            self._lack((job.tenant, job.name, job.version), None, name)
            return
        key = (job.tenant, job.name, job.version), self._isolates
        if len(self._by_version) >= REMEMBERED_MAX:
            self._by_version.clear()
        self._by_version[key] = (
            self._own(task, isolate=key[1])
            if name == job.name
            else self._make(task, job.definition, isolate=key[1])
        )

    def _learn_node(self, workflow: WorkflowHandler, node: GraphNode) -> None:
        """Know what runs a node of a workflow."""
        key = node.name, self._isolates
        if node.kind != "task":
            workflow.handlers[key] = self._kinds.make_node(workflow.definition_of(node))
            return
        retry, timeout = workflow.definition.retry, workflow.definition.timeout
        how = (
            node.runs,
            node.retry or retry,
            node.timeout or timeout,
            workflow.definition.on_lost,
            node.branch,
            self._isolates,
        )
        handler = self._alike.get(how)
        if handler is None:
            task = self._app.tasks.get(node.runs)
            if task is None:
                return
            if len(self._alike) >= REMEMBERED_MAX:
                self._alike.clear()
            handler = self._alike[how] = self._make_node(task, workflow.definition_of(node))
            if node.branch:
                handler = self._alike[how] = _choosing(handler, node.branch)
        workflow.handlers[key] = handler

    def _make_node(self, task: Task[..., Any, Any], definition: JobDefinition) -> TaskHandler:
        if definition.retry.to_json() == task.definition.retry.to_json():
            # The store does not know the functions in it.
            definition = replace(definition, retry=task.definition.retry)
        own = replace(definition, store_result=task.definition.store_result)
        return self._make(task, own, isolate=self._isolates)

    def forget(self) -> None:
        """Another store has other jobs, under the same names and numbers."""
        self._by_version.clear()
        self._unknown.clear()
        self._kinds.forget()
        self.secrets.forget()

    @property
    def _isolates(self) -> bool:
        """Whether tasks run in other processes, if they want to. A test's store is in this process,
        and so is all that it wants to look at.
        """
        return self._app.stand_in is None

    def hide_settings(self) -> None:
        """Withhold the keys and passwords that this process was given from all that jobs say: a
        command can read the environment of its worker.
        """
        if self._app.stand_in is None:
            own = Settings(database_url=self._app.url).secrets
            masks.add_settings(Settings.load().secrets | own)

    @property
    def settings(self) -> Masks:
        return masks.settings

    def mask(self, text: str) -> str:
        for mask in self._app.masks:
            text = mask(text)
        return text

    async def close(self) -> None:
        """End the child processes of this event loop, and what jobs without code share in it."""
        await self._kinds.close()
        processes = self._processes.pop(asyncio.get_running_loop(), None)
        if processes is not None:
            await processes.close()

    def _own(self, task: Task[..., Any, Any], *, isolate: bool) -> TaskHandler:
        """Under its own name a task runs as its code says, whatever version is asked for."""
        key = task.name, isolate
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = self._make(task, task.definition, isolate=isolate)
        return handler

    def _make(
        self, task: Task[..., Any, Any], definition: JobDefinition, *, isolate: bool
    ) -> TaskHandler:
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
                reveal=self.secrets.args,
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
            reveal=self.secrets.args,
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
                COMMAND,
                setup=setup,
                options=self.pool_options,
                keeps_logs=self._app.keeps_logs,
                mask=masks,
            )
            self._processes[loop] = processes
        return processes


def _choosing(handler: TaskHandler, names: tuple[str, ...]) -> BranchHandler:
    from daybell.runners.workflow import BranchHandler

    return BranchHandler(handler, names)

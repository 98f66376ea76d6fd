"""Handlers of an app's jobs, as the engine runs them: functions, and jobs without code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from daybell.client import Client
from daybell.client.sealing import VARIABLE, Sealer, Unopenable
from daybell.core import payload
from daybell.core.execution import Claimed, DescribedError
from daybell.core.job import Job, JobDefinition
from daybell.core.kinds.settings import PRIVATE
from daybell.core.masking import Masks
from daybell.core.options import task_of
from daybell.core.references import fill_args, fill_references, names_in, names_in_args
from daybell.core.units import Seconds
from daybell.core.worker import TASK
from daybell.core.workflow.node import GraphNode
from daybell.core.workflow.run import node_name
from daybell.errors import NotFound, Unavailable, UsageError
from daybell.runners.command import CommandHandler, CommandOptions
from daybell.runners.command_processes import Commands
from daybell.runners.kind import KindHandler, Reveal, WrappedHandler
from daybell.runners.notify import Notifier, NotifyHandler
from daybell.runners.processes import PoolOptions, Processes, ProcessHandler
from daybell.runners.python import PythonHandler, RunningAttempt, Threads
from daybell.runners.sql import Connections, SqlHandler
from daybell.runners.workflow import BranchHandler, NodeHandler, WorkflowHandler
from daybell.sdk.capture import masks
from daybell.sdk.context import Context, current
from daybell.sdk.isolation import COMMAND, Isolation, place_of, setup
from daybell.sdk.task import Task
from daybell.settings import Settings

if TYPE_CHECKING:
    from daybell.runners.http import Http


# Jobs without code, as a worker runs them: what it offers, and what they share in it.

REMEMBERED_MAX: Final = 10_000  # versions of jobs
WORKFLOWS_MAX: Final = 100  # versions, each with its whole graph

# What runs jobs of a kind, with all that it imports when it is used.
MODULES: Final = {
    "command": ("daybell.runners.command",),
    "http": ("daybell.runners.http",),
    "sql": ("daybell.runners.sql",),
    "notify": ("daybell.runners.notify",),
    "workflow": ("daybell.runners.workflow",),
}
POSTGRES_MODULE: Final = "daybell.runners.sql_postgres"

Version = tuple[str, str, int]  # tenant, job and number


@dataclass(frozen=True, kw_only=True)
class KindOptions:
    """What a worker allows to jobs without code."""

    tasks: bool = True  # whether it has code besides; without, it would have to give tasks back
    allow_command: bool = False
    allow_private_http: bool = False  # requests to addresses that only this network can reach
    allow_env: frozenset[str] = frozenset()  # what commands may set although it is dangerous
    pass_env: tuple[str, ...] = ()  # variables of the worker that its commands see
    connections: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


class HandledApp(Protocol):
    """The app whose jobs are run, as its handlers use it."""

    stand_in: Callable[[], Client] | None

    @property
    def url(self) -> str: ...

    @property
    def tasks(self) -> Mapping[str, Task[..., Any, Any]]: ...

    @property
    def masks(self) -> Sequence[Callable[[str], str]]: ...

    @property
    def keeps_logs(self) -> bool: ...

    async def client_for(self, tenant: str | None = None) -> Client: ...


class Kinds:
    """Handlers of jobs without code. What they share belongs to an event loop, and so do they."""

    def __init__(self, reveal: Reveal) -> None:
        self.options = KindOptions()
        self._reveal = reveal
        self._shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Shared] = WeakKeyDictionary()
        self._loaded: set[str] = set()  # kinds

    @property
    def offered(self) -> tuple[str, ...]:
        """What jobs may need of this worker: see `JobDefinition.needs`."""
        options = self.options
        return (
            *(["task"] if options.tasks else []),
            *(["command"] if options.allow_command else []),
            "http",
            *([PRIVATE] if options.allow_private_http else []),
            "workflow",
            *(["notify"] if can_notify() else []),
            *(f"sql:{name}" for name in sorted(options.connections)),
        )

    def find(self, version: Version) -> KindHandler | None:
        """What runs a job, as far as it is known."""
        shared = self._shared.get(asyncio.get_running_loop())
        return None if shared is None else shared.handlers.get(version)

    def find_workflow(self, version: Version) -> WorkflowHandler | None:
        """What begins runs of a workflow, and knows its nodes."""
        shared = self._shared.get(asyncio.get_running_loop())
        return None if shared is None else shared.workflows.get(version)

    async def load(self, kind: str) -> None:
        """Import what runs jobs of a kind. That takes up to half a second, in which all others
        would have to wait.
        """
        if kind not in self._loaded:
            modules = MODULES.get(kind, ())
            if kind == "sql" and any(
                url.startswith("postgres") for url in self.options.connections.values()
            ):
                modules += (POSTGRES_MODULE,)
            await asyncio.to_thread(_load, modules)
            self._loaded.add(kind)

    def learn(self, job: Job) -> None:
        """Know how this version is run, unless that is not done here."""
        if job.definition.needs not in self.offered:
            return
        shared, version = self._here(), (job.tenant, job.name, job.version)
        if job.definition.kind == "workflow":
            shared.learn_workflow(version, job.definition)
            return
        handler = shared.make(job.definition)
        if handler is not None:
            shared.keep(version, handler)

    def make_node(self, definition: JobDefinition) -> NodeHandler:
        """What runs a node of a workflow that has no code."""
        return NodeHandler(definition, self._here().make)

    def _here(self) -> Shared:
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = Shared(self, self._reveal)
        return shared

    def forget(self) -> None:
        """Another store has other jobs, under the same names and numbers."""
        for shared in self._shared.values():
            shared.handlers.clear()
            shared.workflows.clear()

    async def close(self) -> None:
        """End what the jobs of this event loop share."""
        shared = self._shared.pop(asyncio.get_running_loop(), None)
        if shared is not None:
            await shared.close()


class Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Shared:
    """What jobs have in common in one event loop, made when the first of a kind comes."""

    def __init__(self, kinds: Kinds, reveal: Reveal) -> None:
        self.handlers: dict[Version, KindHandler] = {}
        self.workflows: dict[Version, WorkflowHandler] = {}
        self._kinds = kinds
        self._reveal = reveal
        self._opened = AsyncExitStack()

    @property
    def _options(self) -> KindOptions:
        """As they are by now: an app that is opened before its worker starts knows workflows
        already.
        """
        return self._kinds.options

    def keep(self, version: Version, handler: KindHandler) -> None:
        """Remember how a job is run."""
        if len(self.handlers) >= REMEMBERED_MAX:
            self.handlers.clear()
        self.handlers[version] = handler

    def learn_workflow(self, version: Version, definition: JobDefinition) -> None:
        """Remember a workflow, and with it what is found out about its nodes: that takes longer
        than to run a short one of them.
        """
        known = self.workflows.pop(version, None)
        if known is None or known.definition != definition:
            known = WorkflowHandler(definition)
        if len(self.workflows) >= WORKFLOWS_MAX:
            del self.workflows[next(iter(self.workflows))]
        self.workflows[version] = known

    def make(self, definition: JobDefinition) -> KindHandler | None:
        """How a job is run; None: it is of a kind that a newer version brought."""
        match definition.kind:
            case "command":
                allowed = CommandOptions(
                    allow_env=self._options.allow_env, pass_env=self._options.pass_env
                )
                return CommandHandler(definition, self._reveal, allowed, self.commands)
            case "http":
                from daybell.runners.http import HttpHandler  # loads httpx

                return HttpHandler(definition, self._reveal, self.http)
            case "sql":
                return SqlHandler(definition, self._reveal, self.connections)
            case "notify":
                return NotifyHandler(definition, self._reveal, self.notifier)
            case _:
                return None

    @cached_property
    def commands(self) -> Commands:
        return self._kept(Commands())

    @cached_property
    def http(self) -> Http:
        from daybell.runners.http import Http  # loads httpx

        return self._kept(Http(allow_private=self._options.allow_private_http))

    @cached_property
    def connections(self) -> Connections:
        return self._kept(Connections(self._options.connections))

    @cached_property
    def notifier(self) -> Notifier:
        return self._kept(Notifier(allow_private=self._options.allow_private_http))

    async def close(self) -> None:
        await self._opened.aclose()

    def _kept(self, opened: C) -> C:
        self._opened.push_async_callback(opened.close)
        return opened


def _load(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(ImportError):  # where it is used, it is known what to say of that
            import_module(module)


def can_notify() -> bool:
    """Whether what sends messages is installed: the extra `notify`."""
    return find_spec("apprise") is not None


TaskHandler = PythonHandler | ProcessHandler
Handler = TaskHandler | WrappedHandler | KindHandler | NodeHandler | WorkflowHandler

logger = logging.getLogger("daybell.sdk")

TASKS_TOLD_MAX: Final = 2_000  # of a worker to others


class AppHandlers:
    """Finds the handler of a job: on the loop, in threads, in child processes, or without code."""

    def __init__(self, app: HandledApp) -> None:
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
        self.secrets = Secrets(app)
        self._kinds = Kinds(self.secrets)
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
                handler = self._alike[how] = _wrap_branch(handler, node.branch)
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

    def _enter(self, running: RunningAttempt) -> None:
        current.set(running)
        self._runs += 1
        if self.runs_max is not None and self._runs >= self.runs_max:
            self.is_worn.set()

    def _processes_here(self) -> Processes:
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


def _wrap_branch(handler: TaskHandler, names: tuple[str, ...]) -> BranchHandler:
    return BranchHandler(handler, names)


KEPT_SECONDS: Final = 3.0  # a changed one is promised to be used within 5
KEPT_MAX: Final = 10_000

Opened = dict[str, str]  # values by name


class Secrets:
    """Puts in what references to secrets stand for, for the executions of an app: a `Reveal` of
    runners/kind.py. An execution masks what was opened for it.
    """

    def __init__(self, app: HandledApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, str], tuple[Seconds, str]] = {}  # by tenant and name
        self._fetching: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def value(self, running: RunningAttempt, value: Any) -> Any:
        """A part of a job's settings, with its secrets."""
        names = names_in(value)
        opened = await self._opened(running, names) if names else {}
        return fill_references(value, "secret", opened.__getitem__)

    async def args(self, running: RunningAttempt) -> dict[str, Any]:
        """What an execution was called with, with its secrets."""
        args = payload.decode(running.claimed.args, what="args")
        names = names_in_args(args)
        opened = await self._opened(running, names) if names else {}
        return fill_args(args, opened.__getitem__)

    def forget(self) -> None:
        """Another store has others, under the same names."""
        self._kept.clear()

    async def _opened(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        found = self._look_up(tenant, names)
        if len(found) < len(names):
            # One at a time: of many that begin together, the first asks for all.
            lock = self._fetching.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            async with lock:
                found = self._look_up(tenant, names)
                missing = [name for name in names if name not in found]
                if missing:
                    found |= await self._fetch(running, missing)
        masks.add(found.values())
        running.hide(found.values())
        return found

    def _look_up(self, tenant: str, names: Collection[str]) -> Opened:
        """Those that were opened just now."""
        since = asyncio.get_running_loop().time() - KEPT_SECONDS
        kept = {name: self._kept.get((tenant, name)) for name in names}
        return {name: one[1] for name, one in kept.items() if one is not None and one[0] > since}

    async def _fetch(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        at = asyncio.get_running_loop().time()  # before the store is asked: it may be slow
        try:
            client = await self._app.client_for(tenant)
            sealed = await client.store.fetch_secrets(tenant, names)
        except Unavailable as error:
            listed = ", ".join(sorted(names))
            raise _failed("SecretsUnavailable", f"{listed} cannot be fetched: {error}") from None
        for name in sorted(names):
            if name not in sealed:
                running.is_hopeless = True
                raise _failed(
                    "SecretNotFound",
                    f"there is no secret named {name} in tenant {tenant}; set it with"
                    f" `daybell secrets set {name}`, then retry",
                )
        if client.secrets_key is None:
            name = min(sealed)
            # Other workers may have the key.
            raise _failed(
                "SecretsKeyMissing",
                f"this worker has no key to open secret {name}, which is sealed with key"
                f" {sealed[name].key_id}; give it the key that the secret was set with, as"
                f" {VARIABLE}",
            )
        try:
            sealer = _sealer_of(client)
            opened = {name: sealer.open(tenant, one) for name, one in sealed.items()}
        except Unopenable as error:
            running.is_hopeless = True
            raise _failed("SecretUnopenable", str(error)) from None
        except UsageError as error:
            raise _failed("SecretsKeyMissing", f"at this worker: {error}") from None
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept |= {(tenant, name): (at, value) for name, value in opened.items()}
        return opened


def _sealer_of(client: Client) -> Sealer:
    """What opens its secrets. The key is a secret, too: of a task that prints its environment."""
    sealer = client.sealer()
    masks.add_settings(part.strip() for part in (client.secrets_key or "").split(","))
    return sealer


def _failed(kind: str, message: str) -> DescribedError:
    return DescribedError.as_text(kind, message)

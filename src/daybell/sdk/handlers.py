"""Handlers of an app's jobs for the engine: functions, and jobs without code."""

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
from daybell.client.jobs import job as load_job
from daybell.client.sealing import VARIABLE, Sealer, Unopenable
from daybell.core import payload
from daybell.core.execution import Claimed, DescribedError
from daybell.core.job import Job, JobDefinition
from daybell.core.kinds.settings import PRIVATE
from daybell.core.masking import Masks
from daybell.core.options import task_of
from daybell.core.placement import capability_of
from daybell.core.references import fill_args, fill_references, names_in, names_in_args
from daybell.core.units import Seconds
from daybell.core.worker import TASK
from daybell.core.workflow.node import GraphNode
from daybell.core.workflow.run import node_name
from daybell.errors import DaybellError, NotFound, SecretNotFound, Unavailable, UsageError
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
    from daybell.client.leases.store import RemoteStore
    from daybell.runners.http import Http


# Jobs without code.

REMEMBERED_MAX: Final = 10_000  # versions of jobs
WORKFLOWS_MAX: Final = 100  # versions, each with its graph

# The modules of each kind, imported on first use.
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
    """Options of a worker for jobs without code."""

    tasks: bool = True  # False: the worker has no code and claims no tasks
    allow_command: bool = False
    allow_private_http: bool = False  # requests to private addresses
    allow_env: frozenset[str] = frozenset()  # dangerous variables that commands may set
    pass_env: tuple[str, ...] = ()  # variables of the worker that commands inherit
    connections: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


class HandledApp(Protocol):
    """The app, from the view of its handlers."""

    stand_in: Callable[[], Client] | None
    remote: RemoteStore | None

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
    """Handlers of jobs without code, with shared resources per event loop."""

    def __init__(self, reveal: Reveal) -> None:
        self.options = KindOptions()
        self._reveal = reveal
        self._shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Shared] = WeakKeyDictionary()
        self._loaded: set[str] = set()  # kinds

    @property
    def offered(self) -> tuple[str, ...]:
        """The capabilities of this worker: see `JobDefinition.needs`."""
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
        """Return the known handler of a job."""
        shared = self._shared.get(asyncio.get_running_loop())
        return None if shared is None else shared.handlers.get(version)

    def find_workflow(self, version: Version) -> WorkflowHandler | None:
        """Return the known handler of a workflow."""
        shared = self._shared.get(asyncio.get_running_loop())
        return None if shared is None else shared.workflows.get(version)

    async def load(self, kind: str) -> None:
        """Import the modules of a kind in a thread, as this takes up to half a second."""
        if kind not in self._loaded:
            modules = MODULES.get(kind, ())
            if kind == "sql" and any(
                url.startswith("postgres") for url in self.options.connections.values()
            ):
                modules += (POSTGRES_MODULE,)
            await asyncio.to_thread(_load, modules)
            self._loaded.add(kind)

    def learn(self, job: Job) -> None:
        """Make the handler of a version, if this worker can run it."""
        if capability_of(job.definition.needs) not in self.offered:
            return
        shared, version = self._here(), (job.tenant, job.name, job.version)
        if job.definition.kind == "workflow":
            shared.learn_workflow(version, job.definition)
            return
        handler = shared.make(job.definition)
        if handler is not None:
            shared.keep(version, handler)

    def make_node(self, definition: JobDefinition) -> NodeHandler:
        """Make the handler of a workflow node without code."""
        return NodeHandler(definition, self._here().make)

    def _here(self) -> Shared:
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = Shared(self, self._reveal)
        return shared

    def forget(self) -> None:
        """Forget all handlers: another store has other jobs."""
        for shared in self._shared.values():
            shared.handlers.clear()
            shared.workflows.clear()

    async def close(self) -> None:
        """Close the shared resources of this event loop."""
        shared = self._shared.pop(asyncio.get_running_loop(), None)
        if shared is not None:
            await shared.close()


class Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Shared:
    """Handlers and resources of one event loop, each created on first use."""

    def __init__(self, kinds: Kinds, reveal: Reveal) -> None:
        self.handlers: dict[Version, KindHandler] = {}
        self.workflows: dict[Version, WorkflowHandler] = {}
        self._kinds = kinds
        self._reveal = reveal
        self._opened = AsyncExitStack()

    @property
    def _options(self) -> KindOptions:
        """The current options; an app may be opened before its worker sets them."""
        return self._kinds.options

    def keep(self, version: Version, handler: KindHandler) -> None:
        """Add a handler to the cache."""
        if len(self.handlers) >= REMEMBERED_MAX:
            self.handlers.clear()
        self.handlers[version] = handler

    def learn_workflow(self, version: Version, definition: JobDefinition) -> None:
        """Add a workflow to the cache; a known one keeps the handlers of its nodes."""
        known = self.workflows.pop(version, None)
        if known is None or known.definition != definition:
            known = WorkflowHandler(definition)
        if len(self.workflows) >= WORKFLOWS_MAX:
            del self.workflows[next(iter(self.workflows))]
        self.workflows[version] = known

    def make(self, definition: JobDefinition) -> KindHandler | None:
        """Make a handler; None for a kind that this version does not know."""
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
        return self._register(Commands())

    @cached_property
    def http(self) -> Http:
        from daybell.runners.http import Http  # loads httpx

        return self._register(Http(allow_private=self._options.allow_private_http))

    @cached_property
    def connections(self) -> Connections:
        return self._register(Connections(self._options.connections))

    @cached_property
    def notifier(self) -> Notifier:
        return self._register(Notifier(allow_private=self._options.allow_private_http))

    async def close(self) -> None:
        await self._opened.aclose()

    def _register(self, opened: C) -> C:
        self._opened.push_async_callback(opened.close)
        return opened


def _load(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(ImportError):  # reported by the handler that needs it
            import_module(module)


def can_notify() -> bool:
    """Return True if the extra `notify` is installed."""
    return find_spec("apprise") is not None


TaskHandler = PythonHandler | ProcessHandler
Handler = TaskHandler | WrappedHandler | KindHandler | NodeHandler | WorkflowHandler

logger = logging.getLogger("daybell.sdk")

TASKS_PUBLISHED_MAX: Final = 2_000  # task names that a worker publishes


class AppHandlers:
    """Finds handlers of jobs: on the loop, in threads, in child processes, or without code."""

    def __init__(self, app: HandledApp) -> None:
        self._app = app
        self._threads = Threads()
        self._handlers: dict[tuple[str, bool], TaskHandler] = {}
        self._processes: WeakKeyDictionary[asyncio.AbstractEventLoop, Processes] = (
            WeakKeyDictionary()
        )
        # By version of the job, which may run a task of another name.
        self._by_version: dict[tuple[Version, bool], TaskHandler] = {}
        # Shared by workflow nodes that run the same.
        self._alike: dict[tuple[object, ...], TaskHandler | BranchHandler] = {}
        # Tasks of jobs and nodes that this code does not have.
        self._unknown: dict[tuple[Version, str | None], str] = {}
        self.secrets = Secrets(app)
        self._kinds = Kinds(self.secrets)
        self.pool_options: PoolOptions | None = None
        self.runs_max: int | None = None  # runs on the loop and in threads until `is_worn` is set
        self.is_worn = asyncio.Event()
        self._runs = 0

    @property
    def kind_options(self) -> KindOptions:
        """Options for jobs without code; set before a worker starts."""
        return self._kinds.options

    @kind_options.setter
    def kind_options(self, options: KindOptions) -> None:
        self._kinds.options = options

    @property
    def kinds(self) -> tuple[str, ...]:
        """The capabilities of a worker with these handlers: see `JobDefinition.needs`."""
        return self._kinds.offered

    @property
    def tasks(self) -> dict[str, str] | None:
        """The queue of each task, by name; None: too many to publish."""
        tasks = self._app.tasks
        if len(tasks) > TASKS_PUBLISHED_MAX:
            return None
        return {name: tasks[name].definition.queue for name in sorted(tasks)}

    def find(self, claimed: Claimed) -> Handler | None:
        version = claimed.tenant, claimed.job, claimed.version
        if claimed.kind == "workflow":
            return self._kinds.find_workflow(version)
        if claimed.node is not None:
            # A node with a job of its own is found by that job.
            workflow = self._kinds.find_workflow(version)
            if workflow is not None:
                return workflow.handlers.get((node_name(claimed.node), self._isolates))
        found = self._by_version.get((version, self._isolates))
        return found or self._kinds.find(version)

    async def ask(self, claimed: Claimed) -> Handler | None:
        """Find the handler by the job's definition, at the claimed version."""
        version = claimed.tenant, claimed.job, claimed.version
        if self.lacking(claimed) is not None:
            return None  # known from an earlier attempt
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
        """Return the capability that the execution lacks here; None: none is known."""
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
            job = await load_job(client, claimed.job, version=claimed.version)
        except (NotFound, Unavailable) as error:
            logger.warning("the definition of job %r cannot be read: %s", claimed.job, error)
            return
        await self._kinds.load(job.definition.kind)
        self.learn([job])

    def learn(self, jobs: Iterable[Job]) -> None:
        """Make the handlers of these versions."""
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
        """Make the handler of a workflow node."""
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
            handler = self._make_node(task, workflow.definition_of(node))
            if node.branch:
                handler = BranchHandler(handler, node.branch)
            self._alike[how] = handler
        workflow.handlers[key] = handler

    def _make_node(self, task: Task[..., Any, Any], definition: JobDefinition) -> TaskHandler:
        if definition.retry.to_json() == task.definition.retry.to_json():
            # Functions of a retry policy are not in the store.
            definition = replace(definition, retry=task.definition.retry)
        own = replace(definition, store_result=task.definition.store_result)
        return self._make(task, own, isolate=self._isolates)

    def forget(self) -> None:
        """Forget all handlers and secrets: another store has other jobs."""
        self._by_version.clear()
        self._unknown.clear()
        self._kinds.forget()
        self.secrets.forget()

    @property
    def _isolates(self) -> bool:
        """False in tests: their store is in this process, and so are the objects to inspect."""
        return self._app.stand_in is None

    def hide_settings(self) -> None:
        """Mask keys and passwords of this process in all output: a command can read the worker's
        environment.
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
        """End the child processes and shared resources of this event loop."""
        await self._kinds.close()
        processes = self._processes.pop(asyncio.get_running_loop(), None)
        if processes is not None:
            await processes.close()

    def _own(self, task: Task[..., Any, Any], *, isolate: bool) -> TaskHandler:
        """Return the handler of a task under its own name, for any version."""
        key = task.name, isolate
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = self._make(task, task.definition, isolate=isolate)
        return handler

    def _make(
        self, task: Task[..., Any, Any], definition: JobDefinition, *, isolate: bool
    ) -> TaskHandler:
        """Make a handler: the code decides how it runs, the definition how often and how long."""
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


KEPT_SECONDS: Final = 3.0  # changed secrets apply within 5 s
KEPT_MAX: Final = 10_000

Opened = dict[str, str]  # values by name


class Secrets:
    """Resolves references to secrets for an app's executions: a `Reveal` of runners/kind.py. The
    execution masks its secrets.
    """

    def __init__(self, app: HandledApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, str], tuple[Seconds, str]] = {}  # by tenant and name
        self._fetching: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def value(self, running: RunningAttempt, value: Any) -> Any:
        """Resolve the secrets in a part of a job's settings."""
        names = names_in(value)
        opened = await self._open(running, names) if names else {}
        return fill_references(value, "secret", opened.__getitem__)

    async def args(self, running: RunningAttempt) -> dict[str, Any]:
        """Resolve the secrets in the arguments of an execution."""
        args = payload.decode(running.claimed.args, what="args")
        names = names_in_args(args)
        opened = await self._open(running, names) if names else {}
        return fill_args(args, opened.__getitem__)

    def forget(self) -> None:
        """Forget all secrets: another store has others."""
        self._kept.clear()

    async def _open(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        found = self._look_up(tenant, names)
        if len(found) < len(names):
            # One at a time: the first of concurrent executions fetches for all.
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
        """Return the cached secrets."""
        since = asyncio.get_running_loop().time() - KEPT_SECONDS
        kept = {name: self._kept.get((tenant, name)) for name in names}
        return {name: one[1] for name, one in kept.items() if one is not None and one[0] > since}

    async def _fetch(self, running: RunningAttempt, names: Collection[str]) -> Opened:
        tenant = running.claimed.tenant
        if self._app.remote is not None:
            return await _ask_server(self._app.remote, running, names)
        at = asyncio.get_running_loop().time()  # before the query, which may be slow
        try:
            client = await self._app.client_for(tenant)
            sealed = await client.store.admin.fetch_secrets(tenant, names)
        except Unavailable as error:
            listed = ", ".join(sorted(names))
            raise _secret_error(
                "SecretsUnavailable", f"{listed} cannot be fetched: {error}"
            ) from None
        for name in sorted(names):
            if name not in sealed:
                running.is_hopeless = True
                raise _secret_error(
                    "SecretNotFound",
                    f"there is no secret named {name} in tenant {tenant}; set it with"
                    f" `daybell secrets set {name}`, then retry",
                )
        if client.secrets_key is None:
            name = min(sealed)
            # Other workers may have the key.
            raise _secret_error(
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
            raise _secret_error("SecretUnopenable", str(error)) from None
        except UsageError as error:
            raise _secret_error("SecretsKeyMissing", f"at this worker: {error}") from None
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept |= {(tenant, name): (at, value) for name, value in opened.items()}
        return opened


async def _ask_server(
    server: RemoteStore, running: RunningAttempt, names: Collection[str]
) -> Opened:
    """Return secrets of an execution from the server, which opens them. They are not kept: the
    next execution may not refer to them.
    """
    try:
        return (await server.details(running.claimed.id, sorted(names))).secrets
    except NotFound as error:
        running.is_hopeless = isinstance(error, SecretNotFound)
        raise _secret_error("SecretNotFound", str(error)) from None
    except DaybellError as error:
        raise _secret_error("SecretsUnavailable", str(error)) from None


def _sealer_of(client: Client) -> Sealer:
    """Return the sealer of secrets, and mask its key, which tasks can read."""
    sealer = client.sealer()
    masks.add_settings(part.strip() for part in (client.secrets_key or "").split(","))
    return sealer


def _secret_error(kind: str, message: str) -> DescribedError:
    return DescribedError.as_text(kind, message)

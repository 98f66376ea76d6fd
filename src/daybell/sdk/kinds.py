"""Jobs without code, as a worker runs them: what it offers, and what they share in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from daybell.core.job import Job, JobDefinition
from daybell.core.kinds.http import PRIVATE

if TYPE_CHECKING:
    # A program that only enqueues should not pay for what runs commands and requests.
    from daybell.runners.command import Commands
    from daybell.runners.http import Http
    from daybell.runners.kind import KindHandler, Reveal
    from daybell.runners.notify import Notifier
    from daybell.runners.sql import Connections
    from daybell.runners.workflow import NodeHandler, WorkflowHandler
    from daybell.sdk.app import App

REMEMBERED_MAX: Final = 10_000  # versions of jobs
WORKFLOWS_MAX: Final = 100  # versions, each with its whole graph

# What runs jobs of a kind, with all that it imports when it is used.
MODULES: Final = {
    "command": ("daybell.runners.command",),
    "http": ("daybell.runners.http", "daybell.runners.http_exchange"),
    "sql": ("daybell.runners.sql", "daybell.runners.sql_sqlite"),
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


class Kinds:
    """Handlers of jobs without code. What they share belongs to an event loop, and so do they."""

    def __init__(self, app: App) -> None:
        self.options = KindOptions()
        self._app = app
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
        from daybell.runners.workflow import NodeHandler

        return NodeHandler(definition, self._here().make)

    def _here(self) -> Shared:
        loop = asyncio.get_running_loop()
        shared = self._shared.get(loop)
        if shared is None:
            shared = self._shared[loop] = Shared(self, self._app.handlers.secrets)
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
        from daybell.runners.workflow import WorkflowHandler

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
                from daybell.runners.command import CommandHandler, CommandOptions

                allowed = CommandOptions(
                    allow_env=self._options.allow_env, pass_env=self._options.pass_env
                )
                return CommandHandler(definition, self._reveal, allowed, self.commands)
            case "http":
                from daybell.runners.http import HttpHandler

                return HttpHandler(definition, self._reveal, self.http)
            case "sql":
                from daybell.runners.sql import SqlHandler

                return SqlHandler(definition, self._reveal, self.connections)
            case "notify":
                from daybell.runners.notify import NotifyHandler

                return NotifyHandler(definition, self._reveal, self.notifier)
            case _:
                return None

    @cached_property
    def commands(self) -> Commands:
        from daybell.runners.command import Commands

        return self._kept(Commands())

    @cached_property
    def http(self) -> Http:
        from daybell.runners.http import Http

        return self._kept(Http(allow_private=self._options.allow_private_http))

    @cached_property
    def connections(self) -> Connections:
        from daybell.runners.sql import Connections

        return self._kept(Connections(self._options.connections))

    @cached_property
    def notifier(self) -> Notifier:
        from daybell.runners.notify import Notifier

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

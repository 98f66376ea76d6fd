"""Workflow jobs: the start of a run, branch tasks, and nodes without code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Protocol, cast

from msgspec.structs import replace

from daybell.core import payload
from daybell.core.execution import Claimed
from daybell.core.job import JobDefinition
from daybell.core.workflow.expressions import fill_settings
from daybell.core.workflow.graph import Graph, decode_args, plain_by_name
from daybell.core.workflow.node import GraphNode, check_choice
from daybell.core.workflow.run import Plan
from daybell.errors import InvalidWorkflow, UsageError
from daybell.runners.kind import HandlerWrapper, KindHandler, WrappedHandler
from daybell.runners.python import MaskedAttempt, RunningAttempt

# Larger definitions are read in a thread: on the loop they would delay all other executions.
QUICK_CHARS: Final = 50_000


class ExpandableAttempt(RunningAttempt, Protocol):
    """An execution that can become a run."""

    async def expand(self, plan: Plan) -> None:
        """See `engine.attempt.Attempt`, which this must match."""
        ...


class WorkflowHandler:
    """Handler of one version of a workflow."""

    timeout = None  # of its nodes: beginning takes no time
    grace = 0.0
    goes_on = False
    starts_once = False

    def __init__(self, definition: JobDefinition) -> None:
        self.retry = definition.retry
        self.definition = definition
        # Handlers of its nodes, kept by the first caller.
        self.handlers: dict[tuple[str, bool], WrappedHandler | NodeHandler] = {}

    @cached_property
    def _graph(self) -> Graph:
        return Graph.from_settings(self.definition.settings)

    async def run(self, running: ExpandableAttempt) -> str | None:
        """Begin the run. Its nodes are in the store at the return."""
        try:
            plan = await self._aside(lambda: self._graph.plan(_run_arguments(running.claimed)))
        except Exception:
            running.is_hopeless = True  # a retry would fail again
            raise
        try:
            await running.expand(plan)
        except InvalidWorkflow:
            running.is_hopeless = True  # nested too deep, on every worker
            raise
        return None

    async def node(self, name: str) -> GraphNode | None:
        """Return a node of it; None: no node has that name."""
        graph = self.__dict__.get("_graph") or await self._aside(lambda: self._graph)
        return graph.by_name.get(name)

    def definition_of(self, node: GraphNode) -> JobDefinition:
        """Return the definition by which a node runs."""
        return self._graph.definition_of(node, self.definition)

    async def _aside(self, work: Callable[[], Any]) -> Any:
        if len(self.definition.settings) > QUICK_CHARS:
            return await asyncio.to_thread(work)
        return work()


def _run_arguments(claimed: Claimed) -> dict[str, Any]:
    """Return the arguments of a run, all of them as data."""
    given = decode_args(claimed.args)
    # Values of an outer run are quoted against the search for references, unlike others.
    return given if claimed.node is None else plain_by_name(given)


class BranchHandler(HandlerWrapper):
    """Handler of a task that chooses the next nodes: it must name some of them."""

    def __init__(self, task: WrappedHandler, names: tuple[str, ...]) -> None:
        super().__init__(task)
        self._names = names

    async def run(self, running: RunningAttempt) -> str | None:
        result = await self.inner.run(running)
        check_choice(result, self._names)
        return result


class NodeHandler:
    """Handler of a node without code: its settings may have results of other nodes in them."""

    def __init__(
        self, definition: JobDefinition, make: Callable[[JobDefinition], KindHandler | None]
    ) -> None:
        self.retry = definition.retry
        self.timeout = definition.timeout
        self.starts_once = definition.on_lost == "dead"
        self.goes_on = False
        self.grace = 0.0
        self._definition = definition
        self._settings: dict[str, Any] = payload.decode(definition.settings)
        self._make = make

    async def run(self, running: MaskedAttempt) -> str | None:
        kind = self._definition.kind
        try:
            settings = fill_settings(kind, self._settings, running.claimed.args)
            text = payload.encode(settings, what="settings")
            handler = self._make(replace(self._definition, settings=text))
        except UsageError:
            running.is_hopeless = True
            raise
        assert handler is not None, kind
        self.grace = handler.grace  # of a command, from its settings
        return await handler.run(cast("MaskedAttempt", _WithoutArguments(running)))


class _WithoutArguments:
    """An execution without arguments: its settings contain them already."""

    claimed: Claimed

    def __init__(self, running: MaskedAttempt) -> None:
        # Not by `=`, which is passed on.
        self.__dict__.update(_running=running, claimed=replace(running.claimed, args="{}"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_running"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_running"], name, value)

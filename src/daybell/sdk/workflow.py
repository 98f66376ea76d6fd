"""Workflows in Python: a block in which tasks are put in order, and the job that this makes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast
from uuid import UUID

from msgspec.structs import replace

from daybell.client.requests import TaskOptions, check_options, read_definition
from daybell.client.workflow_calls import check_call
from daybell.core import payload
from daybell.core.graph import Graph
from daybell.core.job import DEFAULT_QUEUE, JobDefinition
from daybell.core.limits import WORKFLOW_BYTES_MAX, check_name
from daybell.core.params import Params, check_given
from daybell.errors import InvalidArguments, InvalidWorkflow, UsageError, shown
from daybell.sdk.draft import Draft
from daybell.sdk.enqueuing import CallOptions, Enqueuing
from daybell.sdk.fitting import check_fit
from daybell.sdk.handle import Handle
from daybell.sdk.isolation import here
from daybell.sdk.nodes import NODE_OPTIONS, Node, Nodelike, NodeOptions, draft, open_draft
from daybell.sdk.params import Declared, ParamsGiven, read_declared
from daybell.sdk.task import Task

if TYPE_CHECKING:
    from daybell.sdk.app import App
    from daybell.sdk.sync import SyncWorkflow

logger = logging.getLogger("daybell.sdk")

# What a function has and a graph has not.
_OF_TASKS: Final = ("store_result",)
WORKFLOW_OPTIONS: Final = frozenset(TaskOptions.__optional_keys__ - {*_OF_TASKS})
# How often and how long is up to the nodes, so it is not said for one run.
_OF_NODES: Final = ("retries", "timeout")
RUN_OPTIONS: Final = frozenset(CallOptions.__optional_keys__ - {*_OF_NODES})


class Workflow(Nodelike, Enqueuing[Any]):
    """A graph of tasks and other jobs, which is a job itself: made by `app.workflow(…)`.

    Inside its block, `a >> b` says that b comes after a. When the block ends, it is checked as a
    whole, and can be enqueued. As a node of another workflow it is one node there.
    """

    def __init__(
        self,
        app: App,
        policy: JobDefinition,
        *,
        params: Params,
        fail_fast: bool,
        max_running: int | None,
    ) -> None:
        self.app = app
        self.name = policy.name
        self.params = Declared(policy.name, params)
        self._params = params
        self._graph = {
            "params": [param.to_settings() for param in params],
            "fail_fast": fail_fast,
            "max_running": max_running,
        }
        self._policy = policy  # the definition, still without nodes
        self._draft: Draft | None = None
        self._token: Token[Draft | None] | None = None
        self._definition: JobDefinition | None = None
        self.inner: tuple[Workflow, ...] = ()  # those that are nodes of this one
        self._options: CallOptions = {}

    def __repr__(self) -> str:
        return f"<Workflow {self.name}>"

    def __enter__(self) -> Self:
        if self._definition is not None or self._draft is not None:
            raise InvalidWorkflow(f"workflow {self.name!r} has been written; it has one block")
        around = draft.get()
        if around is not None:
            raise InvalidWorkflow(
                f"workflow {self.name!r} is begun inside the block of workflow {around.name!r};"
                " write it before, and use it as a node there"
            )
        self._draft = Draft(self.app, self.name, self._params)
        self._token = draft.set(self._draft)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._draft is not None and self._token is not None
        written, self._draft = self._draft, None
        draft.reset(self._token)
        if kind is not None:
            return
        self._definition = self._written(written)
        self.inner = tuple(written.inner)
        self.app.add_workflow(self)
        self._tell_unused()

    def _tell_unused(self) -> None:
        """Whoever gives a parameter that nobody gets believes that it does something."""
        used = {name for node in self.graph.nodes for name in node.params}
        for name in self.params:
            if name not in used and not here.is_child:
                logger.warning(
                    "workflow %r: parameter %r is used by no node; call a task's parameter so, bind"
                    " it with .bind(…), or leave it out", self.name, name,
                )  # fmt: skip

    def _written(self, written: Draft) -> JobDefinition:
        graph = Graph.parse(written.settings(self._policy) | self._graph).inherit(written.tasks)
        text = payload.encode(graph.to_settings(), what="nodes", bytes_max=WORKFLOW_BYTES_MAX)
        definition = replace(self._policy, settings=text)
        check_call(definition)
        return definition

    @property
    def definition(self) -> JobDefinition:
        """What it is, as the store keeps it."""
        if self._definition is None:
            raise InvalidWorkflow(
                f"workflow {self.name!r} has not been written; say `with app.workflow(…) as etl:`"
                " and put its nodes in order there"
            )
        return self._definition

    @functools.cached_property
    def graph(self) -> Graph:
        """Its nodes and edges."""
        return Graph.from_settings(self.definition.settings)

    def options(self, **options: Unpack[CallOptions]) -> Workflow:
        """The same workflow with other options for what is enqueued through it."""
        _check_call_options(options)
        other = object.__new__(Workflow)
        other.__dict__ |= self.__dict__ | {"_options": {**self._options, **options}}
        return other

    async def enqueue(self, /, *args: Any, **params: Any) -> Handle[Any]:
        """Have it run with these parameters. Its result is that of its one last node, or of all of
        them by name.
        """
        return await self._enqueue_one(args, params)

    @property
    def sync(self) -> SyncWorkflow:
        """The same from code without an event loop."""
        from daybell.sdk.sync import SyncWorkflow

        return SyncWorkflow(self)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What it is called with, checked."""
        _ = self.definition
        if args:
            names = ", ".join(f"{name}=…" for name in self.params)
            takes = f"its parameters by name: enqueue({names})" if names else "no arguments"
            raise InvalidArguments(f"workflow {self.name!r} takes {takes}")
        check_given(self._params, kwargs, what=f"workflow {self.name!r}")
        check_fit(self, kwargs)
        return dict(kwargs)

    def _handle(self, id: UUID, created: bool) -> Handle[Any]:
        return Handle(self._find_client, id, created=created)


class Weaving:
    """What an App can do about workflows."""

    tasks: dict[str, Task[..., Any, Any]]
    workflows: dict[str, Workflow]

    def workflow(
        self,
        name: str,
        *,
        params: ParamsGiven | None = None,
        fail_fast: bool = False,
        max_running: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> Workflow:
        """Put tasks in order: `with app.workflow("etl") as etl: extract >> [a, b] >> load`.

        `params` are what a run may be given, `{"day": ..., "limit": 10}`: defaults by name, and
        `...` for what must be given. `args` are what a schedule gives it.
        `fail_fast` starts nothing more once a node has failed; else all is run that does not depend
        on it. `max_running` is how many nodes may run at a time. `retries`, `timeout`, `queue` and
        `priority` are those of nodes that say nothing else, and whose task does not. The rest is as
        for a task: when it runs, and under which rules.
        """
        check_name(name, what="workflow")
        for one in _OF_TASKS:
            if one in options:
                raise UsageError(
                    f"a workflow has no {one}=; say it for the tasks that are its nodes", field=one
                )
        check_options(options, WORKFLOW_OPTIONS, "workflow()")
        self.check_new(name)
        policy = replace(read_definition(name, **options), kind="workflow")
        app = cast("App", self)
        declared = read_declared(params)
        return Workflow(app, policy, params=declared, fail_fast=fail_fast, max_running=max_running)

    @property
    def queues(self) -> set[str]:
        """All that its tasks and workflows use, and the default one."""
        jobs = [*self.tasks.values(), *self.workflows.values()]
        nodes = (node for one in self.workflows.values() for node in one.graph.nodes)
        own = {node.queue for node in nodes if node.queue is not None}
        return {one.definition.queue for one in jobs} | own | {DEFAULT_QUEUE}

    def add_workflow(self, workflow: Workflow) -> None:
        """Have it defined where this app is open from now on."""
        self.check_new(workflow.name)
        self.workflows[workflow.name] = workflow

    def check_new(self, name: str) -> None:
        """Refuse a second job of a name."""
        for what, known in (("task", self.tasks), ("workflow", self.workflows)):
            if name in known:
                raise UsageError(
                    f"there is a {what} named {shown(name)} already; give one of them a name="
                    if what == "task"
                    else f"there is a workflow named {shown(name)} already; choose another name"
                )


def job(name: str, node: str | None = None, /, **options: Unpack[NodeOptions]) -> Node:
    """A node that runs a job of this name, wherever that was made, as it is when its turn comes.

    It is called like the job, or `node`. With `.bind(…)` it is given arguments, by name.
    """
    check_options(options, NODE_OPTIONS, "job()")
    return open_draft("job()").add_job(check_name(name, what="job"), node, options)


def _check_call_options(options: CallOptions) -> None:
    for one in _OF_NODES:
        if one in options:
            raise UsageError(f"{one} is for a task; the nodes of a workflow have their own")
    check_options(options, RUN_OPTIONS, "options()")

"""Workflows in Python: blocks that put tasks in order, and the jobs that they make."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextvars import Token
from copy import copy
from types import TracebackType
from typing import Any, Final, NoReturn, Self, Unpack, cast

from msgspec.structs import replace

from daybell.client.job_checks import check_call
from daybell.client.requests import check_options, read_definition
from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.job import JobDefinition
from daybell.core.limits import WORKFLOW_BYTES_MAX, check_name
from daybell.core.options import TaskOptions, read_limit
from daybell.core.references import names_in
from daybell.core.retry import Retry
from daybell.core.workflow.expressions import PARAM, find_outputs, output
from daybell.core.workflow.graph import Graph, Params, check_given, check_passed
from daybell.core.workflow.node import GraphNode
from daybell.core.workflow.rules import Rule
from daybell.errors import InvalidArguments, InvalidWorkflow, UsageError, shown
from daybell.sdk.isolation import process_info
from daybell.sdk.nodes import (
    NODE_OPTIONS,
    DeclaredParams,
    End,
    Linkable,
    Links,
    Node,
    NodeHome,
    Nodelike,
    NodeOptions,
    NodeTask,
    Param,
    ParamsGiven,
    When,
    draft,
    flatten_links,
    open_draft,
    read_declared,
)
from daybell.sdk.sync import run
from daybell.sdk.task import (
    CallOptions,
    Enqueueable,
    Handle,
    JobApp,
    SyncEnqueueable,
    SyncHandle,
    Task,
)

# A workflow during its block.


class Draft:
    """The nodes and edges of a block so far."""

    def __init__(self, app: JobApp, name: str, params: Params = ()) -> None:
        self.app = app
        self.name = name
        self._params = params
        self.is_over = False
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str], str | None] = {}
        self._inner: dict[str, Workflow] = {}  # by the name of the node
        self._unused: dict[tuple[str, str | None], None] = {}  # conditions without a next node

    def label(self, node: Node) -> str:
        """Return the name of a node for messages."""
        return f"node {node.name!r} of workflow {self.name!r}"

    def add(self, what: Nodelike, name: str | None, options: NodeOptions) -> Node:
        """Return the node of this name that runs this; add it if it is new."""
        task, inner = self._task(what), self._workflow(what)
        assert task is not None or inner is not None
        job = None if inner is None else inner.name
        return self.add_job(job, name, options, task=task, inner=inner)

    def add_job(
        self,
        job: str | None,
        name: str | None,
        options: NodeOptions,
        *,
        task: Task[..., Any, Any] | None = None,
        inner: Workflow | None = None,
    ) -> Node:
        """Return the node of this name for a job by name; add it if it is new."""
        name = check_name(name or job or (task.name if task else ""), what="node")
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node(self, name, task=task, job=job, inner=inner)
            if inner is not None:
                self._inner[name] = inner
        elif (node.job, node.task and node.task.name) != (job, task and task.name):
            other = node.job or (node.task.name if node.task else "")
            raise InvalidWorkflow(
                f"there is a node {name!r} in workflow {self.name!r} already, and it runs"
                f" {other!r}; give this one a name of its own with .node(…)"
            )
        return node.set(options)

    def link(self, first: Linkable, then: Linkable) -> Links:
        """Link nodes: all of `first` come before all of `then`: `>>`."""
        self._join(self.ends(first), self._first(then))
        return Links(self._last(then), first=self._first(first), is_chain=True)

    def link_before(self, then: Linkable, first: Linkable) -> Links:
        """Link nodes in the reverse notation: `<<`."""
        self._join(self._last(first), self.heads(then))
        begins = self._first(first)
        return Links(
            self.ends(first), heads=begins, first=begins, last=self._last(then), is_chain=True
        )

    def _join(self, parents: list[End], children: list[End]) -> None:
        if not parents or not children:
            self._refuse_empty(parents, children)
        for parent in parents:
            for child in children:
                self._link(parent, child.node)

    def _refuse_empty(self, parents: list[End], children: list[End]) -> NoReturn:
        # Two empty lists have no `>>`.
        beside = self.label((parents or children)[0].node)
        where = "after" if parents else "before"
        raise InvalidWorkflow(
            f"{beside} has an empty list {where} it; put nodes into the list, or leave it out"
        )

    def heads(self, thing: Linkable) -> list[End]:
        """Return the nodes to put another one before."""
        return self._meant(thing, lambda links: links.heads)

    def ends(self, thing: Linkable) -> list[End]:
        """Return the nodes to continue from."""
        return self._meant(thing, lambda links: links.ends)

    def _first(self, thing: Linkable) -> list[End]:
        """Return the first nodes of a chain as a whole."""
        return self._meant(thing, lambda links: links.first)

    def _last(self, thing: Linkable) -> list[End]:
        return self._meant(thing, lambda links: links.last)

    def _meant(self, thing: Linkable, side: Callable[[Links], Iterable[End]]) -> list[End]:
        found: list[End] = []
        for one in flatten_links(thing):
            if isinstance(one, Links):
                found += side(one)
            elif isinstance(one, When):
                found.append(End(one.node, one.condition))
            elif isinstance(one, Node):
                found.append(End(one))
            elif isinstance(one, Nodelike):
                found.append(End(self.add(one, None, {})))
            else:
                raise InvalidWorkflow(
                    f"{shown(one)} cannot be a node of workflow {self.name!r}; a node is a task, a"
                    " workflow, or job(name)"
                )
        for end in found:
            self.check_open(end.node)
        return found

    def check_open(self, node: Node) -> None:
        """Reject a node of another block, or of a closed one."""
        if node.home is not self:
            raise InvalidWorkflow(
                f"{self.label(node)[: -len(repr(self.name))]}{node.home.name!r} cannot be used in"
                f" workflow {self.name!r}; make another with .node(…)"
            )
        if self.is_over:
            raise InvalidWorkflow(f"the block of workflow {self.name!r} has ended; write it there")

    def check_param(self, param: Param, node: Node) -> None:
        """Reject a parameter of another workflow."""
        if param.workflow != self.name:
            raise InvalidWorkflow(
                f"{self.label(node)} is given {param!r}, which is another workflow's; its own are"
                f" in params={{…}} of {self.name!r}"
            )

    def note_condition(self, node: Node, condition: str) -> None:
        """Note a condition, which needs a node that depends on it."""
        self._unused[node.name, condition] = None

    def _link(self, parent: End, child: Node) -> None:
        self._unused.pop((parent.node.name, parent.condition), None)
        key = parent.node.name, child.name
        if key in self._edges and self._edges[key] != parent.condition:
            if parent.condition is None:
                return  # a link with a condition exists
            if self._edges[key] is not None:
                raise InvalidWorkflow(
                    f"{self.label(child)} has two conditions on {parent.node.name!r}; join them"
                    " with `and`"
                )
        self._edges[key] = parent.condition

    def _task(self, what: Nodelike) -> Task[..., Any, Any] | None:
        if not isinstance(what, Task):
            return None
        task = cast("Task[..., Any, Any]", what)
        if task.app is not self.app:
            raise InvalidWorkflow(
                f"task {task.name!r} belongs to another app than workflow {self.name!r}; a job of"
                f" another app is job({task.name!r})"
            )
        if task.call_options:
            raise InvalidWorkflow(
                f"options() of task {task.name!r} are for one enqueue; for a node say"
                f" {task.name}.node({', '.join(f'{key}=…' for key in task.call_options)})"
            )
        return task

    def _workflow(self, what: Nodelike) -> Workflow | None:
        if not isinstance(what, Workflow):
            return None
        if what.name == self.name:
            raise InvalidWorkflow(f"workflow {self.name!r} cannot be a node of itself")
        if what.app is not self.app:
            raise InvalidWorkflow(
                f"workflow {what.name!r} belongs to another app than workflow {self.name!r}; a job"
                f" of another app is job({what.name!r})"
            )
        _ = what.definition  # raises if its block was not closed
        return what

    # --- the result ---------------------------------------------------------------------------

    def settings(self, policy: JobDefinition) -> dict[str, Any]:
        """Return the graph as JSON, after checking the arguments of its nodes."""
        if not self._nodes:
            raise InvalidWorkflow(
                f"workflow {self.name!r} has no nodes; inside its block say a >> b, or a.node()"
            )
        for name, condition in self._unused:
            raise InvalidWorkflow(
                f"node {name!r} of workflow {self.name!r} has a condition, {condition}, and nothing"
                f" depends on it; say {name}.when(…) >> another"
            )
        self.is_over = True
        parents: dict[str, list[str]] = {}
        for first, then in self._edges:
            parents.setdefault(then, []).append(first)
        return {
            "nodes": [
                self._node(node, parents.get(node.name, []), policy)
                for node in self._nodes.values()
            ],
            "edges": [
                [first, then]
                if condition is None
                else {"from": first, "to": then, "when": condition}
                for (first, then), condition in self._edges.items()
            ],
        }

    @property
    def tasks(self) -> dict[str, JobDefinition]:
        """The definitions of its tasks, by name."""
        return {one.task.name: one.task.definition for one in self._nodes.values() if one.task}

    @property
    def inner(self) -> list[Workflow]:
        """Workflows that are nodes of this one."""
        return list(self._inner.values())

    def _node(self, node: Node, parents: list[str], policy: JobDefinition) -> dict[str, Any]:
        written: dict[str, Any] = {"name": node.name}
        if node.task is None:
            written["job"] = node.job
            self._check_inner(node)
            self._call_inner(node, parents)
        else:
            written["task"] = node.task.name
            self._call(node, node.task, parents)
            self._check_promises(node, node.task, policy)
        if node.args:
            written["args"] = payload.decode(payload.encode(node.args, what=f"args of {node.name}"))
        if node.over is not None:
            written["map"] = payload.decode(payload.encode(node.over, what=f"map of {node.name}"))
        if node.choices:
            written["branch"] = list(node.choices)
        return written | {name: _as_json(name, value) for name, value in node.options.items()}

    def _call(self, node: Node, task: NodeTask, parents: list[str]) -> None:
        """Pass results and parameters by name, and check the call of the task."""
        known = payload.annotations_of(task.function).keys() - task.context_names
        self._pass_by_name(node, known, parents)
        try:
            given = payload.bind(task.function, (), node.args, skip=task.context_names)
            stored = payload.decode(payload.encode(given))
            unseen = {
                name
                for name, value in stored.items()
                if names_in(value) or next(find_outputs(value), None) is not None
            }
            payload.convert(task.function, stored, skip=task.context_names, unseen=unseen)
        except InvalidArguments as error:
            missing = error.field is not None and error.field not in node.args
            hint = (
                f"; call it like an upstream node or a parameter of the workflow, or say"
                f" {task.name}.bind({error.field}=…)"
                if missing and error.field in known
                else ""
            )
            raise InvalidArguments(
                f"{self.label(node)}: {error}{hint}", field=error.field
            ) from None

    def _call_inner(self, node: Node, parents: list[str]) -> None:
        """Pass results and parameters by name, and check the call of an inner workflow."""
        inner = self._inner.get(node.name)
        if inner is None:
            return  # a job by name, which may change before the run
        known = inner.graph.params
        self._pass_by_name(node, {param.name for param in known}, parents)
        check_passed(known, node.args, what=f"{self.label(node)}: workflow {inner.name!r}")

    def _pass_by_name(self, node: Node, known: Set[str], parents: list[str]) -> None:
        """Add unbound arguments by name: from parents, then from the parameters of the run."""
        passed = {name: self._nodes[name].output.reference() for name in parents}
        passed = {one.name: {PARAM: one.name} for one in self._params} | passed
        for name, value in passed.items():
            if name in known:
                node.args.setdefault(name, value)

    def _check_inner(self, node: Node) -> None:
        for name in ("retries", "timeout"):
            if node.inner is not None and name in node.options:
                raise InvalidWorkflow(
                    f"{self.label(node)} is a workflow, which has no {name}= as a whole; its own"
                    " nodes have"
                )

    def _check_promises(self, node: Node, task: NodeTask, policy: JobDefinition) -> None:
        if task.definition.on_lost == "dead" and policy.on_lost != "dead":
            raise InvalidWorkflow(
                f"{self.label(node)} must not start twice (on_lost='dead'), which a workflow"
                " promises for all of its nodes or none: say it in app.workflow(…), or have the"
                f" task run as a job of its own, job({task.name!r})"
            )


def _as_json(name: str, value: Any) -> Any:
    """Convert an option of a node to JSON."""
    match name:
        case "retries" if not isinstance(value, int):
            policy = Retry.parse(value)
            if policy.backoff == "function":
                raise InvalidWorkflow(
                    "a node's retries are kept by the store, which knows no functions; give them to"
                    " the task, or say them as numbers"
                )
            return payload.decode(policy.to_json())
        case "timeout":
            return read_limit(value, "timeout")
        case "priority":
            return Priority.parse(value).name.lower()
        case _:
            return value


# Checks of a workflow's arguments against its tasks, where a parameter is passed unchanged.


def check_fit(workflow: Workflow, given: Mapping[str, Any]) -> None:
    """Check arguments against the tasks of nodes that certainly run, because the run would be dead.
    Raises InvalidArguments.
    """
    if given:
        _check(workflow, payload.decode(payload.encode(given)), what=f"workflow {workflow.name!r}")


def _check(workflow: Workflow, given: Mapping[str, Any], *, what: str) -> None:
    inner = {one.name: one for one in workflow.inner}
    tasks = workflow.app.tasks
    for node in _certain_nodes(workflow.graph):
        passed = dict(_passed_params(node, given))
        if node.kind == "task" and node.runs in tasks:
            for name, (param, value) in passed.items():
                _check_one(tasks[node.runs].function, name, value, what, param, node.name)
        elif node.kind == "job" and node.runs in inner:
            values = {name: value for name, (_, value) in passed.items()}
            _check(inner[node.runs], values, what=f"{what}, node {node.name!r}")


def _check_one(function: Any, name: str, value: Any, what: str, param: str, node: str) -> None:
    try:
        payload.check_value(function, name, value)
    except InvalidArguments as error:
        raise InvalidArguments(
            f"{what}: parameter {param!r} does not fit node {node!r}: {error}", field=param
        ) from None


def _certain_nodes(graph: Graph) -> Iterator[GraphNode]:
    """Yield nodes that run unless a node before them fails: those after no condition or branch, and
    mapped over no list.
    """
    parents: dict[str, list[str]] = {name: [] for name in graph.order}
    unsure: set[str] = set()
    for edge in graph.edges:
        parents[edge.child].append(edge.parent)
        if edge.when is not None or graph.by_name[edge.parent].branch:
            unsure.add(edge.child)
    for name in graph.order:
        node = graph.by_name[name]
        if node.rule is not Rule.ALL_SUCCESS or not unsure.isdisjoint(parents[name]):
            unsure.add(name)
        if name not in unsure and node.map is None:
            yield node


def _passed_params(
    node: GraphNode, given: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield the parameters that a node gets unchanged: argument, then parameter and value."""
    for name, value in node.args.items():
        found = output(value)
        param = None if found is None or found.path else found.param
        if param is not None and param in given:
            yield name, (param, given[param])


logger = logging.getLogger("daybell.sdk")

# Options that only functions have.
_OF_TASKS: Final = ("store_result", "requires", "prefer", "near", "resources")
WORKFLOW_OPTIONS: Final = frozenset(TaskOptions.__optional_keys__ - {*_OF_TASKS})
# Options that only nodes have, not a run.
_OF_NODES: Final = ("retries", "timeout")
RUN_OPTIONS: Final = frozenset(CallOptions.__optional_keys__ - {*_OF_NODES})


class Workflow(Nodelike, Enqueueable[Any]):
    """A graph of tasks and other jobs, which is a job itself: made by `app.workflow(…)`.

    In its block, `a >> b` puts b after a. At the end of the block it is checked, and can be
    enqueued. It can be a node of another workflow.
    """

    def __init__(
        self,
        app: JobApp,
        policy: JobDefinition,
        *,
        params: Params,
        fail_fast: bool,
        max_running: int | None,
    ) -> None:
        super().__init__(app)
        self.name = policy.name
        self.params = DeclaredParams(policy.name, params)
        self._params = params
        self._graph = {
            "params": [param.to_settings() for param in params],
            "fail_fast": fail_fast,
            "max_running": max_running,
        }
        self._policy = policy  # the definition without nodes
        self._draft: Draft | None = None
        self._token: Token[NodeHome | None] | None = None
        self._definition: JobDefinition | None = None
        self.inner: tuple[Workflow, ...] = ()  # workflows that are nodes of this one

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
        self._definition = self._build_definition(written)
        self.inner = tuple(written.inner)
        self.app.add_workflow(self)
        self._warn_unused()

    def _warn_unused(self) -> None:
        """Log parameters that no node uses."""
        used = {name for node in self.graph.nodes for name in node.params}
        for name in self.params:
            if name not in used and not process_info.is_child:
                logger.warning(
                    "workflow %r: parameter %r is used by no node; call a task's parameter so, bind"
                    " it with .bind(…), or leave it out", self.name, name,
                )  # fmt: skip

    def _build_definition(self, written: Draft) -> JobDefinition:
        graph = Graph.parse(written.settings(self._policy) | self._graph).inherit(written.tasks)
        text = payload.encode(graph.to_settings(), what="nodes", bytes_max=WORKFLOW_BYTES_MAX)
        definition = replace(self._policy, settings=text)
        check_call(definition)
        return definition

    @property
    def definition(self) -> JobDefinition:
        """The definition for the store."""
        if self._definition is None:
            raise InvalidWorkflow(
                f"workflow {self.name!r} has not been written; say `with app.workflow(…) as etl:`"
                " and put its nodes in order there"
            )
        return self._definition

    @property
    def described(self) -> JobDefinition:
        """The definition for the store: the graph has the parameters."""
        return self.definition

    @functools.cached_property
    def graph(self) -> Graph:
        """The nodes and edges."""
        return Graph.from_settings(self.definition.settings)

    def options(self, **options: Unpack[CallOptions]) -> Workflow:
        """Return the same workflow with other options for its executions."""
        _check_call_options(options)
        other = copy(self)
        other._options = {**self._options, **options}
        return other

    async def enqueue(self, /, *args: Any, **params: Any) -> Handle[Any]:
        """Enqueue a run with these parameters. Its result is that of its only last node, or the
        results of all last nodes by name.
        """
        return await self._enqueue_one(args, params)

    @property
    def sync(self) -> SyncWorkflow:
        """Blocking variants for code without an event loop."""
        return SyncWorkflow(self)

    def check_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments of a run, and return them by name."""
        _ = self.definition
        if args:
            names = ", ".join(f"{name}=…" for name in self.params)
            takes = f"its parameters by name: enqueue({names})" if names else "no arguments"
            raise InvalidArguments(f"workflow {self.name!r} takes {takes}")
        check_given(self._params, kwargs, what=f"workflow {self.name!r}")
        check_fit(self, kwargs)
        return dict(kwargs)


class SyncWorkflow(SyncEnqueueable[Any]):
    """Blocking variants of a workflow's methods."""

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(workflow)
        self._workflow = workflow

    def __repr__(self) -> str:
        return f"<SyncWorkflow {self._workflow.name}>"

    def enqueue(self, /, *args: Any, **params: Any) -> SyncHandle[Any]:
        if self._workflow.connection is not None:
            return self._enqueue_through([self._workflow.check_args(args, params)])[0]
        return SyncHandle(run(self._workflow.enqueue(*args, **params)))


def workflow(
    app: JobApp,
    name: str,
    *,
    params: ParamsGiven | None = None,
    fail_fast: bool = False,
    max_running: int | None = None,
    **options: Unpack[TaskOptions],
) -> Workflow:
    """Declare a workflow: `with app.workflow("etl") as etl: extract >> [a, b] >> load`.

    `params` are the parameters of a run, `{"day": ..., "limit": 10}`: defaults by name, and `...`
    for required ones. `args` are the arguments that schedules pass.
    `fail_fast` starts no more nodes after a failure; by default, nodes that do not depend on the
    failed one still run. `max_running` limits the number of concurrent nodes. `retries`,
    `timeout`, `queue` and `priority` are defaults for nodes without their own, or their task's.
    The other options are those of a task.
    """
    check_name(name, what="workflow")
    for one in _OF_TASKS:
        if one in options:
            raise UsageError(
                f"a workflow has no {one}=; say it for the tasks that are its nodes", field=one
            )
    check_options(options, WORKFLOW_OPTIONS, "workflow()")
    app.check_new(name)
    policy = replace(read_definition(name, **options), kind="workflow")
    declared = read_declared(params)
    return Workflow(app, policy, params=declared, fail_fast=fail_fast, max_running=max_running)


def job(name: str, node: str | None = None, /, **options: Unpack[NodeOptions]) -> Node:
    """Return a node that runs a job by name, at its version at that time.

    The node has the name of the job, or `node`. `.bind(…)` passes arguments by name.
    """
    check_options(options, NODE_OPTIONS, "job()")
    return open_draft("job()").add_job(check_name(name, what="job"), node, options)


def _check_call_options(options: CallOptions) -> None:
    for one in _OF_NODES:
        if one in options:
            raise UsageError(f"{one} is for a task; the nodes of a workflow have their own")
    check_options(options, RUN_OPTIONS, "options()")

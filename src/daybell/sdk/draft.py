"""A workflow while it is written: its nodes and edges, and what they come to in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, NoReturn, cast

from daybell.client.requests import read_limit
from daybell.core import arguments, payload
from daybell.core.job import JobDefinition
from daybell.core.limits import check_name
from daybell.core.outputs import PARAM, outputs_in
from daybell.core.params import Params, check_passed
from daybell.core.priority import Priority
from daybell.core.references import names_in
from daybell.core.retry import Retry
from daybell.errors import InvalidArguments, InvalidWorkflow, shown
from daybell.sdk.nodes import (
    End,
    Linkable,
    Linked,
    Links,
    Node,
    Nodelike,
    NodeOptions,
    When,
    ends_of,
)

if TYPE_CHECKING:
    from daybell.sdk.app import App
    from daybell.sdk.params import Param
    from daybell.sdk.task import Task
    from daybell.sdk.workflow import Workflow


class Draft:
    """What was said in the block of a workflow so far."""

    def __init__(self, app: App, name: str, params: Params = ()) -> None:
        self.app = app
        self.name = name
        self._params = params
        self.is_over = False
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str], str | None] = {}
        self._unused: dict[tuple[str, str | None], None] = {}  # conditions without a node after

    def named(self, node: Node) -> str:
        """How messages call a node."""
        return f"node {node.name!r} of workflow {self.name!r}"

    def add(self, what: Nodelike, name: str | None, options: NodeOptions) -> Node:
        """The node of this name that runs this, new or not."""
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
        """The same for a job by its name."""
        name = check_name(name or job or (task.name if task else ""), what="node")
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node(self, name, task=task, job=job, inner=inner)
        elif (node.job, node.task and node.task.name) != (job, task and task.name):
            other = node.job or (node.task.name if node.task else "")
            raise InvalidWorkflow(
                f"there is a node {name!r} in workflow {self.name!r} already, and it runs"
                f" {other!r}; give this one a name of its own with .node(…)"
            )
        return node.set(options)

    def link(self, first: Linkable, then: Linkable) -> Links:
        """Have one thing come before another, or all of these before all of those: `>>`."""
        self._join(self.ends(first), self._first(then))
        return Links(self._last(then), first=self._first(first), is_chain=True)

    def link_before(self, then: Linkable, first: Linkable) -> Links:
        """The same, written the other way: `<<`."""
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
        """Whoever wrote an empty list believes that there is something in it."""
        beside = self.named((parents or children)[0].node)  # two lists have no `>>`
        where = "after" if parents else "before"
        raise InvalidWorkflow(
            f"{beside} has an empty list {where} it; put nodes into the list, or leave it out"
        )

    def heads(self, thing: Linkable) -> list[End]:
        """The nodes that are meant by what comes before."""
        return self._meant(thing, lambda links: links.heads)

    def ends(self, thing: Linkable) -> list[End]:
        """The nodes that are meant by what comes after."""
        return self._meant(thing, lambda links: links.ends)

    def _first(self, thing: Linkable) -> list[End]:
        """The same for a chain as a whole: where it begins."""
        return self._meant(thing, lambda links: links.first)

    def _last(self, thing: Linkable) -> list[End]:
        return self._meant(thing, lambda links: links.last)

    def _meant(self, thing: Linkable, side: Callable[[Links], Iterable[End]]) -> list[End]:
        found: list[End] = []
        for one in ends_of(thing):
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
        """Refuse a node of another block, or of one that is over."""
        if node.home is not self:
            raise InvalidWorkflow(
                f"{self.named(node)[: -len(repr(self.name))]}{node.home.name!r} cannot be used in"
                f" workflow {self.name!r}; make another with .node(…)"
            )
        if self.is_over:
            raise InvalidWorkflow(f"the block of workflow {self.name!r} has ended; write it there")

    def check_param(self, param: Param, node: Node) -> None:
        """Refuse a parameter of another workflow."""
        if param.workflow != self.name:
            raise InvalidWorkflow(
                f"{self.named(node)} is given {param!r}, which is another workflow's; its own are"
                f" in params={{…}} of {self.name!r}"
            )

    def note_condition(self, node: Node, condition: str) -> None:
        """A condition was said. It needs something that depends on it."""
        self._unused[node.name, condition] = None

    def _link(self, parent: End, child: Node) -> None:
        self._unused.pop((parent.node.name, parent.condition), None)
        key = parent.node.name, child.name
        if key in self._edges and self._edges[key] != parent.condition:
            if parent.condition is None:
                return  # it was said before, and more exactly
            if self._edges[key] is not None:
                raise InvalidWorkflow(
                    f"{self.named(child)} has two conditions on {parent.node.name!r}; join them"
                    " with `and`"
                )
        self._edges[key] = parent.condition

    def _task(self, what: Linked) -> Task[..., Any, Any] | None:
        from daybell.sdk.task import Task

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

    def _workflow(self, what: Linked) -> Workflow | None:
        from daybell.sdk.workflow import Workflow

        if not isinstance(what, Workflow):
            return None
        if what.name == self.name:
            raise InvalidWorkflow(f"workflow {self.name!r} cannot be a node of itself")
        if what.app is not self.app:
            raise InvalidWorkflow(
                f"workflow {what.name!r} belongs to another app than workflow {self.name!r}; a job"
                f" of another app is job({what.name!r})"
            )
        _ = what.definition  # it must have been written
        return what

    # --- in the end ---------------------------------------------------------------------------

    def settings(self, policy: JobDefinition) -> dict[str, Any]:
        """The graph as JSON has it. Raises for what a node cannot be called with."""
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
        """What its nodes run, by name."""
        return {one.task.name: one.task.definition for one in self._nodes.values() if one.task}

    @property
    def inner(self) -> list[Workflow]:
        """Workflows that are nodes of this one."""
        return [node.inner for node in self._nodes.values() if node.inner is not None]

    def _node(self, node: Node, parents: list[str], policy: JobDefinition) -> dict[str, Any]:
        said: dict[str, Any] = {"name": node.name}
        if node.task is None:
            said["job"] = node.job
            self._check_inner(node)
            self._call_inner(node, parents)
        else:
            said["task"] = node.task.name
            self._call(node, node.task, parents)
            self._check_promises(node, node.task, policy)
        if node.args:
            said["args"] = payload.decode(payload.encode(node.args, what=f"args of {node.name}"))
        if node.over is not None:
            said["map"] = payload.decode(payload.encode(node.over, what=f"map of {node.name}"))
        if node.choices:
            said["branch"] = list(node.choices)
        return said | {name: _as_json(name, value) for name, value in node.options.items()}

    def _call(self, node: Node, task: Task[..., Any, Any], parents: list[str]) -> None:
        """Pass results and parameters by name, and see whether the task can be called so."""
        known = arguments.annotations_of(task.function).keys() - task.context_names
        self._pass_by_name(node, known, parents)
        try:
            given = arguments.bind(task.function, (), node.args, skip=task.context_names)
            stored = payload.decode(payload.encode(given))
            unseen = {
                name
                for name, value in stored.items()
                if names_in(value) or next(outputs_in(value), None) is not None
            }
            arguments.convert(task.function, stored, skip=task.context_names, unseen=unseen)
        except InvalidArguments as error:
            missing = error.field is not None and error.field not in node.args
            hint = (
                f"; call it like an upstream node or a parameter of the workflow, or say"
                f" {task.name}.bind({error.field}=…)"
                if missing and error.field in known
                else ""
            )
            raise InvalidArguments(
                f"{self.named(node)}: {error}{hint}", field=error.field
            ) from None

    def _call_inner(self, node: Node, parents: list[str]) -> None:
        """The same for a workflow of this app."""
        if node.inner is None:
            return  # any job, which may be another one when its turn comes
        known = node.inner.graph.params
        self._pass_by_name(node, {param.name for param in known}, parents)
        check_passed(known, node.args, what=f"{self.named(node)}: workflow {node.inner.name!r}")

    def _pass_by_name(self, node: Node, known: Set[str], parents: list[str]) -> None:
        """What is bound comes first, then what a parent returns, then what the run is given."""
        passed = {name: self._nodes[name].output.reference() for name in parents}
        passed = {one.name: {PARAM: one.name} for one in self._params} | passed
        for name, value in passed.items():
            if name in known:
                node.args.setdefault(name, value)

    def _check_inner(self, node: Node) -> None:
        for name in ("retries", "timeout"):
            if node.inner is not None and name in node.options:
                raise InvalidWorkflow(
                    f"{self.named(node)} is a workflow, which has no {name}= as a whole; its own"
                    " nodes have"
                )

    def _check_promises(self, node: Node, task: Task[..., Any, Any], policy: JobDefinition) -> None:
        if task.definition.on_lost == "dead" and policy.on_lost != "dead":
            raise InvalidWorkflow(
                f"{self.named(node)} must not start twice (on_lost='dead'), which a workflow"
                " promises for all of its nodes or none: say it in app.workflow(…), or have the"
                f" task run as a job of its own, job({task.name!r})"
            )


def _as_json(name: str, value: Any) -> Any:
    """An option of a node as JSON has it."""
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

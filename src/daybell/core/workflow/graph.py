"""The graph of a workflow, and the plan that a run starts with.

    {"nodes": [{"name": "extract", "task": "extract"}, {"name": "load", "task": "load"}],
     "edges": [["extract", "load"]], "params": ["day"], "fail_fast": false, "max_running": 10}

An edge may have a condition: {"from": "extract", "to": "load", "when": "result.rows > 0"}. A
reference to the result of another node makes an edge, too. `params` are the arguments of a run.

All functions take time in proportion to nodes and edges.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.job import JobDefinition
from daybell.core.kinds.schema import EDGE, PARAM, WORKFLOW
from daybell.core.limits import (
    NAME_CHARS_MAX,
    PARAMETERS_MAX,
    PLAN_CHARS_MAX,
    WORKFLOW_BYTES_MAX,
    WORKFLOW_EDGES_MAX,
    WORKFLOW_NODES_MAX,
)
from daybell.core.options import DEFAULT_QUEUE
from daybell.core.placement import NO_DEMANDS
from daybell.core.references import LITERAL, is_literal, map_inside, names_in
from daybell.core.retry import Retry
from daybell.core.workflow.expressions import Condition
from daybell.core.workflow.node import JOB, GraphNode, add_branches
from daybell.core.workflow.rules import ParentCounts, Rule
from daybell.core.workflow.run import ORDER_STEP, NewNode, Node, NodeState, Plan, node_name
from daybell.errors import (
    InvalidArguments,
    InvalidWorkflow,
    PayloadError,
    PayloadTooLarge,
    shown,
    suggested,
)

_CYCLE_NAMES_MAX: Final = 12  # a longer cycle is abbreviated


def _sort_nodes(names: Iterable[str], edges: Iterable[GraphEdge]) -> tuple[str, ...]:
    """Sort nodes, parents first. Raises InvalidWorkflow, which names a cycle."""
    order = TopologicalSorter[str]()
    for name in names:
        order.add(name)
    for edge in edges:
        order.add(edge.child, edge.parent)
    try:
        return tuple(order.static_order())
    except CycleError as error:
        circle = cast("list[str]", error.args[1])[:-1]
    circle = _rotate(circle, circle.index(min(circle)))
    if len(circle) > _CYCLE_NAMES_MAX:
        circle = [*circle[: _CYCLE_NAMES_MAX - 2], "…", circle[-1]]
    raise InvalidWorkflow(
        f"these nodes wait for each other in a circle: {' -> '.join(circle)}",
        field="workflow.edges",
    )


def _rotate(circle: list[str], start: int) -> list[str]:
    """Start a cycle at another place, and close it."""
    return [*circle[start:], *circle[:start], circle[start]]


# Parameters of a workflow: "params": [{"name": "day"}, {"name": "limit", "default": 10}]
#
# A parameter without a default is required; a plain text is the name of one. Nodes refer to them
# as {"param": "day"}: see `core.workflow.expressions`. Values are always data.

_FIELDS: Final = tuple(PARAM)


class Param(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter of a workflow."""

    name: str
    default: Any = msgspec.UNSET  # unset: the parameter is required

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.UNSET

    def to_settings(self) -> dict[str, Any]:
        """Return the settings that a definition stores."""
        return {"name": self.name} | ({} if self.is_required else {"default": self.default})

    def __str__(self) -> str:
        return self.name if self.is_required else f"{self.name}={shown(self.default)}"


Params = tuple[Param, ...]


class _StoredParams(msgspec.Struct):
    params: Params = ()


_STORED_PARAMS: Final = msgspec.json.Decoder(_StoredParams)


def params_of(settings: str) -> Params:
    """Read the parameters alone from the settings of a workflow."""
    return _STORED_PARAMS.decode(settings).params


def read_params(value: Any, *, field: str = "params") -> Params:
    """Parse parameters. Raises InvalidWorkflow with the field, such as workflow.params[1]."""
    if not isinstance(value, list | tuple):
        raise InvalidWorkflow(
            f'params={shown(value)} must be a list, such as [{{"name": "day"}}, {{"name": "limit",'
            ' "default": 10}]',
            field=field,
        )
    listed = cast("Sequence[Any]", value)
    if len(listed) > PARAMETERS_MAX:
        raise InvalidWorkflow(
            f"{len(listed):,} parameters are too many; the limit is {PARAMETERS_MAX}", field=field
        )
    found: dict[str, Param] = {}
    for place, one in enumerate(listed):
        param = _read_param(one, f"{field}[{place}]")
        if param.name in found:
            raise InvalidWorkflow(
                f"two parameters are called {shown(param.name)}; a name is one's",
                field=f"{field}[{place}].name",
            )
        found[param.name] = param
    return tuple(found.values())


def describe_params(params: Params) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a run."""
    return {
        "type": "object",
        "properties": {
            one.name: {} if one.is_required else {"default": one.default} for one in params
        },
        "required": [one.name for one in params if one.is_required],
        "additionalProperties": False,
    }


def check_given(params: Params, given: Mapping[str, Any], *, what: str) -> None:
    """Check the arguments of a run; `what` names the workflow in the error."""
    known = [param.name for param in params]
    for name in given:
        if name not in known:
            raise InvalidArguments(f"{what} {no_such_param(name, params)}", field=str(name))
    missing = [param.name for param in params if param.is_required and param.name not in given]
    if missing:
        raise InvalidArguments(
            f"{what} must be given {', '.join(missing)}; it takes {_list_params(params)}",
            field=missing[0],
        )


def check_passed(params: Params, args: Mapping[str, Any], *, what: str) -> None:
    """Check the arguments of a node that runs a workflow. Secrets are not resolved there, so a
    reference to one is an error.
    """
    check_given(params, args, what=what)
    for name, value in args.items():
        for secret in sorted(names_in(value)):
            raise InvalidArguments(
                f"{what} takes its parameters as data, and {name} names the secret {secret}; name"
                " it in the node that uses it",
                field=name,
            )


def values_of(params: Params, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run, with defaults. Raises InvalidArguments."""
    check_given(params, given, what="the workflow")
    return {param.name: given.get(param.name, param.default) for param in params}


def decode_args(args: str) -> dict[str, Any]:
    """Decode the arguments of a run. Raises InvalidArguments if they are not an object."""
    given: object = payload.decode(args, what="args")
    if not isinstance(given, dict):
        raise InvalidArguments(f"arguments are given by name, as an object, not as {shown(given)}")
    return cast("dict[str, Any]", given)


def plain_by_name(args: Mapping[str, Any]) -> dict[str, Any]:
    """Unwrap {"as_is": …} in the arguments that another run passes on."""
    return {name: _plain(value) for name, value in args.items()}


def _plain(value: Any) -> Any:
    return value[LITERAL] if is_literal(value) else map_inside(value, _plain)


def no_such_param(name: object, params: Params) -> str:
    """Describe the error of an unknown parameter."""
    return f"has no parameter {shown(name)}; {_hint(name, params)}"


def check_references(nodes: Iterable[GraphNode], params: Params, field: str) -> None:
    """Reject references to unknown parameters. Raises InvalidWorkflow."""
    known = {param.name for param in params}
    way_out = "" if params else '. Name it in "params", or put {"as_is": …} around mere data'
    for place, node in enumerate(nodes):
        for name in node.params:
            if name not in known:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} refers to a parameter {shown(name)} of the workflow;"
                    f" {_hint(name, params)}{way_out}",
                    field=f"{field}[{place}].{node.place_of_param(name)}",
                )


def _read_param(value: Any, field: str) -> Param:
    given: object = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise InvalidWorkflow(
            f'{shown(given)} is no parameter; write {{"name": "day"}}, and "default" if it need not'
            " be given",
            field=field,
        )
    said = cast("Mapping[str, Any]", given)
    for one in said:
        if one not in _FIELDS:
            raise InvalidWorkflow(
                f"a parameter has no {shown(one)}; it has {' and '.join(_FIELDS)}",
                field=f"{field}.{one}",
            )
    name = _read_name(said.get("name"), f"{field}.name")
    if "default" not in said:
        return Param(name)
    try:
        text = payload.encode(said["default"], what=f"the default of {name}")
    except PayloadError as error:
        raise type(error)(str(error), field=f"{field}.default") from None
    return Param(name, payload.decode(text))


def _read_name(value: object, field: str) -> str:
    name = value if isinstance(value, str) else ""
    if not name.isidentifier() or len(name) > NAME_CHARS_MAX:
        raise InvalidWorkflow(
            f"{shown(value)} cannot name a parameter; a name has letters, digits and _, and begins"
            " with no digit",
            field=field,
        )
    if keyword.iskeyword(name):
        raise InvalidWorkflow(
            f"{shown(name)} is a word of Python, where no parameter has such a name; take another",
            field=field,
        )
    return name


def _hint(name: object, params: Params) -> str:
    names = [param.name for param in params]
    return suggested(name, names, otherwise=f"it takes {_list_params(params)}")


def _list_params(params: Params) -> str:
    return ", ".join(map(str, params)) or "none"


FIELDS: Final = tuple(WORKFLOW)
_EDGE_FIELDS: Final = tuple(EDGE)


class GraphEdge(NamedTuple):
    """An edge: `child` waits for `parent`; `when` is a condition on the parent's result."""

    parent: str
    child: str
    when: str | None = None

    def to_settings(self) -> Any:
        if self.when is None:
            return [self.parent, self.child]
        return {"from": self.parent, "to": self.child, "when": self.when}


class Graph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A valid workflow: at least one node, and no cycle."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...] = ()  # including those of references, by parent and child
    params: Params = ()
    fail_fast: bool = False
    max_running: int | None = None

    @classmethod
    def parse(cls, value: Any, *, field: str = "workflow") -> Graph:
        """Parse a workflow. Raises InvalidWorkflow with the field, such as workflow.nodes[3]."""
        if isinstance(value, Graph):
            return value
        if not isinstance(value, Mapping):
            raise InvalidWorkflow(
                f"{field}={shown(value)} must be an object with nodes and edges", field=field
            )
        given = {k: one for k, one in cast("Mapping[str, Any]", value).items() if one is not None}
        _check_names(given, FIELDS, what="a workflow", field=field)
        nodes = _read_nodes(given.get("nodes"), f"{field}.nodes")
        params = read_params(given.get("params", ()), field=f"{field}.params")
        check_references(nodes.values(), params, f"{field}.nodes")
        edges = _read_edges(given.get("edges", ()), nodes, f"{field}.edges")
        add_branches(edges, nodes, f"{field}.nodes")
        _add_referred(edges, nodes, f"{field}.nodes")
        graph = cls(
            nodes=tuple(nodes.values()),
            edges=_sort_edges(edges, nodes),
            params=params,
            fail_fast=_read_flag(given.get("fail_fast", False), f"{field}.fail_fast"),
            max_running=_read_max(given.get("max_running"), f"{field}.max_running"),
        )
        _ = graph.order  # raises on cycles
        payload.encode(graph.to_settings(), what=field, bytes_max=WORKFLOW_BYTES_MAX)
        return graph

    @classmethod
    def from_settings(cls, settings: str) -> Graph:
        """Read the settings that a definition stores, without validation."""
        kept: dict[str, Any] = msgspec.json.decode(settings)
        nodes = tuple(map(GraphNode.from_settings, kept["nodes"]))
        return cls(
            nodes=nodes,
            edges=_with_branches([_load_edge(one) for one in kept.get("edges", ())], nodes),
            params=params_of(settings) if "params" in kept else (),
            fail_fast=kept.get("fail_fast", False),
            max_running=kept.get("max_running"),
        )

    def to_settings(self) -> dict[str, Any]:
        """Return the settings that a definition stores; equal graphs have equal texts."""
        chosen = {(node.name, name) for node in self.nodes for name in node.branch}
        fields: dict[str, Any] = {
            "nodes": [node.to_settings() for node in self.nodes],
            "edges": [one.to_settings() for one in self.edges if one[:2] not in chosen],
            "params": [param.to_settings() for param in self.params],
            "fail_fast": self.fail_fast,
            "max_running": self.max_running,
        }
        return {name: value for name, value in fields.items() if value}

    @cached_property
    def by_name(self) -> dict[str, GraphNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The names, parents first, in the written order if possible."""
        place = {node.name: n for n, node in enumerate(self.nodes)}
        if all(place[edge.parent] < place[edge.child] for edge in self.edges):
            return tuple(place)
        return _sort_nodes(place, self.edges)

    @property
    def tasks(self) -> set[str]:
        return {node.runs for node in self.nodes if node.kind == "task"}

    @property
    def jobs(self) -> set[str]:
        """The other jobs that its nodes run."""
        return {node.runs for node in self.nodes if node.kind == JOB}

    def inherit(self, tasks: Mapping[str, JobDefinition]) -> Graph:
        """Fill in the options of tasks where a node has none. Raises InvalidWorkflow for a task
        with options that only jobs obey.
        """
        for place, node in enumerate(self.nodes):
            if node.kind == "task" and node.runs in tasks:
                _check_task(node, tasks[node.runs], f"workflow.nodes[{place}].task")
        return replace(self, nodes=tuple(_inherit(node, tasks) for node in self.nodes))

    def node(self, label: str) -> GraphNode:
        """Return the node of a label, which may be that of an item."""
        return self.by_name[node_name(label)]

    def definition_of(self, label: str | GraphNode, definition: JobDefinition) -> JobDefinition:
        """Return the definition of a node that runs no other job."""
        node = label if isinstance(label, GraphNode) else self.node(label)
        assert node.kind != JOB, node.name
        return JobDefinition(
            name=definition.name,
            kind=node.kind,
            queue=node.queue or definition.queue,
            priority=definition.priority if node.priority is None else node.priority,
            retry=node.retry or definition.retry,
            timeout=node.timeout or definition.timeout,
            max_crashes=definition.max_crashes,
            on_lost=definition.on_lost,
            user_id=definition.user_id,
            settings=payload.encode(node.settings, what=node.name),
        )

    def plan(self, given: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan of a run with these arguments. Raises InvalidArguments."""
        params = values_of(self.params, given or {})
        known: dict[Any, str] = {}
        specs: list[str] = []
        chars = 0
        for name in self.order:
            spec = _spec_text(self.by_name[name], known, params)
            specs.append(spec)
            chars += len(spec)
            if params and chars > PLAN_CHARS_MAX:
                raise PayloadTooLarge(
                    f"with its parameters in all nodes, this run takes more than {PLAN_CHARS_MAX:,}"
                    " bytes; have large data kept elsewhere, and give its address",
                    field="args",
                )
        planned = tuple(map(NewNode, self._rows, specs))
        return Plan(planned, max_running=self.max_running, fail_fast=self.fail_fast)

    @cached_property
    def _rows(self) -> tuple[Node, ...]:
        """The initial rows of the nodes, which are the same in all runs."""
        edges: dict[str, list[tuple[str, str | None]]] = {name: [] for name in self.order}
        parents = dict.fromkeys(self.order, 0)
        for edge in self.edges:
            edges[edge.parent].append((edge.child, edge.when))
            parents[edge.child] += 1
        referred = {name for node in self.nodes for name in node.outputs}
        rows: list[Node] = []
        for place, name in enumerate(self.order):
            node, children = self.by_name[name], tuple(edges[name])
            is_used = name in referred or any(when is not None for _, when in children)
            # A rule has no meaning without parents.
            is_ready = parents[name] == 0 or node.rule is Rule.ALWAYS
            row = Node(
                label=name,
                order=place * ORDER_STEP,
                state=NodeState.READY if is_ready else NodeState.WAITING,
                rule=node.rule,
                parents=ParentCounts(parents[name]),
                edges=children,
                is_wanted=is_used or not children,
                is_map=node.map is not None,
            )
            rows.append(row)
        return tuple(rows)


def _spec_text(node: GraphNode, known: dict[Any, str], params: Mapping[str, Any]) -> str:
    """Encode the spec of a node; nodes that run the same share the text."""
    if not node.is_bare:
        return msgspec.json.encode(node.spec(params)).decode()
    key = node.kind, node.runs, node.queue, node.priority, node.retry, node.timeout
    text = known.get(key)
    if text is None:
        text = known[key] = msgspec.json.encode(node.spec()).decode()
    return text


def _read_nodes(value: Any, field: str) -> dict[str, GraphNode]:
    if value is None or value == []:
        raise InvalidWorkflow("a workflow has no nodes; give a list of them", field=field)
    if not isinstance(value, list | tuple):
        raise InvalidWorkflow(f"nodes={shown(value)} must be a list", field=field)
    listed = cast("Sequence[Any]", value)
    if len(listed) > WORKFLOW_NODES_MAX:
        raise InvalidWorkflow(
            f"{len(listed):,} nodes are too many; the limit is {WORKFLOW_NODES_MAX:,}. A mapped"
            " node makes more while it runs",
            field=field,
        )
    nodes: dict[str, GraphNode] = {}
    for place, one in enumerate(listed):
        node = GraphNode.parse(one, field=f"{field}[{place}]")
        if node.name in nodes:
            raise InvalidWorkflow(
                f"two nodes are called {shown(node.name)}; a name is one node's",
                field=f"{field}[{place}].name",
            )
        nodes[node.name] = node
    return nodes


_Edges = dict[tuple[str, str], str | None]


def _read_edges(value: Any, nodes: Mapping[str, GraphNode], field: str) -> _Edges:
    if not isinstance(value, list | tuple):
        raise InvalidWorkflow(f"edges={shown(value)} must be a list", field=field)
    listed = cast("Sequence[Any]", value)
    if len(listed) > WORKFLOW_EDGES_MAX:
        raise InvalidWorkflow(
            f"{len(listed):,} edges are too many; the limit is {WORKFLOW_EDGES_MAX:,}", field=field
        )
    edges: _Edges = {}
    conditions: set[str] = set()
    for place, one in enumerate(listed):
        where = f"{field}[{place}]"
        parent, child, when = _read_edge(one, where)
        for name in (parent, child):
            if not isinstance(name, str):
                raise InvalidWorkflow(
                    f"the edge from {shown(parent)} to {shown(child)} names {shown(name)}, which is"
                    " no name; an edge is between two nodes",
                    field=where,
                )
            if name not in nodes:
                raise InvalidWorkflow(f"an edge {_unknown(name, nodes)}", field=where)
        if parent == child:
            raise InvalidWorkflow(f"node {shown(parent)} cannot wait for itself", field=where)
        if (parent, child) in edges:
            raise InvalidWorkflow(
                f"the edge from {shown(parent)} to {shown(child)} is there twice", field=where
            )
        if when is not None and not (isinstance(when, str) and when in conditions):
            conditions.add(Condition.parse(when, field=f"{where}.when").text)
        edges[parent, child] = when
    return edges


def _read_edge(value: Any, field: str) -> tuple[Any, Any, Any]:
    if isinstance(value, list | tuple):
        pair = cast("Sequence[Any]", value)
        if len(pair) == 2:
            return pair[0], pair[1], None
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        _check_names(given, _EDGE_FIELDS, what="an edge", field=field)
        if "from" in given and "to" in given:
            return given["from"], given["to"], given.get("when")
    said = shown(cast("object", value))
    raise InvalidWorkflow(
        f'{said} is no edge; write ["a", "b"], or {{"from": "a", "to": "b", "when":'
        ' "result.rows > 0"}',
        field=field,
    )


def _load_edge(value: Any) -> GraphEdge:
    if isinstance(value, list):
        return GraphEdge(*cast("list[str]", value))
    return GraphEdge(value["from"], value["to"], value["when"])


def _with_branches(edges: list[GraphEdge], nodes: Iterable[GraphNode]) -> tuple[GraphEdge, ...]:
    """Add the edges that are stored with branch nodes."""
    if not any(node.branch for node in nodes):
        return tuple(edges)
    by_name = {node.name: node for node in nodes}
    all_of_them: _Edges = {(one.parent, one.child): one.when for one in edges}
    add_branches(all_of_them, by_name, "workflow.nodes")
    return _sort_edges(all_of_them, by_name)


def _add_referred(edges: _Edges, nodes: Mapping[str, GraphNode], field: str) -> None:
    """Add an edge for each reference to a result."""
    for place, node in enumerate(nodes.values()):
        for name in node.outputs:
            where = f"{field}[{place}].{node.place_of(name)}"
            if name not in nodes:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} {_unknown(name, nodes)}", field=where
                )
            if name == node.name:
                raise InvalidWorkflow(f"node {shown(name)} refers to its own result", field=where)
            edges.setdefault((name, node.name), None)
    if len(edges) > WORKFLOW_EDGES_MAX:
        raise InvalidWorkflow(
            f"{len(edges):,} edges and references are too many; the limit is"
            f" {WORKFLOW_EDGES_MAX:,}",
            field=field,
        )


def _sort_edges(edges: _Edges, nodes: Mapping[str, GraphNode]) -> tuple[GraphEdge, ...]:
    """Sort edges by the positions of parents and children, in linear time."""
    by_child: dict[str, list[GraphEdge]] = {name: [] for name in nodes}
    for (parent, child), when in edges.items():
        by_child[child].append(GraphEdge(parent, child, when))
    by_parent: dict[str, list[GraphEdge]] = {name: [] for name in nodes}
    for edge in (one for listed in by_child.values() for one in listed):
        by_parent[edge.parent].append(edge)
    return tuple(edge for listed in by_parent.values() for edge in listed)


def _inherit(node: GraphNode, tasks: Mapping[str, JobDefinition]) -> GraphNode:
    task = tasks.get(node.runs) if node.kind == "task" else None
    if task is None:
        return node
    said: dict[str, Any] = {}
    if node.queue is None and task.queue != DEFAULT_QUEUE:
        said["queue"] = task.queue
    if node.priority is None and task.priority is not Priority.NORMAL:
        said["priority"] = task.priority
    if node.retry is None and task.retry != Retry():
        said["retry"] = task.retry
    if node.timeout is None and task.timeout is not None:
        said["timeout"] = task.timeout
    if node.demands == NO_DEMANDS and task.demands != NO_DEMANDS:
        said["demands"] = task.demands
    return replace(node, **said) if said else node


# Options of a job that its own executions obey, and nodes that run its task do not.
_OF_JOBS: Final = (
    "concurrency", "rate", "share", "debounce", "throttle", "singleton", "cache_for",
)  # fmt: skip


def _check_task(node: GraphNode, task: JobDefinition, field: str) -> None:
    """Refuse a task with options that a node cannot obey."""
    given = [name for name in _OF_JOBS if getattr(task, name)]
    if given:
        raise InvalidWorkflow(
            f"node {shown(node.name)} runs task {shown(task.name)}, which has {given[0]}, and only"
            f" jobs obey it; have it run as a job of its own, job({task.name!r}), in JSON"
            f' {{"job": "{task.name}"}}',
            field=field,
        )


def _check_names(given: Mapping[str, Any], known: Sequence[str], *, what: str, field: str) -> None:
    for name in given:
        if name not in known:
            hint = suggested(name, known, otherwise=f"it has {', '.join(known)}")
            raise InvalidWorkflow(f"{what} has no {shown(name)}; {hint}", field=f"{field}.{name}")


def _unknown(name: object, nodes: Mapping[str, GraphNode]) -> str:
    hint = suggested(name, nodes, otherwise="add it to nodes")
    return f"names {shown(name)}, which is no node; {hint}"


def _read_flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidWorkflow(f"fail_fast={shown(value)} must be true or false", field=field)
    return value


def _read_max(value: Any, field: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        raise InvalidWorkflow(
            f"max_running={shown(value)} must be a whole number from 1 to 1,000,000", field=field
        )
    return value


# Workflows that run each other: each run would contain another one, without end.


class _Node(msgspec.Struct):
    job: str | None = None


class _Nodes(msgspec.Struct):
    nodes: list[_Node]


# Decodes nothing else: an app does this for all of its workflows when it starts.
_NODES: Final = msgspec.json.Decoder(_Nodes)


def inner_jobs(definition: JobDefinition) -> tuple[str, ...]:
    """Return the jobs that the nodes of a workflow run, each once; none for another kind."""
    if definition.kind != "workflow":
        return ()
    nodes = _NODES.decode(definition.settings).nodes
    return tuple(dict.fromkeys(node.job for node in nodes if node.job is not None))


def find_cycle(jobs: Mapping[str, Collection[str]]) -> list[str]:
    """Find a cycle of jobs that lead to each other: ["a", "b", "a"]; empty if there is none.

    It starts with the first of its jobs in `jobs`, and takes linear time.
    """
    try:
        TopologicalSorter(jobs).prepare()
    except CycleError as error:
        circle = cast("list[str]", error.args[1])[:0:-1]
        places = {name: place for place, name in enumerate(jobs)}
        start = min(range(len(circle)), key=lambda at: places.get(circle[at], len(places)))
        return _rotate(circle, start)
    return []


def describe_cycle(circle: Collection[str]) -> str:
    """Describe the error of such a cycle."""
    return f"workflows would run each other without end: {' -> '.join(circle)}"

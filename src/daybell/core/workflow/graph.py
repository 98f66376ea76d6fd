"""The graph of a workflow: what people write of it, and the plan that a run begins with.

    {"nodes": [{"name": "extract", "task": "extract"}, {"name": "load", "task": "load"}],
     "edges": [["extract", "load"]], "params": ["day"], "fail_fast": false, "max_running": 10}

An edge may have a condition: {"from": "extract", "to": "load", "when": "result.rows > 0"}. A node
that refers to the result of another one depends on it; that edge need not be written. What a run
may be given is in `params`: see `Param`.

All of this takes time in proportion to nodes and edges.
"""

from __future__ import annotations

import keyword
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple, Protocol, cast

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
from daybell.core.references import LITERAL, is_literal, names_in
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

# The order of a graph's nodes, and the circle that leaves it without one.

_CYCLE_NAMES_MAX: Final = 12  # of a longer one, the beginning is shown


class Edge(Protocol):
    """`child` waits for `parent`."""

    @property
    def parent(self) -> str: ...
    @property
    def child(self) -> str: ...


def parents_first(names: Iterable[str], edges: Iterable[Edge]) -> tuple[str, ...]:
    """Parents first. Raises InvalidWorkflow, which names a circle."""
    children: dict[str, list[str]] = {name: [] for name in names}
    missing = dict.fromkeys(children, 0)
    for edge in edges:
        children[edge.parent].append(edge.child)
        missing[edge.child] += 1
    free = deque(name for name, count in missing.items() if count == 0)
    order: list[str] = []
    while free:
        name = free.popleft()
        order.append(name)
        for child in children[name]:
            missing[child] -= 1
            if missing[child] == 0:
                free.append(child)
    if len(order) < len(children):
        left = {name for name, count in missing.items() if count > 0}
        circle = _circle(left, edges)
        shown_part = circle if len(circle) <= _CYCLE_NAMES_MAX else [
            *circle[: _CYCLE_NAMES_MAX - 2], "…", circle[-1]
        ]  # fmt: skip
        raise InvalidWorkflow(
            f"these nodes wait for each other in a circle: {' -> '.join(shown_part)}",
            field="workflow.edges",
        )
    return tuple(order)


def _circle(left: set[str], edges: Iterable[Edge]) -> list[str]:
    """A circle among nodes of which each has a parent that is left, too."""
    parent_of = {e.child: e.parent for e in edges if e.child in left and e.parent in left}
    seen: dict[str, int] = {}
    name = next(iter(parent_of))
    while name not in seen:
        seen[name] = len(seen)
        name = parent_of[name]
    circle = list(seen)[seen[name] :][::-1]
    first = circle.index(min(circle))
    return [*circle[first:], *circle[:first], circle[first]]


# Parameters of a workflow: what a run of it may be given, and what must be.
#
# "params": [{"name": "day"}, {"name": "limit", "default": 10}]
#
# One without a default must be given; a plain text is the name of such a one. Nodes refer to them
# as {"param": "day"}: see `core.workflow.expressions`. A given value is always data.

_FIELDS: Final = tuple(PARAM)


class Param(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run may be given under this name."""

    name: str
    default: Any = msgspec.UNSET  # without one it must be given

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.UNSET

    def to_settings(self) -> dict[str, Any]:
        """As a definition keeps it."""
        return {"name": self.name} | ({} if self.is_required else {"default": self.default})

    def __str__(self) -> str:
        return self.name if self.is_required else f"{self.name}={shown(self.default)}"


Params = tuple[Param, ...]


class _Kept(msgspec.Struct):
    params: Params = ()


_KEPT: Final = msgspec.json.Decoder(_Kept)


def params_of(settings: str) -> Params:
    """The parameters in the settings of a workflow, of which nothing else is read."""
    return _KEPT.decode(settings).params


def read_params(value: Any, *, field: str = "params") -> Params:
    """Read what people write. Raises InvalidWorkflow, which says where: workflow.params[1]."""
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


def check_given(params: Params, given: Mapping[str, Any], *, what: str) -> None:
    """Refuse what a run cannot be called with: `what` is the workflow, for the message."""
    known = [param.name for param in params]
    for name in given:
        if name not in known:
            raise InvalidArguments(f"{what} {no_such_param(name, params)}", field=str(name))
    missing = [param.name for param in params if param.is_required and param.name not in given]
    if missing:
        raise InvalidArguments(
            f"{what} must be given {', '.join(missing)}; it takes {_listed(params)}",
            field=missing[0],
        )


def check_passed(params: Params, args: Mapping[str, Any], *, what: str) -> None:
    """The same for a node that runs a workflow, whose arguments may refer to others. A secret would
    not be looked up there, and nobody would be told.
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
    """What a run is given, with defaults for the rest. Raises InvalidArguments."""
    check_given(params, given, what="the workflow")
    return {param.name: given.get(param.name, param.default) for param in params}


def decode_args(args: str) -> dict[str, Any]:
    """What a run was called with. Raises InvalidArguments for what is no object."""
    given: object = payload.decode(args, what="args")
    if not isinstance(given, dict):
        raise InvalidArguments(f"arguments are given by name, as an object, not as {shown(given)}")
    return cast("dict[str, Any]", given)


def plain_by_name(args: Mapping[str, Any]) -> dict[str, Any]:
    """What another run passes on, as data: there, {"as_is": …} keeps it from being looked at."""
    return {name: _plain(value) for name, value in args.items()}


def _plain(value: Any) -> Any:
    if is_literal(value):
        return value[LITERAL]
    if isinstance(value, dict):
        return plain_by_name(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    return value


def no_such_param(name: object, params: Params) -> str:
    """What is said of a workflow that has none of this name."""
    return f"has no parameter {shown(name)}; {_hint(name, params)}"


def check_references(nodes: Iterable[GraphNode], params: Params, field: str) -> None:
    """Refuse a node that refers to a parameter which is not there. Raises InvalidWorkflow."""
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
    return suggested(name, names, otherwise=f"it takes {_listed(params)}")


def _listed(params: Params) -> str:
    return ", ".join(map(str, params)) or "none"


FIELDS: Final = tuple(WORKFLOW)
_EDGE_FIELDS: Final = tuple(EDGE)


class GraphEdge(NamedTuple):
    """`child` waits for `parent`, and `when` is about the parent's result."""

    parent: str
    child: str
    when: str | None = None

    def to_settings(self) -> Any:
        if self.when is None:
            return [self.parent, self.child]
        return {"from": self.parent, "to": self.child, "when": self.when}


class Graph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow that makes sense: there is something to run, and there are no circles."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...] = ()  # also those that references make, by parent and child
    params: Params = ()  # what a run may be given
    fail_fast: bool = False
    max_running: int | None = None

    @classmethod
    def parse(cls, value: Any, *, field: str = "workflow") -> Graph:
        """Read what people write. Raises InvalidWorkflow, which says where: workflow.nodes[3]."""
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
            edges=_sorted(edges, nodes),
            params=params,
            fail_fast=_read_flag(given.get("fail_fast", False), f"{field}.fail_fast"),
            max_running=_read_max(given.get("max_running"), f"{field}.max_running"),
        )
        _ = graph.order  # refuses circles
        payload.encode(graph.to_settings(), what=field, bytes_max=WORKFLOW_BYTES_MAX)
        return graph

    @classmethod
    def from_settings(cls, settings: str) -> Graph:
        """Read what a definition keeps, which was looked at before."""
        kept: dict[str, Any] = msgspec.json.decode(settings)
        nodes = tuple(map(GraphNode.from_settings, kept["nodes"]))
        return cls(
            nodes=nodes,
            edges=_with_branches([_kept_edge(one) for one in kept.get("edges", ())], nodes),
            params=params_of(settings) if "params" in kept else (),
            fail_fast=kept.get("fail_fast", False),
            max_running=kept.get("max_running"),
        )

    def to_settings(self) -> dict[str, Any]:
        """The graph as a definition keeps it. Two that are equal give equal text."""
        kept: dict[str, Any] = {"nodes": [node.to_settings() for node in self.nodes]}
        chosen = {(node.name, name) for node in self.nodes for name in node.branch}
        edges = [one.to_settings() for one in self.edges if (one.parent, one.child) not in chosen]
        if edges:
            kept["edges"] = edges
        if self.params:
            kept["params"] = [param.to_settings() for param in self.params]
        if self.fail_fast:
            kept["fail_fast"] = True
        if self.max_running is not None:
            kept["max_running"] = self.max_running
        return kept

    @cached_property
    def by_name(self) -> dict[str, GraphNode]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names, parents before their children: as they are written if that will do."""
        place = {node.name: n for n, node in enumerate(self.nodes)}
        if all(place[edge.parent] < place[edge.child] for edge in self.edges):
            return tuple(place)
        return parents_first(place, self.edges)

    @property
    def tasks(self) -> set[str]:
        """The tasks that its nodes run."""
        return {node.runs for node in self.nodes if node.kind == "task"}

    @property
    def jobs(self) -> set[str]:
        """The other jobs that its nodes run."""
        return {node.runs for node in self.nodes if node.kind == JOB}

    def inherit(self, tasks: Mapping[str, JobDefinition]) -> Graph:
        """With what tasks say of themselves, where a node that runs one says nothing."""
        return replace(self, nodes=tuple(_inheriting(node, tasks) for node in self.nodes))

    def node(self, label: str) -> GraphNode:
        """The node that a label of a run belongs to: itself, or what it is an item of."""
        return self.by_name[node_name(label)]

    def definition_of(self, label: str | GraphNode, definition: JobDefinition) -> JobDefinition:
        """How a node is run that has no job of its own, by the definition of the workflow."""
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
        """What a run of it begins with that is given these parameters. Raises InvalidArguments."""
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
        """The nodes of a run as it begins, which are the same in all of them."""
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
            # Without parents there is nothing that a rule could be about.
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
    """What starting a node takes, as text. Many nodes run the same; it is made once for them."""
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


def _kept_edge(value: Any) -> GraphEdge:
    if isinstance(value, list):
        return GraphEdge(*cast("list[str]", value))
    return GraphEdge(value["from"], value["to"], value["when"])


def _with_branches(edges: list[GraphEdge], nodes: Iterable[GraphNode]) -> tuple[GraphEdge, ...]:
    """With those that are kept with the nodes that choose."""
    if not any(node.branch for node in nodes):
        return tuple(edges)
    by_name = {node.name: node for node in nodes}
    all_of_them: _Edges = {(one.parent, one.child): one.when for one in edges}
    add_branches(all_of_them, by_name, "workflow.nodes")
    return _sorted(all_of_them, by_name)


def _add_referred(edges: _Edges, nodes: Mapping[str, GraphNode], field: str) -> None:
    """Who refers to a result depends on it."""
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


def _sorted(edges: _Edges, nodes: Mapping[str, GraphNode]) -> tuple[GraphEdge, ...]:
    """By the places of parents and children, in linear time: each is put where it belongs."""
    by_child: dict[str, list[GraphEdge]] = {name: [] for name in nodes}
    for (parent, child), when in edges.items():
        by_child[child].append(GraphEdge(parent, child, when))
    by_parent: dict[str, list[GraphEdge]] = {name: [] for name in nodes}
    for edge in (one for listed in by_child.values() for one in listed):
        by_parent[edge.parent].append(edge)
    return tuple(edge for listed in by_parent.values() for edge in listed)


def _inheriting(node: GraphNode, tasks: Mapping[str, JobDefinition]) -> GraphNode:
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
    return replace(node, **said) if said else node


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


# Workflows that run each other: every run would have another one inside it, without end.


class _Node(msgspec.Struct):
    job: str | None = None


class _Nodes(msgspec.Struct):
    nodes: list[_Node]


# Nothing else is read: an app with large workflows asks this of all of them at its start.
_NODES: Final = msgspec.json.Decoder(_Nodes)


def inner_jobs(definition: JobDefinition) -> tuple[str, ...]:
    """The jobs that the nodes of a workflow run, each once; any other job runs none."""
    if definition.kind != "workflow":
        return ()
    nodes = _NODES.decode(definition.settings).nodes
    return tuple(dict.fromkeys(node.job for node in nodes if node.job is not None))


def find_cycle(jobs: Mapping[str, Collection[str]]) -> list[str]:
    """A way from a job back to itself, by the jobs that each of them leads to: ["a", "b", "a"].
    Nothing, if there is none. It takes time in proportion to jobs and ways.

    It begins with the first of its jobs that is named here.
    """
    try:
        TopologicalSorter(jobs).prepare()
    except CycleError as error:
        circle = list(reversed(cast("list[str]", error.args[1])))[:-1]
        places = {name: place for place, name in enumerate(jobs)}
        start = min(range(len(circle)), key=lambda at: places.get(circle[at], len(places)))
        return [*circle[start:], *circle[:start], circle[start]]
    return []


def describe_cycle(circle: Collection[str]) -> str:
    """What people are told of such workflows."""
    return f"workflows would run each other without end: {' -> '.join(circle)}"

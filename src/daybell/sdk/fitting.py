"""Whether what a workflow is called with fits the tasks that get it, as far as that can be told
before there is a run: where a parameter is given to a task as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from daybell.core import arguments, payload
from daybell.core.graph import Graph
from daybell.core.graph_node import GraphNode
from daybell.core.outputs import output
from daybell.core.rules import Rule
from daybell.errors import InvalidArguments

if TYPE_CHECKING:
    from daybell.sdk.workflow import Workflow


def check_fit(workflow: Workflow, given: Mapping[str, Any]) -> None:
    """Refuse what a node would refuse that is sure to run: it would be dead then, and so would the
    run. Raises InvalidArguments. What is left out has its default, which the workflow's code says.
    """
    if given:
        _check(workflow, payload.decode(payload.encode(given)), what=f"workflow {workflow.name!r}")


def _check(workflow: Workflow, given: Mapping[str, Any], *, what: str) -> None:
    inner = {one.name: one for one in workflow.inner}
    tasks = workflow.app.tasks
    for node in _sure(workflow.graph):
        passed = dict(_passed(node, given))
        if node.kind == "task" and node.runs in tasks:
            for name, (param, value) in passed.items():
                _check_one(tasks[node.runs].function, name, value, what, param, node.name)
        elif node.kind == "job" and node.runs in inner:
            values = {name: value for name, (_, value) in passed.items()}
            _check(inner[node.runs], values, what=f"{what}, node {node.name!r}")


def _check_one(function: Any, name: str, value: Any, what: str, param: str, node: str) -> None:
    try:
        arguments.check_value(function, name, value)
    except InvalidArguments as error:
        raise InvalidArguments(
            f"{what}: parameter {param!r} does not fit node {node!r}: {error}", field=param
        ) from None


def _sure(graph: Graph) -> Iterator[GraphNode]:
    """Nodes that run unless something before them fails: no condition and no branch is in the way,
    and no list that may be empty.
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


def _passed(node: GraphNode, given: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """What the node is given of this as it is: by argument, the parameter and its value."""
    for name, value in node.args.items():
        found = output(value)
        param = None if found is None or found.path else found.param
        if param is not None and param in given:
            yield name, (param, given[param])

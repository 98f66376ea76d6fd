"""Nodes that choose: `"branch": ["full", "part"]` goes on with those that the task names.

    {"name": "choose", "task": "choose", "branch": ["full", "part"]}

That makes an edge to each of them, with a condition on what the task returns. What it returns is
looked at where it runs: a name that is none of these is an error there, since otherwise all would
be skipped, and the run would succeed with nothing done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from daybell.core import payload
from daybell.errors import InvalidWorkflow, PermanentError, shown

if TYPE_CHECKING:
    from daybell.core.graph_node import GraphNode


def condition_for(name: str) -> str:
    """True of a result that is this name, or a list that has it. A text has it only as a whole."""
    quoted = msgspec.json.encode(name).decode()
    return f"result == {quoted} or result[0] != null and {quoted} in result"


def condition_in_words(when: str, child: str) -> str:
    """A condition as people read it: the one that a branch makes is about a name."""
    return f"it says {child}" if when == condition_for(child) else when


def check_choice(result: str | None, names: Sequence[str]) -> None:
    """Refuse what a task that chooses among these cannot return. None of them is `[]`."""
    said: Any = None if result is None else payload.decode(result)
    listed = cast("list[Any]", said if isinstance(said, list) else [said])
    for one in listed:
        if one not in names:
            raise PermanentError(
                f"a branch returned {shown(one)}, which is none of its nodes; it may return"
                f" {', '.join(map(shown, names))}, a list of them, or [] for none"
            )


def read_branch(value: Any, *, what: str) -> tuple[str, ...]:
    """Read the names in a node, which runs `what`. Raises InvalidWorkflow."""
    said = shown(value)
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [])
    if not listed or not all(isinstance(one, str) for one in listed):
        raise InvalidWorkflow(f"branch={said} must be a list of names of nodes")
    if len(set(listed)) < len(listed):
        raise InvalidWorkflow("branch names a node twice; name it once")
    if what != "task":
        raise InvalidWorkflow(
            f"branch is for a task that returns names, and this is a {what}; put conditions on its"
            " edges, or a task after it that chooses"
        )
    return tuple(listed)


def add_branches(
    edges: dict[tuple[str, str], str | None], nodes: Mapping[str, GraphNode], field: str
) -> None:
    """Add the edges to the nodes that others choose among. Raises InvalidWorkflow."""
    for place, node in enumerate(nodes.values()):
        for name in node.branch:
            where = f"{field}[{place}].branch"
            if name not in nodes:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to {shown(name)}, which is no node; add it"
                    " to nodes",
                    field=where,
                )
            if name == node.name:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to itself; a workflow has no circles",
                    field=where,
                )
            when = condition_for(name)
            if edges.get((node.name, name)) not in (None, when):
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to {shown(name)}, and there is an edge with"
                    " a condition between them; leave one of them out",
                    field=where,
                )
            edges[node.name, name] = when

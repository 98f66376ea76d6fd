"""The order of a graph's nodes, and the circle that leaves it without one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from daybell.errors import InvalidWorkflow

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

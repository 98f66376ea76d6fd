"""Workflows that run each other: every run would have another one inside it, without end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final, cast

import msgspec

from daybell.core.job import JobDefinition


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


def circle_in(jobs: Mapping[str, Collection[str]]) -> list[str]:
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


def endless(circle: Collection[str]) -> str:
    """What people are told of such workflows."""
    return f"workflows would run each other without end: {' -> '.join(circle)}"

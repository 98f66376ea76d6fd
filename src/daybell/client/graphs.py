"""Workflows as people describe them: what their nodes name has to be there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from daybell.core.graph import Graph
from daybell.core.graph_node import JOB, GraphNode
from daybell.core.job import JobDefinition, task_of
from daybell.core.params import check_passed, params_of
from daybell.errors import InvalidArguments, InvalidWorkflow, JobNotFound, UnknownJob, shown
from daybell.store.protocol import Store

# Larger ones are read in a thread: meanwhile, all others would have to wait.
QUICK: Final = 1_000


async def read_workflow(
    store: Store, tenant: str, value: Any, *, job: str, is_dry: bool = False
) -> Graph:
    """Read a workflow that is to be the job of this name. What its nodes do not say of themselves
    is as the tasks that they run have it. If it is only tried, jobs that it runs need not be there
    yet.
    """
    graph = await (_read_in_thread(value) if _size(value) > QUICK else _read(value))
    tasks: dict[str, JobDefinition] = {}
    for name, field in _first_uses(graph.nodes, "task"):
        tasks[name] = await task_named(store, tenant, name, field=field)
    for name, field in _first_uses(graph.nodes, JOB):
        inner = await _check_job(store, tenant, name, job=job, field=field, is_dry=is_dry)
        if inner is not None and not is_dry:  # else it may be about to change
            _check_inner(graph.nodes, inner)
    # A job may run a task of another name.
    known = {name: task_of(one) or one.name for name, one in tasks.items()}
    return graph.inherit(tasks) if all(k == v for k, v in known.items()) else _renamed(graph, tasks)


async def task_named(store: Store, tenant: str, task: str, *, field: str = "task") -> JobDefinition:
    """The definition of a task that the store knows, or of a job that runs one."""
    try:
        known = (await store.get_job(tenant, task)).definition
    except JobNotFound:
        raise UnknownJob(
            f"the store knows no task named {shown(task)}; a worker of the app that has it"
            " tells the store at its start",
            field=field,
        ) from None
    if known.kind != "task":
        raise UnknownJob(f"job {shown(task)} is a {known.kind}, not a task", field=field)
    return known


async def _read(value: Any) -> Graph:
    return Graph.parse(value)


async def _read_in_thread(value: Any) -> Graph:
    return await asyncio.to_thread(Graph.parse, value)


def _size(value: Any) -> int:
    if not isinstance(value, Mapping):
        return 0
    parts = [cast("Mapping[str, Any]", value).get(name) for name in ("nodes", "edges")]
    return sum(len(cast("list[Any]", part)) for part in parts if isinstance(part, list))


def _first_uses(nodes: Iterable[GraphNode], kind: str) -> list[tuple[str, str]]:
    """The tasks, or jobs, that nodes run, each with where it is said first."""
    found: dict[str, str] = {}
    for place, node in enumerate(nodes):
        if node.kind == kind:
            found.setdefault(node.runs, f"workflow.nodes[{place}].{kind}")
    return list(found.items())


def _renamed(graph: Graph, tasks: Mapping[str, JobDefinition]) -> Graph:
    said = graph.inherit(tasks)
    nodes = [
        replace(node, runs=task_of(tasks[node.runs]) or tasks[node.runs].name)
        if node.kind == "task"
        else node
        for node in said.nodes
    ]
    return replace(said, nodes=tuple(nodes))


async def _check_job(
    store: Store, tenant: str, name: str, *, job: str, field: str, is_dry: bool
) -> JobDefinition | None:
    """Refuse a job that is not there, and one that runs this workflow in turn; answers it, if it is
    a workflow.
    """
    ways = [(job, name)]
    seen: set[str] = set()
    found: JobDefinition | None = None
    while ways:
        way = ways.pop()
        if way[-1] == job:
            raise InvalidWorkflow(
                f"workflows would run each other without end: {' -> '.join(way)}", field=field
            )
        if way[-1] in seen:
            continue
        seen.add(way[-1])
        try:
            definition = (await store.get_job(tenant, way[-1])).definition
        except JobNotFound:
            if len(way) > 2 or is_dry:
                continue  # another workflow's matter, or to be made yet
            raise UnknownJob(
                f"there is no job named {shown(name)}; create it first", field=field
            ) from None
        if definition.kind == "workflow":
            found = definition if len(way) == 2 else found
            inner = Graph.from_settings(definition.settings).jobs
            ways += [(*way, one) for one in sorted(inner)]
    return found


def _check_inner(nodes: Iterable[GraphNode], inner: JobDefinition) -> None:
    """Refuse to run a workflow with what it cannot be called with."""
    params = params_of(inner.settings)
    for place, node in enumerate(nodes):
        if node.kind == JOB and node.runs == inner.name:
            try:
                check_passed(params, node.args, what=f"workflow {shown(inner.name)}")
            except InvalidArguments as error:
                raise InvalidWorkflow(
                    f"node {shown(node.name)}: {error}",
                    field=f"workflow.nodes[{place}].args.{error.field}",
                ) from None

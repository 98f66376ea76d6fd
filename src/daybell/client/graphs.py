"""Workflows as people describe them: what their nodes name has to be there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec.structs import replace

from daybell.client.dependencies import check_dependencies
from daybell.core.circles import circle_in, endless, inner_jobs
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
    uses = dict(_first_uses(graph.nodes, JOB))
    inner = await _inner_jobs(store, tenant, uses, job=job, is_dry=is_dry)
    circle = await _circle(store, tenant, {job: tuple(uses)}, beside=inner)
    if circle:
        raise InvalidWorkflow(endless(circle), field=uses.get(circle[1]))
    if not is_dry:  # else they may be about to change
        for one in inner:
            if one.kind == "workflow":
                _check_inner(graph.nodes, one)
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


async def _inner_jobs(
    store: Store, tenant: str, uses: Mapping[str, str], *, job: str, is_dry: bool
) -> list[JobDefinition]:
    """The jobs that a workflow runs beside itself. One that is not there is refused."""
    found: list[JobDefinition] = []
    for name, field in uses.items():
        try:
            if name != job:
                found.append((await store.get_job(tenant, name)).definition)
        except JobNotFound:
            if not is_dry:  # else it may be to be made yet
                raise UnknownJob(
                    f"there is no job named {shown(name)}; create it first", field=field
                ) from None
    return found


async def check_together(store: Store, tenant: str, definitions: Sequence[JobDefinition]) -> None:
    """Refuse jobs that are defined together and cannot be: with dependencies that do not exist, or
    that lead in a circle; workflows that would run each other, also by way of jobs that are there.

    A job that is not there yet may be run by a workflow: it is looked up when its turn comes.
    """
    for one in definitions:
        await check_dependencies(store, tenant, one, beside=definitions)
    circle = await _circle(store, tenant, {one.name: inner_jobs(one) for one in definitions})
    if circle:
        raise InvalidWorkflow(endless(circle))


async def _circle(
    store: Store,
    tenant: str,
    jobs: Mapping[str, Collection[str]],
    *,
    beside: Iterable[JobDefinition] = (),
) -> list[str]:
    """A circle of workflows that these jobs would be in, or would run. Each is given with the jobs
    that it runs; those `beside` them have been looked up.
    """
    found = {one.name: inner_jobs(one) for one in beside}
    found = {**jobs, **{name: runs for name, runs in found.items() if name not in jobs}}
    missing = [name for runs in found.values() for name in runs]
    while missing:
        name = missing.pop()
        if name in found:
            continue
        try:
            found[name] = inner_jobs((await store.get_job(tenant, name)).definition)
        except JobNotFound:
            found[name] = ()
        missing += found[name]
    return circle_in(found)


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

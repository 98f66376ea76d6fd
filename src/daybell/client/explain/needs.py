"""Needs of executions: what a worker must offer, and which executions use its resources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from uuid import UUID

from daybell.client.context import ClientContext
from daybell.client.workers import site_of
from daybell.core.execution import Execution, State
from daybell.core.job import JobDefinition
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.placement import fits, split_needs, sum_used
from daybell.core.views import ExecutionFilter
from daybell.core.worker import Worker
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.node import JOB
from daybell.core.workflow.run import node_name
from daybell.errors import NotFound


def effective_definition(execution: Execution, job: JobDefinition) -> JobDefinition:
    """Return the definition that runs an execution, by the job version of its creation. A node of a
    workflow runs as that version specifies.
    """
    if execution.node is None or job.kind != "workflow":
        return job
    graph = _graph_in(job.settings)
    node = graph.by_name.get(node_name(execution.node))
    # A node that is another workflow may have a name that this one has a node of, too.
    is_inline = node is not None and node.kind != JOB
    return graph.definition_of(node, job) if node and is_inline else job


@lru_cache(maxsize=16)  # a caller that reads one node of a run reads others, too
def _graph_in(settings: str) -> Graph:
    return Graph.from_settings(settings)


def needs_of(execution: Execution, definition: JobDefinition | None) -> str:
    """Return the needs that a worker must meet, by the job version of the execution's creation."""
    return "task" if definition is None else effective_definition(execution, definition).needs


async def load_definition(client: ClientContext, execution: Execution) -> JobDefinition | None:
    """Load the job version of an execution's creation; None: it is gone."""
    try:
        job = await client.store.catalog.get_job(
            client.tenant, execution.job, version=execution.version
        )
    except NotFound:
        return None
    return job.definition


USERS_MAX: Final = PAGE_ITEMS_MAX  # running executions that are read


async def find_users(
    client: ClientContext, able: Sequence[Worker], needs: str
) -> Sequence[Execution]:
    """Return the executions that use the resources which these needs demand, if no worker has as
    much of them free; else, or if more executions run than are read, none.
    """
    demands = split_needs(needs)[1]
    if not demands.resources or not able:
        return ()
    where = ExecutionFilter(states=frozenset({State.RUNNING}), with_nodes=True)
    page = await client.store.catalog.list_executions(client.tenant, where, limit=USERS_MAX)
    if page.next_cursor is not None:
        return ()
    running: dict[UUID | None, list[tuple[Execution, str]]] = {}
    known: dict[tuple[str, int], JobDefinition | None] = {}
    for one in page.items:
        version = one.job, one.version
        if version not in known:
            known[version] = await load_definition(client, one)
        running.setdefault(one.worker, []).append((one, needs_of(one, known[version])))
    users: list[Execution] = []
    for worker in able:
        own = running.get(worker.id, [])
        used = sum_used(text for _, text in own)
        total = site_of(worker).resources
        free = {name: amount - used.get(name, 0.0) for name, amount in total.items()}
        if fits(demands, free) > 0:
            return ()
        users += [
            one
            for one, text in own
            if demands.resources.keys() & split_needs(text)[1].resources.keys()
        ]
    return users

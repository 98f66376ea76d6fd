"""Which jobs are nodes of workflows: in a list they look as if they waited for somebody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from daybell.client import Client
from daybell.client.remote.client import AnyClient
from daybell.core.execution import Execution
from daybell.core.graph import Graph
from daybell.core.graph_node import JOB
from daybell.core.job import JobDefinition
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.standing import Standing
from daybell.errors import ExecutionNotFound

RUNS_MAX: Final = 20  # that are asked for by themselves
RUNS_OVER_HTTP_MAX: Final = 3  # a server answers with all of a run's nodes, which may be thousands

Users = Mapping[str, Sequence[str]]  # the workflows, by the jobs and tasks that they run


async def users_of(client: AnyClient, shown: Sequence[Standing], *, is_all: bool) -> Users:
    """The workflows that run these jobs. If these are not all that there are, the first page of
    the others is looked at: who has more workflows knows them.
    """
    if all(one.schedules for one in shown):
        return {}
    if is_all:
        return by_job(one.job.definition for one in shown)
    page = await client.jobs(limit=PAGE_ITEMS_MAX)
    return by_job(job.definition for job in page.items)


async def workflows_of(client: AnyClient, shown: Sequence[Execution]) -> dict[UUID, str]:
    """The workflows of the runs that these are nodes of, by run. Those whose runs are not shown are
    asked for, up to a number that nobody waits long for.
    """
    found = {one.id: one.job for one in shown}
    asked = {one.parent: None for one in shown if one.node is not None and one.parent is not None}
    most = RUNS_MAX if isinstance(client, Client) else RUNS_OVER_HTTP_MAX
    for run in [one for one in asked if one not in found][:most]:
        with suppress(ExecutionNotFound):  # it was cleaned up meanwhile
            found[run] = (await client.execution(run)).execution.job
    return found


def by_job(definitions: Iterable[JobDefinition]) -> Users:
    """The names of workflows by those of the tasks and jobs that are nodes in them."""
    users: dict[str, list[str]] = defaultdict(list)
    for definition in definitions:
        if definition.kind == "workflow":
            nodes = Graph.from_settings(definition.settings).nodes
            for runs in {str(node.runs) for node in nodes if node.kind in (JOB, "task")}:
                users[runs].append(definition.name)
    return users


def in_words(workflows: Sequence[str]) -> str:
    """What is said of a job in the place of its schedules."""
    if not workflows:
        return ""
    first, *others = sorted(workflows)
    return f"node of {first}" + (f" and {len(others):,} more" if others else "")

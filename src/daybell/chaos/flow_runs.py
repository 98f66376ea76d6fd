"""What became of workflows in a run of chaos, as the store has it at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import msgspec

from daybell.chaos.flows import NAMES, Flow
from daybell.chaos.nodes import durable
from daybell.client import Client
from daybell.core.execution import Execution
from daybell.core.run import RunDetail
from daybell.core.step import Step


class FlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workflow, perhaps inside another one."""

    flow: Flow
    execution: Execution
    detail: RunDetail | None  # None: it has not begun
    root: UUID  # the outermost run that it belongs to; often itself
    nodes: Mapping[str, Sequence[Execution]]  # by label

    @property
    def id(self) -> UUID:
        return self.execution.id

    def executions(self, name: str) -> list[Execution]:
        """Those of a node, which has several if it is mapped."""
        labels = self.flow.labels(name)
        return [one for label in labels for one in self.nodes.get(label, ())]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were."""

    asked: int
    acknowledged: int
    states: dict[str, int]  # of runs
    nodes: int  # executions of nodes, but for those that are runs
    steps: int  # on record, of durable functions
    steps_again: int  # done once more, since they were not on record when their worker was lost


def _is_run(execution: Execution, executions: Mapping[UUID, Execution]) -> bool:
    """Whether it is a workflow's own execution. Nodes are under the same job as their run; a run
    inside another one is not.
    """
    if execution.job not in NAMES or execution.node is None:
        return execution.job in NAMES
    around = executions.get(execution.parent) if execution.parent else None
    return around is None or around.job != execution.job


async def flow_runs(
    client: Client, flows: Mapping[str, Flow], executions: Mapping[UUID, Execution]
) -> dict[UUID, FlowRun]:
    """All runs among these executions."""
    nodes: dict[UUID, dict[str, list[Execution]]] = {}
    for one in executions.values():
        if one.node is not None and one.parent is not None:
            nodes.setdefault(one.parent, {}).setdefault(one.node, []).append(one)
    return {
        one.id: FlowRun(
            flow=flows[one.job],
            execution=one,
            detail=await client.store.get_run(client.tenant, one.id),
            root=list(lineage(one, executions))[-1].id,
            nodes=nodes.get(one.id, {}),
        )
        for one in executions.values()
        if _is_run(one, executions)
    }


def lineage(execution: Execution, executions: Mapping[UUID, Execution]) -> Iterator[Execution]:
    """The execution, the run whose node it is, the run around that, and so on."""
    found: Execution | None = execution
    while found is not None:
        yield found
        found = executions.get(found.parent) if found.parent else None


async def recorded_steps(
    client: Client, executions: Mapping[UUID, Execution]
) -> dict[UUID, list[Step]]:
    """The steps of durable functions, by execution."""
    return {
        one.id: await client.store.steps(client.tenant, one.id)
        for one in executions.values()
        if is_durable(one)
    }


def is_durable(execution: Execution) -> bool:
    return (execution.node or execution.job).startswith(durable.name)

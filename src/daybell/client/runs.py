"""Workflow runs: their nodes, the waits of nodes, and starting a run again."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.client.context import ClientContext
from daybell.client.executions import clone_execution
from daybell.client.requests import Id, read_id
from daybell.core.event import NewEvent, NodeWait
from daybell.core.execution import (
    PENDING,
    TERMINAL,
    AttemptRecord,
    AttemptSpan,
    Enqueued,
    Execution,
    NewExecution,
    State,
)
from daybell.core.lifecycle import FOR_EVENT, FOR_SLEEP, FOR_STEP
from daybell.core.limits import NODE_ATTEMPTS_MAX, RUN_ATTEMPTS_MAX, RUN_WAITS_MAX
from daybell.core.units import Instant, to_iso
from daybell.core.workflow.graph import Graph, GraphEdge
from daybell.core.workflow.node import JOB
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import QUOTA, UPSTREAM_FAILED, NodeState, NodeView, RunDetail
from daybell.errors import Conflict, JobNotFound, NotFound, UsageError, listed

# Since when a node of a run could have been started: nothing but a worker, or room, was missing.
#
# That is not kept. It follows from the ends of the nodes before it, since a node is started in
# the transaction that ends the last one it waits for.


def ready_times(
    nodes: Sequence[RunNode], edges: Iterable[GraphEdge], *, begins: Sequence[Instant]
) -> dict[str, Instant]:
    """Return the ready times of started nodes, by name. `begins` are the starts of the run: a retry
    starts it again, and keeps earlier nodes. Nodes that a new run took over from another started
    there; their time is known only if a node came before them.
    """
    by_name = {one.name: one for one in nodes}
    parents: Mapping[str, list[RunNode]] = defaultdict(list)
    for edge in edges:
        parents[edge.child].append(by_name[edge.parent])
    found: dict[str, Instant] = {}
    for node in nodes:
        if node.is_begun:
            # A mapped node may have ended since the retry of some items.
            seen = node.finished_at if node.items is None else node.started_at
            own = (at for at in begins if seen is None or at <= seen)
            at = max([*own, *_decided_at(node, parents[node.name])], default=None)
            if at is not None:
                found[node.name] = at if node.started_at is None else min(at, node.started_at)
    return found


def _decided_at(node: RunNode, parents: Sequence[RunNode]) -> list[Instant]:
    """Return the end of the parent that decided, if one did."""
    if node.rule == Rule.ALWAYS:
        return []
    if node.rule == Rule.ONE_SUCCESS:
        return sorted(_ends(one for one in parents if one.status is State.SUCCEEDED))[:1]
    if node.rule == Rule.ONE_FAILED:
        return sorted(_ends(filter(_is_lost, parents)))[:1]
    return sorted(_ends(parents))[-1:]


def _ends(nodes: Iterable[RunNode]) -> list[Instant]:
    return [one.finished_at for one in nodes if one.finished_at is not None]


def _is_lost(node: RunNode) -> bool:
    return node.status in (State.DEAD, State.CANCELLED) or node.reason == UPSTREAM_FAILED


WORKFLOW: Final = "workflow"


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a mapped node."""

    total: int
    ended: int
    failed: int


class RunNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a run."""

    name: str
    status: State
    kind: str | None = None  # None: the workflow's definition is gone
    runs: str | None = None  # the task or the job that it runs
    rule: str = "all_success"
    reason: str | None = None
    execution: UUID | None = None
    ready_at: Instant | None = None  # since then it only waited for room, or a worker
    started_at: Instant | None = None
    finished_at: Instant | None = None
    items: ItemCounts | None = None  # of a mapped node that has started
    run_at: Instant | None = None  # of one that was started and is to go on: not before that
    waits: tuple[NodeWait, ...] = ()  # its own waits, or those inside of it
    attempts: tuple[AttemptSpan, ...] = ()  # the newest, oldest first; none of a mapped node

    @property
    def is_ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def may_wait(self) -> bool:
        """Return True if the node, or something inside of it, may wait for an event."""
        if self.is_ended or not self.is_begun:
            return False
        return self.status is State.WAITING or self.items is not None or self.kind in (JOB, None)

    @property
    def is_begun(self) -> bool:
        """Return True if the node has an execution, or items that have."""
        return self.execution is not None or self.items is not None


class WorkflowRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its nodes, parents before their children."""

    nodes: tuple[RunNode, ...]
    edges: tuple[GraphEdge, ...]
    ended: int
    total: int
    fail_fast: bool = False
    max_running: int | None = None

    @property
    def failed(self) -> tuple[str, ...]:
        """The nodes that were started and did not succeed: the reason why others did not run."""
        ended = (State.DEAD, State.CANCELLED)
        return tuple(one.name for one in self.nodes if one.is_begun and one.status in ended)

    @property
    def percent(self) -> float:
        """The share of the run that has ended."""
        return round(100 * self.ended / self.total, 1)


async def run(client: ClientContext, id: Id) -> WorkflowRun | None:
    """Return the nodes of a workflow's run in their current state; None: no workflow's run.

    One that has not started is shown with nodes that all wait.
    """
    known = read_id(id)
    found = await client.store.catalog.get_execution(client.tenant, known)
    return await run_of(client, found.execution, found.attempts)


async def run_of(
    client: ClientContext, execution: Execution, attempts: Iterable[AttemptRecord] = ()
) -> WorkflowRun | None:
    """Return the run of an execution that was looked up; with its attempts, if nodes are to report
    since when they could have been started.
    """
    detail = await client.store.runs.get_run(client.tenant, execution.id)
    if detail is None and execution.node is not None:
        return None
    graph = await _graph(client, execution)
    if detail is not None:
        starts = [execution.started_at, *(one.started_at for one in attempts)]
        run = _build_run(detail, graph, begins=[at for at in starts if at is not None])
        run = await _with_attempts(client, run, execution.id)
        return await _with_waits(client, run, execution.id)
    return None if graph is None else _build_pending_run(graph, execution.state)


async def _with_attempts(client: ClientContext, run: WorkflowRun, id: UUID) -> WorkflowRun:
    """Add the attempts: read at once for all nodes, and fewer per node the more nodes there are."""
    begun = sum(one.execution is not None for one in run.nodes)
    if not begun:
        return run
    limit = max(1, min(NODE_ATTEMPTS_MAX, RUN_ATTEMPTS_MAX // begun))
    found = await client.store.runs.node_attempts(client.tenant, id, limit=limit)
    nodes = [
        one if one.execution is None else _add_attempts(one, found.get(one.execution, ()))
        for one in run.nodes
    ]
    return replace(run, nodes=tuple(nodes))


async def _with_waits(client: ClientContext, run: WorkflowRun, id: UUID) -> WorkflowRun:
    """Add the waits: read at once for all nodes, and not at all if no node can wait."""
    if not any(one.may_wait for one in run.nodes):
        return run
    waits: dict[str, list[NodeWait]] = {}
    for wait in await client.store.runs.node_waits(client.tenant, id, limit=RUN_WAITS_MAX):
        waits.setdefault(wait.node, []).append(wait)
    nodes = [replace(one, waits=tuple(waits.get(one.name, ()))) for one in run.nodes]
    return replace(run, nodes=tuple(nodes))


async def _is_workflow(client: ClientContext, execution: Execution) -> bool:
    try:
        job = await client.store.catalog.get_job(
            client.tenant, execution.job, version=execution.version
        )
    except JobNotFound:
        return False
    return job.definition.kind == WORKFLOW


async def _graph(client: ClientContext, execution: Execution) -> Graph | None:
    with suppress(JobNotFound):
        job = await client.store.catalog.get_job(
            client.tenant, execution.job, version=execution.version
        )
        if job.definition.kind == WORKFLOW:
            return Graph.from_settings(job.definition.settings)
    return None


async def rerun(
    client: ClientContext,
    id: Id,
    *,
    from_: str | Sequence[str] | None = None,
    request: UUID | None = None,
    repeat: bool = False,
) -> Enqueued:
    """Run a workflow again, as a new execution: these nodes and all that depends on them. The
    rest is taken over. Without nodes: those that did not succeed.

    `request` and `repeat` are as `retry` has them.
    """
    old = (await client.store.catalog.get_execution(client.tenant, read_id(id))).execution
    return await rerun_as(client, old, clone_execution(old, request), from_=from_, repeat=repeat)


async def rerun_cancelled(
    client: ClientContext, olds: Sequence[Execution], request: UUID | None, *, repeat: bool
) -> tuple[list[Execution], int]:
    """Start cancelled runs again with the nodes that did not succeed. Return the executions that
    are no such runs, and the number of runs.
    """
    rest: list[Execution] = []
    kinds: dict[tuple[str, int], bool] = {}
    for old in olds:
        version = old.job, old.version
        if version not in kinds:
            kinds[version] = await _is_workflow(client, old)
        if old.state is not State.CANCELLED or not kinds[version]:
            rest.append(old)
            continue
        try:
            await rerun_as(client, old, clone_execution(old, request), from_=None, repeat=repeat)
        except UsageError:  # it never started
            rest.append(old)
    return rest, len(olds) - len(rest)


async def rerun_as(
    client: ClientContext,
    old: Execution,
    new: NewExecution,
    *,
    from_: str | Sequence[str] | None,
    repeat: bool = False,
) -> Enqueued:
    """Run an execution's run again, as a new execution that is already built."""
    if await client.store.runs.get_run(client.tenant, old.id) is None:
        raise UsageError(
            f"execution {old.id} has no nodes to begin with: it is no workflow's, or it never"
            " began",
            field="from",
        )
    if old.state not in TERMINAL:
        raise Conflict(
            f"execution {old.id} is {old.state}; cancel it, or wait for its end, then begin again"
        )
    if repeat:
        with suppress(NotFound):
            made = (await client.store.catalog.get_execution(client.tenant, new.id)).execution
            return Enqueued(made.id)
    labels = [from_] if isinstance(from_, str) else from_
    return await client.store.runs.rerun(client.tenant, old.id, new, labels=labels)


def _build_run(detail: RunDetail, graph: Graph | None, *, begins: Sequence[Instant]) -> WorkflowRun:
    edges = [
        GraphEdge(view.node.label, child, when)
        for view in detail.nodes
        for child, when in view.node.edges
    ]
    run = detail.run
    nodes = [_node(view, graph, is_blocked=run.is_blocked) for view in detail.nodes]
    ready = ready_times(nodes, edges, begins=begins)
    return WorkflowRun(
        nodes=tuple(replace(one, ready_at=ready.get(one.name)) for one in nodes),
        edges=tuple(edges),
        ended=run.total - run.left,
        total=run.total,
        fail_fast=run.fail_fast,
        max_running=run.max_running,
    )


def _node(view: NodeView, graph: Graph | None, *, is_blocked: bool) -> RunNode:
    node = view.node
    waits = node.state is NodeState.READY or (node.is_map and node.state is NodeState.STARTED)
    known = None if graph is None else graph.by_name.get(node.label)
    items = ItemCounts(total=node.items, ended=node.items_ended, failed=node.items_lost)
    return RunNode(
        name=node.label,
        status=view.state,
        kind=None if known is None else known.kind,
        runs=known.runs if known is not None and isinstance(known.runs, str) else None,
        rule=str(node.rule),
        reason=node.reason or view.reason or (QUOTA if is_blocked and waits else None),
        run_at=view.run_at if view.state in PENDING else None,
        execution=node.execution,
        started_at=node.started_at,
        finished_at=node.finished_at,
        items=items if node.is_map and (node.items or view.state is State.SUCCEEDED) else None,
    )


def _add_attempts(node: RunNode, attempts: tuple[AttemptSpan, ...]) -> RunNode:
    """Return a node with its attempts. One that is away between two has started with the first."""
    starts = [one.started_at for one in attempts if one.started_at is not None]
    started_at = node.started_at if node.is_ended else min(starts, default=node.started_at)
    return replace(node, attempts=attempts, started_at=started_at)


def _build_pending_run(graph: Graph, state: State) -> WorkflowRun:
    """Return the nodes of a run that has not started. If it ended before, none ran or will."""
    status = State.SKIPPED if state in TERMINAL else State.WAITING
    nodes = [
        RunNode(
            name=name,
            status=status,
            kind=graph.by_name[name].kind,
            runs=runs if isinstance(runs := graph.by_name[name].runs, str) else None,
            rule=str(graph.by_name[name].rule),
        )
        for name in graph.order
    ]
    return WorkflowRun(
        nodes=tuple(nodes),
        edges=graph.edges,
        ended=0,
        total=len(nodes),
        fail_fast=graph.fail_fast,
        max_running=graph.max_running,
    )


# The waits that the nodes of a run asked for themselves, in words for a person, and the node that
# receives an event sent to the run.

RESERVED: Final = "daybell."  # names of events with this prefix are reserved
APPROVAL: Final = f"{RESERVED}approval."
DECISION: Final = "approval"  # the subject of a decision that has no other name
_TOLD_MAX: Final = 3  # nodes that a sentence lists with their commands
_WAITS_TOLD_MAX: Final = 2  # of one node
_MATCH_CHARS_MAX: Final = 200  # of the match of a wait, where a sentence has the command to type


def short_name(event: str) -> str:
    """Return the event's name as people know it: for a decision, its subject."""
    return event.removeprefix(APPROVAL)


def describe_event(event: str) -> str:
    """Describe the purpose of a wait, by the name of its event."""
    name = short_name(event)
    return f"event {name!r}" if name == event else f"approval {name!r}"


def describe_resume(wait: NodeWait) -> str:
    """Return the command that makes an execution go on which waits for an event."""
    name = short_name(wait.name)
    if name == wait.name:
        data = "" if wait.match == "{}" else f" --data {_format_match(wait.match)}"
        told = f"{shlex.quote(name)}{data}"
        return f"send it with `daybell executions signal {wait.execution} {told}`"
    named = "" if name == DECISION else f" --name {shlex.quote(name)}"
    return f"decide with `daybell executions approve {wait.execution}{named}`"


def _format_match(match: str) -> str:
    # A long one is too much to type out of a sentence.
    return shlex.quote(match) if len(match) <= _MATCH_CHARS_MAX else "JSON"


def describe_resumes(waits: Sequence[NodeWait]) -> str:
    """Return the commands as the end of a sentence, for the waits of a node; empty for no waits."""
    ways = dict.fromkeys(map(describe_resume, waits))
    return f"; {listed(ways, most=1)}" if ways else ""


def describe_node(node: RunNode) -> str:
    """Describe the reason for a node's state, in short; empty if there is none."""
    if node.status in TERMINAL or not node.is_begun:
        return node.reason or ""
    if node.waits:
        told = [_describe_wait(one, of=node.name) for one in node.waits]
        return f"waits for {listed(told, most=_WAITS_TOLD_MAX, between=' and ')}"
    if node.status is State.WAITING and node.reason == FOR_EVENT:
        return "waits for an event"
    if node.status is State.SCHEDULED and node.run_at is not None:
        return f"{_AWAY.get(node.reason or '', 'not before')} {to_iso(node.run_at)}" + (
            "" if node.reason in (None, *_AWAY) else f" ({node.reason})"
        )
    return node.reason or ""


_AWAY: Final = {FOR_SLEEP: "sleeps until", FOR_STEP: "a step failed; it goes on at"}


def _describe_wait(wait: NodeWait, *, of: str) -> str:
    until = "" if wait.until is None else f" (until {to_iso(wait.until)})"
    place = "" if wait.label == of else f" in {wait.label}"
    return f"{describe_event(wait.name)}{place}{until}"


def describe_waits(nodes: Iterable[RunNode]) -> str:
    """Describe the waits of a run's nodes and their commands; empty if no node asked for a wait."""
    told: list[str] = []
    for node in nodes:
        if not node.waits and node.reason not in (FOR_EVENT, *_AWAY):
            continue
        told.append(f". {node.name} {describe_node(node)}{describe_resumes(node.waits)}")
    more = f". {len(told) - _TOLD_MAX:,} more wait" if len(told) > _TOLD_MAX else ""
    return "".join(told[:_TOLD_MAX]) + more


def next_wake_time(nodes: Iterable[RunNode]) -> Instant | None:
    """Return the time at which the first of these nodes goes on by itself."""
    times = [node.run_at for node in nodes if node.status is State.SCHEDULED]
    times += [one.until for node in nodes for one in node.waits]
    return min((at for at in times if at is not None), default=None)


def select_wait(run: UUID, event: NewEvent, found: Sequence[NodeWait]) -> NodeWait:
    """Return the wait of a run's node that receives an event for the run, of the waits that it
    fits. Raises Conflict if there is not exactly one such node.
    """
    by_execution: dict[UUID, NodeWait] = {}
    for one in found:
        by_execution.setdefault(one.execution, one)
    if len(by_execution) == 1:
        return found[0]
    what = describe_event(event.name)
    if found:
        named = listed(f"{one.label} ({one.execution})" for one in by_execution.values())
        raise Conflict(
            f"several nodes of run {run} wait for {what}: {named}. Say which by its own id"
        )
    raise Conflict(
        f"execution {run} is a workflow's run, which itself waits for nothing, and none of its"
        f" nodes waits for {what} now: nobody would get it. `daybell executions show {run}` has the"
        " ids of the nodes that have begun: one of these gets it now or later, by its own id"
    )

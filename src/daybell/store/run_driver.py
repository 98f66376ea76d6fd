"""Common parts of all stores for runs of workflows: queries, answers and changes.

`core.workflow.progress.advance` decides how a run continues. A store answers its queries in the
transaction that has the run's lock, and writes the changes that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from daybell.core import limits
from daybell.core.event import Facts, NodeWait
from daybell.core.execution import (
    TERMINAL,
    AttemptSpan,
    Outcome,
    State,
    reason_in,
)
from daybell.core.ids import mint_many
from daybell.core.units import Instant
from daybell.core.workflow.rules import ParentCounts, Rule
from daybell.core.workflow.run import (
    Advance,
    Node,
    NodeEnd,
    NodeState,
    NodeView,
    Run,
    RunQuery,
    RunRead,
    Start,
    WaitingGroup,
    node_name,
)
from daybell.errors import InvalidWorkflow, UsageError, shown

# Parts of a run that are done after the transaction that found them, before upkeep does the rest.
ADVANCE_ROUNDS: Final = 20

# The outcome of the last attempt of a run; no worker made that attempt.
OUTCOMES: Final[dict[State, Outcome]] = {
    State.SUCCEEDED: Outcome.SUCCEEDED,
    State.DEAD: Outcome.FAILED,
    State.CANCELLED: Outcome.CANCELLED,
}

# The state that is shown of a node without an execution.
_WITHOUT_EXECUTION: Final[dict[NodeState, State]] = {
    NodeState.WAITING: State.WAITING,
    NodeState.READY: State.WAITING,
    NodeState.STARTED: State.RUNNING,
    NodeState.SUCCEEDED: State.SUCCEEDED,
    NodeState.FAILED: State.DEAD,
    NodeState.SKIPPED: State.SKIPPED,
    NodeState.UPSTREAM_FAILED: State.SKIPPED,
    NodeState.CANCELLED: State.CANCELLED,
}


def drive(
    asking: Generator[RunQuery, Any, Advance],
    answer: Callable[[RunQuery], Any],
    room: Callable[[], float],
) -> Advance:
    """Answer queries until the changes are known. For stores that do not treat groups of identical
    nodes in a special way. `room` counts the executions that the tenant's quota still allows.
    """
    try:
        ask = next(asking)
        while True:
            match ask.read:
                case RunRead.QUOTA:
                    ask = asking.send(room())
                case RunRead.IDENTICAL:
                    ask = asking.send(_group_identical(ask, answer))
                case _:
                    ask = asking.send(answer(ask))
    except StopIteration as stop:
        return _expand_groups(stop.value)


def _group_identical(ask: RunQuery, answer: Callable[[RunQuery], Any]) -> list[WaitingGroup]:
    rows: list[Node] = answer(RunQuery(RunRead.NODES, ask.labels))
    waiting = {row.label: row for row in rows if row.state is NodeState.WAITING and not row.is_map}
    specs: dict[str, tuple[str, str | None]] = answer(RunQuery(RunRead.SPECS, tuple(waiting)))
    found: dict[tuple[Rule, ParentCounts, str], list[Node]] = {}
    for label, row in sorted(waiting.items(), key=lambda pair: pair[1].order):
        found.setdefault((row.rule, row.parents, specs[label][0]), []).append(row)
    return [WaitingGroup(*key, [row.label for row in some], some) for key, some in found.items()]


def _expand_groups(step: Advance) -> Advance:
    if not step.many:
        return step
    changed, starts = list(step.changed), list(step.starts)
    for many in step.many:
        rows: list[Node] = many.nodes.rows
        for row, id in zip(rows, mint_many(len(rows)), strict=True):
            started = replace(row, state=NodeState.STARTED, parents=many.parents, execution=id)
            changed.append(started)
            starts.append(Start(id, row.label, many.spec.args, many.spec))
    return replace(step, changed=tuple(changed), starts=tuple(starts), many=())


def id_source() -> Callable[[], UUID]:
    """Return a source of new ids for one part of a run. Many at a time take less time each."""
    ids: list[UUID] = []
    count = 1

    def mint() -> UUID:
        nonlocal count
        if not ids:
            ids.extend(reversed(mint_many(count)))
            count = min(4 * count, 256)
        return ids.pop()

    return mint


def stamp_node(node: Node, now: Instant) -> Node:
    """Return a changed node with the times that none of its executions has."""
    if node.finished_at is None and node.is_ended:
        return replace(node, finished_at=now)
    if node.is_map and node.started_at is None and node.state is NodeState.STARTED:
        return replace(node, started_at=now)
    return node


def check_level(level: int) -> None:
    """Refuse to begin a run so deep inside others. The outermost is at level 1.

    Workflows that run each other are refused at their definition. But a job is looked up when its
    node starts, and may be another one by then.
    """
    if level > limits.WORKFLOW_LEVELS_MAX:
        raise InvalidWorkflow(
            f"workflows inside workflows deeper than {limits.WORKFLOW_LEVELS_MAX} levels; look"
            " whether these run each other, and put fewer inside each other"
        )


def is_run_over(run: Run) -> bool:
    """Return True if all nodes of a run have ended, so that it has to be begun again."""
    return run.left == 0


def restart_refusal(id: UUID, state: State) -> UsageError:
    """Return the error for an execution that cannot be begun anew."""
    if state in TERMINAL:
        return UsageError(f"execution {id} is no run of a workflow, or was over before it began")
    return UsageError(f"execution {id} is {state}; cancel it first, or wait for its end")


def missing_job_end(start: Start) -> NodeEnd:
    """Return the end of a node that cannot start because its job does not exist."""
    reason = f"no job named {shown(start.spec.job)}; it was deleted, or never made"
    return NodeEnd(
        label=start.label, execution=start.id, state=State.DEAD, reason=reason, is_made=False
    )


def cached_end(start: Start, holder: UUID, result: str | None) -> NodeEnd:
    """Return the end of a node that takes the result of another execution instead of starting."""
    return NodeEnd(
        label=start.label,
        execution=start.id,
        state=State.SUCCEEDED,
        result=result,
        reason=f"cached result of execution {holder}",
        is_made=False,
    )


def newest_spans(
    spans: Iterable[tuple[UUID, AttemptSpan]], limit: int
) -> dict[UUID, tuple[AttemptSpan, ...]]:
    """Return the last attempts of each execution, in order."""
    found: dict[UUID, list[AttemptSpan]] = {}
    for id, span in spans:
        found.setdefault(id, []).append(span)
    for each in found.values():
        each.sort(key=lambda span: span.attempt)
    return {id: tuple(each[-limit:]) for id, each in found.items()}


class ExecutionStatus(NamedTuple):
    """The state and the times of a node's execution."""

    state: State
    started_at: Instant | None
    run_at: Instant | None = None
    reason: str | None = None


def view_node(
    node: Node, result: str | None, executions: Mapping[Any, ExecutionStatus]
) -> NodeView:
    """Return a node as people see it. `executions` are those that are still kept."""
    found = executions.get(node.execution)
    if found is None:
        return NodeView(node, _WITHOUT_EXECUTION[node.state], result)
    if node.started_at is None and found.started_at is not None:
        node = replace(node, started_at=found.started_at)
    if found.state in TERMINAL:
        return NodeView(node, found.state, result)
    reason = reason_in(found.state, found.reason)
    return NodeView(node, found.state, result, found.run_at, reason)


def select_waits(
    rows: Iterable[tuple[UUID, str, str, str, str, Instant | None]],
    facts: Facts | None,
    limit: int,
) -> list[NodeWait]:
    """Return the first of the waits that an event with these facts fits. A row has the execution,
    its label, that of the node around it, the event's name, the match, and the end of the wait.
    """
    found = (
        NodeWait(
            execution=id, label=label, node=node_name(root), name=name, match=match, until=until
        )
        for id, label, root, name, match, until in rows
        if facts is None or facts.meet(match)
    )
    return list(islice(found, limit))

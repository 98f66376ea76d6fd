"""What happened to an execution, in the order that it happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from daybell.client.wire import identity, time
from daybell.client.workflows import RunNode, WorkflowRun
from daybell.core.execution import TERMINAL, ExecutionDetail
from daybell.core.instant import Instant

Moment: TypeAlias = tuple[Instant, dict[str, Any]]

_BEGINNINGS: Final = ("created", "due", "started")


def timeline(of: ExecutionDetail, run: WorkflowRun | None = None) -> list[dict[str, Any]]:
    """Moments of an execution, oldest first: as far as they are kept. Of a workflow's run, also
    those of its nodes.
    """
    one = of.execution
    moments: list[Moment] = [(one.created_at, {"event": "created"})]
    if one.run_at > one.created_at and not of.attempts and one.started_at is None:
        moments.append((one.run_at, {"event": "due"}))
    for attempt in of.attempts:
        about = {"attempt": attempt.attempt, "worker_id": identity(attempt.worker)}
        if attempt.started_at is not None:
            moments.append((attempt.started_at, {"event": "started", **about}))
        moments.append((attempt.ended_at, {"event": str(attempt.outcome), **about}))
    ended = {attempt.attempt for attempt in of.attempts}
    if one.started_at is not None and one.attempt not in ended:
        about = {"attempt": one.attempt, "worker_id": identity(one.worker)}
        moments.append((one.started_at, {"event": "started", **about}))
    if one.cancel_requested_at is not None:
        moments.append((one.cancel_requested_at, {"event": "cancel_requested"}))
    if one.finished_at is not None and one.state in TERMINAL:
        moments.append((one.finished_at, {"event": "ended", "status": str(one.state)}))
    if run is None:
        moments.sort(key=lambda pair: pair[0])
    else:
        moments = _around(moments, _of_nodes(run))
    return [{"at": time(at), **said} for at, said in moments]


def _of_nodes(run: WorkflowRun) -> list[Moment]:
    moments: list[Moment] = []
    for node in run.nodes:
        if node.ready_at is not None:
            moments.append((node.ready_at, {"event": "ready", "node": node.name}))
        moments.extend(_of_attempts(node))
        if node.finished_at is not None:
            moments.append((node.finished_at, {"event": str(node.status), "node": node.name}))
    return moments


def _of_attempts(node: RunNode) -> Iterator[Moment]:
    """Each start, and each end but that of the node itself."""
    if not node.attempts and node.started_at is not None:
        yield node.started_at, {"event": "started", "node": node.name}
    for one in node.attempts:
        about = {"node": node.name, "attempt": one.attempt, "worker_id": identity(one.worker)}
        if one.started_at is not None:
            yield one.started_at, {"event": "started", **about}
        is_last = node.is_ended and one is node.attempts[-1]
        if one.ended_at is not None and not is_last:
            yield one.ended_at, {"event": str(one.outcome), **about}


def _around(own: list[Moment], of_nodes: list[Moment]) -> list[Moment]:
    """A run begins before its nodes, and ends after the last of them, if only by the order."""
    begins = [one for one in own if one[1]["event"] in _BEGINNINGS]
    ends = [one for one in own if one[1]["event"] not in _BEGINNINGS]
    return sorted([*begins, *of_nodes, *ends], key=lambda pair: pair[0])

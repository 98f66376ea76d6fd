"""What happened to an execution, in the order that it happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from daybell.client.moments import outcome_of, told_steps
from daybell.client.node_waits import APPROVAL, short_name
from daybell.client.requests import Id, read_id
from daybell.client.wire import identity, time
from daybell.client.workflows import RunNode, WorkflowRun, Workflows
from daybell.core import payload
from daybell.core.execution import TERMINAL, ExecutionDetail
from daybell.core.instant import Instant
from daybell.core.step import Step, StepKind

Moment: TypeAlias = tuple[Instant, dict[str, Any]]

_BEGINNINGS: Final = ("created", "due", "started")


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with all that is kept of it."""

    detail: ExecutionDetail
    steps: Sequence[Step]
    run: WorkflowRun | None  # None: it is of another kind
    told_steps: list[dict[str, Any]]  # as plain JSON, without what is too much
    timeline: list[dict[str, Any]]


class Stories(Workflows):
    """The part of `Client` that tells of one execution all at once."""

    async def story(self, id: Id) -> Story:
        """One execution, with its steps or nodes, and what happened to it."""
        known = read_id(id)
        detail = await self.store.get_execution(self.tenant, known)
        steps = await self.store.steps(self.tenant, known)
        run = await self.run_of(detail.execution, detail.attempts)
        return Story(
            detail=detail,
            steps=steps,
            run=run,
            told_steps=told_steps(steps, detail.execution),
            timeline=timeline(detail, run, steps),
        )


def timeline(
    of: ExecutionDetail, run: WorkflowRun | None = None, steps: Sequence[Step] = ()
) -> list[dict[str, Any]]:
    """Moments of an execution, oldest first: as far as they are kept. Of a workflow's run, also
    those of its nodes; of a durable function, its steps, sleeps and waits.
    """
    one = of.execution
    moments: list[Moment] = [(one.created_at, {"event": "created"})]
    if one.run_at > one.created_at and not of.attempts and one.started_at is None:
        moments.append((one.run_at, {"event": "due"}))
    for attempt in of.attempts:
        about = {"attempt": attempt.attempt, "worker_id": identity(attempt.worker)}
        if attempt.started_at is not None:
            moments.append((attempt.started_at, {"event": "started", **about}))
        moments.append((attempt.ended_at, {"event": outcome_of(attempt, steps), **about}))
    ended = {attempt.attempt for attempt in of.attempts}
    if one.started_at is not None and one.attempt not in ended:
        about = {"attempt": one.attempt, "worker_id": identity(one.worker)}
        moments.append((one.started_at, {"event": "started", **about}))
    if one.cancel_requested_at is not None:
        moments.append((one.cancel_requested_at, {"event": "cancel_requested"}))
    if one.finished_at is not None and one.state in TERMINAL:
        moments.append((one.finished_at, {"event": "ended", "status": str(one.state)}))
    if run is None:
        # What ended a wait comes before the attempt that goes on with it, also in one moment.
        ends = [end for step in steps for end in _of_wait(step)]
        inside = [moment for step in steps for moment in _of_step(step)]
        moments = sorted([*ends, *_around(moments, inside)], key=lambda pair: pair[0])
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


def _of_step(step: Step) -> Iterator[Moment]:
    """When a step was done, and a sleep or a wait began. Values that have only to be the same again
    (`ctx.now`) are left out.
    """
    about: dict[str, Any] = {"step": short_name(step.name), "n": step.n}
    match step.kind:
        case StepKind.STEP:
            event = "step_done" if step.error is None else "step_failed"
            yield step.finished_at or step.started_at, {"event": event, **about}
        case StepKind.SLEEP:
            yield step.started_at, {"event": "sleep", **about, "until": time(step.wake_at)}
        case StepKind.WAIT:
            yield step.started_at, {"event": "wait", **about, "until": time(step.wake_at)}
            if step.finished_at == step.started_at:  # it had come before
                yield step.started_at, {"event": _came_of(step), **about}
        case StepKind.NOW:
            pass


def _of_wait(step: Step) -> Iterator[Moment]:
    """What came of a wait that had to wait for it."""
    at = step.finished_at
    if step.kind is StepKind.WAIT and step.is_done and at is not None and at != step.started_at:
        yield at, {"event": _came_of(step), "step": short_name(step.name), "n": step.n}


def _came_of(wait: Step) -> str:
    if wait.result is None:
        return "wait_timed_out"
    if not wait.name.startswith(APPROVAL):
        return "event_received"
    return "approved" if payload.decode(wait.result)["data"]["approved"] else "rejected"


def _around(own: list[Moment], inside: list[Moment]) -> list[Moment]:
    """A run begins before its nodes, and ends after the last of them, if only by the order; so do
    attempts and their steps.
    """
    begins = [one for one in own if one[1]["event"] in _BEGINNINGS]
    ends = [one for one in own if one[1]["event"] not in _BEGINNINGS]
    return sorted([*begins, *inside, *ends], key=lambda pair: pair[0])

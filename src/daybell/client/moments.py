"""Steps and events as plain JSON, and as they are read from it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from uuid import UUID

from daybell.client import wire
from daybell.core import payload
from daybell.core.event import Event
from daybell.core.execution import TERMINAL, Attempt, Execution, Outcome, State
from daybell.core.instant import from_iso
from daybell.core.step import Step, StepKind

Status = Literal["done", "failed", "sleeping", "waiting", "timed_out"]
RESULTS_CHARS_MAX: Final = 256 * 1024  # of all steps in one answer; the rest is left out


def status_of(step: Step, execution: Execution) -> Status:
    """What a step of an execution has come to."""
    match step.kind:
        case StepKind.SLEEP:
            is_asleep = execution.state is State.SCHEDULED and _wake_at(step) >= execution.run_at
            return "sleeping" if is_asleep else "done"
        case StepKind.WAIT if not step.is_done:
            return "done" if execution.state in TERMINAL else "waiting"
        case StepKind.WAIT:
            return "timed_out" if step.result is None else "done"
        case _:
            return "done" if step.error is None else "failed"


def _wake_at(step: Step) -> float:
    return step.wake_at or 0.0


def outcome_of(attempt: Attempt, steps: Sequence[Step]) -> str:
    """How an attempt ended, as people see it. One of a durable function may have been given back
    by its own wish: the steps that were open when it ended say so.
    """
    if attempt.outcome is not Outcome.RELEASED:
        return str(attempt.outcome)
    at = attempt.ended_at
    open_ones = [
        step
        for step in steps
        if step.started_at <= at and (step.finished_at is None or step.finished_at > at)
    ]
    for kind, word in _WISHES.items():
        if any(step.kind is kind for step in open_ones):
            return word
    return str(attempt.outcome)


# What is waited for comes before what is slept for at the same time: it may come any moment.
_WISHES: Final = {
    StepKind.WAIT: "waited",
    StepKind.SLEEP: "slept",
    StepKind.STEP: "step_failed",
}


def told_steps(steps: Sequence[Step], execution: Execution) -> list[dict[str, Any]]:
    """The steps of an execution, in their order. What is too much of their results is left out."""
    told: list[dict[str, Any]] = []
    room = RESULTS_CHARS_MAX
    for step in steps:
        status, size = status_of(step, execution), len(step.result or "")
        room -= size
        is_over = status not in ("sleeping", "waiting")
        told.append(
            {
                "n": step.n,
                "name": step.name,
                "kind": str(step.kind),
                "status": status,
                "failures": step.failures,
                "started_at": wire.time(step.started_at),
                "finished_at": wire.time(step.finished_at) if is_over else None,
                "wake_at": wire.time(step.wake_at),
                "result": wire.value(step.result) if room >= 0 else None,
                "is_result_left_out": room < 0 and size > 0,
                "error": wire.value(step.error),
            }
        )
    return told


def read_step(of: Mapping[str, Any]) -> Step:
    """A step as a server has told it."""
    finished, wake_at, result = of["finished_at"], of["wake_at"], of["result"]
    # A wait without a result has timed out; one whose result was left out has not.
    has_result = result is not None or (of["kind"] == "wait" and of["is_result_left_out"])
    return Step(
        n=int(of["n"]),
        name=str(of["name"]),
        kind=StepKind(of["kind"]),
        result=payload.encode(result) if has_result else None,
        error=None if of["error"] is None else payload.encode(of["error"]),
        failures=int(of["failures"]),
        wake_at=None if wake_at is None else from_iso(wake_at),
        started_at=from_iso(of["started_at"]),
        finished_at=None if finished is None else from_iso(finished),
        is_done=of["status"] not in ("waiting", "failed"),
    )


def told_event(of: Event) -> dict[str, Any]:
    """An event, under the names that CloudEvents has."""
    return {
        "id": of.id,
        "source": of.source,
        "type": of.name,
        "data": wire.value(of.data),
        "time": wire.time(of.time),
        "received_at": wire.time(of.received_at),
        "execution_id": wire.identity(of.execution),
    }


def read_event(of: Mapping[str, Any]) -> Event:
    """An event as a server has told it."""
    time, execution = of["time"], of["execution_id"]
    return Event(
        id=str(of["id"]),
        source=str(of["source"]),
        name=str(of["type"]),
        data=payload.encode(of["data"]),
        time=None if time is None else from_iso(time),
        received_at=from_iso(of["received_at"]),
        execution=None if execution is None else UUID(execution),
    )

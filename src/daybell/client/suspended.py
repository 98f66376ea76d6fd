"""What a durable function waits for, in a sentence for a person."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import msgspec

from daybell.client.node_waits import APPROVAL, DECISION, short_name, what_is
from daybell.core.execution import Execution, State
from daybell.core.failure import Failure
from daybell.core.instant import Instant, to_iso
from daybell.core.lifecycle import FOR_EVENT
from daybell.core.step import Step, StepKind

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient

_MOMENT: Final = 0.001  # times that are told as text are a little shorter


class Suspension(msgspec.Struct, frozen=True):
    """Why it is suspended: a word for programs, a sentence, and when that may change by itself."""

    word: str
    detail: str
    next_at: Instant | None = None


async def suspension_of(client: AnyClient, execution: Execution) -> Suspension | None:
    """What an execution waits for by its own wish; None: something else."""
    if execution.state is State.WAITING and execution.reason == FOR_EVENT:
        return _waiting(await client.steps(execution.id), execution)
    if execution.state is State.SCHEDULED and execution.attempt > 1:
        return _asleep(await client.steps(execution.id), execution)
    return None


def _waiting(steps: list[Step], execution: Execution) -> Suspension:
    waits = [step for step in steps if step.kind is StepKind.WAIT and not step.is_done]
    if not waits:
        return Suspension("event", "it waits for an event")
    told = [
        what_is(one.name) + (f" (until {to_iso(one.wake_at)})" if one.wake_at is not None else "")
        for one in waits
    ]
    decisions = [short_name(one.name) for one in waits if one.name.startswith(APPROVAL)]
    ways: list[str] = []
    if decisions:
        named = "" if decisions[0] == DECISION else f" --name {shlex.quote(decisions[0])}"
        ways.append(f"decide with `daybell executions approve {execution.id}{named}`")
    if len(decisions) < len(waits):
        ways.append("send it with `daybell events publish` or `daybell executions signal`")
    how = ", or ".join(ways)
    next_at = min((one.wake_at for one in waits if one.wake_at is not None), default=None)
    return Suspension("event", f"it waits for {' and '.join(told)}; {how}", next_at)


def _asleep(steps: list[Step], execution: Execution) -> Suspension | None:
    at = execution.run_at
    for step in reversed(steps):
        if step.kind is StepKind.SLEEP and abs((step.wake_at or 0.0) - at) < _MOMENT:
            named = "" if step.name == "sleep" else f" ({step.name})"
            return Suspension("sleep", f"it sleeps until {to_iso(at)}{named}", at)
        if step.kind is StepKind.STEP and step.error is not None and not step.is_done:
            times = "once" if step.failures == 1 else f"{step.failures} times"
            detail = (
                f"its step {step.name!r} has failed {times}, with"
                f" {Failure.of_kept(step.error).type}; it is tried again at {to_iso(at)}"
            )
            return Suspension("step_retry", detail, at)
    return None

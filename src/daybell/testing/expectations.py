"""What a test expects to wait, and what it is told when something else does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daybell.core.duration import format_duration
from daybell.core.execution import PENDING, TERMINAL, Execution
from daybell.core.failure import Failure
from daybell.core.instant import Instant, Seconds
from daybell.core.priority import Priority

SHOWN_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is asked of an execution that waits; None asks nothing."""

    task: str
    arguments: Mapping[str, Any] | None = None  # these at least
    delay: Seconds | None = None
    at: Instant | None = None
    queue: str | None = None
    priority: Priority | None = None
    unique_key: str | None = None

    def fits(self, execution: Execution, arguments: Mapping[str, Any]) -> bool:
        asked = self.arguments or {}
        delay = execution.run_at - execution.created_at
        return (
            execution.job == self.task
            and all(name in arguments and arguments[name] == asked[name] for name in asked)
            and (self.delay is None or abs(delay - self.delay) < 1e-3)
            and (self.at is None or abs(execution.run_at - self.at) < 1e-3)
            and self.queue in (None, execution.queue)
            and self.priority in (None, execution.priority)
            and self.unique_key in (None, execution.unique_key)
        )

    def __str__(self) -> str:
        asked = [] if self.arguments is None else [repr(dict(self.arguments))]
        if self.delay is not None:
            asked.append(f"delay {format_duration(self.delay)}")
        if self.at is not None:
            asked.append(f"at {self.at}")
        if self.queue is not None:
            asked.append(f"queue {self.queue}")
        if self.priority is not None:
            asked.append(f"priority {self.priority.name.lower()}")
        if self.unique_key is not None:
            asked.append(f"unique key {self.unique_key!r}")
        return f"{self.task} with {', '.join(asked)}" if asked else self.task


def describe(
    executions: list[Execution],
    *,
    task: str,
    now: Instant,
    arguments_of: Callable[[Execution], Mapping[str, Any]],
) -> str:
    """What there is of a task, for a message: what waits, what has ended, and what else waits."""

    def listed(title: str, found: list[Execution]) -> list[str]:
        if not found:
            return []
        lines = [f"  {dict(arguments_of(one))!r}: {condition(one, now)}" for one in found]
        more = [f"  and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
        return [f"{title}:", *lines[:SHOWN_MAX], *more]

    own = [one for one in executions if one.job == task]
    others = Counter(one.job for one in executions if one.job != task and one.state in PENDING)
    waiting = [one for one in own if one.state in PENDING]
    lines = [
        *(listed(f"of {task} there wait", waiting) or [f"no {task} waits"]),
        *listed(f"of {task} there ended", [one for one in own if one.state in TERMINAL]),
    ]
    if others:
        counts = ", ".join(f"{name} ×{count}" for name, count in others.items())
        lines.append(f"others that wait: {counts}")
    return "\n".join(lines)


def condition(execution: Execution, now: Instant) -> str:
    """What an execution is doing, in a few words."""
    words = str(execution.state)
    if execution.run_at > now and execution.state in PENDING:
        words += f", due in {format_duration(round(execution.run_at - now, 6))}"
    if execution.reason is not None:
        words += f" ({execution.reason})"
    if execution.error is not None:
        failure = Failure.from_json(execution.error)
        words += f", failed with {failure.type}: {failure.message[:200]}"
    words += f"; queue {execution.queue}, priority {execution.priority.name.lower()}"
    return words if execution.unique_key is None else f"{words}, key {execution.unique_key!r}"

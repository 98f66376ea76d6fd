"""What a bench tells of one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daybell.core.execution import Execution, Outcome, State


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One attempt that the bench made.

    `execution` is as the attempt left it: ended, or to be tried again. `error` is what the task
    raised, itself and with its traceback.
    """

    execution: Execution
    attempt: int
    outcome: Outcome
    arguments: dict[str, Any]  # as the task got them
    result: Any = None
    error: BaseException | None = None

    @property
    def task(self) -> str:
        """The job: of a node, the workflow that it belongs to."""
        return self.execution.job

    @property
    def node(self) -> str | None:
        """Which node of a workflow it is, if it is one: `load`, or `process[2]`."""
        return self.execution.node

    @property
    def state(self) -> State:
        """What became of the execution: with tries left, a failed attempt leaves it retrying."""
        return self.execution.state

    @property
    def has_failed(self) -> bool:
        return self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)

    def __repr__(self) -> str:
        error = f" with {self.error!r}" if self.error is not None else ""
        left = "" if self.state.value == self.outcome.value else f", now {self.state}"
        what = self.task if self.node is None else f"{self.task}, {self.node}"
        return f"<Run {self.attempt} of {what}: {self.outcome}{error}{left}>"

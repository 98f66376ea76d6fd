"""Codes and columns of rows, the same in every store.

States and outcomes are written as small integers. Their order is part of the schema: partial
indexes use `state <= 3` for claimable executions. Never renumber.
"""

from __future__ import annotations

from typing import Any, Final

from daybell.core.event import StepKind
from daybell.core.execution import Execution, Outcome, Priority, State, reason_in
from daybell.core.schedule import Decision
from daybell.core.worker import WorkerState
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import NodeState

STATE_CODES: Final[dict[State, int]] = {
    State.QUEUED: 1,
    State.SCHEDULED: 2,
    State.RETRYING: 3,
    State.WAITING: 4,
    State.RUNNING: 5,
    State.SUCCEEDED: 6,
    State.DEAD: 7,
    State.CANCELLED: 8,
    State.SKIPPED: 9,
}
STATES: Final[dict[int, State]] = {code: state for state, code in STATE_CODES.items()}

OUTCOME_CODES: Final[dict[Outcome, int]] = {
    Outcome.SUCCEEDED: 1,
    Outcome.FAILED: 2,
    Outcome.TIMED_OUT: 3,
    Outcome.LOST: 4,
    Outcome.CANCELLED: 5,
    Outcome.RELEASED: 6,
}
OUTCOMES: Final[dict[int, Outcome]] = {code: outcome for outcome, code in OUTCOME_CODES.items()}

WORKER_CODES: Final[dict[WorkerState, int]] = {
    WorkerState.LIVE: 1,
    WorkerState.DRAINING: 2,
    WorkerState.DEAD: 3,
}
WORKER_STATES: Final[dict[int, WorkerState]] = {c: s for s, c in WORKER_CODES.items()}

DECISION_CODES: Final[dict[Decision, int]] = {
    Decision.FIRED: 1,
    Decision.SKIPPED: 2,
    Decision.MISSED: 3,
}
DECISIONS: Final[dict[int, Decision]] = {code: d for d, code in DECISION_CODES.items()}

STEP_CODES: Final[dict[StepKind, int]] = {
    StepKind.STEP: 1,
    StepKind.SLEEP: 2,
    StepKind.WAIT: 3,
    StepKind.NOW: 4,
}
STEP_KINDS: Final[dict[int, StepKind]] = {code: kind for kind, code in STEP_CODES.items()}

NODE_CODES: Final[dict[NodeState, int]] = {
    NodeState.WAITING: 1,
    NodeState.READY: 2,
    NodeState.STARTED: 3,
    NodeState.SUCCEEDED: 4,
    NodeState.FAILED: 5,
    NodeState.SKIPPED: 6,
    NodeState.UPSTREAM_FAILED: 7,
    NodeState.CANCELLED: 8,
}
NODE_STATES: Final[dict[int, NodeState]] = {code: state for state, code in NODE_CODES.items()}

RULE_CODES: Final[dict[Rule, int]] = {
    Rule.ALL_SUCCESS: 1,
    Rule.ALL_DONE: 2,
    Rule.ALL_FAILED: 3,
    Rule.ONE_SUCCESS: 4,
    Rule.ONE_FAILED: 5,
    Rule.NONE_FAILED: 6,
    Rule.NONE_FAILED_MIN_ONE_SUCCESS: 7,
    Rule.NONE_SKIPPED: 8,
    Rule.ALWAYS: 9,
}
RULES: Final[dict[int, Rule]] = {code: rule for rule, code in RULE_CODES.items()}

PRIORITIES: Final[dict[int, Priority]] = {int(priority): priority for priority in sorted(Priority)}

# The columns of an execution. Each has the name of its field of `Execution`, but for the lane.
EXECUTION_COLUMNS: Final = (
    *("id", "version", "state", "lane", "priority", "args", "attempt", "failures", "crashes"),
    *("created_at", "run_at", "scheduled_for", "expires_at", "started_at", "finished_at"),
    *("worker", "unique_key", "retries", "timeout", "gate", "schedule", "parent", "node"),
    *("outcome", "result", "error", "reason", "progress", "note", "checkpoint"),
    *("cancel_requested_at", "is_discarded"),
)


# The columns of a record of any `RecordKind`, in the order that it takes them.
RECORD_COLUMNS: Final = ("name", "definition", "version", "created_at", "updated_at", "author")


def read_execution(
    row: dict[str, Any], *, tenant: str, job: str, queue: str, truncated: bool
) -> Execution:
    """Make an execution of a row by columns, and consume the row. Ids are UUIDs. The version and
    the gate are those of people, not keys.
    """
    del row["lane"]
    row["state"] = state = STATES[row["state"]]
    row["priority"] = PRIORITIES[row["priority"]]
    if row["outcome"] is not None:
        row["outcome"] = OUTCOMES[row["outcome"]]
    row["reason"] = reason_in(state, row["reason"])
    row["is_discarded"] = bool(row["is_discarded"])
    return Execution(tenant=tenant, job=job, queue=queue, truncated=truncated, **row)

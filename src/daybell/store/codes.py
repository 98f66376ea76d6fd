"""How states and outcomes are written in a database: as small integers, the same in every store.

The order is part of the schema: partial indexes say `state <= 3` for what can be claimed. Never
renumber.
"""

from __future__ import annotations

from typing import Final

from daybell.core.execution import Outcome, State
from daybell.core.priority import Priority
from daybell.core.schedule import Decision
from daybell.core.step import StepKind
from daybell.core.worker import WorkerState

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

PRIORITIES: Final[dict[int, Priority]] = {int(priority): priority for priority in sorted(Priority)}

"""How a job stands: one word for what it is doing, and when it runs next."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Instant
from daybell.core.job import Job
from daybell.core.schedule import Schedule

PAUSED: Final = "paused"
MANUAL: Final = "manual"
DELETED: Final = "deleted"

# What is told of a job whose executions are in several states: what matters most.
_BUSY: Final = (State.RUNNING, State.RETRYING, State.QUEUED, State.WAITING, State.SCHEDULED)
assert set(_BUSY) == set(State) - TERMINAL


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A job with what it does now. Times of its schedules are nominal."""

    job: Job
    status: str
    next_run_at: Instant | None
    schedules: tuple[Schedule, ...]
    last_execution: Execution | None  # the newest


def status_of(
    *,
    is_deleted: bool = False,
    is_paused: bool = False,
    unfinished: Collection[State] = (),
    next_run_at: Instant | None = None,
    last: State | None = None,
) -> str:
    """What a job is doing, in one word: a state of executions, or one of those above."""
    if is_deleted:
        return DELETED
    if is_paused:
        return PAUSED
    for state in _BUSY:
        if state in unfinished:
            return str(state)
    if next_run_at is not None:
        return str(State.SCHEDULED)
    return MANUAL if last is None else str(last)


def next_run_at(schedules: Iterable[Schedule]) -> Instant | None:
    """When the first of a job's schedules is due; those of a paused job are not."""
    times = [one.next_at for one in schedules if one.next_at is not None and not one.is_paused]
    return min(times, default=None)

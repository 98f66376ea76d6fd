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


# Of a job with more unfinished executions, so many of the newest are looked at.
LOOKED_AT_MAX: Final = 1_000


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of what a job does."""

    unfinished: frozenset[State] = frozenset()
    last: Execution | None = None  # the newest
    schedules: tuple[Schedule, ...] = ()


class WaitsFor(msgspec.Struct, frozen=True):
    """How one dependency of a job stands."""

    job: str
    is_met: bool
    detail: str  # for a person


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A job with what it does now. Times of its schedules are nominal."""

    job: Job
    status: str
    next_run_at: Instant | None
    schedules: tuple[Schedule, ...]
    last_execution: Execution | None  # the newest
    waits_for: tuple[WaitsFor, ...] = ()  # its dependencies, if it was asked for alone


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


def standing_of(job: Job, look: Look, *, is_deleted: bool = False) -> Standing:
    """How a job stands, by what was seen of it."""
    next_at = next_run_at(look.schedules)
    return Standing(
        job=job,
        status=status_of(
            is_deleted=is_deleted,
            is_paused=job.paused_at is not None,
            unfinished=look.unfinished,
            next_run_at=next_at,
            last=None if look.last is None else look.last.state,
        ),
        next_run_at=None if is_deleted else next_at,
        schedules=tuple(sorted(look.schedules, key=by_name)),
        last_execution=look.last,
    )


def by_name(schedule: Schedule) -> tuple[str, bool, int, str]:
    """The order of schedules: by job, declared ones first, and those in the order of a list."""
    name = schedule.name
    return schedule.job, not schedule.is_declared, len(name) if name.isdigit() else 0, name


def next_run_at(schedules: Iterable[Schedule]) -> Instant | None:
    """When the first of a job's schedules is due; those of a paused job are not."""
    times = [one.next_at for one in schedules if one.next_at is not None and not one.is_paused]
    return min(times, default=None)

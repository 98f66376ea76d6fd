"""Schedules as they are kept: a rule, a cursor, and the ticks that were decided.

What a rule means is not known here (its text is kept as it is); this is what firing needs: the
cursor `next_at` that every scheduler compares-and-sets, and the ticks, whose name (schedule,
time) exists at most once.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from daybell.core.execution import NewExecution
from daybell.core.instant import Instant


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be stored; one with the same id is replaced, its cursor included."""

    id: UUID
    job: str
    rule: str  # JSON
    next_at: Instant | None  # None: it will not fire again by itself
    is_paused: bool = False


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule. `next_at` is its cursor: whoever advances it fires the tick."""

    id: UUID
    tenant: str
    job: str
    rule: str
    next_at: Instant | None
    last_at: Instant | None = None  # the last tick that was fired
    fired: int = 0
    is_paused: bool = False


class Decision(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"  # a rule said no; the reason says which
    MISSED = "missed"  # nobody was there in time; one row for a whole range, `at` to `until`


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One decided tick of a schedule, with the execution it fired."""

    at: Instant
    decision: Decision = Decision.FIRED
    reason: str | None = None
    until: Instant | None = None  # for a missed range: its last tick
    execution: NewExecution | None = None


class TickRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tick as it was recorded."""

    schedule: UUID
    at: Instant
    decision: Decision
    reason: str | None
    until: Instant | None
    execution: UUID | None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """Advance one schedule from `expect` to `next_at`, and record the ticks in between."""

    tenant: str
    schedule: UUID
    expect: Instant
    next_at: Instant | None
    ticks: tuple[Tick, ...]

"""Schedules as they are kept: a rule, a cursor, and the ticks that were decided.

What a rule means is not known here (its text is kept as it is); this is what firing needs: the
cursor `next_at` that every scheduler compares-and-sets, and the ticks, whose name (schedule,
time) exists at most once.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from daybell.core.execution import LEFT_OUT, NewExecution, State
from daybell.core.instant import Instant, Seconds
from daybell.core.overlap import OverlapBy


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be stored; one with the same id is replaced, its cursor included."""

    id: UUID
    job: str
    rule: str  # JSON of `core.when.Schedule`
    next_at: Instant | None  # None: it will not fire again by itself
    name: str = ""  # among the job's schedules
    args: str = "{}"  # what its executions are called with
    misfire: str = ""  # JSON of `core.when.Misfire`; empty: the default
    delay: Seconds | None = None  # a fixed delay: each end sets the next time
    is_reboot: bool = False  # its time comes when the first scheduler starts
    pause_after: int | None = None  # so many failures in a row pause the job
    is_declared: bool = False  # comes with the job's definition, and goes with it
    since: Instant | None = None  # fires after others: the cursor is this, and not next_at
    own_gate: bool = False  # the overlap rule compares its executions with each other only


class Schedule(msgspec.Struct, frozen=True):
    """A stored schedule. `next_at` is its cursor: whoever advances it fires the tick."""

    id: UUID
    tenant: str
    job: str
    rule: str
    next_at: Instant | None
    name: str = ""
    args: str = "{}"
    misfire: str = ""
    delay: Seconds | None = None
    is_reboot: bool = False
    is_declared: bool = False
    is_paused: bool = False  # with its job
    last_at: Instant | None = None  # the last tick that was fired
    succeeded_for: Instant | None = None  # the last tick whose execution succeeded
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    failures: int = 0  # executions that ended dead since one succeeded
    # Fires when the job's dependencies have succeeded since then. Its cursor: `next_at` is None.
    since: Instant | None = None
    own_gate: bool = False  # see `NewSchedule`

    @property
    def overlap_by(self) -> OverlapBy:
        """Whose unfinished execution its overlap rule looks at: one of its own, or of its job."""
        return "schedule" if self.own_gate else "job"

    @property
    def truncated(self) -> bool:
        """True in a list that leaves its arguments out because they are large."""
        return self.args == LEFT_OUT

    @property
    def cursor(self) -> Instant | None:
        """What whoever fires it has to advance; None: it will not fire by itself."""
        return self.next_at if self.since is None else self.since

    @property
    def is_to_fire(self) -> bool:
        """Whether there is a time at which it will fire, unless it is paused."""
        return self.cursor is not None or self.delay is not None or self.is_reboot


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the schedules found, and when it is worth looking again."""

    now: Instant  # by the store's clock, like everything here
    schedules: tuple[Schedule, ...]
    next_at: Instant | None = None  # of the first that is not among them


class Decision(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"  # a rule said no; the reason says which
    MISSED = "missed"  # nobody was there in time; one row for a whole range, `at` to `until`


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One decided tick of a schedule, with the execution it fired. If a rule said no, that is not
    to run: it waits for dependencies (`awaits`), is skipped at once for the reason of the tick, and
    tells people that there was one.
    """

    at: Instant
    decision: Decision = Decision.FIRED
    reason: str | None = None
    until: Instant | None = None  # for a missed range: its last tick
    count: int = 1  # of the ticks that it stands for
    execution: NewExecution | None = None

    @property
    def ruled_out(self) -> UUID | None:
        """The execution that is skipped with it."""
        if self.decision is not Decision.SKIPPED or self.execution is None:
            return None
        return self.execution.id


class TickRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tick as it was recorded."""

    schedule: UUID
    at: Instant
    decision: Decision
    reason: str | None
    until: Instant | None
    execution: UUID | None
    count: int = 1


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """Advance one schedule from `expect` to `next_at`, and record the ticks in between. Of one that
    fires after others, both are its `since`.
    """

    tenant: str
    schedule: UUID
    expect: Instant
    next_at: Instant | None
    ticks: tuple[Tick, ...]
    is_over: bool = False  # a fixed delay is not to be set again when its execution ends
    # A schedule that ends with these ticks has not ended if one of them is not fired after all:
    # max_executions is not reached then. `is_over` does not hold, and it goes on here.
    if_refused_at: Instant | None = None

    @property
    def planned_at(self) -> Instant:
        """A time that had come by the store's clock when this was planned. The clock may have been
        set back since.
        """
        return max(self.expect, *(tick.until or tick.at for tick in self.ticks), 0.0)

    @property
    def missed(self) -> list[Tick]:
        """Those of its ticks that nobody was there for."""
        return [tick for tick in self.ticks if tick.decision is Decision.MISSED]


class TurnBack(msgspec.Struct, frozen=True, kw_only=True):
    """Set the cursor of one schedule back from `expect` to `next_at`, because the store's clock was
    set back to `now`. Missed ticks after `now` come off the record: they can still be fired. Of a
    missed range that began earlier, `until` is the last tick that is left of `count`.
    """

    tenant: str
    schedule: UUID
    expect: Instant | None
    next_at: Instant
    now: Instant
    until: Instant | None = None
    count: int = 0


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An execution of a schedule, by the tick it stands for."""

    scheduled_for: Instant
    id: UUID
    state: State

"""Schedules as stored: cursors and ticks; overlap rules with their gates; dependencies between
jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Final, Literal
from uuid import UUID

import msgspec

from daybell.core.execution import LEFT_OUT, TERMINAL, NewExecution, State
from daybell.core.units import Instant, Seconds

# Overlap: what happens to an execution whose predecessor has not finished.
#
# A job that minds has a gate with one slot, named after it. A schedule made at run time has a
# gate of its own beside that, unless `overlap_by="job"` joins it to the job's. Whoever creates an
# execution looks at its gate under the gate's lock, asks `enter`, and does what it says; so two
# schedulers, or a scheduler and a person, cannot both find the gate free.

OverlapBy = Literal["schedule", "job"]


class Overlap(StrEnum):
    """The overlap rules."""

    SKIP = "skip"  # the new one does not run, and is recorded as skipped
    QUEUE = "queue"  # it waits; a second one that would wait is skipped
    QUEUE_ALL = "queue_all"  # all wait, and run one after the other
    REPLACE = "replace"  # those before it are cancelled, and it starts when they have ended
    ALLOW = "allow"  # both run


class GateDecision(Enum):
    """What becomes of a new execution at the gate."""

    IN = "takes the slot"
    WAIT = "waits for the slot"
    SKIP = "does not run"


class Miscount(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that does not know how many it has let in."""

    tenant: str
    gate: str
    counted: int
    inside: int  # in truth


OVERLAP = "overlap"  # why something was skipped, or waits: one before it has not finished


def rule_of(overlap: Overlap | None, *, is_scheduled: bool, is_dependent: bool = False) -> Overlap:
    """The rule that counts. Left open, one job never runs twice at a time by a schedule. One that
    is fired by what it depends on waits for its turn: no other time would come for it.
    """
    if overlap is not None:
        return overlap
    if is_dependent and is_scheduled:
        return Overlap.QUEUE
    return Overlap.SKIP if is_scheduled else Overlap.ALLOW


def gate_of(job: str, schedule: UUID | None = None) -> str:
    """The gate that a job's executions pass one at a time, or those of one of its schedules. No
    name of a job has a "/".
    """
    return f"job:{job}" if schedule is None else f"job:{job}/{schedule.hex}"


def gate_for(new: NewExecution) -> str:
    """The gate at which the overlap rule is asked about an execution that names none itself."""
    return gate_of(new.job, new.schedule if new.own_gate else None)


def is_job_gate(gate: str) -> bool:
    """True for the gate of a job, or of one of its schedules: there, the overlap rule holds."""
    return gate.startswith("job:")


def is_schedule_gate(gate: str | None) -> bool:
    """True for the gate of a single schedule."""
    return gate is not None and is_job_gate(gate) and "/" in gate


def job_of_gate(gate: str) -> str:
    """The job whose gate it is, or the gate of one of its schedules."""
    return gate.removeprefix("job:").partition("/")[0]


def backfill_gate(id: object, room: int = 1) -> str:
    """The gate that the executions of one backfill pass, so many at a time."""
    return f"backfill:{id}:{room}"


def is_backfill(gate: str | None) -> bool:
    """Whether an execution repeats the past. Then its end says nothing about its schedule."""
    return gate is not None and gate.startswith("backfill:")


def room_of(gate: str) -> int | None:
    """How many a gate takes that is made when it is first needed, and removed when it is needed no
    more. None for others: somebody has to say so beforehand.
    """
    if is_job_gate(gate):
        return 1
    if not is_backfill(gate):
        return None
    room = gate.rpartition(":")[2]
    return int(room) if room.isdecimal() and len(room) < 10 else 1


def decide_entry(rule: Overlap, *, inside: int, waiting: int) -> GateDecision:
    """Decide, given how many of the job have the slot, and how many are due and wait for it.

    For `replace` the caller has cancelled before what could be cancelled.
    """
    if rule is Overlap.ALLOW or inside + waiting == 0:
        return GateDecision.IN
    if rule is Overlap.SKIP or (rule is Overlap.QUEUE and waiting > 0):
        return GateDecision.SKIP
    return GateDecision.WAIT


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


class ScheduleRewind(msgspec.Struct, frozen=True, kw_only=True):
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


# Jobs that depend on jobs: when one may begin, given how the others stand.
#
# Two questions, each answered from what stores know of the dependencies' latest executions. A job
# without a schedule is fired once each dependency has ended well since it was fired last
# (`next_round`). An execution of a schedule begins once, of each dependency, the latest execution
# that was due at its time has succeeded (`may_begin`). Nobody is told when a dependency ends:
# whoever looks, and however often, finds the same.

DEPENDENCIES: Final = "dependencies"  # why an execution waits
UPSTREAM_FAILED: Final = "upstream_failed"  # why it was skipped

# A success is looked for among so many of the newest that have ended, and in all now and then: an
# execution that took long may succeed when thousands that were created later have ended.
LOOKED_AT_MAX: Final = 200


class OnFailure(StrEnum):
    """What becomes of a job when the latest execution of a dependency has failed for good."""

    WAIT = "wait"  # it waits on: for a retry of the dead letter, or for a newer success
    SKIP = "skip"  # it does not run this time
    RUN = "run"  # a failure is as good as a success


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What has ended of one dependency since some moment."""

    succeeded_at: Instant | None = None  # when the last did that succeeded
    ended_at: Instant | None = None  # when the last did, however
    state: State | None = None  # of that one


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """All dependencies have ended: the job is fired, or passes this time."""

    at: Instant  # when the deciding one ended: the tick's name, and where the next round begins
    fires: bool


def next_round(policy: OnFailure, ended: Sequence[Ended], *, is_any: bool = False) -> Round | None:
    """Decide about a job without a schedule, by what has ended of each dependency since the round
    before. None: the round is not over.

    With `is_any`, one success is enough, or one end if failures count as successes. All that have
    ended so far belong to the same round.
    """
    if is_any:
        ends = [one.ended_at if policy is OnFailure.RUN else one.succeeded_at for one in ended]
        last = max((at for at in ends if at is not None), default=None)
        return None if last is None else Round(at=last, fires=True)
    times: list[Instant] = []
    fires = True
    for one in ended:
        at = one.succeeded_at if policy is OnFailure.WAIT else one.ended_at
        if at is None:
            return None
        times.append(at)
        fires = fires and (policy is not OnFailure.SKIP or one.state is State.SUCCEEDED)
    return Round(at=max(times), fires=fires) if times else None


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """How one dependency stood at some moment, as is known by now."""

    state: State | None = None  # of the latest execution that was due by then; None: there is none
    has_newer_success: bool = False  # of one that was due later, if that has not succeeded
    has_newer_failure: bool = False  # the same, if there is none that was due by then
    is_behind: bool = False  # a schedule of it has still to fire for a time until then


class Begin(Enum):
    """What becomes of an execution that waits for dependencies."""

    NOW = "begins"
    WAIT = "waits"
    SKIP = "is skipped"


def may_begin(policy: OnFailure, upstream: Sequence[Upstream]) -> Begin:
    """Decide about an execution of a schedule, by how each dependency stands at its time."""
    entries = [_entry(policy, one) for one in upstream]
    if Begin.SKIP in entries:
        return Begin.SKIP
    return Begin.WAIT if Begin.WAIT in entries else Begin.NOW


def _entry(policy: OnFailure, one: Upstream) -> Begin:
    if one.is_behind:
        return Begin.WAIT
    is_none = one.state is None
    if one.state is State.SUCCEEDED or (is_none and one.has_newer_success):
        return Begin.NOW
    if not (one.has_newer_failure if is_none else one.state in TERMINAL):
        return Begin.WAIT
    match policy:
        case OnFailure.RUN:
            return Begin.NOW
        case OnFailure.SKIP:
            return Begin.SKIP
        case OnFailure.WAIT:
            return Begin.NOW if one.has_newer_success else Begin.WAIT


def is_held_up(policy: OnFailure, one: Upstream) -> bool:
    """Whether an execution does not begin because of this dependency."""
    return _entry(policy, one) is not Begin.NOW


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that waits for the dependencies of its job, which are those that the job has
    now: whoever takes one away lets go what waits for it.
    """

    tenant: str
    id: UUID
    job: str
    at: Instant  # the time that counts: of its tick
    dependencies: tuple[str, ...]
    on_failure: OnFailure


class Dependent(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that fires when the job's dependencies have ended, or any of the jobs that it
    names itself; its cursor is `since`.
    """

    schedule: Schedule
    dependencies: tuple[str, ...]
    on_failure: OnFailure
    is_any: bool = False

    @classmethod
    def of(
        cls, schedule: Schedule, dependencies: tuple[str, ...], on_failure: OnFailure
    ) -> Dependent:
        """Make one of a schedule, and of what its job's definition specifies."""
        named = any_jobs((schedule.rule,))
        return cls(
            schedule=schedule,
            dependencies=named or dependencies,
            on_failure=on_failure,
            is_any=bool(named),
        )


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """All that may be ready."""

    now: Instant  # by the store's clock
    schedules: tuple[Dependent, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class DependencyFields(msgspec.Struct, frozen=True):
    """The part of a definition that says what it depends on; all of it takes longer to read."""

    dependencies: tuple[str, ...] = ()
    on_dependency_failure: OnFailure = OnFailure.WAIT


class _AnyFields(msgspec.Struct, frozen=True):
    after_any: tuple[str, ...] = ()


_read_rule: Final = msgspec.json.Decoder(_AnyFields).decode
_ANY_START: Final = '{"after_any":'


def any_jobs(rules: Sequence[str]) -> tuple[str, ...]:
    """List the jobs of which any fires one of these schedules, which are JSON of `core.when`."""
    found = [_read_rule(rule).after_any for rule in rules if rule.startswith(_ANY_START)]
    return tuple(dict.fromkeys(name for names in found for name in names))


read_fields: Final = msgspec.json.Decoder(DependencyFields).decode

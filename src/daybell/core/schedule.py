"""Stored schedules: cursors and ticks, overlap rules with gates, dependencies between jobs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Final, Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.execution import LEFT_OUT, TERMINAL, Enqueued, NewExecution, State
from daybell.core.units import Instant, Seconds

# Overlap: the decision about an execution while an earlier one is unfinished.
#
# A job with an overlap rule has a gate with one slot. A schedule made at run time has its own gate,
# unless `overlap_by="job"` joins it to the job's. Creating an execution locks the gate and calls
# `decide_entry`, so that two callers cannot both find the gate free.

OverlapBy = Literal["schedule", "job"]


class Overlap(StrEnum):
    """The overlap rules."""

    SKIP = "skip"  # the new one is recorded as skipped
    QUEUE = "queue"  # one waits; further ones are skipped
    QUEUE_ALL = "queue_all"  # all wait, and run one after the other
    REPLACE = "replace"  # earlier ones are cancelled; it starts after them
    ALLOW = "allow"  # all run


class GateDecision(Enum):
    """The decision about a new execution at a gate."""

    IN = "takes the slot"
    WAIT = "waits for the slot"
    SKIP = "does not run"


OVERLAP = "overlap"  # the reason of a skip or a wait


def rule_of(overlap: Overlap | None, *, is_scheduled: bool, is_dependent: bool = False) -> Overlap:
    """Return the effective rule. By default, executions fired by time skip, those fired by
    dependencies queue, because no other time would come for them, and others run, such as those
    fired by events, which are all different.
    """
    if overlap is not None:
        return overlap
    if is_dependent and is_scheduled:
        return Overlap.QUEUE
    return Overlap.SKIP if is_scheduled else Overlap.ALLOW


def gate_of(job: str, schedule: UUID | None = None) -> str:
    """Return the gate of a job, or of one of its schedules. Names of jobs contain no "/"."""
    return f"job:{job}" if schedule is None else f"job:{job}/{schedule.hex}"


def gate_for(new: NewExecution) -> str:
    """Return the gate of the overlap rule for a new execution."""
    return gate_of(new.job, new.schedule if new.own_gate else None)


def is_job_gate(gate: str) -> bool:
    """Return True for the gate of a job or a schedule, which have an overlap rule."""
    return gate.startswith("job:")


def is_schedule_gate(gate: str | None) -> bool:
    """Return True for the gate of a single schedule."""
    return gate is not None and is_job_gate(gate) and "/" in gate


DELIVERY_GATE: Final = "delivery:"


def delivery_gate(subscription: str, about: object) -> str:
    """Return the gate of the deliveries of outgoing events about one thing, with one slot."""
    return f"{DELIVERY_GATE}{subscription}:{about}"


def backfill_gate(id: object, room: int = 1) -> str:
    """Return the gate of a backfill with so many slots."""
    return f"backfill:{id}:{room}"


def is_backfill(gate: str | None) -> bool:
    """Return True for an execution of a backfill; its end does not count for its schedule."""
    return gate is not None and gate.startswith("backfill:")


def room_of(gate: str) -> int | None:
    """Return the slots of a gate that is created and removed on demand; None for other gates, which
    must be created.
    """
    if is_job_gate(gate) or gate.startswith(DELIVERY_GATE):
        return 1
    if not is_backfill(gate):
        return None
    room = gate.rpartition(":")[2]
    return int(room) if room.isdecimal() and len(room) < 10 else 1


def decide_entry(rule: Overlap, *, inside: int, waiting: int) -> GateDecision:
    """Decide, given the executions that hold a slot, and those that are due and wait for one.

    For `replace` the caller has cancelled earlier executions.
    """
    if rule is Overlap.ALLOW or inside + waiting == 0:
        return GateDecision.IN
    if rule is Overlap.SKIP or (rule is Overlap.QUEUE and waiting > 0):
        return GateDecision.SKIP
    return GateDecision.WAIT


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to store; it replaces one with the same id, including the cursor."""

    id: UUID
    job: str
    rule: str  # JSON of `core.when.Schedule`
    next_at: Instant | None  # None: time does not fire it
    name: str = ""  # unique in the job
    args: str = "{}"  # of its executions
    misfire: str = ""  # JSON of `core.when.Misfire`; empty: the default
    delay: Seconds | None = None  # a fixed delay: each end sets the next time
    is_reboot: bool = False  # fires when the first scheduler starts
    pause_after: int | None = None  # consecutive failures that pause the job
    is_declared: bool = False  # part of the job's definition
    since: Instant | None = None  # follows other jobs: the cursor instead of next_at
    own_gate: bool = False  # the overlap rule compares only its own executions
    event: str | None = None  # the name of the events that fire it


class Schedule(msgspec.Struct, frozen=True):
    """A stored schedule. `next_at` is its cursor: advancing it fires the tick."""

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
    last_at: Instant | None = None  # the last fired tick
    succeeded_for: Instant | None = None  # the last tick with a successful execution
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    failures: int = 0  # dead executions since the last success
    # The cursor of a schedule that follows other jobs; `next_at` is None.
    since: Instant | None = None
    own_gate: bool = False  # see `NewSchedule`
    event: str | None = None  # the name of the events that fire it

    @property
    def overlap_by(self) -> OverlapBy:
        """The scope of its overlap rule: its own executions, or those of its job."""
        return "schedule" if self.own_gate else "job"

    @property
    def truncated(self) -> bool:
        """True if a list leaves its large arguments out."""
        return self.args == LEFT_OUT

    @property
    def cursor(self) -> Instant | None:
        """The position to advance when it fires; None: nothing fires it."""
        return self.next_at if self.since is None else self.since

    @property
    def is_to_fire(self) -> bool:
        """True if it will fire, unless it is paused."""
        return (
            self.cursor is not None
            or self.delay is not None
            or self.is_reboot
            or self.event is not None
        )


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its ticks on record and its next times, in a range."""

    schedule: Schedule
    past: tuple[TickRecord, ...]
    future: tuple[Instant, ...]
    has_more: bool  # than FIRES_MAX of either


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Due schedules, and the time of the next one."""

    now: Instant  # the store's time
    schedules: tuple[Schedule, ...]
    next_at: Instant | None = None  # of the first schedule that is not included


class Decision(StrEnum):
    """The decision about a tick."""

    FIRED = "fired"
    SKIPPED = "skipped"  # by a rule, which the reason names
    MISSED = "missed"  # no scheduler fired it in time; one row for a range, `at` to `until`


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One decided tick of a schedule, with its execution. If a rule skips the tick, the execution
    is recorded as skipped with the same reason.
    """

    at: Instant
    decision: Decision = Decision.FIRED
    reason: str | None = None
    until: Instant | None = None  # of a missed range: its last tick
    count: int = 1  # ticks of a range
    execution: NewExecution | None = None
    event: int | None = None  # the number of the event that fired it

    @property
    def ruled_out(self) -> UUID | None:
        """The execution that is skipped with it."""
        if self.decision is not Decision.SKIPPED or self.execution is None:
            return None
        return self.execution.id


class TickRecord(msgspec.Struct, frozen=True):
    """A recorded tick."""

    schedule: UUID
    at: Instant
    decision: Decision
    reason: str | None
    until: Instant | None
    execution: UUID | None
    count: int = 1
    event: int | None = None  # the number of the event


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """An advance of one schedule from `expect` to `next_at`, with the ticks between. For a schedule
    that follows other jobs, both are its `since`.
    """

    tenant: str
    schedule: UUID
    expect: Instant
    next_at: Instant | None
    ticks: tuple[Tick, ...]
    is_over: bool = False  # the end of its execution does not set the next time
    # The position of a schedule that would end with these ticks, if one of them is not fired:
    # max_executions is not reached then, and `is_over` does not apply.
    if_refused_at: Instant | None = None

    @property
    def planned_at(self) -> Instant:
        """A time that had come by the store's clock at planning, even if it was set back since."""
        return max(self.expect, *(tick.until or tick.at for tick in self.ticks), 0.0)

    @property
    def missed(self) -> list[Tick]:
        """The missed ticks."""
        return [tick for tick in self.ticks if tick.decision is Decision.MISSED]


class FiringOutcome(msgspec.Struct):
    """A firing of a schedule that stands where it expects, with the results of its ticks."""

    firing: Firing
    last_at: Instant | None = None  # the last tick that was fired
    new_ticks: list[Tick] = []  # those that are not on record yet
    ticks: list[Tick] = []  # with the decision, reason and execution that go on record
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    is_refused: bool = False  # an execution that it planned was not created
    is_running: bool = False  # it created an execution
    has_no_run: bool = False  # an execution was skipped, or its unique key is held

    def omit(self, tick: Tick) -> None:
        """Leave out a tick that is on record."""
        self.is_refused = self.is_refused or tick.execution is not None

    def add(self, tick: Tick, answer: Enqueued | None) -> Tick:
        """Add a tick, with the answer for its execution. Return it as it goes on record."""
        if answer is not None and answer.skipped:
            tick = replace(tick, decision=Decision.SKIPPED, reason=OVERLAP)
            self.is_refused = self.has_no_run = True
        elif answer is not None and not answer.created:
            assert tick.execution is not None, "it was answered"
            # The tick stands for the holder of its unique key.
            tick = replace(tick, execution=replace(tick.execution, id=answer.id))
            self.has_no_run = True
        elif answer is not None:
            self.is_running = True
        if tick.decision is Decision.FIRED:
            self.fired, self.last_at = self.fired + 1, tick.at
        elif tick.decision is Decision.SKIPPED:
            self.skipped += 1
        else:
            self.missed += tick.count
        self.ticks.append(tick)
        return tick

    @property
    def is_over(self) -> bool:
        """True if a fixed delay ends here."""
        return self.firing.is_over and not self.is_refused

    @property
    def next_at(self) -> Instant | None:
        """The cursor after this firing."""
        if self.is_refused and self.firing.if_refused_at is not None:
            return self.firing.if_refused_at
        return None if self.is_over and self.firing.ticks else self.firing.next_at

    @property
    def is_idle(self) -> bool:
        """True if no end of an execution will set a fixed delay."""
        return self.has_no_run and not self.is_running and not self.is_over


class ScheduleRewind(msgspec.Struct, frozen=True, kw_only=True):
    """A move of the cursor from `expect` back to `next_at`, because the store's clock was set back
    to `now`. Recorded missed ticks after `now` are removed, as they can still fire. A missed range
    that began earlier keeps `count` ticks up to `until`.
    """

    tenant: str
    schedule: UUID
    expect: Instant | None
    next_at: Instant
    now: Instant
    until: Instant | None = None
    count: int = 0


class Occurrence(msgspec.Struct, frozen=True):
    """An execution of a schedule, with its tick."""

    scheduled_for: Instant
    id: UUID
    state: State


# Dependencies between jobs.
#
# A job without a schedule fires when all its dependencies have succeeded since it fired last
# (`next_round`). An execution of a schedule starts when the latest execution of each dependency
# that was due at its time has succeeded (`may_begin`). Both are decided from the recorded
# executions, without notifications, so a repeated check gives the same answer.

DEPENDENCIES: Final = "dependencies"  # the reason of a wait
UPSTREAM_FAILED: Final = "upstream_failed"  # the reason of a skip

# A success is searched among the newest ended executions, and periodically among all: a long
# execution may succeed after thousands that were created later.
LOOKED_AT_MAX: Final = 200


class OnFailure(StrEnum):
    """The decision after the latest execution of a dependency failed for good."""

    WAIT = "wait"  # for a retry of the dead letter, or a newer success
    SKIP = "skip"  # this round
    RUN = "run"  # treats a failure as a success


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of one dependency since some time."""

    succeeded_at: Instant | None = None  # the last success
    ended_at: Instant | None = None  # the last end
    state: State | None = None  # of the last end


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a round of dependencies: the job fires, or skips this round."""

    at: Instant  # the deciding end: the time of the tick, and the start of the next round
    fires: bool


def next_round(policy: OnFailure, ended: Sequence[Ended], *, is_any: bool = False) -> Round | None:
    """Decide about a job without a schedule, by the ends of its dependencies since the last round.
    None: the round is not complete.

    With `is_any`, one success is enough, or one end if failures count as successes. All ends so far
    belong to the round.
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
    """The state of one dependency at the time of a tick."""

    state: State | None = None  # of the latest execution due by then; None: there is none
    has_newer_success: bool = False  # of an execution due later
    has_newer_failure: bool = False  # of an execution due later
    is_behind: bool = False  # one of its schedules has not fired yet up to that time


class Begin(Enum):
    """The decision about an execution that waits for dependencies."""

    NOW = "begins"
    WAIT = "waits"
    SKIP = "is skipped"


def may_begin(policy: OnFailure, upstream: Sequence[Upstream]) -> Begin:
    """Decide about an execution of a schedule, by the state of each dependency at its time."""
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
    """Return True if this dependency keeps an execution from starting."""
    return _entry(policy, one) is not Begin.NOW


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that waits for the current dependencies of its job. Removing a dependency may
    release it.
    """

    tenant: str
    id: UUID
    job: str
    at: Instant  # of its tick
    dependencies: tuple[str, ...]
    on_failure: OnFailure

    @classmethod
    def of(cls, tenant: str, id: UUID, job: str, at: Instant, definition: str) -> Waiting:
        """Create one from an execution and the definition of its job."""
        fields = _read_fields(definition)
        return cls(
            tenant=tenant,
            id=id,
            job=job,
            at=at,
            dependencies=fields.dependencies,
            on_failure=fields.on_dependency_failure,
        )


class Dependent(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that follows the dependencies of its job, or any of the jobs in its own rule; its
    cursor is `since`.
    """

    schedule: Schedule
    dependencies: tuple[str, ...]
    on_failure: OnFailure
    is_any: bool = False

    @classmethod
    def of(cls, schedule: Schedule, definition: str) -> Dependent:
        """Create one from a schedule and the definition of its job."""
        named, fields = any_jobs((schedule.rule,)), _read_fields(definition)
        return cls(
            schedule=schedule,
            dependencies=named or fields.dependencies,
            on_failure=fields.on_dependency_failure,
            is_any=bool(named),
        )


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules and executions that may be ready."""

    now: Instant  # the store's time
    schedules: tuple[Dependent, ...] = ()
    waiting: tuple[Waiting, ...] = ()


class _DependencyFields(msgspec.Struct, frozen=True):
    """The dependencies in a definition, which are decoded without the rest."""

    dependencies: tuple[str, ...] = ()
    on_dependency_failure: OnFailure = OnFailure.WAIT


class _AnyFields(msgspec.Struct, frozen=True):
    after_any: tuple[str, ...] = ()


_read_fields: Final = msgspec.json.Decoder(_DependencyFields).decode
_read_rule: Final = msgspec.json.Decoder(_AnyFields).decode
_ANY_START: Final = '{"after_any":'
_EVENT_STARTS: Final = ('{"event":', '{"file":')


def is_event(rule: str) -> bool:
    """Return True for the rule of a schedule that events fire, given as JSON of `core.when`."""
    return rule.startswith(_EVENT_STARTS)


def has_times(rules: Sequence[str]) -> bool:
    """Return True if one of these rules is not fired by events, so that executions can overlap by
    mistake.
    """
    return any(not is_event(rule) for rule in rules)


def any_jobs(rules: Sequence[str]) -> tuple[str, ...]:
    """List the jobs of `after_any` rules, given as JSON of `core.when`."""
    found = [_read_rule(rule).after_any for rule in rules if rule.startswith(_ANY_START)]
    return tuple(dict.fromkeys(name for names in found for name in names))

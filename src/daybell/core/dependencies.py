"""Jobs that depend on jobs: when one may begin, given how the others stand.

Two questions, each answered from what stores know of the dependencies' latest executions. A job
without a schedule is fired once each dependency has ended well since it was fired last
(`next_round`). An execution of a schedule begins once, of each dependency, the latest execution
that was due at its time has succeeded (`may_begin`). Nobody is told when a dependency ends: whoever
looks, and however often, finds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import TERMINAL, State
from daybell.core.instant import Instant
from daybell.core.schedule import Schedule

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

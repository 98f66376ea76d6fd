"""Misfire policies: the decision about ticks that were not fired in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never, cast

from daybell.core.limits import MISFIRE_LIMIT_MAX, SCHEDULE_EFFORT_MAX
from daybell.core.units import Duration, Instant, Seconds, parse_duration
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import Effort, check_keys, choice, just_before
from daybell.errors import InvalidSchedule, shown

Policy = Literal["fire_once", "skip", "fire_all"]
POLICIES: Final = ("fire_once", "skip", "fire_all")
GRACE_SECONDS: Final = 5.0  # the delay of a busy scheduler; more than that is downtime
BATCH: Final = 100
# Limits of the search for the first of many missed ticks, and of the count of those given up.
# Common schedules need a tenth; ticks that move away from many closed days need the most.
_WALK_EFFORT: Final = 20 * SCHEDULE_EFFORT_MAX
_COUNT_EFFORT: Final = 4 * SCHEDULE_EFFORT_MAX
_KEYS: Final = ("policy", "limit", "within", "grace")


@dataclass(frozen=True, slots=True)
class Misfire:
    """The policy for ticks that are later than `grace`.

    `fire_once` creates one execution, for the latest due tick. `skip` creates none. `fire_all`
    creates the latest `limit` ticks that are not older than `within`. All other late ticks are
    recorded as missed, in one range. The schedule continues in every case.
    """

    policy: Policy = "fire_once"
    limit: int = 100
    within: Seconds | None = None
    grace: Seconds = GRACE_SECONDS

    def __post_init__(self) -> None:
        """Parse durations and validate the fields."""
        choice(self.policy, POLICIES, what="misfire")
        is_whole = isinstance(self.limit, int) and not isinstance(self.limit, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_whole or not 1 <= self.limit <= MISFIRE_LIMIT_MAX:
            raise InvalidSchedule(
                f"misfire_limit {shown(self.limit)} is not a whole number in"
                f" 1-{MISFIRE_LIMIT_MAX:,}",
                field="misfire_limit",
            )
        within, grace = cast("Duration | None", self.within), cast("Duration", self.grace)
        if within is not None:
            object.__setattr__(self, "within", parse_duration(within, what="misfire_within"))
        object.__setattr__(self, "grace", parse_duration(grace, what="misfire_grace"))

    @classmethod
    def parse(cls, value: object) -> Misfire:
        """Parse a policy's name, an object with policy, limit, within and grace, or a Misfire."""
        if isinstance(value, Misfire):
            return value
        if value is None:
            return cls()
        if isinstance(value, Mapping):
            given = cast("Mapping[str, Any]", value)
            check_keys(given, _KEYS, what="misfire")
            return cls(**given)
        return cls(policy=cast("Policy", value))

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `parse` reads; defaults are left out."""
        usual = Misfire()
        given = {key: getattr(self, key) for key in _KEYS}
        return {key: value for key, value in given.items() if value != getattr(usual, key)}


@dataclass(frozen=True, slots=True)
class Planned:
    """A tick to fire, or a range of ticks to record as missed."""

    at: Instant
    kind: Literal["fired", "missed"] = "fired"
    until: Instant | None = None  # the last tick of a range
    reason: str | None = None
    count: int = 1  # ticks in a range
    is_counted: bool = True  # False: the range has more than `count` ticks


@dataclass(frozen=True, slots=True)
class TickPlan:
    """The ticks to record, oldest first, and the next position of the schedule."""

    ticks: list[Planned]
    next_at: Instant | None
    if_refused_at: Instant | None = None  # the position if one of the last ticks is not fired


def plan(
    schedule: Schedule,
    cursor: Instant,
    now: Instant,
    misfire: Misfire,
    fired: int = 0,
    limit: int = BATCH,
) -> TickPlan:
    """Decide one firing of a schedule that stands at the tick `cursor`.

    Fires at most `limit` ticks. If more are due, `next_at` is due too and the next call continues.
    `fired` is the number of ticks fired before, for max_executions. The cost does not depend on
    the length of the downtime.
    """
    left = limit
    if schedule.max_executions is not None:
        left = min(limit, schedule.max_executions - fired)
        if left <= 0:
            return TickPlan([], None)
    if cursor > now:
        return TickPlan([], cursor)
    if schedule.delay is not None:  # the end of the execution sets its next tick
        return TickPlan([Planned(cursor)], None)
    missed, tick = _split_missed(schedule, cursor, now, misfire)
    ticks = [] if missed is None else [missed]
    for _ in range(left):
        if tick is None or tick > now:
            return TickPlan(ticks, tick)
        ticks.append(Planned(tick))
        # The schedule was accepted, so this tick fires even if the next one is expensive to find.
        tick = schedule.next_after(tick, effort=Effort(_WALK_EFFORT))
    if _is_used_up(schedule, fired + left):
        return TickPlan(ticks, None, if_refused_at=tick)
    return TickPlan(ticks, tick)


def _is_used_up(schedule: Schedule, fired: int) -> bool:
    return schedule.max_executions is not None and fired >= schedule.max_executions


def _split_missed(
    schedule: Schedule, cursor: Instant, now: Instant, misfire: Misfire
) -> tuple[Planned | None, Instant | None]:
    """Return the range to give up, and the first tick to fire."""
    due = now - misfire.grace  # older ticks are missed
    if cursor >= due:
        return None, cursor
    last_missed = schedule.latest(just_before(due), cursor) or cursor
    match misfire.policy:
        case "fire_once":
            # One execution in total, also if several ticks are within the grace period.
            first = schedule.latest(now, cursor) or cursor
            reason = "only the latest missed tick is made up for"
        case "skip":
            first, reason = None, "missed ticks are skipped"
        case "fire_all":
            first, reason = _first_of_many(schedule, cursor, last_missed, now, misfire)
        case _:
            assert_never(misfire.policy)
    if first is None:
        following = schedule.next_after(last_missed)
        return _range(schedule, cursor, last_missed, reason, misfire), following
    if first <= cursor:
        return None, cursor
    until = schedule.latest(just_before(first), cursor) or cursor
    return _range(schedule, cursor, until, reason, misfire), first


def _first_of_many(
    schedule: Schedule, cursor: Instant, last: Instant, now: Instant, misfire: Misfire
) -> tuple[Instant | None, str]:
    """Return the oldest tick that `fire_all` fires, and the reason why older ones are missed."""
    oldest = cursor if misfire.within is None else max(cursor, now - misfire.within)
    too_old = "older than misfire_within"
    if last < oldest:
        return None, too_old
    first, effort = last, Effort(_WALK_EFFORT)
    for _ in range(misfire.limit - 1):
        if effort.left < SCHEDULE_EFFORT_MAX:
            return first, "more than can be looked for at once"
        earlier = cursor
        if first != cursor:
            earlier = schedule.latest(just_before(first), cursor, effort=effort) or cursor
        if earlier < oldest:
            return first, too_old
        if first == cursor:
            return cursor, ""
        first = earlier
    return first, "more than misfire_limit"


def _range(
    schedule: Schedule, at: Instant, until: Instant, reason: str, misfire: Misfire
) -> Planned:
    count, tick, effort = 1, schedule.next_after(at), Effort(_COUNT_EFFORT)
    while tick is not None and tick <= until:
        count += 1
        if count > misfire.limit or effort.left < SCHEDULE_EFFORT_MAX:
            more = f"{reason}; they are more than {count - 1:,}, and not counted"
            return Planned(at, "missed", until, more, count, is_counted=False)
        tick = schedule.next_after(tick, effort=effort)
    return Planned(at, "missed", until, reason, count)

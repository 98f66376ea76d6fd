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
GRACE_SECONDS: Final = 5.0  # a busy machine is late by that; who is later was not there
BATCH: Final = 100
# What looking for the first of many missed ticks may cost, and counting those given up. Honest
# schedules need a tenth of it; moving many ticks of many closed days is what takes long.
_WALK_EFFORT: Final = 20 * SCHEDULE_EFFORT_MAX
_COUNT_EFFORT: Final = 4 * SCHEDULE_EFFORT_MAX
_KEYS: Final = ("policy", "limit", "within", "grace")


@dataclass(frozen=True, slots=True)
class Misfire:
    """What becomes of ticks that are later than `grace`.

    `fire_once`: one execution, for the latest tick that is due; those between are missed, too.
    `skip`: none of them. `fire_all`: the latest `limit` that are not older than `within`. All
    others are recorded as missed, in one range. A schedule goes on whatever it missed.
    """

    policy: Policy = "fire_once"
    limit: int = 100
    within: Seconds | None = None
    grace: Seconds = GRACE_SECONDS

    def __post_init__(self) -> None:
        """Read durations as people write them, and refuse what cannot be."""
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
        """Read a policy's name, an object with policy, limit, within and grace, or a Misfire."""
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
        """The object that `parse` reads back; what is left out is the default."""
        usual = Misfire()
        given = {key: getattr(self, key) for key in _KEYS}
        return {key: value for key, value in given.items() if value != getattr(usual, key)}


@dataclass(frozen=True, slots=True)
class Planned:
    """A tick to be fired, or a range of ticks that is recorded as missed."""

    at: Instant
    kind: Literal["fired", "missed"] = "fired"
    until: Instant | None = None  # of a range: its last tick
    reason: str | None = None
    count: int = 1  # ticks in a range
    is_counted: bool = True  # else there are more: that many and then some


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What to record, oldest first, and where the schedule stands after it."""

    ticks: list[Planned]
    next_at: Instant | None
    if_refused_at: Instant | None = None  # where it stands if not all of its last ticks are fired


def plan(
    schedule: Schedule,
    cursor: Instant,
    now: Instant,
    misfire: Misfire,
    fired: int = 0,
    limit: int = BATCH,
) -> TickPlan:
    """Decide one firing of a schedule that stands at the tick `cursor`.

    At most `limit` ticks are fired; `next_at` may then be due already, and the rest is for the next
    call. `fired` says how many were fired before, for max_executions. How long nobody was there
    does not matter to the work it takes.
    """
    left = limit
    if schedule.max_executions is not None:
        left = min(limit, schedule.max_executions - fired)
        if left <= 0:
            return TickPlan([], None)
    if cursor > now:
        return TickPlan([], cursor)
    if schedule.delay is not None:  # its next tick is made when the execution ends
        return TickPlan([Planned(cursor)], None)
    missed, tick = _made_up_for(schedule, cursor, now, misfire)
    ticks = [] if missed is None else [missed]
    for _ in range(left):
        if tick is None or tick > now:
            return TickPlan(ticks, tick)
        ticks.append(Planned(tick))
        # It was accepted once: whatever finding its next time costs by now, this tick is fired.
        tick = schedule.next_after(tick, effort=Effort(_WALK_EFFORT))
    if _is_used_up(schedule, fired + left):
        return TickPlan(ticks, None, if_refused_at=tick)
    return TickPlan(ticks, tick)


def _is_used_up(schedule: Schedule, fired: int) -> bool:
    return schedule.max_executions is not None and fired >= schedule.max_executions


def _made_up_for(
    schedule: Schedule, cursor: Instant, now: Instant, misfire: Misfire
) -> tuple[Planned | None, Instant | None]:
    """The range that is given up, and the first tick that is not."""
    due = now - misfire.grace  # what is older was missed
    if cursor >= due:
        return None, cursor
    last_missed = schedule.latest(just_before(due), cursor) or cursor
    match misfire.policy:
        case "fire_once":
            # One execution, and no more: not even for those that are still within grace.
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
    """The oldest tick that `fire_all` makes up for, and why not an older one."""
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

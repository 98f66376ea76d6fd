"""Ticks of closed days on the open day that they are moved to, at the same time on the clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from daybell.core.instant import Instant
from daybell.core.when.effort import Effort
from daybell.core.when.zone import instant_of, just_before, local, stretch_at

if TYPE_CHECKING:
    from daybell.core.when.rule import Schedule

Span = tuple[date, date]  # days in a row, the first and the last

_DAY: Final = timedelta(days=1)
_LOOK_COST: Final = 15  # at one day


def first_moved(
    schedule: Schedule, days: Span, to: date, after: Instant, effort: Effort
) -> Instant | None:
    """Of ticks of these days, the first that is later than `after` when they are moved to `to`."""
    tz, now = schedule.tz, local(after, schedule.tz)
    if now.date() > to:
        return None
    found: list[Instant] = []
    for day, tick in _days_with_ticks(schedule, days, effort):
        following = start_of(day + _DAY, tz)
        if now.date() == to:  # what is earlier on the clock was there already
            wall = datetime.combine(day, now.time())
            tick = schedule.tick_after(just_before(instant_of(wall, tz)), effort)
        while tick is not None and tick < following:
            if (moved := _moved(tick, to, tz)) > after:
                found.append(moved)
                break
            tick = schedule.tick_after(tick, effort)
    return min(found, default=None)


def last_moved(
    schedule: Schedule, days: Span, to: date, until: Instant, effort: Effort
) -> Instant | None:
    """Of ticks of these days, the last that is not later than `until` when they are moved."""
    tz, now = schedule.tz, local(until, schedule.tz)
    if now.date() < to:
        return None
    found: list[Instant] = []
    for day, _ in _days_with_ticks(schedule, days, effort):
        start = start_of(day, tz)
        until_there = just_before(start_of(day + _DAY, tz))
        if now.date() == to:
            until_there = instant_of(datetime.combine(day, now.time()), tz)
        tick = schedule.tick_until(until_there, effort)
        while tick is not None and tick >= start:
            if (moved := _moved(tick, to, tz)) <= until:
                found.append(moved)
                break
            tick = schedule.tick_until(just_before(tick), effort)
    return max(found, default=None)


def _days_with_ticks(
    schedule: Schedule, days: Span, effort: Effort
) -> Iterator[tuple[date, Instant]]:
    """The days that have ticks, with the first of each; of days that are all alike, one.

    It goes from one day that has ticks to the next: of a rule that has few, few are looked at.
    """
    tz = schedule.tz
    end = start_of(days[1] + _DAY, tz)
    tick = schedule.tick_after(just_before(start_of(days[0], tz)), effort)
    while tick is not None and tick < end:
        effort.spend(_LOOK_COST)
        day = local(tick, tz).date()
        yield day, tick
        following = start_of(day + _DAY, tz)
        if schedule.is_same_daily:
            following = _after_those_alike(day, following, end, tz)
        tick = schedule.tick_after(just_before(following), effort)


def _after_those_alike(day: date, following: Instant, end: Instant, tz: str) -> Instant:
    """Where the first day begins in which clocks change, if they do not on this one."""
    stretch = stretch_at(math.floor(following) - 1, tz=tz, gap="shift", fold="first")
    if start_of(day, tz) < stretch.start:
        return following
    if stretch.end >= end:
        return end
    return max(following, start_of(local(stretch.end, tz).date(), tz))


def _moved(tick: Instant, to: date, tz: str) -> Instant:
    shown_there = local(tick, tz)
    if shown_there.date() == to:
        return tick
    return instant_of(datetime.combine(to, shown_there.time()), tz)


def start_of(day: date, tz: str) -> Instant:
    """When a day begins."""
    return instant_of(datetime.combine(day, time.min), tz)

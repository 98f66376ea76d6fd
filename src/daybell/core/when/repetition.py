"""The times of a recurrence rule (RFC 5545), found from where one stands.

A rule repeats in periods: years, months, weeks, days, hours, minutes or seconds, of which every
`interval`-th counts. Within one, the BY parts choose. Which period a time falls in is arithmetic,
so it does not matter how long ago the rule began, unless it has a COUNT: then its times are listed.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from daybell.core.when.search import Wall
from daybell.errors import InvalidSchedule

FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY = range(7)

_SIZES: Final = {DAILY: 86_400, HOURLY: 3600, MINUTELY: 60, SECONDLY: 1}
_DAY: Final = 86_400
_FOREVER: Final = 1 << 45
_EPOCH: Final = date(1970, 1, 1).toordinal()
_LOOKS_MAX: Final = 8_000  # days looked at before a rule is taken for one that is over
_COUNTED_LOOKS_MAX: Final = 10_000  # and before all times of a rule with a COUNT are known
COUNT_MAX: Final = 1_000


class Period(NamedTuple):
    """Where the times of one period are: each base plus each offset, or some of these."""

    bases: list[Wall]
    offsets: tuple[int, ...]
    chosen: list[int] | None = None  # places in that order, for BYSETPOS
    looks: int = 20  # what finding it has cost, counted in days that were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A rule with everything explicit that its start implies."""

    frequency: int
    interval: int
    start: Wall
    until_wall: Wall | None
    count: int | None
    week_start: int  # 0 is Monday
    months: tuple[int, ...]
    monthdays: tuple[int, ...]
    yeardays: tuple[int, ...]
    weeks: tuple[int, ...]
    weekdays: tuple[int, ...]
    nth_weekdays: tuple[tuple[int, int], ...]  # (weekday, which), of the month or the year
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    positions: tuple[int, ...]

    def after(self, wall: Wall) -> Wall | None:
        """The first time later than `wall`."""
        if self.count is not None:
            walls = _counted(self)
            place = bisect_right(walls, wall)
            return walls[place] if place < len(walls) else None
        wall = max(wall, self.start - 1)
        index = max(0, self._index(wall))
        looks = 0
        while looks < _LOOKS_MAX:
            if self._is_out(index):
                return None
            period = self._period(index)
            looks += period.looks
            found = _first(period, wall)
            if found is not None:
                is_over = self.until_wall is not None and found > self.until_wall
                return None if is_over else found
            index = self._next_index(index)
        return None

    def until(self, wall: Wall) -> Wall | None:
        """The last time that is not later than `wall`."""
        if self.until_wall is not None:
            wall = min(wall, self.until_wall)
        if self.count is not None:
            walls = _counted(self)
            place = bisect_right(walls, wall)
            return walls[place - 1] if place else None
        index = self._index(wall)
        looks = 0
        while looks < _LOOKS_MAX and index >= 0:
            period = self._period(index)
            looks += period.looks
            found = _last(period, wall)
            if found is not None:
                return found if found >= self.start else None
            index = self._previous_index(index)
        return None

    def listed(self) -> Iterator[Wall]:
        """All times from the start, whatever COUNT says, one period after the other."""
        index = looks = 0
        while not self._is_out(index):
            period = self._period(index)
            looks += period.looks
            if looks > _COUNTED_LOOKS_MAX:
                raise InvalidSchedule(
                    "rrule has a COUNT that takes too long to count; use UNTIL or max_executions",
                    field="rrule",
                )
            yield from (wall for wall in _all(period) if wall >= self.start)
            index = self._next_index(index)

    # Units count years, months, weeks, days, … from a common beginning; an index counts those of
    # them that the interval leaves, from the rule's start.

    def _unit(self, wall: Wall) -> int:
        if self.frequency >= DAILY:
            return wall // _SIZES[self.frequency]
        day = wall // _DAY
        if self.frequency == WEEKLY:
            return (day + 3 - self.week_start) // 7  # 1970 began with a Thursday
        one = _date(day)
        return one.year if self.frequency == YEARLY else one.year * 12 + one.month - 1

    def _index(self, wall: Wall) -> int:
        return (self._unit(wall) - self._unit(self.start)) // self.interval

    def _unit_at(self, index: int) -> int:
        return self._unit(self.start) + index * self.interval

    def _is_out(self, index: int) -> bool:
        """Whether a period lies beyond the calendar."""
        years = {YEARLY: 1.0, MONTHLY: 12.0, WEEKLY: 52.2, DAILY: 365.25}
        unit = self._unit_at(index)
        if self.frequency >= WEEKLY:
            per_year = years.get(self.frequency) or 365.25 * _DAY / _SIZES[self.frequency]
            return unit / per_year > date.max.year - 1971
        return unit / years[self.frequency] >= date.max.year

    def _period(self, index: int) -> Period:
        unit = self._unit_at(index)
        if self.frequency > DAILY:
            return self._short_period(unit * _SIZES[self.frequency])
        days = list(self._days(unit))
        bases = [day * _DAY for day in days if self._has_day(day)]
        offsets = _times(self.hours, self.minutes, self.seconds)
        count = len(bases) * len(offsets)
        chosen = _places(self.positions, count) if self.positions else None
        return Period(bases, offsets, chosen, looks=_cost(self, len(days)))

    def _short_period(self, base: Wall) -> Period:
        if self._misfit(base) is not None:
            return Period([], ())
        if self.frequency == HOURLY:
            offsets = _times((0,), self.minutes, self.seconds)
        else:
            offsets = self.seconds if self.frequency == MINUTELY else (0,)
        chosen = _places(self.positions, len(offsets)) if self.positions else None
        return Period([base], offsets, chosen)

    def _misfit(self, base: Wall) -> tuple[Wall, Wall] | None:
        """The span around a period of a day or less that has no times; None: it has some."""
        day = base // _DAY
        if self.months and _date(day).month not in self.months:
            return _month(day)
        if not self._has_day(day):
            return day * _DAY, (day + 1) * _DAY
        if self.frequency == DAILY:
            return None
        hour, rest = divmod(base % _DAY, 3600)
        if self.hours and hour not in self.hours:
            return base - rest, base - rest + 3600
        minute, second = divmod(rest, 60)
        if self.frequency >= MINUTELY and self.minutes and minute not in self.minutes:
            return base - second, base - second + 60
        if self.frequency == SECONDLY and self.seconds and second not in self.seconds:
            return base, base + 1
        return None

    def _next_index(self, index: int) -> int:
        """The next period that may have times."""
        if self.frequency < DAILY:
            return index + 1
        misfit = self._misfit(self._unit_at(index) * _SIZES[self.frequency])
        if misfit is None:
            return index + 1
        # Rounded up: the first that begins at or after the end of the span.
        units = misfit[1] // _SIZES[self.frequency] - self._unit(self.start)
        return max(index + 1, -(-units // self.interval))

    def _previous_index(self, index: int) -> int:
        if self.frequency < DAILY:
            return index - 1
        misfit = self._misfit(self._unit_at(index) * _SIZES[self.frequency])
        return index - 1 if misfit is None else min(index - 1, self._index(misfit[0] - 1))

    def _days(self, unit: int) -> Iterator[int]:
        """The days of a period that are worth a look."""
        if self.frequency == DAILY:
            yield unit
        elif self.frequency == WEEKLY:
            first = unit * 7 - 3 + self.week_start
            yield from range(first, first + 7)
        elif self.frequency == MONTHLY:
            yield from self._days_of_month(*divmod(unit, 12))
        elif self.yeardays and not (self.months or self.monthdays):
            first, length = date(unit, 1, 1).toordinal() - _EPOCH, 365 + isleap(unit)
            days = {day if day > 0 else length + day + 1 for day in self.yeardays}
            yield from (first + day - 1 for day in sorted(days) if 1 <= day <= length)
        else:
            for month in self.months or range(1, 13):
                yield from self._days_of_month(unit, month - 1)

    def _days_of_month(self, year: int, month: int) -> Iterator[int]:
        if self.months and month + 1 not in self.months:
            return
        first = date(year, month + 1, 1).toordinal() - _EPOCH
        length = monthrange(year, month + 1)[1]
        if not self.monthdays:
            yield from range(first, first + length)
            return
        days = {day if day > 0 else length + day + 1 for day in self.monthdays}
        yield from (first + day - 1 for day in sorted(days) if 1 <= day <= length)

    def _has_day(self, day: int) -> bool:
        one = _date(day)
        if self.months and one.month not in self.months:
            return False
        if self.monthdays:
            length = monthrange(one.year, one.month)[1]
            if not {one.day, one.day - length - 1} & set(self.monthdays):
                return False
        if self.yeardays:
            number = one.timetuple().tm_yday
            if not {number, number - 366 - isleap(one.year)} & set(self.yeardays):
                return False
        if self.weeks and not self._has_week(one):
            return False
        if not (self.weekdays or self.nth_weekdays):
            return True
        return one.weekday() in self.weekdays or self._has_nth_weekday(one)

    def _has_week(self, day: date) -> bool:
        """Whether the week that a day lies in is wanted; four days of week 1 are in its year."""
        begins = day - timedelta(days=(day.weekday() - self.week_start) % 7)
        year = (begins + timedelta(days=3)).year
        first = _first_week(year, self.week_start)
        count = (_first_week(year + 1, self.week_start) - first) // 7
        number = (begins.toordinal() - first) // 7 + 1
        return number in self.weeks or number - count - 1 in self.weeks

    def _has_nth_weekday(self, day: date) -> bool:
        if self.frequency == YEARLY and not self.months:
            place, length = day.timetuple().tm_yday, 365 + isleap(day.year)
        else:
            place, length = day.day, monthrange(day.year, day.month)[1]
        which = {(place - 1) // 7 + 1, -((length - place) // 7 + 1)}
        return any(weekday == day.weekday() and nth in which for weekday, nth in self.nth_weekdays)


def _cost(rule: Repetition, days: int) -> int:
    """What finding the times of a period costs; the week of a day takes more than the day."""
    months = 12 if rule.frequency == YEARLY and not rule.months else 1
    return 5 + months + days * (3 if rule.weeks else 1)


def _month(day: int) -> tuple[Wall, Wall]:
    """The month that a day lies in, from its first second to its end."""
    one = _date(day)
    first = day - one.day + 1
    return first * _DAY, (first + monthrange(one.year, one.month)[1]) * _DAY


def _first_week(year: int, week_start: int) -> int:
    """The day on which week 1 begins: the week with the 4th of January."""
    fourth = date(year, 1, 4)
    return fourth.toordinal() - (fourth.weekday() - week_start) % 7


@lru_cache(maxsize=256)
def _counted(rule: Repetition) -> tuple[Wall, ...]:
    """The times of a rule with a COUNT."""
    last = rule.until_wall
    walls = islice(rule.listed(), rule.count)
    return tuple(wall for wall in walls if last is None or wall <= last)


@lru_cache(maxsize=1024)
def _times(
    hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(
        hour * 3600 + minute * 60 + second
        for hour in hours
        for minute in minutes
        for second in seconds
    )


def _places(positions: tuple[int, ...], count: int) -> list[int]:
    places = {position - 1 if position > 0 else count + position for position in positions}
    return sorted(place for place in places if 0 <= place < count)


def _first(period: Period, wall: Wall) -> Wall | None:
    """The first time of a period that is later than `wall`."""
    bases, offsets, chosen, _ = period
    if chosen is not None:
        found = (bases[place // len(offsets)] + offsets[place % len(offsets)] for place in chosen)
        return next((one for one in found if one > wall), None)
    for base in bases:
        if base + offsets[-1] > wall:
            return base + offsets[bisect_right(offsets, wall - base)]
    return None


def _all(period: Period) -> Iterator[Wall]:
    """All times of a period, in order."""
    wall = _first(period, -_FOREVER)
    while wall is not None:
        yield wall
        wall = _first(period, wall)


def _last(period: Period, wall: Wall) -> Wall | None:
    """The last time of a period that is not later than `wall`."""
    bases, offsets, chosen, _ = period
    if chosen is not None:
        found = [bases[place // len(offsets)] + offsets[place % len(offsets)] for place in chosen]
        return max((one for one in found if one <= wall), default=None)
    for base in reversed(bases):
        if base + offsets[0] <= wall:
            return base + offsets[bisect_right(offsets, wall - base) - 1]
    return None


def _date(day: int) -> date:
    return date.fromordinal(min(max(day + _EPOCH, 1), date.max.toordinal()))

"""The times of a recurrence rule (RFC 5545), and the days of a year that its BY parts select."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from daybell.core.when.cron import first_bit, numbers_in
from daybell.core.when.zone import Effort, Wall
from daybell.errors import InvalidSchedule

# The days that the BY parts select, a year at a time.
#
# They depend on the leap years around a year and on its first weekday: at most 28 kinds of years.
# The days of a kind are cached as bits of an integer; bit 0 is the 1st of January.

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_YEARS_SEARCHED: Final = 400  # the calendar repeats after them
_YEAR_COST: Final = 1
_KIND_COST: Final = 20  # of the days of a new kind of year
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STARTS: Final = tuple(sum(_LENGTHS[:month]) for month in range(12))
_WEEKLY: Final = sum(1 << 7 * week for week in range(53))


def _kind(year: int) -> int:
    """Return a number for the kind of a year."""
    begins_with = date(year, 1, 1).weekday()
    leaps = isleap(year - 1) << 2 | isleap(year) << 1 | isleap(year + 1)
    return begins_with << 3 | leaps


_KINDS: Final = tuple(_kind(year) for year in range(400, 800))


@dataclass(frozen=True, slots=True, kw_only=True)
class YearDays:
    """The parts of a rule that select days; empty parts select all."""

    week_start: int  # 0 is Monday
    months: tuple[int, ...]
    monthdays: tuple[int, ...]
    yeardays: tuple[int, ...]
    weeks: tuple[int, ...]
    weekdays: tuple[int, ...]
    nth_weekdays: tuple[tuple[int, int], ...]  # (weekday, number), of the month or the year
    nth_of_year: bool
    known: dict[int, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def in_year(self, year: int) -> int:
        """Return the days of a year, as bits."""
        kind = _KINDS[year % 400]
        bits = self.known.get(kind)
        if bits is None:
            bits = self.known[kind] = self._select_days(year)
        return bits

    def has(self, day: int) -> bool:
        """Return True if a day, counted from 1970, is selected."""
        one = _date(day)
        return bool(self.in_year(one.year) >> day_of_year(one) & 1)

    def first_from(self, day: int, effort: Effort) -> int | None:
        """Return the first selected day that is not before `day`; None: none in 400 years."""
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return self.first_from(_FIRST_DAY, effort) if day < 0 else None
        one = _date(day)
        later = self.in_year(one.year) >> day_of_year(one)
        if later:
            return day + first_bit(later)
        last = min(one.year + _YEARS_SEARCHED, date.max.year)
        for year in range(one.year + 1, last + 1):
            bits = self._paid_for(year, effort)
            if bits:
                return new_year(year) + first_bit(bits)
        return None

    def last_until(self, day: int, effort: Effort) -> int | None:
        """Return the last selected day that is not after `day`."""
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return None if day < 0 else self.last_until(_LAST_DAY, effort)
        one = _date(day)
        place = day_of_year(one)
        earlier = self.in_year(one.year) & (2 << place) - 1
        if earlier:
            return day - place + earlier.bit_length() - 1
        first = max(one.year - _YEARS_SEARCHED, date.min.year)
        for year in range(one.year - 1, first - 1, -1):
            bits = self._paid_for(year, effort)
            if bits:
                return new_year(year) + bits.bit_length() - 1
        return None

    def _paid_for(self, year: int, effort: Effort) -> int:
        effort.spend(_YEAR_COST)
        effort.spend_once((id(self), _KINDS[year % 400]), _KIND_COST)
        return self.in_year(year)

    def _select_days(self, year: int) -> int:
        begins_with, length = date(year, 1, 1).weekday(), 365 + isleap(year)
        months = _months(year)
        chosen = (1 << length) - 1
        if self.months:
            chosen &= _all(
                ((1 << size) - 1) << first for first, size in self._select_months(months)
            )
        if self.monthdays:
            chosen &= self._by_monthday(months)
        if self.yeardays:
            days = (day - 1 if day > 0 else length + day for day in self.yeardays)
            chosen &= _all(1 << day for day in days if day >= 0)
        if self.weeks:
            chosen &= self._by_week(year)
        if self.weekdays or self.nth_weekdays:
            by_weekday = _all(_WEEKLY << (day - begins_with) % 7 for day in self.weekdays)
            spans = [(0, length)] if self.nth_of_year else self._select_months(months)
            chosen &= by_weekday | self._by_nth_weekday(spans, begins_with)
        return chosen

    def _select_months(self, months: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [months[month - 1] for month in self.months] if self.months else months

    def _by_monthday(self, months: list[tuple[int, int]]) -> int:
        of_length: dict[int, int] = {}
        for length in {length for _, length in months}:
            days = (day - 1 if day > 0 else length + day for day in self.monthdays)
            of_length[length] = _all(1 << day for day in days if 0 <= day < length)
        return _all(of_length[length] << first for first, length in self._select_months(months))

    def _by_nth_weekday(self, spans: list[tuple[int, int]], begins_with: int) -> int:
        bits = 0
        for weekday, nth in self.nth_weekdays:
            for first, length in spans:
                if nth > 0:
                    place = (weekday - begins_with - first) % 7 + 7 * (nth - 1)
                else:
                    back = (begins_with + first + length - 1 - weekday) % 7
                    place = length - 1 - back + 7 * (nth + 1)
                if 0 <= place < length:
                    bits |= 1 << first + place
        return bits

    def _by_week(self, year: int) -> int:
        """Return the days of the weeks; a week belongs to the year that has four of its days."""
        bits = 0
        begin = new_year(year)
        for owner in (year - 1, year, year + 1):
            first = _first_week(owner, self.week_start)
            count = (_first_week(owner + 1, self.week_start) - first) // 7
            for week in self.weeks:
                number = week if week > 0 else count + week + 1
                if 1 <= number <= count:
                    place = first - begin + 7 * (number - 1)
                    bits |= 0x7F << place if place >= 0 else 0x7F >> -place
        return bits


def _all(parts: Iterator[int]) -> int:
    bits = 0
    for part in parts:
        bits |= part
    return bits


def _months(year: int) -> list[tuple[int, int]]:
    """List the first day of the year and the length of each month."""
    leap = isleap(year)
    return [
        (_STARTS[month] + (leap and month > 1), length + (leap and month == 1))
        for month, length in enumerate(_LENGTHS)
    ]


def _first_week(year: int, week_start: int) -> int:
    """Return the first day of week 1: the week with the 4th of January."""
    fourth = new_year(year) + 3
    return fourth - (fourth + 3 - week_start) % 7  # 1970 began on a Thursday


def new_year(year: int) -> int:
    """Return the 1st of January in days from 1970, also for years outside the calendar."""
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + 1 - _EPOCH


def month_start(year: int, month: int) -> int:
    """Return the first day of a month in days from 1970; January is 0."""
    is_later = month > 1 and isleap(year)
    return new_year(year) + _STARTS[month] + is_later


def day_of_year(day: date) -> int:
    """Return the index of a day in its year; 0 is the 1st of January."""
    return day.toordinal() - _EPOCH - new_year(day.year)


def _date(day: int) -> date:
    return date.fromordinal(day + _EPOCH)


FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY = range(7)
COUNT_MAX: Final = 1_000

_SIZES: Final = {DAILY: 86_400, HOURLY: 3600, MINUTELY: 60, SECONDLY: 1}
_DAY: Final = 86_400
_STEPS_MAX: Final = 400
_STEP_COST: Final = 2
_PERIOD_COST: Final = 10  # of ordering the times of a period
_LISTING_COST_MAX: Final = 5_000  # of all times of a rule with a COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A rule in which everything that its start implies is explicit."""

    frequency: int
    interval: int
    start: Wall
    until_wall: Wall | None
    count: int | None
    days: YearDays
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    positions: tuple[int, ...]
    # Derived: the times within a day or a shorter period, and the unit of the start (years,
    # months, weeks, days, …, counted from a common origin).
    offsets: tuple[int, ...] = field(init=False, repr=False, compare=False)
    first_unit: int = field(init=False, repr=False, compare=False)
    listing: list[tuple[int, tuple[Wall, ...]]] = field(
        init=False, repr=False, compare=False, default_factory=list
    )

    def __post_init__(self) -> None:
        offsets = [
            hour * 3600 + minute * 60 + second
            for hour in (self.hours if self.frequency <= DAILY else (0,))
            for minute in (self.minutes if self.frequency <= HOURLY else (0,))
            for second in (self.seconds if self.frequency <= MINUTELY else (0,))
        ]
        if self.positions and self.frequency >= DAILY:  # the same in each period
            offsets = [offsets[place] for place in _places(self.positions, len(offsets))]
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "first_unit", self._unit(self.start))

    @property
    def is_daily(self) -> bool:
        """Return True if its periods start at the same times of each day."""
        size = _SIZES.get(self.frequency, _DAY)
        return self.frequency <= DAILY or _DAY % (size * self.interval) == 0

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the first time later than `wall`."""
        if self.count is None:
            return self.uncounted_after(wall, effort)
        walls = self._list_times(effort)
        place = bisect_right(walls, wall)
        return walls[place] if place < len(walls) else None

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the last time that is not later than `wall`."""
        if self.until_wall is not None:
            wall = min(wall, self.until_wall)
        if self.count is not None:
            walls = self._list_times(effort)
            place = bisect_right(walls, wall)
            return walls[place - 1] if place else None
        if wall < self.start or not self.offsets:
            return None
        is_short = self.frequency > DAILY
        found = self._short_until(wall, effort) if is_short else self._day_until(wall, effort)
        return None if found is None or found < self.start else found

    def uncounted_after(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the first time later than `wall`, without regard to COUNT."""
        if not self.offsets:
            return None
        wall = max(wall, self.start - 1)
        is_short = self.frequency > DAILY
        found = self._short_after(wall, effort) if is_short else self._day_after(wall, effort)
        is_over = found is None or (self.until_wall is not None and found > self.until_wall)
        return None if is_over else found

    def _list_times(self, effort: Effort) -> tuple[Wall, ...]:
        """List all times of a rule with a COUNT; cached, and paid for by every query."""
        if not self.listing:
            most = min(_LISTING_COST_MAX, effort.left)
            counting = Effort(most)
            walls: list[Wall] = []
            wall: Wall | None = self.start - 1
            try:
                while len(walls) < (self.count or 0):
                    wall = self.uncounted_after(wall, counting)
                    if wall is None:
                        break
                    walls.append(wall)
            except InvalidSchedule:
                raise InvalidSchedule(
                    "rrule has a COUNT that takes too long to count; use UNTIL or max_executions",
                    field="rrule",
                ) from None
            self.listing.append((most - counting.left, tuple(walls)))
        cost, listed = self.listing[0]
        effort.spend_once(id(self), cost)
        return listed

    # Days, and longer periods.

    def _day_after(self, wall: Wall, effort: Effort) -> Wall | None:
        is_placed = self.positions and self.frequency < DAILY
        day = wall // _DAY
        if not is_placed and wall - day * _DAY >= self.offsets[-1]:
            day += 1
        for _ in range(_STEPS_MAX):
            effort.spend(_STEP_COST)
            chosen = self.days.first_from(day, effort)
            if chosen is None:
                return None
            unit = self._unit(chosen * _DAY)
            excess = (unit - self.first_unit) % self.interval
            if not excess:
                base = 0 if is_placed else chosen * _DAY
                times = self._times_at_positions(unit, effort) if is_placed else self.offsets
                if times and base + times[-1] > wall:
                    return base + times[bisect_right(times, wall - base)]
            if excess or is_placed:
                day = self._first_day(unit + self.interval - excess)
            else:
                day = chosen + 1
        return None

    def _day_until(self, wall: Wall, effort: Effort) -> Wall | None:
        is_placed = self.positions and self.frequency < DAILY
        day = wall // _DAY
        for _ in range(_STEPS_MAX):
            effort.spend(_STEP_COST)
            chosen = self.days.last_until(day, effort)
            if chosen is None or (chosen + 1) * _DAY <= self.start:
                return None
            unit = self._unit(chosen * _DAY)
            excess = (unit - self.first_unit) % self.interval
            if not excess:
                base = 0 if is_placed else chosen * _DAY
                times = self._times_at_positions(unit, effort) if is_placed else self.offsets
                if times and base + times[0] <= wall:
                    return base + times[bisect_right(times, wall - base) - 1]
            if excess or is_placed:
                day = self._first_day(unit - (excess or self.interval) + 1) - 1
            else:
                day = chosen - 1
        return None

    def _times_at_positions(self, unit: int, effort: Effort) -> list[Wall]:
        """List the times of a period that BYSETPOS selects."""
        effort.spend(_PERIOD_COST + len(self.positions) // 8)
        first, bits = self._selected_days(unit)
        places = _places(self.positions, bits.bit_count() * len(self.offsets))
        if not places:
            return []
        effort.spend(bits.bit_length() // 8 + len(places))
        days = numbers_in(bits)
        size = len(self.offsets)
        return [(first + days[at // size]) * _DAY + self.offsets[at % size] for at in places]

    def _selected_days(self, unit: int) -> tuple[int, int]:
        """Return the first day of a year, month or week, and its selected days as bits."""
        first = self._first_day(unit)
        if self.frequency == YEARLY:
            return first, self.days.in_year(unit)
        if self.frequency == MONTHLY:
            size = self._first_day(unit + 1) - first
            return first, self.days.in_year(unit // 12) >> first - new_year(unit // 12) & (
                1 << size
            ) - 1
        return first, sum(1 << place for place in range(7) if self.days.has(first + place))

    def _unit(self, wall: Wall) -> int:
        if self.frequency >= DAILY:
            return wall // _SIZES[self.frequency]
        day = wall // _DAY
        if self.frequency == WEEKLY:
            return (day + 3 - self.days.week_start) // 7  # 1970 began on a Thursday
        one = date.fromordinal(day + _EPOCH)
        return one.year if self.frequency == YEARLY else one.year * 12 + one.month - 1

    def _first_day(self, unit: int) -> int:
        if self.frequency == YEARLY:
            return new_year(unit)
        if self.frequency == MONTHLY:
            return month_start(unit // 12, unit % 12)
        return unit * 7 - 3 + self.days.week_start if self.frequency == WEEKLY else unit

    # Hours, minutes and seconds.

    def _short_after(self, wall: Wall, effort: Effort) -> Wall | None:
        size = _SIZES[self.frequency]
        unit = wall // size
        unit -= (unit - self.first_unit) % self.interval
        for _ in range(_STEPS_MAX):
            effort.spend(_STEP_COST)
            base = unit * size
            better = self._fit_from(base, effort)
            if better is None:
                return None
            if better != base:
                wanted = -(-better // size)
                unit = wanted + (self.first_unit - wanted) % self.interval
                continue
            if base + self.offsets[-1] > wall:
                return base + self.offsets[bisect_right(self.offsets, wall - base)]
            unit += self.interval
        return None

    def _short_until(self, wall: Wall, effort: Effort) -> Wall | None:
        size = _SIZES[self.frequency]
        unit = wall // size
        unit -= (unit - self.first_unit) % self.interval
        for _ in range(_STEPS_MAX):
            effort.spend(_STEP_COST)
            if unit < self.first_unit:
                return None
            base = unit * size
            better = self._fit_until(base, effort)
            if better is None:
                return None
            if better != base:
                unit = better // size
                unit -= (unit - self.first_unit) % self.interval
                continue
            if base + self.offsets[0] <= wall:
                return base + self.offsets[bisect_right(self.offsets, wall - base) - 1]
            unit -= self.interval
        return None

    def _fit_from(self, base: Wall, effort: Effort) -> Wall | None:
        """Return the first second from `base` on that the day and the BY parts allow."""
        day = base // _DAY
        chosen = self.days.first_from(day, effort)
        if chosen is None or chosen > day:
            return None if chosen is None else chosen * _DAY
        for numbers, size, units in self._filters():
            if numbers and (number := base // size % units) not in numbers:
                place = bisect_left(numbers, number)
                start = base // size - number  # of the enclosing day, hour or minute
                wanted = numbers[place] if place < len(numbers) else units
                return (start + wanted) * size
        return base

    def _fit_until(self, base: Wall, effort: Effort) -> Wall | None:
        """Return the last second up to `base` that may be allowed."""
        day = base // _DAY
        chosen = self.days.last_until(day, effort)
        if chosen is None or chosen < day:
            return None if chosen is None else chosen * _DAY + _DAY - 1
        for numbers, size, units in self._filters():
            if numbers and (number := base // size % units) not in numbers:
                place = bisect_left(numbers, number)
                start = base // size - number
                wanted = numbers[place - 1] if place else -1
                return (start + wanted + 1) * size - 1
        return base

    def _filters(self) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """List the filters for hours, minutes and seconds: numbers, size, count."""
        filters = ((self.hours, 3600, 24), (self.minutes, 60, 60), (self.seconds, 1, 60))
        return filters[: self.frequency - DAILY]


def _places(positions: tuple[int, ...], count: int) -> list[int]:
    places = {position - 1 if position > 0 else count + position for position in positions}
    return sorted(place for place in places if 0 <= place < count)

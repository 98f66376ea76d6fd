"""The days that the BY parts of a recurrence rule choose, a year at a time.

Which days of a year they are depends on little: whether it, the year before and the one after are
leap years, and the weekday that it begins with. So there are at most 28 kinds of years, and what is
found for one is kept, as bits of an integer; bit 0 is the 1st of January.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from daybell.core.when.effort import Effort
from daybell.core.when.fields import first_bit

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_YEARS_SEARCHED: Final = 400  # the calendar repeats itself after them
_YEAR_COST: Final = 1
_KIND_COST: Final = 20  # of finding the days of a year of a kind that was not seen before
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STARTS: Final = tuple(sum(_LENGTHS[:month]) for month in range(12))
_WEEKLY: Final = sum(1 << 7 * week for week in range(53))


def _kind(year: int) -> int:
    """A number for the kind of a year."""
    begins_with = date(year, 1, 1).weekday()
    leaps = isleap(year - 1) << 2 | isleap(year) << 1 | isleap(year + 1)
    return begins_with << 3 | leaps


_KINDS: Final = tuple(_kind(year) for year in range(400, 800))


@dataclass(frozen=True, slots=True, kw_only=True)
class YearDays:
    """The parts of a rule that choose days; what is empty leaves the choice to the others."""

    week_start: int  # 0 is Monday
    months: tuple[int, ...]
    monthdays: tuple[int, ...]
    yeardays: tuple[int, ...]
    weeks: tuple[int, ...]
    weekdays: tuple[int, ...]
    nth_weekdays: tuple[tuple[int, int], ...]  # (weekday, which), of the month or the year
    nth_of_year: bool
    known: dict[int, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def in_year(self, year: int) -> int:
        """The days of a year, as bits."""
        kind = _KINDS[year % 400]
        bits = self.known.get(kind)
        if bits is None:
            bits = self.known[kind] = self._chosen(year)
        return bits

    def has(self, day: int) -> bool:
        """Whether a day, counted from 1970, is chosen."""
        one = _date(day)
        return bool(self.in_year(one.year) >> day_of_year(one) & 1)

    def first_from(self, day: int, effort: Effort) -> int | None:
        """The first chosen day that is not before `day`; None: none in 400 years."""
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
        """The last chosen day that is not after `day`."""
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

    def _chosen(self, year: int) -> int:
        begins_with, length = date(year, 1, 1).weekday(), 365 + isleap(year)
        months = _months(year)
        chosen = (1 << length) - 1
        if self.months:
            chosen &= _all(((1 << size) - 1) << first for first, size in self._wanted(months))
        if self.monthdays:
            chosen &= self._by_monthday(months)
        if self.yeardays:
            days = (day - 1 if day > 0 else length + day for day in self.yeardays)
            chosen &= _all(1 << day for day in days if day >= 0)
        if self.weeks:
            chosen &= self._by_week(year)
        if self.weekdays or self.nth_weekdays:
            by_weekday = _all(_WEEKLY << (day - begins_with) % 7 for day in self.weekdays)
            spans = [(0, length)] if self.nth_of_year else self._wanted(months)
            chosen &= by_weekday | self._by_nth_weekday(spans, begins_with)
        return chosen

    def _wanted(self, months: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [months[month - 1] for month in self.months] if self.months else months

    def _by_monthday(self, months: list[tuple[int, int]]) -> int:
        of_length: dict[int, int] = {}
        for length in {length for _, length in months}:
            days = (day - 1 if day > 0 else length + day for day in self.monthdays)
            of_length[length] = _all(1 << day for day in days if 0 <= day < length)
        return _all(of_length[length] << first for first, length in self._wanted(months))

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
        """The days of weeks; a week belongs to the year that has four of its days."""
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
    """Each month's first day in the year, and its length."""
    leap = isleap(year)
    return [
        (_STARTS[month] + (leap and month > 1), length + (leap and month == 1))
        for month, length in enumerate(_LENGTHS)
    ]


def _first_week(year: int, week_start: int) -> int:
    """The day on which week 1 begins: the week with the 4th of January."""
    fourth = new_year(year) + 3
    return fourth - (fourth + 3 - week_start) % 7  # 1970 began with a Thursday


def new_year(year: int) -> int:
    """The 1st of January, counted in days from 1970; years before and after the calendar, too."""
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + 1 - _EPOCH


def month_start(year: int, month: int) -> int:
    """The first day of a month, counted in days from 1970; January is 0."""
    is_later = month > 1 and isleap(year)
    return new_year(year) + _STARTS[month] + is_later


def day_of_year(day: date) -> int:
    """The place of a day in its year; 0 is the 1st of January."""
    return day.toordinal() - _EPOCH - new_year(day.year)


def _date(day: int) -> date:
    return date.fromordinal(day + _EPOCH)

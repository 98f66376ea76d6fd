"""All fields of a cron expression together: the wall-clock times that it matches.

The search jumps from field to field with integers, so that the 29th of February is as near as the
next minute.
"""

from __future__ import annotations

from calendar import isleap
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from daybell.core.when.effort import Effort
from daybell.core.when.fields import YEAR_MIN, Field, first_bit
from daybell.core.when.search import Wall

DAY_SECONDS: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_YEARS_SEARCHED: Final = 400  # the calendar repeats itself after them
_MONTHS_AROUND: Final = 24
_ONE_DAY: Final = timedelta(days=1)
_WEEKLY: Final = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The numbers that each field matches, as bits."""

    seconds: int
    minutes: int
    hours: int
    months: int
    years: int  # 0: all of them; bit 0 is 1970
    days: tuple[int, ...]  # of a month, by its length and the weekday that it begins with
    is_open: bool  # keeps its spacing when clocks change

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        """The first time later than `wall`."""
        day, second = divmod(wall, DAY_SECONDS)
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return self.after(_FIRST_DAY * DAY_SECONDS, effort) if day < 0 else None
        today = date.fromordinal(day + _EPOCH)
        year, month, monthday = today.year, today.month, today.day
        if self.months >> month & 1 and (not self.years or self._has_year(year)):
            bits = self.days[_shape(year, month, (today.weekday() - monthday + 1) % 7)]
            if bits >> monthday & 1:
                time = self._time_after(second)
                if time is not None:
                    return day * DAY_SECONDS + time
            later = bits >> monthday + 1
            if later:
                return (day + 1 + first_bit(later)) * DAY_SECONDS + self.earliest
        return self._in_later_month(year, month, effort)

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        """The last time that is not later than `wall`."""
        day, second = divmod(wall, DAY_SECONDS)
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return None if day < 0 else self.until(_LAST_DAY * DAY_SECONDS, effort)
        today = date.fromordinal(day + _EPOCH)
        year, month, monthday = today.year, today.month, today.day
        if self.months >> month & 1 and (not self.years or self._has_year(year)):
            bits = self.days[_shape(year, month, (today.weekday() - monthday + 1) % 7)]
            if bits >> monthday & 1:
                time = self._time_until(second)
                if time is not None:
                    return day * DAY_SECONDS + time
            earlier = bits & (1 << monthday) - 1
            if earlier:
                back = monthday - earlier.bit_length() + 1
                return (day - back) * DAY_SECONDS + self.latest
        return self._in_earlier_month(year, month, effort)

    def days_around(self, day: date) -> tuple[date, date]:
        """The first and the last of the days in a row that match, around one that does.

        Not further than two years to either side: who asks may ask again from there.
        """
        first = last = day
        for _ in range(_MONTHS_AROUND):
            run = first_bit(~(self._days_in(last.year, last.month) >> last.day))
            last = date.fromordinal(min(last.toordinal() + run, date.max.toordinal() - 1))
            if last.day > 1 or not self._days_in(last.year, last.month) >> 1 & 1:
                last -= _ONE_DAY
                break
        for _ in range(_MONTHS_AROUND):
            missing = ~self._days_in(first.year, first.month) & (1 << first.day) - 1
            run = first.day - missing.bit_length() + 1  # bit 0 is always missing
            first = date.fromordinal(max(first.toordinal() - run, 1))
            if first.month == (first + _ONE_DAY).month or not (
                self._days_in(first.year, first.month) >> first.day & 1
            ):
                first += _ONE_DAY
                break
        return first, last

    def _days_in(self, year: int, month: int) -> int:
        """The days of a month that match, as bits."""
        if not self.months >> month & 1 or (self.years and not self._has_year(year)):
            return 0
        return self.days[_shape(year, month, date(year, month, 1).weekday())]

    @property
    def earliest(self) -> int:
        """The first time of a day."""
        return first_bit(self.hours) * 3600 + first_bit(self.minutes) * 60 + first_bit(self.seconds)

    @property
    def latest(self) -> int:
        """The last time of a day."""
        hour, minute, second = (
            bits.bit_length() - 1 for bits in (self.hours, self.minutes, self.seconds)
        )
        return hour * 3600 + minute * 60 + second

    def _time_after(self, time: int) -> int | None:
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1:
                later = self.seconds >> second + 1
                if later:
                    return time + 1 + first_bit(later)
            later = self.minutes >> minute + 1
            if later:
                minute += 1 + first_bit(later)
                return hour * 3600 + minute * 60 + first_bit(self.seconds)
        later = self.hours >> hour + 1
        if not later:
            return None
        hour += 1 + first_bit(later)
        return hour * 3600 + first_bit(self.minutes) * 60 + first_bit(self.seconds)

    def _time_until(self, time: int) -> int | None:
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1:
                earlier = self.seconds & (2 << second) - 1
                if earlier:
                    return time - second + earlier.bit_length() - 1
            earlier = self.minutes & (1 << minute) - 1
            if earlier:
                minute = earlier.bit_length() - 1
                return hour * 3600 + minute * 60 + self.seconds.bit_length() - 1
        earlier = self.hours & (1 << hour) - 1
        if not earlier:
            return None
        return self.latest % 3600 + (earlier.bit_length() - 1) * 3600

    def _in_later_month(self, year: int, month: int, effort: Effort) -> Wall | None:
        last_year = min(year + _YEARS_SEARCHED, date.max.year)
        if self.years and not self._has_year(year):
            month = 12
        while True:
            effort.spend(1)
            later = self.months >> month + 1
            if later:
                month += 1 + first_bit(later)
            else:
                month = first_bit(self.months)
                found = self._year_from(year + 1)
                if found is None or found > last_year:
                    return None
                year = found
            first = date(year, month, 1)
            bits = self.days[_shape(year, month, first.weekday())]
            if bits:
                day = first.toordinal() - _EPOCH + first_bit(bits) - 1
                return day * DAY_SECONDS + self.earliest

    def _in_earlier_month(self, year: int, month: int, effort: Effort) -> Wall | None:
        first_year = max(year - _YEARS_SEARCHED, date.min.year)
        if self.years and not self._has_year(year):
            month = 1
        while True:
            effort.spend(1)
            earlier = self.months & (1 << month) - 1
            if earlier:
                month = earlier.bit_length() - 1
            else:
                month = self.months.bit_length() - 1
                found = self._year_to(year - 1)
                if found is None or found < first_year:
                    return None
                year = found
            first = date(year, month, 1)
            bits = self.days[_shape(year, month, first.weekday())]
            if bits:
                day = first.toordinal() - _EPOCH + bits.bit_length() - 2
                return day * DAY_SECONDS + self.latest

    def _has_year(self, year: int) -> bool:
        return year >= YEAR_MIN and bool(self.years >> year - YEAR_MIN & 1)

    def _year_from(self, year: int) -> int | None:
        if not self.years:
            return year
        start = max(year, YEAR_MIN)
        later = self.years >> start - YEAR_MIN
        return start + first_bit(later) if later else None

    def _year_to(self, year: int) -> int | None:
        if not self.years:
            return year
        earlier = self.years & (2 << year - YEAR_MIN) - 1 if year >= YEAR_MIN else 0
        return YEAR_MIN + earlier.bit_length() - 1 if earlier else None


def _shape(year: int, month: int, begins_with: int) -> int:
    """Which of the 28 months that there are this one looks like; Monday is 0."""
    length = _LENGTHS[month]
    if month == 2 and isleap(year):
        length = 29
    return (length - 28) * 7 + begins_with


def days_of_months(monthdays: Field, weekdays: Field) -> tuple[int, ...]:
    """For each shape of a month, the days that match, as bits.

    Where both fields choose, either is enough; one that begins with * or ? does not choose.
    """
    is_either = not (monthdays.is_star or weekdays.is_star)
    shapes: list[int] = []
    for length in (28, 29, 30, 31):
        for begins_with in range(7):
            by_day = _by_monthday(monthdays, length, begins_with)
            by_weekday = _by_weekday(weekdays, length, begins_with)
            shapes.append(by_day | by_weekday if is_either else by_day & by_weekday)
    return tuple(shapes)


def _by_monthday(field: Field, length: int, begins_with: int) -> int:
    bits = field.bits & (2 << length) - 2
    for back in field.from_end:
        if back < length:
            bits |= 1 << length - back
    for near in field.nearest:
        day = near if near > 0 else length + near
        if 1 <= day <= length:
            bits |= 1 << _nearest_workday(day, length, begins_with)
    return bits


def _nearest_workday(day: int, length: int, begins_with: int) -> int:
    """Monday to Friday, as near as possible, and never in another month."""
    weekday = (begins_with + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(field: Field, length: int, begins_with: int) -> int:
    bits = 0
    month = (2 << length) - 2
    for weekday in range(7):  # 0 is Sunday here, and 6 in `begins_with`
        first = (weekday - 1 - begins_with) % 7 + 1
        days = _WEEKLY << first & month
        if field.bits >> weekday & 1:
            bits |= days
        if field.last_weekdays >> weekday & 1:
            bits |= 1 << days.bit_length() - 1
        for nth_weekday, nth in field.nth_weekdays:
            if nth_weekday == weekday:
                bits |= 1 << first + 7 * (nth - 1) & month
    return bits

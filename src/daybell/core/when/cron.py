"""Cron: wall-clock times, written in five to seven fields, in a zone.

A fixed time happens once where clocks change: by default at the end of a gap and at the first of
two. An expression with an open minute or hour (`*`, `*/15`, `5/15`, `H/15`, `0-23`) happens at
every matching time of the clock, and so keeps its spacing.
"""

from __future__ import annotations

import math
from calendar import isleap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from daybell.core.units import Instant
from daybell.core.when.calendar import start_of
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import Effort, Fold, Gap, Wall, local, tick_after, tick_until
from daybell.errors import InvalidSchedule, shown

# One field of a cron expression: its text, and the numbers that it matches.
#
# Numbers are bits of an integer, so that membership and successor are a shift each. Weekdays
# count from 0, Sunday; the parser converts other dialects.

_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2199


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit that a field counts, with the numbers and names that it accepts."""

    name: str
    lowest: int
    highest: int
    names: Mapping[str, int]
    example: str

    @property
    def takes(self) -> str:
        """Describe the accepted values for error messages."""
        named = f" or {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else ""
        return f"it takes {self.lowest}-{self.highest}{named}, {self.example}"


_PLAIN: Final = "as in 5, 1-10, 1,30 or */15"
SECOND: Final = Unit("second", 0, 59, {}, _PLAIN)
MINUTE: Final = Unit("minute", 0, 59, {}, _PLAIN)
HOUR: Final = Unit("hour", 0, 23, {}, "as in 9, 9-17, 22-2, 8,20 or */6")
DAY: Final = Unit("day of month", 1, 31, {}, "as in 15, 1-7, */2, L, L-3, LW, 15W or ?")
MONTH: Final = Unit(
    "month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}, "as in 6 or JAN-MAR"
)
WEEKDAY: Final = Unit(
    "day of week",
    0,
    7,
    {name: number for number, name in enumerate(_WEEKDAYS)},
    "as in MON-FRI, 5L, 2#1 or ?, where 0 and 7 are Sunday",
)
WEEKDAY_FROM_ONE: Final = Unit(
    "day of week",
    1,
    7,
    {name: number for number, name in enumerate(_WEEKDAYS, 1)},
    "as in MON-FRI, 6L, 2#1 or ?, where 1 is Sunday",
)
YEAR: Final = Unit("year", YEAR_MIN, YEAR_MAX, {}, "as in 2027 or 2027-2029")


@dataclass(slots=True)
class Field:
    """The matches of a field: `bits` of plain numbers, and days that depend on the month.

    Only the parser writes to it.
    """

    text: str
    unit: Unit
    bits: int = 0
    # A wildcard, or steps over the whole range: it keeps its spacing when clocks change.
    is_open: bool = False
    from_end: tuple[int, ...] = ()  # L-3: days before the last one
    nearest: tuple[int, ...] = ()  # 15W: the nearest weekday; 0 and below count from the end
    last_weekdays: int = 0  # 5L: bits of weekdays, of which the last in the month matches
    nth_weekdays: tuple[tuple[int, int], ...] = ()  # 2#1: (weekday, number)
    large_steps: tuple[str, ...] = ()  # */100: items with a step that reaches no second number

    @property
    def is_star(self) -> bool:
        """Return True if the other day field alone chooses the day."""
        return self.text[0] in "*?"

    def refuse(self, fact: str) -> InvalidSchedule:
        """Build the error for a wrong field."""
        return InvalidSchedule(
            f"{self.unit.name} {shown(self.text)} {fact}; {self.unit.takes}", field=self.unit.name
        )


def parse_field(text: str, unit: Unit) -> Field:
    """Parse one field, in capitals, without H."""
    field = Field(text, unit)
    if text == "?" and unit.name not in (DAY.name, WEEKDAY.name):
        raise field.refuse("leaves open what only a day may")
    for item in text.split(","):
        _read_item(item, field)
    return field


def _read_item(item: str, field: Field) -> None:
    unit = field.unit
    if unit is DAY and (item[:1] == "L" or item[-1:] == "W"):
        _read_month_day(item, field)
    elif unit.name == WEEKDAY.name and (item[-1:] == "L" or "#" in item):
        _read_month_weekday(item, field)
    else:
        _read_numbers(item, field)


def _read_numbers(item: str, field: Field) -> None:
    """`*`, `5`, `5-10` and `22-2`, each also with a step: `/3`."""
    unit = field.unit
    span, slash, step_text = item.partition("/")
    first, dash, last = span.partition("-")
    step = parse_step(step_text, field) if slash else 1
    if span == "?" and field.text != "?":
        raise field.refuse("has more than the ?, which stands alone")
    if span in ("*", "?"):
        start, end = unit.lowest, 6 if unit is WEEKDAY else unit.highest
        is_open = True
    else:
        start = parse_number(first, field)
        end = parse_number(last, field) if dash else unit.highest if slash else start
        is_open = (slash and not dash) or (start, end) == (unit.lowest, unit.highest)
    field.is_open |= bool(is_open)
    if step > _size(start, end, unit) - 1 and step > 1:
        field.large_steps += (item,)
    if start <= end < 7 or (start <= end and unit is not WEEKDAY):
        field.bits |= _step_bits(end - start + 1, step) << _bit(start, unit)
        return
    for number in _around(start, end, field)[::step]:
        field.bits |= 1 << _bit(number, unit)


def _size(start: int, end: int, unit: Unit) -> int:
    """Return the length of a range; one that ends before it starts wraps around."""
    whole = 7 if unit is WEEKDAY else unit.highest - unit.lowest + 1
    return end - start + 1 + (whole if end < start else 0)


@lru_cache(maxsize=1024)
def _step_bits(size: int, step: int) -> int:
    """Return every `step`-th number from 0 to before `size`."""
    bits = 0
    for number in range(0, size, step):
        bits |= 1 << number
    return bits


def _around(start: int, end: int, field: Field) -> list[int]:
    """List the numbers of a range that wraps around, or reaches a second Sunday."""
    unit = field.unit
    if start <= end:
        return list(range(start, end + 1))
    if unit is YEAR:
        raise field.refuse("ends before it starts")
    if unit is WEEKDAY:  # it has two numbers for Sunday
        return list(range(start, 7)) + list(range(end + 1))
    return list(range(start, unit.highest + 1)) + list(range(unit.lowest, end + 1))


def _read_month_day(item: str, field: Field) -> None:
    """`L`, `L-3`, `LW`, `L-3W` and `15W`."""
    is_nearest = item[-1] == "W"
    body = item[:-1] if is_nearest else item
    if body[:1] == "L":
        back = 0
        if body != "L":
            back = _whole(body[2:]) if body[1] == "-" else None
            if back is None or back > 30:
                raise field.refuse(f"has {shown(item)}")
        day = -back
    else:
        day = parse_number(body, field)
    if is_nearest:
        field.nearest += (day,)
    else:
        field.from_end += (-day,)


def _read_month_weekday(item: str, field: Field) -> None:
    """`5L`, the last Friday, and `2#1`, the first Tuesday."""
    unit = field.unit
    if item == "L" and unit is WEEKDAY_FROM_ONE:
        field.bits |= 1 << 6  # Quartz: the last day of the week
    elif item[-1] == "L":
        field.last_weekdays |= 1 << _bit(parse_number(item[:-1], field), unit)
    else:
        weekday, _, which = item.partition("#")
        number = _whole(which)
        if number is None or not 1 <= number <= 5:
            raise field.refuse(f"asks for the {shown(which)}th of a month")
        field.nth_weekdays += ((_bit(parse_number(weekday, field), unit), number),)


def parse_step(text: str, field: Field) -> int:
    """Parse a step. A step larger than the field is valid, as in other crons."""
    step = _whole(text)
    if step is None:
        raise field.refuse(f"has a step {shown(text)} that is not a number")
    if not step:
        raise field.refuse("has a step of 0, and steps begin at 1")
    return step


def parse_number(text: str, field: Field) -> int:
    unit = field.unit
    named = unit.names.get(text)
    if named is not None:
        return named
    number = _whole(text)
    if number is None:
        found = f"has {shown(text)} where a number belongs" if text else "lacks a number"
        raise field.refuse(found)
    if not unit.lowest <= number <= unit.highest:
        raise field.refuse(f"has {shown(number)}")
    return number


def _whole(text: str) -> int | None:
    # isdigit accepts digits of other scripts.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _bit(number: int, unit: Unit) -> int:
    if unit is WEEKDAY:
        return number % 7
    if unit is WEEKDAY_FROM_ONE:
        return number - 1
    return number - YEAR_MIN if unit is YEAR else number


def first_bit(bits: int) -> int:
    """Return the lowest number of a set that is not empty."""
    return (bits & -bits).bit_length() - 1


def _next(bits: int, number: int) -> int | None:
    """Return the first number of a set after this one."""
    later = bits >> number + 1
    return number + 1 + first_bit(later) if later else None


def _previous(bits: int, number: int) -> int | None:
    """Return the last number of a set before this one."""
    earlier = bits & (1 << number) - 1
    return earlier.bit_length() - 1 if earlier else None


def numbers_in(bits: int) -> list[int]:
    """List the numbers of a set, in order."""
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


# `H` in a cron expression: a number that is fixed for one name and spread over names.
#
# A thousand hourly jobs need not all run on the hour. `H` is any number of the field, `H(0-29)`
# one of that range, `H/15` every 15 from one of the first 15. Binding replaces it with numbers.


def is_hashed(expression: str) -> bool:
    """Return True if the expression contains an H."""
    return any(item[:1] == "H" for text in expression.split() for item in text.split(","))


def bind_hashes(expression: str, units: Iterable[Unit], *, name: str) -> str:
    """Replace each H with its number for `name`."""
    texts = zip(expression.split(), units, strict=True)
    return " ".join(_bind_field(text, unit, name) if "H" in text else text for text, unit in texts)


def _bind_field(text: str, unit: Unit, name: str) -> str:
    field = Field(text, unit)
    items = text.split(",")
    return ",".join(_bind_item(item, field, name) if item[:1] == "H" else item for item in items)


def _bind_item(item: str, field: Field, name: str) -> str:
    unit = field.unit
    span, slash, step_text = item.partition("/")
    lowest, highest = _range(span, field)
    step = parse_step(step_text, field) if slash else 0
    room = highest - lowest + 1
    digest = sha256(f"{unit.name}\0{name}".encode(errors="surrogatepass")).digest()
    start = lowest + int.from_bytes(digest[:8], "big") % (min(step, room) if step else room)
    if not step:
        return str(start)
    # Without an end it covers the whole range and keeps its spacing.
    return f"{start}/{step}" if highest == unit.highest else f"{start}-{highest}/{step}"


def _range(span: str, field: Field) -> tuple[int, int]:
    unit = field.unit
    if span == "H":
        highest = unit.highest
        if unit is DAY:
            highest = 28  # in every month
        elif unit is WEEKDAY:
            highest = 6  # 7 is Sunday, too
        return unit.lowest, highest
    first, dash, last = span[2:-1].partition("-")
    if span[1:2] != "(" or span[-1:] != ")" or not dash:
        raise field.refuse("has an H that is neither H nor like H(0-29)")
    lowest, highest = parse_number(first, field), parse_number(last, field)
    if lowest > highest:
        raise field.refuse("has a range of H that ends before it starts")
    return lowest, highest


# All fields together: the wall-clock times of an expression.
#
# The search jumps from field to field, so that the 29th of February costs as much as the next
# minute.

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
    """The matching numbers of each field, as bits."""

    seconds: int
    minutes: int
    hours: int
    months: int
    years: int  # 0: all; bit 0 is 1970
    days: tuple[int, ...]  # of a month, by its length and first weekday
    is_open: bool  # keeps its spacing when clocks change

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the first time later than `wall`."""
        day, second = divmod(wall, DAY_SECONDS)
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return self.after(_FIRST_DAY * DAY_SECONDS, effort) if day < 0 else None
        today = date.fromordinal(day + _EPOCH)
        bits = self._days_in(today.year, today.month)
        if bits >> today.day & 1 and (time := self._time_after(second)) is not None:
            return day * DAY_SECONDS + time
        if (later := _next(bits, today.day)) is not None:
            return (day + later - today.day) * DAY_SECONDS + self.earliest
        return self._in_later_month(today.year, today.month, effort)

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the last time that is not later than `wall`."""
        day, second = divmod(wall, DAY_SECONDS)
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return None if day < 0 else self.until(_LAST_DAY * DAY_SECONDS, effort)
        today = date.fromordinal(day + _EPOCH)
        bits = self._days_in(today.year, today.month)
        if bits >> today.day & 1 and (time := self._time_until(second)) is not None:
            return day * DAY_SECONDS + time
        if (earlier := _previous(bits, today.day)) is not None:
            return (day + earlier - today.day) * DAY_SECONDS + self.latest
        return self._in_earlier_month(today.year, today.month, effort)

    def days_around(self, day: date) -> tuple[date, date]:
        """Return the first and the last of the consecutive matching days around a matching day.

        The search ends after two years on either side.
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
        """Return the matching days of a month, as bits."""
        if not self.months >> month & 1 or (self.years and not self._has_year(year)):
            return 0
        return self.days[_shape(year, month, date(year, month, 1).weekday())]

    @property
    def earliest(self) -> int:
        """Return the first time of a day."""
        return first_bit(self.hours) * 3600 + first_bit(self.minutes) * 60 + first_bit(self.seconds)

    @property
    def latest(self) -> int:
        """Return the last time of a day."""
        hour, minute, second = (
            bits.bit_length() - 1 for bits in (self.hours, self.minutes, self.seconds)
        )
        return hour * 3600 + minute * 60 + second

    def _time_after(self, time: int) -> int | None:
        """Return the first time of a day that is later."""
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (later := _next(self.seconds, second)) is not None:
                return time - second + later
            if (later := _next(self.minutes, minute)) is not None:
                return hour * 3600 + later * 60 + self.earliest % 60
        later = _next(self.hours, hour)
        return None if later is None else later * 3600 + self.earliest % 3600

    def _time_until(self, time: int) -> int | None:
        """Return the last time of a day that is not later."""
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        if self.hours >> hour & 1:
            last = _previous(self.seconds, second + 1)
            if self.minutes >> minute & 1 and last is not None:
                return time - second + last
            if (earlier := _previous(self.minutes, minute)) is not None:
                return hour * 3600 + earlier * 60 + self.latest % 60
        earlier = _previous(self.hours, hour)
        return None if earlier is None else earlier * 3600 + self.latest % 3600

    def _in_later_month(self, year: int, month: int, effort: Effort) -> Wall | None:
        last_year = min(year + _YEARS_SEARCHED, date.max.year)
        if self.years and not self._has_year(year):
            month = 12
        while True:
            effort.spend(1)
            later = _next(self.months, month)
            if later is None:
                later = first_bit(self.months)
                found = self._year_from(year + 1)
                if found is None or found > last_year:
                    return None
                year = found
            month = later
            if bits := self._days_in(year, month):
                day = date(year, month, first_bit(bits)).toordinal() - _EPOCH
                return day * DAY_SECONDS + self.earliest

    def _in_earlier_month(self, year: int, month: int, effort: Effort) -> Wall | None:
        first_year = max(year - _YEARS_SEARCHED, date.min.year)
        if self.years and not self._has_year(year):
            month = 1
        while True:
            effort.spend(1)
            earlier = _previous(self.months, month)
            if earlier is None:
                earlier = self.months.bit_length() - 1
                found = self._year_to(year - 1)
                if found is None or found < first_year:
                    return None
                year = found
            month = earlier
            if bits := self._days_in(year, month):
                day = date(year, month, bits.bit_length() - 1).toordinal() - _EPOCH
                return day * DAY_SECONDS + self.latest

    def _has_year(self, year: int) -> bool:
        return year >= YEAR_MIN and bool(self.years >> year - YEAR_MIN & 1)

    def _year_from(self, year: int) -> int | None:
        if not self.years:
            return year
        found = _next(self.years, max(year, YEAR_MIN) - YEAR_MIN - 1)
        return None if found is None else YEAR_MIN + found

    def _year_to(self, year: int) -> int | None:
        if not self.years:
            return year
        found = _previous(self.years, year - YEAR_MIN + 1) if year >= YEAR_MIN else None
        return None if found is None else YEAR_MIN + found


def _shape(year: int, month: int, begins_with: int) -> int:
    """Return the index of a month among the 28 combinations of length and first weekday."""
    length = _LENGTHS[month]
    if month == 2 and isleap(year):
        length = 29
    return (length - 28) * 7 + begins_with


def days_of_months(monthdays: Field, weekdays: Field) -> tuple[int, ...]:
    """Return the matching days, as bits, for each of the 28 combinations of `_shape`.

    If both fields choose days, one match is enough; a field that begins with * or ? chooses none.
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
    """Return the nearest day from Monday to Friday in the same month."""
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


Dialect = Literal["unix", "quartz", "aws"]
DIALECTS: Final = ("unix", "quartz", "aws")

_COST: Final = 5  # of a query with an answer that is not years away
_TIME: Final = (MINUTE, HOUR, DAY, MONTH)
_QUARTZ: Final = (SECOND, *_TIME, WEEKDAY_FROM_ONE)
_LAYOUTS: Final[dict[str, tuple[tuple[Unit, ...], ...]]] = {
    "unix": (
        (*_TIME, WEEKDAY),
        (SECOND, *_TIME, WEEKDAY),
        (SECOND, *_TIME, WEEKDAY, YEAR),
    ),
    "quartz": (_QUARTZ, (*_QUARTZ, YEAR)),
    "aws": ((*_TIME, WEEKDAY_FROM_ONE, YEAR),),
}


class Fields(NamedTuple):
    """The fields of an expression, including those that it leaves out."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    year: Field


_DAYS_COST: Final = 20  # of consecutive excluded days; a month adds about 3
_ALL_MINUTES: Final = (1 << 60) - 1
_ALL_HOURS: Final = (1 << 24) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(Schedule):
    """A cron expression, in capitals, with one space between fields."""

    expression: str
    dialect: Dialect = "unix"
    gap: Gap = "shift"
    fold: Fold = "first"
    pattern: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", _pattern(self.expression, self.dialect))

    @property
    def is_hashed(self) -> bool:
        return is_hashed(self.expression)

    @property
    def is_same_daily(self) -> bool:
        return True

    def bind(self, name: str) -> Schedule:
        if not self.is_hashed:
            return self
        return _bind_cron(self, name)

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        effort.spend(_COST)
        gap, fold = self.rules
        return tick_after(self.pattern, after, tz=self.tz, gap=gap, fold=fold, effort=effort)

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        effort.spend(_COST)
        gap, fold = self.rules
        return tick_until(self.pattern, until, tz=self.tz, gap=gap, fold=fold, effort=effort)

    def excluded_span(self, tick: Instant, effort: Effort) -> tuple[Instant, Instant] | None:
        pattern = self.pattern
        has_seconds = pattern.seconds != 1
        minute = tick // 60 * 60
        until = math.floor(tick) if has_seconds else minute
        if self.previous_until(until, effort=effort) not in (tick, minute):
            return None
        if has_seconds:
            return tick, math.nextafter(tick, math.inf)
        if pattern.minutes != _ALL_MINUTES or self.calendar:
            return minute, minute + 60
        start, end = self._days_or_hour(minute, effort)
        if self.start_at is not None:
            start = max(start, math.ceil(self.start_at / 60) * 60)
        if self.end_at is not None:
            end = min(end, self.end_at // 60 * 60 + 60)
        return start, end

    def _days_or_hour(self, minute: Instant, effort: Effort) -> tuple[Instant, Instant]:
        """Return the span around a minute of an expression that matches whole hours."""
        clock = local(minute, self.tz)
        if self.pattern.hours == _ALL_HOURS:
            first, last = self.pattern.days_around(clock.date())
            effort.spend(_DAYS_COST + (last - first).days // 8)
            return start_of(first, self.tz), start_of(last + _ONE_DAY, self.tz)
        start = minute - clock.minute * 60
        edges = (start, start + 3599)
        if {local(edge, self.tz).utcoffset() for edge in edges} == {clock.utcoffset()}:
            return start, start + 3600
        return minute, minute + 60

    @property
    def rules(self) -> tuple[Gap, Fold]:
        """Return the rules for gaps and folds; an open expression follows the clock."""
        return ("skip", "both") if self.pattern.is_open else (self.gap, self.fold)

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"cron": self.expression}
        if self.dialect != "unix":
            own["dialect"] = self.dialect
        dst = {"gap": self.gap, "fold": self.fold}
        if dst != {"gap": "shift", "fold": "first"}:
            own["dst"] = dst
        return own


def layout(expression: str, dialect: Dialect) -> tuple[Unit, ...]:
    """Return the units of the fields of an expression, by their number."""
    count = len(expression.split())
    for units in _LAYOUTS[dialect]:
        if len(units) == count:
            return units
    takes = {
        "unix": "5 (minute hour day month weekday), 6 (seconds first) or 7 (a year last)",
        "quartz": "6 (second minute hour day month weekday) or 7 (a year last)",
        "aws": "6 (minute hour day month weekday year)",
    }
    raise InvalidSchedule(
        f"{shown(expression)} has {count} {'field' if count == 1 else 'fields'};"
        f" {dialect} cron takes {takes[dialect]}",
        field="cron",
    )


def read_fields(expression: str, dialect: Dialect) -> Fields:
    """Parse all fields; an H has its value for the empty name."""
    units = layout(expression, dialect)
    texts = bind_hashes(expression, units, name="").split()
    named = {unit.name: parse_field(text, unit) for text, unit in zip(texts, units, strict=True)}
    found = Fields(
        second=named.get("second") or parse_field("0", SECOND),
        minute=named["minute"],
        hour=named["hour"],
        day=named["day of month"],
        month=named["month"],
        weekday=named["day of week"],
        year=named.get("year") or parse_field("*", YEAR),
    )
    if dialect != "unix":
        _check_days(found, dialect)
    return found


def _check_days(found: Fields, dialect: Dialect) -> None:
    """Check for the ? that Quartz and AWS require in exactly one of the day fields."""
    day, weekday = found.day, found.weekday
    if [day.text, weekday.text].count("?") != 1:
        raise InvalidSchedule(
            f"day of month {shown(day.text)} and day of week {shown(weekday.text)}: {dialect} cron"
            " takes a ? in exactly one of them",
            field=weekday.unit.name,
        )


@lru_cache(maxsize=16_384)
def _pattern(expression: str, dialect: Dialect) -> Pattern:
    found = read_fields(expression, dialect)
    pattern = Pattern(
        seconds=found.second.bits,
        minutes=found.minute.bits,
        hours=found.hour.bits,
        months=found.month.bits,
        years=0 if found.year.text == "*" else found.year.bits,
        days=days_of_months(found.day, found.weekday),
        is_open=found.minute.is_open or found.hour.is_open,
    )
    if pattern.after(-1, Effort()) is None:
        raise InvalidSchedule(
            f"{shown(expression)} never fires: there is no such date. Day of month is"
            f" {shown(found.day.text)}, month {shown(found.month.text)}, day of week"
            f" {shown(found.weekday.text)}, year {shown(found.year.text)}",
            field="cron",
        )
    return pattern


@lru_cache(maxsize=16_384)
def _bind_cron(rule: Cron, name: str) -> Cron:
    units = layout(rule.expression, rule.dialect)
    return replace(rule, expression=bind_hashes(rule.expression, units, name=name))

"""One field of a cron expression: its text, and the numbers that it matches.

Numbers are kept as bits of an integer: "is 30 in it?" and "what comes after 30?" are a shift each.
Weekdays count from 0, Sunday, whatever the dialect; it translates on the way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from daybell.errors import InvalidSchedule, shown

_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2199


@dataclass(frozen=True, slots=True)
class Unit:
    """What a field counts, and the numbers and names that it takes."""

    name: str
    lowest: int
    highest: int
    names: Mapping[str, int]
    example: str

    @property
    def takes(self) -> str:
        """What the field takes, for messages."""
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
    """What a field matches: `bits` of plain numbers, and days that only a month can tell.

    It is written to while its items are read, and never again.
    """

    text: str
    unit: Unit
    bits: int = 0
    # A wildcard, or steps over the whole range: such a time keeps its spacing when clocks change.
    is_open: bool = False
    from_end: tuple[int, ...] = ()  # L-3: days before the last one
    nearest: tuple[int, ...] = ()  # 15W: the weekday nearest to this day; 0 and below: from the end
    last_weekdays: int = 0  # 5L: bits of weekdays, of which the last in the month is meant
    nth_weekdays: tuple[tuple[int, int], ...] = ()  # 2#1: (weekday, which one)
    large_steps: tuple[str, ...] = ()  # */100: items whose step reaches no second number

    @property
    def is_star(self) -> bool:
        """Whether it leaves the choice of the day to the other field of the day."""
        return self.text[0] in "*?"

    def refuse(self, fact: str) -> InvalidSchedule:
        """The error for a field that is wrong."""
        return InvalidSchedule(
            f"{self.unit.name} {shown(self.text)} {fact}; {self.unit.takes}", field=self.unit.name
        )


def parse_field(text: str, unit: Unit) -> Field:
    """Read one field, in capitals. `hashing` has already replaced each H."""
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
        field.bits |= _stepped(end - start + 1, step) << _bit(start, unit)
        return
    for number in _around(start, end, field)[::step]:
        field.bits |= 1 << _bit(number, unit)


def _size(start: int, end: int, unit: Unit) -> int:
    """How many numbers a range has; one that ends before it starts goes around the end."""
    whole = 7 if unit is WEEKDAY else unit.highest - unit.lowest + 1
    return end - start + 1 + (whole if end < start else 0)


@lru_cache(maxsize=1024)
def _stepped(size: int, step: int) -> int:
    """Every `step`-th number from 0 to before `size`."""
    bits = 0
    for number in range(0, size, step):
        bits |= 1 << number
    return bits


def _around(start: int, end: int, field: Field) -> list[int]:
    """The numbers of a range that goes on at the field's beginning, or reaches a second Sunday."""
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
    """Read a step. One that is larger than the field is not refused, as in other crons."""
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
    # Digits of other scripts are digits to Python, and no five of them are a year to anybody.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _bit(number: int, unit: Unit) -> int:
    if unit is WEEKDAY:
        return number % 7
    if unit is WEEKDAY_FROM_ONE:
        return number - 1
    return number - YEAR_MIN if unit is YEAR else number


def first_bit(bits: int) -> int:
    """The lowest number in a set that is not empty."""
    return (bits & -bits).bit_length() - 1


def numbers_in(bits: int) -> list[int]:
    """The numbers of a set, in order."""
    return [number for number in range(bits.bit_length()) if bits >> number & 1]

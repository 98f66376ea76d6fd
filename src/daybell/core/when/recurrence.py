"""Recurrence rules of RFC 5545, as calendars exchange them: RRULE, DTSTART, EXDATE and RDATE."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Unpack

from daybell.core.instant import Instant
from daybell.core.limits import RRULE_CHARS_MAX, SCHEDULE_DATES_MAX
from daybell.core.when.checks import choice
from daybell.core.when.effort import Effort
from daybell.core.when.options import Options, settled
from daybell.core.when.repetition import (
    COUNT_MAX,
    DAILY,
    FREQUENCIES,
    HOURLY,
    MINUTELY,
    MONTHLY,
    SECONDLY,
    WEEKLY,
    YEARLY,
    Repetition,
)
from daybell.core.when.rule import Schedule
from daybell.core.when.search import Wall, tick_after, tick_until
from daybell.core.when.yeardays import YearDays
from daybell.core.when.zone import Fold, Gap, local, zone_named
from daybell.errors import InvalidSchedule, shown

_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_TIMES_MAX: Final = 1_440  # a day; who wants more writes FREQ=MINUTELY or SECONDLY
# What each BY part takes; negative numbers count from the end.
_NUMBERS: Final = {
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTH": (1, 12),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYSETPOS": (-366, 366),
    "INTERVAL": (1, 100_000),
    "COUNT": (1, COUNT_MAX),
}
_PARTS: Final = (*_NUMBERS, "FREQ", "UNTIL", "BYDAY", "WKST")


@dataclass(frozen=True, slots=True)
class _Times:
    """The wall-clock times of a whole text: of its rule, and dates of its own."""

    repetition: Repetition
    added: tuple[Wall, ...]
    removed: frozenset[Wall]
    removed_days: frozenset[int]

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        for _ in range(SCHEDULE_DATES_MAX + 1):
            place = bisect_right(self.added, wall)
            found = [self.repetition.after(wall, effort), *self.added[place : place + 1]]
            first = min((one for one in found if one is not None), default=None)
            if first is None or not self._is_removed(first):
                return first
            wall = first
        return None

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        for _ in range(SCHEDULE_DATES_MAX + 1):
            place = bisect_right(self.added, wall)
            found = [self.repetition.until(wall, effort), *self.added[max(place - 1, 0) : place]]
            last = max((one for one in found if one is not None), default=None)
            if last is None or not self._is_removed(last):
                return last
            wall = last - 1
        return None

    def _is_removed(self, wall: Wall) -> bool:
        return wall in self.removed or wall // 86_400 in self.removed_days


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(Schedule):
    """A recurrence rule, as text: a line each for DTSTART, RRULE, EXDATE and RDATE."""

    text: str
    gap: Gap = "shift"
    fold: Fold = "first"
    times: _Times = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _read(self.text, self.tz))

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        gap, fold = self.rules
        return tick_after(self.times, after, tz=self.tz, gap=gap, fold=fold, effort=effort)

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        gap, fold = self.rules
        return tick_until(self.times, until, tz=self.tz, gap=gap, fold=fold, effort=effort)

    @property
    def is_same_daily(self) -> bool:
        times, rule = self.times, self.times.repetition
        is_placed = rule.positions and rule.frequency < DAILY
        return rule.is_daily and not (is_placed or times.added or times.removed)

    @property
    def rules(self) -> tuple[Gap, Fold]:
        """Hours, minutes and seconds follow the clock, and keep their spacing."""
        is_open = self.times.repetition.frequency >= HOURLY
        return ("skip", "both") if is_open else (self.gap, self.fold)

    @property
    def counts_from_1970(self) -> bool:
        """Whether it fires so often, and does not say since when: most likely, that is over."""
        return self.times.repetition.count is not None and "DTSTART" not in self.text

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"rrule": self.text}
        if (self.gap, self.fold) != ("shift", "first"):
            own["dst"] = {"gap": self.gap, "fold": self.fold}
        return own


def rrule(
    text: str, *, gap: Gap = "shift", fold: Fold = "first", **options: Unpack[Options]
) -> Recurrence:
    """When a recurrence rule says: `rrule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", tz="Europe/Rome")`.

    The text may have lines DTSTART, RRULE, EXDATE and RDATE. Without DTSTART the rule began at
    midnight of 1970-01-01. Times are those of the clocks in `tz`, or in DTSTART's TZID.
    """
    rule = read_rrule(text, gap=gap, fold=fold, **options)
    check_any(rule, Effort())
    return rule


def way_out(schedule: Schedule) -> str:
    """What to do about one that has ended, where that is not what its text seems to say."""
    if not isinstance(schedule, Recurrence) or not schedule.counts_from_1970:
        return ""
    return (
        "; COUNT counts from DTSTART, and without one from 1970: say"
        ' "DTSTART:20300101T090000\\nRRULE:…", or max_executions in place of COUNT'
    )


def read_rrule(
    text: str, *, gap: Gap = "shift", fold: Fold = "first", **options: Unpack[Options]
) -> Recurrence:
    """The same, without a look at whether it ever fires."""
    choice(gap, ("shift", "skip"), what="gap")
    choice(fold, ("first", "second", "both"), what="fold")
    lines = _lines(text)
    zone = next((parameters["TZID"] for _, parameters, _ in lines if "TZID" in parameters), None)
    if zone is not None:
        zone_named(zone)
        tz = options.setdefault("tz", zone)
        if tz != zone:
            raise _refusal(f"is in {zone}, but tz is {tz}")
    tidy = "\n".join(
        f"{name}:{value}" if name != "RRULE" or len(lines) > 1 else value
        for name, _, value in sorted(lines, key=lambda line: _ORDER.index(line[0]))
    )
    return Recurrence(text=tidy, gap=gap, fold=fold, **settled(options))


_ORDER: Final = ("DTSTART", "RRULE", "EXDATE", "RDATE")


def _lines(text: object) -> list[tuple[str, dict[str, str], str]]:
    """The lines of a text, as name, parameters and value."""
    if not isinstance(text, str):
        raise _refusal(f"{shown(text)} is not text")
    if len(text) > RRULE_CHARS_MAX:
        raise _refusal(f"has {len(text):,} characters; the limit is {RRULE_CHARS_MAX:,}")
    lines: list[tuple[str, dict[str, str], str]] = []
    for line in text.split():
        head, colon, value = line.partition(":")
        if not colon:
            head, value = "RRULE", line
        name, *parameters = head.split(";")
        pairs = {key: given for key, _, given in (one.partition("=") for one in parameters)}
        if name.upper() not in _ORDER:
            raise _refusal(f"has a line {shown(name)}; it takes {', '.join(_ORDER)}")
        lines.append((name.upper(), pairs, value.upper()))
    if [name for name, _, _ in lines].count("RRULE") != 1:
        raise _refusal("needs exactly one rule, such as FREQ=DAILY")
    return lines


@lru_cache(maxsize=4096)
def _read(text: str, tz: str) -> _Times:
    found: dict[str, list[str]] = {name: [] for name in _ORDER}
    for name, _, value in _lines(text):
        found[name] += value.split(",") if name != "RRULE" else [value]
    dates = len(found["EXDATE"]) + len(found["RDATE"])
    if dates > SCHEDULE_DATES_MAX:
        raise _refusal(f"has {dates:,} dates; the limit is {SCHEDULE_DATES_MAX:,}")
    if len(found["DTSTART"]) > 1:
        raise _refusal("has more than one DTSTART")
    start = _wall(found["DTSTART"][0], tz) if found["DTSTART"] else 0
    return _Times(
        repetition=_repetition(found["RRULE"][0], start, tz),
        added=tuple(sorted({_wall(one, tz) for one in found["RDATE"]})),
        removed=frozenset(_wall(one, tz) for one in found["EXDATE"] if "T" in one),
        removed_days=frozenset(
            _wall(one, tz) // 86_400 for one in found["EXDATE"] if "T" not in one
        ),
    )


def check_any(rule: Recurrence, effort: Effort) -> None:
    """Refuse a rule that never fires. What COUNT leaves is listed when it is needed."""
    times, repeated = rule.times, rule.times.repetition
    before = min([repeated.start, *times.added]) - 1
    if repeated.count is not None and not times.added:
        first = repeated.uncounted_after(before, effort)
    else:
        first = times.after(before, effort)
    if first is None:
        raise _refusal(f"{shown(rule.text)} never fires: there is no such date")


def _repetition(text: str, start: Wall, tz: str) -> Repetition:
    parts = _parts(text)
    frequency = FREQUENCIES.index(choice(parts.get("FREQ"), FREQUENCIES, what="FREQ"))
    numbers = {name: _numbers(name, parts[name]) for name in _NUMBERS if name in parts}
    weekdays, nth_weekdays = _weekdays(parts.get("BYDAY", ""), frequency)
    months, monthdays = numbers.get("BYMONTH", ()), numbers.get("BYMONTHDAY", ())
    begin = datetime.fromtimestamp(start, UTC)
    if not ({"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY"} & parts.keys()):
        # What the rule does not say, its start does.
        if frequency == WEEKLY:
            weekdays = (begin.weekday(),)
        elif frequency in (YEARLY, MONTHLY):
            monthdays = (begin.day,)
            months = months or ((begin.month,) if frequency == YEARLY else ())
    hours = numbers.get("BYHOUR", (begin.hour,) if frequency < HOURLY else ())
    minutes = numbers.get("BYMINUTE", (begin.minute,) if frequency < MINUTELY else ())
    seconds = numbers.get("BYSECOND", (begin.second,) if frequency < SECONDLY else ())
    if frequency <= DAILY and len(hours) * len(minutes) * len(seconds) > _TIMES_MAX:
        raise _refusal(f"has more than {_TIMES_MAX:,} times a day; use FREQ=MINUTELY or SECONDLY")
    until = parts.get("UNTIL")
    end_of_day = 0 if until is None or "T" in until else 86_399
    return Repetition(
        frequency=frequency,
        interval=numbers.get("INTERVAL", (1,))[0],
        start=start,
        until_wall=None if until is None else _wall(until, tz) + end_of_day,
        count=numbers["COUNT"][0] if "COUNT" in numbers else None,
        days=YearDays(
            week_start=_WEEKDAYS.index(choice(parts.get("WKST", "MO"), _WEEKDAYS, what="WKST")),
            months=months,
            monthdays=monthdays,
            yeardays=numbers.get("BYYEARDAY", ()),
            weeks=numbers.get("BYWEEKNO", ()),
            weekdays=weekdays,
            nth_weekdays=nth_weekdays,
            nth_of_year=frequency == YEARLY and not months,
        ),
        hours=hours,
        minutes=minutes,
        seconds=seconds,
        positions=numbers.get("BYSETPOS", ()),
    )


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.strip(";").split(";"):
        name, equals, value = part.partition("=")
        if name not in _PARTS or not equals:
            raise _refusal(f"has {shown(part)}; it takes {', '.join(_PARTS)}")
        if name in parts:
            raise _refusal(f"has {name} twice")
        parts[name] = value
    return parts


def _numbers(name: str, text: str) -> tuple[int, ...]:
    lowest, highest = _NUMBERS[name]
    numbers: set[int] = set()
    for item in text.split(","):
        digits = item.removeprefix("-").removeprefix("+")
        number = int(item) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
        is_zero_of_signed = number == 0 and lowest < 0
        if number is None or not lowest <= number <= highest or is_zero_of_signed:
            raise _refusal(f"has {name}={shown(item)}; it takes {lowest} to {highest}")
        numbers.add(number)
    return tuple(sorted(numbers))


def _weekdays(text: str, frequency: int) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The weekdays of BYDAY, and those with a number before them: `-1FR`."""
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in filter(None, text.split(",")):
        name = choice(item[-2:], _WEEKDAYS, what="BYDAY")
        number = item[:-2]
        if not number:
            plain.add(_WEEKDAYS.index(name))
        elif frequency > MONTHLY:
            raise _refusal(f"has BYDAY={item}, which needs FREQ=MONTHLY or YEARLY")
        else:
            (which,) = _numbers("BYWEEKNO", number)
            nth.add((_WEEKDAYS.index(name), which))
    return tuple(sorted(plain)), tuple(sorted(nth))


def _wall(text: str, tz: str) -> Wall:
    """`20261224T180000`, the same with a Z for UTC, or a date."""
    day, _, time = text.removesuffix("Z").partition("T")
    numbers = _pairs(day[:4], day[4:6], day[6:], time[:2] or "0", time[2:4] or "0", time[4:] or "0")
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise _refusal(f"has the time {shown(text)}; it takes 20261224T180000") from None
    instant = int(moment.timestamp())
    if not text.endswith("Z"):
        return instant
    return int(local(instant, tz).replace(tzinfo=UTC).timestamp())


def _pairs(*texts: str) -> Iterable[int]:
    return [int(text) if text.isascii() and text.isdigit() else -1 for text in texts]


def _refusal(fact: str) -> InvalidSchedule:
    return InvalidSchedule(f"rrule {fact}", field="rrule")

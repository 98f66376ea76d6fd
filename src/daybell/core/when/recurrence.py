"""Recurrence rules of RFC 5545, as calendars exchange them: RRULE, DTSTART, EXDATE and RDATE."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, Unpack

from daybell.core.limits import RRULE_CHARS_MAX, SCHEDULE_DATES_MAX
from daybell.core.units import Instant
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
    YearDays,
)
from daybell.core.when.rule import Options, Schedule, resolve_options
from daybell.core.when.zone import (
    Effort,
    Fold,
    Gap,
    Wall,
    choice,
    instant_of,
    local,
    tick_after,
    tick_until,
    zone_named,
)
from daybell.errors import InvalidSchedule, shown

_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_TIMES_MAX: Final = 1_440  # times a day; more need FREQ=MINUTELY or SECONDLY
# The range of each BY part; negative numbers count from the end.
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
_ORDER: Final = ("DTSTART", "RRULE", "EXDATE", "RDATE")
_HEAD: Final = rf"(?:(?:{'|'.join(_ORDER)})[;:]|(?:{'|'.join(_PARTS)})=)"
# A line continues after a line break and a space; an indented new line does not continue it.
_FOLD: Final = re.compile(rf"(?<=[;,])\r?\n[ \t]|\r?\n[ \t](?![ \t]*{_HEAD})", re.IGNORECASE)
_BREAK: Final = re.compile(rf"[\r\n]+|(?<![;,\s])\s+(?={_HEAD})", re.IGNORECASE)
_BEFORE_VALUE: Final = re.compile(r'((?:[^":]|"[^"]*")*):')  # quoted parameters may contain colons
_PARAMETER: Final = re.compile(r';([^=;]*)=("[^"]*"|[^;]*)')


@dataclass(frozen=True, slots=True)
class _Times:
    """All times of a text: those of its rule and its single dates.

    Dates in the schedule's zone are wall-clock times; dates in UTC or another zone are instants.
    """

    rule: str
    repetition: Repetition
    has_start: bool
    added: tuple[Wall, ...]
    added_at: tuple[Instant, ...]
    removed: frozenset[Wall]
    removed_at: frozenset[Instant]
    removed_days: frozenset[int]

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        for _ in range(SCHEDULE_DATES_MAX + 1):
            first = _next_of(self.added, wall, self.repetition.after(wall, effort))
            if first is None or not self.is_removed(first):
                return first
            wall = first
        return None

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        for _ in range(SCHEDULE_DATES_MAX + 1):
            last = _last_of(self.added, wall, self.repetition.until(wall, effort))
            if last is None or not self.is_removed(last):
                return last
            wall = last - 1
        return None

    def is_removed(self, wall: Wall) -> bool:
        """Return True if EXDATE excludes a wall-clock time."""
        return wall in self.removed or wall // 86_400 in self.removed_days

    @property
    def has_instants(self) -> bool:
        """True if a date is an instant rather than a time on the schedule's wall clock."""
        return bool(self.added_at or self.removed_at)


T = TypeVar("T", Wall, Instant)


def _next_of(dates: Sequence[T], at: T, other: T | None) -> T | None:
    """Return the first of these sorted dates that is later than `at`, or `other` if that is
    earlier.
    """
    place = bisect_right(dates, at)
    return min((one for one in (*dates[place : place + 1], other) if one is not None), default=None)


def _last_of(dates: Sequence[T], at: T, other: T | None) -> T | None:
    """Return the last of these dates that is not later than `at`, or `other` if that is later."""
    place = bisect_right(dates, at)
    near = dates[max(place - 1, 0) : place]
    return max((one for one in (*near, other) if one is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(Schedule):
    """A recurrence rule, as text: one line each for DTSTART, RRULE, EXDATE and RDATE."""

    text: str
    gap: Gap = "shift"
    fold: Fold = "first"
    times: _Times = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _read(self.text, self.tz))

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        gap, fold = self.rules
        times = self.times
        while True:
            found = tick_after(times, after, tz=self.tz, gap=gap, fold=fold, effort=effort)
            if not times.has_instants:
                return found
            first = _next_of(times.added_at, after, found)
            if first is None or first not in times.removed_at:
                return first
            after = first

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        gap, fold = self.rules
        times = self.times
        while True:
            found = tick_until(times, until, tz=self.tz, gap=gap, fold=fold, effort=effort)
            if not times.has_instants:
                return found
            last = _last_of(times.added_at, until, found)
            if last is None or last not in times.removed_at:
                return last
            until = last - 1

    @property
    def is_same_daily(self) -> bool:
        times, rule = self.times, self.times.repetition
        is_placed = rule.positions and rule.frequency < DAILY
        is_dated = times.added or times.removed or times.has_instants
        return rule.is_daily and not (is_placed or is_dated)

    @property
    def rules(self) -> tuple[Gap, Fold]:
        """Return the rules for gaps and folds; hours and below keep their spacing."""
        is_open = self.times.repetition.frequency >= HOURLY
        return ("skip", "both") if is_open else (self.gap, self.fold)

    @property
    def counts_from_1970(self) -> bool:
        """Return True for a COUNT without DTSTART, which most likely ended long ago."""
        return self.times.repetition.count is not None and not self.times.has_start

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"rrule": self.text}
        if (self.gap, self.fold) != ("shift", "first"):
            own["dst"] = {"gap": self.gap, "fold": self.fold}
        return own


def rrule(
    text: str, *, gap: Gap = "shift", fold: Fold = "first", **options: Unpack[Options]
) -> Recurrence:
    """Parse a recurrence rule: `rrule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", tz="Europe/Rome")`.

    The text may have lines DTSTART, RRULE, EXDATE and RDATE. Without DTSTART the rule starts at
    midnight of 1970-01-01, a Thursday. The zone is that of DTSTART's TZID, or `tz`. EXDATE and
    RDATE use it too, unless they have their own TZID or end with Z.
    """
    rule = read_rrule(text, gap=gap, fold=fold, **options)
    check_any(rule, Effort())
    return rule


def way_out(schedule: Schedule) -> str:
    """Suggest a fix for a COUNT that has ended without DTSTART."""
    if not isinstance(schedule, Recurrence) or not schedule.counts_from_1970:
        return ""
    return (
        "; COUNT counts from DTSTART, and without one from 1970: say"
        ' "DTSTART:20300101T090000\\nRRULE:…", or max_executions in place of COUNT'
    )


def read_rrule(
    text: str, *, gap: Gap = "shift", fold: Fold = "first", **options: Unpack[Options]
) -> Recurrence:
    """Parse a recurrence rule, without the check that it ever fires."""
    choice(gap, ("shift", "skip"), what="gap")
    choice(fold, ("first", "second", "both"), what="fold")
    lines = _lines(text)
    for line in lines:
        _check_zone(line)
    zone = next((line.zone for line in lines if line.name == "DTSTART"), None)
    tz = options.setdefault("tz", zone or "UTC")
    if zone not in (None, tz):
        raise _refusal(f"is in {zone}, but tz is {tz}")
    tidy = "\n".join(
        line.to_text(tz) if line.name != "RRULE" or len(lines) > 1 else line.value
        for line in sorted(lines, key=lambda line: _ORDER.index(line.name))
    )
    return Recurrence(text=tidy, gap=gap, fold=fold, **resolve_options(options))


class _Line(NamedTuple):
    """One line: its name, its TZID, and its value in capitals."""

    name: str
    zone: str | None
    value: str

    def to_text(self, tz: str) -> str:
        """Return the line as text, without the schedule's own zone."""
        zone = "" if self.zone in (None, tz) else f";TZID={self.zone}"
        return f"{self.name}{zone}:{self.value}"


def _check_zone(line: _Line) -> None:
    if line.zone is None:
        return
    zone_named(line.zone)
    if line.name == "RRULE":
        raise _refusal("has a TZID on its RRULE line; put it on DTSTART, or use tz")
    if any(one.endswith("Z") for one in line.value.split(",")):
        raise _refusal(
            f"has {line.name} in UTC (Z) and with TZID={line.zone}; leave out one of them"
        )


def _lines(text: object) -> list[_Line]:
    """Split a text into lines; spaces may separate them, too."""
    if not isinstance(text, str):
        raise _refusal(f"{shown(text)} is not text")
    if len(text) > RRULE_CHARS_MAX:
        raise _refusal(f"has {len(text):,} characters; the limit is {RRULE_CHARS_MAX:,}")
    written = _BREAK.split(_FOLD.sub("", text.strip()))
    lines = [_line(one.strip()) for one in written if one.strip()]
    if [line.name for line in lines].count("RRULE") != 1:
        raise _refusal("needs exactly one rule, such as FREQ=DAILY")
    return lines


def _line(text: str) -> _Line:
    found = _BEFORE_VALUE.match(text)
    head, value = ("RRULE", text) if found is None else (found[1], text[found.end() :])
    name = head.partition(";")[0].strip().upper()
    if name not in _ORDER:
        raise _refusal(f"has a line {shown(name)}; it takes {', '.join(_ORDER)}")
    parameters = {key.strip().upper(): given for key, given in _PARAMETER.findall(head)}
    zone = parameters.get("TZID")
    return _Line(
        name, None if zone is None else zone.strip().strip('"'), "".join(value.split()).upper()
    )


@lru_cache(maxsize=4096)
def _read(text: str, tz: str) -> _Times:
    found: dict[str, list[tuple[str, str | None]]] = {name: [] for name in _ORDER}
    for name, zone, value in _lines(text):
        values = value.split(",") if name != "RRULE" else [value]
        found[name] += [(one, zone) for one in values]
    dates = len(found["EXDATE"]) + len(found["RDATE"])
    if dates > SCHEDULE_DATES_MAX:
        raise _refusal(f"has {dates:,} dates; the limit is {SCHEDULE_DATES_MAX:,}")
    if len(found["DTSTART"]) > 1:
        raise _refusal("has more than one DTSTART")
    start = _wall(found["DTSTART"][0][0], tz) if found["DTSTART"] else 0
    rule = found["RRULE"][0][0]
    added = [(one, zone, _instant(one, zone)) for one, zone in found["RDATE"]]
    removed = [(one, zone, _instant(one, zone)) for one, zone in found["EXDATE"]]
    times = _Times(
        rule=rule,
        repetition=_repetition(rule, start, tz),
        has_start=bool(found["DTSTART"]),
        added=tuple(sorted({_wall(one, tz) for one, _, at in added if at is None})),
        added_at=tuple(sorted({at for _, _, at in added if at is not None})),
        removed=frozenset(_wall(one, tz) for one, _, at in removed if at is None and "T" in one),
        removed_at=frozenset(at for _, _, at in removed if at is not None),
        removed_days=frozenset(_wall(one, tz) // 86_400 for one, _, _ in removed if "T" not in one),
    )
    left = (one for one in times.added_at if not times.is_removed(_wall_at(one, tz)))
    return replace(times, added_at=tuple(left)) if times.added_at else times


def check_any(rule: Recurrence, effort: Effort) -> None:
    """Reject a rule that never fires. The times of a COUNT are listed on first use."""
    times, repeated = rule.times, rule.times.repetition
    before = min([repeated.start, *times.added]) - 1
    if times.has_instants:
        first = rule.tick_after(min([before - 2 * 86_400.0, *times.added_at]) - 1, effort)
    elif repeated.count is not None and not times.added:
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
        # The start supplies the parts that the rule leaves out.
        if frequency == WEEKLY:
            weekdays = (begin.weekday(),)
        elif frequency in (YEARLY, MONTHLY):
            monthdays = (begin.day,)
            months = months or ((begin.month,) if frequency == YEARLY else ())
    elif not ({"BYYEARDAY", "BYMONTHDAY", "BYDAY"} & parts.keys()) and frequency < DAILY:
        weekdays = (begin.weekday(),)  # BYWEEKNO alone means one day of the week
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
    """Parse BYDAY: plain weekdays, and those with a number: `-1FR`."""
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
    """Parse `20261224T180000`, the same with a Z for UTC, or a date."""
    day, _, time = text.removesuffix("Z").partition("T")
    numbers = _pairs(day[:4], day[4:6], day[6:], time[:2] or "0", time[2:4] or "0", time[4:] or "0")
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise _refusal(f"has the time {shown(text)}; it takes 20261224T180000") from None
    instant = int(moment.timestamp())
    return _wall_at(instant, tz) if text.endswith("Z") else instant


def _wall_at(instant: Instant, tz: str) -> Wall:
    return int(local(instant, tz).replace(tzinfo=UTC).timestamp())


def _instant(text: str, zone: str | None) -> Instant | None:
    """Return the instant of a date in UTC or with its own zone; None for the schedule's zone."""
    if text.endswith("Z"):
        return float(_wall(text, "UTC"))
    if zone is None:
        return None
    if "T" not in text:
        raise _refusal(f"has the date {shown(text)} in {zone}, its own zone; give it a time of day")
    return instant_of(datetime.fromtimestamp(_wall(text, zone), UTC).replace(tzinfo=None), zone)


def _pairs(*texts: str) -> Iterable[int]:
    return [int(text) if text.isascii() and text.isdigit() else -1 for text in texts]


def _refusal(fact: str) -> InvalidSchedule:
    return InvalidSchedule(f"rrule {fact}", field="rrule")

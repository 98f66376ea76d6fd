"""Calendars: closed days, public holidays, blackouts, and ticks that move to an open day."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from daybell.core.limits import BLACKOUTS_MAX, SCHEDULE_DATES_MAX
from daybell.core.units import Instant, to_iso
from daybell.core.when.zone import (
    Effort,
    Moment,
    check_keys,
    choice,
    instant_of,
    just_before,
    local,
    parse_moment,
    stretch_at,
)
from daybell.errors import InvalidSchedule, install_advice, shown


class TickRule(Protocol):
    """The part of a schedule that a calendar filters: its zone and its ticks."""

    @property
    def tz(self) -> str: ...

    @property
    def is_same_daily(self) -> bool: ...

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None: ...

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None: ...


# Ticks of closed days move to an open day, at the same wall-clock time.

Span = tuple[date, date]  # consecutive days, the first and the last

_DAY: Final = timedelta(days=1)
_LOOK_COST: Final = 15  # of one day


def first_moved(
    schedule: TickRule, days: Span, to: date, after: Instant, effort: Effort
) -> Instant | None:
    """Return the first tick of these days that is later than `after` once it moved to `to`."""
    tz, now = schedule.tz, local(after, schedule.tz)
    if now.date() > to:
        return None
    found: list[Instant] = []
    for day, tick in _days_with_ticks(schedule, days, effort):
        following = start_of(day + _DAY, tz)
        if now.date() == to:  # skip earlier times of the day
            wall = datetime.combine(day, now.time())
            tick = schedule.tick_after(just_before(instant_of(wall, tz)), effort)
        while tick is not None and tick < following:
            if (moved := _move_tick(tick, to, tz)) > after:
                found.append(moved)
                break
            tick = schedule.tick_after(tick, effort)
    return min(found, default=None)


def last_moved(
    schedule: TickRule, days: Span, to: date, until: Instant, effort: Effort
) -> Instant | None:
    """Return the last tick of these days that is not later than `until` once it moved to `to`."""
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
            if (moved := _move_tick(tick, to, tz)) <= until:
                found.append(moved)
                break
            tick = schedule.tick_until(just_before(tick), effort)
    return max(found, default=None)


def _days_with_ticks(
    schedule: TickRule, days: Span, effort: Effort
) -> Iterator[tuple[date, Instant]]:
    """Yield the days that have ticks, each with its first tick; identical days only once.

    It jumps from one day with ticks to the next, so a sparse rule is cheap.
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
    """Return the start of the next day with a clock change, if this day has none."""
    stretch = stretch_at(math.floor(following) - 1, tz=tz, gap="shift", fold="first")
    if start_of(day, tz) < stretch.start:
        return following
    if stretch.end >= end:
        return end
    return max(following, start_of(local(stretch.end, tz).date(), tz))


def _move_tick(tick: Instant, to: date, tz: str) -> Instant:
    shown_there = local(tick, tz)
    if shown_there.date() == to:
        return tick
    return instant_of(datetime.combine(to, shown_there.time()), tz)


def start_of(day: date, tz: str) -> Instant:
    """Return the start of a day."""
    return instant_of(datetime.combine(day, time.min), tz)


# Public holidays come from the package `holidays`, which is loaded on first use.


@lru_cache(maxsize=1024)
def public_holidays(country: str, subdivision: str | None, year: int) -> frozenset[date]:
    """Return the public holidays of one year."""
    found = _package().country_holidays(country, subdiv=subdivision, years=year, expand=False)
    return frozenset(found)


@lru_cache(maxsize=256)
def check_country(country: str, subdivision: str | None) -> None:
    """Reject an unknown country or subdivision."""
    known = _countries()
    if country not in known:
        raise InvalidSchedule(
            f"no holidays are known for country {shown(country)}; it takes ISO 3166 codes, such as"
            " DE, US or GB",
            field="country",
        )
    if subdivision is not None and subdivision not in known[country]:
        some = ", ".join(sorted(known[country])[:5]) or "none"
        raise InvalidSchedule(
            f"no holidays are known for subdivision {shown(subdivision)} of {country}; known are"
            f" {some}, …",
            field="subdivision",
        )


@lru_cache(maxsize=1)
def _countries() -> dict[str, list[str]]:
    return _package().list_supported_countries()


def _package() -> Any:
    try:
        import holidays
    except ImportError:
        raise InvalidSchedule(
            f"holidays is not installed: {install_advice('calendars')}", field="country"
        ) from None
    return holidays


OnClosed = Literal["skip", "next_open", "previous_open"]
ON_CLOSED: Final = ("skip", "next_open", "previous_open")

_CLOSED_DAYS_MAX: Final = 366  # consecutive closed days to search; more is a mistake
_MOVED_DAYS_MAX: Final = 31  # a tick that would move further is dropped
_TRIES: Final = 64  # consecutive ticks that may fall on closed days
_HOLIDAYS_COST: Final = 300  # of one year
_KNOWN_MAX: Final = 1_000


class _Search(NamedTuple):
    """A search of ticks from an instant on, or back from it."""

    schedule: TickRule
    effort: Effort
    is_onward: bool

    @property
    def tz(self) -> str:
        return self.schedule.tz

    @property
    def step(self) -> timedelta:
        return _DAY if self.is_onward else -_DAY

    def tick(self, at: Instant) -> Instant | None:
        """Return the first tick later than `at`, or the last one that is not later."""
        find = self.schedule.tick_after if self.is_onward else self.schedule.tick_until
        return find(at, self.effort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The closed days, in the schedule's zone."""

    country: str | None = None  # its public holidays are closed: DE, US
    subdivision: str | None = None  # and those of this part: BY, CA
    business_days: bool = False  # Saturdays and Sundays are closed
    dates: Collection[date | str] = ()  # closed dates
    blackouts: Collection[Sequence[Moment]] = ()  # from, until
    on_closed: OnClosed = "skip"
    # Cache: open days, each with the first and last day that moves its ticks there.
    known: dict[date, Span] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Normalize and validate the fields."""
        choice(self.on_closed, ON_CLOSED, what="on_closed")
        if not isinstance(self.business_days, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidSchedule(
                f"business_days {shown(self.business_days)} is not true or false",
                field="business_days",
            )
        object.__setattr__(self, "dates", _dates(self.dates))
        object.__setattr__(self, "blackouts", _blackouts(self.blackouts))
        for place in ("country", "subdivision"):
            value = getattr(self, place)
            if not isinstance(value, str | None):
                raise InvalidSchedule(f"{place} {shown(value)} is not a code", field=place)
        if self.country is not None:
            check_country(self.country, self.subdivision)
        elif self.subdivision is not None:
            raise InvalidSchedule("subdivision needs a country", field="subdivision")

    def is_open(self, day: date, effort: Effort | None = None) -> bool:
        """Return True if ticks may fall on a day."""
        if self.business_days and day.weekday() >= 5:
            return False
        if self._dates:
            place = bisect_left(self._dates, day)
            if self._dates[place : place + 1] == (day,):
                return False
        if self.country is None:
            return True
        if effort is not None:
            effort.spend_once((self.country, self.subdivision, day.year), _HOLIDAYS_COST)
        return day not in public_holidays(self.country, self.subdivision, day.year)

    def tick_after(self, schedule: TickRule, after: Instant, effort: Effort) -> Instant | None:
        """Return the first tick later than `after` that this calendar keeps or moves there."""
        return self._find(_Search(schedule, effort, is_onward=True), after)

    def tick_until(self, schedule: TickRule, until: Instant, effort: Effort) -> Instant | None:
        """Return the last such tick that is not later than `until`."""
        return self._find(_Search(schedule, effort, is_onward=False), until)

    def _find(self, search: _Search, at: Instant) -> Instant | None:
        find = self._find_open if self.on_closed == "skip" else self._find_moved
        for _ in range(len(self._blackouts) + 1):
            tick = find(search, at)
            blackout = None if tick is None else self._blackout(tick)
            if blackout is None:
                return tick
            at = just_before(blackout[search.is_onward])
        return None

    def _blackout(self, tick: Instant) -> tuple[Instant, Instant] | None:
        place = bisect_right(self._blackouts, (tick, math.inf)) - 1
        window = self._blackouts[place] if place >= 0 else None
        return window if window is not None and tick < window[1] else None

    # The normalized fields.

    @property
    def _dates(self) -> tuple[date, ...]:
        return cast("tuple[date, ...]", self.dates)

    @property
    def _blackouts(self) -> tuple[tuple[Instant, Instant], ...]:
        return cast("tuple[tuple[Instant, Instant], ...]", self.blackouts)

    def _find_open(self, search: _Search, at: Instant) -> Instant | None:
        for _ in range(_TRIES):
            tick = search.tick(at)
            if tick is None:
                return None
            day = local(tick, search.tz).date()
            if self.is_open(day, search.effort):
                return tick
            open_day = self._nearest_open(day, search.step, search.effort)
            if open_day is None:
                return None
            edge = open_day if search.is_onward else open_day + _DAY
            at = just_before(start_of(edge, search.tz))
        return None

    def _find_moved(self, search: _Search, at: Instant) -> Instant | None:
        """Find a tick where an open day has its own ticks and those of adjacent closed days."""
        effort, tz = search.effort, search.tz
        day = self._destination(local(at, tz).date(), search.step, effort)
        moved_to = first_moved if search.is_onward else last_moved
        for _ in range(_TRIES):
            if day is None:
                return None
            days = self._days_moved_to(day, effort)
            moved = moved_to(search.schedule, days, day, at, effort)
            if moved is not None:
                return moved
            edge = days[1] + _DAY if search.is_onward else days[0]
            tick = search.tick(just_before(start_of(edge, tz)))
            if tick is None:
                return None
            day = self._destination(local(tick, tz).date(), search.step, effort)
        return None

    def _destination(self, day: date, onward: timedelta, effort: Effort) -> date | None:
        """Return the open day for ticks of a day; if it is too far, the next one `onward`."""
        to = self._nearest_open(day, _DAY if self.on_closed == "next_open" else -_DAY, effort)
        if to is not None and abs(to - day) <= _MOVED_DAYS_MAX * _DAY:
            return to
        return self._nearest_open(day, onward, effort)

    def _nearest_open(self, day: date, step: timedelta, effort: Effort) -> date | None:
        for _ in range(_CLOSED_DAYS_MAX):
            if self.is_open(day, effort):
                return day
            effort.spend(1)
            if not date.min + _DAY < day < date.max - _DAY:
                return None
            day += step
        return None

    def _days_moved_to(self, day: date, effort: Effort) -> Span:
        """Return the first and the last day that move their ticks to this open day."""
        effort.spend(_MOVED_DAYS_MAX // 2)
        known = self.known.get(day)
        if known is None:
            if len(self.known) >= _KNOWN_MAX:
                self.known.clear()
            known = self.known[day] = self._find_days(day, effort)
        return known

    def _find_days(self, day: date, effort: Effort) -> Span:
        step = -_DAY if self.on_closed == "next_open" else _DAY
        last = day
        for _ in range(_MOVED_DAYS_MAX):
            if self.is_open(last + step, effort):
                break
            last += step
        return min(day, last), max(day, last)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `parse` reads."""
        written: dict[str, Any] = {
            "country": self.country,
            "subdivision": self.subdivision,
            "business_days": self.business_days or None,
            "dates": [day.isoformat() for day in self._dates] or None,
            "blackouts": [[to_iso(start), to_iso(end)] for start, end in self._blackouts] or None,
            "on_closed": None if self.on_closed == "skip" else self.on_closed,
        }
        return {key: value for key, value in written.items() if value is not None}

    @classmethod
    def parse(cls, value: object) -> Calendar | None:
        """Parse a calendar from JSON; None stays None."""
        if value is None or isinstance(value, Calendar):
            return value
        if not isinstance(value, Mapping):
            raise InvalidSchedule(
                f"calendar {shown(value)} is not a Calendar, nor an object such as"
                ' {"country": "DE"}',
                field="calendar",
            )
        given = cast("Mapping[str, Any]", value)
        check_keys(given, tuple(one.name for one in fields(cls) if one.init), what="calendar")
        return cls(**given)


def _dates(given: object) -> tuple[date, ...]:
    return tuple(sorted({_date(one) for one in _read_list(given, "dates")}))


def _date(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(cast("str", value))
    except (ValueError, TypeError):
        raise InvalidSchedule(
            f"dates has {shown(value)}; it takes dates such as 2026-12-24", field="dates"
        ) from None


def _blackouts(given: object) -> tuple[tuple[Instant, Instant], ...]:
    windows: set[tuple[Instant, Instant]] = set()
    for one in _read_list(given, "blackouts"):
        pair = _read_list(one, "blackouts")
        if len(pair) != 2:
            raise InvalidSchedule(
                f"blackouts has {shown(one)}; it takes pairs of times, from and until",
                field="blackouts",
            )
        start, end = (parse_moment(edge, what="blackouts") for edge in pair)
        if end <= start:
            raise InvalidSchedule(
                f"a blackout ends at {to_iso(end)}, before it starts", field="blackouts"
            )
        windows.add((start, end))
    return tuple(_merge_windows(sorted(windows)))


def _merge_windows(windows: list[tuple[Instant, Instant]]) -> list[tuple[Instant, Instant]]:
    """Merge windows that touch, so that one bisection finds the right one."""
    merged: list[tuple[Instant, Instant]] = []
    for start, end in windows:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _read_list(given: object, what: str) -> list[object]:
    if not isinstance(given, list | tuple | set | frozenset):
        raise InvalidSchedule(f"{what} {shown(given)} is not a list", field=what)
    items = list(cast("Iterable[object]", given))
    most = BLACKOUTS_MAX if what == "blackouts" else SCHEDULE_DATES_MAX
    if len(items) > most:
        raise InvalidSchedule(
            f"{len(items):,} {what} are too many; the limit is {most:,}", field=what
        )
    return items

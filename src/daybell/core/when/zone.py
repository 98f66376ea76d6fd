"""Zones: conversion between wall clocks and instants, search for ticks within a bounded effort, and
checks that all rules share.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal, NamedTuple, Protocol, cast
from zoneinfo import ZoneInfo

from daybell.core.limits import INSTANT_MAX, NAME_CHARS_MAX, SCHEDULE_EFFORT_MAX
from daybell.core.units import Instant, from_datetime, from_iso
from daybell.errors import InvalidSchedule, UsageError, shown, suggested

Gap = Literal["shift", "skip"]
Fold = Literal["first", "second", "both"]

INSTANT_MIN: Final = -62_135_596_800.0  # the beginning of the year 1, where datetime begins
_CHUNK: Final = 1 << 25  # a bit more than a year: its changes are looked for at once
_PROBE: Final = 6 * 86_400  # no zone has changed its clocks twice in less; some did within a week
_DAY: Final = 86_400
_FOREVER: Final = 1 << 45


class Stretch(NamedTuple):
    """A time without a change of the clocks, `start` to before `end`.

    It owns the wall-clock times from `opens` to before `closes`. Times inside a gap, which no
    clock shows, map to its start.
    """

    start: int
    end: int
    offset: int
    opens: int
    closes: int

    def instant(self, wall: int) -> int:
        """Return the instant of a wall-clock time that this stretch owns."""
        return max(wall - self.offset, self.start)


def stretch_at(instant: int, *, tz: str, gap: Gap, fold: Fold) -> Stretch:
    """Return the stretch that contains an instant."""
    chunk = _stretches(tz, gap, fold, instant // _CHUNK)
    for stretch in chunk:
        if instant < stretch.end:
            return stretch
    raise AssertionError("chunks have no holes")


@lru_cache(maxsize=4096)
def _stretches(tz: str, gap: Gap, fold: Fold, index: int) -> tuple[Stretch, ...]:
    """Return the stretches of one chunk; the last one ends with the chunk, not with a change."""
    zone = zone_named(tz)
    if tz == "UTC":
        return (Stretch(-_FOREVER, _FOREVER, 0, -_FOREVER, _FOREVER),)
    begin, end = index * _CHUNK, (index + 1) * _CHUNK
    starts = [begin, *_changes(zone, begin, end)]
    offsets = [_seconds(_offset(zone, start)) for start in (begin - 1, *starts, end)]
    stretches: list[Stretch] = []
    for number, start in enumerate(starts):
        before, offset, after = offsets[number : number + 3]
        until = starts[number + 1] if number + 1 < len(starts) else end
        # Continue from the old clock in a gap that shifts and in a fold that counts once.
        # Otherwise start at the time that the new clock shows.
        goes_on = (before < offset and gap == "shift") or (before > offset and fold == "first")
        gives_up = offset > after and fold == "second"
        stretches.append(
            Stretch(
                start,
                until,
                offset,
                opens=start + (before if goes_on else offset),
                closes=until + (after if gives_up else offset),
            )
        )
    return tuple(stretches)


def _changes(zone: ZoneInfo, begin: int, end: int) -> list[int]:
    """List the instants after `begin` and before `end` at which the offset changes."""
    changes: list[int] = []
    before, last = _offset(zone, begin), begin
    for probe in (*range(begin + _PROBE, end, _PROBE), end):
        now = _offset(zone, probe)
        if now != before:
            low, high = last, probe
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == before:
                    low = middle
                else:
                    high = middle
            if high < end:
                changes.append(high)
            before = now
        last = probe
    return changes


def _offset(zone: ZoneInfo, instant: int) -> timedelta | None:
    # Keep a day from both ends of the calendar: a local time must not leave it.
    safe = min(max(instant, INSTANT_MIN + _DAY), INSTANT_MAX - _DAY)
    return datetime.fromtimestamp(safe, zone).utcoffset()


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """Return the zone of an IANA name, or raise with a suggestion."""
    try:
        # The operating system may know more names, such as "localtime" and "right/…". Only the
        # names of tzdata mean the same on every machine.
        if name not in _zone_names().values():
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        pass
    likely = _likely_zone(name)
    hint = f"did you mean {likely!r}?" if likely else "zones are named like 'Europe/Berlin'"
    raise InvalidSchedule(f"there is no time zone {shown(name)}; {hint}", field="tz")


def _likely_zone(name: str) -> str | None:
    """Suggest a zone: the last part alone, another spelling, or a similar name."""
    known = _zone_names()
    wanted = name[:NAME_CHARS_MAX].strip().replace(" ", "_").casefold()
    if wanted in known:
        return known[wanted]
    for folded, proper in known.items():
        if folded.rpartition("/")[2] == wanted:
            return proper
    if len(wanted) > 40:
        return None
    first = [one for one in known if one[:1] == wanted[:1]]  # bounds the comparison
    close = difflib.get_close_matches(wanted, first, n=1, cutoff=0.7)
    return known[close[0]] if close else None


@lru_cache(maxsize=1)
def _zone_names() -> dict[str, str]:
    text = (resources.files("tzdata") / "zones").read_text()
    return {name.casefold(): name for name in text.split()}


def just_before(instant: Instant) -> Instant:
    """Return the greatest float below an instant."""
    return math.nextafter(instant, -math.inf)


def local(instant: Instant, tz: str) -> datetime:
    """Return the wall-clock time of an instant in a zone, with its offset."""
    return datetime.fromtimestamp(instant, zone_named(tz))


def instant_of(wall: datetime, tz: str) -> Instant:
    """Return the instant of a wall-clock time: in a gap its end, in a fold the first of two."""
    seconds = round((wall.replace(tzinfo=UTC) - _EPOCH).total_seconds(), 6)
    whole = int(seconds // 1)
    stretch = stretch_at(whole - 2 * _DAY, tz=tz, gap="shift", fold="first")
    while whole >= stretch.closes:
        stretch = stretch_at(stretch.end, tz=tz, gap="shift", fold="first")
    return max(float(stretch.start), seconds - stretch.offset)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


# Effort limits the cost of a search for ticks. All parts of a union and all retries of a calendar
# share one `Effort`. A unit is about a microsecond. It is counted, not measured, so that every
# machine accepts the same schedules.


class Effort:
    """The remaining effort of one query to a schedule."""

    __slots__ = ("_paid", "left")

    def __init__(self, most: int = SCHEDULE_EFFORT_MAX) -> None:
        self.left = most
        self._paid: set[Hashable] | None = None

    def spend(self, cost: int) -> None:
        """Spend effort; raises InvalidSchedule when none is left."""
        self.left -= cost
        if self.left < 0:
            raise InvalidSchedule(
                "the next time of this schedule takes too long to find, if there is one: its times"
                " are too rare, or too many of them are closed or excluded. Use fewer parts, or a"
                " simpler rule",
                field="schedule",
            )

    def spend_once(self, what: Hashable, cost: int) -> None:
        """Spend effort on a cached result: the first use in a query pays, later ones are free."""
        if self._paid is None:
            self._paid = set()
        if what not in self._paid:
            self._paid.add(what)
            self.spend(cost)


# From wall-clock times to ticks: the next and the previous one, where clocks may change.

_FAR_COST: Final = 200  # reading the clock changes of another year

Wall = int  # seconds since 1970 on the wall clock, without offset


class WallTimes(Protocol):
    """An ordered set of wall-clock times."""

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the first time later than `wall`."""
        ...

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        """Return the last time that is not later than `wall`."""
        ...


def tick_after(
    times: WallTimes, after: Instant, *, tz: str, gap: Gap, fold: Fold, effort: Effort
) -> Instant | None:
    """Return the first instant later than `after` at which the clock shows one of the times."""
    second = math.floor(after)
    stretch = stretch_at(second, tz=tz, gap=gap, fold=fold)
    wall = max(second + stretch.offset, stretch.opens - 1)
    while True:
        found = times.after(wall, effort)
        if found is None:
            return None
        if found < stretch.closes:
            return float(stretch.instant(found))
        following = stretch_at(stretch.end, tz=tz, gap=gap, fold=fold)
        if following.opens > wall:  # the following stretch repeats none of the skipped times
            effort.spend(_FAR_COST)
            far = stretch_at(found - stretch.offset, tz=tz, gap=gap, fold=fold)
            if far.opens <= found < far.closes:
                return float(far.instant(found))
        stretch, wall = following, following.opens - 1


def tick_until(
    times: WallTimes, until: Instant, *, tz: str, gap: Gap, fold: Fold, effort: Effort
) -> Instant | None:
    """Return the last such instant that is not later than `until`."""
    second = math.floor(until)
    stretch = stretch_at(second, tz=tz, gap=gap, fold=fold)
    wall = min(second + stretch.offset, stretch.closes - 1)
    while True:
        found = times.until(wall, effort)
        if found is None:
            return None
        if found >= stretch.opens:
            return float(stretch.instant(found))
        preceding = stretch_at(stretch.start - 1, tz=tz, gap=gap, fold=fold)
        if preceding.closes <= wall + 1:
            effort.spend(_FAR_COST)
            far = stretch_at(found - stretch.offset, tz=tz, gap=gap, fold=fold)
            if far.opens <= found < far.closes:
                return float(far.instant(found))
        stretch, wall = preceding, preceding.closes - 1


# Checks shared by all kinds of schedules: keys, choices and times.

Moment = Instant | int | str | datetime  # accepted forms of a time


def check_keys(given: Mapping[str, object], allowed: tuple[str, ...], *, what: str) -> None:
    """Reject unknown keys, so that a typo does not become a default."""
    for key in given:
        if key not in allowed:
            hint = suggested(key, allowed, otherwise=f"it takes {', '.join(allowed)}")
            raise InvalidSchedule(f"{what} has no {shown(key)}; {hint}", field=str(key))


def nearest(key: object, among: Sequence[str]) -> str:
    """Return the most similar word, or an empty string."""
    close = difflib.get_close_matches(str(key)[:NAME_CHARS_MAX], among, n=1)
    return close[0] if close else ""


def choice(value: object, among: tuple[str, ...], *, what: str) -> str:
    """Return `value` if it is one of the words, else raise."""
    if not isinstance(value, str) or value not in among:
        raise InvalidSchedule(f"{what} {shown(value)} is not one of {', '.join(among)}", field=what)
    return value


def read_dst(value: object) -> dict[str, Any]:
    """Read the rules for times that a change of the clocks leaves out or repeats."""
    if not isinstance(value, Mapping):
        raise InvalidSchedule(
            f'dst {shown(value)} is not an object such as {{"gap": "skip", "fold": "both"}}',
            field="dst",
        )
    given = cast("Mapping[str, Any]", value)
    check_keys(given, ("gap", "fold"), what="dst")
    return dict(given)


def parse_moment(value: object, *, what: str, tz: str | None = None) -> Instant:
    """Parse a time. Text without an offset needs `tz`, the zone of its clock."""
    try:
        if isinstance(value, str):
            moment = _wall_clock(value) if tz is not None else None
            instant = from_iso(value) if moment is None else instant_of(moment, tz or "UTC")
        elif isinstance(value, datetime):
            instant = from_datetime(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            instant = float(value)
        else:
            raise UsageError(f"{shown(value)} is not a time")
    except (UsageError, OverflowError) as error:
        raise InvalidSchedule(f"{what}: {error}", field=what) from None
    if not INSTANT_MIN + 86_400 <= instant <= INSTANT_MAX - 86_400:  # false for NaN, too
        raise InvalidSchedule(
            f"{what} {shown(value)} is not a time from 0001-01-02 to 9999-12-30", field=what
        )
    return round(instant, 6)


def _wall_clock(text: str) -> datetime | None:
    """Parse text without an offset; None if it has one or is not a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None

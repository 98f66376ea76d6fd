"""Wall clocks and instants: what a zone does to times, cut into stretches of one offset.

Between two changes of the clocks, instant and wall clock differ by a constant. A `Stretch` is such
a piece of time; it also says which wall-clock times belong to it under a rule for the times that do
not exist, or exist twice, so that finding the next time is finding it on the wall clock and then
subtracting.
"""

from __future__ import annotations

import difflib
import math
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from daybell.core.instant import Instant
from daybell.core.limits import INSTANT_MAX, NAME_CHARS_MAX
from daybell.errors import InvalidSchedule, shown

Gap = Literal["shift", "skip"]
Fold = Literal["first", "second", "both"]

INSTANT_MIN: Final = -62_135_596_800.0  # the beginning of the year 1, where datetime begins
_CHUNK: Final = 1 << 25  # a bit more than a year: its changes are looked for at once
_PROBE: Final = 6 * 86_400  # nobody has changed the clocks twice in less: some went back in a week
_DAY: Final = 86_400
_FOREVER: Final = 1 << 45


class Stretch(NamedTuple):
    """A time without a change of the clocks, `start` to before `end`.

    It owns the wall-clock times from `opens` to before `closes`. Those of a gap, which its own
    clock never shows, happen at its start.
    """

    start: int
    end: int
    offset: int
    opens: int
    closes: int

    def instant(self, wall: int) -> int:
        """When one of its own times is."""
        return max(wall - self.offset, self.start)


def stretch_at(instant: int, *, tz: str, gap: Gap, fold: Fold) -> Stretch:
    """The stretch that an instant lies in."""
    chunk = _stretches(tz, gap, fold, instant // _CHUNK)
    for stretch in chunk:
        if instant < stretch.end:
            return stretch
    raise AssertionError("a chunk covers its time")


@lru_cache(maxsize=4096)
def _stretches(tz: str, gap: Gap, fold: Fold, index: int) -> tuple[Stretch, ...]:
    """The stretches of one chunk; they end with it, which is then no change of the clocks."""
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
        # Wall times go on from where the old clock stopped: those of a gap come at once, those of
        # a fold were had. Otherwise they begin with what the new clock shows.
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
    """The instants in `begin` to `end` from which on another offset is valid, `begin` excluded."""
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
    # A day from both ends of the calendar, where a local time could fall off it.
    safe = min(max(instant, INSTANT_MIN + _DAY), INSTANT_MAX - _DAY)
    return datetime.fromtimestamp(safe, zone).utcoffset()


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """The zone of an IANA name; a wrong one is refused, with one that may be meant."""
    try:
        # A machine may have more: its own "localtime", and "right/…", where seconds are counted
        # that no clock shows. The same name has to mean the same on every node.
        if name not in _zone_names().values():
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        pass
    likely = _likely_zone(name)
    hint = f"did you mean {likely!r}?" if likely else "zones are named like 'Europe/Berlin'"
    raise InvalidSchedule(f"there is no time zone {shown(name)}; {hint}", field="tz")


def _likely_zone(name: str) -> str | None:
    """A zone that may be meant: its last part alone, in other letters, or nearly."""
    known = _zone_names()
    wanted = name[:NAME_CHARS_MAX].strip().replace(" ", "_").casefold()
    if wanted in known:
        return known[wanted]
    for folded, proper in known.items():
        if folded.rpartition("/")[2] == wanted:
            return proper
    if len(wanted) > 40:
        return None
    first = [one for one in known if one[:1] == wanted[:1]]  # few enough to compare by letters
    close = difflib.get_close_matches(wanted, first, n=1, cutoff=0.7)
    return known[close[0]] if close else None


@lru_cache(maxsize=1)
def _zone_names() -> dict[str, str]:
    text = (resources.files("tzdata") / "zones").read_text()
    return {name.casefold(): name for name in text.split()}


def just_before(instant: Instant) -> Instant:
    """The last instant before another, as far as numbers can tell."""
    return math.nextafter(instant, -math.inf)


def local(instant: Instant, tz: str) -> datetime:
    """What the clock of a zone shows, with its offset."""
    return datetime.fromtimestamp(instant, zone_named(tz))


def instant_of(wall: datetime, tz: str) -> Instant:
    """When a clock shows a time; in a gap the first instant after it, the first of two."""
    seconds = round((wall.replace(tzinfo=UTC) - _EPOCH).total_seconds(), 6)
    whole = int(seconds // 1)
    stretch = stretch_at(whole - 2 * _DAY, tz=tz, gap="shift", fold="first")
    while whole >= stretch.closes:
        stretch = stretch_at(stretch.end, tz=tz, gap="shift", fold="first")
    return max(float(stretch.start), seconds - stretch.offset)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

"""Intervals: elapsed time, whatever clocks show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, Unpack

from daybell.core.duration import Duration, format_duration, parse_duration
from daybell.core.instant import Instant, Seconds, to_iso
from daybell.core.limits import EVERY_MILLISECONDS_MIN
from daybell.core.when.checks import Moment, choice, parse_moment
from daybell.core.when.effort import Effort
from daybell.core.when.options import Options, settled
from daybell.core.when.rule import Schedule
from daybell.errors import InvalidSchedule, shown

Mode = Literal["rate", "delay"]
MODES: Final = ("rate", "delay")
_MICRO: Final = 1_000_000
_DAY_MICRO: Final = 86_400 * _MICRO
_COST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(Schedule):
    """A fixed rate, aligned to `anchor`, or a fixed delay after the execution before has ended."""

    period: Seconds
    mode: Mode = "rate"
    anchor: Instant = 0.0

    @property
    def delay(self) -> Seconds | None:
        return self.period if self.mode == "delay" else None

    @property
    def is_same_daily(self) -> bool:
        return self.mode == "rate" and _DAY_MICRO % round(self.period * _MICRO) == 0

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        if self.mode == "delay":
            return after + self.period
        effort.spend(_COST)
        index = self._index(after)
        near = (self._tick(index), self._tick(index + 1), self._tick(index + 2))
        return next(tick for tick in near if tick > after)

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        if self.mode == "delay":
            return None  # where its ticks were is known to those who ran them
        effort.spend(_COST)
        index = self._index(until)
        near = (self._tick(index + 1), self._tick(index), self._tick(index - 1))
        return next(tick for tick in near if tick <= until)

    # Counted in whole microseconds: a sum of fractions would drift. An instant may still be rounded
    # to either side of a tick, which is why its neighbours are looked at, too.

    def _index(self, instant: Instant) -> int:
        since = round(instant * _MICRO) - round(self.anchor * _MICRO)
        return since // round(self.period * _MICRO)

    def _tick(self, index: int) -> Instant:
        return (round(self.anchor * _MICRO) + index * round(self.period * _MICRO)) / _MICRO

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"every": format_duration(self.period)}
        if self.mode != "rate":
            own["mode"] = self.mode
        if self.anchor:
            own["anchor"] = to_iso(self.anchor)
        return own


def every(
    period: Duration,
    *,
    mode: Mode = "rate",
    anchor: Moment | None = None,
    **options: Unpack[Options],
) -> Every:
    """Again and again, `period` apart.

    By default a fixed rate: ticks are `anchor` (1970-01-01 UTC unless given) plus multiples of the
    period, so that "15m" means the quarters of an hour, on every node and after every restart.
    With `mode="delay"`, the time from the end of one execution to the start of the next. Both are
    elapsed time: "1d" is 24 hours even when a day has 23; `cron` and `rrule` follow the calendar.
    """
    common = settled(options)
    seconds = parse_duration(period, what="every")
    if seconds * 1000 < EVERY_MILLISECONDS_MIN:
        raise InvalidSchedule(
            f"every {shown(period)} is too often; the least is {EVERY_MILLISECONDS_MIN} ms",
            field="every",
        )
    choice(mode, MODES, what="mode")
    at = 0.0 if anchor is None else parse_moment(anchor, what="anchor", tz=options.get("tz"))
    # Anchors that make the same ticks are the same.
    aligned = math.fmod(round(at * _MICRO), round(seconds * _MICRO)) / _MICRO
    if aligned < 0:
        aligned += seconds
    return Every(period=seconds, mode=mode, anchor=round(aligned, 6), **common)

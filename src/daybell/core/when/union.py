"""Several schedules as one: the ticks of any of them, without those of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final, Unpack

from daybell.core.instant import Instant
from daybell.core.limits import SCHEDULE_PARTS_MAX
from daybell.core.when.after import After
from daybell.core.when.at import Manual, Reboot
from daybell.core.when.cron import Cron
from daybell.core.when.effort import Effort
from daybell.core.when.options import Options, settled
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import instant_of, just_before, local
from daybell.errors import InvalidSchedule, shown

_EXCLUDED_MAX: Final = 600  # spans in a row that may be excluded
_DAYS_COST: Final = 20  # of days in a row that are excluded; a month costs about 3 more
_DAY: Final = timedelta(days=1)
_ALL_MINUTES: Final = (1 << 60) - 1
_ALL_HOURS: Final = (1 << 24) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Schedule):
    """The ticks of `parts`, each once, without those that `excluded` covers."""

    parts: tuple[Schedule, ...]
    excluded: tuple[Schedule, ...] = ()

    @property
    def is_hashed(self) -> bool:
        return any(part.is_hashed for part in (*self.parts, *self.excluded))

    def bind(self, name: str) -> Schedule:
        if not self.is_hashed:
            return self
        return self.replaced(
            parts=tuple(part.bind(name) for part in self.parts),
            excluded=tuple(part.bind(name) for part in self.excluded),
        )

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        found = [part.next_after(after, effort=effort) for part in self.parts]
        for _ in range(_EXCLUDED_MAX):
            tick = min((one for one in found if one is not None), default=None)
            if tick is None:
                return None
            spans = [span for one in self.excluded if (span := _covered(one, tick, effort))]
            if not spans:
                return tick
            end = max(end for _, end in spans)
            # Only those parts are asked again whose tick was passed over.
            for place, part in enumerate(self.parts):
                if (one := found[place]) is not None and one < end:
                    found[place] = part.next_after(just_before(end), effort=effort)
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        found = [part.previous_until(until, effort=effort) for part in self.parts]
        for _ in range(_EXCLUDED_MAX):
            tick = max((one for one in found if one is not None), default=None)
            if tick is None:
                return None
            spans = [span for one in self.excluded if (span := _covered(one, tick, effort))]
            if not spans:
                return tick
            start = min(start for start, _ in spans)
            for place, part in enumerate(self.parts):
                if (one := found[place]) is not None and one >= start:
                    found[place] = part.previous_until(just_before(start), effort=effort)
        return None

    def own_fields(self) -> dict[str, Any]:
        own: dict[str, Any] = {"any": [part.to_dict() for part in self.parts]}
        if self.excluded:
            own["except"] = [part.to_dict() for part in self.excluded]
        return own


def any_of(
    *parts: Schedule,
    excluding: Schedule | tuple[Schedule, ...] | list[Schedule] = (),
    **options: Unpack[Options],
) -> Union:
    """One schedule with the ticks of several; the same as `a | b`, and `a - b` to exclude.

    A cron expression excludes all of each minute that it matches, or of each second if it has a
    field for them; `* * 25 12 *` is a whole day. Other schedules exclude the very instants. A union
    has its own options, and the zone of its first part unless given.
    """
    excluded = (excluding,) if isinstance(excluding, Schedule) else tuple(excluding)
    flat: list[Schedule] = []
    for part in parts:
        if isinstance(part, Union) and part == Union(parts=part.parts, tz=part.tz):
            flat += part.parts
        else:
            flat.append(part)
    if not flat:
        raise InvalidSchedule("a union of no schedules never fires", field="any")
    for part in (*flat, *excluded):
        _check_part(part)
    check_size(sum(_size(part) for part in (*flat, *excluded)))
    common = settled({"tz": flat[0].tz, **options})
    return Union(parts=_ordered(flat), excluded=_ordered(excluded), **common)


def check_size(count: int) -> None:
    """Refuse a union of too many schedules."""
    if count > SCHEDULE_PARTS_MAX:
        raise InvalidSchedule(
            f"{count:,} schedules are too many for a union; the limit is {SCHEDULE_PARTS_MAX}",
            field="any",
        )


def _size(part: Schedule) -> int:
    """How many schedules a part consists of, if it is a union itself."""
    members = (*part.parts, *part.excluded) if isinstance(part, Union) else ()
    return sum(_size(one) for one in members) or 1


def _ordered(parts: list[Schedule] | tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    """In one order and each once, because the order says nothing."""
    return tuple(sorted(set(parts), key=Schedule.to_json))


def _check_part(part: object) -> None:
    if not isinstance(part, Schedule):
        raise InvalidSchedule(f"{shown(part)} is not a schedule", field="any")
    if part.delay is not None or isinstance(part, Reboot | Manual | After):
        raise InvalidSchedule(
            f"{shown(part.to_json())} has no times of its own, so it cannot be part of a union",
            field="any",
        )
    if part.jitter is not None or part.max_executions is not None:
        raise InvalidSchedule(
            "jitter and max_executions belong to the union, not to a part of it", field="any"
        )


def _covered(excluded: Schedule, tick: Instant, effort: Effort) -> tuple[Instant, Instant] | None:
    """The span around a tick that is excluded with it; None: it is not excluded."""
    if not isinstance(excluded, Cron):
        is_hit = excluded.previous_until(tick, effort=effort) == tick
        return (tick, math.nextafter(tick, math.inf)) if is_hit else None
    pattern = excluded.pattern
    has_seconds = pattern.seconds != 1
    minute = tick // 60 * 60
    until = math.floor(tick) if has_seconds else minute
    if excluded.previous_until(until, effort=effort) not in (tick, minute):
        return None
    if has_seconds:
        return tick, math.nextafter(tick, math.inf)
    if pattern.minutes != _ALL_MINUTES or excluded.calendar:
        return minute, minute + 60
    start, end = _days_or_hour(excluded, minute, effort)
    if excluded.start_at is not None:
        start = max(start, math.ceil(excluded.start_at / 60) * 60)
    if excluded.end_at is not None:
        end = min(end, excluded.end_at // 60 * 60 + 60)
    return start, end


def _days_or_hour(excluded: Cron, minute: Instant, effort: Effort) -> tuple[Instant, Instant]:
    """What is excluded around a minute by an expression for all minutes of its hours."""
    tz = excluded.tz
    clock = local(minute, tz)
    if excluded.pattern.hours == _ALL_HOURS:
        first, last = excluded.pattern.days_around(clock.date())
        effort.spend(_DAYS_COST + (last - first).days // 8)
        return _start(first, tz), _start(last + _DAY, tz)
    start = minute - clock.minute * 60
    if {local(edge, tz).utcoffset() for edge in (start, start + 3599)} == {clock.utcoffset()}:
        return start, start + 3600
    return minute, minute + 60


def _start(day: date, tz: str) -> Instant:
    return instant_of(datetime.combine(day, time.min), tz)

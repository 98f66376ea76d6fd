"""Several schedules as one: the ticks of any of them, without those of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Unpack

from daybell.core.instant import Instant
from daybell.core.limits import SCHEDULE_PARTS_MAX
from daybell.core.when.at import Manual, Reboot
from daybell.core.when.cron import Cron
from daybell.core.when.options import Options, settled
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import instant_of, just_before, local
from daybell.errors import InvalidSchedule, shown

_EXCLUDED_MAX: Final = 600  # spans in a row that may be excluded; fewer, the more parts there are
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

    def tick_after(self, after: Instant) -> Instant | None:
        for _ in range(self._tries):
            found = [part.next_after(after) for part in self.parts]
            tick = min((one for one in found if one is not None), default=None)
            if tick is None:
                return None
            spans = [span for one in self.excluded if (span := _covered(one, tick))]
            if not spans:
                return tick
            after = just_before(max(end for _, end in spans))
        return None

    def tick_until(self, until: Instant) -> Instant | None:
        for _ in range(self._tries):
            found = [part.previous_until(until) for part in self.parts]
            tick = max((one for one in found if one is not None), default=None)
            if tick is None:
                return None
            spans = [span for one in self.excluded if (span := _covered(one, tick))]
            if not spans:
                return tick
            until = just_before(min(start for start, _ in spans))
        return None

    @property
    def _tries(self) -> int:
        return max(20, _EXCLUDED_MAX // len(self.parts + self.excluded) * 2)

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
    check_size(len(flat) + len(excluded))
    for part in (*flat, *excluded):
        _check_part(part)
    common = settled({"tz": flat[0].tz, **options})
    return Union(parts=_ordered(flat), excluded=_ordered(excluded), **common)


def check_size(count: int) -> None:
    """Refuse a union of too many schedules."""
    if count > SCHEDULE_PARTS_MAX:
        raise InvalidSchedule(
            f"{count:,} schedules are too many for a union; the limit is {SCHEDULE_PARTS_MAX}",
            field="any",
        )


def _ordered(parts: list[Schedule] | tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    """In one order and each once, because the order says nothing."""
    return tuple(sorted(set(parts), key=Schedule.to_json))


def _check_part(part: object) -> None:
    if not isinstance(part, Schedule):
        raise InvalidSchedule(f"{shown(part)} is not a schedule", field="any")
    if part.delay is not None or isinstance(part, Reboot | Manual):
        raise InvalidSchedule(
            f"{shown(part.to_json())} has no times of its own, so it cannot be part of a union",
            field="any",
        )
    if part.jitter is not None or part.max_executions is not None:
        raise InvalidSchedule(
            "jitter and max_executions belong to the union, not to a part of it", field="any"
        )


def _covered(excluded: Schedule, tick: Instant) -> tuple[Instant, Instant] | None:
    """The span around a tick that is excluded with it; None: it is not excluded."""
    if not isinstance(excluded, Cron):
        is_hit = excluded.previous_until(tick) == tick
        return (tick, math.nextafter(tick, math.inf)) if is_hit else None
    pattern = excluded.pattern
    has_seconds = pattern.seconds != 1
    minute = tick // 60 * 60
    if excluded.previous_until(math.floor(tick) if has_seconds else minute) not in (tick, minute):
        return None
    if has_seconds:
        return tick, math.nextafter(tick, math.inf)
    if pattern.minutes != _ALL_MINUTES or excluded.calendar or excluded.end_at:
        return minute, minute + 60
    clock = local(tick, excluded.tz).replace(tzinfo=None, minute=0, second=0, microsecond=0)
    if pattern.hours != _ALL_HOURS:
        hour = minute - minute % 3600
        return (hour, hour + 3600) if clock.minute == 0 else (minute, minute + 60)
    day = clock.replace(hour=0)
    return instant_of(day, excluded.tz), instant_of(day + timedelta(days=1), excluded.tz)

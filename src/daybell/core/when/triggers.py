"""Simple rules: intervals, single times, manual, after other jobs, and unions of rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar, Final, Literal, Protocol, Unpack, cast

from daybell.core.limits import (
    DEPENDENCIES_MAX,
    EVERY_MILLISECONDS_MIN,
    SCHEDULE_PARTS_MAX,
    check_name,
)
from daybell.core.units import Duration, Instant, Seconds, format_duration, parse_duration, to_iso
from daybell.core.when.cron import Cron
from daybell.core.when.rule import Options, Schedule, resolve_options
from daybell.core.when.zone import (
    Effort,
    Moment,
    choice,
    instant_of,
    just_before,
    local,
    parse_moment,
)
from daybell.errors import InvalidName, InvalidSchedule, shown

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
    common = resolve_options(options)
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


# Schedules with at most one tick: at a time, when a scheduler comes back, or by hand alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Schedule):
    """Once."""

    time: Instant

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return self.time if self.time > after else None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return self.time if self.time <= until else None

    def own_fields(self) -> dict[str, Any]:
        return {"at": to_iso(self.time)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot(Schedule):
    """`@reboot`: once when a scheduler takes over and none was alive; time has no part in it."""

    is_reboot: ClassVar[bool] = True

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return None

    def own_fields(self) -> dict[str, Any]:
        return {"cron": "@reboot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual(Schedule):
    """Never by itself."""

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return None

    def own_fields(self) -> dict[str, Any]:
        return {"manual": True}


def at(time: Moment, **options: Unpack[Options]) -> At:
    """Once at this time: a datetime with a zone, ISO 8601 with an offset, or seconds since 1970.

    With `tz`, a text without an offset is what clocks show there.
    """
    common = resolve_options(options)
    return At(time=parse_moment(time, what="at", tz=options.get("tz")), **common)


# After others: a schedule whose time comes when jobs have succeeded, whatever the clock says.

# How its JSON begins. The names of many jobs may be longer than other schedules.
JSON_START: Final = ('{"after":', '{"after_any":')


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Schedule):
    """When each of these jobs has succeeded since the last time, or any of them."""

    jobs: tuple[str, ...]
    is_any: bool = False

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return None

    def own_fields(self) -> dict[str, Any]:
        return {"after_any" if self.is_any else "after": list(self.jobs)}


class Named(Protocol):
    """A job in hand, such as a task."""

    @property
    def name(self) -> str: ...


Dependency = str | Named


def name_of(job: Dependency) -> str:
    """A job's name, which is what is kept of it."""
    return job if isinstance(job, str) else getattr(job, "name", cast("Any", job))


def after(*jobs: Dependency) -> After:
    """When each of these jobs has succeeded since the last time: `after("extract", "load")`."""
    return After(jobs=_names(jobs, "after"))


def after_any(*jobs: Dependency) -> After:
    """When any of these jobs has succeeded since the last time: `after_any("orders", "returns")`.

    Unlike `after`, it may stand in a list beside other schedules, each of which fires the job.
    """
    return After(jobs=_names(jobs, "after_any"), is_any=True)


def _names(jobs: Sequence[Dependency], what: str) -> tuple[str, ...]:
    if not jobs:
        raise InvalidSchedule(
            f'{what} needs the name of at least one job, such as {what}("extract")', field=what
        )
    if len(jobs) > DEPENDENCIES_MAX:
        raise InvalidSchedule(
            f"{what} names {len(jobs):,} jobs; the limit is {DEPENDENCIES_MAX:,}", field=what
        )
    try:
        return tuple(dict.fromkeys(check_name(name_of(job), what="job") for job in jobs))
    except InvalidName as error:
        raise InvalidSchedule(f"{what}: {error}", field=what) from None


def read_after(value: object, *, is_any: bool = False) -> After:
    """Read what `{"after": …}` or `{"after_any": …}` has: a name, or a list of them."""
    what, read = ("after_any", after_any) if is_any else ("after", after)
    if isinstance(value, str):
        return read(value)
    if not isinstance(value, list | tuple):
        raise InvalidSchedule(
            f'{what} {shown(value)} must be a list of names, such as ["extract"]', field=what
        )
    return read(*cast("Iterable[str]", value))


# Several schedules as one: the ticks of any of them, without those of others.

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
    common = resolve_options({"tz": flat[0].tz, **options})
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

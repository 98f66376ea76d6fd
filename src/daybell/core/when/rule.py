"""The base class of all schedules, its options, and the simple kinds of schedules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Final, Literal, Protocol, Self, TypedDict, Unpack, cast

from daybell.core.limits import (
    DEPENDENCIES_MAX,
    EVERY_MILLISECONDS_MIN,
    EXECUTIONS_MAX,
    INSTANT_MAX,
    SCHEDULE_EFFORT_MAX,
    SCHEDULE_PARTS_MAX,
    check_name,
)
from daybell.core.units import Duration, Instant, Seconds, format_duration, parse_duration, to_iso
from daybell.core.when.calendar import Calendar
from daybell.core.when.zone import (
    INSTANT_MIN,
    Effort,
    Moment,
    check_keys,
    choice,
    just_before,
    local,
    parse_moment,
    zone_named,
)
from daybell.errors import InvalidName, InvalidSchedule, shown

_LISTED_COST: Final = 300  # allowed for each tick of a preview; most take 5


class Language(Protocol):
    """The text forms of all kinds of schedules: `core/when/language.py`."""

    def read(self, value: object, *, now: Instant | None = None) -> Schedule: ...

    def read_json(self, text: str) -> Schedule: ...

    def describe(self, schedule: Schedule) -> str: ...

    def list_warnings(self, schedule: Schedule) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule: a value that can be compared, hashed and written as JSON.

    Its *ticks* are nominal times, derived from the schedule alone and equal on every machine. A
    kind of schedule defines its ticks with `tick_after` and `tick_until`; start, end and calendar
    apply to all kinds.
    """

    tz: str = "UTC"
    jitter: Seconds | None = None  # the largest delay of a tick: see `jitter_of`
    start_at: Instant | None = None  # no tick is earlier
    end_at: Instant | None = None  # no tick is later
    max_executions: int | None = None
    calendar: Calendar | None = None

    language: ClassVar[Language]  # set when the package is imported
    is_reboot: ClassVar[bool] = False  # fires when a leader starts after an outage
    has_times: ClassVar[bool] = True  # False: something else than time fires it

    @property
    def delay(self) -> Seconds | None:
        """The time from the end of an execution to the next one; None without a fixed delay."""
        return None

    @property
    def listens_to(self) -> str | None:
        """The name of the events that fire it; None if something else does."""
        return None

    def accepts(self, data: Any) -> bool:
        """Return True if an event with this data fires it."""
        del data
        return False

    @property
    def is_hashed(self) -> bool:
        """True if it has an H, which depends on the name that it is bound to."""
        return False

    @property
    def is_same_daily(self) -> bool:
        """True if days with ticks have the same times, unless clocks change."""
        return False

    def bind(self, name: str) -> Schedule:
        """Replace each H with its value for a name, which is that of the tenant and the job."""
        return self

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        """Return the first tick of this kind later than `after`; by default there are none."""
        return None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        """Return the last tick of this kind that is not later than `until`."""
        return None

    def next_after(self, after: Instant, *, effort: Effort | None = None) -> Instant | None:
        """Return the first tick later than `after`; None: there is none.

        Raises InvalidSchedule if the search exceeds the effort of one query.
        """
        if self.start_at is not None and after < self.start_at:
            after = just_before(self.start_at)
        after = max(after, INSTANT_MIN)
        effort = effort or Effort()
        tick = (
            self.tick_after(after, effort)
            if self.calendar is None
            else self.calendar.tick_after(self, after, effort)
        )
        if tick is None or tick > (INSTANT_MAX if self.end_at is None else self.end_at):
            return None
        return tick

    def previous_until(self, until: Instant, *, effort: Effort | None = None) -> Instant | None:
        """Return the last tick that is not later than `until`; None: there was none."""
        if self.end_at is not None and until > self.end_at:
            until = self.end_at
        until = min(until, INSTANT_MAX)
        effort = effort or Effort()
        tick = (
            self.tick_until(until, effort)
            if self.calendar is None
            else self.calendar.tick_until(self, until, effort)
        )
        if tick is None or tick < (INSTANT_MIN if self.start_at is None else self.start_at):
            return None
        return tick

    def latest(
        self, at_or_before: Instant, after: Instant, *, effort: Effort | None = None
    ) -> Instant | None:
        """Return the last tick later than `after` and not later than `at_or_before`.

        The cost does not depend on their distance.
        """
        tick = self.previous_until(at_or_before, effort=effort)
        return None if tick is None or tick <= after else tick

    def ticks(self, after: Instant, *, effort: Effort | None = None) -> Iterator[Instant]:
        """Yield all ticks later than `after`, possibly without end. `effort` covers all."""
        tick = self.next_after(after, effort=effort)
        while tick is not None:
            yield tick
            tick = self.next_after(tick, effort=effort)

    def excluded_span(self, tick: Instant, effort: Effort) -> tuple[Instant, Instant] | None:
        """Return the span around a tick that this schedule excludes from a union.

        None: it does not exclude the tick.
        """
        is_hit = self.previous_until(tick, effort=effort) == tick
        return (tick, math.nextafter(tick, math.inf)) if is_hit else None

    def preview(self, count: int, after: Instant) -> list[datetime]:
        """List the next ticks as wall-clock times of the schedule's zone.

        A schedule with ticks that are expensive to find may list fewer, but at least one.
        """
        left = count if self.max_executions is None else min(count, self.max_executions)
        effort = Effort(SCHEDULE_EFFORT_MAX + count * _LISTED_COST)
        found: list[datetime] = []
        try:
            for tick in islice(self.ticks(after, effort=effort), left):
                found.append(local(tick, self.tz))
        except InvalidSchedule:
            if not found:
                raise
        return found

    def jitter_of(self, tick: Instant, name: str) -> Seconds:
        """Return the delay of a tick: the same for the same name and tick, everywhere.

        It is at most `jitter`, and never reaches the next tick.
        """
        if not self.jitter:
            return 0.0
        following = self.bind(name).next_after(tick)
        room = self.jitter if following is None else min(self.jitter, following - tick)
        digest = sha256(f"{tick!r}\0{name}".encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:6], "big") / (1 << 48) * room

    def describe(self) -> str:
        """Describe the schedule in plain English."""
        return self.language.describe(self)

    def warnings(self) -> list[str]:
        """List likely mistakes in a valid schedule."""
        return self.language.list_warnings(self)

    def own_fields(self) -> dict[str, Any]:
        """Return the JSON fields of this kind alone."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `Schedule.parse` reads, without defaults."""
        fields: dict[str, Any] = {
            "tz": None if self.tz == "UTC" else self.tz,
            "jitter": self.jitter,
            "start_at": None if self.start_at is None else to_iso(self.start_at),
            "end_at": None if self.end_at is None else to_iso(self.end_at),
            "max_executions": self.max_executions,
            "calendar": None if self.calendar is None else self.calendar.to_dict(),
        }
        return self.own_fields() | {
            key: value for key, value in fields.items() if value is not None
        }

    def to_json(self) -> str:
        """Return the canonical text: equal schedules have equal texts."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Parse the text of `to_json`, or any JSON that `parse` accepts."""
        return _from_json(text)

    @classmethod
    def parse(cls, value: object, *, now: Instant | None = None) -> Schedule:
        """Parse a schedule in any form.

        Text: a cron expression, a macro, AWS's `cron(…)`, `rate(…)`, `at(…)`, or "manual". An
        object: one of cron, every, at, delay, rrule or any, and options. With `now`, a schedule
        that never fires again is rejected; `delay` needs it.
        """
        return cls.language.read(value, now=now)

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other options."""
        return replace(self, **changes)

    def __or__(self, other: Schedule) -> Schedule:
        """Fire at the ticks of both."""
        return any_of(self, other)

    def __sub__(self, other: Schedule) -> Schedule:
        """Leave out the ticks of the other."""
        return any_of(self, excluding=other)


@lru_cache(maxsize=16_384)  # every firing reads the stored rule
def _from_json(text: str) -> Schedule:
    return Schedule.language.read_json(text)


# Options of all kinds of schedules.


class Options(TypedDict, total=False):
    """The keywords of every constructor."""

    tz: str
    jitter: Duration | None
    start_at: Moment | None
    end_at: Moment | None
    max_executions: int | None
    calendar: Calendar | Mapping[str, object] | None


OPTIONS: Final = ("tz", "jitter", "start_at", "end_at", "max_executions", "calendar")


def resolve_options(options: Options) -> dict[str, Any]:
    """Validate and normalize the options."""
    given = cast("dict[str, Any]", {**options})
    check_keys(given, OPTIONS, what="schedule")
    tz = given.get("tz") or "UTC"
    if not isinstance(tz, str):
        raise InvalidSchedule(f"tz {shown(tz)} is not the name of a zone", field="tz")
    zone_named(tz)
    start_at = _optional_moment(given, "start_at", tz)
    end_at = _optional_moment(given, "end_at", tz)
    if start_at is not None and end_at is not None and end_at < start_at:
        raise InvalidSchedule("end_at is before start_at; it would never fire", field="end_at")
    jitter = given.get("jitter")
    return {
        "tz": tz,
        "jitter": parse_duration(jitter, what="jitter") or None if jitter is not None else None,
        "start_at": start_at,
        "end_at": end_at,
        "max_executions": _executions(given.get("max_executions")),
        "calendar": Calendar.parse(given.get("calendar")),
    }


def _optional_moment(given: Mapping[str, object], key: str, tz: str) -> Instant | None:
    value = given.get(key)
    zone = tz if "tz" in given else None
    return None if value is None else parse_moment(value, what=key, tz=zone)


def _executions(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= EXECUTIONS_MAX:
        raise InvalidSchedule(
            f"max_executions {shown(value)} is not a whole number in 1-{EXECUTIONS_MAX:,}",
            field="max_executions",
        )
    return value


Mode = Literal["rate", "delay"]
MODES: Final = ("rate", "delay")
_MICRO: Final = 1_000_000
_DAY_MICRO: Final = 86_400 * _MICRO
_COST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(Schedule):
    """A fixed rate, aligned to `anchor`, or a fixed delay after the end of an execution."""

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
            return None  # past ticks followed the ends of executions, which the rule does not know
        effort.spend(_COST)
        index = self._index(until)
        near = (self._tick(index + 1), self._tick(index), self._tick(index - 1))
        return next(tick for tick in near if tick <= until)

    # Counted in whole microseconds: a sum of fractions would drift. An instant may be rounded to
    # either side of a tick, so the neighbours are compared, too.

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
    """Fire at intervals of `period`.

    By default a fixed rate: ticks are `anchor` (1970-01-01 UTC unless given) plus multiples of the
    period, so "15m" means the quarters of an hour on every machine and after every restart.
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
    # Equivalent anchors are stored as one.
    aligned = math.fmod(round(at * _MICRO), round(seconds * _MICRO)) / _MICRO
    if aligned < 0:
        aligned += seconds
    return Every(period=seconds, mode=mode, anchor=round(aligned, 6), **common)


# Schedules with at most one tick, and those that time does not trigger.


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Schedule):
    """A single time."""

    time: Instant

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        return self.time if self.time > after else None

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return self.time if self.time <= until else None

    def own_fields(self) -> dict[str, Any]:
        return {"at": to_iso(self.time)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot(Schedule):
    """`@reboot`: fires once when a scheduler takes over and none was running."""

    is_reboot: ClassVar[bool] = True
    has_times: ClassVar[bool] = False

    def own_fields(self) -> dict[str, Any]:
        return {"cron": "@reboot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual(Schedule):
    """A schedule that only a trigger runs."""

    has_times: ClassVar[bool] = False

    def own_fields(self) -> dict[str, Any]:
        return {"manual": True}


def at(time: Moment, **options: Unpack[Options]) -> At:
    """Fire once at a time: a datetime with a zone, ISO 8601 with an offset, or epoch seconds.

    With `tz`, text without an offset is a time on the clocks there.
    """
    common = resolve_options(options)
    return At(time=parse_moment(time, what="at", tz=options.get("tz")), **common)


# Dependencies: a schedule that fires when jobs have succeeded.

# The start of its JSON, which may be longer than that of other schedules.
JSON_START: Final = ('{"after":', '{"after_any":')


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Schedule):
    """Fires when all of the jobs, or any of them, have succeeded since the last time."""

    has_times: ClassVar[bool] = False

    jobs: tuple[str, ...]
    is_any: bool = False

    def own_fields(self) -> dict[str, Any]:
        return {"after_any" if self.is_any else "after": list(self.jobs)}


class Named(Protocol):
    """An object with the name of a job, such as a task."""

    @property
    def name(self) -> str: ...


Dependency = str | Named


def name_of(job: Dependency) -> str:
    """Return a job's name."""
    return job if isinstance(job, str) else getattr(job, "name", cast("Any", job))


def after(*jobs: Dependency) -> After:
    """Fire when each of these jobs has succeeded since its last tick: `after("extract")`."""
    return After(jobs=_names(jobs, "after"))


def after_any(*jobs: Dependency) -> After:
    """Fire when any of these jobs has succeeded: `after_any("orders", "returns")`.

    Unlike `after`, it can be one of several schedules of a job.
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
    """Parse the value of `{"after": …}` or `{"after_any": …}`: a name, or a list of them."""
    what, read = ("after_any", after_any) if is_any else ("after", after)
    if isinstance(value, str):
        return read(value)
    if not isinstance(value, list | tuple):
        raise InvalidSchedule(
            f'{what} {shown(value)} must be a list of names, such as ["extract"]', field=what
        )
    return read(*cast("Iterable[str]", value))


# Unions: the ticks of several schedules, without those of excluded ones.

_EXCLUDED_MAX: Final = 600  # consecutive spans that may be excluded


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
        return self._nearest_tick(after, effort, is_onward=True)

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        return self._nearest_tick(until, effort, is_onward=False)

    def _nearest_tick(self, at: Instant, effort: Effort, *, is_onward: bool) -> Instant | None:
        """Return the first tick later than `at`, or the last one that is not later."""

        def tick_of(part: Schedule, at: Instant) -> Instant | None:
            return (part.next_after if is_onward else part.previous_until)(at, effort=effort)

        nearest = min if is_onward else max
        found = [tick_of(part, at) for part in self.parts]
        for _ in range(_EXCLUDED_MAX):
            tick = nearest((one for one in found if one is not None), default=None)
            if tick is None:
                return None
            spans = [span for one in self.excluded if (span := one.excluded_span(tick, effort))]
            if not spans:
                return tick
            edge = max(end for _, end in spans) if is_onward else min(start for start, _ in spans)
            # Advance only parts with an excluded tick.
            for place, part in enumerate(self.parts):
                one = found[place]
                if one is not None and (one < edge) is is_onward:
                    found[place] = tick_of(part, just_before(edge))
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
    """Combine the ticks of several schedules; the same as `a | b`, and `a - b` to exclude.

    A cron expression excludes all of each minute that it matches, or of each second if it has a
    field for them; `* * 25 12 *` is a whole day. Other schedules exclude exact instants. A union
    has its own options, and by default the zone of its first part.
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
    return Union(parts=_sort_parts(flat), excluded=_sort_parts(excluded), **common)


def check_size(count: int) -> None:
    """Reject a union of too many schedules."""
    if count > SCHEDULE_PARTS_MAX:
        raise InvalidSchedule(
            f"{count:,} schedules are too many for a union; the limit is {SCHEDULE_PARTS_MAX}",
            field="any",
        )


def _size(part: Schedule) -> int:
    """Count the schedules of a part, which may be a union."""
    members = (*part.parts, *part.excluded) if isinstance(part, Union) else ()
    return sum(_size(one) for one in members) or 1


def _sort_parts(parts: list[Schedule] | tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    """Sort and deduplicate, so that equal unions have equal texts."""
    return tuple(sorted(set(parts), key=Schedule.to_json))


def _check_part(part: object) -> None:
    if not isinstance(part, Schedule):
        raise InvalidSchedule(f"{shown(part)} is not a schedule", field="any")
    if part.delay is not None or not part.has_times:
        raise InvalidSchedule(
            f"{shown(part.to_json())} has no times of its own, so it cannot be part of a union",
            field="any",
        )
    if part.jitter is not None or part.max_executions is not None:
        raise InvalidSchedule(
            "jitter and max_executions belong to the union, not to a part of it", field="any"
        )

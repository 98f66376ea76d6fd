"""The base class of all schedule rules, and the options that each of them takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, Final, Self, TypedDict, cast

from daybell.core.limits import EXECUTIONS_MAX, INSTANT_MAX, SCHEDULE_EFFORT_MAX
from daybell.core.units import Duration, Instant, Seconds, parse_duration, to_iso
from daybell.core.when.calendar import Calendar
from daybell.core.when.zone import (
    INSTANT_MIN,
    Effort,
    Moment,
    check_keys,
    just_before,
    local,
    parse_moment,
    zone_named,
)
from daybell.errors import InvalidSchedule, shown

_LISTED_COST: Final = 300  # of each tick that is listed; most take 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When something runs: a value that can be compared, hashed and written as JSON.

    Its *ticks* are nominal times: instants that follow from the schedule alone, the same on every
    machine. A kind of schedule says with `tick_after` and `tick_until` where its own are; what
    is said here about start, end and calendar applies to all kinds.
    """

    tz: str = "UTC"
    jitter: Seconds | None = None  # each tick is late by up to this: see `jitter_of`
    start_at: Instant | None = None  # no tick is earlier
    end_at: Instant | None = None  # no tick is later
    max_executions: int | None = None
    calendar: Calendar | None = None

    is_reboot: ClassVar[bool] = False  # runs once when a leader takes over and nobody was there

    @property
    def delay(self) -> Seconds | None:
        """For a fixed delay, how long after the end of the execution before it; else None."""
        return None

    @property
    def is_hashed(self) -> bool:
        """Whether it has an H, whose value depends on the name that it is bound to."""
        return False

    @property
    def is_same_daily(self) -> bool:
        """Whether all days that have ticks have them at the same times, until clocks change."""
        return False

    def bind(self, name: str) -> Schedule:
        """The same schedule with each H replaced by what it is for this name.

        The name is the tenant's and the job's. One that was never bound has the empty name.
        """
        return self

    def tick_after(self, after: Instant, effort: Effort) -> Instant | None:
        """The first tick later than `after`, of this kind alone."""
        raise NotImplementedError

    def tick_until(self, until: Instant, effort: Effort) -> Instant | None:
        """The last tick that is not later than `until`, of this kind alone."""
        raise NotImplementedError

    def next_after(
        self, after: Instant, name: str = "", *, effort: Effort | None = None
    ) -> Instant | None:
        """The first tick later than `after`; None: never again.

        Raises InvalidSchedule if finding it takes more than the effort that one question may cost.
        """
        if name and self.is_hashed:
            return self.bind(name).next_after(after, effort=effort)
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

    def previous_until(
        self, until: Instant, name: str = "", *, effort: Effort | None = None
    ) -> Instant | None:
        """The last tick that is not later than `until`; None: there was none."""
        if name and self.is_hashed:
            return self.bind(name).previous_until(until, effort=effort)
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
        self,
        at_or_before: Instant,
        after: Instant,
        name: str = "",
        *,
        effort: Effort | None = None,
    ) -> Instant | None:
        """The last tick that is later than `after` and not later than `at_or_before`.

        What it costs does not depend on how far they are apart.
        """
        tick = self.previous_until(at_or_before, name, effort=effort)
        return None if tick is None or tick <= after else tick

    def ticks(
        self, after: Instant, name: str = "", *, effort: Effort | None = None
    ) -> Iterator[Instant]:
        """All ticks later than `after`, one by one; it may never end. `effort` is for all."""
        rule = self.bind(name)
        tick = rule.next_after(after, effort=effort)
        while tick is not None:
            yield tick
            tick = rule.next_after(tick, effort=effort)

    def preview(self, count: int, after: Instant, name: str = "") -> list[datetime]:
        """The next ticks as clocks in the schedule's zone will show them.

        Of a schedule whose ticks are costly to find there may be fewer, but the first.
        """
        left = count if self.max_executions is None else min(count, self.max_executions)
        effort = Effort(SCHEDULE_EFFORT_MAX + count * _LISTED_COST)
        found: list[datetime] = []
        try:
            for tick in islice(self.ticks(after, name, effort=effort), left):
                found.append(local(tick, self.tz))
        except InvalidSchedule:
            if not found:
                raise
        return found

    def jitter_of(self, tick: Instant, name: str) -> Seconds:
        """How late a tick is run, on purpose: the same for the same name and tick, everywhere.

        Up to `jitter`, and never so late that the next tick would be reached.
        """
        if not self.jitter:
            return 0.0
        following = self.next_after(tick, name)
        room = self.jitter if following is None else min(self.jitter, following - tick)
        digest = sha256(f"{tick!r}\0{name}".encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:6], "big") / (1 << 48) * room

    def describe(self) -> str:
        """What it means, in plain English."""
        from daybell.core.when.describe import describe

        return describe(self)

    def warnings(self) -> list[str]:
        """List what looks like a mistake, and is allowed all the same."""
        from daybell.core.when.describe import list_warnings

        return list_warnings(self)

    def own_fields(self) -> dict[str, Any]:
        """What this kind alone adds to the JSON object."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `Schedule.parse` reads back; what is left out is the default."""
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
        """The one text for this schedule: equal schedules have equal texts."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read what `to_json` wrote, or any form that `parse` takes as JSON."""
        return _from_json(text)

    @classmethod
    def parse(cls, value: object, *, now: Instant | None = None) -> Schedule:
        """Read a schedule in any form that a person or a program may write.

        Text: a cron expression, a macro, AWS's `cron(…)`, `rate(…)`, `at(…)`, or "manual". An
        object: one of cron, every, at, delay, rrule or any, and options. With `now`, one that will
        never fire again is refused; `delay` needs it.
        """
        from daybell.core.when.parser import read

        return read(value, now=now)

    def replaced(self, **changes: Any) -> Self:
        """The same with other options."""
        return replace(self, **changes)

    def __or__(self, other: Schedule) -> Schedule:
        """Both: the ticks of either."""
        from daybell.core.when.triggers import any_of

        return any_of(self, other)

    def __sub__(self, other: Schedule) -> Schedule:
        """Without the ticks of the other."""
        from daybell.core.when.triggers import any_of

        return any_of(self, excluding=other)


@lru_cache(maxsize=16_384)  # what is stored is read again at every firing
def _from_json(text: str) -> Schedule:
    from daybell.core.when.parser import read_json

    return read_json(text)


# Options that all kinds of schedule take, checked and brought into one form.


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
    """The options as a schedule keeps them."""
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

"""Schedules with at most one tick: at a time, when a scheduler comes back, or by hand alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from daybell.core.instant import Instant, to_iso
from daybell.core.when.checks import Moment, parse_moment
from daybell.core.when.effort import Effort
from daybell.core.when.options import Options, settled
from daybell.core.when.rule import Schedule


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
    common = settled(options)
    return At(time=parse_moment(time, what="at", tz=options.get("tz")), **common)

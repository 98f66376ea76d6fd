"""From wall-clock times to ticks: the next and the previous one, where clocks may change."""

from __future__ import annotations

import math
from typing import Final, Protocol

from daybell.core.instant import Instant
from daybell.core.when.effort import Effort
from daybell.core.when.zone import Fold, Gap, stretch_at

_FAR_COST: Final = 200  # of the changes of clocks in another year

Wall = int  # seconds since 1970 on a wall clock, as if there were one zone and it never changed


class WallTimes(Protocol):
    """Times on a wall clock, in order."""

    def after(self, wall: Wall, effort: Effort) -> Wall | None:
        """The first time later than `wall`."""
        ...

    def until(self, wall: Wall, effort: Effort) -> Wall | None:
        """The last time that is not later than `wall`."""
        ...


def tick_after(
    times: WallTimes, after: Instant, *, tz: str, gap: Gap, fold: Fold, effort: Effort
) -> Instant | None:
    """The first instant later than `after` at which a clock in `tz` comes to one of the times."""
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
        if following.opens > wall:  # no time is shown again that was passed over before
            effort.spend(_FAR_COST)
            far = stretch_at(found - stretch.offset, tz=tz, gap=gap, fold=fold)
            if far.opens <= found < far.closes:
                return float(far.instant(found))
        stretch, wall = following, following.opens - 1


def tick_until(
    times: WallTimes, until: Instant, *, tz: str, gap: Gap, fold: Fold, effort: Effort
) -> Instant | None:
    """The last such instant that is not later than `until`."""
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

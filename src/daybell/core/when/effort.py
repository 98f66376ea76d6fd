"""What finding a tick may cost, so that no schedule, however it was written, takes long.

Every search spends from one `Effort`, a union with all of its parts and a calendar with all of its
tries. A unit is about a microsecond of a common machine. It is counted and not measured, so that a
schedule is refused everywhere or nowhere.
"""

from __future__ import annotations

from collections.abc import Hashable

from daybell.core.limits import SCHEDULE_EFFORT_MAX
from daybell.errors import InvalidSchedule


class Effort:
    """What is left of the effort for one question to a schedule."""

    __slots__ = ("_paid", "left")

    def __init__(self, most: int = SCHEDULE_EFFORT_MAX) -> None:
        self.left = most
        self._paid: set[Hashable] | None = None

    def spend(self, cost: int) -> None:
        """Raises InvalidSchedule if there is not so much left."""
        self.left -= cost
        if self.left < 0:
            raise InvalidSchedule(
                "the next time of this schedule takes too long to find, if there is one: its times"
                " are too rare, or too many of them are closed or excluded. Use fewer parts, or a"
                " simpler rule",
                field="schedule",
            )

    def spend_once(self, what: Hashable, cost: int) -> None:
        """Spend on something that is kept: looked at again, it costs nothing."""
        if self._paid is None:
            self._paid = set()
        if what not in self._paid:
            self._paid.add(what)
            self.spend(cost)

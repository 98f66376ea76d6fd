"""Schedule rules as values: cron, intervals, times, recurrence rules, dependencies, unions, and the
ticks of each.
"""

from __future__ import annotations

from daybell.core.when.calendar import Calendar
from daybell.core.when.cron import Cron
from daybell.core.when.misfire import Misfire, Plan, Planned, plan
from daybell.core.when.parser import cron
from daybell.core.when.recurrence import Recurrence, rrule
from daybell.core.when.rule import Schedule
from daybell.core.when.triggers import (
    After,
    At,
    Every,
    Manual,
    Reboot,
    Union,
    after,
    after_any,
    any_of,
    at,
    every,
)

union = any_of

__all__ = [
    "After",
    "At",
    "Calendar",
    "Cron",
    "Every",
    "Manual",
    "Misfire",
    "Plan",
    "Planned",
    "Reboot",
    "Recurrence",
    "Schedule",
    "Union",
    "after",
    "after_any",
    "any_of",
    "at",
    "cron",
    "every",
    "plan",
    "rrule",
    "union",
]

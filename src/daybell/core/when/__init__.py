"""Schedule rules as values: cron, intervals, times, recurrence, dependencies and unions."""

from __future__ import annotations

from daybell.core.when import language
from daybell.core.when.calendar import Calendar
from daybell.core.when.cron import Cron
from daybell.core.when.event import OnEvent, on_event
from daybell.core.when.file import OnFile
from daybell.core.when.language import cron
from daybell.core.when.misfire import Misfire, Planned, TickPlan, plan
from daybell.core.when.recurrence import Recurrence, rrule
from daybell.core.when.rule import (
    After,
    At,
    Every,
    Manual,
    Reboot,
    Schedule,
    Union,
    after,
    after_any,
    any_of,
    at,
    every,
)

Schedule.language = language  # rule.py cannot import it: it imports all kinds of rules

union = any_of

__all__ = [
    "After",
    "At",
    "Calendar",
    "Cron",
    "Every",
    "Manual",
    "Misfire",
    "OnEvent",
    "OnFile",
    "Planned",
    "Reboot",
    "Recurrence",
    "Schedule",
    "TickPlan",
    "Union",
    "after",
    "after_any",
    "any_of",
    "at",
    "cron",
    "every",
    "on_event",
    "plan",
    "rrule",
    "union",
]

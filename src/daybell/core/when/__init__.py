"""The language of "when": schedules as values, and where their ticks are.

- `dialects.cron`, `every`, `at`, `recurrence.rrule`, `union.any_of`, `after`: the kinds of schedule
- `rule`: what all kinds can do; `options`: what all kinds take; `read`: from JSON and text
- `fields`, `hashing`, `pattern`: cron's fields, its H, and the search over wall clocks
- `repetition`, `yeardays`: the search for times of recurrence rules
- `zone`: between wall clocks and instants, where clocks change
- `calendar`, `holidays`, `moving`: closed days, and where their ticks go
- `effort`: what one question to a schedule may cost
- `describe`: in plain English; `misfire`: what is done about ticks that were missed

Pure, as all of `core`: all that comes from outside are the zones and holidays of this machine.
"""

from daybell.core.when.after import After, after, after_any
from daybell.core.when.at import At, Manual, Reboot, at
from daybell.core.when.calendar import Calendar
from daybell.core.when.cron import Cron
from daybell.core.when.dialects import cron
from daybell.core.when.every import Every, every
from daybell.core.when.misfire import Misfire, Plan, Planned, plan
from daybell.core.when.recurrence import Recurrence, rrule
from daybell.core.when.rule import Schedule
from daybell.core.when.union import Union, any_of

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

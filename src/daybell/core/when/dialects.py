"""The ways to write cron: macros, and texts of other schedulers, taken as they stand."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Unpack

from daybell.core.duration import parse_duration
from daybell.core.limits import CRON_CHARS_MAX
from daybell.core.when.at import Reboot, at
from daybell.core.when.checks import choice
from daybell.core.when.cron import DIALECTS, Cron, Dialect
from daybell.core.when.every import every
from daybell.core.when.options import Options, settled
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import Fold, Gap
from daybell.errors import InvalidSchedule, UsageError, shown

_MACROS: Final = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
_UNITS: Final = {"SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d"}
_RATE_UNITS: Final = {"MINUTE": "m", "HOUR": "h", "DAY": "d"}


def cron(
    expression: str,
    *,
    dialect: Dialect = "unix",
    gap: Gap = "shift",
    fold: Fold = "first",
    **options: Unpack[Options],
) -> Schedule:
    """When clocks in `tz` show these times: `cron("0 9 * * mon-fri", tz="Europe/Berlin")`.

    Five fields (minute, hour, day of month, month, day of week), six with seconds first, seven with
    a year last; or a macro, such as "@daily", "@every 90s" or "@reboot"; or AWS's "cron(…)",
    "rate(…)" and "at(…)". `dialect="quartz"` counts weekdays from 1 = Sunday.

    `gap` says what happens to a time that a change of the clocks leaves out ("shift" to the first
    instant after it, or "skip"), `fold` to one that comes twice ("first", "second", "both").
    """
    text = _tidied(expression)
    choice(dialect, DIALECTS, what="dialect")
    choice(gap, ("shift", "skip"), what="gap")
    choice(fold, ("first", "second", "both"), what="fold")
    if text[0] == "@":
        if text == "@REBOOT":
            return Reboot(**settled(options))
        if text.startswith("@EVERY "):
            return every(text[7:].lower(), **options)
        text = _macro(text, expression)
        dialect = "unix"
    elif text[-1] == ")" and "(" in text and text[0] in "CRA":
        name, _, inside = text[:-1].partition("(")
        if name == "RATE":
            return every(_rate(inside, expression), **options)
        if name == "AT":
            with _as_written(expression):
                return at(inside.strip(), **{"tz": "UTC", **options})
        if name == "CRON":
            text, dialect = " ".join(inside.split()), "aws"
    elif text[0] in "EF0123456789" and not text.count(" ") > 3:
        _check_kind(text, expression)
    rest = settled(options)
    with _as_written(expression):
        return Cron(expression=text, dialect=dialect, gap=gap, fold=fold, **rest)


@contextmanager
def _as_written(expression: str) -> Generator[None]:
    """Have errors quote parts of an expression as they were written: it is read in capitals."""
    try:
        yield
    except InvalidSchedule as error:
        raise InvalidSchedule(_quoting(str(error), expression), field=error.field) from None


def _quoting(message: str, expression: str) -> str:
    whole = " ".join(expression.split())
    parts = [whole, whole.partition("(")[2].removesuffix(")").strip()]
    for between in (r"[\s()]+", r"[\s(),]+", r"[\s(),/#-]+"):
        parts += re.split(between, whole)
    for part in parts:
        message = message.replace(shown(part.upper()), shown(part)) if part else message
    return message


def _check_kind(text: str, expression: str) -> None:
    """Refuse what is no cron expression, but means something in another language of schedules."""
    if text.startswith("FREQ="):
        raise InvalidSchedule(
            f"{shown(expression)} is a recurrence rule, not cron; write"
            ' rrule("FREQ=…"), --rrule "FREQ=…" or {"rrule": "FREQ=…"}',
            field="cron",
        )
    is_said = text.startswith("EVERY")
    period = _period(text.removeprefix("EVERY"))
    if period is None and is_said:
        raise InvalidSchedule(
            f"{shown(expression)} is not cron; an interval is written @every 5m, in Python"
            ' every("5m"), on the command line --every 5m; once a day is @daily or "0 9 * * *"',
            field="cron",
        )
    if period is not None and (is_said or not period.isdigit()):
        raise InvalidSchedule(
            f"{shown(expression)} is an interval, not cron; did you mean @every {period}? In Python"
            f' that is every("{period}"), on the command line --every {period}',
            field="cron",
        )


def _period(text: str) -> str | None:
    """A duration as `every` takes it, from what people write: `5m`, `5 m`, `5 minutes`."""
    words = text.split()
    if len(words) == 2 and words[1].removesuffix("S") in _UNITS:
        words[1] = _UNITS[words[1].removesuffix("S")]
    period = "".join(words).lower()
    try:
        parse_duration(period, what="every")
    except UsageError:
        return None
    return period


def _tidied(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidSchedule(
            f"cron {shown(expression)} is of type {type(expression).__name__}; it takes text,"
            ' such as "0 9 * * mon-fri"',
            field="cron",
        )
    if len(expression) > CRON_CHARS_MAX:
        raise InvalidSchedule(
            f"cron {shown(expression)} has {len(expression):,} characters; the limit is"
            f" {CRON_CHARS_MAX}",
            field="cron",
        )
    text = " ".join(expression.upper().split())
    if not text:
        raise InvalidSchedule(
            'cron is empty; it takes five fields, such as "0 9 * * mon-fri"', field="cron"
        )
    return text


def _macro(text: str, expression: str) -> str:
    if text not in _MACROS:
        known = ", ".join(name.lower() for name in _MACROS)
        raise InvalidSchedule(
            f"there is no macro {shown(expression)}; known are {known}, @every 90s and @reboot",
            field="cron",
        )
    return _MACROS[text]


def _rate(text: str, expression: str) -> str:
    """`5 minutes`, as AWS writes it."""
    number, _, unit = text.strip().partition(" ")
    letter = _RATE_UNITS.get(unit.strip().removesuffix("S"))
    if letter is None or not (number.isascii() and number.isdigit()) or len(number) > 10:
        raise InvalidSchedule(
            f"{shown(expression)} cannot be read; it takes a number and minutes, hours or days,"
            " as in rate(5 minutes)",
            field="cron",
        )
    return f"{number}{letter}"

"""Parser of schedules: JSON objects, text, and the cron dialects of other schedulers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Unpack, cast

from daybell.core.limits import (
    CRON_CHARS_MAX,
    SCHEDULE_CHARS_MAX,
    SCHEDULE_DATES_MAX,
    SCHEDULE_PARTS_MAX,
    UNION_CHARS_MAX,
)
from daybell.core.units import Instant, parse_delay, parse_duration
from daybell.core.when.cron import DIALECTS, Cron, Dialect
from daybell.core.when.recurrence import check_any, read_rrule, way_out
from daybell.core.when.rule import OPTIONS, Options, Schedule, resolve_options
from daybell.core.when.triggers import (
    JSON_START,
    After,
    Manual,
    Reboot,
    Union,
    any_of,
    at,
    check_size,
    every,
    read_after,
)
from daybell.core.when.zone import Effort, Fold, Gap, check_keys, choice, nearest
from daybell.errors import InvalidSchedule, UsageError, shown

# The ways to write cron: macros, and texts of other schedulers, taken as they stand.

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
            return Reboot(**resolve_options(options))
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
    rest = resolve_options(options)
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


Given = Mapping[str, Any]

_DEPTH_MAX: Final = 4
_KINDS: Final = ("cron", "every", "at", "delay", "rrule", "any", "after", "after_any", "manual")


def read(
    value: object, *, now: Instant | None = None, depth: int = 0, effort: Effort | None = None
) -> Schedule:
    """Read a schedule in any form; with `now`, refuse one that is over."""
    effort = effort or Effort()
    if isinstance(value, Schedule):
        schedule = value
        check_chars(schedule)
    elif isinstance(value, str):
        text = value.strip()
        schedule = Manual() if text.casefold() == "manual" else cron(value)
    elif isinstance(value, Mapping):
        schedule = _read_object(cast("Given", value), now, depth, effort)
        if depth == 0:
            check_chars(schedule)
    else:
        raise InvalidSchedule(
            f"schedule {shown(value)} is of type {type(value).__name__}; it takes a cron"
            ' expression or an object such as {"every": "5m"}',
            field="schedule",
        )
    if now is not None and not isinstance(schedule, Manual | Reboot | After):
        _check_future(schedule, now)
    return schedule


def _check_future(schedule: Schedule, now: Instant) -> None:
    if schedule.next_after(now) is None:
        raise InvalidSchedule(
            f"the schedule never fires from now on: {schedule.describe()}{way_out(schedule)}",
            field="schedule",
        )


def check_chars(schedule: Schedule) -> None:
    """Refuse a schedule that could be written as JSON, and then not be read back."""
    if schedule.calendar is not None or isinstance(schedule, Union):
        _check_length(len(schedule.to_json()))


def _check_length(chars: int) -> None:
    if chars > SCHEDULE_CHARS_MAX:
        raise InvalidSchedule(
            f"the schedule has {chars:,} characters as JSON; the limit is {SCHEDULE_CHARS_MAX:,}",
            field="schedule",
        )


def read_json(text: str) -> Schedule:
    """Read a schedule that is JSON text."""
    if not text.startswith(JSON_START):
        _check_length(len(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidSchedule(f"schedule {shown(text)} is not JSON", field="schedule") from None
    return read(value)


def _read_object(given: Given, now: Instant | None, depth: int, effort: Effort) -> Schedule:
    if depth >= _DEPTH_MAX:
        raise InvalidSchedule(
            f"unions are nested more than {_DEPTH_MAX} deep; write one list", field="any"
        )
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1:
        raise _no_kind(given, kinds)
    kind = kinds[0]
    allowed = (kind, *_EXTRA.get(kind, ()), *(() if kind in ("after", "after_any") else OPTIONS))
    check_keys(given, allowed, what=f"a schedule with {kind}")
    options = {key: given[key] for key in OPTIONS if given.get(key) is not None}
    if kind == "any":
        return _read_union(given, options, depth, effort)
    if kind == "rrule":
        rule = read_rrule(given["rrule"], **_dst(given), **options)
        check_any(rule, effort)
        return rule
    return _READERS[kind](given, options, now)


def _no_kind(given: Given, kinds: Sequence[str]) -> InvalidSchedule:
    takes = f"it takes exactly one of {', '.join(_KINDS)}"
    if kinds:
        return InvalidSchedule(f"schedule has {' and '.join(kinds)}; {takes}", field="schedule")
    for key in given:
        meant = "" if key in KEYS or key in OPTIONS else nearest(key, _KINDS)
        if meant:
            return InvalidSchedule(
                f"a schedule has no {shown(key)}; did you mean {meant!r}?", field=str(key)
            )
    return InvalidSchedule(f"schedule does not say when; {takes}", field="schedule")


def _read_cron(given: Given, options: Given, now: Instant | None) -> Schedule:
    dialect = given.get("dialect", "unix")
    return cron(given["cron"], dialect=dialect, **_dst(given), **options)


def _read_every(given: Given, options: Given, now: Instant | None) -> Schedule:
    return every(
        given["every"], mode=given.get("mode", "rate"), anchor=given.get("anchor"), **options
    )


def _read_at(given: Given, options: Given, now: Instant | None) -> Schedule:
    return at(given["at"], **options)


def _read_delay(given: Given, options: Given, now: Instant | None) -> Schedule:
    seconds = parse_delay(given["delay"])
    if now is None:
        raise InvalidSchedule("delay counts from now, which is not known here", field="delay")
    return at(now + seconds, **options)


def _read_after(given: Given, options: Given, now: Instant | None) -> Schedule:
    return read_after(given["after"])


def _read_after_any(given: Given, options: Given, now: Instant | None) -> Schedule:
    return read_after(given["after_any"], is_any=True)


def _read_manual(given: Given, options: Given, now: Instant | None) -> Schedule:
    if given["manual"] is not True:
        raise InvalidSchedule("manual takes true and nothing else", field="manual")
    return Manual(**resolve_options(cast("Any", options)))


def _read_union(given: Given, options: Given, depth: int, effort: Effort) -> Schedule:
    if depth == 0:
        _check_members(given)

    def members(key: str) -> list[Schedule]:
        listed = given.get(key, [])
        if not isinstance(listed, list | tuple):
            raise InvalidSchedule(f"{key} {shown(listed)} is not a list of schedules", field=key)
        check_size(len(cast("list[object]", listed)))
        return [read(one, depth=depth + 1, effort=effort) for one in cast("list[object]", listed)]

    return any_of(*members("any"), excluding=members("except"), **options)


def _check_members(union: Given) -> None:
    """Refuse a union that is too large as a whole, before any of its members is read."""
    count = chars = dates = 0
    waiting: list[object] = [union]
    while waiting:
        one = waiting.pop()
        given = cast("Given", one) if isinstance(one, Mapping) else {"cron": one}
        inner = [item for key in ("any", "except") for item in _items(given.get(key))]
        waiting += inner
        count += not inner
        chars += sum(
            len(text) for key in ("cron", "rrule") if isinstance(text := given.get(key), str)
        )
        calendar = given.get("calendar")
        if one is not union and isinstance(calendar, Mapping):
            closed = cast("Given", calendar)
            dates += sum(len(_items(closed.get(key))) for key in ("dates", "blackouts"))
        if max(count, len(waiting)) > SCHEDULE_PARTS_MAX:
            raise InvalidSchedule(
                f"a union takes at most {SCHEDULE_PARTS_MAX} schedules, with those of unions in it",
                field="any",
            )
        if chars > UNION_CHARS_MAX or dates > SCHEDULE_DATES_MAX:
            raise InvalidSchedule(
                f"the schedules of a union have more than {UNION_CHARS_MAX:,} characters or"
                f" {SCHEDULE_DATES_MAX:,} closed dates; use several schedules",
                field="any",
            )


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


_EXTRA: Final = {
    "cron": ("dialect", "dst"),
    "every": ("mode", "anchor"),
    "rrule": ("dst",),
    "any": ("except",),
}
# All that a schedule may have beside its options.
KEYS: Final = frozenset((*_KINDS, *(key for extra in _EXTRA.values() for key in extra)))
_READERS: Final[dict[str, Callable[[Given, Given, Instant | None], Schedule]]] = {
    "cron": _read_cron,
    "every": _read_every,
    "at": _read_at,
    "delay": _read_delay,
    "after": _read_after,
    "after_any": _read_after_any,
    "manual": _read_manual,
}


def _dst(given: Given) -> dict[str, Any]:
    dst = given.get("dst", {})
    if not isinstance(dst, Mapping):
        raise InvalidSchedule(
            f'dst {shown(dst)} is not an object such as {{"gap": "skip", "fold": "both"}}',
            field="dst",
        )
    check_keys(cast("Given", dst), ("gap", "fold"), what="dst")
    return dict(cast("Given", dst))

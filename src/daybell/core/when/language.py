"""The language of schedules: JSON objects, text, cron dialects, and descriptions in English."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Unpack, cast

from daybell.core.limits import (
    CRON_CHARS_MAX,
    SCHEDULE_CHARS_MAX,
    SCHEDULE_DATES_MAX,
    SCHEDULE_PARTS_MAX,
    UNION_CHARS_MAX,
)
from daybell.core.units import Instant, Seconds, parse_delay, parse_duration
from daybell.core.when.calendar import Calendar
from daybell.core.when.cron import (
    DIALECTS,
    YEAR_MIN,
    Cron,
    Dialect,
    Field,
    Fields,
    layout,
    numbers_in,
    read_fields,
)
from daybell.core.when.event import OnEvent, read_event_schedule
from daybell.core.when.file import OnFile, read_file_schedule
from daybell.core.when.recurrence import Recurrence, check_any, read_rrule, way_out
from daybell.core.when.rule import (
    JSON_START,
    OPTIONS,
    After,
    At,
    Every,
    Manual,
    Options,
    Reboot,
    Schedule,
    Union,
    any_of,
    at,
    check_size,
    every,
    read_after,
    resolve_options,
)
from daybell.core.when.zone import Effort, Fold, Gap, check_keys, choice, local, nearest, read_dst
from daybell.errors import InvalidSchedule, UsageError, shown

# Cron: macros, and the texts of other schedulers.

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
    """Fire when clocks in `tz` show these times: `cron("0 9 * * mon-fri", tz="Europe/Berlin")`.

    Five fields (minute, hour, day of month, month, day of week), six with seconds first, seven with
    a year last; or a macro, such as "@daily", "@every 90s" or "@reboot"; or AWS's "cron(…)",
    "rate(…)" and "at(…)". `dialect="quartz"` counts weekdays from 1 = Sunday.

    `gap` applies to a time that a clock change skips ("shift" to the first instant after it, or
    "skip"), `fold` to a time that occurs twice ("first", "second", "both").
    """
    text = _normalize(expression)
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
    """Quote the original spelling in errors: the parser works on capitals."""
    try:
        yield
    except InvalidSchedule as error:
        raise InvalidSchedule(_quote_original(str(error), expression), field=error.field) from None


def _quote_original(message: str, expression: str) -> str:
    whole = " ".join(expression.split())
    parts = [whole, whole.partition("(")[2].removesuffix(")").strip()]
    for between in (r"[\s()]+", r"[\s(),]+", r"[\s(),/#-]+"):
        parts += re.split(between, whole)
    for part in parts:
        message = message.replace(shown(part.upper()), shown(part)) if part else message
    return message


def _check_kind(text: str, expression: str) -> None:
    """Reject text of another schedule language, such as an rrule or an interval."""
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
    """Convert `5m`, `5 m` or `5 minutes` to a duration for `every`."""
    words = text.split()
    if len(words) == 2 and words[1].removesuffix("S") in _UNITS:
        words[1] = _UNITS[words[1].removesuffix("S")]
    period = "".join(words).lower()
    try:
        parse_duration(period, what="every")
    except UsageError:
        return None
    return period


def _normalize(expression: object) -> str:
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
    """Parse the `5 minutes` of AWS."""
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
_WITHOUT_OPTIONS: Final = ("after", "after_any", "event", "file")
_KINDS: Final = (
    *("cron", "every", "at", "delay", "rrule", "any"),
    *("after", "after_any", "event", "file", "manual"),
)


def read(
    value: object, *, now: Instant | None = None, depth: int = 0, effort: Effort | None = None
) -> Schedule:
    """Parse a schedule in any form; with `now`, reject one that is over."""
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
    if now is not None and schedule.has_times:
        _check_future(schedule, now)
    return schedule


def _check_future(schedule: Schedule, now: Instant) -> None:
    if schedule.next_after(now) is None:
        raise InvalidSchedule(
            f"the schedule never fires from now on: {schedule.describe()}{way_out(schedule)}",
            field="schedule",
        )


def check_chars(schedule: Schedule) -> None:
    """Reject a schedule with a JSON text that is too long to read."""
    if schedule.calendar is not None or isinstance(schedule, Union):
        _check_length(len(schedule.to_json()))


def _check_length(chars: int) -> None:
    if chars > SCHEDULE_CHARS_MAX:
        raise InvalidSchedule(
            f"the schedule has {chars:,} characters as JSON; the limit is {SCHEDULE_CHARS_MAX:,}",
            field="schedule",
        )


def read_json(text: str) -> Schedule:
    """Parse a schedule from JSON text."""
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
    allowed = (kind, *_EXTRA.get(kind, ()), *(() if kind in _WITHOUT_OPTIONS else OPTIONS))
    check_keys(given, allowed, what=f"a schedule with {kind}")
    options = {key: given[key] for key in OPTIONS if given.get(key) is not None}
    if kind == "any":
        return _read_union(given, options, depth, effort)
    if kind == "rrule":
        rule = read_rrule(given["rrule"], **read_dst(given.get("dst", {})), **options)
        check_any(rule, effort)
        return rule
    return _read_kind(kind, given, options, now)


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


def _read_kind(kind: str, given: Given, options: Given, now: Instant | None) -> Schedule:
    value = given[kind]
    match kind:
        case "cron":
            dst = read_dst(given.get("dst", {}))
            return cron(value, dialect=given.get("dialect", "unix"), **dst, **options)
        case "every":
            mode, anchor = given.get("mode", "rate"), given.get("anchor")
            return every(value, mode=mode, anchor=anchor, **options)
        case "at":
            return at(value, **options)
        case "delay":
            seconds = parse_delay(value)
            if now is None:
                raise InvalidSchedule("delay counts from now, which is not known here", field=kind)
            return at(now + seconds, **options)
        case "event":
            return read_event_schedule(given)
        case "file":
            return read_file_schedule(given)
        case "manual":
            if value is not True:
                raise InvalidSchedule("manual takes true and nothing else", field=kind)
            return Manual(**resolve_options(cast("Any", options)))
        case _:
            return read_after(value, is_any=kind == "after_any")


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
    """Check the size of a whole union before its members are read."""
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
    "event": ("filter",),
    "file": ("settle",),
    "any": ("except",),
}
# All keys of a schedule besides its options.
KEYS: Final = frozenset((*_KINDS, *(key for extra in _EXTRA.values() for key in extra)))


# Words for lists, numbers and durations.

_LENGTHS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def join_words(words: Sequence[str], *, word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {word} {words[-1]}"


def list_numbers(numbers: Sequence[int], *, names: Callable[[int], str] = str) -> str:
    """`1`, `1 and 2`, `1 to 3, 5 and 7`: a range replaces three or more in a row."""
    ordered = sorted(numbers)
    words: list[str] = []
    start = 0
    for place, number in enumerate(ordered):
        is_last = place + 1 == len(ordered) or ordered[place + 1] != number + 1
        if not is_last:
            continue
        run = ordered[start : place + 1]
        if len(run) > 2:
            words.append(f"{names(run[0])} to {names(run[-1])}")
        else:
            words += [names(one) for one in run]
        start = place + 1
    return join_words(words)


def ordinal(number: int) -> str:
    """`first`, `2nd`, `23rd`."""
    if number == 1:
        return "first"
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def plural(number: int, noun: str) -> str:
    """`1 time`, `2,000 times`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_seconds(seconds: Seconds, *, one: str = "1 ") -> str:
    """`1 hour 30 minutes`; `one` replaces the "1 " of a single unit, as in "every hour"."""
    words: list[str] = []
    micros = round(seconds * 1_000_000)
    for unit, size in _LENGTHS:
        count, micros = divmod(micros, size * 1_000_000)
        if unit == "second" and micros:
            words.append(f"{count + micros / 1_000_000:g} seconds")
        elif count:
            words.append(f"{count} {unit}{'s' if count > 1 else ''}")
    said = " ".join(words) or "0 seconds"
    return one + said.removeprefix("1 ") if len(words) == 1 and said.startswith("1 ") else said


_TIMES_MAX: Final = 6  # times of a day that are listed one by one
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ALL: Final = {"second": 60, "minute": 60, "hour": 24}


def describe(schedule: Schedule) -> str:
    """Describe a schedule in English."""
    text = ", ".join([_kind(schedule), *_options(schedule)])
    return text[0].upper() + text[1:]


def list_warnings(schedule: Schedule) -> list[str]:
    """List likely mistakes in a schedule, as sentences without a full stop."""
    if isinstance(schedule, Union):
        parts = (*schedule.parts, *schedule.excluded)
        return [warning for part in parts for warning in list_warnings(part)]
    if not isinstance(schedule, Cron):
        return []
    texts = schedule.expression.split()
    fields = read_fields(schedule.expression, schedule.dialect)
    named = {field.unit.name: field for field in fields}
    units = layout(schedule.expression, schedule.dialect)
    return [
        f"{unit.name} {text.lower()}: the step of {item.lower()} reaches no second value, so only"
        " the first one matches"
        for text, unit in zip(texts, units, strict=True)
        for item in named[unit.name].large_steps
    ]


def _kind(schedule: Schedule) -> str:
    match schedule:
        case Cron():
            return f"{_cron(schedule)}, {schedule.tz}"
        case Every(mode="delay"):
            return f"{describe_seconds(schedule.period)} after the execution before has ended"
        case Every():
            return f"every {describe_seconds(schedule.period, one='')}"
        case At():
            return f"once, on {_moment(schedule.time, schedule)}"
        case Recurrence():
            return _recurrence(schedule)
        case Union():
            return _union(schedule)
        case Reboot():
            return "when a scheduler starts and none was running"
        case After():
            if schedule.is_any:
                return f"when {join_words(schedule.jobs, word='or')} has succeeded"
            has = "has" if len(schedule.jobs) == 1 else "have each"
            return f"when {join_words(schedule.jobs)} {has} succeeded"
        case OnEvent() | OnFile():
            return _event(schedule)
        case Manual():
            return "only when it is triggered"
        case _:
            return schedule.to_json()


_COMPARED: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "in", "prefix": "^="}


def _event(schedule: OnEvent | OnFile) -> str:
    if isinstance(schedule, OnFile):
        words = describe_seconds(schedule.settle)
        return f"when a file {schedule.root}/{schedule.pattern} has not changed for {words}"
    said: list[str] = []
    for test in schedule.tests:
        path = ".".join(test.path)
        if test.operator == "exists":
            said.append(f"{path} is {'there' if test.value else 'missing'}")
        else:
            said.append(f"{path} {_COMPARED.get(test.operator, '=')} {json.dumps(test.value)}")
    where = f" with {join_words(said)}" if said else ""
    return f"when an event {schedule.event} comes{where}"


def _options(schedule: Schedule) -> list[str]:
    said: list[str] = []
    if schedule.calendar is not None:
        said.append(_calendar(schedule.calendar, schedule))
    if schedule.start_at is not None:
        said.append(f"from {_moment(schedule.start_at, schedule)}")
    if schedule.end_at is not None:
        said.append(f"until {_moment(schedule.end_at, schedule)}")
    if schedule.max_executions is not None:
        said.append(f"at most {plural(schedule.max_executions, 'time')}")
    if schedule.jitter is not None:
        said.append(f"late by up to {describe_seconds(schedule.jitter)}")
    return said


def _recurrence(schedule: Recurrence) -> str:
    times = schedule.times
    said = [f"by the rule {times.rule}"]
    if times.has_start:
        start = datetime.fromtimestamp(times.repetition.start, UTC)
        said.append(f"counted from {start:%Y-%m-%d %H:%M:%S}".removesuffix(":00"))
    elif schedule.counts_from_1970:
        said.append("counted from 1970-01-01")
    if added := len(times.added) + len(times.added_at):
        said.append(f"and on {plural(added, 'other date')}")
    if removed := len(times.removed) + len(times.removed_at) + len(times.removed_days):
        said.append(f"without {plural(removed, 'date')}")
    return ", ".join([*said, schedule.tz])


def _union(union: Union) -> str:
    said = "; or ".join(_describe_part(part) for part in union.parts)
    if union.excluded:
        said += "; except " + "; and ".join(_describe_part(part) for part in union.excluded)
    return said


def _describe_part(part: Schedule) -> str:
    text = describe(part)
    return text[0].lower() + text[1:]


def _calendar(calendar: Calendar, schedule: Schedule) -> str:
    closed: list[str] = []
    if calendar.business_days:
        closed.append("weekends")
    if calendar.country is not None:
        place = "-".join(filter(None, (calendar.country, calendar.subdivision)))
        closed.append(f"public holidays of {place}")
    if calendar.dates:
        closed.append(plural(len(calendar.dates), "other date"))
    if calendar.blackouts:
        closed.append(f"in {plural(len(calendar.blackouts), 'blackout')}")
    moved = {
        "skip": "",
        "next_open": ", but on the next open day",
        "previous_open": ", but on the open day before",
    }
    return f"not on {join_words(closed)}{moved[calendar.on_closed]}" if closed else "on all days"


def _moment(instant: Instant, schedule: Schedule) -> str:
    return f"{local(instant, schedule.tz).isoformat(' ', 'seconds')} {schedule.tz}"


def _cron(schedule: Cron) -> str:
    fields = read_fields(schedule.expression, schedule.dialect)
    said = " ".join(filter(None, (_times(fields), _days(fields), _months(fields), _years(fields))))
    return f"{said} (H is a number of the job's own)" if schedule.is_hashed else said


def _times(fields: Fields) -> str:
    seconds, minutes, hours = (
        numbers_in(field.bits) for field in (fields.second, fields.minute, fields.hour)
    )
    if len(seconds) * len(minutes) * len(hours) <= _TIMES_MAX and len(hours) < 24:
        times = [
            (hour, minute, second) for hour in hours for minute in minutes for second in seconds
        ]
        return "at " + join_words([_time(*time) for time in times])
    within = _hours(hours)
    if seconds == [0]:
        said = _rhythm(minutes, "minute")
        if not said.startswith("every"):
            within = within or "of every hour"
    else:
        said = _rhythm(seconds, "second")
        if len(minutes) < 60:
            said += f" of {_rhythm(minutes, 'minute').removeprefix('at ')}"
    return f"{said} {within}".strip()


def _time(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _rhythm(numbers: list[int], unit: str) -> str:
    """`every 5 minutes` for an even spacing, else `at minutes 1 and 7`."""
    size = _ALL[unit]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else size
    if numbers == list(range(0, size, step)) and size % step == 0 and step < size:
        return f"every {unit}" if step == 1 else f"every {step} {unit}s"
    return f"at {unit}{'s' if len(numbers) > 1 else ''} {list_numbers(numbers)}"


def _hours(hours: list[int]) -> str:
    if len(hours) == 24:
        return ""
    if hours == list(range(hours[0], hours[-1] + 1)):
        return f"from {hours[0]:02}:00 to {hours[-1]:02}:59"
    step = hours[1] - hours[0]
    if hours == list(range(0, 24, step)) and 24 % step == 0:
        return f"of every {ordinal(step)} hour"
    return f"in hours {list_numbers(hours)}"


def _days(fields: Fields) -> str:
    by_day, by_weekday = _monthdays(fields.day), _weekdays(fields.weekday)
    if by_day and by_weekday:
        is_either = not (fields.day.is_star or fields.weekday.is_star)
        return f"{by_day} {'or' if is_either else 'and only'} {by_weekday}"
    return by_day or by_weekday


def _monthdays(field: Field) -> str:
    said: list[str] = []
    days = numbers_in(field.bits)
    if days and len(days) < 31:
        said.append(f"day{'s' if len(days) > 1 else ''} {list_numbers(days)}")
    for back in field.from_end:
        said.append(f"the {_from_end(back)} day" if back < 2 else f"the day {back} before the last")
    for near in field.nearest:
        target = f"day {near}" if near > 0 else f"the {_from_end(-near)} day"
        said.append("the last weekday" if near == 0 else f"the weekday nearest to {target}")
    return f"on {join_words(said)} of the month" if said else ""


def _from_end(back: int) -> str:
    return "last" if back == 0 else f"{ordinal(back + 1)} last"


def _weekdays(field: Field) -> str:
    days = numbers_in(field.bits)
    said: list[str] = []
    if days and len(days) < 7:
        # Weeks start on Monday.
        said.append(list_numbers([day or 7 for day in days], names=lambda day: _WEEKDAYS[day % 7]))
    for day in numbers_in(field.last_weekdays):
        said.append(f"the last {_WEEKDAYS[day]} of the month")
    for day, which in field.nth_weekdays:
        said.append(f"the {ordinal(which)} {_WEEKDAYS[day]} of the month")
    return f"on {join_words(said)}" if said else ""


def _months(fields: Fields) -> str:
    months = numbers_in(fields.month.bits)
    said = list_numbers(months, names=lambda month: _MONTHS[month - 1])
    return f"in {said}" if len(months) < 12 else ""


def _years(fields: Fields) -> str:
    if fields.year.text == "*":
        return ""
    return f"in {list_numbers([YEAR_MIN + bit for bit in numbers_in(fields.year.bits)])}"

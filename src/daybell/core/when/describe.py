"""Descriptions of schedules in plain English."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from daybell.core.units import Instant, Seconds
from daybell.core.when.calendar import Calendar
from daybell.core.when.cron import YEAR_MIN, Cron, Field, Fields, layout, numbers_in, read_fields
from daybell.core.when.recurrence import Recurrence
from daybell.core.when.rule import Schedule
from daybell.core.when.triggers import After, At, Every, Manual, Reboot, Union
from daybell.core.when.zone import local

# Small words: lists, numbers and lengths of time, as people say them.

_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def join_words(words: Sequence[str], *, word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {word} {words[-1]}"


def list_numbers(numbers: Sequence[int], *, names: Callable[[int], str] = str) -> str:
    """`1`, `1 and 2`, `1 to 3, 5 and 7`: three or more in a row are told by their ends."""
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
    """`1 hour 30 minutes`; `one` is said for a single unit alone, as in "every hour"."""
    words: list[str] = []
    micros = round(seconds * 1_000_000)
    for unit, size in _UNITS:
        count, micros = divmod(micros, size * 1_000_000)
        if unit == "second" and micros:
            words.append(f"{count + micros / 1_000_000:g} seconds")
        elif count:
            words.append(f"{count} {unit}{'s' if count > 1 else ''}")
    said = " ".join(words) or "0 seconds"
    return one + said.removeprefix("1 ") if len(words) == 1 and said.startswith("1 ") else said


_TIMES_MAX: Final = 6  # so many times of a day are listed one by one
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ALL: Final = {"second": 60, "minute": 60, "hour": 24}


def describe(schedule: Schedule) -> str:
    """What a schedule means, as a phrase that begins with a capital."""
    text = ", ".join([_kind(schedule), *_options(schedule)])
    return text[0].upper() + text[1:]


def list_warnings(schedule: Schedule) -> list[str]:
    """List what looks like a mistake in a schedule, as sentences without a full stop."""
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
        case Manual():
            return "only when it is triggered"
        case _:
            return schedule.to_json()


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
    said = "; or ".join(_described_part(part) for part in union.parts)
    if union.excluded:
        said += "; except " + "; and ".join(_described_part(part) for part in union.excluded)
    return said


def _described_part(part: Schedule) -> str:
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
    """`every 5 minutes` where that is the same, else `at minutes 1 and 7`."""
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
        # A week is told from Monday on.
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

"""The oracle: what a cron expression means, found by looking at every minute or every second.

Written without the code that it judges, and without its ideas: expressions are made together with
what they match, clocks are asked through `zoneinfo`, one moment after the other.
"""

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

# Changes of clocks worth standing by: the zone, and an instant near to one.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # half an hour
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),  # no midnight
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),  # no 30th of December
    ("Asia/Kathmandu", "1985-12-31T18:30"),  # a quarter of an hour, for good
    ("Asia/Beirut", "2026-03-28T22:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Antarctica/Troll", "2026-03-29T01:00"),  # two hours
    ("Antarctica/Troll", "2026-10-25T01:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("America/Caracas", "2007-12-09T07:00"),  # back by half an hour, for good
    ("Europe/Dublin", "1971-10-31T02:00"),
    ("Asia/Tehran", "2022-03-21T20:30"),
    ("UTC", "2028-02-29T12:00"),
]


@dataclass(frozen=True)
class Text:
    """A field as somebody writes it, and the numbers that it means."""

    text: str
    numbers: frozenset[int]
    is_open: bool = False


@dataclass(frozen=True)
class Days:
    """A field about days, and whether it means a day."""

    text: str
    means: Callable[[date], bool]

    @property
    def is_star(self) -> bool:
        return self.text[0] in "*?"


@dataclass(frozen=True)
class Expression:
    """An expression in its parts; `second` may be left out."""

    second: Text | None
    minute: Text
    hour: Text
    day: Days
    month: Text
    weekday: Days

    @property
    def text(self) -> str:
        seconds = "" if self.second is None else f"{self.second.text} "
        fields = (self.minute, self.hour, self.day, self.month, self.weekday)
        return seconds + " ".join(field.text for field in fields)

    @property
    def is_open(self) -> bool:
        return self.minute.is_open or self.hour.is_open

    def means_day(self, day: date) -> bool:
        if day.month not in self.month.numbers:
            return False
        if self.day.is_star or self.weekday.is_star:
            return self.day.means(day) and self.weekday.means(day)
        return self.day.means(day) or self.weekday.means(day)

    def means(self, wall: datetime) -> bool:
        seconds = {0} if self.second is None else self.second.numbers
        return (
            wall.minute in self.minute.numbers
            and wall.hour in self.hour.numbers
            and wall.second in seconds
            and self.means_day(wall.date())
        )


def numbers(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[Text]:
    """Fields of plain numbers, in all their forms."""
    number = st.integers(low, high)
    step = st.integers(1, high - low + 1)

    def written(value: int) -> str:
        return names[value - low] if names and value % 2 else str(value)

    def span(start: int, end: int, by: int) -> Text:
        around = (
            [*range(start, end + 1)]
            if start <= end
            else [*range(start, high + 1), *range(low, end + 1)]
        )
        text = f"{written(start)}-{written(end)}" + (f"/{by}" if by > 1 else "")
        return Text(text, frozenset(around[::by]), (start, end) == (low, high))

    everything = st.just(Text("*", frozenset(range(low, high + 1)), True))
    stepped = step.map(lambda by: Text(f"*/{by}", frozenset(range(low, high + 1, by)), True))
    one = number.map(lambda value: Text(written(value), frozenset([value])))
    spans = st.builds(span, number, number, st.integers(1, 5))
    tails = st.builds(
        lambda start, by: Text(f"{start}/{by}", frozenset(range(start, high + 1, by)), True),
        number,
        step,
    )

    def joined(parts: list[Text]) -> Text:
        return Text(
            ",".join(part.text for part in parts),
            frozenset().union(*(part.numbers for part in parts)),
            any(part.is_open for part in parts),
        )

    lists = st.lists(st.one_of(one, spans, tails), min_size=2, max_size=4).map(joined)
    return st.one_of(one, everything, stepped, one, spans, tails, lists)


def length_of(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def nearest_workday(year: int, month: int, wanted: int) -> int:
    """By trying all days of the month: the nearest from Monday to Friday; of two, either is one."""
    days = range(1, monthrange(year, month)[1] + 1)
    workdays = [day for day in days if date(year, month, day).weekday() < 5]
    return min(workdays, key=lambda day: abs(day - wanted))


def is_nearest_workday(day: date, wanted: int) -> bool:
    return 1 <= wanted <= length_of(day) and day.day == nearest_workday(day.year, day.month, wanted)


def special_days() -> st.SearchStrategy[Days]:
    return st.one_of(
        st.just(Days("L", lambda day: day.day == length_of(day))),
        st.integers(1, 30).map(lambda n: Days(f"L-{n}", lambda day: day.day == length_of(day) - n)),
        st.just(Days("LW", lambda day: is_nearest_workday(day, length_of(day)))),
        st.integers(1, 31).map(lambda n: Days(f"{n}W", lambda day: is_nearest_workday(day, n))),
        st.just(Days("?", lambda day: True)),
    )


def monthdays() -> st.SearchStrategy[Days]:
    plain = numbers(1, 31).map(lambda text: Days(text.text, lambda day: day.day in text.numbers))
    return st.one_of(plain, special_days(), st.builds(either, plain, special_days()))


def weekdays() -> st.SearchStrategy[Days]:
    def number(day: date) -> int:
        return day.isoweekday() % 7

    def last(wanted: int) -> Days:
        return Days(
            f"{wanted}L", lambda day: number(day) == wanted % 7 and day.day + 7 > length_of(day)
        )

    def nth(wanted: int, which: int) -> Days:
        return Days(
            f"{WEEKDAYS[wanted]}#{which}",
            lambda day: number(day) == wanted and (day.day - 1) // 7 + 1 == which,
        )

    plain = numbers(0, 6, WEEKDAYS).filter(lambda text: not_a_tail(text.text))
    plain = plain.map(lambda text: Days(text.text, lambda day: number(day) in text.numbers))
    special = st.one_of(
        st.integers(0, 7).map(last), st.builds(nth, st.integers(0, 6), st.integers(1, 5))
    )
    return st.one_of(
        plain,
        special,
        st.builds(either, plain, special),
        st.just(Days("7", lambda day: number(day) == 0)),
    )


def not_a_tail(text: str) -> bool:
    """`3/2` goes to the field's end, which for weekdays is 7, Sunday again; `*/7` steps too far."""
    return all("/" not in item or "-" in item for item in text.split(","))


def either(one: Days, other: Days) -> Days:
    if one.is_star or other.text == "?":
        return one
    return Days(f"{one.text},{other.text}", lambda day: one.means(day) or other.means(day))


def expressions(*, seconds: bool = False) -> st.SearchStrategy[Expression]:
    """Every form; the hour is mostly one that clocks are changed in."""
    dense = st.one_of(st.just(Days("*", lambda day: True)), st.just(Days("?", lambda day: True)))
    night = st.integers(0, 4).map(lambda hour: Text(str(hour), frozenset([hour])))
    everyone = st.just(Text("*", frozenset(range(1, 13)), True))
    return st.builds(
        Expression,
        second=numbers(0, 59) if seconds else st.none(),
        minute=numbers(0, 59),
        hour=st.one_of(night, numbers(0, 23)),
        day=st.one_of(dense, dense, monthdays()),
        month=st.one_of(everyone, everyone, numbers(1, 12, MONTHS)),
        weekday=st.one_of(dense, dense, weekdays()),
    )


def fixed_times() -> st.SearchStrategy[Expression]:
    """Expressions for every day whose minute and hour are fixed, at night."""
    always = Days("*", lambda day: True)
    months = Text("*", frozenset(range(1, 13)), True)
    hours = st.sampled_from([0, 1, 2, 3, 23, 12]).map(
        lambda hour: Text(str(hour), frozenset([hour]))
    )
    return st.builds(
        Expression,
        second=st.none(),
        minute=numbers(0, 59).filter(lambda text: not text.is_open),
        hour=st.one_of(hours, hours, numbers(0, 23).filter(lambda text: not text.is_open)),
        day=st.just(always),
        month=st.just(months),
        weekday=st.just(always),
    )


@lru_cache(maxsize=64)
def clock(zone: str, start: datetime, hours: int, step: int) -> list[tuple[int, datetime]]:
    """Every moment of a window, with what the clock shows then."""
    tz = ZoneInfo(zone)
    begin = int(start.timestamp())
    return [
        (instant, datetime.fromtimestamp(instant, tz).replace(tzinfo=None, fold=0))
        for instant in range(begin, begin + hours * 3600, step)
    ]


def walked(
    expression: Expression, zone: str, start: datetime, *, hours: int, gap: str, fold: str
) -> list[int]:
    """The instants of all ticks in a window, by looking at each moment of it."""
    moments = clock(zone, start, hours, 1 if expression.second else 60)
    if expression.is_open:
        return [instant for instant, wall in moments if expression.means(wall)]
    return sorted(set(_fixed(expression, moments, gap, fold)))


def _fixed(expression: Expression, moments: list[tuple[int, datetime]], gap: str, fold: str):
    step = timedelta(seconds=moments[1][0] - moments[0][0])
    seen: dict[datetime, list[int]] = {}
    for instant, wall in moments:
        seen.setdefault(wall, []).append(instant)
    for wall, instants in seen.items():
        if expression.means(wall):
            yield from {"first": instants[:1], "second": instants[-1:], "both": instants}[fold]
    if gap == "skip":
        return
    for (_, before), (instant, after) in pairwise(moments):
        left_out = before + step
        while left_out < after:
            if expression.means(left_out):
                yield instant
                break
            left_out += step


def near(change: tuple[str, str], *, hours: int) -> tuple[str, datetime]:
    """A zone, and where a window begins that has a change of its clocks in the middle."""
    zone, instant = change
    moment = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    return zone, moment - timedelta(hours=hours // 2)

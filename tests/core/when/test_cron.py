"""Cron expressions against a walk through every minute, or every second, of a time."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import Schedule, cron
from daybell.errors import InvalidSchedule
from tests.core.when.walks import (
    CHANGES,
    MONTHS,
    Expression,
    Text,
    expressions,
    fixed_times,
    monthdays,
    near,
    numbers,
    walked,
    weekdays,
)

gaps = st.sampled_from(["shift", "skip"])
folds = st.sampled_from(["first", "second", "both"])


def ticks_between(schedule: Schedule, start: float, end: float) -> list[float]:
    found: list[float] = []
    tick = schedule.next_after(start)
    while tick is not None and tick < end:
        found.append(tick)
        tick = schedule.next_after(tick)
    return found


def ticks_backwards(schedule: Schedule, start: float, end: float) -> list[float]:
    found: list[float] = []
    tick = schedule.previous_until(end - 1)
    while tick is not None and tick > start:
        found.append(tick)
        tick = schedule.previous_until(tick - 1)
    return found[::-1]


# Zone, expression, rules, where to start, and the ticks from there.
CHANGED = [
    ("Europe/Berlin", "30 2 * * *", {}, "2026-03-29", "29T03:00+02:00 30T02:30+02:00"),
    ("Europe/Berlin", "30 2 * * *", {"gap": "skip"}, "2026-03-29", "30T02:30+02:00"),
    ("Europe/Berlin", "0,30 2 * * *", {}, "2026-03-29", "29T03:00+02:00 30T02:00+02:00"),
    (
        "Europe/Berlin",
        "30 1-3 * * *",
        {},
        "2026-03-29",
        "29T01:30+01:00 29T03:00+02:00 29T03:30+02:00",
    ),
    ("Europe/Berlin", "30 2 * * *", {}, "2026-10-25", "25T02:30+02:00 26T02:30+01:00"),
    (
        "Europe/Berlin",
        "30 2 * * *",
        {"fold": "second"},
        "2026-10-25",
        "25T02:30+01:00 26T02:30+01:00",
    ),
    (
        "Europe/Berlin",
        "30 2 * * *",
        {"fold": "both"},
        "2026-10-25",
        "25T02:30+02:00 25T02:30+01:00 26T02:30+01:00",
    ),
    (
        "Europe/Berlin",
        "*/30 1-3 * * *",
        {},
        "2026-03-29",
        "29T01:00+01:00 29T01:30+01:00 29T03:00+02:00 29T03:30+02:00",
    ),
    (
        "Europe/Berlin",
        "*/30 2 * * *",
        {},
        "2026-10-25",
        "25T02:00+02:00 25T02:30+02:00 25T02:00+01:00 25T02:30+01:00 26T02:00+01:00",
    ),
    (
        "Europe/Berlin",
        "15 * * * *",
        {},
        "2026-03-29T01:00",
        "29T01:15+01:00 29T03:15+02:00 29T04:15+02:00",
    ),
    ("America/New_York", "30 2 * * *", {}, "2026-03-08", "08T03:00-04:00 09T02:30-04:00"),
    ("America/New_York", "30 1 * * *", {}, "2026-11-01", "01T01:30-04:00 02T01:30-05:00"),
    ("Australia/Lord_Howe", "15 2 * * *", {}, "2026-10-04", "04T02:30+11:00 05T02:15+11:00"),
    ("Australia/Lord_Howe", "45 1 * * *", {}, "2026-04-05", "05T01:45+11:00 06T01:45+10:30"),
    (
        "Australia/Lord_Howe",
        "*/15 1 * * *",
        {},
        "2026-04-05",
        "05T01:00+11:00 05T01:15+11:00 05T01:30+11:00 05T01:45+11:00 05T01:30+10:30 05T01:45+10:30",
    ),
    ("America/Sao_Paulo", "0 0 * * *", {}, "2018-11-03T12:00", "04T01:00-02:00 05T00:00-02:00"),
    ("Pacific/Apia", "0 9 * * *", {}, "2011-12-29", "29T09:00-10:00 31T00:00+14:00 31T09:00+14:00"),
    ("Pacific/Apia", "0 9 * * *", {"gap": "skip"}, "2011-12-29", "29T09:00-10:00 31T09:00+14:00"),
    ("Asia/Kathmandu", "10 0 * * *", {}, "1985-12-31T12:00", "01T00:15+05:45 02T00:10+05:45"),
]


@pytest.mark.parametrize(("zone", "text", "rules", "start", "expected"), CHANGED)
def test_where_clocks_change(zone, text, rules, start, expected):
    after = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp() - 1

    found = cron(text, tz=zone, **rules).preview(expected.count(" ") + 1, after)

    assert " ".join(tick.isoformat(timespec="minutes")[8:] for tick in found) == expected


def test_what_was_had_before_clocks_went_back_does_not_come_again():
    schedule = cron("30 2 * * *", tz="Europe/Berlin")
    second_time_around = datetime.fromisoformat("2026-10-25T02:10:00+01:00").timestamp()

    assert schedule.preview(1, second_time_around)[0].isoformat() == "2026-10-26T02:30:00+01:00"


def possible(expression, **options) -> Schedule | None:
    try:
        return cron(expression.text, **options)
    except InvalidSchedule as error:
        assert "never fires" in str(error), error
        return None


@settings(deadline=None, max_examples=250)
@given(st.one_of(fixed_times(), expressions()), st.sampled_from(CHANGES), gaps, folds)
def test_ticks_are_those_of_a_walk_through_every_minute(expression, change, gap, fold):
    # Two days on each side: the ends of the window are cut off, where the walk sees half a fold.
    zone, start = near(change, hours=96)
    low, high = start.timestamp() + 36 * 3600 - 1, start.timestamp() + 72 * 3600
    schedule = possible(expression, tz=zone, gap=gap, fold=fold)
    walk = walked(expression, zone, start, hours=96, gap=gap, fold=fold)
    expected = [tick for tick in walk if low < tick < high]

    if schedule is None:
        assert not expected
        return
    assert ticks_between(schedule, low, high) == expected
    assert ticks_backwards(schedule, low, high) == expected


@settings(deadline=None, max_examples=50)
@given(expressions(seconds=True), st.sampled_from(CHANGES), gaps, folds)
def test_ticks_are_those_of_a_walk_through_every_second(expression, change, gap, fold):
    zone, start = near(change, hours=6)
    low, high = start.timestamp() + 2 * 3600 - 1, start.timestamp() + 4 * 3600 + 1800
    schedule = possible(expression, tz=zone, gap=gap, fold=fold)
    walk = walked(expression, zone, start, hours=6, gap=gap, fold=fold)
    expected = [tick for tick in walk if low < tick < high]

    if schedule is None:
        assert not expected
        return
    if zone != "Pacific/Apia":  # its gap is longer than the window
        assert ticks_between(schedule, low, high)[:200] == expected[:200]
        assert ticks_backwards(schedule, low, high)[-200:] == expected[-200:]


NOON = Text("12", frozenset([12])), Text("0", frozenset([0]))


@settings(deadline=None, max_examples=150)
@given(
    monthdays(),
    numbers(1, 12, MONTHS),
    weekdays(),
    st.dates(date(1990, 1, 1), date(2090, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_days_are_those_of_a_walk_through_every_day(day, month, weekday, start, zone):
    hour, minute = NOON
    expression = Expression(None, minute, hour, day, month, weekday)
    days = [start + timedelta(days=number) for number in range(900)]
    expected = [one for one in days if expression.means_day(one)]
    schedule = possible(expression, tz=zone)
    low = datetime(start.year, start.month, start.day, tzinfo=UTC).timestamp() - 3600 * 4

    if schedule is None:
        assert not expected
        return
    found = [one.date() for one in schedule.preview(len(expected) + 1, low)]
    assert found[: len(expected)] == expected
    assert len(found) == len(expected) or found[-1] > days[-1]


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(fixed_times(), expressions()),
    st.sampled_from(CHANGES),
    st.one_of(st.floats(-8_000, 8_000), st.floats(-200_000, 200_000)),
    gaps,
    folds,
)
def test_from_any_instant_the_next_tick_is_later_and_nothing_lies_between(
    expression, change, seconds, gap, fold
):
    zone, start = near(change, hours=0)
    schedule = possible(expression, tz=zone, gap=gap, fold=fold)
    if schedule is None:
        return
    after = start.timestamp() + seconds

    tick = schedule.next_after(after)

    assert tick is not None
    assert tick > after
    assert schedule.previous_until(tick) == tick
    before = schedule.previous_until(tick - 1)
    assert before is None or before <= after
    assert schedule.latest(tick, after) == tick
    assert schedule.latest(tick - 1, after) is None

"""Unions and exclusions, against looking at every tick; and the changes of clocks below them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daybell.core.when import Schedule, any_of, cron, every
from daybell.core.when.zone import local, stretch_at

HOURS = 24 * 9
# Clocks on the half hour and the quarter, and changes of them in the window.
PLACES = [
    ("UTC", datetime(2026, 11, 26, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 26, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 26, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 1, 28, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 1, tzinfo=UTC)),
]
DENSE = ["*/7 * * * *", "3,40 * * * *", "*/15 9-17 * * mon-fri", "0 12 1 * *"]
# What is left out, and whether a time on the clock is.
LEFT_OUT = [
    ("* 12 * * *", lambda t: t.hour == 12),
    ("* 22-6 * * *", lambda t: t.hour >= 22 or t.hour <= 6),
    ("* * * * sat,sun", lambda t: t.isoweekday() > 5),
    ("* * 28-31 * *", lambda t: t.day >= 28),
    ("* * * 4,12 *", lambda t: t.month in (4, 12)),
    ("* * 1 * mon", lambda t: t.day == 1 or t.isoweekday() == 1),
    ("0-20 * * * *", lambda t: t.minute <= 20),
]


def ticks(schedule: Schedule, start: float, end: float) -> list[float]:
    found: list[float] = []
    while (tick := schedule.next_after(found[-1] if found else start - 1)) is not None:
        if tick >= end:
            break
        found.append(tick)
        if tick == end - 1:  # there may be none after it, and a long search for it
            break
    return found


def backwards(schedule: Schedule, start: float, end: float) -> list[float]:
    found: list[float] = []
    while (tick := schedule.previous_until((found[-1] if found else end) - 0.5)) is not None:
        if tick < start:
            break
        found.append(tick)
        if tick == start:
            break
    return found[::-1]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(PLACES),
    st.lists(st.sampled_from(DENSE), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(LEFT_OUT), max_size=2, unique=True),
    st.one_of(st.none(), st.integers(0, HOURS)),
    st.one_of(st.none(), st.integers(0, HOURS)),
)
def test_a_union_leaves_out_what_looking_at_each_tick_does(place, texts, left_out, begin, end):
    zone, moment = place
    start, stop = moment.timestamp(), moment.timestamp() + HOURS * 3600
    first = None if begin is None else start + begin * 3600 + 1800
    last = None if end is None else (first or start) + end * 3600 + 900
    parts = [cron(text, tz=zone) for text in texts] + [every("3h", anchor=start + 60)]
    excluded = [cron(text, tz=zone, start_at=first, end_at=last) for text, _ in left_out]

    def is_left_out(tick: float) -> bool:
        if (first is not None and tick < first) or (last is not None and tick > last):
            return False
        clock = datetime.fromtimestamp(tick, ZoneInfo(zone))
        return any(means(clock) for _, means in left_out)

    every_tick = sorted({tick for part in parts for tick in ticks(part, start, stop)})
    expected = [tick for tick in every_tick if not is_left_out(tick)]
    assume(expected)  # who looks for what is not there may be told that it takes too long
    start, stop = expected[0], expected[-1] + 1
    schedule = any_of(*parts, excluding=excluded)

    assert ticks(schedule, start, stop) == expected
    assert backwards(schedule, start, stop) == expected


@pytest.mark.parametrize(
    ("zone", "moment"),
    [
        ("America/Noronha", "2000-10-12T00:00:00+00:00"),  # there and back within a week
        ("Asia/Gaza", "2040-10-24T00:00:00+00:00"),
        ("Asia/Gaza", "2054-04-01T00:00:00+00:00"),
        ("Africa/Casablanca", "2026-03-01T00:00:00+00:00"),
        ("Pacific/Apia", "2011-12-30T00:00:00+00:00"),
    ],
)
def test_changes_of_clocks_that_are_days_apart_are_all_known(zone, moment):
    middle = datetime.fromisoformat(moment)
    for hour in range(-24 * 30, 24 * 30):
        instant = int((middle + timedelta(hours=hour)).timestamp())

        stretch = stretch_at(instant, tz=zone, gap="skip", fold="both")

        offset = local(instant, zone).utcoffset()
        assert offset is not None
        assert stretch.offset == offset.total_seconds(), (zone, hour)

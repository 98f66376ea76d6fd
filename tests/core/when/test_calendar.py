"""Closed days and blackouts, against moving each tick by hand."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import Calendar, Schedule, cron, every, rrule
from daybell.errors import InvalidSchedule
from tests.refusals import refuses

START = datetime(2026, 3, 16, tzinfo=UTC)
DAYS = 30

dates = st.lists(
    st.integers(0, DAYS).map(lambda day: (START + timedelta(days=day)).date()), max_size=12
)
calendars = st.builds(
    Calendar,
    business_days=st.booleans(),
    dates=dates.map(tuple),
    on_closed=st.sampled_from(["skip", "next_open", "previous_open"]),
)
makers = st.sampled_from(
    [
        partial(cron, "0 9 * * *"),
        partial(cron, "0 9,17 * * *"),
        partial(cron, "30 6 * * sat"),
        partial(cron, "0 */7 * * *"),
        partial(cron, "0 12 1,15,29 * *"),
        partial(cron, "15 10 * * 2#3"),
        partial(every, "6h"),  # the same times each day, until clocks change
        partial(every, "7h"),
        partial(every, "36h"),
        partial(rrule, "FREQ=DAILY;BYHOUR=5,21"),
        partial(rrule, "FREQ=HOURLY;INTERVAL=8"),
        partial(rrule, "FREQ=HOURLY;INTERVAL=9"),
        partial(rrule, "FREQ=WEEKLY;BYDAY=MO,SA;BYHOUR=4,9;BYSETPOS=2,3"),
        partial(rrule, "RRULE:FREQ=DAILY;BYHOUR=5\nRDATE:20260401T080000\nEXDATE:20260403T050000"),
    ]
)


def is_closed(calendar: Calendar, day: date) -> bool:
    return day in calendar.dates or (calendar.business_days and day.isoweekday() > 5)


def moved(calendar: Calendar, tick: datetime) -> datetime | None:
    """Where a tick goes: day by day, with the clock's time kept."""
    step = {"skip": 0, "next_open": 1, "previous_open": -1}[calendar.on_closed]
    naive = tick.replace(tzinfo=None)
    while is_closed(calendar, naive.date()):
        if not step:
            return None
        naive += timedelta(days=step)
    return tick if naive == tick.replace(tzinfo=None) else naive.replace(tzinfo=tick.tzinfo)


def ticks(schedule: Schedule, start: float, end: float) -> list[float]:
    found: list[float] = []
    while (tick := schedule.next_after(found[-1] if found else start)) is not None and tick < end:
        found.append(tick)
    return found


@settings(deadline=None, max_examples=100)
@given(makers, calendars, st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]))
def test_ticks_on_closed_days_go_where_moving_each_puts_them(make, calendar, zone):
    low, high = START.timestamp() + 5 * 86_400, START.timestamp() + 25 * 86_400
    plain = make(tz=zone)
    raw = [
        datetime.fromtimestamp(tick, ZoneInfo(zone))
        for tick in ticks(plain, low - 30 * 86_400, high + 30 * 86_400)
    ]
    expected = sorted({to.timestamp() for tick in raw if (to := moved(calendar, tick)) is not None})
    expected = [tick for tick in expected if low < tick < high]
    schedule = make(tz=zone, calendar=calendar)

    assert ticks(schedule, low, high) == expected
    backwards: list[float] = []
    tick = schedule.previous_until(high - 1)
    while tick is not None and tick > low:
        backwards.append(tick)
        tick = schedule.previous_until(tick - 1)
    assert backwards[::-1] == expected


def first_days(calendar: Calendar, text: str = "0 9 * * *", count: int = 3) -> list[str]:
    schedule = cron(text, tz="Europe/Berlin", calendar=calendar)
    after = datetime(2026, 12, 24, tzinfo=UTC).timestamp()
    return [one.date().isoformat() for one in schedule.preview(count, after)]


def test_public_holidays_are_those_of_the_country_and_its_part():
    germany = Calendar(country="DE")
    bavaria = Calendar(country="DE", subdivision="BY", on_closed="next_open")

    assert first_days(germany) == ["2026-12-24", "2026-12-27", "2026-12-28"]
    assert first_days(germany, "0 9 6 1 *", 1) == ["2027-01-06"]
    assert first_days(bavaria, "0 9 6 1 *", 1) == ["2027-01-07"]


@pytest.mark.parametrize(
    ("on_closed", "expected"),
    [
        ("next_open", ["2026-12-24", "2027-02-23", "2027-02-24"]),
        ("previous_open", ["2026-12-24", "2027-02-23", "2027-02-24"]),
    ],
)
def test_after_a_long_closed_time_a_schedule_goes_on(on_closed, expected):
    """All ticks of a closed time are at the same hour, so they fall on one."""
    closed = [date(2026, 12, 25) + timedelta(days=day) for day in range(60)]
    calendar = Calendar(dates=closed, on_closed=on_closed)

    assert first_days(calendar) == expected


@pytest.mark.parametrize("on_closed", ["next_open", "previous_open"])
def test_a_tick_is_moved_by_a_month_and_no_further(on_closed):
    closed = [date(2027, 1, 1) + timedelta(days=day) for day in range(90)]
    calendar = Calendar(dates=closed, on_closed=on_closed)
    near = {"next_open": "0 9 1 3 *", "previous_open": "0 9 31 1 *"}[on_closed]
    moved_to = {"next_open": "2027-04-01", "previous_open": "2026-12-31"}[on_closed]

    assert first_days(calendar, near, 1) == [moved_to]
    assert first_days(calendar, "0 9 14 2 *", 1) == ["2028-02-14"]
    schedule = cron("0 9 14 2 *", tz="Europe/Berlin", calendar=calendar)
    last = schedule.previous_until(datetime(2027, 12, 1, tzinfo=UTC).timestamp())
    assert last == datetime(2026, 2, 14, 8, tzinfo=UTC).timestamp()


def test_a_blackout_drops_what_falls_in_it():
    freeze = ("2026-12-24T00:00:00+01:00", "2026-12-27T00:00:00+01:00")
    calendar = Calendar(blackouts=(freeze,))

    assert first_days(calendar, count=2) == ["2026-12-27", "2026-12-28"]


@pytest.mark.parametrize(("on_closed", "to"), [("next_open", 1), ("previous_open", 28)])
def test_a_day_on_which_clocks_change_is_not_taken_for_one_like_the_others(on_closed, to):
    closed = ["2026-03-29", "2026-03-30", "2026-03-31"]  # on the first there is no 02:30
    calendar = Calendar(dates=closed, on_closed=on_closed)
    schedule = cron("30 2 * * *", tz="Europe/Berlin", calendar=calendar)

    found = schedule.preview(4, datetime(2026, 3, 28, tzinfo=UTC).timestamp())

    assert [one.strftime("%H:%M") for one in found if one.day == to] == ["02:30", "03:00"]


def test_blackouts_that_overlap_are_one():
    calendar = Calendar(blackouts=[(50, 90), (0, 10), (5, 20), (60, 70), (20, 30)])

    assert calendar == Calendar(blackouts=[(0, 30), (50, 90)])
    schedule = cron("*/5 * * * * *", calendar=calendar)
    assert ticks(schedule, -6, 101) == [-5, 30, 35, 40, 45, 90, 95, 100]


def test_a_schedule_whose_days_are_all_closed_is_refused():
    with refuses(InvalidSchedule, field="schedule"):
        Schedule.parse(
            {"cron": "0 9 * * sat", "calendar": {"business_days": True}}, now=START.timestamp()
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"country": "XX"}, "no holidays are known for country 'XX'"),
        ({"country": "DE", "subdivision": "XX"}, "subdivision 'XX' of DE; known are"),
        ({"country": ["DE"]}, "country \\['DE'\\] is not a code"),
        ({"subdivision": "BY"}, "subdivision needs a country"),
        ({"dates": ["24.12."]}, "dates has '24.12.'; it takes dates such as 2026-12-24"),
        ({"dates": "2026-12-24"}, "dates '2026-12-24' is not a list"),
        ({"dates": ["2026-12-24"] * 1001}, "1,001 dates are too many; the limit is 1,000"),
        ({"blackouts": [[0, 1]] * 401}, "401 blackouts are too many; the limit is 400"),
        ({"blackouts": [["2026-12-24T00:00:00Z"]]}, "it takes pairs of times"),
        ({"blackouts": [["2026-12-24T00:00:00Z", "2026-12-23T00:00:00Z"]]}, "before it starts"),
        ({"on_closed": "cry"}, "on_closed 'cry' is not one of skip, next_open, previous_open"),
        ({"weekend": True}, "calendar has no 'weekend'; it takes country, subdivision"),
        ({"business_days": 1}, "business_days 1 is not true or false"),
        ("DE", "calendar 'DE' is not a Calendar"),
    ],
)
def test_a_wrong_calendar_is_refused(given, words):
    with pytest.raises(InvalidSchedule, match=words):
        cron("@daily", calendar=given)

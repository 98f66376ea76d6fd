"""What schedules may cost: work is counted, not timed, so that a busy machine changes nothing."""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest

from daybell.core.when import Calendar, Misfire, Schedule, any_of, cron, every, plan, rrule
from daybell.core.when.calendar import public_holidays
from daybell.core.when.zone import Effort, local
from daybell.errors import InvalidSchedule, UsageError
from tests.core.when.hostile import HOSTILE

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
CALLS_MAX = 60_000  # of Python and C functions; they took 0.1 to 0.25 us each on a quiet machine


def calls_of(act: Callable[[], object]) -> int:
    """How many functions are called."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        act()
    except UsageError:
        pass
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("given", HOSTILE, ids=lambda value: str(value)[:40])
def test_a_hostile_schedule_costs_next_to_nothing(given):
    public_holidays("DE", None, 2026)  # the package is loaded once in a process
    try:
        schedule = Schedule.parse(given)
    except UsageError:
        schedule = None

    assert calls_of(lambda: Schedule.parse(given, now=NOW)) < CALLS_MAX
    if schedule is not None:
        assert calls_of(lambda: schedule.next_after(NOW)) < CALLS_MAX
        assert calls_of(lambda: schedule.previous_until(NOW)) < CALLS_MAX
        assert calls_of(schedule.describe) < CALLS_MAX
        assert calls_of(schedule.to_json) < CALLS_MAX


HONEST = [
    any_of(*(cron(f"{n} {n % 24} * * *") for n in range(50))),
    any_of(*(rrule(f"FREQ=YEARLY;BYMONTH={n % 12 + 1};BYMONTHDAY={n}") for n in range(1, 29))),
    any_of(*(cron(f"{n} 9 * * *") for n in range(10)), excluding=cron("* * * 9-12,1-6 *")),
    any_of(cron("*/5 * * * *"), excluding=(cron("* 22-6 * * *"), cron("* * * * sat,sun"))),
    rrule("DTSTART:20250101T090000\nRRULE:FREQ=DAILY;COUNT=1000"),
    rrule("FREQ=DAILY;INTERVAL=2;BYDAY=MO", calendar=Calendar(country="DE")),
    rrule("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", tz="America/New_York"),
    rrule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", tz="Europe/Berlin"),
    rrule("FREQ=HOURLY;INTERVAL=23;BYMONTH=1;BYMONTHDAY=1;BYHOUR=3"),
    cron("0 0 29 2 1#5", tz="Australia/Lord_Howe"),
    cron("* * * * * *", calendar=Calendar(country="US", business_days=True, on_closed="next_open")),
    any_of(
        cron("0 9 * * *", calendar=Calendar(country="DE", subdivision="BY")),
        cron("0 9 * * *", calendar=Calendar(country="US")),
        calendar=Calendar(business_days=True, on_closed="previous_open"),
    ),
]


@pytest.mark.parametrize("schedule", HONEST, ids=lambda value: value.to_json()[:40])
def test_an_honest_schedule_is_answered(schedule):
    assert schedule.next_after(NOW) is not None
    assert schedule.previous_until(NOW) is not None


def test_all_parts_of_a_schedule_spend_from_one_effort():
    rare = [
        rrule(f"FREQ=YEARLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR={hour}")
        for hour in range(24)
    ]
    effort = Effort()
    rare[0].next_after(NOW, effort=effort)
    spent = Effort().left - effort.left

    assert spent * len(rare) > Effort().left
    with pytest.raises(InvalidSchedule, match="takes too long to find"):
        any_of(*rare).next_after(NOW)


def test_what_is_refused_does_not_depend_on_what_was_asked_before():
    counted = [rrule(f"FREQ=DAILY;COUNT=1000;BYHOUR={hour}") for hour in range(12)]
    for one in counted:
        one.next_after(NOW)  # its times are known from here on

    with pytest.raises(InvalidSchedule, match="takes too long to find"):
        any_of(*counted).next_after(NOW)


def test_a_union_is_refused_before_its_members_are_read():
    members = [{"any": [f"{minute} {hour} * * *" for hour in range(24)]} for minute in range(49)]

    assert calls_of(lambda: Schedule.parse({"any": members})) < 1_000


def test_a_schedule_that_could_not_be_read_back_is_refused():
    closed = [date(2026, 1, 1) + timedelta(days=number) for number in range(1_000)]
    parts = [cron(f"{n} 9 * * *", calendar=Calendar(dates=closed)) for n in range(2)]
    schedule = any_of(*parts)

    with pytest.raises(InvalidSchedule, match="characters as JSON; the limit is 20,000"):
        Schedule.parse(schedule)


@pytest.mark.parametrize("on_closed", ["skip", "next_open", "previous_open"])
@pytest.mark.parametrize("kind", [every("7m"), every("5m"), cron("* * * * *"), rrule("FREQ=DAILY")])
def test_many_missed_ticks_of_closed_days_are_planned_with_bounded_work(kind, on_closed):
    today = datetime.fromtimestamp(NOW, UTC).date()
    closed = [today - timedelta(days=number) for number in range(1, 32)]
    schedule = kind.replaced(calendar=Calendar(dates=closed, on_closed=on_closed))
    cursor = schedule.previous_until(NOW - 60 * 86_400)

    assert calls_of(lambda: plan(schedule, cursor, NOW, Misfire())) < CALLS_MAX
    assert calls_of(lambda: plan(schedule, cursor, NOW, Misfire("fire_all", 1_000))) < 900_000


def test_ticks_that_are_too_costly_to_find_are_said_to_be_missed():
    today = datetime.fromtimestamp(NOW, UTC).date()
    closed = [today - timedelta(days=number) for number in range(1, 32)]
    schedule = every("7m", calendar=Calendar(dates=closed, on_closed="next_open"))
    cursor = schedule.previous_until(NOW - 60 * 86_400)
    assert cursor is not None

    found = plan(schedule, cursor, NOW, Misfire("fire_all", 1_000), limit=1_000)

    assert str(found.ticks[0].reason).startswith("more than can be looked for at once")
    assert 100 < len(found.ticks) < 1_000
    assert found.ticks[0].until == schedule.latest(found.ticks[1].at - 0.001, cursor)


def test_listing_the_times_of_a_costly_schedule_ends_early():
    rare = [cron(f"{n} 2 29 2 *", tz=zone) for n in range(3) for zone in ("Asia/Gaza", "CET")]
    schedule = any_of(*rare)

    found = schedule.preview(1_000, NOW)

    assert 1 < len(found) < 1_000
    assert found == [local(tick, schedule.tz) for tick in islice(schedule.ticks(NOW), len(found))]
    assert len(cron("* * * * *").preview(1_000, NOW)) == 1_000


def test_days_in_a_row_are_excluded_at_once():
    schedule = any_of(cron("* * * * *"), excluding=cron("* * * 1-11 *"))
    effort = Effort()

    found = schedule.next_after(datetime(2027, 1, 1, tzinfo=UTC).timestamp(), effort=effort)

    assert found == datetime(2027, 12, 1, tzinfo=UTC).timestamp()
    assert Effort().left - effort.left < 150

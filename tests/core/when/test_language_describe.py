"""Schedules in plain English."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import Calendar, Schedule, any_of, at, cron, every, rrule
from daybell.errors import InvalidSchedule
from tests.core.when.walks import expressions


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("* * * * *", "Every minute, UTC"),
        ("*/5 * * * *", "Every 5 minutes, UTC"),
        ("*/40 * * * *", "At minutes 0 and 40 of every hour, UTC"),
        ("0 * * * *", "At minute 0 of every hour, UTC"),
        ("0 3 * * *", "At 03:00, UTC"),
        ("30 1-3 * * *", "At 01:30, 02:30 and 03:30, UTC"),
        ("0 9 * * mon-fri", "At 09:00 on Monday to Friday, UTC"),
        ("*/15 9-17 * * 1-5", "Every 15 minutes from 09:00 to 17:59 on Monday to Friday, UTC"),
        ("5 */2 * * *", "At minute 5 of every 2nd hour, UTC"),
        ("0 0 * * sat,sun", "At 00:00 on Saturday and Sunday, UTC"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month, UTC"),
        ("0 0 1 * mon", "At 00:00 on day 1 of the month or on Monday, UTC"),
        ("0 0 L * *", "At 00:00 on the last day of the month, UTC"),
        ("0 0 L-3 * *", "At 00:00 on the day 3 before the last of the month, UTC"),
        ("0 0 LW * *", "At 00:00 on the last weekday of the month, UTC"),
        ("0 0 15W * *", "At 00:00 on the weekday nearest to day 15 of the month, UTC"),
        ("0 0 * * 5L", "At 00:00 on the last Friday of the month, UTC"),
        ("0 0 * * 2#1", "At 00:00 on the first Tuesday of the month, UTC"),
        ("0 0 29 2 *", "At 00:00 on day 29 of the month in February, UTC"),
        ("0 0 * 6-8 *", "At 00:00 in June to August, UTC"),
        ("*/10 * * * * *", "Every 10 seconds, UTC"),
        ("30 0 9 * * *", "At 09:00:30, UTC"),
        ("0 0 12 * * ? 2030", "At 12:00 in 2030, UTC"),
        ("@weekly", "At 00:00 on Sunday, UTC"),
        ("@every 90s", "Every 1 minute 30 seconds"),
        ("@reboot", "When a scheduler starts and none was running"),
        ("cron(0 9 ? * 2-6 *)", "At 09:00 on Monday to Friday, UTC"),
        ("rate(1 hour)", "Every hour"),
    ],
)
def test_an_expression_in_english(text, english):
    assert cron(text).describe() == english


@pytest.mark.parametrize(
    ("schedule", "english"),
    [
        (cron("0 9 * * *", tz="Europe/Berlin"), "At 09:00, Europe/Berlin"),
        (every("2d"), "Every 2 days"),
        (every("1m", mode="delay"), "1 minute after the execution before has ended"),
        (
            every("5m", jitter="30s", max_executions=3),
            "Every 5 minutes, at most 3 times, late by up to 30 seconds",
        ),
        (at("2026-12-24T18:00:00+01:00"), "Once, on 2026-12-24 17:00:00+00:00 UTC"),
        (
            rrule("DTSTART:20260105T090000\nRRULE:FREQ=DAILY\nEXDATE:20260106,20260107T090000Z"),
            "By the rule FREQ=DAILY, counted from 2026-01-05 09:00, without 2 dates, UTC",
        ),
        (
            rrule("FREQ=DAILY;COUNT=3\nRDATE:20260106", tz="Asia/Tokyo"),
            "By the rule FREQ=DAILY;COUNT=3, counted from 1970-01-01, and on 1 other date,"
            " Asia/Tokyo",
        ),
        (rrule("FREQ=MONTHLY;BYDAY=-1FR"), "By the rule FREQ=MONTHLY;BYDAY=-1FR, UTC"),
        (Schedule.parse("manual"), "Only when it is triggered"),
        (
            any_of(every("1h"), excluding=cron("* 12 * * *")),
            "Every hour; except every minute from 12:00 to 12:59, UTC",
        ),
        (
            cron(
                "0 9 * * *",
                calendar=Calendar(country="DE", business_days=True, on_closed="next_open"),
            ),
            "At 09:00, UTC, not on weekends and public holidays of DE, but on the next open day",
        ),
    ],
)
def test_a_schedule_in_english(schedule, english):
    assert schedule.describe() == english


@settings(deadline=None)
@given(st.one_of(expressions(), expressions(seconds=True)))
def test_every_expression_has_a_description(expression):
    try:
        schedule = cron(expression.text, tz="Asia/Kathmandu")
    except InvalidSchedule:
        return

    text = schedule.describe()

    assert text[0].isupper()
    assert text.endswith(", Asia/Kathmandu")
    assert "  " not in text

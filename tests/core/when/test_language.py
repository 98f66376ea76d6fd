"""The language of schedules: forms that are read, and descriptions in English."""

from datetime import UTC, date, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import Calendar, Cron, Schedule, any_of, at, cron, every, rrule
from daybell.errors import InvalidSchedule, UsageError
from tests.core.when.walks import expressions
from tests.refusals import refuses

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()

# Two ways to write the same schedule.
SAME = [
    ("0 9 * * mon-fri", cron("0 9 * * MON-FRI")),
    (" 0  9 * * 1-5 ", cron("0 9 * * 1-5")),
    ("@daily", cron("0 0 * * *")),
    ("@every 90s", every(90)),
    ("rate(5 minutes)", every("5m")),
    ("rate(1 day)", every("1d")),
    ("at(2026-12-24T18:00:00)", at("2026-12-24T18:00:00Z")),
    ("cron(0 9 ? * MON-FRI *)", cron("0 9 ? * MON-FRI *", dialect="aws")),
    ({"cron": "@hourly", "tz": "Europe/Berlin"}, cron("0 * * * *", tz="Europe/Berlin")),
    ({"cron": "0 2 * * *", "dst": {"gap": "skip"}}, cron("0 2 * * *", gap="skip")),
    ({"cron": "0 0 12 ? * 2", "dialect": "quartz"}, cron("0 0 12 ? * 2", dialect="quartz")),
    ({"every": "5m", "mode": "delay"}, every(300, mode="delay")),
    ({"every": "1h", "anchor": "2026-01-01T00:10:00Z"}, every("1h", anchor=600)),
    ({"at": "2026-12-24T18:00:00+01:00"}, at(datetime(2026, 12, 24, 17, tzinfo=UTC))),
    (
        {"at": "2026-12-24T18:00:00", "tz": "Europe/Berlin"},
        at("2026-12-24T18:00:00+01:00", tz="Europe/Berlin"),
    ),
    ({"delay": "1m"}, at(NOW + 60)),
    ({"rrule": "freq=daily"}, rrule("FREQ=DAILY")),
    ({"any": ["0 9 * * *", {"every": "1h"}]}, every("1h") | cron("0 9 * * *")),
    ({"any": ["0 9 * * *"], "except": ["* * 25 12 *"]}, cron("0 9 * * *") - cron("* * 25 12 *")),
    (
        {"cron": "@daily", "calendar": {"country": "DE"}},
        cron("@daily", calendar=Calendar(country="DE")),
    ),
]


@pytest.mark.parametrize(("given", "schedule"), SAME, ids=lambda value: str(value)[:40])
def test_a_schedule_is_read_in_every_form(given, schedule):
    found = Schedule.parse(given, now=NOW)

    assert found == schedule
    assert hash(found) == hash(schedule)
    assert found.to_json() == schedule.to_json()
    assert Schedule.from_json(found.to_json()) == found


@settings(deadline=None)
@given(
    st.one_of(expressions(), expressions(seconds=True)),
    st.sampled_from(["UTC", "Asia/Kathmandu"]),
    st.fixed_dictionaries(
        {},
        optional={
            "jitter": st.integers(1, 1000),
            "start_at": st.floats(0, 4e9),
            "max_executions": st.integers(1, 100),
            "gap": st.sampled_from(["shift", "skip"]),
            "fold": st.sampled_from(["first", "second", "both"]),
            "calendar": st.just(Calendar(dates=(date(2026, 12, 24),), on_closed="next_open")),
        },
    ),
)
def test_json_brings_back_the_same_schedule(expression, zone, options):
    try:
        schedule = cron(expression.text, tz=zone, **options)
    except InvalidSchedule:
        return

    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("61 * * * *", "minute '61' has 61; it takes 0-59"),
        ("* 24 * * *", "hour '24' has 24; it takes 0-23"),
        ("* * 0 * *", "day of month '0' has 0; it takes 1-31"),
        ("* * * 13 *", "month '13' has 13; it takes 1-12 or JAN-DEC"),
        ("* * * * 8", "day of week '8' has 8; it takes 0-7 or SUN-SAT"),
        ("* * * * * * 1969", "year '1969' has 1969; it takes 1970-2199"),
        ("*/0 * * * *", r"minute '\*/0' has a step of 0, and steps begin at 1"),
        ("*/x * * * *", "has a step 'x' that is not a number"),
        ("1- * * * *", "minute '1-' lacks a number"),
        ("1,,2 * * * *", "minute '1,,2' lacks a number"),
        ("* * * foo *", "month 'foo' has 'foo' where a number belongs"),
        ("0 9 * * Mon-Frei", "day of week 'Mon-Frei' has 'Frei' where a number belongs"),
        ("nonsense", "^'nonsense' has 1 field"),
        ("* * * * 1#6", "asks for the '6'th of a month"),
        ("* * L-31 * *", "day of month 'L-31'"),
        ("? * * * *", "leaves open what only a day may"),
        ("* * ?,1 * *", "which stands alone"),
        ("H(9-3) * * * *", "range of H that ends before it starts"),
        ("HH * * * *", "neither H nor like H"),
        ("* * * *", "has 4 fields; unix cron takes 5"),
        ("", "cron is empty"),
        ("@fortnightly", "there is no macro '@fortnightly'"),
        ("every 5m", 'is an interval, not cron; did you mean @every 5m[?] In Python that is every'),
        ("every 5 minutes", "did you mean @every 5m[?].*on the command line --every 5m"),
        ("90s", "did you mean @every 90s[?]"),
        ("every day", "an interval is written @every 5m.*once a day is @daily"),
        ("5", "has 1 field"),
        ("FREQ=DAILY", "is a recurrence rule, not cron; write rrule"),
        ("rate(5 parsecs)", "it takes a number and minutes, hours or days"),
        ("cron(0 9 * * * *)", "aws cron takes a [?] in exactly one of them"),
        ("at(tomorrow)", "at: 'tomorrow' is not a time"),
        ("0 0 30 2 *", "never fires: there is no such date"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("0 0 0 29 2 ? 2027", "never fires"),
        ("0 0 0 1 1 ? 2020", "never fires from now on"),
        ({"at": "2020-01-01T00:00:00Z"}, "never fires from now on"),
        ({"at": "2027-01-01T00:00:00"}, "has no offset"),
        ({"cron": "@daily", "end_at": "2020-01-01T00:00:00Z"}, "never fires from now on"),
        ({"cron": "@daily", "when": 1}, "with cron has no 'when'; it takes cron, dialect"),
        ({"cron": "@daily", "every": 5}, "has cron and every; it takes exactly one of"),
        ({}, "it takes exactly one of cron, every"),
        ({"cron": "@daily", "dst": {"hole": 1}}, "dst has no 'hole'; it takes gap, fold"),
        ({"cron": "@daily", "dst": {"gap": "jump"}}, "gap 'jump' is not one of shift, skip"),
        ({"cron": "@daily", "max_executions": 0}, "max_executions 0 is not a whole number"),
        ({"cron": 5}, "cron 5 is of type int"),
        ({"every": "1ms"}, "is too often"),
        ({"every": "soon"}, "every 'soon' cannot be read"),
        ({"any": []}, "a union of no schedules"),
        ({"any": ["@reboot"]}, "cannot be part of a union"),
        ({"any": [{"cron": "@daily", "jitter": 5}]}, "belong to the union"),
        ({"manual": False}, "manual takes true"),
        (5, "is of type int; it takes a cron expression"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_wrong_schedule_is_refused_with_what_it_takes(given, words):
    with pytest.raises(UsageError, match=words):
        Schedule.parse(given, now=NOW)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = [
    "cron",
    "every",
    "at",
    "delay",
    "rrule",
    "any",
    "except",
    "tz",
    "jitter",
    "start_at",
    "end_at",
    "max_executions",
    "dst",
]
KEYS += ["calendar", "mode", "anchor", "dialect", "manual"]


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        anything,
        st.dictionaries(st.sampled_from(KEYS), anything, max_size=3),
        st.builds(
            lambda key, value: {"cron": "@daily", key: value}, st.sampled_from(KEYS), anything
        ),
        st.builds(
            lambda key, value: {"cron": "@daily", "calendar": {key: value}},
            st.sampled_from(["country", "subdivision", "business_days", "dates", "blackouts"]),
            anything,
        ),
        st.text("0123456789*/-,LW#?HJANMOFRI@()RATEC ", max_size=30),
        st.text("FREQ=DAILYMONTHBSPOC;,-0123456789", max_size=30).map(
            lambda t: {"rrule": f"FREQ=DAILY;{t}"}
        ),
    )
)
def test_whatever_is_given_is_read_or_refused(given):
    try:
        schedule = Schedule.parse(given, now=NOW)
    except UsageError as error:
        assert str(error)
        return

    assert schedule.describe()
    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize("zone", ["localtime", "right/Europe/Berlin", "posixrules", "europe"])
def test_a_zone_is_one_that_means_the_same_on_every_machine(zone):
    with refuses(InvalidSchedule, field="tz"):
        cron("0 9 * * *", tz=zone)


def test_h_is_the_same_for_a_name_and_spread_over_names():
    schedule = cron("H H(0-5) * * *")
    names = [f"default/job-{number}" for number in range(300)]

    bound = [schedule.bind(name) for name in names]

    assert bound == [schedule.bind(name) for name in names]
    minutes = {one.expression.split()[0] for one in bound if isinstance(one, Cron)}
    hours = {one.expression.split()[1] for one in bound if isinstance(one, Cron)}
    assert len(minutes) > 50
    assert hours == set("012345")


def test_h_with_a_step_keeps_the_step():
    bound = cron("H/15 * * * *").bind("default/job")

    found = bound.preview(9, NOW)

    assert {(two - one).total_seconds() for one, two in pairwise(found)} == {900}


@settings(deadline=None)
@given(st.floats(1, 10_000), st.text(max_size=5), st.floats(1e9, 2e9))
def test_jitter_is_bounded_by_itself_and_by_the_next_tick(jitter, name, after):
    schedule = cron("*/10 * * * *", jitter=jitter)
    tick = schedule.next_after(after)
    assert tick is not None

    late = schedule.jitter_of(tick, name)

    assert 0 <= late <= schedule.jitter  # type: ignore[operator]
    assert late < 600
    assert late == schedule.jitter_of(tick, name)


def test_jitter_differs_between_jobs_and_ticks():
    schedule = every("1h", jitter="10m")

    found = {schedule.jitter_of(tick * 3600.0, name) for tick in range(10) for name in ("a", "b")}

    assert len(found) == 20


def test_start_and_end_are_ticks_if_they_are_on_the_schedule():
    schedule = every("1h", start_at=7200, end_at=10_800)

    assert [schedule.next_after(0), schedule.next_after(7200), schedule.next_after(10_800)] == [
        7200,
        10_800,
        None,
    ]
    assert schedule.previous_until(1e9) == 10_800
    assert schedule.previous_until(7199) is None


@settings(deadline=None)
@given(st.floats(0.01, 1e6), st.floats(-1e9, 4e9), st.floats(-1e9, 4e9))
def test_intervals_are_multiples_of_the_period_from_the_anchor(period, anchor, after):
    schedule = every(period, anchor=anchor)
    tick = schedule.next_after(after)
    assert tick is not None

    assert after < tick <= after + schedule.period + 1e-5
    assert schedule.previous_until(tick) == tick
    steps = (tick - anchor) / schedule.period
    assert abs(steps - round(steps)) * schedule.period < 1e-3
    assert schedule.latest(tick, after) == tick


def test_a_union_has_each_tick_once_and_none_that_is_excluded():
    schedule = any_of(cron("0 9 * * *"), every("3h"), excluding=cron("* 12-23 * * *"))

    found = [one.hour for one in schedule.preview(6, datetime(2026, 1, 1, tzinfo=UTC).timestamp())]

    assert found == [3, 6, 9, 0, 3, 6]


def test_a_whole_season_may_be_excluded():
    schedule = cron("* * * * *") - cron("* * * 1-6 *")
    winter = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()

    assert schedule.preview(1, winter)[0] == datetime(2026, 7, 1, tzinfo=UTC)
    assert schedule.previous_until(winter) == datetime(2025, 12, 31, 23, 59, tzinfo=UTC).timestamp()


# Schedules in plain English.


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

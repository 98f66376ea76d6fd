"""Recurrence rules, compared with python-dateutil's."""

from datetime import UTC, datetime, timedelta
from itertools import islice, permutations
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import DAILY, rruleset, rrulestr
from dateutil.rrule import rrule as dateutil_rule
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from daybell.core.when import Schedule, rrule
from daybell.errors import InvalidSchedule

STARTS = ["20260131T093000", "19700101T000000", "20240229T235959", "20251229T030000"]
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def listed(items):
    return st.lists(items, min_size=1, max_size=3, unique=True).map(
        lambda found: ",".join(map(str, found))
    )


def signed(highest):
    return st.integers(-highest, highest).filter(bool)


@st.composite
def rules(draw):
    frequency = draw(
        st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"])
    )
    parts = [f"FREQ={frequency}"]
    interval = draw(st.integers(1, 5))
    if interval > 1:
        parts.append(f"INTERVAL={interval}")
    weekdays = st.sampled_from(WEEKDAYS)
    if frequency in ("YEARLY", "MONTHLY"):
        # Not mixed with plain ones: dateutil then wants both at once, where the RFC adds them.
        weekdays = draw(
            st.sampled_from([weekdays, st.builds("{}{}".format, signed(4), weekdays)]),
        )
    optional = {
        "BYMONTH": listed(st.integers(1, 12)),
        "BYMONTHDAY": listed(signed(31)),
        "BYDAY": listed(weekdays),
        "BYHOUR": listed(st.integers(0, 23)),
        "BYMINUTE": listed(st.integers(0, 59)),
        "WKST": st.sampled_from(WEEKDAYS),
    }
    if frequency == "YEARLY":
        optional["BYYEARDAY"] = listed(signed(366))
        optional["BYWEEKNO"] = listed(signed(53))
    chosen = draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True))
    if "BYWEEKNO" in chosen:  # a number before a weekday has no meaning beside it
        optional["BYDAY"] = listed(st.sampled_from(WEEKDAYS))
    parts += [f"{name}={draw(optional[name])}" for name in chosen]
    if frequency in ("YEARLY", "MONTHLY", "WEEKLY") and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(listed(signed(3)))}")
    return ";".join(parts)


def of_dateutil(text, start, after, count):
    if "BYWEEKNO" in text and not ({"BYDAY", "BYMONTHDAY", "BYYEARDAY"} & names_in(text)):
        # dateutil takes all seven days of such a week, the RFC the weekday of DTSTART.
        text += f";BYDAY={WEEKDAYS[start.weekday()]}"
    rule = rrulestr(text, dtstart=start.replace(tzinfo=None))
    return [
        one.replace(tzinfo=UTC) for one in islice(rule.xafter(after.replace(tzinfo=None)), count)
    ]


# Not shrunk: dateutil may walk to the year 9999 for what shrinking tries.
@settings(deadline=None, max_examples=50, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(rules(), st.sampled_from(STARTS), st.integers(0, 1500))
def test_the_times_of_a_rule_are_those_of_dateutil(text, begin, days):
    start = datetime.strptime(begin, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    # dateutil walks there from the start, minute by minute.
    after = start + timedelta(days=days % 10 if "LY;" in text and text[5] in "HM" else days)
    try:
        schedule = rrule(f"DTSTART:{begin}\nRRULE:{text}")
    except InvalidSchedule as error:
        assert "never fires" in str(error) or "if there is one" in str(error)
        return
    found = schedule.preview(5, after.timestamp())
    assume(len(found) == 5 and found[-1].year < after.year + 8)  # dateutil takes long for those

    assert found == of_dateutil(text, start, after, 5)
    assert backwards(schedule, found[-1], 4) == found[-2::-1]


def names_in(text):
    return {part.partition("=")[0] for part in text.split(";")}


ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"]
DAYS = st.integers(0, 400)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(ZONES),
    st.lists(st.tuples(st.sampled_from([*ZONES, "Z", None]), DAYS), max_size=4),
    st.lists(st.tuples(st.sampled_from([*ZONES, "Z", None]), DAYS, st.integers(0, 86_399))),
    st.randoms(use_true_random=False),
)
def test_each_line_has_a_zone_of_its_own_as_in_dateutil(zone, removed, added, dice):
    """Dates that are removed are ticks of the rule, told by the clock of another zone."""
    home = ZoneInfo(zone)
    expected = rruleset()
    expected.rrule(dateutil_rule(DAILY, dtstart=NOON.replace(tzinfo=home)))
    lines = [f"DTSTART;TZID={zone}:20260101T120000", "RRULE:FREQ=DAILY"]
    for other, day in removed:
        tick = (NOON + timedelta(days=day)).replace(tzinfo=home)
        expected.exdate(tick)
        lines.append(f"EXDATE{written(tick, other, zone)}")
    for other, day, second in added:
        # Not where the clocks of some zone change: there dateutil's reading of it differs.
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day % 60, seconds=second)
        expected.rdate(moment.astimezone(home))
        lines.append(f"RDATE{written(moment, other, zone)}")
    dice.shuffle(lines)

    schedule = rrule("\n".join(lines))

    begin = datetime(2025, 12, 30, tzinfo=UTC)
    found = schedule.preview(450, begin.timestamp())
    assert schedule.tz == zone
    assert found == sorted(set(islice(expected.xafter(begin), 450)))
    assert backwards(schedule, found[-1], 449) == found[-2::-1]
    assert Schedule.from_json(schedule.to_json()) == schedule


def written(moment: datetime, other: str | None, home: str) -> str:
    """A moment as the rest of a line: in UTC, in another zone, or in the schedule's own.

    A wall clock that shows a time twice cannot name the second one.
    """
    if other == "Z" or moment.astimezone(ZoneInfo(other or home)).fold:
        return f":{moment.astimezone(UTC):%Y%m%dT%H%M%S}Z"
    parameter = "" if other is None else f";TZID={other}"
    return f"{parameter}:{moment.astimezone(ZoneInfo(other or home)):%Y%m%dT%H%M%S}"


def backwards(schedule: Schedule, moment: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(count):
        tick = schedule.previous_until(moment.timestamp() - 1)
        assert tick is not None
        moment = datetime.fromtimestamp(tick, UTC)
        found.append(moment)
    return found


def times(text: str, count: int, *, after: str = "2026-01-01", **options) -> list[str]:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp() - 1
    found = rrule(text, **options).preview(count, moment)
    return [one.isoformat(timespec="minutes") for one in found]


def test_weekdays_with_and_without_a_number_add_up():
    assert times("FREQ=MONTHLY;BYDAY=MO,1TU", 5) == [
        "2026-01-05T00:00+00:00",
        "2026-01-06T00:00+00:00",
        "2026-01-12T00:00+00:00",
        "2026-01-19T00:00+00:00",
        "2026-01-26T00:00+00:00",
    ]


def test_dates_are_taken_away_and_added():
    text = """DTSTART;TZID=Europe/Berlin:20260101T090000
    RRULE:FREQ=DAILY;COUNT=4
    EXDATE:20260102T090000,20260103
    RDATE:20260110T120000"""

    assert times(text, 9) == [
        "2026-01-01T09:00+01:00",
        "2026-01-04T09:00+01:00",
        "2026-01-10T12:00+01:00",
    ]


@pytest.mark.parametrize(
    "lines",
    list(
        permutations(
            [
                "DTSTART;TZID=America/New_York:20260105T090000",
                "EXDATE;TZID=Europe/Berlin:20260106T150000",
                "RRULE:FREQ=DAILY",
            ]
        )
    ),
    ids=lambda lines: " ".join(line[:5] for line in lines),
)
def test_a_date_in_another_zone_is_taken_away(lines):
    assert times("\n".join(lines), 2) == [
        "2026-01-05T09:00-05:00",
        "2026-01-07T09:00-05:00",
    ]


def test_a_date_in_utc_names_one_of_two_times_on_the_clock():
    hourly = "DTSTART;TZID=Europe/Berlin:20261025T010000\nRRULE:FREQ=HOURLY;COUNT=4\n"

    assert times(f"{hourly}EXDATE:20261025T010000Z", 9) == [
        "2026-10-25T01:00+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T03:00+01:00",
        "2026-10-25T04:00+01:00",
    ]
    shifted = (
        "DTSTART;TZID=Europe/Berlin:20260328T023000\nRRULE:FREQ=DAILY\nEXDATE:20260329T010000Z"
    )
    assert times(shifted, 2) == ["2026-03-28T02:30+01:00", "2026-03-30T02:30+02:00"]


def test_a_week_without_a_day_means_the_weekday_of_the_start():
    """RFC 5545, section 3.3.10: what the rule does not say comes from DTSTART."""
    text = "DTSTART:19970512T090000\nRRULE:FREQ=YEARLY;BYWEEKNO=20"

    assert times(text, 3) == [
        "2026-05-11T09:00+00:00",
        "2027-05-17T09:00+00:00",
        "2028-05-15T09:00+00:00",
    ]
    all_days = times("FREQ=DAILY;BYWEEKNO=20", 8)
    assert [one[:10] for one in all_days] == [
        *(f"2026-05-{day}" for day in range(11, 18)),
        "2027-05-17",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'DTSTART;TZID="Europe/Berlin":20260105T090000\nRRULE:FREQ=DAILY;COUNT=2',
        "DTSTART;tzid=Europe/Berlin:20260105T090000\r\nRRULE:FREQ=DAILY;\r\n COUNT=2\r\n",
        "DTSTART;TZID=Europe/Berlin:20260105T09\r\n 0000\r\nRRULE:FREQ=DAI\r\n\tLY;COUNT=2",
        "DTSTART;TZID=Europe/Berlin:20260105T090000 RRULE:FREQ=DAILY;COUNT=2",
        "DTSTART;TZID=Europe/Berlin:20260105T090000 FREQ=DAILY; COUNT=2",
        "\n DTSTART;TZID=Europe/Berlin:20260105T090000\n FREQ=DAILY;COUNT=2\n",
        'DTSTART;X-NOTE="at: nine";TZID=Europe/Berlin:20260105T090000\nRRULE:FREQ=DAILY;COUNT=2',
    ],
)
def test_lines_may_be_folded_quoted_or_indented(text):
    assert times(text, 9) == ["2026-01-05T09:00+01:00", "2026-01-06T09:00+01:00"]


def test_an_end_in_utc_is_an_end_on_the_clock():
    text = "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;UNTIL=20260102T080000Z"

    assert times(text, 9, tz="Europe/Berlin") == [
        "2026-01-01T09:00+01:00",
        "2026-01-02T09:00+01:00",
    ]


def test_days_keep_their_time_and_hours_their_spacing_when_clocks_change():
    daily = times("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", 2, after="2026-03-29", tz="Europe/Berlin")
    hourly = times("FREQ=HOURLY", 3, after="2026-03-29", tz="Europe/Berlin")

    assert daily == ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]
    assert hourly == ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs exactly one rule"),
        ("FREQ=OFTEN", "FREQ 'OFTEN' is not one of YEARLY"),
        ("FREQ=DAILY;BYMOON=1", "has 'BYMOON=1'; it takes"),
        ("FREQ=DAILY;BYHOUR=24", "has BYHOUR='24'; it takes 0 to 23"),
        ("FREQ=DAILY;BYHOUR=٣", "BYHOUR"),
        ("FREQ=DAILY;INTERVAL=0", "has INTERVAL='0'; it takes 1 to"),
        ("FREQ=DAILY;COUNT=1000000000", "COUNT"),
        ("FREQ=DAILY;BYDAY=2MO", "needs FREQ=MONTHLY or YEARLY"),
        ("FREQ=DAILY;FREQ=DAILY", "has FREQ twice"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
        ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
        ("DTSTART:2026\nRRULE:FREQ=DAILY", "has the time '2026'"),
        ("DTEND:20260101\nRRULE:FREQ=DAILY", "has a line 'DTEND'"),
        ("DTSTART;TZID=Mars/Base:20260101T000000\nRRULE:FREQ=DAILY", "no time zone 'Mars/Base'"),
        (
            "DTSTART;TZID=W. Europe Standard Time:20260101T090000\nRRULE:FREQ=DAILY",
            "no time zone 'W. Europe Standard Time'",
        ),
        ("DTSTART;TZID=Europe/Berlin:20260101T090000Z\nRRULE:FREQ=DAILY", "leave out one of them"),
        ("RRULE;TZID=Europe/Berlin:FREQ=DAILY", "put it on DTSTART"),
        ("FREQ=DAILY\nEXDATE;TZID=Asia/Tokyo:20260101", "give it a time of day"),
        ("FREQ=DAILY;COUNT=1\nEXDATE:19700101T000000Z", "never fires"),
        ("FREQ=DAILY;" + "X" * 5000, "characters; the limit is 4,000"),
        (None, "is not text"),
    ],
)
def test_a_wrong_rule_is_refused(text, words):
    with pytest.raises(InvalidSchedule, match=words):
        rrule(text)

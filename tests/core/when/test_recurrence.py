"""Recurrence rules, compared with python-dateutil's."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
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
        ("FREQ=DAILY;" + "X" * 5000, "characters; the limit is 4,000"),
        (None, "is not text"),
    ],
)
def test_a_wrong_rule_is_refused(text, words):
    with pytest.raises(InvalidSchedule, match=words):
        rrule(text)

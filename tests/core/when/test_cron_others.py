"""Cron compared with cronsim and croniter, on the syntax and the times that they share.

Where they differ on purpose, a row below says how and why; each row is checked, so that it goes
when the difference does.
"""

import re
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import cron
from daybell.errors import InvalidSchedule
from tests.core.when.walks import CHANGES, Expression, expressions, fixed_times, near

# Here cronsim finds all ticks of open expressions; where clocks change by other than whole hours,
# or at midnight, it does not: see DIFFERENCES.
WHOLE_HOURS = {"Europe/Berlin", "America/New_York", "Antarctica/Troll", "Africa/Casablanca", "UTC"}


# Read alike by all three: a star, with a step of more than one or without, numbers, names, and
# ranges of two numbers that rise. The others read `5-5/2` as `5/2`, `5/1` as `*` and `0-0` as `*`,
# and refuse `22-2`; `?`, `L-3` and `15W` are not in cronsim, or not in croniter.
PLAIN = re.compile(r"\*(/[2-9]\d*)?|\d+|[a-z]{3}|(?P<low>\d+)-(?P<high>\d+)(/\d+)?")


def is_plain(text: str) -> bool:
    found = [PLAIN.fullmatch(item) for item in text.replace(" ", ",").split(",")]
    return all(one and (one["low"] is None or int(one["low"]) < int(one["high"])) for one in found)


def is_shared(expression: Expression) -> bool:
    """Whether the others read it, and as we do."""
    times = (expression.minute.text, expression.hour.text)
    is_written_out = any(text.startswith(("0-59", "0-23")) for text in times)  # see DIFFERENCES
    special = re.sub(r"\b(L|LW|\d#\d|\dL|[a-z]{3}#\d)(?=[ ,]|$)", "1", expression.text)
    return is_plain(special) and not is_written_out


def after(moment: datetime, text: str, zone: str, count: int) -> list[str]:
    found = cron(text, tz=zone).preview(count, moment.timestamp())
    return [one.isoformat() for one in found]


@settings(deadline=None, max_examples=80)
@given(st.one_of(fixed_times(), expressions()).filter(is_shared), st.sampled_from(CHANGES))
def test_ticks_are_those_of_cronsim(expression, change):
    zone, start = near(change, hours=30)
    if expression.is_open and zone not in WHOLE_HOURS:
        return
    local = start.astimezone(ZoneInfo(zone))
    try:
        expected = [one.isoformat() for one in islice(CronSim(expression.text, local), 8)]
    except CronSimError:  # a range that goes around the end, or a day that never comes
        return

    try:
        found = after(start, expression.text, zone, 8)
    except InvalidSchedule as error:
        assert "never fires" in str(error) or "if there is one" in str(error), expression
        assert not expected
        return

    assert found == expected


@settings(deadline=None, max_examples=80)
@given(expressions(), st.integers(946_684_800, 2_840_140_800))
def test_ticks_in_utc_are_those_of_croniter(expression, moment):
    text = expression.text
    if not is_plain(text):
        return
    start = datetime.fromtimestamp(moment, UTC)
    try:
        theirs = croniter(text, start, implement_cron_bug=True)
        expected = [theirs.get_next(datetime).isoformat() for _ in range(5)]
    except Exception:  # it gives up on days that are years apart
        return

    assert after(start, text, "UTC", 5) == expected


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 4), st.integers(1, 500), st.booleans(), st.integers(0, 4_000_000_000))
def test_steps_of_any_size_are_those_of_the_others(place, step, is_ranged, moment):
    """Also steps that are larger than their field: only its first value matches then."""
    lowest, highest = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)][place]
    texts = ["0", "0", "1", "1", "*"]
    if place in (2, 4):
        texts[2] = "*"
    texts[place] = f"{lowest}-{highest}/{step}" if is_ranged else f"*/{step}"
    text = " ".join(texts)
    start = datetime.fromtimestamp(moment, UTC)
    theirs = croniter(text, start, implement_cron_bug=True)
    by_croniter = [theirs.get_next(datetime).isoformat() for _ in range(5)]

    found = after(start, text, "UTC", 5)

    assert found == [one.isoformat() for one in islice(CronSim(text, start), 5)]
    assert found == by_croniter
    assert bool(cron(text).warnings()) == (step > highest - lowest)


# What another library says, what we say, and why we do. From the given local time on.
DIFFERENCES = [
    (
        "cronsim",
        "America/Sao_Paulo",
        "*/30 * 4 11 *",
        "2018-11-03T12:00",
        "11-04T00:00-03:00 11-04T01:30-02:00",
        "11-04T01:00-02:00 11-04T01:30-02:00",
        "its 00:00 does not exist; the instant is right, and the clock shows 01:00 then",
    ),
    (
        "cronsim",
        "Australia/Lord_Howe",
        "*/20 0 * * *",
        "2026-04-05T00:30",
        "04-05T00:40+11:00 04-06T00:40+10:30",
        "04-05T00:40+11:00 04-06T00:00+10:30",
        "it goes on hour by hour from half past, and passes by what is earlier",
    ),
    (
        "cronsim",
        "Europe/Berlin",
        "0 30 2 * * *",
        "2026-03-29T00:00",
        "03-30T02:30+02:00",
        "03-29T03:00+02:00",
        "cronsim knows gaps for five fields only; seconds do not make a time less fixed",
    ),
    (
        "cronsim",
        "Europe/Berlin",
        "0 0/1 * * *",
        "2026-10-25T01:30",
        "10-25T02:00+02:00 10-25T03:00+01:00",
        "10-25T02:00+02:00 10-25T02:00+01:00",
        "0/1 is */1 as Quartz writes it, and keeps its spacing, too",
    ),
    (
        "croniter",
        "Europe/Berlin",
        "30 2 * * *",
        "2026-10-25T00:00",
        "10-25T02:30+02:00 10-25T02:30+01:00",
        "10-25T02:30+02:00 10-26T02:30+01:00",
        "a fixed time that exists twice is meant once",
    ),
]


@pytest.mark.parametrize(("library", "zone", "text", "start", "theirs", "ours", "why"), DIFFERENCES)
def test_a_difference_is_as_the_table_says(library, zone, text, start, theirs, ours, why):
    moment = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone))
    count = theirs.count(" ") + 1
    if library == "cronsim":
        found = list(islice(CronSim(text, moment), count))
    else:
        iterator = croniter(text, moment)
        found = [iterator.get_next(datetime) for _ in range(count)]
    own = cron(text, tz=zone).preview(ours.count(" ") + 1, moment.timestamp())

    assert " ".join(one.isoformat(timespec="minutes")[5:] for one in found) == theirs
    assert " ".join(one.isoformat(timespec="minutes")[5:] for one in own) == ours
    assert why


def test_six_fields_have_seconds_first_unlike_with_croniter():
    start = datetime(2026, 1, 1, 8, 59, 30, tzinfo=UTC)

    assert croniter("0 0 9 * * *", start).get_next(datetime).day == 9  # minute hour day …
    assert cron("0 0 9 * * *").preview(1, start.timestamp())[0].hour == 9

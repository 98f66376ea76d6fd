"""Durations and memory sizes: read, refused and formatted."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.limits import DURATION_SECONDS_MAX
from daybell.core.units import format_duration, format_size, parse_duration, parse_limit, parse_size
from daybell.errors import InvalidDuration, UsageError, shown

TAKES = 'a duration is a number of seconds, or text like "90s", "5m", "1h30m", "2d", "PT5M"'
durations = st.floats(0, DURATION_SECONDS_MAX)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        (" 1.5 ", 1.5),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("5 m", 300),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("500ms", 0.5),
        ("1m5ms", 60.005),
        ("100ms", 0.1),
        ("0.1s", 0.1),
        ("250us", 0.00025),
        ("1w2d3h4m5s6ms7us", 788_645.006007),
        ("PT5M", 300),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("PT1.5S", 1.5),
        ("PT0,5H", 1800),
        (timedelta(days=1, microseconds=1), 86_400.000001),
        (DURATION_SECONDS_MAX, DURATION_SECONDS_MAX),
        (1e-9, 0),
    ],
    ids=shown,
)
def test_every_way_to_write_a_duration_is_read(value, seconds):
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    ("value", "seen", "fact"),
    [
        ("", "''", "is empty"),
        ("  ", "'  '", "is empty"),
        ("soon", "'soon'", "cannot be read"),
        ("5 minutes", "'5 minutes'", "cannot be read"),
        ("30m1h", "'30m1h'", "cannot be read"),
        ("1h1h", "'1h1h'", "cannot be read"),
        ("5H", "'5H'", "cannot be read"),
        ("1e3", "'1e3'", "cannot be read"),
        ("1_000", "'1_000'", "cannot be read"),
        ("٣s", "'٣s'", "cannot be read"),
        ("nan", "'nan'", "cannot be read"),
        ("h", "'h'", "cannot be read"),
        ("P", "'P'", "cannot be read"),
        ("PT", "'PT'", "cannot be read"),
        ("P1DT", "'P1DT'", "cannot be read"),
        ("P1H", "'P1H'", "cannot be read"),
        ("P1Y", "'P1Y'", "has years or months, which have no fixed length; use days"),
        ("P2M", "'P2M'", "has years or months, which have no fixed length; use days"),
        ("P1Y2MT3H", "'P1Y2MT3H'", "has years or months, which have no fixed length; use days"),
        (-1, "-1", "is negative"),
        ("-5s", "'-5s'", "is negative"),
        (timedelta(seconds=-1), "datetime.timedelta(days=-1, seconds=86399)", "is negative"),
        (float("nan"), "nan", "is not a number"),
        (float("inf"), "inf", "is infinite"),
        (float("-inf"), "-inf", "is negative"),
        (True, "True", "is of type bool"),
        (None, "None", "is of type NoneType"),
        ([1], "[1]", "is of type list"),
        ("11000d", "'11000d'", "is longer than ten years"),
        ("9" * 64, f"'{'9' * 59}…", "is longer than ten years"),
        (10**400, f"{'1' + '0' * 59}…", "is longer than ten years"),
        ("9" * 65, f"'{'9' * 59}…", "has 65 characters"),
        ("1" * 10**6, f"'{'1' * 59}…", "has 1,000,000 characters"),
    ],
    ids=shown,
)
def test_what_is_no_duration_is_refused_with_the_reason(value, seen, fact):
    with pytest.raises(InvalidDuration) as refusal:
        parse_duration(value, what="timeout")

    assert str(refusal.value) == f"timeout {seen} {fact}; {TAKES}"
    assert refusal.value.field == "timeout"


@pytest.mark.parametrize("value", [0, 0.0, "0s", "PT0S", timedelta(0), 1e-9], ids=shown)
def test_a_limit_is_not_zero(value):
    with pytest.raises(InvalidDuration) as refusal:
        parse_limit(value, what="expires")

    said = f"expires {shown(value)} is no time at all; leave it out if there is no limit"
    assert (str(refusal.value), refusal.value.field) == (said, "expires")
    assert parse_limit("1us", what="expires") == 0.000001


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.00025, "250us"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (90, "1m30s"),
        (3600, "1h"),
        (5400, "1h30m"),
        (86_400, "1d"),
        (604_800, "1w"),
        (691_200, "8d"),
        (90_061.25, "1d1h1m1.25s"),
    ],
)
def test_a_duration_is_written_as_a_person_would(seconds, text):
    assert format_duration(seconds) == text


@given(durations)
def test_what_is_written_is_read_back_the_same(seconds):
    assert parse_duration(format_duration(seconds)) == parse_duration(seconds)


@given(durations)
def test_a_duration_is_kept_to_the_microsecond(seconds):
    # A float of ten years is itself spaced 60 ns apart.
    assert abs(parse_duration(seconds) - seconds) <= 0.6e-6


@given(st.timedeltas(timedelta(0), timedelta(days=3653)))
def test_a_timedelta_and_its_seconds_are_the_same(delta):
    assert parse_duration(delta) == parse_duration(delta.total_seconds())


@given(st.text(alphabet="0123456789.,wdhmsuPT -", max_size=80) | st.text(max_size=80))
def test_any_text_is_a_duration_or_a_refusal(text):
    try:
        seconds = parse_duration(text)
    except InvalidDuration:
        return

    assert 0 <= seconds <= DURATION_SECONDS_MAX


# Amounts of memory: what is read, what is refused, and how they are shown.


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512MB", 512_000_000),
        ("512mb", 512_000_000),
        (" 1 GiB ", 1_073_741_824),
        ("1.5GB", 1_500_000_000),
        ("2000KiB", 2_048_000),
        ("3000000B", 3_000_000),
        (1_000_000, 1_000_000),
    ],
)
def test_a_size_is_read(written, size):
    assert parse_size(written, what="memory_limit") == size


@pytest.mark.parametrize(
    ("written", "fact"),
    [
        ("512", "has no unit"),
        ("512M", "cannot be read"),
        ("-1GB", "cannot be read"),
        ("1e3MB", "cannot be read"),
        ("٥MB", "cannot be read"),
        ("", "cannot be read"),
        ("1KB", "too little"),
        (512, "too little"),
        (-5, "too little"),
        (2**63, "more than there is"),
        (1.5, "wrong type"),
        (None, "wrong type"),
        (True, "wrong type"),
    ],
)
def test_what_is_no_size_is_refused(written, fact):
    with pytest.raises(UsageError, match=fact) as refused:
        parse_size(written, what="memory_limit")
    assert refused.value.field == "memory_limit"
    assert '"512MB"' in str(refused.value)


@given(st.integers(1_000_000, 2**62))
def test_what_is_shown_means_nearly_the_same(size):
    assert parse_size(format_size(size), what="size") == pytest.approx(size, rel=0.06)


@given(st.integers(1, 1000), st.sampled_from(["MB", "GB", "MiB", "GiB"]))
def test_a_round_size_is_shown_as_it_is_written(count, unit):
    size = parse_size(f"{count}{unit}", what="size")

    assert parse_size(format_size(size), what="size") == size


def test_sizes_are_shown_in_the_unit_that_fits():
    assert [format_size(size) for size in (512_000_000, 2**30, 1_234_567)] == [
        "512MB", "1GiB", "1.2MB"
    ]  # fmt: skip

"""Amounts of memory: what is read, what is refused, and how they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.units import format_size, parse_size
from daybell.errors import UsageError


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

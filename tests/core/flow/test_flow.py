"""Decisions about limits: options, keys, windows of rates, and which executions start."""

from math import inf
from typing import cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybell.core.flow import (
    Applicant,
    Bucket,
    ConcurrencyOption,
    Limit,
    LimitTerms,
    RateOption,
    admit,
    check_combination,
    cost_of,
    format_rate,
    item_of,
    parse_rate,
    read_concurrency,
    read_rates,
    rules_of,
)
from daybell.errors import UsageError
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (3, ConcurrencyOption(limit=3)),
        (Limit(2, key="account"), ConcurrencyOption(limit=2, key="account")),
        (Limit("stripe", 10), ConcurrencyOption(limit=10, name="stripe")),
        ({"name": "stripe", "limit": 10}, ConcurrencyOption(limit=10, name="stripe")),
    ],
)
def test_a_limit_is_a_number_an_object_or_a_limit(given, meant):
    assert read_concurrency(given, "concurrency") == (meant,)
    assert read_concurrency([given], "concurrency") == (meant,)


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 1.5, True, "3", None, [3, 3], 10**9, {}, {"limit": 2, "keys": "a"}),
        *({"limit": 2, "key": "a b"}, {"limit": 2, "key": "{a"}, {"limit": 2, "key": ""}),
        *([{"name": "a", "limit": 1}, {"name": "a", "limit": 2}], {"name": "a/b", "limit": 1}),
    ],
)
def test_what_is_no_limit_is_refused(value):
    with pytest.raises(UsageError):
        read_concurrency(value, "concurrency")


@pytest.mark.parametrize("args", [("a", "b"), (1, 2), (1, "a", 2)])
def test_a_limit_has_one_name_and_one_number(args):
    with refuses(UsageError, field="concurrency"):
        Limit(*args)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/m", (100, 60.0)),
        ("10/s", (10, 1.0)),
        ("100,000/d", (100_000, 86_400.0)),
        ("5/10m", (5, 600.0)),
        ("7 per hour", (7, 3600.0)),
        ("1/1h30m", (1, 5400.0)),
    ],
)
def test_a_rate_is_a_number_per_time(text, rate):
    assert parse_rate(text) == rate
    assert parse_rate(format_rate(*rate)) == rate


@pytest.mark.parametrize(
    "value",
    [
        *("", "100", "m/100", "0/m", "-1/m", "1/0s", "1/fortnight", "1.5/s", 5, None),
        *({"rate": "10/s", "burst": 11}, {"rate": "10/s", "burst": 0}, {"burst": 1}),
        *({"rate": "10/s", "cost": 0}, {"rate": "10/s", "cost": "{a}"}, {"rate": "10/s", "k": 1}),
    ],
)
def test_what_is_no_rate_is_refused(value):
    with pytest.raises(UsageError):
        read_rates(value, "rate")


def test_one_name_has_one_key():
    with refuses(UsageError, field="rate"):
        check_combination(
            read_concurrency({"name": "a", "limit": 1, "key": "x"}, "concurrency"),
            read_rates({"name": "a", "rate": "1/s"}, "rate"),
        )


def test_limits_of_one_name_are_one_rule_and_others_are_named_after_the_job():
    rules = rules_of(
        "mail",
        [ConcurrencyOption(limit=3), ConcurrencyOption(limit=2, key="a")],
        [RateOption(rate="10/s"), RateOption(rate="9/d", key="b", burst=2)],
    )

    assert [(one.name, one.key, one.terms) for one in rules] == [
        ("mail", None, LimitTerms(3, ((10, 1.0, None),))),
        ("mail:a", "a", LimitTerms(2)),
        ("mail:b", "b", LimitTerms(None, ((9, 86_400.0, 2),))),
    ]
    assert rules[2].terms.windows == [(9, 86_400.0), (2, 19_200.0)]


@pytest.mark.parametrize(
    ("key", "item"),
    [
        (None, ""),
        ("a", "x"),
        ("b.c", "7"),
        ("b.d.1", "true"),
        ("{a}-{b.c}", "x-7"),
        ("b", '{"c":7,"d":[null,true]}'),
        ("z", "null"),
        ("b.z.y", "null"),
    ],
)
def test_a_key_is_read_from_the_arguments(key, item):
    assert item_of(key, {"a": "x", "b": {"d": [None, True], "c": 7}}) == item


def test_a_long_value_of_a_key_is_a_digest():
    first, second = (item_of("a", {"a": "x" * 300 + end}) for end in "12")

    assert first.startswith("sha256:")
    assert first != second
    assert item_of("a", {"a": "\0"}).startswith("sha256:")


@pytest.mark.parametrize(
    ("value", "cost"), [(5, 5), (2.9, 2), (0, 1), ("5", 1), (None, 1), (True, 1), (inf, 1_000_000)]
)
def test_a_cost_is_a_number_of_the_arguments(value, cost):
    assert cost_of("n", {"n": value}) == cost
    assert cost_of(3, {}) == 3


def a_bucket(key=1, *, limit=None, rates=None, **state):
    return Bucket(key, "a", "", LimitTerms(limit, rates), **state)


def applicants(count, *, takes=((1, 1),), **more):
    return [Applicant(UUID(int=n + 1), 1, 2, float(n), takes, **more) for n in range(count)]


def test_a_bucket_without_room_has_it_again_after_an_end_or_at_a_known_time():
    assert a_bucket(limit=2, held=1).room_at(1, now=10.0) == 10.0
    assert a_bucket(limit=2, held=2).room_at(1, now=10.0) == inf
    assert a_bucket(limit=2, held=3).room_at(1, now=10.0) == inf
    assert a_bucket(paused_until=30.0).room_at(1, now=10.0) == 30.0
    rate = ((2, 60.0, None),)
    assert a_bucket(rates=rate, log=[(1.0, 1), (2.0, 1)]).room_at(1, now=10.0) == 61.001
    assert a_bucket(rates=rate, log=[(1.0, 1)], unstarted=1).room_at(1, now=10.0) == 61.001
    assert a_bucket(rates=rate, unstarted=2).room_at(1, now=10.0) == inf
    assert a_bucket(rates=rate, log=[(1.0, 1)]).room_at(9, now=10.0) == 61.001


@given(
    st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=200),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_no_window_sees_more_starts_than_the_rate(gaps, count, burst):
    burst = min(burst, count)
    bucket = a_bucket(rates=((count, 10.0, burst),))
    now, starts = 0.0, []
    for gap in gaps:
        now += gap
        result = admit(applicants(1), {1: bucket}, now=now)
        for _ in result.admitted:
            bucket.unstarted -= 1
            bucket.held -= 1
            bucket.start(now, 1)
            starts.append(now)
        bucket.log = bucket.compact(now)

    for most, length in bucket.terms.windows:
        for first, last in zip(starts, starts[most:], strict=False):
            assert last - first > length


@settings(suppress_health_check=[HealthCheck.large_base_example])
@given(st.lists(st.floats(0, 20), min_size=501, max_size=700))
def test_a_compacted_log_forgets_no_start_and_counts_none_too_early(times):
    bucket = a_bucket(rates=((10_000, 20.0, None),), log=[(at, 1) for at in times])
    kept = bucket.compact(now=20.0)

    assert sum(cost for _, cost in kept) == len(times)
    assert len(kept) <= 501
    for limit in (5.0, 10.0, 15.0):
        assert sum(cost for at, cost in kept if at > limit) >= sum(at > limit for at in times)


def test_an_execution_takes_all_of_its_buckets_or_none():
    buckets = {1: a_bucket(1, limit=1), 2: a_bucket(2, limit=1, held=1)}
    first, second = applicants(2, takes=((1, 1), (2, 1)))[0], applicants(2)[1]

    result = admit([first, second], buckets, now=5.0)

    assert result.admitted == [second]
    assert result.waiting == [(first, 2)]
    assert (buckets[1].held, buckets[2].held) == (1, 1)


@given(st.data())
def test_no_bucket_is_ever_over_its_limit(data):
    buckets = {
        key: a_bucket(key, limit=limit, held=data.draw(st.integers(0, limit)))
        for key, limit in enumerate(data.draw(st.lists(st.integers(1, 3), min_size=1)), 1)
    }
    keys = st.lists(st.sampled_from(sorted(buckets)), min_size=1, max_size=3, unique=True)
    asked = [
        Applicant(UUID(int=n + 1), 1, n % 3, 0.0, tuple((k, 1) for k in sorted(data.draw(keys))))
        for n in range(data.draw(st.integers(0, 12)))
    ]

    result = admit(asked, buckets, now=1.0)

    assert all(one.held <= cast(int, one.terms.limit) for one in buckets.values())
    assert {one.id for one in result.admitted} | {one.id for one, _ in result.waiting} == {
        one.id for one in asked
    }
    for one, key in result.waiting:  # it waits for a bucket that it needs and that is full
        assert key in dict(one.takes)
        assert buckets[key].held == buckets[key].terms.limit


def test_what_is_asked_when_a_limit_is_full():
    full = {1: a_bucket(limit=1, held=1)}

    for on_full, found in (
        ("wait", ([], [1, 2], [])),
        ("skip", ([1, 2], [], [])),
        ("cancel_oldest", ([], [1, 2], [1, 2])),
        ("keep_newest", ([1], [2], [])),
    ):
        result = admit(applicants(2, on_full=on_full), full, now=1.0)
        numbers = (
            [one.id.int for one in result.skipped],
            [one.id.int for one, _ in result.waiting],
            [one.id.int for one, _ in result.replacing],
        )
        assert numbers == found, on_full


def test_a_paused_bucket_admits_nothing_until_then():
    result = admit(applicants(1), {1: a_bucket(limit=5, paused_until=9.0)}, now=1.0)

    assert result.admitted == []
    assert result.wake_at == {1: 9.0}

"""Buckets, percentiles, folding, and the queries of series."""

import math
from itertools import pairwise
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core import kinds
from daybell.core.execution import Outcome, State
from daybell.core.monitoring import stats
from daybell.core.monitoring.stats import (
    BOUNDS,
    COUNTS,
    HOUR,
    METRICS,
    MINUTE,
    EndCount,
    StatKey,
    StatRows,
    Tally,
    bucket_of,
    check_metrics,
    decode,
    encode,
    fold,
    make_series,
    plan_query,
    quantile,
    trend,
)
from daybell.errors import UsageError
from tests.refusals import refuses

DAY = 86400.0
NOW = 1_800_000_000.0

histograms = st.dictionaries(st.integers(0, len(BOUNDS)), st.integers(1, 10**9))


@given(histograms)
def test_a_histogram_is_read_as_it_was_written(histogram):
    assert decode(encode(histogram)) == histogram


def test_the_histogram_of_a_few_like_durations_takes_a_few_bytes():
    assert len(encode({bucket_of(0.25): 40, bucket_of(0.3): 2})) == 4


def test_bounds_rise_by_about_a_fifth_and_never_change():
    steps = [high / low for low, high in pairwise(BOUNDS)]

    assert min(steps) > 1.15 and max(steps) < 1.26
    assert (len(BOUNDS), BOUNDS[0], BOUNDS[-1]) == (108, 0.001, 820_000.0)


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(-5.0, 0), (0.0, 0), (0.001, 1), (0.00119, 1), (1e9, len(BOUNDS))]
)
def test_a_duration_has_the_bucket_that_begins_at_or_below_it(seconds, bucket):
    assert bucket_of(seconds) == bucket


@given(st.lists(st.floats(0.001, 80_000.0), min_size=40, max_size=400))
def test_a_percentile_is_in_the_bucket_of_the_true_one_or_beside_it(durations):
    histogram: dict[int, int] = {}
    for seconds in durations:
        bucket = bucket_of(seconds)
        histogram[bucket] = histogram.get(bucket, 0) + 1

    cuts = sorted(durations)
    for q in (0.5, 0.95, 0.99):
        rank = max(1, math.ceil(q * len(cuts)))
        found = quantile(histogram, q)
        assert found is not None
        assert abs(bucket_of(found) - bucket_of(cuts[rank - 1])) <= 1


def test_a_percentile_of_many_durations_is_close_to_the_true_one():
    durations = [0.2 + number / 1000 for number in range(1000)]
    histogram: dict[int, int] = {}
    for seconds in durations:
        bucket = bucket_of(seconds)
        histogram[bucket] = histogram.get(bucket, 0) + 1

    true = quantiles(durations, n=100)
    for q in (50, 95, 99):
        assert quantile(histogram, q / 100) == pytest.approx(true[q - 1], rel=0.1)


def test_there_is_no_percentile_of_nothing():
    assert quantile({}, 0.5) is None
    assert Tally().value("run_p99") is None


def an_end(**options):
    options.setdefault("tenant", 1)
    options.setdefault("job", 7)
    options.setdefault("queue", "mail")
    options.setdefault("number", 1)
    options.setdefault("ended", 100)
    options.setdefault("outcome", Outcome.SUCCEEDED)
    options.setdefault("state", None)
    options.setdefault("kind", 0)
    return EndCount(**options)


def folded(ends):
    return fold(ends).values()


def counts_of(tally):
    return {name: number for name, number in zip(COUNTS, tally.counts, strict=True) if number}


def test_an_end_counts_in_the_minutes_in_which_each_thing_happened():
    minutes, *_ = folded(
        [an_end(state=State.SUCCEEDED, created=98, started=99, number=3, run=40, delay=60)]
    )

    subject = {key.at: tally for key, tally in minutes.items() if key.job == 7}
    assert {at: counts_of(tally) for at, tally in subject.items()} == {
        98: {"enqueued": 3},
        99: {"started": 3},
        100: {"succeeded": 3},
    }
    assert (subject[99].delay, subject[100].run) == ({60: 3}, {40: 3})


def test_an_end_counts_for_its_job_its_queue_and_everything():
    minutes, hours, totals = folded([an_end(state=State.DEAD, outcome=Outcome.FAILED)])

    subjects = {(1, 7, "mail"), (1, 0, "mail"), (1, 0, "")}
    assert {key[:3] for key in minutes} == subjects
    assert {StatKey(*subject, 1) for subject in subjects} == set(hours)
    assert {StatKey(*subject, 0) for subject in subjects} == set(totals)


@pytest.mark.parametrize(
    ("outcome", "state", "counted"),
    [
        (Outcome.FAILED, None, {"failed_attempts": 1, "retried": 1}),
        (Outcome.TIMED_OUT, None, {"failed_attempts": 1, "retried": 1}),
        (Outcome.LOST, None, {"lost": 1, "retried": 1}),
        (Outcome.RELEASED, None, {}),
        (Outcome.FAILED, State.DEAD, {"failed_attempts": 1, "dead": 1}),
        (Outcome.LOST, State.DEAD, {"lost": 1, "dead": 1}),
        (Outcome.CANCELLED, State.CANCELLED, {"cancelled": 1}),
        (None, State.SKIPPED, {"skipped": 1}),
    ],
)
def test_the_outcome_of_an_attempt_and_the_state_of_its_execution_are_counted(
    outcome, state, counted
):
    minutes, *_ = folded([an_end(outcome=outcome, state=state)])

    assert counts_of(minutes[StatKey(1, 0, "", 100)]) == counted


def test_the_time_of_a_lost_attempt_is_no_run_time():
    minutes, *_ = folded([an_end(outcome=Outcome.LOST, run=50)])

    assert minutes[StatKey(1, 0, "", 100)].run == {}


def test_a_series_without_a_step_has_a_readable_number_of_points():
    for span in (HOUR, DAY, 2 * DAY, 7 * DAY, 80 * DAY):
        query = plan_query(now=NOW, since=NOW - span)

        assert 50 <= (query.until - query.since) / query.step <= 200


def test_a_short_time_long_ago_is_shown_by_hours():
    query = plan_query(now=NOW, since=NOW - 9 * DAY, until=NOW - 8 * DAY)

    assert (query.step, query.grain) == (HOUR, HOUR)


def test_the_points_of_a_series_begin_at_whole_steps():
    query = plan_query(now=NOW + 17, since=NOW - HOUR, step=300)

    assert (query.since % 300, query.until % 300) == (0, 0)
    assert query.until >= NOW + 17


def test_a_step_that_has_just_begun_counts():
    query = plan_query(now=NOW, since=NOW - HOUR)
    past = plan_query(now=NOW, since=NOW - 2 * HOUR, until=NOW - HOUR)

    assert query.until == NOW + query.step
    assert past.until == NOW - HOUR


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"since": NOW}, "since"),
        ({"since": NOW + 5}, "since"),
        ({"since": NOW - DAY, "until": NOW - 2 * DAY}, "since"),
        ({"since": NOW - DAY, "step": 90}, "step"),
        ({"since": NOW - DAY, "step": 0}, "step"),
        ({"since": NOW - DAY, "step": 60.5}, "step"),
        ({"since": NOW - 3 * DAY, "step": 60}, "step"),
        ({"since": NOW - 80 * DAY, "step": HOUR}, "step"),
    ],
)
def test_a_query_that_cannot_be_answered_names_its_field(options, field):
    with refuses(UsageError, field=field):
        plan_query(now=NOW, **options)


def test_hours_are_read_for_steps_of_whole_hours():
    assert plan_query(now=NOW, since=NOW - DAY, step=2 * HOUR).grain == HOUR
    assert plan_query(now=NOW, since=NOW - DAY, step=90 * 60).grain == MINUTE


def test_an_unknown_metric_is_refused_with_those_there_are():
    assert check_metrics(["dead", "run_p95", "dead"]) == ("dead", "run_p95")
    with refuses(UsageError, field="metric"):
        check_metrics(["latency"])
    with refuses(UsageError, field="metric"):
        check_metrics([])


def test_a_series_has_a_value_for_each_step_and_the_whole_time():
    query = plan_query(now=NOW, since=NOW - 120, step=60)
    first = int(query.since // 60)
    tallies = {first: Tally(), first + 1: Tally()}
    for tally, number in zip(tallies.values(), (2, 3), strict=True):
        tally.count("succeeded", number)
        tally.run = {bucket_of(1.0): number}
    series = make_series(
        query, StatRows(tallies=tallies, unfinished={first + 1: 4}), ("succeeded", "enqueued")
    )

    assert series.values == {"succeeded": [2, 3, 0], "enqueued": [0, 4, 0]}
    assert series.totals == {"succeeded": 5, "enqueued": 4}


def test_a_trend_compares_with_the_time_before():
    now = {"dead": 3.0, "run_p50": None, "succeeded": 4.0, "lost": 0.0}
    before = {"dead": 2.0, "run_p50": 1.0, "succeeded": 0.0, "lost": None}

    assert trend(now, before) == {"dead": 0.5, "run_p50": None, "succeeded": None, "lost": None}


def test_the_rate_of_success_leaves_out_what_people_and_rules_ended():
    tally = Tally()
    assert tally.success_rate is None

    for name, number in (("succeeded", 3), ("dead", 1), ("cancelled", 5), ("skipped", 5)):
        tally.count(name, number)

    assert tally.success_rate == 0.75
    assert set(tally.values()) == set(METRICS)


def test_the_kind_of_a_job_is_in_what_its_executions_need():
    assert stats.KINDS == kinds.KINDS
    for place, kind in enumerate(stats.KINDS):
        for needs in (kind, f"limited:{kind}", f"admitted:{kind}"):
            assert stats.kind_code(needs) == place
    assert stats.KINDS[stats.kind_code("limited:sql:shop")] == "sql"

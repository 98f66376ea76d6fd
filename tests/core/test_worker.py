"""Watched time, across processes that come and go."""

from math import inf

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybell.core.worker import SPANS_MAX, UNWATCHED, Watch

MOMENTS = st.integers(0, 60).map(float)


def recorded(*looks, every=0.0):
    """The record after somebody has looked at these moments, from the first of them on."""
    watch = UNWATCHED
    for since, now in looks:
        watch = watch.seen(now, since=since, every=every)
    return watch


def test_a_first_look_shows_nothing():
    assert recorded((inf, 5.0)) == recorded((5.0, 5.0)) == UNWATCHED


def test_a_clock_that_cannot_jump_needs_no_record():
    assert recorded((-inf, 5.0)) == UNWATCHED
    assert UNWATCHED.silence(3.0, 5.0, since=-inf) == 2.0


def test_spans_that_overlap_are_joined():
    assert recorded((0.0, 4.0), (4.0, 6.0), (1.0, 9.0)) == Watch(((0.0, 9.0),))
    assert recorded((2.0, 4.0), (1.0, 6.0)) == Watch(((1.0, 6.0),))


def test_nobody_has_seen_what_was_between_two_spans():
    watch = recorded((0.0, 4.0), (5.0, 9.0))

    assert watch == Watch(((0.0, 4.0), (5.0, 9.0)))
    assert watch.silence(3.0, 20.0, since=inf) == 1.0 + 4.0
    assert watch.silence(3.0, 20.0, since=18.0) == 1.0 + 4.0 + 2.0
    assert watch.silence(3.0, 20.0, since=8.0) == 1.0 + 3.0 + 12.0, "what overlaps counts once"


def test_a_span_in_the_future_shows_that_the_clock_was_set_back():
    watch = recorded((0.0, 4.0), (5.0, 9.0))

    assert watch.seen(8.9, since=inf, every=0.0) == UNWATCHED
    assert watch.seen(8.9, since=8.0, every=0.0) == Watch(((8.0, 8.9),))


def test_a_longer_span_is_written_only_now_and_then():
    watch = recorded((0.0, 1.0))

    assert watch.seen(5.9, since=0.0, every=5.0) is watch
    assert watch.seen(6.0, since=0.0, every=5.0) == Watch(((0.0, 6.0),))
    assert watch.seen(2.0, since=1.5, every=5.0) == Watch(((0.0, 1.0), (1.5, 2.0))), "a new one"


def test_the_record_does_not_grow_for_ever():
    watch = recorded(*((float(at), at + 0.5) for at in range(SPANS_MAX + 5)))

    assert len(watch.spans) == SPANS_MAX
    assert watch.spans[0] == (5.0, 5.5)


def test_the_record_is_kept_as_text():
    watch = recorded((0.1, 4.7), (5.3, 1_700_000_000.123456))

    assert Watch.from_json(watch.to_json()) == watch
    assert Watch.from_json(None) == UNWATCHED


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(MOMENTS, min_size=2, max_size=5, unique=True), max_size=6),
    MOMENTS,
    MOMENTS,
    st.sampled_from([0.0, 7.0, inf]),
)
def test_watched_time_is_what_somebody_has_watched(lives, renewed_at, since, every):
    """Each life is a process that looks at these moments."""
    looks = sorted((now, min(life)) for life in lives for now in life)
    watch = recorded(*((begun, now) for now, begun in looks), every=every)
    now = 60.0

    silence = watch.silence(renewed_at, now, since=since)

    watched = {
        second
        for life in [*lives, [since, now]]
        for second in range(int(min(life)), int(max(life)))
        if second >= renewed_at
    }
    assert silence == len(watched) if every == 0.0 else silence <= len(watched)
    assert all(one[1] < other[0] for one, other in zip(watch.spans, watch.spans[1:], strict=False))

"""When a job that depends on others may begin."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from daybell.core.execution import TERMINAL, State
from daybell.core.schedule import (
    Begin,
    Ended,
    OnFailure,
    Round,
    Upstream,
    any_jobs,
    may_begin,
    next_round,
)
from daybell.core.when import After, Schedule, after, after_any, any_of, cron
from daybell.errors import InvalidSchedule

WAIT, SKIP, RUN = OnFailure
FAILED = sorted(TERMINAL - {State.SUCCEEDED})
UNFINISHED = sorted(set(State) - TERMINAL)


def ended(at, state=State.SUCCEEDED, *, succeeded_at=None):
    if state is State.SUCCEEDED:
        succeeded_at = at
    return Ended(ended_at=at, state=state, succeeded_at=succeeded_at)


@pytest.mark.parametrize("policy", OnFailure)
def test_a_round_is_over_when_each_has_ended(policy):
    assert next_round(policy, []) is None
    assert next_round(policy, [ended(10.0), Ended()]) is None
    assert next_round(policy, [ended(10.0), ended(7.0)]) == Round(at=10.0, fires=True)


def test_a_failure_is_waited_out_skipped_or_as_good_as_a_success():
    failed = [ended(10.0), ended(12.0, State.DEAD)]

    assert next_round(WAIT, failed) is None
    assert next_round(SKIP, failed) == Round(at=12.0, fires=False)
    assert next_round(RUN, failed) == Round(at=12.0, fires=True)


def test_a_success_before_a_failure_counts_for_who_waits():
    one = [ended(12.0, State.CANCELLED, succeeded_at=11.0)]

    assert next_round(WAIT, one) == Round(at=11.0, fires=True)
    assert next_round(SKIP, one) == Round(at=12.0, fires=False)


ENDS = st.one_of(
    st.just(Ended()),
    st.builds(ended, st.floats(1, 99)),
    st.builds(ended, st.floats(50, 99), st.sampled_from(FAILED)),
    st.builds(
        lambda at, before, state: ended(at, state, succeeded_at=before),
        st.floats(50, 99),
        st.floats(1, 50),
        st.sampled_from(FAILED),
    ),
)


@given(st.lists(ENDS, max_size=4))
def test_of_any_one_success_is_enough_and_all_so_far_are_one_round(found):
    succeeded = [one.succeeded_at for one in found if one.succeeded_at is not None]
    at_all = [one.ended_at for one in found if one.ended_at is not None]
    success = Round(at=max(succeeded), fires=True) if succeeded else None
    end = Round(at=max(at_all), fires=True) if at_all else None

    assert next_round(WAIT, found, is_any=True) == success
    assert next_round(SKIP, found, is_any=True) == success
    assert next_round(RUN, found, is_any=True) == end


def test_after_any_is_a_schedule_without_times():
    schedule = after_any("extract", "clean", "extract")

    assert schedule.to_dict() == {"after_any": ["extract", "clean"]}
    assert Schedule.from_json(schedule.to_json()) == schedule != after("extract", "clean")
    assert Schedule.parse({"after_any": "extract"}) == after_any("extract")
    assert schedule.next_after(0.0) is None
    assert schedule.describe() == "When extract or clean has succeeded"
    assert any_jobs([cron("@daily").to_json(), schedule.to_json(), after("x").to_json()]) == (
        "extract", "clean",
    )  # fmt: skip


# What the latest execution by then, and a newer success, mean to each policy.
TABLE = [
    *[(policy, State.SUCCEEDED, newer, Begin.NOW) for policy in OnFailure for newer in (0, 1)],
    *[(p, state, newer, Begin.WAIT) for p in OnFailure for state in UNFINISHED for newer in (0, 1)],
    *[(policy, None, 0, Begin.WAIT) for policy in OnFailure],
    *[(policy, None, 1, Begin.NOW) for policy in OnFailure],
    *[(WAIT, state, 0, Begin.WAIT) for state in FAILED],
    *[(WAIT, state, 1, Begin.NOW) for state in FAILED],
    *[(SKIP, state, newer, Begin.SKIP) for state in FAILED for newer in (0, 1)],
    *[(RUN, state, newer, Begin.NOW) for state in FAILED for newer in (0, 1)],
]


def test_the_table_of_one_dependency():
    for policy, state, newer, expected in TABLE:
        one = Upstream(state=state, has_newer_success=bool(newer))
        assert may_begin(policy, [one]) is expected, (policy, state, newer)
    assert len(TABLE) == len(OnFailure) * (len(State) + 1) * 2


@pytest.mark.parametrize(
    ("policy", "expected"), [(WAIT, Begin.WAIT), (SKIP, Begin.SKIP), (RUN, Begin.NOW)]
)
def test_if_none_was_due_what_failed_later_counts_unless_one_succeeded(policy, expected):
    failed = Upstream(has_newer_failure=True)

    assert may_begin(policy, [failed]) is expected
    assert may_begin(policy, [replace(failed, has_newer_success=True)]) is Begin.NOW


def test_a_tick_that_has_still_to_fire_is_waited_for_whatever_came_before():
    for policy, state, newer, _ in TABLE:
        one = Upstream(state=state, has_newer_success=bool(newer), is_behind=True)
        assert may_begin(policy, [one]) is Begin.WAIT


UPSTREAM = st.builds(
    Upstream,
    state=st.none() | st.sampled_from(State),
    has_newer_success=st.booleans(),
    has_newer_failure=st.booleans(),
    is_behind=st.booleans(),
)


@given(st.sampled_from(OnFailure), st.lists(UPSTREAM, max_size=5))
def test_all_must_let_it_and_one_can_skip_it(policy, upstream):
    each = [may_begin(policy, [one]) for one in upstream]

    decided = may_begin(policy, upstream)

    assert decided is may_begin(policy, upstream[::-1])
    assert (decided is Begin.SKIP) == (Begin.SKIP in each)
    assert (decided is Begin.NOW) == all(one is Begin.NOW for one in each)


def test_after_is_a_schedule_without_times():
    schedule = after("extract", "clean", "extract")

    assert schedule == After(jobs=("extract", "clean"))
    assert schedule.to_json() == '{"after":["extract","clean"]}'
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert Schedule.parse({"after": "extract"}) == after("extract")
    assert schedule.next_after(0.0) is None
    assert schedule.describe() == "When extract and clean have each succeeded"
    assert after("extract").describe() == "When extract has succeeded"


def test_after_takes_a_thousand_jobs_of_long_names():
    schedule = after(*(f"{n:0200}" for n in range(1000)))

    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: after(), "at least one job"),
        (lambda: after_any(), r'such as after_any\("extract"\)'),
        (lambda: Schedule.parse({"after_any": 7}), "after_any 7 must be a list of names"),
        (lambda: Schedule.parse({"after_any": ["a"], "after": ["b"]}), "exactly one of"),
        (lambda: Schedule.parse({"after_any": ["a"], "jitter": 5}), "jitter"),
        (lambda: any_of(after_any("a"), cron("@daily")), "cannot be part of a union"),
        (lambda: after("a/b\0"), "after: "),
        (lambda: after(cast("str", 7)), "after: "),
        (lambda: Schedule.parse({"after": 7}), "must be a list of names"),
        (lambda: Schedule.parse({"after": ["a"], "jitter": "5s"}), "jitter"),
        (lambda: any_of(after("a"), cron("@daily")), "cannot be part of a union"),
        (lambda: after(*map(str, range(1001))), "the limit is 1,000"),
    ],
)
def test_what_cannot_be_is_refused(wrong, says):
    with pytest.raises(InvalidSchedule, match=says):
        wrong()

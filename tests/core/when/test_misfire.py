"""What is done about missed ticks, against a decision that looks at each of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.when import Misfire, Planned, any_of, at, cron, every, plan
from daybell.errors import UsageError

NOW = 1_790_000_000.0
HOUR = 3600.0

schedules = st.sampled_from(
    [
        every("7m"),
        every("1h", anchor=NOW - 100),
        every("1s"),
        cron("*/20 * * * *", tz="Europe/Berlin"),
        cron("30 2 * * *", tz="America/New_York"),
        cron("0 9 * * mon-fri"),
        any_of(every("50m"), cron("0 3 * * *"), excluding=cron("* 12 * * *")),
    ]
)
misfires = st.builds(
    Misfire,
    policy=st.sampled_from(["fire_once", "skip", "fire_all"]),
    limit=st.integers(1, 12),
    within=st.one_of(st.none(), st.floats(0, 40 * HOUR)),
    grace=st.sampled_from([0, 60, 1000, 5 * HOUR]),
)


def naive(ticks, now, misfire, *, most):
    """Look at every due tick: which are fired, and which are given up."""
    missed = [tick for tick in ticks if tick < now - misfire.grace]
    on_time = [tick for tick in ticks if tick >= now - misfire.grace]
    if misfire.policy == "fire_once":
        if missed:
            return ticks[:-1], ticks[-1:]
        made_up = []
    elif misfire.policy == "skip":
        made_up = []
    else:
        young = [t for t in missed if misfire.within is None or t >= now - misfire.within]
        made_up = young[-misfire.limit :]
    given_up = [tick for tick in missed if tick not in made_up]
    return given_up, (made_up + on_time)[:most]


@settings(deadline=None, max_examples=200)
@given(
    schedules,
    misfires,
    st.integers(0, 60),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 30)),
    st.integers(0, 10),
    st.one_of(st.none(), st.floats(-20 * HOUR, 20 * HOUR)),
)
def test_a_plan_is_what_looking_at_every_tick_decides(
    schedule, misfire, steps, limit, executions, fired, end
):
    schedule = schedule.replaced(
        max_executions=executions, end_at=None if end is None else NOW + end
    )
    cursor = NOW
    for _ in range(steps):
        cursor = schedule.previous_until(cursor - 0.001) or cursor
    if schedule.previous_until(cursor) != cursor:
        return
    ticks = [cursor]
    while (following := schedule.next_after(ticks[-1])) is not None and following <= NOW:
        ticks.append(following)
    remaining = limit if executions is None else min(limit, max(0, executions - fired))

    found = plan(schedule, cursor, NOW, misfire, fired, limit)

    given_up, fires = naive(ticks, NOW, misfire, most=remaining)
    if remaining == 0:
        assert (found.ticks, found.next_at) == ([], None)
        return
    ranges = [tick for tick in found.ticks if tick.kind == "missed"]
    assert [tick.at for tick in found.ticks if tick.kind == "fired"] == fires
    assert [(one.at, one.until) for one in ranges] == [
        (one[0], one[-1]) for one in [given_up] if one
    ]
    for one in ranges:
        assert one.count == min(len(given_up), misfire.limit + 1)
        assert one.is_counted == (len(given_up) <= misfire.limit)
        assert one.reason
    if executions is not None and fired + len(fires) >= executions:
        assert found.next_at is None
    else:
        assert found.next_at == schedule.next_after((given_up + fires)[-1])


class Counting:
    """A schedule that counts how often it is asked."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.questions = 0

    def __getattr__(self, name):
        value = getattr(self.schedule, name)
        if not callable(value):
            return value

        def asked(*args, **kwargs):
            self.questions += 1
            return value(*args, **kwargs)

        return asked


@pytest.mark.parametrize("policy", ["fire_once", "skip", "fire_all"])
def test_the_work_does_not_grow_with_the_time_that_nobody_was_there(policy):
    year = 365 * 86_400
    schedule = Counting(every("1s"))

    found = plan(schedule, NOW - 10 * year, NOW, Misfire(policy, limit=50), limit=100)  # type: ignore[arg-type]

    assert (found.ticks[0].count, found.ticks[0].is_counted) == (51, False)
    assert "they are more than 50, and not counted" in str(found.ticks[0].reason)
    assert schedule.questions < 300


def test_what_is_late_within_the_grace_is_not_missed():
    found = plan(every("1h"), NOW // HOUR * HOUR, NOW // HOUR * HOUR + 5, Misfire("skip"))

    assert found.ticks == [Planned(NOW // HOUR * HOUR)]


def test_a_fixed_delay_is_fired_however_late_and_waits_for_the_end_of_its_execution():
    found = plan(every("5m", mode="delay"), NOW - 10_000, NOW, Misfire("skip"))

    assert found.ticks == [Planned(NOW - 10_000)]
    assert found.next_at is None


def test_a_cursor_that_is_not_due_stays():
    found = plan(every("1h"), NOW + 5, NOW, Misfire())

    assert (found.ticks, found.next_at) == ([], NOW + 5)


def test_a_single_time_that_was_missed_is_made_up_for_and_over():
    found = plan(at(NOW - 86_400), NOW - 86_400, NOW, Misfire())

    assert found.ticks == [Planned(NOW - 86_400)]
    assert found.next_at is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, Misfire()),
        ("skip", Misfire("skip")),
        ({"policy": "fire_all", "limit": 5, "within": "1h"}, Misfire("fire_all", 5, 3600.0)),
        (Misfire("skip", grace="2m"), Misfire("skip", grace=120.0)),  # type: ignore[arg-type]
    ],
)
def test_a_misfire_policy_is_read(given, expected):
    assert Misfire.parse(given) == expected
    assert Misfire.parse(expected.to_dict()) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sometimes", "misfire 'sometimes' is not one of fire_once, skip, fire_all"),
        ({"policy": "skip", "limits": 3}, "misfire has no 'limits'; did you mean 'limit'?"),
        ({"limit": 0}, "misfire_limit 0 is not a whole number in 1-1,000"),
        ({"limit": True}, "misfire_limit True is not"),
        ({"grace": -1}, "misfire_grace -1 is negative"),
    ],
)
def test_a_wrong_misfire_policy_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        Misfire.parse(given)

"""How often, how long, and after which errors."""

from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.execution import Failure
from daybell.core.limits import RETRIES_MAX
from daybell.core.retry import Retry, read_retry_time
from daybell.errors import (
    InvalidArguments,
    InvalidDuration,
    InvalidRetry,
    PermanentError,
    RetryLater,
    UsageError,
    shown,
)
from tests.refusals import refuses

rolls = st.floats(0, 1, exclude_max=True)
counts = st.integers(0, RETRIES_MAX)
seconds = st.floats(0, 10_000)
names = st.lists(st.sampled_from(["OSError", "httpx.ReadError", "builtins.ValueError"]))
shared = {"retries": counts, "jitter": st.floats(0, 1), "retry_on": names, "never_on": names}
exponential = st.builds(
    Retry.exponential,
    base=seconds,
    cap=st.floats(10_000, 100_000),
    factor=st.floats(1, 1000),
    **shared,
)
policies = (
    exponential
    | st.builds(Retry.fixed, seconds, **shared)
    | st.lists(seconds, min_size=1).flatmap(
        lambda waits: st.builds(lambda **rest: Retry.delays(*waits, **rest), **shared)
    )
)


def names_of(error: BaseException) -> tuple[str, ...]:
    return Failure.from_exception(error).names


def waits(policy: Retry, *, jitter: float = 0.0, tries: int = 6) -> list[float | None]:
    return [policy.delay(failures, jitter=jitter) for failures in range(1, tries)]


def test_by_default_there_are_three_retries_after_one_two_and_four_seconds():
    assert waits(Retry()) == [1, 2, 4, None, None]


def test_chance_takes_away_at_most_a_tenth_by_default():
    assert waits(Retry(), jitter=0.5) == pytest.approx([0.95, 1.9, 3.8, None, None])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retry.exponential("10s", factor=3, cap="1m", retries=4), [10, 30, 60, 60, None]),
        (Retry.exponential("2h"), [7200, 7200, 7200, None, None]),
        (Retry.exponential(0, retries=2), [0, 0, None, None, None]),
        (Retry.fixed("2h", retries=2), [7200, 7200, None, None, None]),
        (Retry.delays("1s", "10s", "1m"), [1, 10, 60, None, None]),
        (Retry.delays("1m", "1s", retries=4), [60, 1, 1, 1, None]),
        (Retry.function(lambda n: f"{n}m", retries=2), [60, 120, None, None, None]),
        (Retry.function(lambda n: 5 if n < 3 else None, retries=9), [5, 5, None, None, None]),
        (Retry.parse(0), [None, None, None, None, None]),
    ],
)
def test_each_form_waits_as_it_says(policy, expected):
    assert waits(policy) == expected


@given(policies, st.integers(1, 10_000), rolls)
def test_backoff_never_waits_longer_than_its_cap(policy, failures, roll):
    wait = policy.delay(failures, jitter=roll)

    assert wait is None if failures > policy.retries else 0 <= wait <= policy.cap


@given(exponential, st.integers(1, RETRIES_MAX - 1))
def test_backoff_without_chance_never_gets_shorter(policy, failures):
    wait, longer = (policy.delay(failures + step, jitter=0) for step in (0, 1))

    assert longer is None or longer >= wait


@given(policies, st.integers(1, RETRIES_MAX), rolls)
def test_chance_never_adds_and_takes_no_more_than_its_share(policy, failures, roll):
    nominal, wait = (policy.delay(failures, jitter=jitter) for jitter in (0, roll))

    if nominal is not None:
        assert nominal * (1 - policy.jitter) * (1 - 1e-9) <= wait <= nominal


@given(policies)
def test_there_are_exactly_as_many_retries_as_asked_for(policy):
    if policy.retries:
        assert policy.delay(policy.retries, jitter=0) is not None
    assert policy.delay(policy.retries + 1, jitter=0) is None


@pytest.mark.parametrize("failures", [1001, 10**100, 2**10_000], ids=shown)
def test_an_absurd_number_of_failures_is_just_too_many(failures):
    assert Retry.exponential(factor=1000, retries=1000).delay(failures, jitter=0) is None


def test_a_backoff_beyond_all_numbers_waits_its_cap():
    assert Retry.exponential(factor=1000, retries=1000).delay(1000, jitter=0) == 3600
    assert Retry.exponential(0, factor=1000, retries=1000).delay(1000, jitter=0) == 0


@pytest.mark.parametrize("wrong", [lambda n: 1 / 0, lambda n: "soon", lambda n: -1])
def test_a_broken_wait_function_falls_back_to_the_default_waits_and_is_reported(wrong):
    policy, mistakes = Retry.function(wrong), []

    assert waits(policy) == [1, 2, 4, None, None]
    assert policy.delay(1, jitter=0, report=mistakes.append) == 1
    assert [type(one) for one in mistakes] in ([ZeroDivisionError], [InvalidDuration])


async def awaited(failures):
    return failures


def between(failures, /, error, more):
    return failures + more


def keyword(failures, *, base):
    return failures * base


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: 1, "too many positional arguments; it takes"),
        (between, "missing a required argument: 'more'; it takes"),
        (keyword, "missing a required .*'base'; it takes"),
        (awaited, "'awaited' is async"),
        ("soon", "'soon' is not a function"),
    ],
)
def test_a_wait_function_with_the_wrong_signature_is_refused_where_it_is_defined(wrong, words):
    with pytest.raises(InvalidRetry, match=words):
        Retry.function(wrong)


def with_a_default(failures, base=10):
    return failures * base


def with_an_error_by_default(failures, error=None):
    return 7 if isinstance(error, KeyError) else 1


@pytest.mark.parametrize(
    ("function", "wait"),
    [
        (lambda failures, error: 7 if isinstance(error, KeyError) else None, 7),
        (lambda *given: len(given) + 5, 7),
        (with_an_error_by_default, 7),
        (with_a_default, 10),
        (partial(keyword, base=3), 3),
        (float, 1),
    ],
)
def test_a_wait_function_gets_the_error_if_it_asks_for_it(function, wait):
    assert Retry.function(function).delay(1, jitter=0, error=KeyError("gone")) == wait


@given(policies)
def test_a_stored_policy_comes_back_the_same(policy):
    assert Retry.from_json(policy.to_json()) == policy


def test_a_stored_policy_does_not_depend_on_later_defaults():
    assert Retry().to_json() == (
        '{"retries":3,"backoff":"exponential","base":1.0,"factor":2.0,"cap":3600.0,"jitter":0.1}'
    )


def test_of_a_function_the_store_keeps_the_count_and_that_there_was_one():
    stored = Retry.function(lambda n: 60, retries=2, never_on=[KeyError]).to_json()

    read = Retry.from_json(stored)

    assert read.backoff == "function"
    assert read.never_on == ("builtins.KeyError",)
    assert waits(read) == [1, 2, None, None, None]
    assert read.to_json() == stored


class Timeout(Exception):
    pass


class ReadTimeout(Timeout):
    pass


HERE = Timeout.__module__


@pytest.mark.parametrize(
    ("policy", "error", "allowed"),
    [
        (Retry(), ValueError(), True),
        (Retry(), PermanentError(), False),
        (Retry.fixed(1, retry_on=[PermanentError]), PermanentError(), False),
        (Retry.fixed(1, retry_on=[OSError]), ConnectionResetError(), True),
        (Retry.fixed(1, retry_on=[OSError]), ValueError(), False),
        (Retry.fixed(1, retry_on=OSError), ConnectionResetError(), True),
        (Retry.fixed(1, retry_on=["OSError"]), ConnectionResetError(), True),
        (Retry.fixed(1, retry_on=["builtins.OSError"]), ConnectionResetError(), True),
        (Retry.fixed(1, retry_on=[Timeout]), ReadTimeout(), True),
        (Retry.fixed(1, retry_on=[ReadTimeout]), Timeout(), False),
        (Retry.fixed(1, retry_on=["Timeout"]), ReadTimeout(), True),
        (Retry.fixed(1, retry_on=[f"{HERE}.Timeout"]), ReadTimeout(), True),
        (Retry.fixed(1, retry_on=["elsewhere.Timeout"]), ReadTimeout(), False),
        (Retry.fixed(1, retry_on=["KeyError"]), ValueError(), False),
        (Retry.fixed(1, never_on=["Timeout"]), ReadTimeout(), False),
        (Retry.fixed(1, never_on=[KeyError]), ValueError(), True),
        (Retry.fixed(1, retry_on=[OSError], never_on=[ConnectionError]), OSError(), True),
        (
            Retry.fixed(1, retry_on=[OSError], never_on=[ConnectionError]),
            BrokenPipeError(),
            False,
        ),
    ],
    ids=shown,
)
def test_rules_match_classes_and_names_with_their_descendants(policy, error, allowed):
    assert policy.allows(names_of(error)) is allowed
    assert Retry.from_json(policy.to_json()).allows(names_of(error)) is allowed


def test_a_class_in_a_rule_is_not_taken_for_another_of_the_same_name():
    assert not Retry.fixed(1, retry_on=[TimeoutError]).allows(["sqlalchemy.exc.TimeoutError"])


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        (None, Retry()),
        (5, Retry(retries=5)),
        (Retry.fixed(3), Retry.fixed(3)),
        ({}, Retry()),
        (
            {"retries": 3, "backoff": "exponential", "base": "1s", "factor": 2, "cap": "1h"},
            Retry(),
        ),
        ({"delays": ["1s", "10s"]}, Retry.delays(1, 10)),
        ({"backoff": "fixed", "delay": "30s", "jitter": 0}, Retry.fixed(30, jitter=0)),
        ({"retry_on": ["OSError"]}, Retry.exponential(retry_on=["OSError"])),
    ],
    ids=shown,
)
def test_every_way_to_write_a_policy_is_read(value, policy):
    assert Retry.parse(value) == policy


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "retries=-1 must be a whole number from 0 to 1000"),
        (1001, "retries=1001 must be a whole number from 0 to 1000"),
        ({"retries": True}, "retries=True must be a whole number from 0 to 1000"),
        ({"retries": "3"}, "retries='3' must be a whole number from 0 to 1000"),
        ({"factor": 0.5}, "factor=0.5 must be a number from 1 to 1000"),
        ({"factor": float("nan")}, "factor=nan must be a number from 1 to 1000"),
        ({"jitter": 1.1}, "jitter=1.1 must be a number from 0 to 1"),
        ({"jitter": None}, "jitter=None must be a number from 0 to 1"),
        (
            {"base": "2h", "cap": "1h"},
            "the first wait, base=7200 s, is longer than cap=3600 s; raise cap or lower base",
        ),
        ({"delays": []}, 'delays is empty; give at least one, like "10s"'),
        ({"delays": "1s"}, "backoff 'delays' needs a list \"delays\""),
        ({"backoff": "delays"}, "backoff 'delays' needs a list \"delays\""),
        ({"backoff": "fixed"}, "backoff 'fixed' needs a duration \"delay\""),
        (
            {"backoff": "fixed", "delay": 1, "cap": 2},
            "'cap' has no meaning with fixed backoff; leave it out",
        ),
        ({"delays": [1], "base": 1}, "'base' has no meaning with delays backoff; leave it out"),
        ({"retrys": 3}, "a retry policy has no 'retrys'; did you mean 'retries'?"),
        (
            {"backoff": "linear"},
            "backoff 'linear' is not known; use one of exponential, fixed, delays",
        ),
        (
            {"backoff": ["fixed"]},
            "backoff ['fixed'] is not known; use one of exponential, fixed, delays",
        ),
        (
            {"retry_on": 5},
            "retry_on: 5 is neither an exception class nor its name",
        ),
        ({"never_on": [""]}, "never_on: '' is neither an exception class nor its name"),
        ({"never_on": [int]}, "never_on: <class 'int'> is neither an exception class nor its name"),
        ({"never_on": ["x"] * 101}, "never_on has 101 errors; the limit is 100"),
        (
            True,
            "retries=True is not how often to try again; give a whole number, such as 3, or an"
            " object such as "
            '{"retries": 5, "base": "1s", "cap": "1h"} (in Python, a Retry)',
        ),
    ],
    ids=shown,
)
def test_what_is_no_policy_is_refused_with_the_reason(value, message):
    with pytest.raises(InvalidRetry) as refusal:
        Retry.parse(value)

    assert str(refusal.value) == message


def test_a_policy_may_list_as_many_and_as_long_names_as_the_limits_say():
    assert len(Retry.fixed(1, retry_on=["x" * 200] * 100).retry_on) == 100

    with refuses(InvalidRetry, field="retry_on"):
        Retry.fixed(1, retry_on=["x" * 201])


def test_a_policy_cannot_be_changed():
    with pytest.raises(AttributeError):
        Retry().retries = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_wrong_duration_in_a_policy_is_named():
    with refuses(InvalidDuration, field="cap"):
        Retry.parse({"cap": "soon"})


def test_a_task_may_ask_for_a_delay_or_a_moment():
    moment = datetime(2026, 11, 15, tzinfo=UTC)

    assert read_retry_time(RetryLater(delay="5m")) == (300, None)
    assert (
        read_retry_time(RetryLater("5m"))
        == read_retry_time(RetryLater("PT5M"))
        == read_retry_time(RetryLater(300))
        == (300, None)
    )
    assert RetryLater("5m").reason == "" and str(RetryLater("5m")) == "retry in 5m"
    with pytest.raises(InvalidArguments, match="exactly one"):
        RetryLater("Patience")
    assert read_retry_time(RetryLater(at=0)) == (0, 0)
    assert read_retry_time(RetryLater(at=12.5)) == (0, 12.5)
    assert read_retry_time(RetryLater(at=moment)) == (0, moment.timestamp())


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay": "soon"},
        {"delay": -1},
        {"at": datetime(2026, 11, 15)},  # noqa: DTZ001
        {"at": float("nan")},
        {"at": -1},
        {"at": 1e18},
        {"at": "tomorrow"},
        {"at": True},
    ],
    ids=shown,
)
def test_a_time_that_is_none_is_refused(wrong):
    with pytest.raises(UsageError):
        read_retry_time(RetryLater(**wrong))

"""The exception tree, and how messages show what was sent."""

import inspect

import pytest

from daybell import errors
from daybell.errors import (
    COMPARED_CHARS_MAX,
    COMPARED_MAX,
    DaybellError,
    InvalidArguments,
    PermanentError,
    RetryLater,
    listed,
    shown,
    suggested,
)

FAMILIES = {"UsageError", "Conflict", "NotFound", "AccessDenied", "SchemaError", "Unavailable"}


def exceptions() -> dict[str, type[BaseException]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: it for name, it in members if issubclass(it, BaseException)}


def test_every_exception_is_drawn_in_the_tree():
    drawing = errors.__doc__ or ""

    missing = [name for name in exceptions() if name not in drawing]

    assert missing == []


# Raised by tasks, and outside of the tree on purpose.
STEERING = {"RetryLater", "PermanentError", "StepsChanged", "StepFailed", "Suspended"}


def test_every_error_belongs_to_exactly_one_family():
    for name, error in exceptions().items():
        if name == "DaybellError" or name in STEERING:
            continue

        families = [base.__name__ for base in error.__mro__ if base.__name__ in FAMILIES]

        assert len(families) == 1, name


def test_what_a_task_raises_to_steer_is_not_caught_with_daybells_own_errors():
    assert not issubclass(RetryLater, DaybellError)
    assert not issubclass(PermanentError, DaybellError)


def test_a_damaged_schema_is_not_taken_for_an_outage_that_heals():
    assert not issubclass(errors.SchemaError, errors.Unavailable)


@pytest.mark.parametrize("wrong", [{}, {"delay": 1, "at": 2}])
def test_retry_later_takes_exactly_one_of_delay_and_at(wrong):
    with pytest.raises(InvalidArguments, match="either delay= or at="):
        RetryLater(**wrong)


def test_retry_later_tells_when_and_why():
    assert str(RetryLater("rate limited", delay="5m")) == "retry in 5m: rate limited"
    assert str(RetryLater(at=0)) == "retry at 0"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("a\0\u202e\ud800", r"'a\x00\u202e\ud800'"),
        ("x" * 60, "'" + "x" * 60 + "'"),
        (10**5000, "<int>"),
        (Unshowable(), "<Unshowable>"),
    ],
    ids=shown,
)
def test_a_value_is_shown_escaped_and_without_raising(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 61, "x" * 10**6, ["x"] * 1000], ids=shown)
def test_a_long_value_is_shown_cut(value):
    text = shown(value)

    assert len(text) <= 62
    assert text.endswith("…")


def test_names_are_listed_up_to_a_point():
    assert (listed([]), listed("ab")) == ("", "a, b")
    assert listed("abcde") == "a, b, c, d, e"
    assert listed(map(str, range(1_003)), most=2, between="; ") == "0; 1 and 1,001 more"


def test_a_name_that_does_not_exist_is_told_what_is_like_it():
    assert suggested("lod", ["extract", "load"]) == "did you mean 'load'?"
    assert suggested("x", ["extract", "load"]) == "there are extract, load"
    assert suggested("x", ["extract", "load"], otherwise="it has two") == "it has two"
    assert suggested(5, ["load"], otherwise="no") == "no"


def test_of_very_many_names_only_some_are_compared():
    names = (f"n{number}" for number in range(10**9))

    assert suggested("load", names, otherwise="no") == "no"
    assert next(names) == f"n{COMPARED_MAX}"


def test_only_the_begin_of_long_names_is_compared_and_all_of_them_told(monkeypatch):
    compared = []
    compare = errors.difflib.get_close_matches

    def seen(name, known, n):
        compared.extend([name, *known])
        return compare(name, known, n=n)

    monkeypatch.setattr(errors.difflib, "get_close_matches", seen)
    long = "ab" * 100

    assert suggested(f"x{long}", [long, f"{long}c"]) == f"did you mean {long!r}?"
    assert {len(name) for name in compared} == {COMPARED_CHARS_MAX}

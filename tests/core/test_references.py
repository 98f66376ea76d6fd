"""Values that stand for others: secrets, parameters, and texts that are joined of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.references import (
    SECRET_MARK,
    check_secret_name,
    check_text,
    fill_args,
    fill_references,
    is_reference,
    names_in,
    names_in_args,
    reference,
)
from daybell.errors import InvalidName, UsageError
from tests.refusals import refuses

SECRETS = {"TOKEN": "s3cr3t", "USER": "me"}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "secret", "join", "parameter"]), inner, max_size=3)
    ),
    max_leaves=10,
).filter(lambda value: not names_in(value) and not names_in(value, "parameter"))


def reveal(value):
    return fill_references(value, "secret", SECRETS.__getitem__)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ({"secret": "TOKEN"}, "s3cr3t"),
        ([{"secret": "TOKEN"}, "x"], ["s3cr3t", "x"]),
        ({"a": {"b": [{"secret": "USER"}]}}, {"a": {"b": ["me"]}}),
        ({"join": ["Bearer ", {"secret": "TOKEN"}]}, "Bearer s3cr3t"),
        ({"join": [{"secret": "USER"}, ":", {"secret": "TOKEN"}, 1, True]}, "me:s3cr3t1true"),
        ({"join": [{"join": ["<", {"secret": "USER"}]}, ">"]}, "<me>"),
    ],
)
def test_a_reference_becomes_what_it_stands_for(value, becomes):
    assert reveal(value) == becomes


@pytest.mark.parametrize(
    "value",
    [
        {"secret": "TOKEN", "more": 1},
        {"secret": 1},
        {"secret": None},
        {"Secret": "TOKEN"},
        {"join": ["a", "b"]},
        {"join": "a"},
        {"join": [{"a": 1}]},
        '{"secret": "TOKEN"}',
        "{{ secret.TOKEN }}",
        "${TOKEN}",
        "{0.__class__}",
    ],
)
def test_what_only_looks_like_one_stays_as_it_is(value):
    assert not is_reference(value)
    assert reveal(value) == value


@given(plain)
def test_data_without_references_is_never_changed(value):
    assert reveal(value) == json.loads(json.dumps(value))
    assert fill_references(value, "parameter", SECRETS.__getitem__) == value


def test_arguments_as_a_whole_are_no_reference():
    args = {"secret": "TOKEN"}

    assert names_in_args(args) == set()
    assert fill_args(args, SECRETS.__getitem__) == args


def test_arguments_may_have_references_in_them():
    args = {"login": {"secret": "USER"}, "headers": [{"join": ["x", {"secret": "TOKEN"}]}]}

    assert names_in_args(args) == {"USER", "TOKEN"}
    assert fill_args(args, SECRETS.__getitem__) == {"login": "me", "headers": ["xs3cr3t"]}
    assert SECRET_MARK in json.dumps(args)


def test_what_a_secret_says_is_not_looked_at_again():
    tricky = {"A": '{"secret": "B"}', "B": "no"}

    assert fill_references({"secret": "A"}, "secret", tricky.__getitem__) == '{"secret": "B"}'


def test_parameters_are_put_in_first_and_secrets_stay():
    value = {"join": ["Bearer ", {"secret": "TOKEN"}, {"parameter": "end"}]}

    half = fill_references(value, "parameter", {"end": "!"}.__getitem__)

    assert half == {"join": ["Bearer ", {"secret": "TOKEN"}, "!"]}
    assert reveal(half) == "Bearer s3cr3t!"


def test_a_parameter_may_be_a_secret():
    value = {"join": ["Bearer ", {"parameter": "token"}]}

    half = fill_references(value, "parameter", {"token": {"secret": "TOKEN"}}.__getitem__)

    assert reveal(half) == "Bearer s3cr3t"


def test_only_what_is_asked_for_is_found():
    value = [{"secret": "A"}, {"parameter": "b"}]

    assert (names_in(value), names_in(value, "parameter")) == ({"A"}, {"b"})
    assert reference({"secret": "A"}, "parameter") is None


@pytest.mark.parametrize("value", [1, None, ["a"], {"secrets": "A"}, True])
def test_what_must_be_text_is_text_or_stands_for_one(value):
    with refuses(UsageError, field="title"):
        check_text(value, "title")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"output": "list", "pth": "x"}, "has 'pth' beside output.* did you mean 'path'[?]"),
        ({"secret": "TOKEN", "default": "x"}, "has 'default' beside secret.*; leave it out"),
    ],
)
def test_what_does_not_belong_beside_a_reference_is_named(value, said):
    with pytest.raises(UsageError, match=said):
        check_text(value, "title")


def test_a_text_with_a_nul_is_refused():
    with refuses(UsageError, field="title"):
        check_text("a\0b", "title")


@pytest.mark.parametrize("name", ["", "a b", "1A", "A-B", "ü", "A" * 101, "a.b", None, 7, "A\n"])
def test_a_secret_is_named_like_a_variable(name):
    with refuses(InvalidName, field="secret"):
        check_secret_name(name)


def test_a_reference_to_what_no_secret_can_be_named_is_refused():
    with pytest.raises(InvalidName):
        check_text({"secret": "not a name"}, "title")

"""The keys of requests, and the options that collapse them."""

import pytest

from daybell.core.collapse import (
    CollapseRule,
    Latest,
    Verb,
    decide,
    due_of,
    parse_key,
    render_key,
)
from daybell.core.job_request import read_request
from daybell.core.options import JobDefinition
from daybell.errors import UsageError


@pytest.mark.parametrize(
    ("key", "args", "text"),
    [
        ("account", {"account": "a"}, "a"),
        ("account", {"account": 7}, "7"),
        ("account", {"account": None}, "null"),
        ("account", {}, "null"),
        ("order.account", {"order": {"account": "a"}}, "a"),
        ("order.account", {"order": 3}, "null"),
        ("orders.1.id", {"orders": [{"id": 1}, {"id": 2}]}, "2"),
        ("orders.2.id", {"orders": [{"id": 1}, {"id": 2}]}, "null"),
        ("{account}:{order.id}", {"account": "a", "order": {"id": True}}, "a:true"),
        ("all", {"all": {"b": 1, "a": [2]}}, '{"a":[2],"b":1}'),
        ("eu-{account}", {"account": "ä"}, "eu-ä"),
    ],
)
def test_a_key_is_made_of_arguments(key, args, text):
    assert render_key(parse_key(key), args) == text


@pytest.mark.parametrize(
    "key", ["", 3, None, "a b", "a..b", ".a", "{a", "a}", "{}", "{a b}", "x" * 501]
)
def test_a_wrong_key_is_refused_by_its_field(key):
    with pytest.raises(UsageError) as refused:
        parse_key(key, "debounce.key")

    assert refused.value.field == "debounce.key"


def read(**options):
    return read_request("a", {"task": "a", **options}).definition()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"debounce": "soon"}, "debounce"),
        ({"debounce": 0}, "debounce"),
        ({"debounce": {"key": "a"}}, "debounce.wait"),
        ({"debounce": {"wait": 1, "by": "a"}}, "debounce"),
        ({"debounce": {"wait": 1, "key": "a b"}}, "debounce.key"),
        ({"throttle": "10"}, "throttle"),
        ({"throttle": "0/m"}, "throttle"),
        ({"throttle": "1001/m"}, "throttle"),
        ({"throttle": "x/m"}, "throttle"),
        ({"throttle": {"rate": 3}}, "throttle.rate"),
        ({"singleton": "always"}, "singleton"),
        ({"singleton": {"scope": 1}}, "singleton.scope"),
        ({"on_conflict": "error"}, "on_conflict"),
        ({"on_conflict": "stop", "singleton": "running"}, "on_conflict"),
        ({"max_wait": "1m"}, "max_wait"),
        ({"cache_key": "a"}, "cache_key"),
        ({"cache_version": "1"}, "cache_version"),
        ({"cache_for": 0}, "cache_for"),
        ({"cache_for": "1h", "cache_key": "a b"}, "cache_key"),
        ({"cache_for": "1h", "store_result": False}, "cache_for"),
        ({"cache_for": "1h", "singleton": "running"}, "cache_for"),
        ({"debounce": "1s", "throttle": "1/m"}, "throttle"),
        ({"singleton": "running", "debounce": "1s"}, "singleton"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_by_their_field(options, field):
    with pytest.raises(UsageError) as refused:
        read(**options)

    assert refused.value.field == field


def test_a_definition_has_one_rule():
    assert JobDefinition(name="a").collapse is None
    assert read(debounce={"wait": "5s", "key": "a.b"}, max_wait="1m").collapse == CollapseRule(
        kind="debounce", key=(("a", "b"),), wait=5.0, most=60.0
    )
    key = "{account}:{order.id}"
    assert read(debounce={"wait": 1, "key": key}).key_arguments == ("account", "order")
    assert read(throttle="3/h").collapse == CollapseRule(kind="throttle", limit=3, period=3600.0)
    assert read(singleton="running", on_conflict="error").collapse == CollapseRule(
        kind="singleton", scope="running", conflict="error"
    )


def test_a_definition_without_a_rule_is_kept_as_before():
    text = JobDefinition(name="a").to_json()

    assert not any(word in text for word in ("debounce", "collapse", "on_conflict", "max_wait"))


def test_a_cached_result_is_of_arguments_in_any_order_and_of_a_version():
    rule = read(cache_for="1h").collapse
    other = read(cache_for="1h", cache_version="2").collapse

    assert rule is not None and other is not None
    assert rule.key_of('{"a":1,"b":2}', None) == rule.key_of('{"b":2,"a":1}', "k")
    assert rule.key_of("{}", None) != other.key_of("{}", None)


def test_a_long_key_is_kept_as_its_digest():
    rule = CollapseRule(kind="debounce", key=(("a",),))

    keys = {rule.key_of(f'{{"a": "{letter * 1000}"}}', None) for letter in "xy"}

    assert len(keys) == 2
    assert all(len(key) == 65 for key in keys)


def test_a_debounced_time_is_never_in_the_past():
    rule = CollapseRule(kind="debounce", wait=5.0, most=20.0)

    assert due_of(rule, asked=105.0, first=90.0, now=100.0) == 105.0
    assert due_of(rule, asked=112.0, first=90.0, now=107.0) == 110.0
    assert due_of(rule, asked=135.0, first=90.0, now=130.0) == 130.0


@pytest.mark.parametrize(
    ("scope", "is_waiting", "verb"),
    [
        ("unfinished", True, Verb.REPLACE),
        ("unfinished", False, Verb.REPLACE),
        ("running", True, Verb.HELD),
        ("running", False, Verb.REPLACE),
    ],
)
def test_the_scope_of_a_singleton_tells_what_is_in_the_way(scope, is_waiting, verb):
    rule = CollapseRule(kind="singleton", scope=scope, conflict="replace")

    assert decide(rule, Latest(created_at=0.0, is_waiting=is_waiting), now=1.0) is verb

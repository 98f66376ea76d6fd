"""What may be said of a request."""

import pytest

from daybell.core.kinds import HttpSettings, read_settings, settings_json
from daybell.core.kinds.settings import check_url
from daybell.errors import UsageError


def test_an_address_alone_is_enough():
    settings = HttpSettings.parse("https://example.org/x")

    assert (settings.method, settings.expect, settings.redirects) == ("GET", ("2xx",), 0)


def test_with_a_body_it_is_posted_unless_it_says_otherwise():
    assert HttpSettings.parse({"url": "http://a", "body": {}}).method == "POST"
    assert HttpSettings.parse({"url": "http://a", "body": "x", "method": "put"}).method == "PUT"


@pytest.mark.parametrize(
    ("expect", "status", "is_good"),
    [
        ("2xx", 204, True),
        ("2xx", 302, False),
        (204, 204, True),
        (204, 200, False),
        (["2xx", 404], 404, True),
        (["2xx", 404], 403, False),
    ],
)
def test_which_answers_are_good_ones(expect, status, is_good):
    settings = HttpSettings.parse({"url": "http://a", "expect": expect})

    assert settings.expects(status) is is_good


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("gopher://x", "begin with http"),
        ("javascript:alert(1)", "begin with http"),
        ("example.org", "begin with http"),
        ("//example.org", "begin with http"),
        ("http://", "names no host"),
        ("http:///x", "names no host"),
        ("http://user:pass@example.org", "login"),
        ("http://user@example.org", "login"),
        ("http://example.org@evil", "login"),
        ("http://a b", "space as %20"),
        ("http://a\r\nX: y", "cannot be printed"),
        ("http://a\\@b", "backslash"),
        ("http://a:99999", "cannot be read"),
        ("http://a:0", "port 0"),
        ("http://[::1", "cannot be read"),
        ("http://a/" + "x" * 8000, "the limit is"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_and_not_shown(url, why):
    with pytest.raises(UsageError, match=why) as refused:
        check_url(url)

    assert "pass" not in str(refused.value)
    assert refused.value.field == "http.url"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "http.url"),
        (None, "http"),
        ({"url": 7}, "http.url"),
        ({"url": "http://a", "method": "CONNECT"}, "http.method"),
        ({"url": "http://a", "method": "GET\r\n"}, "http.method"),
        ({"url": "http://a", "headers": []}, "http.headers"),
        ({"url": "http://a", "headers": {"X Y": "1"}}, "http.headers"),
        ({"url": "http://a", "headers": {"X:": "1"}}, "http.headers"),
        ({"url": "http://a", "headers": {"X": "a\r\nY: b"}}, "http.headers.X"),
        ({"url": "http://a", "headers": {"X": "ü"}}, "http.headers.X"),
        ({"url": "http://a", "headers": {"X": 1}}, "http.headers.X"),
        ({"url": "http://a", "headers": {"Host": "b"}}, "http.headers.Host"),
        ({"url": "http://a", "headers": {"upgrade": "b"}}, "http.headers.upgrade"),
        ({"url": "http://a", "headers": {f"X{n}": "" for n in range(101)}}, "http.headers"),
        ({"url": "http://a", "expect": []}, "http.expect"),
        ({"url": "http://a", "expect": "ok"}, "http.expect"),
        ({"url": "http://a", "expect": 99}, "http.expect"),
        ({"url": "http://a", "expect": True}, "http.expect"),
        ({"url": "http://a", "redirects": 4}, "http.redirects"),
        ({"url": "http://a", "redirects": "all"}, "http.redirects"),
        ({"url": "http://a", "body": float("nan")}, "http.body"),
        ({"url": "http://a", "timeout": 5}, "http.timeout"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(value, field):
    with pytest.raises(UsageError) as refused:
        HttpSettings.parse(value)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "value",
    [
        "http://example.org",
        {"url": {"secret": "HOOK"}, "body": {"a": [{"secret": "B"}]}, "redirects": True},
        {
            "url": "http://a:8080/x?y=z",
            "method": "DELETE",
            "headers": {"Authorization": {"join": ["Bearer ", {"secret": "T"}]}},
            "expect": [204, "3xx"],
        },
    ],
)
def test_what_is_kept_says_the_same(value):
    settings = HttpSettings.parse(value)

    assert read_settings("http", settings_json(settings)) == settings


def test_a_get_with_a_body_stays_one():
    settings = HttpSettings.parse({"url": "http://a", "method": "GET", "body": {"query": {}}})

    assert read_settings("http", settings_json(settings)) == settings

"""Jobs that send a request: what is sent, which answers are good ones, what is kept of them."""

import gzip
import hmac
import json
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest

from daybell import __version__
from daybell.core.limits import HTTP_BODY_BYTES_MAX, RESULT_BYTES_MAX
from daybell.runners.http import Http
from daybell.runners.http_connection import sign
from tests.runners.http_places import EXECUTION, OK, Running, asked, failed, serving


def an_answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_a_request_is_sent_and_its_answer_kept():
    answer = an_answer("200 OK", b'{"rows": [1, 2]}', content_type="application/json", etag='"7"')
    async with serving(answer) as place:
        running = Running()

        result = await asked(f"{place.url}/report?day=monday", running=running)

        assert place.head.startswith("GET /report?day=monday HTTP/1.1\r\n")
        assert result == {
            "status": 200,
            "headers": {"content-type": "application/json", "content-length": "16", "etag": '"7"'},
            "body": {"rows": [1, 2]},
        }
        ((level, source, line),) = running.said
        assert (level, source) == ("info", "http")
        assert line.startswith(f"GET {place.url}/report → 200 OK in ")  # without the query
        assert line.endswith(" ms, 16 bytes")


async def test_a_request_says_who_sends_it_and_which_execution_it_is_for():
    async with serving(OK) as place:
        await asked(place.url, running=Running(attempt=3))

        assert place.header("user-agent") == f"daybell/{__version__}"
        assert place.header("daybell-execution-id") == str(EXECUTION)
        assert place.header("daybell-attempt") == "3"
        assert place.header("host") == f"127.0.0.1:{place.port}"
        assert place.header("idempotency-key") is None  # reading twice does no harm


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_every_try_of_what_must_not_be_done_twice_has_the_same_key(method):
    async with serving(OK) as place:
        for attempt in (1, 2):
            await asked({"url": place.url, "method": method}, running=Running(attempt=attempt))

        assert [place.header("idempotency-key", n) for n in (0, 1)] == [str(EXECUTION)] * 2


async def test_headers_that_are_given_replace_the_usual_ones():
    given = {"USER-AGENT": "me", "Idempotency-Key": "mine", "X-Trace": "t-1"}
    async with serving(OK) as place:
        await asked({"url": place.url, "method": "POST", "headers": given})

        assert place.head.lower().count("user-agent:") == 1
        assert place.header("user-agent") == "me"
        assert place.header("idempotency-key") == "mine"
        assert place.header("x-trace") == "t-1"


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ("a=1&b=é", "a=1&b=é".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        ([], b"[]", "application/json"),
        (False, b"false", "application/json"),
    ],
)
async def test_a_text_is_sent_as_it_is_and_all_else_as_json(body, sent, content_type):
    async with serving(OK) as place:
        await asked({"url": place.url, "body": body})

        assert place.head.startswith("POST / ")
        assert place.bodies == [sent]
        assert place.header("content-type") == content_type


async def test_arguments_are_the_body_of_a_request_without_one():
    async with serving(OK) as place:
        await asked({"url": place.url, "method": "PUT"}, running=Running({"order": 42}))

        assert place.bodies == [b'{"order":42}']
        assert place.header("content-type") == "application/json"


async def test_a_post_without_a_body_says_so():
    async with serving(OK) as place:
        await asked({"url": place.url, "method": "POST"})

        assert place.header("content-length") == "0"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "arguments cannot be sent with GET; they are the body of a POST"),
        ({"method": "DELETE"}, "arguments cannot be sent with DELETE"),
        ({"body": "mine"}, "it has a body of its own, so it takes no arguments"),
    ],
)
async def test_arguments_that_cannot_be_sent_are_not_ignored(settings, why):
    async with serving(OK) as place:
        error = await failed({"url": place.url} | settings, running=Running({"order": 42}))

        assert (error.type, error.is_hopeless) == ("HttpFailed", True)
        assert why in error.message
        assert place.heads == []


SECRETS = {"TOKEN": "canary-token", "URL": "http://127.0.0.1:{}/hook/canary-path?key=canary-query"}


async def test_secrets_are_put_into_what_is_sent():
    async with serving(OK) as place:
        settings = {
            "url": {"join": [place.url, "/", {"secret": "TOKEN"}]},
            "headers": {"Authorization": {"join": ["Bearer ", {"secret": "TOKEN"}]}},
            "body": {"key": {"secret": "TOKEN"}},
            "method": "POST",
        }
        running = Running()

        await asked(settings, secrets=SECRETS, running=running)

        assert place.head.startswith("POST /canary-token ")
        assert place.header("authorization") == "Bearer canary-token"
        assert place.bodies == [b'{"key":"canary-token"}']
        assert "canary" not in str(running.said)


async def test_a_header_may_be_called_secret():
    async with serving(OK) as place:
        await asked({"url": place.url, "headers": {"secret": "abc"}})
        await asked({"url": place.url, "headers": {"secret": {"secret": "TOKEN"}}}, secrets=SECRETS)

        assert [place.header("secret", n) for n in (0, 1)] == ["abc", "canary-token"]


async def test_an_address_from_a_secret_is_not_shown_in_errors():
    async with serving(an_answer("404 Not Found")) as place:
        running = Running()
        secrets = SECRETS | {"URL": SECRETS["URL"].format(place.port)}

        error = await failed({"url": {"secret": "URL"}}, secrets=secrets, running=running)

        assert place.head.startswith("GET /hook/canary-path?key=canary-query ")
        assert error.message == "GET http://… answered 404 Not Found"
        assert "canary" not in error.message + str(running.said)


@pytest.mark.parametrize(
    ("settings", "value", "why"),
    [
        ({"url": {"secret": "S"}}, "ftp://canary/", "url must begin with http:// or https://"),
        ({"url": {"secret": "S"}}, "http://me:canary@x/", "url has a login in it"),
        ({"url": {"secret": "S"}}, "http://x/ca nary", "url has a space"),
        ({"url": {"secret": "S"}}, "http://canary\u24db/", "url cannot be read"),
        ({"url": {"secret": "S"}}, "http://[fe80::1%25canary]/", "url has a login or a zone"),
        (
            {"url": "http://x/", "headers": {"A": {"secret": "S"}}},
            "canary\r\nB: 1",
            "header A must be one line of ASCII",
        ),
        (
            {"url": "http://x/", "headers": {"A": {"secret": "S"}}},
            "canary\x0b1",
            "header A has a character in it that cannot be printed",
        ),
    ],
)
async def test_a_secret_that_cannot_be_sent_is_refused_without_showing_it(settings, value, why):
    error = await failed(settings, secrets={"S": value})

    assert error.is_hopeless
    assert why in error.message
    assert "canary" not in error.message


@pytest.mark.parametrize(
    ("status", "expect", "is_good"),
    [
        ("204 No Content", None, True),
        ("404 Not Found", [200, 404], True),
        ("503 Service Unavailable", "5xx", True),
        ("200 OK", 204, False),
        ("301 Moved Permanently", None, False),
        ("301 Moved Permanently", "3xx", True),
    ],
)
async def test_an_answer_is_good_if_it_is_expected(status, expect, is_good):
    settings = {} if expect is None else {"expect": expect}
    async with serving(an_answer(status, location="/elsewhere")) as place:
        settings["url"] = place.url
        if is_good:
            assert (await asked(settings))["status"] == int(status[:3])
        else:
            assert (await failed(settings)).is_hopeless


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_what_may_pass_is_tried_again(status):
    async with serving(an_answer(f"{status} Oh", b"come back\n")) as place:
        error = await failed(f"{place.url}/a")

    assert not error.is_hopeless
    assert error.message.startswith(f"GET {place.url}/a answered {status}")
    assert error.message.endswith(": come back")


@pytest.mark.parametrize("status", [302, 400, 401, 404, 409, 418, 499])
async def test_what_stays_is_not_tried_again(status):
    async with serving(an_answer(f"{status} Oh")) as place:
        assert (await failed(place.url)).is_hopeless


DATE = "Mon, 16 Nov 2026 05:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": " 120 "}, 120.0),
        ({"retry_after": "Mon, 16 Nov 2026 05:00:30 GMT", "date": DATE}, 30.0),
        ({"retry_after": "Monday, 16-Nov-26 05:00:30 GMT", "date": DATE}, 30.0),
        ({"retry_after": "Mon Nov 16 05:00:30 2026", "date": DATE}, 30.0),
        ({"retry_after": "9" * 400}, 86_400.0),
        ({"retry_after": "86401"}, 86_400.0),
        ({"retry_after": "Mon, 16 Nov 2099 05:00:30 GMT", "date": DATE}, 86_400.0),
        ({}, None),
        ({"retry_after": "0"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1e9"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after": "Mon, 16 Nov 2026 04:00:00 GMT", "date": DATE}, None),  # is over
        ({"retry_after": "Mon, 16 Nov 2026 05:00:30 GMT"}, None),  # after what?
        ({"retry_after": "Mon, 16 Nov 2026 05:00:30 GMT", "date": "today"}, None),
        ({"retry_after": "Mon, 99 Nov 999999 05:00:30 GMT", "date": DATE}, None),
    ],
)
async def test_an_answer_may_say_when_to_come_back(headers, seconds):
    async with serving(an_answer("429 Too Many Requests", **headers)) as place:
        error = await failed(place.url)

    assert error.retry_after == seconds
    assert not error.is_hopeless


@pytest.mark.parametrize(
    ("content_type", "body", "kept"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/problem+json; charset=utf-8", b"[1]", [1]),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b"NaN", "NaN"),
        ("application/json", b"[" * 64 + b"]" * 64, "[" * 64 + "]" * 64),  # deeper than is kept
        ("text/plain", b'{"a": 1}', '{"a": 1}'),
        ("text/plain; charset=ISO-8859-1", b"caf\xe9", "café"),
        ("text/plain; charset=punycode", b"caf\xe9", "caf�"),
        ("application/octet-stream", b"\x00\xff", "\x00�"),
        ("text/html", b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("application/json", b"", None),
    ],
)
async def test_a_body_is_kept_as_json_if_it_is_and_else_as_text(content_type, body, kept):
    async with serving(an_answer("200 OK", body, content_type=content_type)) as place:
        assert (await asked(place.url))["body"] == kept


async def test_what_is_kept_fits_into_a_result():
    body = b"\x01" * HTTP_BODY_BYTES_MAX  # six characters each, in JSON
    async with serving(an_answer("200 OK", body)) as place:
        result = await asked(place.url)

    assert len(result["body"]) == HTTP_BODY_BYTES_MAX
    assert "truncated" not in result
    assert len(json.dumps(result)) < RESULT_BYTES_MAX


async def test_a_job_that_keeps_no_results_keeps_none():
    async with serving(OK) as place:
        assert await asked(place.url, store_result=False) is None


async def test_a_packed_body_is_unpacked():
    body = gzip.compress(b"hello " * 1000)
    async with serving(an_answer("200 OK", body, content_encoding="gzip")) as place:
        assert (await asked(place.url))["body"] == "hello " * 1000
        assert place.header("accept-encoding") == "gzip"


async def test_a_body_in_an_unknown_encoding_is_not_kept():
    async with serving(an_answer("200 OK", b"\x1b\x00", content_encoding="br")) as place:
        running = Running()

        result = await asked(place.url, running=running)

        assert (result["body"], result["truncated"]) == (None, True)
        assert running.said[-1][0] == "warning"
        assert "it is encoded as br, which is not known here" in running.said[-1][2]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no gzip at all", "it is not the gzip that it says"),
        (gzip.compress(b"hello " * 1000, mtime=0)[:-9], "it ends too early"),
    ],
    ids=["no gzip", "half"],
)
async def test_a_body_that_is_not_what_it_says_is_a_failure(body, why):
    async with serving(an_answer("200 OK", body, content_encoding="gzip")) as place:
        error = await failed(place.url)

    assert not error.is_hopeless
    assert error.message.endswith(why)


async def test_an_answer_to_head_has_no_body():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nContent-Encoding: gzip\r\n\r\n"
    async with serving(head) as place:
        result = await asked({"url": place.url, "method": "HEAD"})

    assert (result["body"], result["headers"]["content-length"]) == (None, "500")


async def test_a_long_error_page_is_not_cut_within_a_word():
    page = b"x" * 495 + b" canary-token-of-this-job" + b" y" * 500
    async with serving(an_answer("400 Bad Request", page)) as place:
        error = await failed(place.url)

    assert error.message.endswith(f": {'x' * 495} …")
    assert len(error.message) < 700


async def test_a_secret_at_the_cut_is_masked_or_left_out():
    token = "canary" * 100
    page = b"y" * 300 + f" {token} rejected".encode()
    location = "https://x.example/?a=1&token=" + token * 2
    running = Running()
    running.secret = token
    async with serving(an_answer("200 OK", page, location=location)) as place:
        known = await failed({"url": place.url, "expect": 204}, running=running)
        unknown = await failed({"url": place.url, "expect": 204})
        kept = await asked(place.url)

    assert known.message.endswith(": " + "y" * 300 + " *** rejected")
    assert unknown.message.endswith(": " + "y" * 300 + " …")
    assert kept["headers"]["location"] == "https://x.example/?a=1&token=…"


async def test_nobody_there_is_tried_again():
    async with serving(OK) as place:
        pass

    error = await failed(place.url)

    assert (error.type, error.is_hopeless) == ("HttpFailed", False)
    assert error.message == f"GET {place.url}/ failed: no connection: Connection refused"


async def test_a_host_that_is_not_found_is_tried_again():
    async def resolve(host, port):
        raise OSError(-2, "Name or service not known")

    error = await failed("http://nowhere.example/a", Http(resolve=resolve))

    assert not error.is_hopeless
    assert error.message == (
        "GET http://nowhere.example/a failed: nowhere.example was not found: Name or service not"
        " known"
    )


async def test_what_cannot_be_a_name_is_not_found():
    error = await failed(f"http://{'x' * 64}.example/")

    assert "cannot be a name" in error.message


# Signatures: the example of svix.com, which Standard Webhooks come from.
WEBHOOK_KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_signature_is_that_of_standard_webhooks():
    claimed: Any = SimpleNamespace(id="msg_p5jXN8AQM9LWM0D4loKWxJek")

    headers = sign(WEBHOOK_KEY, claimed, b'{"test": 2432232314}', 1614265330.9)

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


async def test_a_signed_request_carries_the_signature_of_its_body():
    settings = {"url": "", "method": "POST", "sign": {"secret": "KEY"}}
    async with serving(OK) as place:
        http = Http(allow_private=True, clock=lambda: 1614265330.0)
        running = Running({"a": 1})
        await asked({**settings, "url": place.url}, http, running=running, secrets={"KEY": "plain"})

        expected = hmac.digest(b"plain", f'{EXECUTION}.1614265330.{{"a":1}}'.encode(), "sha256")
        signature = f"v1,{b64encode(expected).decode()}"
        assert place.header("webhook-id") == str(EXECUTION)
        assert place.header("webhook-timestamp") == "1614265330"
        assert place.header("webhook-signature") == signature
        assert "plain" not in place.head


@pytest.mark.parametrize("key", ["whsec_not base64", "whsec_", ""])
async def test_a_key_that_cannot_sign_fails_for_good_and_is_not_shown(key):
    settings = {"url": "http://93.184.215.14/", "sign": {"secret": "KEY"}}
    error = await failed(settings, secrets={"KEY": key})
    assert error.is_hopeless
    assert "not base64" not in error.message

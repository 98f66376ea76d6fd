"""Triggers and bulk enqueues, whose bodies have readers of their own: what each is answered."""

import asyncio
import json
import re
from uuid import UUID

import pytest

from daybell.api import ApiOptions, create_api
from daybell.api.auth import Authenticator
from daybell.api.guard import Guard, Limits
from daybell.client import Client
from daybell.core.limits import PAYLOAD_DEPTH_MAX
from daybell.errors import SchemaError, Unavailable

JOB_ID = UUID("01934b2e-7c00-7000-8000-000000000001")
NOBODY = "01934b2e-7c00-7000-8000-00000000ffff"
TRIGGER = "/api/v1/jobs/resize/trigger"
BULK = "/api/v1/executions"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class World:
    """A store with some jobs and keys, behind everything that a request passes."""

    def __init__(self, client):
        self.client = client
        self._names = {}
        gatekeeper = Authenticator(client, ApiOptions(), monotonic=asyncio.get_running_loop().time)
        app = create_api(client, gatekeeper=gatekeeper)

        limits = Limits(request_bytes=10_000, bulk_bytes=20_000)
        self._app = Guard(app, admit=gatekeeper.admit, told=gatekeeper.hear, limits=limits)
        self.gatekeeper = gatekeeper

    async def prepare(self):
        await self.client.define("resize", queue="images", args={"width": 1}, id=JOB_ID)
        await self.client.define("two words")
        await self.client.define("skips", overlap="skip")
        await self.client.define("queues", overlap="queue")
        self.keys = {
            role: (await self.client.create_key(role, role=role)).token
            for role in ("viewer", "operator", "superadmin")
        }

    async def ask(self, path, *parts, method="POST", role="operator", headers=(), query=""):
        """Send a request in these parts; answers all that was sent back, without what differs
        between two that are alike.
        """
        body = b"".join(parts)
        sent = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
        if role is not None:
            sent.append((b"authorization", f"Bearer {self.keys[role]}".encode()))
        given = dict(headers)
        if body and b"content-type" not in given:
            sent.append((b"content-type", b"application/json"))
        sent += headers
        raw_path = path.encode()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.replace("%20", " ").replace("%2F", "/"),
            "raw_path": raw_path,
            "root_path": "",
            "query_string": query.encode(),
            "headers": sent,
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 8080),
        }
        rest = [
            {"type": "http.request", "body": part, "more_body": at < len(parts) - 1}
            for at, part in enumerate(parts or (b"",))
        ]
        got = []

        async def receive():
            return rest.pop(0) if rest else {"type": "http.disconnect"}

        async def send(message):
            got.append(message)

        await self._app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in got[1:]).decode()
        start = got[0]
        headers = sorted((name, self.masked(value.decode())) for name, value in start["headers"])
        return start["status"], headers, self.masked(text)

    def masked(self, text):
        """A text with its ids numbered as they came, and the key's first letters hidden."""
        return re.sub(
            r"dbk_[\w-]+",
            "dbk_…",
            _ID.sub(lambda found: self._names.setdefault(found[0], f"<{len(self._names)}>"), text),
        )


def key(text):
    return ((b"idempotency-key", text),)


def kind(text):
    return ((b"content-type", text),)


def deep(levels):
    return b'{"args":{"a":' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"}}"


SHORT = {
    "arguments": (TRIGGER, b'{"args":{"width":2}}'),
    "in two parts": (TRIGGER, b'{"args":', b'{"width":3}}'),
    "null arguments": (TRIGGER, b'{"args":null}'),
    "an empty object": (TRIGGER, b"{}"),
    "by its id": (f"/api/v1/jobs/{JOB_ID}/trigger", b'{"args":{}}'),
    "an unknown job": ("/api/v1/jobs/nobody/trigger", b'{"args":{}}'),
    "an unknown job, no arguments": ("/api/v1/jobs/nobody/trigger", b"{}"),
    "an unknown id": (f"/api/v1/jobs/{NOBODY}/trigger", b'{"args":{}}'),
    "not a name": ("/api/v1/jobs/-x/trigger", b'{"args":{}}'),
    "options": (TRIGGER, b'{"args":{},"delay":"5m","priority":"high","queue":"q","retries":1}'),
    "at": (TRIGGER, b'{"at":"2030-01-01T00:00:00Z"}'),
    "a unique key": (TRIGGER, b'{"unique_key":"k"}'),
    "a unique key, held": (TRIGGER, b'{"unique_key":"k","args":{}}'),
    "skips": ("/api/v1/jobs/skips/trigger", b'{"args":{}}'),
    "skips, with one in the way": ("/api/v1/jobs/skips/trigger", b'{"args":{}}'),
    "skips, by force": ("/api/v1/jobs/skips/trigger", b'{"args":{},"force":true}'),
    "queues": ("/api/v1/jobs/queues/trigger", b'{"args":{}}'),
    "queues, and waits": ("/api/v1/jobs/queues/trigger", b'{"args":{}}'),
    "two mistakes": (TRIGGER, b'{"args":[],"delay":"soon"}'),
    "an unknown field": (TRIGGER, b'{"args":{},"dealy":1}'),
    "a key twice": (TRIGGER, b'{"args":{"a":1,"a":2}}'),
    "a key twice, hidden": (TRIGGER, rb'{"args":{"a":1,"a":"\u003a"}}'),
    "arguments twice": (TRIGGER, b'{"args":{"a":1},"args":{"a":1}}'),
    "an escaped colon": (TRIGGER, rb'{"args":{"a":"\u003A"}}'),
    "a list": (TRIGGER, b"[]"),
    "not JSON": (TRIGGER, b"{"),
    "not Unicode": (TRIGGER, b'{"args":{"a":"\xff"}}'),
    "half a pair": (TRIGGER, rb'{"args":{"a":"\ud800"}}'),
    "a NUL": (TRIGGER, rb'{"args":{"a":"\u0000"}}'),
    "NaN": (TRIGGER, b'{"args":{"a":NaN}}'),
    "too large a number": (TRIGGER, b'{"args":{"a":1e999}}'),
    "a long integer": (TRIGGER, b'{"args":{"a":' + b"9" * 5000 + b"}}"),
    "deep": (TRIGGER, deep(PAYLOAD_DEPTH_MAX + 1)),
    "too deep": (TRIGGER, deep(PAYLOAD_DEPTH_MAX + 2)),
    "far too deep": (TRIGGER, deep(4000)),
    "once": (TRIGGER, b'{"args":{}}', {"headers": key(b"k-1")}),
    "once, again": (TRIGGER, b'{"args":{}}', {"headers": key(b"k-1")}),
    "once, with another body": (TRIGGER, b'{"args":{"a":1}}', {"headers": key(b"k-1")}),
    "once, at another path": (BULK, b'[{"job":"resize"}]', {"headers": key(b"k-1")}),
    "many": (BULK, b'[{"job":"resize","args":{"n":1}},{"job":"resize"}]'),
    "many with options": (BULK, b'[{"job":"resize","unique_key":"m","args":null},{"job":"skips"}]'),
    "many of an unknown job": (BULK, b'[{"job":"resize"},{"job":"nobody"}]'),
    "many mistakes": (BULK, b'[{"job":"-","delay":"soon"},{"job":"resize","retries":-1}]'),
    "many without a name": (BULK, b'[{"job":"resize"},{"job":""}]'),
    "many, one of a wrong type": (BULK, b'[{"job":1}]'),
    "many, an unknown field": (BULK, b'[{"job":"resize","dealy":1}]'),
    "many, too deep": (BULK, b'[{"job":"resize",' + deep(80)[1:-1] + b"}]"),
    "none": (BULK, b"[]"),
    "no list": (BULK, b"{}"),
    "many, not Unicode": (BULK, rb'[{"job":"resize","args":{"a":"\udc00"}}]'),
    "many once": (BULK, b'[{"job":"resize"},{"job":"resize"}]', {"headers": key(b"k-2")}),
    "many once, again": (BULK, b'[{"job":"resize"},{"job":"resize"}]', {"headers": key(b"k-2")}),
}

LONG = {
    "nothing said": (TRIGGER,),
    "a name with a space": ("/api/v1/jobs/two%20words/trigger", b'{"args":{}}'),
    "another path": ("/api/v1/jobs/resize/triggers", b"{}"),
    "a slash too many": (TRIGGER + "/", b"{}"),
    "an escaped slash": ("/api/v1/jobs/re%2Fsize/trigger", b"{}"),
    "a long name": (f"/api/v1/jobs/{'x' * 201}/trigger", b"{}"),
    "another method": (TRIGGER, {"method": "GET"}),
    "a parameter": (TRIGGER, b"{}", {"query": "dry=1"}),
    "another tenant": (TRIGGER, b"{}", {"query": "tenant=acme"}),
    "another tenant, by one who may": (
        TRIGGER,
        b"{}",
        {"query": "tenant=acme", "role": "superadmin"},
    ),
    "one who may not": (TRIGGER, b"{}", {"role": "viewer"}),
    "many by one who may not": (BULK, b'[{"job":"resize"}]', {"role": "viewer"}),
    "another type": (TRIGGER, b"{}", {"headers": kind(b"application/problem+json")}),
    "a charset": (TRIGGER, b"{}", {"headers": kind(b"application/json; charset=utf-8")}),
    "an empty key": (TRIGGER, b"{}", {"headers": key(b"")}),
    "a long key": (TRIGGER, b"{}", {"headers": key(b"k" * 256)}),
    "a key that is no text": (TRIGGER, b"{}", {"headers": key(b"\xff")}),
    "a key with a space": (TRIGGER, b"{}", {"headers": key(b"a b")}),
    "two keys": (TRIGGER, b"{}", {"headers": key(b"a") + key(b"b")}),
}

# Refused before anybody reads them, or while somebody does.
REFUSED = {
    "nobody": (TRIGGER, b"{}", {"role": None}),
    "too large": (TRIGGER, b'{"args":{"a":"' + b"x" * 10_000 + b'"}}'),
    "many too large": (BULK, b"[" + b" " * 20_000 + b"]"),
    "a form": (TRIGGER, b"{}", {"headers": kind(b"text/plain")}),
}


@pytest.fixture
async def world():
    async with Client("memory://") as client:
        made = World(client)
        await made.prepare()
        yield made


async def send(world, case):
    *said, last = case
    options = last if isinstance(last, dict) else {}
    parts = said if isinstance(last, dict) else case
    return await world.ask(*parts, **options)


async def test_each_is_answered_by_what_it_says(world):
    found = {}
    for name, case in {**SHORT, **LONG, **REFUSED}.items():
        found[name], _, _ = await send(world, case)

    assert found == STATUSES


STATUSES = {
    "arguments": 202,
    "in two parts": 202,
    "null arguments": 202,
    "an empty object": 202,
    "by its id": 202,
    "an unknown job": 404,
    "an unknown job, no arguments": 404,
    "an unknown id": 404,
    "not a name": 404,
    "options": 202,
    "at": 202,
    "a unique key": 202,
    "a unique key, held": 202,
    "skips": 202,
    "skips, with one in the way": 409,
    "skips, by force": 202,
    "queues": 202,
    "queues, and waits": 202,
    "two mistakes": 422,
    "an unknown field": 422,
    "a key twice": 422,
    "a key twice, hidden": 422,
    "arguments twice": 422,
    "an escaped colon": 202,
    "a list": 422,
    "not JSON": 422,
    "not Unicode": 422,
    "half a pair": 202,
    "a NUL": 202,
    "NaN": 422,
    "too large a number": 422,
    "a long integer": 422,
    "deep": 202,
    "too deep": 422,
    "far too deep": 422,
    "once": 202,
    "once, again": 202,
    "once, with another body": 422,
    "once, at another path": 422,
    "many": 202,
    "many with options": 409,
    "many of an unknown job": 404,
    "many mistakes": 422,
    "many without a name": 422,
    "many, one of a wrong type": 422,
    "many, an unknown field": 422,
    "many, too deep": 422,
    "none": 422,
    "no list": 422,
    "many, not Unicode": 202,
    "many once": 202,
    "many once, again": 202,
    "nothing said": 202,
    "a name with a space": 202,
    "another path": 404,
    "a slash too many": 404,
    "an escaped slash": 404,
    "a long name": 422,
    "another method": 405,
    "a parameter": 422,
    "another tenant": 403,
    "another tenant, by one who may": 404,
    "one who may not": 403,
    "many by one who may not": 403,
    "another type": 202,
    "a charset": 202,
    "an empty key": 422,
    "a long key": 422,
    "a key that is no text": 422,
    "a key with a space": 202,
    "two keys": 202,
    "nobody": 401,
    "too large": 413,
    "many too large": 413,
    "a form": 415,
}


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Unavailable("away"), 503), (SchemaError("old"), 503), (ZeroDivisionError(), 500)],
)
@pytest.mark.parametrize("name", ["arguments", "many"])
async def test_what_fails_further_in_is_answered_as_such(world, monkeypatch, name, error, expected):
    async def fail(*_, **__):
        raise error

    monkeypatch.setattr(world.client.store.queue, "enqueue", fail)
    status, headers, _ = await send(world, SHORT[name])

    assert status == expected
    assert any(header == b"retry-after" for header, _ in headers) is (expected == 503)


async def test_what_has_to_wait_says_so(world):
    first, second = [await send(world, SHORT["queues"]) for _ in range(2)]

    assert [json.loads(one[2])["status"] for one in (first, second)] == ["queued", "waiting"]


async def test_a_trigger_is_kept_with_its_entry(world):
    status, headers, text = await send(world, SHORT["arguments"])

    assert status == 202
    assert json.loads(text) == {"execution_id": "<0>", "status": "queued", "created": True}
    assert (b"location", "/api/v1/executions/<0>") in headers
    (kept,) = (await world.client.executions()).items
    assert (kept.job, kept.args) == ("resize", {"width": 2})
    (entry,) = (await world.client.audit(action="job.trigger")).items
    assert (entry.target, entry.after) == (
        "resize",
        {"execution_id": str(kept.execution_id)},
    )


async def test_one_who_is_gone_is_not_answered(world):
    got = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        got.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": TRIGGER,
        "raw_path": TRIGGER.encode(),
        "query_string": b"",
        "scheme": "http",
        "headers": [
            (b"host", b"localhost"),
            (b"content-length", b"2"),
            (b"content-type", b"application/json"),
            (b"authorization", f"Bearer {world.keys['operator']}".encode()),
        ],
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8080),
    }
    await world._app(scope, receive, send)

    assert got == []
    assert not (await world.client.executions()).items

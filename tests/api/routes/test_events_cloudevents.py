"""Events as senders of CloudEvents send them: in binary mode, and after a handshake."""

import pytest

from tests.api.worlds import world

EVENTS = "/api/v1/events"
ORIGIN = {"WebHook-Request-Origin": "eventgrid.example", "WebHook-Request-Rate": "120"}
# What the official SDK for Python sends for an event without `datacontenttype`.
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "A-1",
    "ce-source": "/shop",
    "ce-type": "order.approved",
    "ce-time": "2026-11-16T09:00:00+00:00",
}


@pytest.mark.parametrize(
    ("body", "data"), [(b'{"order_id": 42}', {"order_id": 42}), (b'"text"', "text"), (b"", None)]
)
async def test_data_without_a_content_type_is_json(body, data):
    async with world() as here:
        key = here.keys["operator"]
        answer = await here.ask("POST", EVENTS, key, headers=BINARY, content=body)

        assert answer.status_code == 202, answer.text
        (kept,) = (await here.ask("GET", EVENTS, key)).json()["items"]
        assert (kept["event_id"], kept["data"]) == ("A-1", data)


async def test_data_without_a_content_type_that_is_no_json_is_refused_by_field():
    async with world() as here:
        answer = await here.ask(
            "POST", EVENTS, here.keys["operator"], headers=BINARY, content=b"<order/>"
        )

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "body"


@pytest.mark.parametrize("headers", [{}, {"ce-id": "A-1"}])
async def test_no_other_body_goes_without_a_content_type(headers):
    async with world() as here:
        for path in (EVENTS, "/api/v1/jobs"):
            answer = await here.ask(
                "POST", path, here.keys["admin"], headers=headers, content=b'{"type": "x"}'
            )
            assert answer.status_code == 415


async def test_a_sender_of_events_may_ask_without_a_key_whether_they_are_welcome():
    async with world() as here:
        answer = await here.ask("OPTIONS", EVENTS, headers=ORIGIN)
        other = await here.ask("OPTIONS", EVENTS, "dbk_wrong", headers={**ORIGIN, "x": "y"})

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["webhook-allowed-origin"] == "*"
    assert answer.headers["webhook-allowed-rate"] == "*"
    assert "POST" in answer.headers["allow"]
    assert answer.headers["content-security-policy"]
    # It tells every sender the same, whatever they send.
    assert (other.status_code, other.headers, other.content) == (
        200, answer.headers, b"",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (EVENTS, {}, 401),
        ("/api/v1/jobs", ORIGIN, 401),
        ("/api/v1/executions/x/signal", ORIGIN, 401),
        ("/api/v1/events/", ORIGIN, 401),
        (EVENTS, {**ORIGIN, "host": "evil.example"}, 421),
        (EVENTS, {**ORIGIN, "origin": "http://evil.example"}, 403),
    ],
)
async def test_the_handshake_opens_nothing_else(path, headers, status):
    async with world() as here:
        answer = await here.ask("OPTIONS", path, headers=headers)
        sent = await here.ask("POST", EVENTS, headers={**ORIGIN, **BINARY}, content=b"{}")

    assert answer.status_code == status
    assert "webhook-allowed-origin" not in answer.headers
    assert sent.status_code == 401


async def test_a_handshake_with_a_body_is_refused_unread():
    async def body():
        raise AssertionError("it was read")
        yield b""

    async with world() as here:
        announced = await here.ask("OPTIONS", EVENTS, headers=ORIGIN, content=b"x" * 100_000)
        in_chunks = await here.ask("OPTIONS", EVENTS, headers=ORIGIN, content=body())
        probes = [await here.ask("GET", path, content=body()) for path in ("/healthz", "/readyz")]

    assert (announced.status_code, in_chunks.status_code) == (413, 413)
    assert [probe.status_code for probe in probes] == [200, 200]


async def test_options_with_a_key_is_no_handshake():
    async with world() as here:
        answer = await here.ask("OPTIONS", EVENTS, here.keys["operator"])

    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]

"""Bodies that are refused while they are sent: the answer arrives, and nobody is waited for."""

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest

from daybell.api.guard import Limits
from tests.api.sockets import PATIENCE, app, come, guarded, is_well

BODY = b"x" * 8_000_000
HEAD = b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(port: int) -> int:
    """As many clients do it: all is sent before anything is read."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api", BODY, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def limited(**limits: Any) -> dict[str, Any]:
    return {"limits": Limits(request_bytes=1000, **limits)}


@pytest.mark.parametrize("times", [1, 5])
async def test_who_sends_too_much_hears_of_it(times):
    async with guarded(app, guard=limited()) as (server, port):
        sent = [asyncio.to_thread(post, port) for _ in range(times)]
        assert await asyncio.gather(*sent) == [413] * times

        await come(lambda: not server.connections)
        assert await is_well(port)


async def begin_to_send(
    port: int, begun: bytes = b"Content-Length: 8000000000\r\n\r\n"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send too much, and not all, and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + begun + b"x" * 2000)
    answer = await asyncio.wait_for(reader.readuntil(b'"status":413'), PATIENCE)
    assert answer.startswith(b"HTTP/1.1 413")
    return reader, writer


async def test_who_sends_no_more_is_not_waited_for():
    async with guarded(app, guard=limited(linger_seconds=0.05)) as (server, port):
        reader, writer = await begin_to_send(port)

        await asyncio.wait_for(reader.read(), PATIENCE)
        await come(lambda: not server.connections)
        writer.close()


async def test_who_sends_without_end_is_not_listened_to():
    async with guarded(app, guard=limited(linger_bytes=100_000)) as (server, port):
        reader, writer = await begin_to_send(port)

        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                writer.write(b"x" * 10_000)
                await asyncio.wait_for(writer.drain(), PATIENCE)
        await come(lambda: not server.connections)
        writer.close()
        del reader


async def test_who_is_not_done_sending_makes_way_for_others():
    async with guarded(app, guard=limited(), connections=10) as (server, port):
        senders = [await begin_to_send(port) for _ in range(10)]
        assert server.connections == 10

        assert await is_well(port)
        for _, writer in senders:
            writer.close()


async def test_a_body_that_turns_out_to_be_nonsense_is_answered_once():
    async with guarded(app, guard=limited()) as (_, port):
        reader, writer = await begin_to_send(port, b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n")

        writer.write(b"\r\nzz\r\n")
        assert b"HTTP/1.1 " not in await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()


async def test_an_application_that_does_not_read_is_heard_too():
    async def deaf(_scope, _receive, send):
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async with guarded(deaf, guard={"limits": Limits(request_bytes=10_000_000)}) as (_, port):
        assert await asyncio.to_thread(post, port) == 201

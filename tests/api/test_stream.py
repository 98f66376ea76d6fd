"""Streams: what is sent, to how many, and when it ends."""

import asyncio
import json

import pytest
from fastapi import FastAPI, Request

from daybell.api import ApiOptions, create_api, stream
from daybell.api.problems import TooManyRequests
from daybell.api.stream import Channels, read_place
from daybell.api.streaming import WAITING_MAX, Pace, Stream, Streams, event
from daybell.client import Client
from daybell.errors import Unavailable
from daybell.store.memory import MemoryStore
from tests.api.sockets import PATIENCE, come, guarded

QUICK = Pace(look=0.02, check=0.05, heartbeat=0.1)


class Moody(MemoryStore):
    """A store that can be away, and counts how often it was looked at."""

    is_away = False
    looks = 0

    async def list_queues(self, tenant):
        self.looks += 1
        if self.is_away:
            raise Unavailable("connection to db.internal refused")
        return await super().list_queues(tenant)


class Reader:
    """Somebody who reads a stream from a socket, event by event."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, path: str, **headers: str) -> bytes:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        return await self._until(b"\r\n\r\n")

    async def next(self, name: str) -> dict:
        """The content of the next event with this name."""
        async with asyncio.timeout(PATIENCE):
            while True:
                text = (await self._until(b"\n\n")).decode()
                if f"event: {name}\n" in text:
                    return json.loads(text.partition("data: ")[2])

    async def comment(self) -> bytes:
        return await self._until(b": still here\n\n")

    async def end(self) -> bytes:
        """All that is left, until the stream is over."""
        return await self._until(b"0\r\n\r\n")

    async def _until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(mark), PATIENCE)


@pytest.fixture
async def store():
    moody = Moody()
    await moody.open()
    yield moody
    await moody.close()


def an_app(store, *, is_welcome=None, streams_max=5, pace=QUICK) -> FastAPI:
    app = create_api(Client(store), options=ApiOptions(open_tenant="default"))
    if not any(getattr(route, "path", "") == "/api/v1/stream" for route in app.routes):
        app.include_router(stream.router, prefix="/api/v1")
    welcome = {} if is_welcome is None else {"is_welcome": is_welcome}
    app.state.streams = Streams(
        monotonic=asyncio.get_running_loop().time, pace=pace, streams_max=streams_max, **welcome
    )
    app.state.channels = Channels(app.state.streams)
    return app


async def test_stats_come_again_and_again(store):
    client = Client(store)
    await client.define("greet")
    async with guarded(an_app(store)) as (_, port), Reader(port) as reader:
        head = await reader.ask("/api/v1/stream", Last_Event_ID="'; drop table x")
        first = await reader.next("stats")
        await client.enqueue("greet")
        async with asyncio.timeout(PATIENCE):
            while (await reader.next("stats"))["totals"]["queued"] != 1:
                pass

    assert b"200 OK" in head and b"text/event-stream" in head
    assert b"cache-control: no-store" in head
    assert (first["totals"]["queued"], first["workers"]) == (0, [])


async def test_all_who_look_share_one_look(store):
    app = an_app(store, pace=Pace(look=3600))
    async with guarded(app) as (_, port):
        async with Reader(port) as one, Reader(port) as other, Reader(port) as third:
            for reader in (one, other, third):
                await reader.ask("/api/v1/stream")
                await reader.next("stats")
            assert store.looks == 1
            assert (len(app.state.streams), len(app.state.channels)) == (3, 1)
        await come(lambda: len(app.state.streams) == 0)
        assert len(app.state.channels) == 0


async def test_nobody_looks_when_nobody_listens(store):
    app = an_app(store)
    async with guarded(app) as (_, port):
        async with Reader(port) as reader:
            await reader.ask("/api/v1/stream")
            await reader.next("stats")
        await come(lambda: len(app.state.channels) == 0)
        looks = store.looks
        async with Reader(port) as reader:  # and it begins again
            await reader.ask("/api/v1/stream")
            await reader.next("stats")

    assert store.looks > looks


async def test_a_store_that_is_away_is_told_and_comes_back(store, caplog):
    async with guarded(an_app(store)) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await reader.next("stats")
        store.is_away = True
        told = await reader.next("unavailable")
        store.is_away = False
        await reader.next("stats")

    assert "db.internal" not in json.dumps(told)


async def test_a_silent_stream_has_a_heartbeat(store):
    app = an_app(store, pace=Pace(look=3600, check=0.02, heartbeat=0.05))
    async with guarded(app) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await reader.next("stats")
        await reader.comment()


async def test_there_is_a_limit_to_streams(store):
    app = an_app(store, streams_max=1)
    async with guarded(app) as (_, port), Reader(port) as one, Reader(port) as other:
        await one.ask("/api/v1/stream")
        await one.next("stats")

        head = await other.ask("/api/v1/stream")

        assert b"HTTP/1.1 429" in head and b"retry-after" in head
        assert len(app.state.streams) == 1


async def test_a_stream_ends_when_its_key_does(store):
    is_valid = [True]

    async def is_welcome(request: Request) -> bool:
        return is_valid[0]

    async with guarded(an_app(store, is_welcome=is_welcome)) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await reader.next("stats")
        is_valid[0] = False

        await reader.end()


async def test_a_stream_stays_while_nobody_can_tell(store):
    asked = []

    async def is_welcome(request: Request) -> bool:
        asked.append(1)
        raise Unavailable("gone")

    async with guarded(an_app(store, is_welcome=is_welcome)) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await come(lambda: len(asked) > 1)
        await reader.next("stats")


async def test_closing_ends_all_streams_at_once(store):
    app = an_app(store, pace=Pace(look=3600, check=3600))
    async with guarded(app) as (server, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await reader.next("stats")

        app.state.streams.close()

        await reader.end()
        with pytest.raises(TooManyRequests):
            app.state.streams.open()
        await asyncio.wait_for(server.stop(), PATIENCE)


def test_who_is_too_far_behind_gets_nothing_more():
    stream = Stream()

    for _ in range(WAITING_MAX + 1):
        stream.push(b"x")

    assert stream.is_over


async def test_a_stream_that_is_ended_sends_what_waits():
    stream = Stream()
    stream.push(b"x")
    stream.end()
    stream.push(b"y")

    assert [await stream.next(), await stream.next()] == [b"x", None]


async def test_a_sender_waits_for_a_slow_reader():
    stream = Stream()

    async def send():
        for number in range(5 * WAITING_MAX):
            await stream.send(str(number).encode())
        stream.end()

    sending = asyncio.create_task(send())
    read = []
    while (frame := await asyncio.wait_for(stream.next(), PATIENCE)) is not None:
        read.append(int(frame))
    await sending

    assert read == list(range(5 * WAITING_MAX))


def test_nothing_in_an_event_begins_another():
    frame = event("lines", {"message": "x\n\nevent: forged\r\ndata: y\u2028"}, id="1.2")

    assert frame.count(b"\n\n") == 1 and frame.count(b"event: ") == 2
    assert frame.startswith(b"id: 1.2\nevent: lines\ndata: {")
    assert frame.count(b"\n") == 4


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("2.3", (2, 3)),
        ("", (0, 0)),
        ("-1.2", (0, 0)),
        ("1.2.3", (0, 0)),
        ("9" * 5000, (0, 0)),
        ("1.9999999999", (1, 2**31 - 1)),
    ],
)
def test_where_a_reader_was_is_read_or_forgotten(text, place):
    assert read_place(text) == place

"""Streams: what is sent, to how many, and when it ends."""

import asyncio
import json
from uuid import UUID

import pytest
from starlette.requests import Request

from daybell.api import ApiOptions, create_api
from daybell.api.app import Application
from daybell.api.caller import TooManyRequests
from daybell.api.stream import (
    BACKLOG_MAX,
    Channels,
    Pace,
    Stream,
    Streams,
    encode_event,
    read_place,
)
from daybell.client import Client, Holder, mint
from daybell.core.execution import NewLogPart, line_text
from daybell.core.lifecycle import after_success
from daybell.errors import Unavailable
from daybell.store.shares import current_holder
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.ports import SqliteCatalog
from tests.api.sockets import PATIENCE, Reader, come, guarded
from tests.builders import a_worker

QUICK = Pace(look=0.02, check=0.05, heartbeat=0.1, keep=0)


class Moody(SqliteCatalog):
    """A port that can be away, and counts how often it was looked at."""

    is_away = False
    looks = 0

    async def list_queues(self, tenant):
        self.looks += 1
        if self.is_away:
            raise Unavailable("connection to db.internal refused")
        return await super().list_queues(tenant)


@pytest.fixture
async def store():
    store = SqliteStore.in_memory()
    store.catalog = Moody(store.db, store.wakeups)
    await store.open()
    yield store
    await store.close()


def an_app(store, *, is_welcome=None, streams_max=9, pace=QUICK) -> Application:
    app = create_api(Client(store), options=ApiOptions(open_tenant="default"))
    welcome = {} if is_welcome is None else {"is_welcome": is_welcome}
    app.state.streams = Streams(
        monotonic=asyncio.get_running_loop().time, pace=pace, streams_max=streams_max, **welcome
    )
    app.state.channels = Channels(app.state.streams)
    return app


async def test_what_all_listeners_share_is_charged_to_the_tenant_alone(store, monkeypatch):
    asked = []

    async def list_queues(tenant):
        asked.append(current_holder())
        return []

    monkeypatch.setattr(store.catalog, "list_queues", list_queues)
    async with guarded(an_app(store)) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await come(lambda: asked)

    assert set(asked) == {Holder("default")}


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
    app = an_app(store, pace=Pace(look=3600, keep=0))
    async with guarded(app) as (_, port):
        async with Reader(port) as one, Reader(port) as other, Reader(port) as third:
            for reader in (one, other, third):
                await reader.ask("/api/v1/stream")
                await reader.next("stats")
            assert store.catalog.looks == 1
            assert (len(app.state.streams), len(app.state.channels)) == (3, 1)
        await come(lambda: len(app.state.streams) == len(app.state.channels) == 0)


async def test_nobody_looks_when_nobody_listens(store):
    app = an_app(store)
    async with guarded(app) as (_, port):
        async with Reader(port) as reader:
            await reader.ask("/api/v1/stream")
            await reader.next("stats")
        await come(lambda: len(app.state.channels) == 0)
        await come(lambda: not [one for one in asyncio.all_tasks() if "topics" in one.get_name()])
        looks = store.catalog.looks
        async with Reader(port) as reader:  # and it begins again
            await reader.ask("/api/v1/stream")
            await reader.next("stats")

    assert store.catalog.looks > looks


async def test_a_store_that_is_away_is_told_and_comes_back(store, caplog):
    async with guarded(an_app(store)) as (_, port), Reader(port) as reader:
        await reader.ask("/api/v1/stream")
        await reader.next("stats")
        store.catalog.is_away = True
        told = await reader.next("unavailable")
        store.catalog.is_away = False
        await reader.next("available")
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

        assert "revoked" in (await reader.next("error"))["detail"]
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
            app.state.streams.open(Holder("default"))
        await asyncio.wait_for(server.stop(), PATIENCE)


def test_who_is_too_far_behind_gets_nothing_more():
    stream = Stream()

    for _ in range(BACKLOG_MAX + 1):
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
        for number in range(5 * BACKLOG_MAX):
            await stream.send(str(number).encode())
        stream.end()

    sending = asyncio.create_task(send())
    read = []
    while (frame := await asyncio.wait_for(stream.next(), PATIENCE)) is not None:
        read.append(int(frame))
    await sending

    assert read == list(range(5 * BACKLOG_MAX))


def test_nothing_in_an_event_begins_another():
    frame = encode_event("lines", {"message": "x\n\nevent: forged\r\ndata: y\u2028"}, id="1.2")

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


async def test_a_log_is_followed_to_the_end(store):
    client = Client(store)
    await client.define("greet")
    made = await client.enqueue("greet")
    worker = a_worker(queues=("default",))
    await store.queue.register("default", worker, lease=60.0)
    lease = mint()
    claim = await store.queue.claim(
        "default", worker=worker.id, lease=lease, queues=["default"], limit=1
    )
    (one,) = claim.executions

    async def say(number: int, message: str) -> None:
        text = line_text(1.0, "info", "app", message)
        part = NewLogPart(id=made.id, attempt=1, lease=lease, number=number, text=text)
        await store.queue.write_log("default", worker=worker.id, parts=[part])

    path = f"/api/v1/executions/{made.id}/logs"
    async with guarded(an_app(store)) as (_, port), Reader(port) as reader:
        await say(1, "one\n\nevent: end")
        await reader.ask(path, Accept="text/event-stream")
        first = await reader.next("lines")
        await say(2, "two")
        second = await reader.next("lines")
        async with Reader(port) as later:
            await later.ask(path, Accept="text/event-stream", Last_Event_ID="1.1")
            resumed = await later.next("lines")
        await store.queue.apply(
            "default", worker=worker.id, transitions=[after_success(one, result="1", ran=0.0)]
        )
        ended = await reader.next("end")
        await reader.end()

    assert [line["message"] for line in first["items"]] == ["one\n\nevent: end"]
    assert [line["message"] for line in second["items"]] == ["two"]
    assert resumed == second
    assert ended == {"status": "succeeded"}


async def test_the_log_of_nothing_is_not_followed(store):
    app = an_app(store)
    async with guarded(app) as (_, port), Reader(port) as reader:
        head = await reader.ask(
            f"/api/v1/executions/{UUID(int=7)}/logs", Accept="text/event-stream"
        )

        assert b"HTTP/1.1 404" in head
        assert len(app.state.streams) == 0

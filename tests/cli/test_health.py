"""The health endpoints, asked politely and otherwise."""

import asyncio
import json
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from daybell.cli import health
from daybell.cli.health import HEADER_BYTES_MAX, HealthServer, Readiness
from daybell.engine.clock import ManualClock
from daybell.errors import Conflict, Unavailable
from daybell.store.memory import MemoryStore


async def ready():
    return HTTPStatus.OK, {"status": "ready"}


@asynccontextmanager
async def serving(answer=ready):
    server = HealthServer(answer)
    await server.start("127.0.0.1", 0)
    try:
        yield server, int(server.url.rpartition(":")[2])
    finally:
        await server.stop()


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """The status and the whole answer; 0 if there was none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        answer = await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        answer = b""
    writer.close()
    return (int(answer.split()[1]) if answer else 0), answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_both_endpoints_answer_json_and_close():
    async with serving() as (_, port):
        for path in ("/healthz", "/readyz", "/readyz?verbose=1"):
            status, answer = await ask(port, get(path))

            head, _, body = answer.partition(b"\r\n\r\n")
            assert status == 200
            assert json.loads(body)["status"] in ("ok", "ready")
            assert b"Connection: close" in head
            assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/healthz/../etc/passwd"), 404),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * HEADER_BYTES_MAX, 431),
    ],
)
async def test_anything_else_is_refused(request_, status):
    async with serving() as (_, port):
        assert (await ask(port, request_))[0] == status
        assert (await ask(port, get("/healthz")))[0] == 200


async def test_a_second_request_on_a_connection_is_not_answered():
    async with serving() as (_, port):
        _, answer = await ask(port, get("/healthz") * 2)

        assert answer.count(b"HTTP/1.1") == 1


async def test_who_says_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(health, "REQUEST_SECONDS_MAX", 0.1)
    async with serving() as (_, port):
        assert await ask(port, b"GET /healthz HTTP/1.1\r\n") == (0, b"")


async def test_too_many_connections_are_closed(monkeypatch):
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 2)
    async with serving() as (_, port):
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

        assert await ask(port, b"GET /healthz HTTP/1.1\r\n") == (0, b"")
        for _, writer in open_ones:
            writer.close()


async def test_stopping_cuts_off_who_is_still_talking():
    async with serving() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hea")
        await writer.drain()
        assert (await ask(port, get("/healthz")))[0] == 200

        await asyncio.wait_for(server.stop(), 5)

        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_a_taken_port_is_a_conflict():
    async with serving() as (_, port):
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1 is in use"):
            await HealthServer(ready).start("127.0.0.1", port)


class Moody(MemoryStore):
    """A store that can be away, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.asked = 0

    async def list_tenants(self) -> tuple[str, ...]:
        self.asked += 1
        if self.is_away:
            raise Unavailable("connection to db.internal refused")
        return await super().list_tenants()


async def test_readiness_follows_the_store_and_gives_nothing_away():
    store, clock = Moody(), ManualClock()
    readiness = Readiness(store, clock=clock, is_open=False)

    first = await readiness()
    store.is_away = True
    clock.advance(2)
    away = await readiness()
    store.is_away = False
    clock.advance(2)
    again = await readiness()

    assert (first[0], away[0], again[0]) == (200, 503, 200)
    assert "db.internal" not in str(away)


async def test_many_probes_ask_the_store_once_a_second():
    store, clock = Moody(), ManualClock()
    readiness = Readiness(store, clock=clock, is_open=False)

    await asyncio.gather(*(readiness() for _ in range(50)))
    assert store.asked == 1

    clock.advance(1)
    await readiness()
    assert store.asked == 2

"""All of it together, from a socket to a store: keys, streams, and a store that comes and goes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from daybell.api.auth import FRESH_SECONDS
from daybell.api.caller import ApiOptions
from daybell.api.server import ApiService, ServerOptions, read_hosts
from daybell.client import Client
from daybell.errors import Unavailable, UsageError
from daybell.store.sqlite import SqliteStore
from daybell.store.sqlite.ports import SqliteAdmin
from tests.api.sockets import PATIENCE, Reader, get, status_of, talk


class Moody(SqliteAdmin):
    """A port that can be away."""

    is_away = False

    async def find_key(self, digest):
        if self.is_away:
            raise Unavailable("connection to db.internal refused")
        return await super().find_key(digest)


class Place:
    """A front on a socket, with a clock that can be moved ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.is_there = True
        self.store = SqliteStore.in_memory()
        self.store.admin = self.keys = Moody(self.store.db, self.store.wakeups)
        self.client = Client(self.store)
        self.front = ApiService(
            self.client,
            options=ServerOptions(port=0, stop_seconds=1),
            api=ApiOptions(),
            monotonic=lambda: asyncio.get_running_loop().time() + self.ahead,
            ask=self.client.tenants,
            is_there=lambda: self.is_there,
        )
        self.port = 0

    def key(self, token: str) -> str:
        return f"Authorization: Bearer {token}"


@asynccontextmanager
async def serving():
    place = Place()
    await place.store.open()
    place.front.bind()
    await place.front.start()
    place.port = int(place.front.url.rpartition(":")[2])
    try:
        yield place
    finally:
        await asyncio.wait_for(place.front.stop(), PATIENCE)
        await place.store.close()


async def test_a_stream_ends_soon_after_its_key_was_revoked():
    async with serving() as place, Reader(place.port) as reader:
        key = await place.client.create_key("screen", role="viewer")
        token = key.token
        await reader.ask("/api/v1/stream", Authorization=f"Bearer {token}")
        await reader.next("stats")

        await place.client.revoke_key(key.key_id)
        place.ahead += max(FRESH_SECONDS, place.front.streams.pace.check)

        await reader.end()
        assert FRESH_SECONDS + place.front.streams.pace.check < 5


async def test_stopping_ends_streams_and_notes_which_keys_were_used():
    async with serving() as place, Reader(place.port) as reader:
        token = (await place.client.create_key("screen", role="viewer")).token
        await reader.ask("/api/v1/stream", Authorization=f"Bearer {token}")
        await reader.next("stats")

        await asyncio.wait_for(place.front.stop(), PATIENCE)

        await reader.end()
        assert (await place.client.keys())[0].used_at is not None


async def test_a_store_that_is_not_open_yet_is_nobodys_fault():
    async with serving() as place:
        place.is_there = False
        away = await talk(place.port, get("/api/v1/jobs"))
        well = await status_of(place.port, get("/healthz"))
        place.is_there = True

        assert away.startswith(b"HTTP/1.1 503") and b"retry-after" in away
        assert well == 200
        assert await status_of(place.port, get("/api/v1/jobs")) == 401


async def test_a_store_that_is_away_says_nothing_of_where_it_is():
    async with serving() as place:
        token = (await place.client.create_key("me", role="viewer")).token
        place.keys.is_away = True
        answer = await talk(place.port, get("/api/v1/jobs", place.key(token)))

        assert answer.startswith(b"HTTP/1.1 503")
        assert b"db.internal" not in answer


async def test_nothing_of_a_key_is_logged(caplog):
    caplog.set_level(0)
    async with serving() as place:
        token = (await place.client.create_key("me", role="viewer")).token
        await talk(place.port, get("/api/v1/jobs", place.key(token)))
        await talk(place.port, get(f"/api/v1/jobs?key={token}"))
        await talk(place.port, get(f"/api/v1/jobs/{token}", place.key(token)))
        await talk(place.port, get("/api/v1/jobs", place.key(token + "x")))

    assert token not in caplog.text


def test_names_are_read_and_others_refused():
    assert read_hosts(["Jobs.Example", "::1", "[::2]", "10.0.0.1"]) == {
        "jobs.example", "::1", "::2", "10.0.0.1",
    }  # fmt: skip
    for wrong in ("http://jobs.example", "jobs/example", "", "*"):
        with pytest.raises(UsageError, match="--allowed-host"):
            read_hosts([wrong])

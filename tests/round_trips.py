"""A way to a PostgreSQL server that counts round trips and delays answers.

    with CountingProxy(url, delay=0.3) as proxy:
        run(proxy.url)
    assert len(proxy.trips) <= 15

A round trip is a message of a client, or several sent together, after which the client waits.
The proxy lives in a thread of its own, so that a test may wait for a process meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 20


@dataclass
class Trip:
    """What a client sent before it waited."""

    link: int
    sent: bytes
    at: float

    @property
    def text(self) -> str:
        """The readable part of it, on one line."""
        return re.sub(r"[^ -~]+", " ", self.sent.decode("latin-1")).strip()


@dataclass
class CountingProxy:
    """Listens on a port of its own while entered; `url` leads through it."""

    target: str
    delay: Callable[[], float] = lambda: 0.0  # seconds, for each answer
    trips: list[Trip] = field(default_factory=list[Trip])
    links: int = 0

    @property
    def url(self) -> str:
        parts = urlsplit(self.target)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}{HOST}:{self._port}").geturl()

    def until(self, word: str) -> list[Trip]:
        """All trips before the first that holds this word, and that one."""
        trips = list(self.trips)
        last = next(index for index, trip in enumerate(trips) if word in trip.text)
        return trips[: last + 1]

    def has_seen(self, word: str) -> bool:
        return any(word in trip.text for trip in list(self.trips))

    def __enter__(self) -> Self:
        is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_up)))
        self._thread.start()
        is_up.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self, is_up: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        links: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.links += 1
            link = self._loop.create_task(self._attend(self.links, reader, writer))
            links.add(link)
            link.add_done_callback(links.discard)

        server = await asyncio.start_server(accept, HOST, 0)
        self._port = server.sockets[0].getsockname()[1]
        is_up.set()
        await self._ended.wait()
        server.close()
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _attend(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        parts = urlsplit(self.target)
        up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)
        open_trip: list[Trip] = []

        async def ask() -> None:
            while some := await reader.read(CHUNK_BYTES):
                if open_trip:
                    open_trip[0].sent += some
                else:
                    open_trip.append(Trip(number, some, time.monotonic()))
                up_writer.write(some)

        async def answer() -> None:
            while some := await up_reader.read(CHUNK_BYTES):
                if open_trip:  # else the server says something by itself, or goes on
                    self.trips.append(open_trip.pop())
                    if seconds := self.delay():
                        await asyncio.sleep(seconds)
                writer.write(some)

        with suppress(OSError):
            both = [asyncio.ensure_future(ask()), asyncio.ensure_future(answer())]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                up_writer.close()
                writer.close()

"""A way to PostgreSQL on which a request is held back, until long after its sender has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

DEADLINE_SECONDS: Final = 60.0
CHUNK_BYTES: Final = 1 << 16
READY: Final = b"Z\x00\x00\x00\x05"  # the server waits for the next request


class HeldRequest:
    """Passes everything on but the first request that has some bytes in it. The connection of its
    sender breaks at once; the server gets it when the test says so.
    """

    def __init__(self, url: str, holding: bytes) -> None:
        self._target = urlsplit(url)
        self._holding = holding
        self._may_arrive = asyncio.Event()
        self._is_answered = asyncio.Event()
        self.answer = b""  # of the server, to the request that was held
        self.url = ""

    async def deliver(self) -> bytes:
        """Send what was held to the server; return its answer."""
        self._may_arrive.set()
        await asyncio.wait_for(self._is_answered.wait(), DEADLINE_SECONDS)
        return self.answer

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        target = self._target
        server_reader, server_writer = await asyncio.open_connection(target.hostname, target.port)
        answers = asyncio.create_task(_copy(server_reader, writer))
        try:
            while some := await reader.read(CHUNK_BYTES):
                if self._holding and self._holding in some:
                    self._holding = b""
                    answers.cancel()
                    writer.transport.abort()
                    await self._arrive_late(some, server_reader, server_writer)
                    return
                server_writer.write(some)
                await server_writer.drain()
        except OSError:
            pass
        finally:
            answers.cancel()
            server_writer.transport.abort()
            writer.transport.abort()

    async def _arrive_late(
        self, some: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._may_arrive.wait()
        writer.write(some)
        while self.answer[-len(READY) - 1 : -1] != READY:
            more = await reader.read(CHUNK_BYTES)
            if not more:
                break
            self.answer += more
        self._is_answered.set()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(CHUNK_BYTES):
            writer.write(some)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def holding(url: str, some: bytes) -> AsyncIterator[HeldRequest]:
    """A way to this server on which a request with these bytes is held."""
    way = HeldRequest(url, some)
    server = await asyncio.start_server(way.attend, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    way.url = urlsplit(url)._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()
    try:
        yield way
    finally:
        server.close()

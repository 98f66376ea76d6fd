"""A way to a server on which connections stay open and are never answered again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Self
from urllib.parse import urlsplit

CHUNK_BYTES: Final = 65536


class Passage:
    """Listens on a port of its own while entered; `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._era = 0
        self._is_deaf_to_all = False
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        login, at, _ = self._target.netloc.rpartition("@")
        self.url = self._target._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def go_deaf(self, *, to_new: bool = False) -> None:
        """Pass nothing on any more on the connections there are; on new ones, only if told."""
        self._era += 1
        self._is_deaf_to_all = to_new

    def hear(self) -> None:
        """Pass on what comes on new connections."""
        self._is_deaf_to_all = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        era = -1 if self._is_deaf_to_all else self._era
        server = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            ways = (reader, server[1]), (server[0], writer)
            await asyncio.gather(*(self._pass(era, *way) for way in ways))
        finally:
            for end in (writer, server[1]):
                end.transport.abort()

    async def _pass(self, era: int, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await source.read(CHUNK_BYTES):
                if era == self._era:
                    to.write(some)
                    await to.drain()
        if era == self._era:
            to.close()
        else:
            await asyncio.Event().wait()  # the other end does not hear of it, either

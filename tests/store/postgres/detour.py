"""An address that leads to one server now and to another one later, as a name or a virtual IP."""

import asyncio
from contextlib import suppress
from typing import Self


class Detour:
    """A port that passes bytes on to the server it leads to."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._to = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    async def lead(self, port: int, *, keep: bool = False) -> None:
        """Lead new connections to another server; unless `keep`, break those that exist."""
        self._to = port
        if not keep:
            self._break()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, to}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, to))
                group.create_task(_pass_on(there, writer))
        finally:
            self._writers -= {writer, to}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        self._break()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()

"""A way to a server that loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Losing:
    """Passes everything on, but the next answers, as many as it is told to lose, never arrive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.to_lose = 0
        self.lost = 0
        self.url = ""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.create_task(_pump(reader, there_writer))
        with suppress(ConnectionError):
            while data := await there_reader.read(65_536):
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        asking.cancel()
        there_writer.close()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def losing(url: str) -> AsyncGenerator[Losing]:
    """A way to the server at an address, for as long as the block runs."""
    one = Losing(int(url.rpartition(":")[2]))
    async with await asyncio.start_server(one.carry, "127.0.0.1", 0) as server:
        one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield one

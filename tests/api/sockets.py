"""A real server on a real socket, and those who talk to it byte by byte."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from daybell.api.guard import Guard
from daybell.api.server import ApiServer, ServerOptions

PATIENCE = 10  # seconds, before a test gives up


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncGenerator[tuple[ApiServer, int]]:
    """A server of an application, and its port."""
    server = ApiServer(app, ServerOptions(port=0, **options))
    await server.start()
    try:
        yield server, int(server.url.rpartition(":")[2])
    finally:
        await asyncio.wait_for(server.stop(), PATIENCE)


@asynccontextmanager
async def guarded(app: Any, *, guard: dict[str, Any] | None = None, **options: Any):
    """The same behind a guard."""
    async with serving(Guard(app, **(guard or {})), **options) as (server, port):
        yield server, port


async def come(condition: Callable[[], object]) -> None:
    """Until it is true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a number has no event
            await asyncio.sleep(0.005)


async def talk(port: int, request: bytes, *, is_over: bool = False) -> bytes:
    """All that is answered until the server closes; empty if it says nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if is_over:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def status_of(port: int, request: bytes) -> int:
    """The status of the first answer; 0 if there is none."""
    answer = await talk(port, request)
    return int(answer.split()[1]) if answer else 0


def get(path: str, *more: str) -> bytes:
    """A request after which the connection is closed."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()

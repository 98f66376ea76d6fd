"""A real server on a real socket, and those who talk to it byte by byte."""

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from daybell.api.guard import Guard
from daybell.api.server import ApiServer, ServerOptions

OWN = os.geteuid()
PATIENCE = 60  # seconds, before a test gives up
TLS = Path(__file__).parent / "tls"
TLS_FILES: dict[str, Any] = {"tls_cert": str(TLS / "cert.pem"), "tls_key": str(TLS / "key.pem")}


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncGenerator[tuple[ApiServer, int]]:
    """A server of an application, and its port."""
    server = ApiServer(app, ServerOptions(**{"port": 0, **options}))
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


async def talk(
    port: int, request: bytes, *, is_over: bool = False, tls: ssl.SSLContext | None = None
) -> bytes:
    """All that is answered until the server closes; empty if it says nothing."""
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
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


async def app(scope, receive, send):
    """Says how long the body is that was sent."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    body = f"{scope['method']} {scope['path']} {size}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def is_well(port: int, *, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a server of `app` answers."""
    return (await talk(port, get("/healthz"), tls=tls)).endswith(b"GET /healthz 0")


def trusting() -> ssl.SSLContext:
    """What a client needs to trust that certificate."""
    return ssl.create_default_context(cafile=TLS / "cert.pem")


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


def a_socket(uid: int = OWN, family: int = socket.AF_INET) -> socket.socket:
    """A socket that this user has made. Only root can make those of others."""
    if uid == OWN:
        return socket.socket(family)
    os.seteuid(uid)
    try:
        return socket.socket(family)
    finally:
        os.seteuid(OWN)

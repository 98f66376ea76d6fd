"""A pooler in transaction mode, as unkind as PgBouncer may be, or in session mode.

    async with Pooler(url) as pooler:
        store = PostgresStore(pooler.url)

It answers a client's start itself, and lends it a server only for the length of a transaction:
after each, the next one goes to another server. Settings of a session and named statements are
left behind. By default it refuses start parameters that it does not know, in PgBouncer's words;
`is_strict=False` takes them and forgets them. With `keeps_servers` it is in session mode: a client
has one server until it leaves, and waits for one if there is none.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

SSL_REQUEST: Final = 80877103
CANCEL_REQUEST: Final = 80877102
GSS_REQUEST: Final = 80877104
PROTOCOL: Final = 196608

TRACKED: Final = {
    "user",
    "database",
    "client_encoding",
    "datestyle",
    "timezone",
    "standard_conforming_strings",
    "application_name",
}
STATUS: Final = {
    "server_version": "18.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}


class Message(NamedTuple):
    """One message of the protocol, with its type and all its bytes."""

    kind: bytes
    raw: bytes

    @property
    def ends_transaction(self) -> bool:
        return self.kind == b"Z" and self.raw[5:6] == b"I"


class Wire:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> Message:
        head = await self._reader.readexactly(5)
        (length,) = struct.unpack("!I", head[1:])
        return Message(head[:1], head + await self._reader.readexactly(length - 4))

    async def read_start(self) -> tuple[int, bytes]:
        (length,) = struct.unpack("!I", await self._reader.readexactly(4))
        body = await self._reader.readexactly(length - 4)
        return struct.unpack("!I", body[:4])[0], body[4:]

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class Pooler:
    """Listens on a port of its own until the block ends."""

    def __init__(
        self, url: str, *, servers: int = 4, is_strict: bool = True, keeps_servers: bool = False
    ) -> None:
        self._target = urlsplit(url)
        self._size = servers
        self._is_strict = is_strict
        self._keeps_servers = keeps_servers
        # First in, first out: never the same twice. None: one that has to be connected anew.
        self._servers: asyncio.Queue[Wire | None] = asyncio.Queue()
        self._listener: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self.moves = 0  # how often a client was given another server than before

    @property
    def url(self) -> str:
        assert self._listener, "the pooler listens only within its block"
        port = self._listener.sockets[0].getsockname()[1]
        return self._target._replace(netloc=f"{self._target.username}@127.0.0.1:{port}").geturl()

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            self._servers.put_nowait(await self._connect())
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener
        self._listener.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        while not self._servers.empty():
            if server := self._servers.get_nowait():
                server.close()

    async def _connect(self) -> Wire:
        assert self._target.hostname
        wire = Wire(*await asyncio.open_connection(self._target.hostname, self._target.port))
        who = {"user": self._target.username or "", "database": self._target.path.lstrip("/")}
        body = struct.pack("!I", PROTOCOL) + pairs(who.items()) + b"\0"
        try:
            await wire.write(struct.pack("!I", len(body) + 4) + body)
            while not (message := await wire.read()).ends_transaction:
                assert message.kind != b"E", message.raw
        except BaseException:
            wire.close()
            raise
        return wire

    async def _borrow(self) -> Wire:
        server = await self._servers.get()
        try:
            return server or await self._connect()
        except BaseException:
            self._servers.put_nowait(None)
            raise

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Wire(reader, writer)
        session = asyncio.create_task(self._attend(client))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        # Also of a session that was cancelled before it began.
        session.add_done_callback(lambda _: client.close())

    async def _attend(self, client: Wire) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if await self._start(client):
                await (self._marry if self._keeps_servers else self._serve)(client)

    async def _start(self, client: Wire) -> bool:
        code, body = await client.read_start()
        while code in (SSL_REQUEST, GSS_REQUEST):
            await client.write(b"N")
            code, body = await client.read_start()
        if code == CANCEL_REQUEST:
            return False
        texts = body.rstrip(b"\0").decode().split("\0")
        unknown = [name for name in texts[::2] if name.lower() not in TRACKED]
        if unknown and self._is_strict:
            text = f"unsupported startup parameter: {unknown[0]}"
            fields = f"SFATAL\0C08P01\0M{text}\0\0".encode()
            await client.write(framed(b"E", fields))
            return False
        status = b"".join(framed(b"S", pairs([pair])) for pair in STATUS.items())
        key = framed(b"K", struct.pack("!II", 1, 1))
        await client.write(framed(b"R", struct.pack("!I", 0)) + status + key + READY)
        return True

    async def _marry(self, client: Wire) -> None:
        """Give the client a server until it leaves; the next one gets a new server."""
        first = await client.read()
        server = await self._borrow()
        sending = asyncio.create_task(relay(client, server, first))
        receiving = asyncio.create_task(relay(server, client))
        try:
            await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
            server.close()
            self._servers.put_nowait(None)

    async def _serve(self, client: Wire) -> None:
        """Lend a server for each transaction that the client begins."""
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        reading = asyncio.create_task(read_all(client, inbox))
        last: Wire | None = None
        try:
            while (message := await next_message(inbox, reading)).kind != b"X":
                server = await self._borrow()
                self.moves += last is not None and server is not last
                last = server
                await self._lend(server, client, inbox, reading, message)
        finally:
            reading.cancel()

    async def _lend(
        self,
        server: Wire,
        client: Wire,
        inbox: asyncio.Queue[Message],
        reading: asyncio.Task[None],
        first: Message,
    ) -> None:
        is_clean = False
        await server.write(first.raw)
        sending = asyncio.create_task(forward(inbox, reading, server))
        receiving = asyncio.create_task(self._receive(server, client, sending))
        try:
            await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done() and not sending.cancelled():
                raise ConnectionError("the client left in the middle of a transaction")
            await receiving
            is_clean = True
        finally:
            sending.cancel()
            receiving.cancel()
            if not is_clean:
                server.close()  # nobody else may inherit its transaction
            self._servers.put_nowait(server if is_clean else None)

    async def _receive(self, server: Wire, client: Wire, sending: asyncio.Task[None]) -> None:
        while True:
            message = await server.read()
            if message.ends_transaction:
                sending.cancel()  # before the client can answer: that is for the next server
            await client.write(message.raw)
            if message.ends_transaction:
                return


async def relay(source: Wire, target: Wire, first: Message | None = None) -> None:
    if first is not None:
        await target.write(first.raw)
    while True:
        await target.write((await source.read()).raw)


async def read_all(client: Wire, inbox: asyncio.Queue[Message]) -> None:
    while True:
        inbox.put_nowait(await client.read())


async def next_message(inbox: asyncio.Queue[Message], reading: asyncio.Task[None]) -> Message:
    """What the client says next. Raises what its connection died of."""
    getting = asyncio.create_task(inbox.get())
    try:
        await asyncio.wait([getting, reading], return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            await reading
        return getting.result()
    finally:
        getting.cancel()


async def forward(inbox: asyncio.Queue[Message], reading: asyncio.Task[None], to: Wire) -> None:
    while True:
        await to.write((await next_message(inbox, reading)).raw)


def framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def pairs(items: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(f"{name}\0{value}\0".encode() for name, value in items)


READY: Final = framed(b"Z", b"I")

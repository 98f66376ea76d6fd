"""A way to a PostgreSQL server on which connections are cut, delayed, or broken after COMMIT.

It understands just enough of the protocol to see where an answer ends: each message from the
server is a letter, a length, and so many bytes; `Z` with `I` says that no transaction is open.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

from daybell.core.instant import Seconds
from daybell.engine.clock import Clock

HOST: Final = "127.0.0.1"
PORT: Final = 5432
CHUNK_BYTES: Final = 65536
HEAD_BYTES: Final = 5
# What a client may send before it introduces itself; both are answered with "no".
_REQUESTS: Final = {80877103, 80877104}  # for TLS, for GSSAPI
_PLAIN: Final = {"", "disable", "allow", "prefer"}


def can_stand_before(url: str) -> bool:
    """Whether there is one server to be reached over TCP, without TLS being demanded."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    is_one = bool(parts.hostname) and "," not in parts.netloc and "host" not in options
    return is_one and options.get("sslmode", "") in _PLAIN


class Proxy:
    """Listens on a port of its own while entered; `url` leads through it."""

    def __init__(self, url: str, *, clock: Clock) -> None:
        self._target = urlsplit(url)
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._is_shut = False
        self._answers_to_lose = 0
        self._holding = b""
        self._kept_back = b""
        self._is_kept = asyncio.Event()
        self._is_let_go = asyncio.Event()
        self.lost = 0  # answers that were committed and never came
        self.cut = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        login, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{login}{at}{HOST}:{port}").geturl()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._is_open.set()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def cut_all(self) -> None:
        """Break every connection, whatever is under way."""
        self.cut += len(self._writers) // 2
        for writer in list(self._writers):
            writer.transport.abort()

    def lose_answers(self, count: int, *, holding: bytes = b"") -> None:
        """Break the next connections on which something is committed, before that is answered; only
        where the answer holds these bytes, if they are given.
        """
        self._answers_to_lose += count
        self._holding = holding

    async def keep_back(self, holding: bytes) -> None:
        """Keep the next answer that holds these bytes; returns when it is here."""
        self._is_kept.clear()
        self._is_let_go.clear()
        self._kept_back = holding
        await self._is_kept.wait()

    def let_go(self) -> None:
        """Send what was kept back."""
        self._is_let_go.set()

    async def shut(self, seconds: Seconds) -> None:
        """Break all connections, and refuse new ones for a while, as if there were no server."""
        self._is_shut = True
        self.cut_all()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_shut = False

    async def delay(self, seconds: Seconds) -> None:
        """Let nothing through for a while."""
        self._is_open.clear()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_open.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_shut:
            writer.transport.abort()
            return
        link = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            first = await _first(reader, writer)
            host, port = self._target.hostname or HOST, self._target.port or PORT
            server_reader, server_writer = await asyncio.open_connection(host, port)
            self._writers |= {writer, server_writer}
            try:
                server_writer.write(first)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._ask(reader, server_writer))
                    both.create_task(self._answer(server_reader, writer))
            except* OSError:
                pass
            finally:
                self._writers -= {writer, server_writer}
                server_writer.transport.abort()
                writer.transport.abort()
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while some := await reader.read(CHUNK_BYTES):
            await self._is_open.wait()
            to.write(some)
            await to.drain()
        raise ConnectionError("the client has gone")

    async def _answer(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        messages = Messages()
        while some := await reader.read(CHUNK_BYTES):
            await self._is_open.wait()
            is_end = messages.ends_work(some) and self._holding in some
            if is_end and self._answers_to_lose:
                self._answers_to_lose -= 1
                self.lost += 1
                raise ConnectionError("broken after the commit")
            if self._kept_back and self._kept_back in some:
                self._kept_back = b""
                self._is_kept.set()
                await self._is_let_go.wait()
            to.write(some)
            await to.drain()
        raise ConnectionError("the server has gone")


class Messages:
    """Follows what a server says, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_worked = False

    def ends_work(self, some: bytes) -> bool:
        """Whether this piece ends a transaction in which something was done."""
        data, at, ends = self._rest + some, 0, False
        while len(data) - at >= HEAD_BYTES:
            (length,) = struct.unpack_from("!I", data, at + 1)
            after = at + 1 + length
            if len(data) < after:
                break
            kind, body = data[at : at + 1], data[at + HEAD_BYTES : after]
            if kind == b"C":
                self._has_worked = not body.startswith((b"ROLLBACK", b"SET", b"LISTEN"))
            elif kind == b"Z" and body == b"I":
                ends, self._has_worked = ends or self._has_worked, False
            at = after
        self._rest = data[at:]
        return ends


async def _first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What a client introduces itself with. TLS is refused: nothing could be seen in it."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!II", head)
        if code not in _REQUESTS:
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")

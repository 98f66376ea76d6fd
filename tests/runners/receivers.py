"""Somebody to be told: a web server and a mail server that keep what they are sent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import msgspec


class Receiver:
    """Keeps what comes in. `status` is what it answers with; None: nothing at all."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.requests = 0
        self.mails: list[str] = []
        self.status: int | None = 200
        self.port = 0

    async def take_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            body = await reader.readexactly(length)
            self.requests += 1
            if self.status is None:
                await reader.read()
                return
            if self.status == 200:
                self.bodies.append(msgspec.json.decode(body))
            writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

    async def take_mail(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(b"220 ready\r\n")
        with suppress(ConnectionError):
            while line := await reader.readline():
                word = line[:4].upper().strip()
                if word == b"DATA":
                    writer.write(b"354 go on\r\n")
                    self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 fine\r\n")


@asynccontextmanager
async def a_receiver(kind: str = "request"):
    receiver = Receiver()
    take = receiver.take_request if kind == "request" else receiver.take_mail
    taking: set[asyncio.Task] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        task = asyncio.current_task()
        assert task is not None
        taking.add(task)
        with suppress(asyncio.CancelledError):
            await take(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        taking.discard(task)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        receiver.port = server.sockets[0].getsockname()[1]
        yield receiver
        for task in taking:
            task.cancel()
        await asyncio.gather(*taking)

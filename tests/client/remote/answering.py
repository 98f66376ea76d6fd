"""A server that answers what it is told to, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

GONE = b""  # closes the connection instead of an answer


@dataclass
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answering:
    """Gives its answers in their order, the last one again and again."""

    answers: Sequence[bytes]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked.append(await _read(reader))
            writer.write(self.answers[min(len(self.asked), len(self.answers)) - 1])
            await writer.drain()
        writer.close()


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[Answering]:
    """A server on a port of its own, for as long as the block runs."""
    one = Answering(answers)
    async with await asyncio.start_server(one.serve, "127.0.0.1", 0) as server:
        one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield one


def an_answer(
    status: int, content: object = None, *, kind: str = "application/json", **headers: str
) -> bytes:
    """An HTTP answer; content that is not bytes is JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", **named}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + body


def a_problem(status: int, kind: str, detail: str = "it is so", **more: object) -> bytes:
    """An answer that says what went wrong."""
    content: dict[str, object] = {
        "type": f"urn:daybell:problem:{kind}",
        "code": kind,
        "title": kind,
    }
    content["status"] = status
    return an_answer(status, content | {"detail": detail} | more, kind="application/problem+json")


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body)

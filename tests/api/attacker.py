"""A key that takes what it can get from a server: a process of its own, with nothing but sockets.

python attacker.py KIND PORT KEY COUNT SIZE FILE

It says "ready" when the server has seen all its connections, with the statuses of those that were
refused, and holds the others until it is ended. `bulk` goes on to send, and adds a byte to FILE for
every answer.
"""

import asyncio
import json
import os
import sys
from collections import Counter

kind, port, key, count, size, file = sys.argv[1:]
opened: list[object] = []  # kept
answers = os.open(file, os.O_WRONLY | os.O_APPEND)


def request(method: str, path: str, length: int, *more: str) -> bytes:
    lines = [
        f"{method} /api/v1/{path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *more,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    pair = await asyncio.open_connection("127.0.0.1", int(port))
    opened.append(pair)
    return pair


async def hold_body() -> str:
    """Send all of a body but its last byte."""
    reader, writer = await connect()
    writer.write(request("POST", "executions", int(size), "Expect: 100-continue"))
    status = await status_of(reader)
    if status == "100":
        await reader.readline()
        writer.write(b" " * (int(size) - 1))
        sent = asyncio.ensure_future(writer.drain())
        refused = asyncio.ensure_future(status_of(reader))
        done, _ = await asyncio.wait({sent, refused}, return_when=asyncio.FIRST_COMPLETED)
        if refused in done:
            status = str(refused.result())
        opened.append((sent, refused))
    return status


async def open_stream() -> str:
    reader, writer = await connect()
    writer.write(request("GET", "stream", 0))
    return await status_of(reader)


async def status_of(reader: asyncio.StreamReader) -> str:
    """The status of the next answer; "cut": there is none."""
    try:
        return (await reader.readline()).split()[1].decode()
    except (IndexError, ConnectionError):
        return "cut"


async def send_bulk() -> str:
    body = json.dumps([{"job": "resize", "args": {"width": 100}}] * int(size)).encode()
    reader, writer = await connect()
    while True:
        writer.write(request("POST", "executions", len(body)) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split()[1]) for line in lines if b"content-length" in line)
        await reader.readexactly(length)
        os.write(answers, b"." if head.startswith(b"HTTP/1.1 202") else b"!")


async def main() -> None:
    attack = {"body": hold_body, "stream": open_stream, "bulk": send_bulk}[kind]
    tasks = [asyncio.ensure_future(attack()) for _ in range(int(count))]
    if kind != "bulk":
        statuses = Counter(await asyncio.gather(*tasks))
        sys.stdout.write(f"ready {json.dumps(statuses)}\n")
        sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main())

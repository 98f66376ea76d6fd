"""Serving: the cost of an enqueue through the API, beside the store's own call.

`daybell server` runs as a separate process, on the tables and with the durability of all other
parts. Compared is processor time of the process that calls the store, and of the database; the
client that sends requests is not counted. The store's side makes the same calls without HTTP:
batches of 1,000, and single executions from 50 callers at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from benchmarks.executions import JOB, TENANT, prepared, sliced
from benchmarks.finding import Finding
from benchmarks.places import Kind, Place, open_ground
from benchmarks.progress import say
from benchmarks.sides import StoreSide
from benchmarks.throughput import Stopwatch
from daybell.client import Client

CONNECTIONS: Final = 50
BATCH: Final = 1_000
BULK: Final = 50_000
SINGLES: Final = 10_000
BAR: Final = 2.0
ARGS: Final = prepared(1)[0].args


class Cost(NamedTuple):
    """The cost of one run."""

    count: int
    seconds: float
    caller_cpu: float  # of the process that calls the store
    database_cpu: float
    waits: Sequence[float] = ()  # seconds, of each request

    @property
    def each(self) -> float:
        """Microseconds of processor time per execution, all together."""
        return 1e6 * (self.caller_cpu + self.database_cpu) / self.count

    @property
    def shown(self) -> str:
        mine, theirs = (1e6 * cpu / self.count for cpu in (self.caller_cpu, self.database_cpu))
        return f"{mine:.0f} + {theirs:.0f} µs"


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Finding]:
    """Measure the API, on one kind of store."""
    with open_ground(kind) as ground:
        places = {name: await ground.place(name) for name in ("served", "direct")}
        side = StoreSide(kind, places["direct"].url)
        await side.open()
        try:
            async with served(places["served"]) as server:
                return [
                    await compare(kind, "bulk", BULK, server, side, places, rounds, scale),
                    await compare(kind, "single", SINGLES, server, side, places, rounds, scale),
                ]
        finally:
            await side.close()


async def compare(
    kind: Kind,
    how: str,
    rows: int,
    server: Server,
    side: StoreSide,
    places: dict[str, Place],
    rounds: int,
    scale: float,
) -> Finding:
    """Processor time per execution through the API, as a multiple of the store's own."""
    count = max(BATCH, int(rows * scale) // BATCH * BATCH)
    ours: list[Cost] = []
    own: list[Cost] = []
    gathered: list[Cost] = []
    for turn in range(rounds + 1):
        for place in places.values():
            await place.clear()
        through = await server.run(how, count)
        direct = await called(side, how, count, places["direct"])
        if how == "single" and turn:
            await places["direct"].clear()
            gathered.append(await called_together(side, count, places["direct"]))
        assert await places["served"].ask(_COUNT[kind]) == count, "some were not kept"
        say(f"{kind:9} {how:6} {count:,}: {through.shown}, store {direct.shown}")
        if turn:  # the first one is a warm-up
            ours.append(through)
            own.append(direct)
    ratio = median(one.each / other.each for one, other in zip(ours, own, strict=True))
    waits = [1000 * wait for cost in ours for wait in cost.waits]
    cuts = quantiles(waits, n=100)
    rate = median(cost.count / cost.seconds for cost in ours)
    typical, plain = usual(ours), usual(own)
    beside = f", gathered by `Client.enqueue` {usual(gathered).shown}" if gathered else ""
    what = "bulk enqueue, batches of 1,000" if how == "bulk" else f"triggers, {CONNECTIONS} callers"
    return Finding.at_most(
        kind,
        f"API: processor time of {what}",
        ratio,
        BAR,
        f"{typical.shown} each (store's own {plain.shown}{beside}); {rate:,.0f}/s;"
        f" p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms",
    )


async def called(side: StoreSide, how: str, count: int, place: Place) -> Cost:
    """Make the store's own calls."""
    size = BATCH if how == "bulk" else 1
    batches = [side.prepare(some) for some in sliced(prepared(count), size)]
    before = place.server_cpu()
    with Stopwatch(count) as watch:
        await side.enqueue_crowd(batches, 1 if how == "bulk" else CONNECTIONS)
    used = place.server_cpu().since(before)
    return Cost(count, watch.sample.seconds, watch.sample.client_cpu, used)


async def called_together(side: StoreSide, count: int, place: Place) -> Cost:
    """Make the same calls through a client, which sends concurrent ones together, as the API does.
    It also encodes arguments, as here.
    """
    client, left = Client(side.store, tenant=TENANT), iter(range(count))
    args = json.loads(ARGS)

    async def call() -> None:
        for _ in left:
            await client.enqueue(JOB, args)

    before = place.server_cpu()
    with Stopwatch(count) as watch:
        await asyncio.gather(*(call() for _ in range(CONNECTIONS)))
    used = place.server_cpu().since(before)
    return Cost(count, watch.sample.seconds, watch.sample.client_cpu, used)


def usual(costs: Sequence[Cost]) -> Cost:
    """Return the median."""
    return sorted(costs, key=lambda cost: cost.each)[len(costs) // 2]


class Server:
    """A `daybell server`, and a client for it."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str, place: Place) -> None:
        self._process = process
        self._port = port
        self._key = key
        self._place = place

    async def run(self, how: str, count: int) -> Cost:
        """Enqueue so many through it."""
        one = {"job": JOB, "args": json.loads(ARGS)}
        if how == "bulk":
            path, body, requests = "executions", [one] * BATCH, count // BATCH
        else:
            path, body, requests = f"jobs/{JOB}/trigger", {"args": one["args"]}, count
        request = self._request(path, json.dumps(body).encode())
        left = iter(range(requests))
        waits: list[float] = []
        cpu, database = self.cpu(), self._place.server_cpu()
        began = time.perf_counter()
        callers = 1 if how == "bulk" else CONNECTIONS
        await asyncio.gather(*(self._ask(request, left, waits) for _ in range(callers)))
        seconds = time.perf_counter() - began
        used = self._place.server_cpu().since(database)
        return Cost(count, seconds, self.cpu() - cpu, used, waits)

    async def _ask(self, request: bytes, left: Iterator[int], waits: list[float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in left:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            waits.append(time.perf_counter() - began)
            assert head.startswith(b"HTTP/1.1 20"), (head + body).decode()
        writer.close()

    async def get(self, path: str) -> float:
        """Ask for an address; return the seconds until the whole answer is there."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {self._key}\r\nConnection: close\r\n\r\n"
        )
        began = time.perf_counter()
        writer.write(request.encode())
        answer = await reader.read()
        seconds = time.perf_counter() - began
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), f"{path}: {answer[:2000].decode()}"
        return seconds

    def _request(self, path: str, body: bytes) -> bytes:
        head = (
            f"POST /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def cpu(self) -> float:
        """Return the seconds of all its threads."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@asynccontextmanager
async def served(place: Place) -> AsyncIterator[Server]:
    """Start a server on a place, and end it afterwards."""
    async with Client(place.database_url, tenant=TENANT) as client:
        token = (await client.create_key("bench", role="admin")).token
    process = _start(place.database_url)
    try:
        yield Server(process, await asyncio.to_thread(_port_of, process), token, place)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "daybell", "server", "--port", "0"],
        env={**os.environ, "DAYBELL_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _port_of(process: subprocess.Popen[str]) -> int:
    """Read the port from its output."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise AssertionError(f"the server did not start: {said}")


_COUNT: Final = {
    "postgres": "SELECT count(*) FROM live",
    "sqlite": "SELECT count(*) FROM execution",
}

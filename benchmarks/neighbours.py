"""Waits of one tenant while another one enqueues in bulk, beside an earlier commit.

A `daybell server` of each side; attacker and prober are processes of their own with keys of two
tenants. The prober triggers one job and reads one list in turns, 50 pairs a second; the attacker
enqueues 10,000 executions per request on 12 connections.

python -m benchmarks.neighbours [COMMIT] [--rounds N] [--store …]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import report
from benchmarks.earlier import call, extract
from benchmarks.finding import Finding
from benchmarks.loops import run
from benchmarks.machine import ROOT
from benchmarks.places import DEFAULT_POSTGRES, KINDS, SERVER_SETTINGS, Kind
from benchmarks.progress import say
from daybell import Client
from tests.postgres import Postgres

CONNECTIONS: Final = 12
BATCH: Final = 10_000
PROBES: Final = 150
PER_SECOND: Final = 50
WARM_SECONDS: Final = 1.0
JOB: Final = "send_mail"
ARGS: Final = {"to": "user-0000001@example.org", "template": "welcome", "order": "0007919"}
MODULE: Final = "benchmarks.neighbours"
P50_RATIO_MAX: Final = 10.0  # of the wait without a neighbour
Waits = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD~1", help="default: HEAD~1")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    parser.add_argument("--act", nargs="+", help=argparse.SUPPRESS)  # one process of a side
    arguments = parser.parse_args()
    if arguments.act:
        return run(ACTS[arguments.act[0]](*arguments.act[1:]))
    results = report.new_report(arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="daybell-bench-") as name:
        folder = Path(name)
        sources = {"now": ROOT / "src", "earlier": extract(arguments.commit, folder)}
        for kind in arguments.store or KINDS:
            lines = compare(kind, sources, folder, arguments.commit, arguments.rounds)
            report.add(results, "neighbours", lines)
    print(report.save(results))


def compare(
    kind: Kind, sources: dict[str, Path], folder: Path, commit: str, rounds: int
) -> list[Finding]:
    """Measure both sides in turns, each on a database of its own."""
    figures: dict[str, list[Waits]] = {side: [] for side in sources}
    with ExitStack() as stack:
        server = None
        if kind == "postgres":
            server = stack.enter_context(
                Postgres(version=DEFAULT_POSTGRES, durable=True, **SERVER_SETTINGS)
            )
        for round_ in range(rounds):
            order = list(sources) if round_ % 2 else list(reversed(sources))
            for side in order:
                name = f"{side}{round_}"
                url = server.create_database(name) if server else f"sqlite:///{folder}/{name}.db"
                figures[side].append(measure(sources[side], url))
                say(f"{kind}: {side}: {figures[side][-1]}")
    now, earlier = (
        {what: median(one[what] for one in figures[side]) for what in figures[side][0]}
        for side in ("now", "earlier")
    )
    shown = {
        side: ", ".join(f"{what} {value:,.1f}" for what, value in waits.items())
        for side, waits in (("now", now), (f"at {commit}", earlier))
    }
    detail = "; ".join(f"{side}: {text}" for side, text in shown.items())
    ratio = now["p50 beside, ms"] / now["p50 alone, ms"]
    what = f"p50 of a tenant beside {CONNECTIONS} connections of bulk enqueue, to p50 alone"
    return [Finding.at_most(kind, what, ratio, P50_RATIO_MAX, detail)]


def measure(source: Path, url: str) -> Waits:
    """One side: the prober alone, then beside the attacker."""
    call(source, url, "daybell", "migrate")
    keys = json.loads(call(source, url, MODULE, "--act", "prepare", url))
    with served(source, url) as port:
        act = [sys.executable, "-m", MODULE, "--act"]
        alone = json.loads(subprocess.check_output([*act, "probe", port, keys["prober"]], cwd=ROOT))
        attacker = subprocess.Popen([*act, "attack", port, keys["attacker"]], cwd=ROOT)
        try:
            time.sleep(WARM_SECONDS)
            beside = json.loads(
                subprocess.check_output([*act, "probe", port, keys["prober"]], cwd=ROOT)
            )
            assert attacker.poll() is None, "the attacker has ended"
        finally:
            attacker.terminate()
            attacker.wait(timeout=30)
    return {
        "p50 alone, ms": median(alone),
        "p50 beside, ms": median(beside),
        "p95 beside, ms": sorted(beside)[len(beside) * 95 // 100],
        "longest beside, ms": max(beside),
    }


@contextmanager
def served(source: Path, url: str) -> Iterator[str]:
    """A server of one side; yields its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "daybell", "server", "--port", "0"],
        env=os.environ | {"PYTHONPATH": str(source), "DAYBELL_DATABASE_URL": url},
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = (re.search(r"http://127\.0\.0\.1:(\d+)", line) for line in process.stdout)
        yield next(found[1] for found in said if found)
    finally:
        process.terminate()
        process.wait(timeout=30)


# The code that runs in processes of a side.


async def prepare(url: str) -> None:
    """Print a key of each of two tenants."""
    keys: dict[str, str] = {}
    async with Client(url) as client:
        for name in ("attacker", "prober"):
            await client.add_tenant(name)
            tenant = client.for_tenant(name)
            await tenant.define(JOB)
            keys[name] = (await tenant.create_key("bench", role="operator")).token
    print(json.dumps(keys))


async def attack(port: str, key: str) -> None:
    """Enqueue in bulk without a pause, until the process is ended."""
    body = json.dumps([{"job": JOB, "args": ARGS}] * BATCH).encode()
    request = request_of("POST", "executions", key, body)

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        while True:
            await ask(reader, writer, request)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


async def probe(port: str, key: str) -> None:
    """Print the milliseconds that each of the requests took, sent at a steady pace."""
    trigger = request_of("POST", f"jobs/{JOB}/trigger", key, json.dumps({"args": ARGS}).encode())
    look = request_of("GET", "jobs", key, b"")
    waits: list[float] = []

    async def one(request: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        began = time.perf_counter()
        head = await ask(reader, writer, request)
        waits.append(1e3 * (time.perf_counter() - began))
        writer.close()
        assert head.startswith(b"HTTP/1.1 20"), head.decode()

    await one(trigger)
    await one(look)
    waits.clear()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(PROBES):
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.perf_counter()))
            group.create_task(one(look if number % 2 else trigger))
    print(json.dumps(waits))


def request_of(method: str, path: str, key: str, body: bytes) -> bytes:
    head = (
        f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send a request, read the answer, return its head."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    await reader.readexactly(int(length[1]) if length else 0)
    return head


ACTS: Final[dict[str, Any]] = {"prepare": prepare, "attack": attack, "probe": probe}

if __name__ == "__main__":
    main()

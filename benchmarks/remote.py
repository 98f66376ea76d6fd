"""Workers over HTTP beside workers at the database: throughput, start delay, and idle ones.

python -m benchmarks.remote [drain delay idle] [--rounds N] [--jobs N] [--workers N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import time
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Final, Literal

from benchmarks.claimers import Drained
from benchmarks.engine.hosts import Hosts, Server, assemble, check_each_ran_once
from benchmarks.engine.idle import command, cpu_seconds, statements
from benchmarks.engine.latency import at, send, until_done
from benchmarks.engine.tasks import Effects, make_app
from benchmarks.executions import TENANT, prepared
from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.loops import run
from benchmarks.places import Place, open_ground
from daybell.chaos.fleet import LISTENING
from daybell.cli.apps import connect_app
from daybell.client import Client
from daybell.client.leases.store import RemoteStore

Side = Literal["direct", "remote"]
SIDES: Final[tuple[Side, Side]] = ("direct", "remote")
PARTS: Final = ("drain", "delay", "idle")
DELAYED: Final = 500
WARM: Final = 2_000
OPEN_FILES: Final = 20_000
START_TOGETHER: Final = 20
SETTLE_SECONDS, IDLE_SECONDS = 10.0, 30.0
DRAIN_MIN, DELAY_MAX, CORE_PERCENT_MAX, STATEMENTS_MAX = 0.25, 2.0, 20.0, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--jobs", type=int, default=20_000, help="of a drain; default: 20,000")
    parser.add_argument("--workers", type=int, default=1_000, help="idle ones; default: 1,000")
    arguments = parser.parse_args()
    run(measure(arguments.parts or PARTS, arguments.rounds, arguments.jobs, arguments.workers))


async def measure(parts: Sequence[str], rounds: int, jobs: int, workers: int) -> None:
    with open_ground("postgres") as ground:
        if "drain" in parts:
            async with serving(await ground.place("drain"), DELAYED) as (place, server, process):
                await drains(place, server, process, rounds, jobs)
        if "delay" in parts:
            async with serving(await ground.place("delay"), DELAYED) as (place, server, _):
                await delays(place, server, rounds)
        if "idle" in parts:
            place = await ground.place("idle")
            name = place.url.rpartition("/")[2]
            await place.run(f"ALTER DATABASE {name} SET log_statement = 'all'", "SELECT 1")
            async with serving(place, 6 * workers) as (place, server, process):
                await idle(place, server, process, workers)


@asynccontextmanager
async def serving(
    place: Place, connections: int
) -> AsyncGenerator[tuple[Place, Server, subprocess.Popen[bytes]]]:
    """Yield a server of a place with a key for workers."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    async with Client(place.database_url) as client:
        key = await client.create_key("bench", role="worker")
    words = "server", "--port", "0"
    with command(place, *words, DAYBELL_SERVER_CONNECTIONS=str(connections)) as (process, output):
        while (match := LISTENING.search(os.pread(output.fileno(), 65536, 0).decode())) is None:
            assert process.poll() is None, "the server has ended"
            await asyncio.sleep(0.05)
        yield place, Server(match[1], key.token), process


async def drains(
    place: Place, server: Server, process: subprocess.Popen[bytes], rounds: int, jobs: int
) -> None:
    """Drain a full queue by one worker of each kind, in turns."""
    rates: dict[Side, list[float]] = {side: [] for side in SIDES}
    cpu: dict[Side, list[str]] = {side: [] for side in SIDES}
    store = place.store()
    await store.open()
    with Hosts(place, "nothing", 1) as direct, Hosts(place, "nothing", 1, server=server) as remote:
        for round_ in range(-1, rounds):
            for side, hosts in zip(SIDES, (direct, remote), strict=True):
                count = WARM if round_ < 0 else jobs
                await place.clear()
                await store.queue.load(TENANT, prepared(count, args="{}"))
                before = cpu_seconds(process.pid)
                done: Drained = hosts.drain(1, count)
                await check_each_ran_once(place, count)
                if round_ < 0:
                    continue
                rates[side].append(done.rate)
                api = cpu_seconds(process.pid) - before
                used = (done.client_cpu, api, done.server_cpu)
                cpu[side].append("/".join(f"{one / count * 1e6:.0f}" for one in used))
    await store.close()
    ratio = median(b / a for a, b in zip(rates["direct"], rates["remote"], strict=True))
    detail = "; ".join(
        f"{side} {median(rates[side]):,.0f}/s, us of worker/server/PostgreSQL {cpu[side][-1]}"
        for side in SIDES
    )
    what = f"{jobs:,} no-op jobs by a worker over HTTP, of one at the database"
    found(Finding.at_least("postgres", what, ratio, DRAIN_MIN, detail))


async def delays(place: Place, server: Server, rounds: int) -> None:
    """Enqueue a hundred jobs a second for an idle worker of each kind, in turns."""
    app = make_app(place.database_url, "record", Effects())
    waits: dict[Side, list[float]] = {side: [] for side in SIDES}
    await app.open()
    with Hosts(place, "record", 1) as direct, Hosts(place, "record", 1, server=server) as remote:
        for _ in range(rounds):
            for side, hosts in zip(SIDES, (direct, remote), strict=True):
                sent: list[float] = []
                hosts.start(1)
                await send(app, DELAYED, sent)
                await until_done(hosts, DELAYED)
                starts = array("d", hosts.stop(1)[0].starts)
                waits[side] += [starts[n] - sent[n] for n in range(DELAYED // 5, DELAYED)]
    await app.close()
    ordered = {side: sorted(waits[side]) for side in SIDES}
    ratio = at(ordered["remote"], 50) / at(ordered["direct"], 50)
    detail = "; ".join(
        f"{side} p50 {at(ordered[side], 50) * 1e3:.2f} ms, p99 {at(ordered[side], 99) * 1e3:.1f} ms"
        for side in SIDES
    )
    what = "enqueue to start by an idle worker over HTTP, p50, of one at the database"
    found(Finding.at_most("postgres", what, ratio, DELAY_MAX, detail))


async def idle(place: Place, server: Server, process: subprocess.Popen[bytes], count: int) -> None:
    """Register so many workers, and let them wait for work that does not come."""
    async with AsyncExitStack() as stack:
        for start in range(0, count, START_TOGETHER):
            together = range(start, min(count, start + START_TOGETHER))
            await asyncio.gather(*(start_idle(stack, place, server) for _ in together))
        await asyncio.sleep(SETTLE_SECONDS)
        before, cpu, began = statements(place), cpu_seconds(process.pid), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        took = time.monotonic() - began
        asked = statements(place) - before
        percent = (cpu_seconds(process.pid) - cpu) / took * 100
        live = await place.ask("SELECT count(*) FROM worker WHERE lease_until > 0")
    what = f"{count:,} idle workers over HTTP"
    found(
        Finding(
            "postgres", f"{what}: the server's part of a core", percent, "%",
            f"over {took:.0f} s; {live:,} live at the end", bar=CORE_PERCENT_MAX,
        )
    )  # fmt: skip
    found(
        Finding(
            "postgres", f"{what}: statements of PostgreSQL", asked / took, "/s", bar=STATEMENTS_MAX
        )
    )


async def start_idle(stack: AsyncExitStack, place: Place, server: Server) -> None:
    app = make_app(place.database_url, "nothing", Effects())
    app.remote = RemoteStore(server.url, key=server.key)
    store = await stack.enter_async_context(connect_app(app))
    node = assemble(app, store, 10, has_pacemaker=False)
    await node.start(patiently=True)
    stack.push_async_callback(node.stop)


if __name__ == "__main__":
    main()

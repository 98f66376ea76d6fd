"""Events: a publish beside jobs that listen to other names, and one that fires a thousand jobs.

python -m benchmarks.events [--others N] [--store postgres|sqlite]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Final

from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.loops import run
from benchmarks.places import KINDS, Ground, Kind, open_ground
from daybell import App, on_event
from daybell.client import Client

LISTENERS: Final = 1_000
PUBLISHES: Final = 1_000
WARM: Final = 200
BATCH: Final = 1_000
RATIO_MAX, FIRED_MS_MAX = 1.2, 1_000.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=__doc__)
    parser.add_argument("--others", type=int, default=100_000, help="default: 100,000")
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    arguments = parser.parse_args()
    for kind in arguments.store or KINDS:
        run(measure(kind, arguments.others))


async def measure(kind: Kind, others: int) -> None:
    with open_ground(kind) as ground:
        async with AsyncExitStack() as stack:
            empty = await open_place(stack, ground, "empty")
            crowded = await open_place(stack, ground, "crowded")
            await listen(crowded, others, lambda n: f"other.{n}")
            times: dict[Client, list[float]] = {empty: [], crowded: []}
            for number in range(-WARM, PUBLISHES):
                for client, kept in times.items():
                    began = time.perf_counter()
                    await client.publish("order.placed", {"number": number})
                    if number >= 0:
                        kept.append(time.perf_counter() - began)
            alone, beside = (median(times[client]) for client in (empty, crowded))
            found(
                Finding.at_most(
                    kind,
                    f"a publish beside {others:,} jobs that listen to other names",
                    beside / alone,
                    RATIO_MAX,
                    f"{beside * 1e3:.2f} ms, alone {alone * 1e3:.2f} ms",
                )
            )
            await listen(empty, LISTENERS, lambda _: "all.listen")
            began = time.perf_counter()
            fired = len((await empty.publish("all.listen")).executions)
            took = (time.perf_counter() - began) * 1e3
            assert fired == LISTENERS, f"{fired} were fired"
            what = f"an event that fires {LISTENERS:,} jobs"
            found(Finding(kind, what, took, "ms", bar=FIRED_MS_MAX))


async def open_place(stack: AsyncExitStack, ground: Ground, name: str) -> Client:
    place = await ground.place(name)
    return await stack.enter_async_context(Client(place.database_url))


async def listen(client: Client, count: int, name: Callable[[int], str]) -> None:
    """Define so many jobs, each with an event of this name."""
    for start in range(0, count, BATCH):
        app = App()
        for number in range(start, min(count, start + BATCH)):
            app.task(name=f"job-{number}", schedule=on_event(name(number)))(do_nothing)
        await client.define_jobs(app.definitions(), author="code")


async def do_nothing() -> None: ...


if __name__ == "__main__":
    main()

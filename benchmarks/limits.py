"""Drains of jobs with limits beside a plain one: one worker in this process, jobs that do nothing.

python -m benchmarks.limits [--jobs N] [--store postgres|sqlite]
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from statistics import median
from typing import Any, Final

from benchmarks.loops import run
from benchmarks.places import KINDS, Kind, open_ground
from daybell import App, Limit

KEYS: Final = 10_000
CHAIN: Final = 200
RATE: Final = 1_000
RATE_SECONDS: Final = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="default: 20,000")
    parser.add_argument("--store", choices=KINDS, default="postgres", help="default: postgres")
    arguments = parser.parse_args()
    run(measure(arguments.store, arguments.jobs))


async def measure(kind: Kind, jobs: int) -> None:
    with open_ground(kind) as ground:
        place = await ground.place("limits")
        await place.make()
        app = App(place.database_url)
        starts: list[tuple[float, float]] = []

        @app.task
        async def plain(key: int) -> None: ...

        @app.task(concurrency=Limit(1, key="key"))
        async def keyed(key: int) -> None: ...

        @app.task(concurrency=100)
        async def hundred(key: int) -> None: ...

        @app.task(concurrency=1)
        async def alone(key: int) -> None:
            starts.append((time.perf_counter(), time.perf_counter()))

        @app.task(rate=f"{RATE}/s")
        async def rated(key: int) -> None:
            now = time.perf_counter()
            starts.append((now, now))

        async with app:
            base = await drain(app, plain, jobs)
            print(f"plain             {base:8,.0f}/s")
            for task, name in ((keyed, "10,000 keys, 1"), (hundred, "one key, 100")):
                rate = await drain(app, task, jobs)
                print(f"{name:17} {rate:8,.0f}/s  {rate / base:.2f} of plain")
            await drain(app, alone, CHAIN)
            gaps = [b[0] - a[1] for a, b in pairwise(starts)]
            print(f"limit 1: end to next start p50 {median(gaps) * 1000:.1f} ms")
            starts.clear()
            await drain(app, rated, RATE * RATE_SECONDS)
            times = sorted(start for start, _ in starts)
            over = sum(b - a < 1 for a, b in zip(times, times[RATE:], strict=False))
            last = (len(times) - RATE) / (times[-1] - times[0])
            print(f"rate 1,000/s: {last:,.0f}/s after the first second, {over} windows over")


async def drain(app: App, task: Any, jobs: int) -> float:
    """Return the executions per second of a backlog."""
    await task.enqueue_many([{"key": n % KEYS} for n in range(jobs)])
    client = await app.open()
    started = time.perf_counter()
    async with app.worker(concurrency=200):
        while (await client.count(job=task.name, status="pending")).total:
            await pause()
        took = time.perf_counter() - started
    return jobs / took


async def pause() -> None:
    from daybell.store.wakeups import pause as wait

    await wait(0.05)


if __name__ == "__main__":
    main()

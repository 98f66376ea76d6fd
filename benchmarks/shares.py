"""Fair shares: a small key behind a large one, weights, many keys of one organization, the cost of
turns with ten and with 10,000 keys, and tenants. One worker in this process, jobs that do nothing.

python -m benchmarks.shares [--jobs N] [--seconds N] [--store postgres|sqlite]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, Final
from uuid import uuid4

from benchmarks.limits import pause
from benchmarks.loops import run
from benchmarks.places import KINDS, Kind, open_ground
from daybell import App
from daybell.client import Client
from daybell.core.worker import SHARED, NewWorker
from daybell.engine.events import Events
from daybell.engine.loop import SystemClock
from daybell.engine.worker import Worker, WorkerOptions
from daybell.sdk.context import current

BATCH: Final = 10_000
PROBES: Final = 20
CLAIMED: Final = 100
ROUNDS: Final = 30
Start = tuple[float, str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="of the large key: 100,000")
    parser.add_argument("--seconds", type=int, default=10, help="of a window of weights: 10")
    parser.add_argument("--store", choices=KINDS, default="postgres", help="default: postgres")
    arguments = parser.parse_args()
    run(measure(arguments.store, arguments.jobs, arguments.seconds))


async def measure(kind: Kind, jobs: int, seconds: int) -> None:
    with open_ground(kind) as ground:
        place = await ground.place("shares")
        await place.make()
        app = App(place.database_url)
        starts: list[Start] = []

        @app.task(share="key", queue="flat")
        async def flat(key: str) -> None:
            starts.append((time.monotonic(), key))

        @app.task(share={"key": "key", "weights": {"a": 3}}, queue="weighed")
        async def weighed(key: str) -> None:
            starts.append((time.monotonic(), key))

        @app.task(share=["org", "key"], queue="nested")
        async def nested(org: str, key: str) -> None:
            starts.append((time.monotonic(), org))

        async with app:
            await measure_wait(app, flat, jobs, starts)
            await fill(weighed, jobs, lambda n: {"key": "ab"[n % 2]})
            await serve(app, "weighed", starts, seconds + 4)
            print(f"weights 3:1, any {seconds} s: {ratios(starts, seconds)}")
            await fill(nested, jobs, lambda n: {"org": "ab"[n % 2], "key": str(n % 2_000)})
            await serve(app, "nested", starts, seconds + 4)
            print(f"one of two organizations with 1,000 users: {ratios(starts, seconds)}")
            client = await app.open()
            few = await measure_claims(app, client, keys=10)
            many = await measure_claims(app, client, keys=10_000)
            print(f"a claim of {CLAIMED}: 10 keys {few:.1f} ms, 10,000 keys {many:.1f} ms,"
                  f" {many / few:.2f} of it")  # fmt: skip
            await measure_tenants(app, client, jobs, seconds)


async def measure_tenants(app: App, client: Client, jobs: int, seconds: int) -> None:
    """Let one worker serve two tenants of weights 3:1, then one execution of a third."""
    starts: list[Start] = []

    @app.task(name="of a tenant", queue="tenants")
    async def work() -> None:
        running = current.get()
        starts.append((time.monotonic(), "" if running is None else running.claimed.tenant))

    for name in "abc":
        await client.add_tenant(name)
    await client.update_tenant("a", weight=3.0)
    tenants = {name: client.for_tenant(name) for name in "abc"}
    for name in "abc":
        await tenants[name].define_jobs([work.definition])
    for first in range(0, jobs, BATCH):
        for name in "ab":
            count = min(jobs - first, BATCH)
            await tenants[name].enqueue_many(work.name, [{}] * count)
    app.is_shared = True
    options = WorkerOptions(
        tenant=SHARED, tenants=("a", "b", "c"), queues="tenants", concurrency=200
    )
    worker = Worker(
        client.store, app.handlers, options, clock=SystemClock(), mint=uuid4, events=Events()
    )
    await worker.start()
    waits: list[float] = []
    until = time.monotonic() + seconds + 4
    while time.monotonic() < until:
        asked, seen = time.monotonic(), len(waits)
        await tenants["c"].enqueue(work.name)
        while sum(one == "c" for _, one in starts) <= seen:
            await pause()
        waits.append([at for at, one in starts if one == "c"][-1] - asked)
        for _ in range(20):
            await pause()
    await worker.stop()
    print(f"tenants of weights 3:1, any {seconds} s: {ratios(starts, seconds)}")
    print(f"one of a third tenant: median {median(waits) * 1000:.0f} ms, most"
          f" {max(waits) * 1000:.0f} ms")  # fmt: skip


async def fill(task: Any, jobs: int, args: Any) -> None:
    for first in range(0, jobs, BATCH):
        await task.enqueue_many([args(n) for n in range(first, min(jobs, first + BATCH))])


async def serve(app: App, queue: str, starts: list[Start], seconds: float) -> None:
    """Run a worker for so long."""
    starts.clear()
    until = time.monotonic() + seconds
    async with app.worker(concurrency=200, queues=queue):
        while time.monotonic() < until:
            await pause()


def ratios(starts: Sequence[Start], seconds: float) -> str:
    """The least and the greatest ratio of a to b in any window while both had work."""
    last = min(max(at for at, one in starts if one == key) for key in "ab")
    found: list[float] = []
    begin = starts[0][0] + 1
    while begin + seconds <= last:
        counts = Counter(key for at, key in starts if begin <= at < begin + seconds)
        found.append(counts["a"] / counts["b"])
        begin += 0.25
    if not found:
        return "too few jobs for a window; raise --jobs or lower --seconds"
    return f"{min(found):.3f} to {max(found):.3f} ({len(starts):,} starts)"


async def measure_wait(app: App, task: Any, jobs: int, starts: list[Start]) -> None:
    """Enqueue one of a small key now and then while a large one is drained."""
    began = time.perf_counter()
    await fill(task, jobs, lambda _: {"key": "large"})
    print(f"{jobs:,} of one key enqueued: {jobs / (time.perf_counter() - began):,.0f}/s")
    waits: list[float] = []
    async with app.worker(concurrency=200, queues="flat"):
        for n in range(PROBES):
            key = f"small {n}"
            for _ in range(4):
                await pause()
            asked = time.monotonic()
            await task.enqueue(key)
            while not any(one == key for _, one in starts[-2_000:]):
                await pause()
            waits.append(next(at for at, one in reversed(starts) if one == key) - asked)
    print(f"one of another key: median {median(waits) * 1000:.0f} ms, most {max(waits) * 1000:.0f}"
          f" ms ({len(starts):,} of the large one ran)")  # fmt: skip


async def measure_claims(app: App, client: Any, *, keys: int) -> float:
    """Return the milliseconds of a claim."""
    queue = f"of {keys} keys"

    @app.task(name=f"claimed {keys}", share="key", queue=queue)
    async def claimed(key: str) -> None: ...

    await fill(claimed, 20_000, lambda n: {"key": str(n % keys)})
    store = client.store
    worker = NewWorker(id=uuid4(), name="bench", queues=(queue,))
    await store.queue.register("default", worker, lease=600)
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        claim = await store.queue.claim(
            "default", worker=worker.id, lease=uuid4(), queues=[queue], limit=CLAIMED
        )
        took.append(time.perf_counter() - began)
        assert len(claim.executions) == CLAIMED, len(claim.executions)
    return median(took) * 1000


if __name__ == "__main__":
    main()

"""One side of a comparison with an earlier commit: measures the Daybell that PYTHONPATH names.

Uses public names only, so that the same file measures any commit. `python -m benchmarks.probe URL`
prints the names of its measurements, then reads one name a line and prints its figures, so that
two sides can take turns at every single measurement. `benchmarks.probe:app` is the app that its
worker runs.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg

from benchmarks.loops import run
from daybell import App, Context

CALLERS: Final = 50
SINGLES: Final = 2_000
CROWD: Final = 5_000
BATCH: Final = 1_000
BATCHES: Final = 10
LARGE_BATCH: Final = 10_000
LARGE_BATCHES: Final = 2
DRAIN: Final = 100_000
STEADY: Final = 600
PER_SECOND: Final = 100
LIMIT_SECONDS: Final = 120.0
MASKED_LINES: Final = 1_000  # so many are kept
MASKED_NOTES: Final = 10_000
MASKED_SECRETS: Final = 20
MASKED_TEXT: Final = (
    "a line is longer than a secret, so that it has to be searched for each of them"
)

app = App(os.environ.get("DAYBELL_DATABASE_URL"))


@app.task
async def nothing(number: int = 0) -> None: ...


@app.task
async def stamp(number: int) -> float:
    return time.monotonic()


def new_key() -> str:
    """Return a key that seals secrets. Modules of the package differ between commits."""
    return base64.b64encode(os.urandom(32)).decode()


class Place:
    """The database under measurement, read by plain SQL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_postgres = url.startswith("postgres")

    async def rows(self, postgres: str, sqlite: str) -> list[Any]:
        if self.is_postgres:
            link = await asyncpg.connect(self.url)
            try:
                return await link.fetch(postgres)
            finally:
                await link.close()
        path = self.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            return connection.execute(sqlite).fetchall()

    async def clear(self) -> None:
        """Remove all executions."""
        if self.is_postgres:
            await self.rows(
                "TRUNCATE daybell.live, daybell.agenda, daybell.lease, daybell.history", ""
            )
            await self.rows("CHECKPOINT", "")
            return
        path = self.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            connection.execute("DELETE FROM execution")
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    async def until_drained(self) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while await self.rows(
            "SELECT 1 FROM daybell.live LIMIT 1",
            "SELECT 1 FROM execution WHERE finished_at IS NULL LIMIT 1",
        ):
            assert time.monotonic() < deadline, "the worker did not drain the queue"
            await asyncio.sleep(0.1)


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return count / (time.perf_counter() - began)


async def enqueue_one_by_one(count: int) -> None:
    for _ in range(count):
        await nothing.enqueue()


async def enqueue_crowd(count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(enqueue_one_by_one(count // CALLERS))


async def enqueue_batches(size: int, count: int) -> None:
    for _ in range(count):
        await nothing.enqueue_many([{}] * size)


def enqueue_rate(
    what: str, count: int, work: Callable[[], Awaitable[object]]
) -> Callable[[Place], Awaitable[dict[str, float]]]:
    """Enqueues per second."""

    async def measure(place: Place) -> dict[str, float]:
        rate = await timed(count, work)
        await place.clear()
        return {f"enqueue, {what}": rate}

    return measure


async def drain_rate(place: Place) -> dict[str, float]:
    """Ends per second of a full queue, by one worker process, and its largest memory."""
    for _ in range(DRAIN // LARGE_BATCH):
        await nothing.enqueue_many([{}] * LARGE_BATCH)
    with Worker(place.url) as worker:
        await place.until_drained()
        memory = worker.peak_memory()
    [(first, last, count)] = await place.rows(
        "SELECT min(finished_at), max(finished_at), count(*) FROM daybell.history",
        "SELECT min(finished_at), max(finished_at), count(*) FROM execution",
    )
    assert count == DRAIN, f"{count} of {DRAIN} ended"
    await place.clear()
    return {"drain, one worker": count / (last - first), "memory of the worker, MB": memory}


async def latency(place: Place) -> dict[str, float]:
    """Milliseconds from the call of enqueue to the first line of the task, on an idle worker."""
    sent: dict[int, float] = {}

    async def send(number: int) -> None:
        sent[number] = time.monotonic()
        await stamp.enqueue(number)

    with Worker(place.url):
        await (await stamp.enqueue(-1)).result(timeout=LIMIT_SECONDS)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(STEADY):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
                group.create_task(send(number))
        await place.until_drained()
    rows = await place.rows(
        "SELECT args, result FROM daybell.history",
        "SELECT args, result FROM execution",
    )
    starts = {json.loads(args).get("number"): float(result) for args, result in rows}
    waits = sorted((starts[number] - sent[number]) * 1e3 for number in sent)
    await place.clear()
    return {"latency p50, ms": median(waits), "latency p99, ms": waits[len(waits) * 99 // 100]}


def run_rate(name: str, nodes: int, runs: int) -> Callable[[Place], Awaitable[dict[str, float]]]:
    """Nodes per second of runs of a workflow, one run after the other."""

    async def measure(place: Place) -> dict[str, float]:
        # Its thousands of nodes would take time at each start of the other worker.
        from benchmarks import flows

        workflow = getattr(flows, name)
        async with flows.app:
            with Worker(place.url, app="benchmarks.flows:app"):
                await (await workflow.enqueue()).result(timeout=LIMIT_SECONDS)  # to warm up
                began = time.perf_counter()
                for _ in range(runs):
                    await (await workflow.enqueue()).result(timeout=LIMIT_SECONDS)
                seconds = time.perf_counter() - began
        return {f"workflow, {name} of {nodes:,}": runs * nodes / seconds}

    return measure


async def masking_rates(_: Place) -> dict[str, float]:
    """Return texts per second of processor time in the log of an execution with secrets, masks
    included.
    """
    os.environ["DAYBELL_SECRETS_KEY"] = new_key()
    masked = App("memory://")
    log = logging.getLogger("benchmarks")
    log.setLevel(logging.INFO)

    @masked.task
    async def tell(ctx: Context, tokens: list[str]) -> dict[str, float]:
        spent: dict[str, float] = {}
        for what, count, say in (
            ("lines", MASKED_LINES, lambda: log.info("order %d: %s", 17, MASKED_TEXT)),
            ("notes", MASKED_NOTES, lambda: ctx.progress(50, MASKED_TEXT)),
            ("results", MASKED_NOTES, lambda: ctx.checkpoint.update(sent=17, said=MASKED_TEXT)),
        ):
            began = time.process_time()
            for _ in range(count):
                say()
            spent[what] = count / (time.process_time() - began)
        return spent

    rates: dict[str, float] = {}
    async with masked:
        for number in range(MASKED_SECRETS):
            await masked.client().set_secret(f"TOKEN_{number}", f"{number}-{new_key()}")
        async with masked.worker():
            for count in (1, MASKED_SECRETS):
                tokens = [{"secret": f"TOKEN_{number}"} for number in range(count)]
                for _ in range(2):  # once to warm up
                    handle = await tell.enqueue(tokens)  # pyright: ignore[reportArgumentType]
                    found = await handle.result(timeout=LIMIT_SECONDS)
                rates |= {f"masked {what}, {count} secrets": rate for what, rate in found.items()}
    return rates


class Worker:
    """A `daybell worker` process of this side."""

    def __init__(self, url: str, *, app: str = "benchmarks.probe:app") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "daybell", "worker", app],
            env=os.environ | {"DAYBELL_DATABASE_URL": url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)

    @property
    def pid(self) -> int:
        return self._process.pid

    def peak_memory(self) -> float:
        """Largest resident memory among the process and its children, in MB."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return max(_peak(one) for one in (str(pid), *children))


def _peak(pid: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


MEASUREMENTS: Final[dict[str, Callable[[Place], Awaitable[dict[str, float]]]]] = {
    "single": enqueue_rate("one after the other", SINGLES, lambda: enqueue_one_by_one(SINGLES)),
    "crowd": enqueue_rate(f"{CALLERS} callers", CROWD, lambda: enqueue_crowd(CROWD)),
    "batches": enqueue_rate(
        f"batches of {BATCH:,}", BATCH * BATCHES, lambda: enqueue_batches(BATCH, BATCHES)
    ),
    "large batches": enqueue_rate(
        f"batches of {LARGE_BATCH:,}",
        LARGE_BATCH * LARGE_BATCHES,
        lambda: enqueue_batches(LARGE_BATCH, LARGE_BATCHES),
    ),
    "drain": drain_rate,
    "latency": latency,
    "chain": run_rate("chain", 40, 10),
    "fan": run_rate("fan", 5_000, 3),
    "masking": masking_rates,
}


async def serve(url: str) -> None:
    """Measure the names on standard input, until it ends."""
    place = Place(url)
    async with app:
        await enqueue_one_by_one(50)
        await place.clear()
        print(json.dumps(list(MEASUREMENTS)), flush=True)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(json.dumps(await MEASUREMENTS[name](place)), flush=True)


if __name__ == "__main__":
    run(serve(sys.argv[1]))

"""One side of the features: enqueues jobs of each kind and measures how a worker drains them.

Uses public names only, so that the same file measures any commit. It reads a kind and a number a
line, and prints the figures. `benchmarks.feature_jobs:app` is the app that its worker runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.loops import run
from benchmarks.probe import Place, Worker
from benchmarks.processes import process_cpu, tree_cpu
from daybell import App, Context

BATCH: Final = 5_000
CALLERS: Final = 50
QUEUES: Final = 100
LIMIT_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.002
RECORDS: Final = "DAYBELL_BENCH_RECORDS"
MODULE: Final = "benchmarks.feature_jobs"

app = App(os.environ.get("DAYBELL_DATABASE_URL"))
log = logging.getLogger("shop")
effects = os.open(os.environ.get(RECORDS, os.devnull), os.O_WRONLY | os.O_APPEND)


def record(number: int) -> None:
    os.write(effects, number.to_bytes(8, "little"))


@app.task
async def plain(number: int, ref: float, sleep: float) -> None:
    record(number)


@app.task
async def log_line(number: int, ref: float, sleep: float) -> None:
    log.info("mail %d is sent", number)
    record(number)


@app.task
async def print_line(number: int, ref: float, sleep: float) -> None:
    print("mail is sent", number)
    record(number)


@app.task
async def progress(ctx: Context, number: int, ref: float, sleep: float) -> None:
    ctx.progress(50, "half of it")
    record(number)


@app.task
async def result(number: int, ref: float, sleep: float) -> dict[str, int]:
    record(number)
    return {"number": number, "tries": 1}


@app.task
async def unique(number: int, ref: float, sleep: float) -> None:
    record(number)


@app.task
def thread(number: int, ref: float, sleep: float) -> None:
    record(number)


@app.task(retries=0)
async def fail(number: int, ref: float, sleep: float) -> None:
    record(number)
    raise ValueError("no such customer")


in_queues = [
    app.task(name=f"queue-{number}", queue=f"queue-{number}")(plain.function)
    for number in range(QUEUES)
]


class Case(NamedTuple):
    """A kind of job; `bar`: the least part of the rate of plain jobs."""

    bar: float | None
    share: float = 1.0  # of the jobs


CASES: Final = {
    "plain": Case(None),
    "log_line": Case(0.8),
    "print_line": Case(0.8),
    "progress": Case(0.8),
    "queues": Case(0.8),
    "unique": Case(0.8, 0.5),
    "result": Case(0.8),
    "thread": Case(0.6, 0.5),
    "fail": Case(0.5, 0.5),
}


class Drain(NamedTuple):
    """The figures of a drain: jobs per second, and microseconds of processor time for each."""

    rate: float
    worker: float
    server: float
    enqueue_rate: float
    client: float
    enqueue_server: float


def arguments_of(count: int) -> list[dict[str, Any]]:
    return [{"number": number, "ref": time.time(), "sleep": 0.0} for number in range(count)]


async def load(case: str, count: int) -> None:
    """Enqueue so many jobs of a kind."""
    items = arguments_of(count)
    if case == "unique":
        todo = iter(items)

        async def caller() -> None:
            for item in todo:
                await unique.options(unique_key=f"mail-{item['number']}").enqueue(**item)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    elif case == "queues":
        part = count // QUEUES
        for place, task in enumerate(in_queues):
            await task.enqueue_many(items[place * part : (place + 1) * part])
    else:
        task = globals()[case]
        for start in range(0, count, BATCH):
            await task.enqueue_many(items[start : start + BATCH])


class Server:
    """The processes of PostgreSQL, if there are any."""

    def __init__(self, pid: str) -> None:
        self._children = Path(f"/proc/{pid}/task/{pid}/children")

    def cpu(self) -> float:
        try:
            return sum(map(process_cpu, self._children.read_text().split()))
        except OSError:
            return 0.0


_ENDED: Final = (
    "SELECT min(at), max(at), count(*) FROM (SELECT finished_at AS at FROM daybell.history"
    " UNION ALL SELECT finished_at FROM daybell.dead) e"
)
_ENDED_SQLITE: Final = "SELECT min(finished_at), max(finished_at), count(*) FROM execution"
_CLEAR: Final = (
    "TRUNCATE daybell.live, daybell.agenda, daybell.lease, daybell.history, daybell.dead"
)


async def measure(place: Place, server: Server, records: Path, case: str, count: int) -> Drain:
    cpu, spent, began = time.process_time(), server.cpu(), time.perf_counter()
    await load(case, count)
    seconds = time.perf_counter() - began
    client, enqueue_server = time.process_time() - cpu, server.cpu() - spent
    if place.is_postgres:
        await place.rows("CHECKPOINT", "")
    os.truncate(records, 0)
    with Worker(place.url, app=f"{MODULE}:app") as worker:
        await until(lambda: answered(records.stat().st_size > 0))
        cpu, spent = tree_cpu(worker.pid), server.cpu()
        await until(lambda: answered(records.stat().st_size >= 8 * count))
        await until(lambda: is_drained(place))
        used, served = tree_cpu(worker.pid) - cpu, server.cpu() - spent
    [(first, last, ended)] = await place.rows(_ENDED, _ENDED_SQLITE)
    assert ended == count, f"{ended} of {count} ended"
    if place.is_postgres:
        await place.rows(_CLEAR, "")
    else:
        await place.clear()
    each = 1e6 / count
    return Drain(
        count / (last - first),
        used * each,
        served * each,
        count / seconds,
        client * each,
        enqueue_server * each,
    )


async def answered(answer: bool) -> bool:
    return answer


async def is_drained(place: Place) -> bool:
    return not await place.rows(
        "SELECT 1 FROM daybell.live LIMIT 1", "SELECT 1 FROM execution WHERE state <= 5 LIMIT 1"
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, "the worker did not drain the queue"
        await asyncio.sleep(LOOK_SECONDS)


async def serve(url: str, pid: str) -> None:
    """Measure the cases on standard input, until it ends."""
    place, server = Place(url), Server(pid)
    async with app:
        for case in CASES:
            await load(case, QUEUES)
        await (place.rows(_CLEAR, "") if place.is_postgres else place.clear())
        print("ready", flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            case, count = line.split()
            done = await measure(place, server, Path(os.environ[RECORDS]), case, int(count))
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    run(serve(*sys.argv[1:]))

"""Retention beside work: the start delay of a steady load while a million old executions go.

Half of them are older than the retention time, the other half goes by the policy of their job.

    python -m benchmarks.retention [--store postgres] [--executions 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import asyncpg

from benchmarks.dashboard import DAYS, copies
from benchmarks.engine.hosts import assemble
from benchmarks.engine.latency import at
from benchmarks.executions import TENANT
from benchmarks.finding import Finding
from benchmarks.growth import MILLION, found
from benchmarks.loops import run
from benchmarks.places import KINDS, Kind, Place, open_ground
from benchmarks.progress import say
from daybell.core.ids import mint
from daybell.core.views import DEFAULT_RETENTION, ExecutionFilter
from daybell.engine.loop import Loop, SystemClock
from daybell.engine.upkeep import LEADER_TERM_SECONDS, Janitor, Leader, Process
from daybell.sdk.app import App

PER_SECOND: Final = 200
TICK_SECONDS: Final = 0.05
STEADY_SECONDS: Final = 60.0  # without retention, and at least so long beside it
RATIO_MAX: Final = 2.0
OLD_SECONDS: Final = 31 * 86_400.0
EXPIRED_SECONDS: Final = 2 * 86_400.0
DAY: Final = 86_400.0
SEEDED: Final = ("old", "brief")


def make_app(url: str, starts: list[float]) -> App:
    """An app with the task of the load, and those of the old executions."""
    app = App(url, logs=False)

    @app.task
    async def probe(sent: float) -> None:
        starts.append(time.time() - sent)

    @app.task
    async def old() -> None: ...

    @app.task(keep={"succeeded": "1d"})
    async def brief() -> None: ...

    return app


async def measure(kind: Kind, executions: int) -> Finding:
    """Measure the load alone, then beside the removal."""
    starts: list[float] = []
    with open_ground(kind) as ground:
        place = await ground.place("retention")
        app = make_app(place.database_url, starts)
        await app.open()
        store = place.store()
        await store.open()
        node = assemble(app, store, PER_SECOND)
        worker = Process(workers=node.workers)
        await worker.start()
        await seed(app, place, executions)
        await load(app, starts, STEADY_SECONDS / 6, "warm")
        alone = await load(app, starts, STEADY_SECONDS, "alone")
        began = time.perf_counter()
        with removal_of(place) as line:
            beside = await load(app, starts, STEADY_SECONDS, "beside retention", until=line)
        seconds = time.perf_counter() - began
        left = [
            sum((await store.catalog.count_executions(TENANT, ExecutionFilter(job=job))).values())
            for job in SEEDED
        ]
        await worker.stop()
        await store.close()
        await app.close()
    assert left == [1, 1], f"the removal was not complete: {left}"  # the runs that were copied
    short, long = at(sorted(alone), 99), at(sorted(beside), 99)
    return found(
        Finding.at_most(
            kind,
            f"p99 start delay at {PER_SECOND}/s while {executions:,} old executions are removed",
            long / short,
            RATIO_MAX,
            f"{long * 1e3:.1f} ms against {short * 1e3:.1f} ms; median"
            f" {at(sorted(beside), 50) * 1e3:.1f} and {at(sorted(alone), 50) * 1e3:.1f} ms;"
            f" removed within {seconds:.0f} s",
        )
    )


async def load(
    app: App, starts: list[float], seconds: float, what: str, *, until: Any = None
) -> list[float]:
    """Send jobs at a steady rate; return their start delays. With `until`, go on until that line
    speaks.
    """
    starts.clear()
    begun = time.perf_counter()
    sent = 0
    probe = app.tasks["probe"]
    while True:
        passed = time.perf_counter() - begun
        if passed >= seconds and (until is None or until.poll()):
            break
        due = int(passed * PER_SECOND) - sent
        if due > 0:
            now = time.time()
            await probe.enqueue_many([{"sent": now}] * due)
            sent += due
        await asyncio.sleep(TICK_SECONDS)
    while len(starts) < sent:  # noqa: ASYNC110
        await asyncio.sleep(TICK_SECONDS)
    say(f"load {what}: {sent:,} jobs in {time.perf_counter() - begun:.0f} s")
    return list(starts)


# The old executions: one run of each job, copied with other ids and times.


async def seed(app: App, place: Place, executions: int) -> None:
    for job in SEEDED:
        await (await app.tasks[job].enqueue()).result(timeout=30)
    now = time.time()
    for job, ago in zip(SEEDED, (OLD_SECONDS, EXPIRED_SECONDS), strict=True):
        if place.kind == "sqlite":
            await asyncio.to_thread(copy_to_sqlite, place, job, executions // 2, now - ago)
        else:
            await copy_to_postgres(place, job, executions // 2, now - ago)
    say(f"{place.kind:9} {executions:,} old executions are in the history")


def copy_to_sqlite(place: Place, job: str, count: int, until: float) -> None:
    with closing(sqlite3.connect(place.url, timeout=60)) as link:
        link.row_factory = sqlite3.Row
        of_job = "SELECT * FROM execution WHERE job = (SELECT n FROM job WHERE name = ?)"
        template = dict(link.execute(of_job, (job,)).fetchone())
        names = [name for name in template if name != "n"]
        statement = (
            f"INSERT INTO execution ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        )
        rows = copies([template], count, until, as_bytes=True)
        with link:
            link.executemany(statement, ([row[name] for name in names] for row in rows))
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


async def copy_to_postgres(place: Place, job: str, count: int, until: float) -> None:
    link = await asyncpg.connect(place.url)
    for day in range(int(DAYS) + 2):
        await link.execute(
            "SELECT daybell.make_day('history', (to_timestamp($1) AT TIME ZONE 'UTC')::date)",
            until - day * DAY,
        )
    template = await link.fetchrow(
        "SELECT * FROM daybell.history WHERE job = (SELECT key FROM daybell.job WHERE name = $1)",
        job,
    )
    assert template is not None
    rows = copies([dict(template)], count, until, as_bytes=False)
    await link.copy_records_to_table(
        "history", schema_name="daybell", columns=list(template.keys()),
        records=([row[name] for name in template.keys()] for row in rows),  # noqa: SIM118
    )  # fmt: skip
    await link.execute("ANALYZE")
    await link.close()


# The process that removes.


@contextmanager
def removal_of(place: Place) -> Iterator[Any]:
    """Remove old rows in a process, as the leader does; the line speaks when nothing is left."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process: Any = context.Process(target=remove, args=(theirs, place.kind, place.url), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.terminate()
        process.join(20)


def remove(line: Connection, kind: Kind, url: str) -> None:
    """Run the process."""
    run(keep_up(line, Place(kind, url)))


async def keep_up(line: Connection, place: Place) -> None:
    store = place.store()
    await store.open()
    janitor, clock = Janitor(store, DEFAULT_RETENTION), SystemClock()

    async def clean() -> bool:
        has_more = await janitor.clean()
        if not has_more:
            line.send("removed")
        return has_more

    leader = Leader(store, holder=mint(), clock=clock, duties=[clean])
    Loop("lead", leader.tick, interval=LEADER_TERM_SECONDS / 2, clock=clock).start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retention", description=__doc__)
    parser.add_argument("--store", choices=KINDS, action="append", help="only this one")
    parser.add_argument("--executions", type=int, default=MILLION)
    arguments = parser.parse_args()
    for kind in arguments.store or KINDS:
        run(measure(kind, arguments.executions))


if __name__ == "__main__":
    main()

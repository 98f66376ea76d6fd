"""The calls of each page of the dashboard: a million executions, 2,000 jobs, runs of 500 nodes.

`python -m benchmarks.dashboard URL` seeds a migrated, empty store, to look at the dashboard itself.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from statistics import median
from typing import Any, Final
from uuid import UUID

import asyncpg

from benchmarks.executions import TENANT
from benchmarks.finding import Finding
from benchmarks.growth import MILLION
from benchmarks.loops import run
from benchmarks.places import Kind, Place, open_ground
from benchmarks.progress import say
from benchmarks.serving import Server, served
from benchmarks.workflow import make_app, once, worker_on
from daybell.client import Client
from daybell.client.requests import read_definition
from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import after_failure, after_success
from daybell.core.retry import Retry
from daybell.core.worker import NewWorker

JOBS: Final = 2_000
NODES: Final = 500
RUNS: Final = 10
QUEUED: Final = 5_000
DAYS: Final = 6.5  # in which the million ended
QUEUES: Final = ("mail", "media", "reports", "default")
FAILING: Final = 50  # each of so many jobs has died
CALLS: Final = 20
WARM_CALLS: Final = 2
MEDIAN_MS: Final = 200.0
WORST_MS: Final = 500.0
ERROR: Final = '{"type":"TimeoutError","message":"the mail server did not answer in 30 s"}'
TIMES: Final = ("created_at", "run_at", "started_at", "finished_at")

SERIES: Final = (
    "stats/series?metric=enqueued,succeeded,dead,cancelled,skipped,failed_attempts,late,"
    "run_p50,run_p95,delay_p50,delay_p99&since="
)
# The calls of each page. {job}, {one} and {run} are filled in.
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "overview": (
        *("stats", SERIES + "1h", SERIES + "7d", "incidents?open=true&limit=50"),
        *("executions?status=waiting&nodes=true&limit=20", "dead-letters/groups?limit=6"),
        *("executions?status=running&limit=8", "schedules/next?limit=6"),
    ),
    "jobs": ("jobs?limit=50", "jobs?q=job-19&limit=50", "executions?job={job}&limit=30"),
    "job": (
        *("jobs/{job}", "jobs/{job}/versions?limit=50", "jobs/{job}/schedules?limit=100"),
        *("jobs/{job}/why", "jobs/{job}/signature", "executions?job={job}&limit=100"),
        SERIES + "24h&job={job}",
    ),
    "executions": (
        *("executions?limit=100", "counts?estimate=true", "executions?q=status:dead&limit=100"),
        *("executions?q=job:job-19*&limit=100", "executions?q=error:nothing&limit=100"),
        *("executions?q=arg.number:-1&limit=100", "executions?q=duration:%3E5m&limit=100"),
        *("executions?q=worker:bench&limit=100", "executions?q=queue:mail&limit=100"),
        "counts?q=status:succeeded&estimate=true",
        *("executions?q=job:{job}&sort=-duration", "executions?q=status:running&sort=started"),
    ),
    "execution": ("executions/{one}", "executions/{one}/why", "executions/{one}/logs"),
    "run of 500 nodes": ("executions/{run}", "executions?workflow_id={run}&nodes=true&limit=100"),
    "workflow": ("executions?job=fan&limit=100",),
    "calendar": ("schedules/upcoming?limit=100",),
    "dead letters": (
        *("dead-letters?limit=100", "dead-letters/groups?limit=20"),
        *("dead-letters?q=job:{job}&limit=100", "stats/series?metric=dead&job={job}&since=24h"),
    ),
    "queues": ("queues?limit=100", "workers", "stats/series?metric=started&queue=mail&since=1h"),
    "others": ("events?limit=100", "audit?limit=100", "alerts?limit=100", "incidents?limit=100"),
    "palette": ("jobs?q=job-1234&limit=8", "queues?limit=100"),
}


async def measure(kind: Kind, *, scale: float) -> list[Finding]:
    """Seed a store and call the API as each page does; the median and the worst of each page."""
    with open_ground(kind) as ground:
        place = await ground.place("dashboard")
        await seed(place, int(MILLION * scale))
        async with looked_at(place) as (server, names):
            findings = list[Finding]()
            for page, addresses in PAGES.items():
                times = {one: await ask(server, one.format(**names)) for one in addresses}
                for one, taken in times.items():
                    say(f"{kind:9} {median(taken):7.1f} {max(taken):7.1f} ms  {one}")
                slow = max(times, key=lambda one: median(times[one]))
                worst = max(max(one) for one in times.values())
                findings.append(
                    Finding(
                        kind, f"page {page}: slowest call, median", median(times[slow]), "ms",
                        f"{slow}; worst of all calls {worst:.0f} ms", MEDIAN_MS,
                    )
                )  # fmt: skip
                what = f"page {page}: worst of all calls"
                findings.append(Finding(kind, what, worst, "ms", bar=WORST_MS))
            return findings


async def ask(server: Server, address: str) -> list[float]:
    """Call an address in turn; return the milliseconds."""
    times = [await server.get(f"/api/v1/{address}") for _ in range(WARM_CALLS + CALLS)]
    return [1e3 * one for one in times[WARM_CALLS:]]


@asynccontextmanager
async def looked_at(place: Place) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """Start a server, and find the names that addresses mention."""
    async with Client(place.database_url, tenant=TENANT) as client:
        [one] = (await client.executions(limit=1, job="job-0040")).items
        [graph] = (await client.executions(limit=1, job="fan")).items
    async with served(place) as server:
        yield (
            server,
            {"job": "job-0040", "one": str(one.execution_id), "run": str(graph.execution_id)},
        )


# Seeding: each job runs once through the store; its row is copied with other ids and times.


async def seed(place: Place, count: int) -> None:
    """Fill a migrated, empty store."""
    async with Client(place.database_url, tenant=TENANT) as client:
        await define(client)
        now = (await client.health()).now
    templates = await run_each(place)
    say(f"{place.kind:9} {len(templates):,} jobs have run once")
    if place.kind == "sqlite":
        copy_to_sqlite(place, count, now)
    else:
        await copy_to_postgres(place, count, now)
    say(f"{place.kind:9} {count:,} executions are in the history")
    await run_graphs(place)


async def define(client: Client) -> None:
    """Define the jobs, one in four with a schedule."""
    definitions = list[JobDefinition]()
    for number in range(JOBS):
        options: Any = {"queue": QUEUES[number % len(QUEUES)], "description": f"Number {number}"}
        if number % 4 == 0:
            options["schedule"] = f"{number % 60} {number % 24} * * *"
        definitions.append(read_definition(f"job-{number:04}", **options))
    for start in range(0, JOBS, 500):
        await client.define_jobs(definitions[start : start + 500], author="bench")


async def run_each(place: Place) -> list[UUID]:
    """Run each job once: most succeed, some die. Leave some queued."""
    store = place.store()
    await store.open()
    worker = mint()
    await store.queue.register(TENANT, NewWorker(id=worker, name="bench"), lease=3600.0)
    new = [
        NewExecution(id=mint(), job=f"job-{n:04}", args=f'{{"number":{n}}}') for n in range(JOBS)
    ]
    done = list[UUID]()
    for start in range(0, JOBS, 500):
        await store.queue.enqueue(TENANT, new[start : start + 500])
    never = Retry(retries=0)
    while True:
        claim = await store.queue.claim(
            TENANT, worker=worker, lease=mint(), queues=list(QUEUES), limit=500
        )
        if not claim.executions:
            break
        moves = [
            after_success(one, result='"sent"', ran=1.0)
            if len(done) + at >= FAILING
            else after_failure(one, never, error=ERROR, kinds=["TimeoutError"], ran=1.0, jitter=0.5)
            for at, one in enumerate(claim.executions)
        ]
        assert not await store.queue.apply(TENANT, worker=worker, transitions=moves)
        done += [one.id for one in claim.executions]
    for start in range(0, QUEUED, 1000):
        await store.queue.enqueue(TENANT, new_for_later(min(1000, QUEUED - start)))
    await store.close()
    return done


def new_for_later(count: int) -> list[NewExecution]:
    """Return executions that no worker takes today."""
    return [NewExecution(id=mint(), job="job-0001", delay=86_400.0) for _ in range(count)]


def copies(
    templates: list[dict[str, Any]], count: int, now: float, *, as_bytes: bool
) -> Iterator[dict[str, Any]]:
    """Yield rows in the order of time, each a copy of a template."""
    draw = random.Random(1)
    step = DAYS * 86_400.0 / count
    for number in range(count):
        created = now - DAYS * 86_400.0 + number * step
        started = created + draw.expovariate(2.0)
        ended = started + draw.lognormvariate(0.0, 1.5)
        id = UUID(int=(int(created * 1000) << 80) | (7 << 76) | (2 << 62) | draw.getrandbits(60))
        row = templates[draw.randrange(len(templates))] | {
            "id": id.bytes if as_bytes else id,
            "args": f'{{"number":{number}}}',
        }
        yield row | dict(zip(TIMES, (created, created, started, min(ended, now)), strict=True))


def copy_to_sqlite(place: Place, count: int, now: float) -> None:
    with closing(sqlite3.connect(place.url, timeout=60)) as link:
        link.row_factory = sqlite3.Row
        templates = [dict(row) for row in link.execute("SELECT * FROM execution WHERE state > 5")]
        names = [name for name in templates[0] if name != "n"]
        statement = (
            f"INSERT INTO execution ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        )
        rows = copies(templates, count, now, as_bytes=True)
        with link:
            link.executemany(statement, ([row[name] for name in names] for row in rows))
        link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


async def copy_to_postgres(place: Place, count: int, now: float) -> None:
    link = await asyncpg.connect(place.url)
    for day in range(int(DAYS) + 2):
        await link.execute(
            "SELECT daybell.make_day('history', (to_timestamp($1) AT TIME ZONE 'UTC')::date)",
            now - day * 86_400.0,
        )
    for table in ("history", "dead"):
        kept = [dict(row) for row in await link.fetch(f"SELECT * FROM daybell.{table}")]
        part = count * FAILING // JOBS
        rows = copies(kept, part if table == "dead" else count - part, now, as_bytes=False)
        names = list(kept[0])
        await link.copy_records_to_table(
            table, schema_name="daybell", columns=names,
            records=([row[name] for name in names] for row in rows),
        )  # fmt: skip
    await link.execute("ANALYZE")
    await link.close()


async def run_graphs(place: Place) -> None:
    """Run a workflow of 500 nodes some times."""
    app = make_app(place.database_url, NODES)
    await app.open()
    try:
        with worker_on(place, NODES):
            for _ in range(RUNS):
                await once(app, "fan")
    finally:
        await app.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("url", help="sqlite:///FILE or postgresql://…, migrated and empty")
    parser.add_argument("--executions", type=int, default=MILLION)
    arguments = parser.parse_args()
    kind: Kind = "postgres" if arguments.url.startswith("postgres") else "sqlite"
    url = arguments.url if kind == "postgres" else arguments.url.removeprefix("sqlite:///")
    run(seed(Place(kind, url), arguments.executions))


if __name__ == "__main__":
    main()

"""Latency: from enqueue to start on an idle worker, and the start of many due at one moment."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final

import asyncpg

from benchmarks.engine.hosts import Hosts, check_each_ran_once
from benchmarks.engine.tasks import Effects, make_app
from benchmarks.executions import JOB
from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.places import Place, open_ground
from daybell.sdk.app import App

PER_SECOND: Final = 100
STEADY_JOBS: Final = 2_500
WARM_JOBS: Final = 200
BUSY_TRIPS: Final = 500
DUE: Final = 5_000
DRAINED: Final = 20_000
ENQUEUE_BATCH: Final = 5_000
AHEAD_SECONDS: Final = 3.0
WAIT_SECONDS_MAX: Final = 60.0
P50_TRIPS_MAX, P99_TRIPS_MAX = 15.0, 60.0
BURST_FACTOR, BURST_EXTRA_SECONDS = 2.0, 0.05


async def measure(*, rounds: int, scale: float) -> list[Finding]:
    """Both, on PostgreSQL."""
    with open_ground("postgres") as ground:
        place = await ground.place("latency")
        app = make_app(place.database_url, "record", Effects())
        await app.open()
        try:
            with Hosts(place, "record", 1) as hosts:
                findings = await steady(place, app, hosts, scale)
                findings.append(await bursts(place, app, hosts, rounds, scale))
        finally:
            await app.close()
    return findings


async def steady(place: Place, app: App, hosts: Hosts, scale: float) -> list[Finding]:
    """Send a hundred jobs a second, whether or not the one before has started."""
    jobs = int(STEADY_JOBS * scale)
    link = await asyncpg.connect(place.url)
    trips: list[float] = []
    sent: list[float] = []
    hosts.start(1)
    await send(app, WARM_JOBS, sent)
    tripping = asyncio.create_task(make_round_trips(link, trips))
    await send(app, jobs, sent)
    tripping.cancel()
    await asyncio.gather(tripping, return_exceptions=True)
    busy = await busy_round_trip(link)
    await until_done(hosts, len(sent))
    starts = array("d", hosts.stop(1)[0].starts)
    await link.close()
    await check_each_ran_once(place, len(sent))
    waits = sorted(starts[n] - sent[n] for n in range(WARM_JOBS, len(sent)))
    trip = median(trips)
    return [
        found(
            Finding.at_most(
                "postgres",
                f"enqueue to start at {PER_SECOND}/s, p{percent}, in round trips",
                at(waits, percent) / trip,
                bar,
                f"{at(waits, percent) * 1e3:.2f} ms; a round trip {trip * 1e3:.3f} ms"
                f" ({busy * 1e3:.3f} ms one right after the other);"
                f" {len(waits):,} jobs, the slowest {waits[-1] * 1e3:.1f} ms",
            )
        )
        for percent, bar in ((50, P50_TRIPS_MAX), (99, P99_TRIPS_MAX))
    ]


async def bursts(place: Place, app: App, hosts: Hosts, rounds: int, scale: float) -> Finding:
    """Run many jobs that are due at one moment, on an idle worker; in turns with drains, which show
    the speed of that worker.
    """
    drained = max(DUE, int(DRAINED * scale))
    rates: list[float] = []
    lasts: list[float] = []
    for round_ in range(-1, rounds):
        await place.clear()
        await enqueue(app, drained)
        rate = hosts.drain(1, drained).rate
        await check_each_ran_once(place, drained)
        await place.clear()
        last = await burst(app, hosts)
        await check_each_ran_once(place, DUE)
        if round_ >= 0:  # the round before is a warm-up
            rates.append(rate)
            lasts.append(last)
    rate, last = median(rates), median(lasts)
    bar = BURST_FACTOR * DUE / rate + BURST_EXTRA_SECONDS
    return found(
        Finding(
            "postgres",
            f"{DUE:,} jobs due at one moment: last start after it",
            last * 1e3,
            "ms",
            f"medians of {rounds}, worst {max(lasts) * 1e3:.0f} ms; {DUE:,} drain in"
            f" {DUE / rate * 1e3:.0f} ms ({rate:,.0f}/s)",
            bar=round(bar * 1e3),
        )
    )


async def burst(app: App, hosts: Hosts) -> float:
    """Return the seconds from the moment to the last start."""
    hosts.start(1)
    await asyncio.sleep(0.5)
    moment = time.monotonic() + AHEAD_SECONDS
    await enqueue(app, DUE, at=datetime.now(UTC) + timedelta(seconds=AHEAD_SECONDS))
    assert time.monotonic() < moment - 0.2, "the moment came before all were enqueued"
    await until_done(hosts, DUE)
    starts = array("d", hosts.stop(1)[0].starts)[:DUE]
    assert min(starts) > moment - 0.005, f"one started {moment - min(starts):.3f} s too early"
    return max(starts) - moment


async def send(app: App, count: int, sent: list[float]) -> None:
    """Enqueue so many, one every ten milliseconds; `sent` has their times, by number."""
    task = app.tasks[JOB]
    calls: list[asyncio.Task[object]] = []
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
        sent.append(time.monotonic())
        calls.append(asyncio.create_task(task.enqueue(len(sent) - 1)))
    await asyncio.gather(*calls)


async def enqueue(app: App, count: int, **options: datetime) -> None:
    task = app.tasks[JOB].options(**options)
    for start in range(0, count, ENQUEUE_BATCH):
        stop = min(count, start + ENQUEUE_BATCH)
        await task.enqueue_many({"number": number} for number in range(start, stop))


async def make_round_trips(link: asyncpg.Connection, trips: list[float]) -> None:
    """Measure between the jobs and at their rate, so that both find the machine in the same state:
    a processor that slept answers later than a busy one.
    """
    while True:
        await asyncio.sleep(1 / PER_SECOND)
        began = time.perf_counter()
        await link.fetchval("SELECT 1")
        trips.append(time.perf_counter() - began)


async def busy_round_trip(link: asyncpg.Connection) -> float:
    """Return the median of many, one right after the other."""
    trips: list[float] = []
    for _ in range(BUSY_TRIPS):
        began = time.perf_counter()
        await link.fetchval("SELECT 1")
        trips.append(time.perf_counter() - began)
    return median(trips)


async def until_done(hosts: Hosts, jobs: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not hosts.is_done(jobs):
        assert time.monotonic() < deadline, f"{hosts.ran} of {jobs} ran"
        await asyncio.sleep(0.02)


def at(ordered: Sequence[float], percent: int) -> float:
    """Return the value that so many percent do not exceed."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

"""Concurrency: ten thousand sleeping jobs at once in one worker, and their effect on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import asyncpg

from benchmarks.engine.hosts import Hosts, check_each_ran_once
from benchmarks.executions import TENANT, stream
from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.places import Place, open_ground
from daybell.core.worker import LEASE_SECONDS

JOBS: Final = 10_000
WARM_JOBS: Final = 200
SLEEP_SECONDS, QUICK_SLEEP_SECONDS = 30.0, 5.0
LOOK_SECONDS: Final = 0.2
EXTRA_SECONDS_MAX: Final = 60.0  # beyond the sleep, for starts and ends
KB_PER_JOB_MAX: Final = 25.0
RENEWED: Final = "SELECT renewed_at FROM daybell.worker ORDER BY started_at DESC LIMIT 1"


async def measure(*, quick: bool) -> list[Finding]:
    """Memory and heartbeats, on PostgreSQL."""
    seconds = QUICK_SLEEP_SECONDS if quick else SLEEP_SECONDS
    with open_ground("postgres") as ground:
        place = await ground.place("crowd")
        with Hosts(place, "sleep", 1, concurrency=JOBS) as hosts:
            return await crowd(place, hosts, seconds)


async def crowd(place: Place, hosts: Hosts, seconds: float) -> list[Finding]:
    (pid,) = hosts.pids
    hosts.start(1)
    await load(place, WARM_JOBS, 0.05)
    await until(lambda: hosts.is_done(WARM_JOBS), 30.0)
    before = memory_kb(pid, "VmRSS")
    link = await asyncpg.connect(place.url)
    began, most, all_at = time.monotonic(), 0, 0.0
    renewals = {await link.fetchval(RENEWED)}
    await load(place, JOBS, seconds)
    while not hosts.is_done(WARM_JOBS + JOBS):
        assert time.monotonic() - began < seconds + EXTRA_SECONDS_MAX, f"{hosts.ran} ran"
        most = max(most, hosts.in_hand)
        if most >= JOBS and not all_at:
            all_at = time.monotonic() - began
        renewals.add(await link.fetchval(RENEWED))
        await asyncio.sleep(LOOK_SECONDS)
    took = time.monotonic() - began
    renewals.add(await link.fetchval("SELECT daybell.now()"))  # the one that is under way
    peak = memory_kb(pid, "VmHWM")
    await link.close()
    hosts.stop(1)
    await check_each_ran_once(place, WARM_JOBS + JOBS)
    assert most == JOBS, f"only {most} ran at the same time"
    gap = max(after - before for before, after in pairwise(sorted(renewals)))
    what = f"{JOBS:,} jobs asleep for {seconds:g} s in one worker"
    return [
        found(
            Finding(
                "postgres", f"{what}: memory for each", (peak - before) / JOBS, "kB",
                f"from {before / 1e3:.0f} MB to a peak of {peak / 1e3:.0f} MB; all ran after"
                f" {all_at:.1f} s, all had ended after {took:.1f} s",
                bar=KB_PER_JOB_MAX,
            )
        ),
        found(
            Finding(
                "postgres", f"{what}: largest gap between heartbeats", gap, "s",
                f"{len(renewals) - 1} heartbeats seen; the lease is {LEASE_SECONDS:g} s",
                bar=LEASE_SECONDS / 2,
            )
        ),
    ]  # fmt: skip


async def load(place: Place, count: int, seconds: float) -> None:
    store = place.store()
    await store.open()
    await store.queue.load(TENANT, stream(count, args=f'{{"seconds":{seconds:g}}}'))
    await store.close()


async def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        await asyncio.sleep(0.05)


def memory_kb(pid: int, field: str) -> float:
    """Memory of a process in kB of 1,000 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1.024
    raise LookupError(field)

"""Workflows: the time of a chain beside its work, and of many nodes beside plain jobs.

One worker process, as `daybell worker` makes it, on a store with durable commits. Times are the
store's: from the creation of a run, or of the jobs, to the last end.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

from benchmarks.engine.crowd import memory_kb
from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.loops import run
from benchmarks.places import Kind, Place, open_ground
from daybell.cli.roles.startup import tune_garbage_collector
from daybell.core.execution import TERMINAL, State
from daybell.sdk.app import App

CHAIN: Final = 40
NAP_SECONDS: Final = 0.01
NODES: Final = 10_000
CHAIN_RATIO_MAX: Final = 2.0
NODES_RATIO_MAX: Final = 2.0
WAIT_SECONDS_MAX: Final = 300.0
LOOK_SECONDS: Final = 0.05  # seldom: a poll takes time from the worker


def make_app(url: str, nodes: int) -> App:
    """Make an app with a chain, a fan of nodes, and a fan over a list."""
    app = App(url)

    @app.task
    async def nap() -> None:
        await asyncio.sleep(NAP_SECONDS)

    @app.task
    async def nothing() -> None:
        return None

    @app.task
    async def count() -> list[int]:
        return list(range(nodes))

    @app.task
    async def take(number: int) -> None:
        del number

    with app.workflow("chain"):
        for first, then in pairwise(nap.node(f"nap-{n}") for n in range(CHAIN)):
            _ = first >> then
    with app.workflow("fan"):
        middle = [nothing.node(f"node-{n}") for n in range(nodes - 2)]
        _ = nothing.node("first") >> middle >> nothing.node("last")
    with app.workflow("map"):
        _ = take.map(count.output) >> nothing.node("last")
    return app


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Finding]:
    """Measure everything on one kind of store."""
    nodes = max(200, int(NODES * scale))
    with open_ground(kind) as ground:
        place = await ground.place("workflow")
        app = make_app(place.database_url, nodes)
        await app.open()
        try:
            with worker_on(place, nodes) as pid:
                lines = [await chain(place, app, rounds)]
                before = memory_kb(pid, "VmHWM")
                lines += await fans(place, app, nodes, rounds)
                peak = memory_kb(pid, "VmHWM")
        finally:
            await app.close()
    detail = f"{before / 1024:.0f} MB before, {peak / 1024:.0f} MB after; peaks of the worker"
    grown = (peak - before) / nodes
    lines.append(found(Finding(kind, f"memory per node, {nodes:,} of them", grown, "kB", detail)))
    return lines


async def chain(place: Place, app: App, rounds: int) -> Finding:
    """One node after the other, each of which takes ten milliseconds."""
    await once(app, "chain")
    times = [await once(app, "chain") for _ in range(max(3, rounds))]
    work = CHAIN * NAP_SECONDS
    return found(
        Finding.at_most(
            place.kind,
            f"a chain of {CHAIN} tasks of {NAP_SECONDS * 1e3:.0f} ms, as a ratio to the work",
            median(times) / work,
            CHAIN_RATIO_MAX,
            f"{median(times):.3f} s, from {min(times):.3f} to {max(times):.3f} s;"
            f" {(median(times) - work) / CHAIN * 1e3:.1f} ms a node beside its work",
        )
    )


async def fans(place: Place, app: App, nodes: int, rounds: int) -> list[Finding]:
    """Run many nodes between two, beside as many plain jobs with the same task, in turns."""
    times: dict[str, list[float]] = {"nothing": [], "fan": [], "take": [], "map": []}
    for round_ in range(-1, rounds):
        for what, taken in times.items():
            await place.clear()
            is_plain = what in app.tasks
            took = await plain(place, app, what, nodes) if is_plain else await once(app, what)
            if round_ >= 0:  # the round before is a warm-up
                taken.append(took)
    lines: list[Finding] = []
    for what, name, same in (
        ("fan", "nodes of a graph", "nothing"),
        ("map", "items of a mapped node", "take"),
    ):
        took, usual = median(times[what]), median(times[same])
        lines.append(
            found(
                Finding.at_most(
                    place.kind,
                    f"{nodes:,} {name}, as a ratio to plain jobs",
                    took / usual,
                    NODES_RATIO_MAX,
                    f"{nodes / took:,.0f}/s, and {nodes / usual:,.0f}/s plain jobs",
                )
            )
        )
    return lines


async def once(app: App, name: str) -> float:
    """Run a workflow; return the time that it took, by the store's clock."""
    handle = await app.workflows[name].enqueue()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (execution := await handle.execution()).status not in TERMINAL:
        assert time.monotonic() < deadline, f"{name} is still {execution.status}"
        await asyncio.sleep(LOOK_SECONDS)
    assert execution.status is State.SUCCEEDED and execution.finished_at is not None, execution
    return (execution.finished_at - execution.created_at).total_seconds()


async def plain(place: Place, app: App, task: str, jobs: int) -> float:
    """Enqueue as many jobs at once; return the time that they took, by the store's clock."""
    given = ({} if task == "nothing" else {"number": number} for number in range(jobs))
    await app.tasks[task].enqueue_many(given)
    ended = "history" if place.kind == "postgres" else "execution"
    count = f"SELECT count(*) FROM {ended} WHERE finished_at IS NOT NULL"
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while await place.ask(count) < jobs:
        assert time.monotonic() < deadline, f"of {jobs} jobs, some have not ended"
        await asyncio.sleep(LOOK_SECONDS)
    return await place.ask(f"SELECT max(finished_at) - min(created_at) FROM {ended}")


@contextmanager
def worker_on(place: Place, nodes: int) -> Iterator[int]:
    """Start a worker process for the block; yield its id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process: Any = context.Process(
        target=live, args=(theirs, place.database_url, nodes), daemon=True
    )
    process.start()
    assert ours.recv() == "up"
    try:
        yield process.pid
    finally:
        ours.send("stop")
        process.join(20)
        if process.is_alive():
            process.kill()


def live(line: Connection, url: str, nodes: int) -> None:
    """Run the worker process."""
    run(serve(line, url, nodes))


async def serve(line: Connection, url: str, nodes: int) -> None:
    app = make_app(url, nodes)
    async with app.worker():
        tune_garbage_collector()
        line.send("up")
        await asyncio.to_thread(line.recv)

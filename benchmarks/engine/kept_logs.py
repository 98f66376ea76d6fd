"""The cost of storing the logs of tasks: the same task, with and without."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from benchmarks.comparison import Comparison, Sample
from benchmarks.engine.drains import WARM_ROWS, Case, fill
from benchmarks.engine.hosts import Hosts, check_each_ran_once
from benchmarks.engine.tasks import Work
from benchmarks.places import Kind, open_ground
from benchmarks.sides import SideName
from benchmarks.throughput import announce, make_places

JOBS: Final[dict[Kind, int]] = {"postgres": 100_000, "sqlite": 50_000}
WORKS: Final[dict[SideName, Work]] = {"store": "talk", "floor": "talk_unkept"}
BAR: Final = 0.85


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Comparison]:
    """One line: the rate with logs kept, next to the rate without as its floor."""
    jobs = int(JOBS[kind] * scale)
    line = Comparison(kind, f"{jobs:,} jobs that log one line, kept or not, 1 process", BAR)
    case = Case(line.what, "talk", jobs)
    with open_ground(kind) as ground, ExitStack() as stack:
        place = (await make_places(ground))["store"]
        hosts = {side: stack.enter_context(Hosts(place, work, 1)) for side, work in WORKS.items()}
        for round_ in range(-1, rounds):
            for side in WORKS:
                rows = min(jobs, WARM_ROWS) if round_ < 0 else jobs
                await fill(place, "store", case, rows)
                done = hosts[side].drain(1, rows)
                await check_each_ran_once(place, rows)
                history = "history" if kind == "postgres" else "execution"
                kept = await place.ask(f"SELECT count(log) FROM {history}")
                assert kept == (rows if side == "store" else 0), f"{kept} logs of {rows} are kept"
                if round_ >= 0:
                    line.samples[side].append(Sample(*done))
    announce(line)
    return [line]

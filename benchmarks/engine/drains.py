"""Throughput of whole worker processes, from a full queue to the last end, next to the floor."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.claimers import Crew, Drained
from benchmarks.comparison import Comparison, Sample
from benchmarks.engine.hosts import Hosts, check_each_ran_once
from benchmarks.engine.tasks import Work
from benchmarks.executions import RESULT, prepared
from benchmarks.places import Kind, Place, open_ground
from benchmarks.sides import SIDES, SideName, open_side
from benchmarks.throughput import announce, make_places

BATCH: Final = 500
WARM_ROWS: Final = 5_000
NO_ARGUMENTS: Final = "{}"


class Case(NamedTuple):
    """One kind of task and the numbers of processes; `bar`: the least part of the floor."""

    what: str
    work: Work
    jobs: int
    processes: tuple[int, ...] = (1,)
    bar: float | None = None
    args: str | None = NO_ARGUMENTS  # None: four different ones for each
    result: str | None = None


CASES: Final[dict[Kind, tuple[Case, ...]]] = {
    "postgres": (
        Case("no-op async jobs", "nothing", 200_000, (1, 2), 0.50),
        Case("no-op sync jobs in threads", "nothing_sync", 20_000, (1,), 0.12),
        Case("no-op jobs in two child processes", "nothing_apart", 20_000, (1,), 0.02),
        Case("async jobs with arguments and result", "mail", 50_000, args=None, result=RESULT),
    ),
    "sqlite": (Case("no-op async jobs", "nothing", 50_000, (1,), 0.30),),
}


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Comparison]:
    """All cases on one kind of store."""
    lines: list[Comparison] = []
    with open_ground(kind) as ground:
        places = await make_places(ground)
        for case in CASES[kind]:
            lines += await measure_case(places, case, rounds=rounds, scale=scale)
    return lines


async def measure_case(
    places: dict[SideName, Place], case: Case, *, rounds: int, scale: float
) -> list[Comparison]:
    jobs = max(1_000, int(case.jobs * scale))
    lines = {
        count: Comparison(places["store"].kind, f"{jobs:,} {case.what}, {named(count)}", case.bar)
        for count in case.processes
    }
    with ExitStack() as stack:
        most = max(case.processes)
        hosts = stack.enter_context(Hosts(places["store"], case.work, most))
        crew = stack.enter_context(Crew(places["floor"], "floor", most, result=case.result))
        for round_ in range(-1, rounds):
            for count, line in lines.items():
                for side in SIDES:
                    rows = min(jobs, WARM_ROWS) if round_ < 0 else jobs
                    done = await run_once(places[side], side, hosts, crew, case, count, rows)
                    if round_ >= 0:  # the round before is a warm-up
                        line.samples[side].append(Sample(*done))
    for line in lines.values():
        announce(line)
    return list(lines.values())


async def run_once(
    place: Place, side: SideName, hosts: Hosts, crew: Crew, case: Case, count: int, jobs: int
) -> Drained:
    """Fill an emptied place, and let one side run all of it."""
    if side == "store":
        await fill(place, side, case, jobs)
        done = hosts.drain(count, jobs)
        await check_each_ran_once(place, jobs)
    else:
        await fill(place, side, case, jobs + count)  # each client takes one while it prepares
        done = crew.drain(count, BATCH)
    assert done.done == jobs, f"{done.done} of {jobs} ran"
    return done


async def fill(place: Place, name: SideName, case: Case, rows: int) -> None:
    await place.clear()
    if place.kind == "postgres":
        # A checkpoint in the middle of a run would hit one side and not the other.
        await place.run("CHECKPOINT", "SELECT 1")
    side = open_side(place.kind, name, place.url)
    await side.open()
    await side.load(side.prepare_load(prepared(rows, args=case.args)))
    await side.close()


def named(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"

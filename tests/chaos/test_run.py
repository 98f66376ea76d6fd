"""A short run on each store, with fixed seeds: `make chaos` runs longer ones."""

from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace

from daybell.chaos.load import PUBLISHES, RUNS, TURNS, WAITS
from daybell.chaos.run import ChaosOptions, Summary
from daybell.chaos.tasks import ALONE, TICKING
from tests.chaos.places import on_postgres, on_sqlite

RATE = 100.0
ENOUGH = 0.15  # of the load of the first run; a busy machine needs more time for it
RUNS_MAX = 4
PEACE = 600.0

pytestmark = pytest.mark.slow

Tame = Callable[[Summary], dict[str, bool]]


async def live_through(
    run: Callable[[ChaosOptions], Awaitable[Summary]], options: ChaosOptions, tame: Tame
) -> None:
    """Demand that no promise is broken, in runs of twice the length until enough has happened."""
    summary, missing = None, ["a run"]
    enough = ENOUGH * options.rate * options.seconds
    for turn in range(RUNS_MAX):
        summary = await run(replace(options, seconds=options.seconds * 2**turn, peace=PEACE))
        told = "\n".join(f"{one.rule}: {one.what}" for one in summary.violations[:20])
        assert summary.is_ok, f"{summary.fields()}\n{told}"
        assert summary.unfinished == 0
        assert summary.schedules == TICKING + ALONE
        happened = dict(happenings(summary, enough)) | tame(summary)
        if not (missing := [name for name, has_happened in happened.items() if not has_happened]):
            return
    assert not missing, summary and summary.fields()


def happenings(summary: Summary, enough: float) -> Iterator[tuple[str, bool]]:
    """What has to happen in a run: without faults it proves nothing."""
    flows, events = summary.workflows, summary.events
    yield "load", summary.acknowledged > enough
    yield "lost attempts", summary.attempts > summary.states["succeeded"]
    yield "faults", {"kill", "freeze"} <= set(summary.faults)
    yield "ticks", summary.ticks["fired"] > summary.schedules
    yield "workflows", flows.acknowledged > enough * RUNS
    yield "ends of workflows", flows.states["succeeded"] > flows.acknowledged / 2
    yield "nodes", flows.nodes > 5 * flows.acknowledged
    yield "steps", flows.steps > flows.acknowledged
    yield "events", events.acknowledged > enough * WAITS * TURNS
    yield "events before and after their waits", 0 < events.early < events.acknowledged
    yield "events that fire jobs", summary.fired > enough * PUBLISHES
    yield "requests", summary.requests > 0 and summary.answers > 0


@pytest.mark.postgres
async def test_no_execution_tick_or_node_is_lost_or_doubled_on_postgresql():
    async def run(options: ChaosOptions) -> Summary:
        return await on_postgres(options, tell=print_nothing)

    def tame(summary: Summary) -> dict[str, bool]:
        return {
            "crash and outage of the server": summary.faults["restart"] * summary.faults["outage"]
            > 0,
            "lost answers": summary.answers_lost > 0,
            "faults of connections": {"late", "cut", "lose"} <= set(summary.faults),
        }

    await live_through(run, ChaosOptions(seconds=12, seed=2, rate=RATE), tame)


async def test_no_execution_tick_or_node_is_lost_or_doubled_on_sqlite(tmp_path):
    async def run(options: ChaosOptions) -> Summary:
        return await on_sqlite(options, tmp_path, tell=print_nothing)

    def tame(summary: Summary) -> dict[str, bool]:
        # On PostgreSQL a fault of the connections is nearly always near, which excuses a delay.
        return {"something ran in a lost worker": len(summary.waits) > 0}

    await live_through(run, ChaosOptions(seconds=8, seed=3, rate=RATE), tame)


async def test_no_execution_of_workers_over_http_is_lost_or_doubled(tmp_path):
    async def run(options: ChaosOptions) -> Summary:
        return await on_sqlite(options, tmp_path, tell=print_nothing)

    def tame(summary: Summary) -> dict[str, bool]:
        return {
            "faults of connections": {"cut", "lose", "outage"} <= set(summary.faults),
            "lost answers": summary.answers_lost > 0,
        }

    await live_through(run, ChaosOptions(seconds=8, seed=3, rate=RATE, remote=True), tame)


def print_nothing(_line: str) -> None:
    pass

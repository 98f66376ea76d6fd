"""A short run on each store, with fixed seeds: `make chaos` runs longer ones."""

import pytest

from daybell.chaos.load import PUBLISHES, RUNS, TURNS, WAITS
from daybell.chaos.run import ChaosOptions, Summary
from daybell.chaos.tasks import ALONE, TICKING
from tests.chaos.places import on_postgres, on_sqlite

RATE = 100.0
ENOUGH = 0.15  # of the load, on a machine that is busy with other tests, too

pytestmark = pytest.mark.slow


def demand(summary: Summary) -> None:
    told = "\n".join(f"{one.rule}: {one.what}" for one in summary.violations[:20])
    assert summary.is_ok, f"{summary.fields()}\n{told}"
    # A run without faults proves nothing.
    assert summary.acknowledged > ENOUGH * RATE * summary.seconds
    assert summary.attempts > summary.states["succeeded"], "nobody was lost"
    assert summary.unfinished == 0
    assert {"kill", "freeze"} <= set(summary.faults)
    assert summary.schedules == TICKING + ALONE
    assert summary.ticks["fired"] > summary.schedules
    flows = summary.workflows
    assert flows.acknowledged > ENOUGH * RATE * RUNS * summary.seconds
    assert flows.states["succeeded"] > flows.acknowledged / 2
    assert flows.nodes > 5 * flows.acknowledged
    assert flows.steps > flows.acknowledged
    events = summary.events
    assert events.acknowledged > ENOUGH * RATE * WAITS * TURNS * summary.seconds
    assert 0 < events.early < events.acknowledged, "all came before their waits, or none did"
    assert summary.fired > ENOUGH * RATE * PUBLISHES * summary.seconds
    assert summary.requests > 0 and summary.answers > 0, "no request was answered"


@pytest.mark.postgres
async def test_no_execution_tick_or_node_is_lost_or_doubled_on_postgresql():
    summary = await on_postgres(ChaosOptions(seconds=12, seed=2, rate=RATE), tell=print_nothing)

    demand(summary)
    assert summary.faults["restart"] == summary.faults["outage"] == 1
    assert summary.answers_lost > 0
    assert {"late", "cut", "lose"} <= set(summary.faults)


async def test_no_execution_tick_or_node_is_lost_or_doubled_on_sqlite(tmp_path):
    summary = await on_sqlite(
        ChaosOptions(seconds=8, seed=3, rate=RATE), tmp_path, tell=print_nothing
    )

    demand(summary)
    # On PostgreSQL nearly every moment is near a fault of the connections, which excuses a delay.
    assert summary.waits, "nothing was running in a lost worker"


async def test_no_execution_of_workers_over_http_is_lost_or_doubled(tmp_path):
    options = ChaosOptions(seconds=8, seed=3, rate=RATE, remote=True)
    summary = await on_sqlite(options, tmp_path, tell=print_nothing)

    demand(summary)
    assert {"cut", "lose", "outage"} <= set(summary.faults)
    assert summary.answers_lost > 0


def print_nothing(_line: str) -> None:
    pass

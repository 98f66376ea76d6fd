"""Workflows on a bench: run as a whole, or looked at node by node."""

# pyright: reportUnusedExpression=false

from datetime import UTC, datetime

import pytest

from daybell import App, Context, Retry, cron
from daybell.client.backfill import backfill
from daybell.core.execution import State
from daybell.testing import Bench


def etl_on(app: App, *, fails: int = 0):
    """A workflow whose middle fails so often."""
    tries: list[int] = []

    @app.task
    def extract():
        return [1, 2, 3]

    @app.task(retries=Retry.fixed("10s", retries=2))
    def double(number: int):
        tries.append(number)
        if len(tries) <= fails:
            raise ValueError("not yet")
        return 2 * number

    @app.task
    async def load(double: list[int]):
        return sum(double)

    with app.workflow("etl") as etl:
        double.map(extract.output) >> load
    return etl


async def test_a_workflow_is_run_like_a_task(app: App, bench: Bench):
    etl = etl_on(app)

    assert await bench.run(etl) == 12
    assert {one.node for one in bench.executions(etl)} == {
        None, "extract", "double[0]", "double[1]", "double[2]", "load",
    }  # fmt: skip


async def test_what_a_node_raises_is_raised(app: App, bench: Bench):
    etl = etl_on(app, fails=1)

    with pytest.raises(ValueError, match="not yet"):
        await bench.run(etl)


async def test_waiting_for_a_run_runs_its_nodes(app: App, bench: Bench):
    handle = await etl_on(app).enqueue()

    assert await handle.result() == 12


async def test_nodes_are_tried_again_as_time_passes(app: App, bench: Bench):
    etl = etl_on(app, fails=1)
    handle = await etl.enqueue()

    runs = await bench.run_due()
    assert [run.node for run in runs if run.has_failed] == ["double[0]"]
    assert await handle.status() is State.RUNNING
    await bench.advance("10s")

    assert await handle.status() is State.SUCCEEDED


async def test_arguments_and_results_are_those_of_the_task(app: App, bench: Bench):
    await etl_on(app).enqueue()

    runs = {run.node: run for run in await bench.run_due()}

    assert runs["double[2]"].arguments == {"number": 3}
    assert runs["load"].arguments == {"double": [2, 4, 6]}
    assert runs["load"].result == 12


def test_a_workflow_is_run_without_a_loop(app: App, bench: Bench):
    assert bench.sync.run(etl_on(app)) == 12


async def test_nodes_of_a_backfilled_run_know_their_tick_and_their_run(app: App, bench: Bench):
    seen: list[tuple[object, ...]] = []

    @app.task
    def extract(ctx: Context):
        seen.append((ctx.node, ctx.run_id, ctx.scheduled_for))

    with app.workflow("etl", schedule=cron("0 6 * * *")) as etl:
        extract.node()
    client = await app.open()

    await backfill(client, "etl", "2029-12-30T00:00Z", "2029-12-31T00:00Z")
    await bench.run_due(etl)

    (run,) = [one for one in bench.executions(etl) if one.node is None]
    assert seen == [("extract", run.id, datetime(2029, 12, 30, 6, tzinfo=UTC))]


async def test_a_workflow_that_maps_nothing_has_succeeded(app: App, bench: Bench):
    @app.task
    def double(number: int):
        return 2 * number

    with app.workflow("etl") as etl:
        double.map([])

    assert await bench.run(etl) == []

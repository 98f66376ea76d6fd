"""Why an execution was skipped, in words that name who or what it was because of."""

import pytest

from daybell.client import Client
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.units import from_iso
from daybell.core.when import cron
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from tests.builders import apply, claim, death, success
from tests.engine.tasks import a_store

TWO = from_iso("2026-06-01T02:00:00+00:00")
HOUR = 3600.0


@pytest.fixture
def clock():
    return ManualClock(TWO - 60)


@pytest.fixture
async def client(clock):
    async with Client(await a_store(clock)) as opened:
        yield opened


@pytest.fixture
def turn(client, clock):
    scheduler = Scheduler(client.store, clock=clock, mint=mint, events=Events())

    async def turned():
        await scheduler.tick()
        await scheduler.dependents.tick()

    return turned


async def run(client, job, how):
    await client.enqueue(job)
    hands = await claim(client.store)
    await apply(client.store, hands, how(hands.one))


async def test_who_was_skipped_says_which_dependency_had_failed(client, clock, turn):
    await client.define("extract")
    await client.define("clean")
    names = ["extract", "clean"]
    daily = cron("0 2 * * *")
    await client.define("load", schedule=daily, dependencies=names, on_dependency_failure="skip")
    await run(client, "extract", death)
    await run(client, "clean", success)
    clock.advance(60)
    await turn()
    [one] = (await client.executions(job="load")).items

    why = await client.why(one.execution_id)

    assert one.status is State.SKIPPED
    assert why.detail.startswith("it was skipped (upstream_failed): extract (dead; retry it")
    assert "clean" not in why.detail


async def test_who_was_skipped_says_which_execution_was_in_the_way(client, clock, turn):
    await client.define("poll", schedule=cron("0 * * * *"), overlap="skip")
    clock.advance(60)
    await turn()
    hands = await claim(client.store)
    clock.advance(HOUR)
    await turn()
    skipped, first = (await client.executions(job="poll")).items

    while_it_runs = (await client.why(skipped.execution_id)).detail
    clock.advance(60)
    await apply(client.store, hands, success(hands.one))
    clock.advance(2 * HOUR)
    await turn()  # another is there by now, which was not in the way
    afterwards = (await client.why(skipped.execution_id)).detail

    assert (skipped.status, first.execution_id) == (State.SKIPPED, hands.one.id)
    of = f"it was skipped (overlap): execution {first.execution_id} of the same job was in its way"
    assert while_it_runs.startswith(f"{of}, and still is (running)")
    assert afterwards == f"{of}, which ended at 2026-06-01T03:01:00Z (succeeded)"

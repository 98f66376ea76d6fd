"""Several `daybell scheduler` on one store, while they are killed again and again."""

import asyncio
import random
from contextlib import ExitStack

import pytest

from daybell.client import Client
from daybell.client import schedules as room
from daybell.core.execution import State
from daybell.core.schedule import Decision
from daybell.core.when import every
from tests.cli.terminal import SECONDS, Running
from tests.stores import POSTGRES

JOBS = 10
SCHEDULES = 100
PERIOD = 1.0
TICKS = 6  # that each schedule has at least
KILLS = 5
UP = "looking after"

pytestmark = pytest.mark.slow


@pytest.fixture
async def url(kind, tmp_path, servers):
    """A store that goes by the real time."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'daybell.db'}"
    else:
        async with servers.database(POSTGRES[kind]) as url:
            yield url


@pytest.fixture
async def client(url):
    """A store with schedules: half of them fire at the same moments, the others all the time.
    The first job lets nothing in beside its first execution, which nobody ever runs.
    """
    fresh = Client(url)
    await fresh.migrate()
    await fresh.close()
    async with Client(url) as client:
        for job in range(JOBS):
            numbers = range(job, SCHEDULES, JOBS)
            anchors = [round(n / SCHEDULES, 3) if n % 2 else 0.0 for n in numbers]
            await client.define(
                f"job-{job}",
                schedule=[every(PERIOD, anchor=at) for at in anchors],
                overlap="allow" if job else "skip",
                misfire="fire_all",
                misfire_limit=1000,
            )
        yield client


async def ticks_of_each(client):
    return [one.fired + one.skipped for one in await room.schedules(client)]


async def until(client, is_enough):
    async with asyncio.timeout(SECONDS):
        while True:
            if is_enough(await ticks_of_each(client)):
                return
            await asyncio.sleep(0.05)


# More schedulers on PostgreSQL, where they meet inside the database; the rest with all tests.
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("sqlite", 2),
        pytest.param("postgres", 3, marks=pytest.mark.postgres),
        pytest.param("sqlite", 3, marks=pytest.mark.all_only),
        pytest.param("postgres", 2, marks=[pytest.mark.postgres, pytest.mark.all_only]),
    ],
)
async def test_each_tick_is_fired_once_while_schedulers_are_killed(count, url, client, tmp_path):
    first = {one.id: one.next_at for one in await room.schedules(client)}
    dice = random.Random(count)

    with ExitStack() as stack:

        def start():
            return stack.enter_context(
                Running("scheduler", folder=tmp_path, DAYBELL_DATABASE_URL=url)
            )

        running = [start() for _ in range(count)]
        for one in running:
            await asyncio.to_thread(one.wait_for, UP)
        for _ in range(KILLS):
            # Somewhere in the middle of what it fires.
            wanted = sum(await ticks_of_each(client)) + dice.randint(1, SCHEDULES)
            await until(client, lambda ticks, wanted=wanted: sum(ticks) >= wanted)
            victim = dice.choice([one for one in running if UP in one.said])
            victim.process.kill()
            running[running.index(victim)] = start()
        for one in running:
            await asyncio.to_thread(one.wait_for, UP)
        await until(client, lambda ticks: min(ticks) >= TICKS)
        for one in running:
            one.process.terminate()
        assert [await asyncio.to_thread(one.end) for one in running] == [0] * count

    for schedule in await room.schedules(client):
        await check(client, schedule, first[schedule.id])


async def check(client, schedule, first):
    """One tick a second, each on record, each with an execution of its own."""
    start, end = round(first / PERIOD, 3), round(schedule.next_at / PERIOD, 3)
    nominal = [first + n * PERIOD for n in range(round(end - start))]
    ticks = await client.store.schedules.list_ticks(client.tenant, schedule.id, limit=1000)
    occurrences = await client.store.schedules.list_occurrences(
        client.tenant, schedule.id, since=first, until=schedule.next_at
    )

    assert [tick.at for tick in reversed(ticks)] == pytest.approx(nominal)
    assert [(one.scheduled_for, one.id) for one in occurrences] == [
        (tick.at, tick.execution) for tick in reversed(ticks)
    ]
    if schedule.job == "job-0":
        skipped = [one for one in occurrences if one.state is State.SKIPPED]
        assert len(skipped) == sum(tick.decision is Decision.SKIPPED for tick in ticks)
    else:
        assert {tick.decision for tick in ticks} == {Decision.FIRED}
        assert {one.state for one in occurrences} == {State.QUEUED}

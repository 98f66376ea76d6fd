"""Tasks that take their worker along: after three of them the execution is dead, and only that.

The worker is a command, kept alive by its supervisor, as in production.
"""

import asyncio
import inspect
import signal
from uuid import UUID

import pytest

from daybell.client import Client
from daybell.core.execution import Execution, State
from tests.cli.terminal import Running
from tests.runners import bad_tasks
from tests.runners.bad_tasks import FATAL, Kind

NEIGHBOURS = 20
PATIENCE = 60.0
APP = """
from daybell import App
from bad_tasks import {name}, neighbour

app = App()
app.task(neighbour)

def task() -> None:
    print("begins", flush=True)
    {name}()

async def on_the_loop() -> None:
    task()

app.task(name="bad", retries=5, max_crashes={max_crashes})({function})
"""
WORKER = ("worker", "app.py", "--processes", "2", "--concurrency", "1")
# One in each `make test`; what they differ in is how the process ends.
CASES = [
    pytest.param(
        function.__name__,
        kind,
        id=f"{function.__name__}-{kind}",
        marks=() if (function, kind) == (bad_tasks.segfault, "thread") else pytest.mark.all_only,
    )
    for function, kind in FATAL
]


@pytest.fixture
def start(tmp_path):
    """Starts two workers under a supervisor, for an app with this bad task."""
    started: list[Running] = []

    def start(name: str, kind: Kind, max_crashes: int) -> Running:
        function = "on_the_loop" if kind == "async" else "task"
        source = APP.format(name=name, function=function, max_crashes=max_crashes)
        (tmp_path / "bad_tasks.py").write_text(inspect.getsource(bad_tasks))
        (tmp_path / "app.py").write_text(source)
        running = Running(*WORKER, folder=tmp_path, DAYBELL_LEASE="1s")
        started.append(running)
        running.wait_for(" runs .* at a time", times=2)
        return running

    yield start
    for running in started:
        # Not killed: it would not take its workers along.
        running.insist(signal.SIGTERM)
        running.__exit__()


async def ended(client: Client, id: UUID) -> Execution:
    """An execution, once it is over."""
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            execution = await client.execution(id)
            if execution.status in (State.DEAD, State.SUCCEEDED):
                return execution
            await asyncio.sleep(0.05)


async def run_among_neighbours(folder) -> tuple[Execution, set[State]]:
    """How the bad task ended, and how the others did."""
    async with Client(f"sqlite:///{folder / 'daybell.db'}") as client:

        async def some() -> list[UUID]:
            numbers = range(NEIGHBOURS // 2)
            return [(await client.enqueue("neighbour", {"number": n})).id for n in numbers]

        good = await some()
        bad = (await client.enqueue("bad", {})).id
        good += await some()
        return await ended(client, bad), {(await ended(client, id)).status for id in good}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES)
async def test_what_kills_its_worker_three_times_is_dead_and_its_neighbours_are_not(
    name, kind, start, tmp_path
):
    supervisor = await asyncio.to_thread(start, name, kind, 3)

    bad, others = await run_among_neighbours(tmp_path)

    assert (bad.status, bad.reason, bad.crashes) == (State.DEAD, "worker_lost", 3)
    assert bad.failures == 0
    assert others == {State.SUCCEEDED}
    deaths = await asyncio.to_thread(supervisor.wait_for, "ended with .* is started again", times=3)
    assert len(deaths) == supervisor.said.count("begins") == 3


@pytest.mark.slow
@pytest.mark.all_only  # a worker waits for a minute before it gives its loop up
async def test_what_stops_the_loop_for_good_has_its_worker_start_afresh(start, tmp_path):
    supervisor = await asyncio.to_thread(start, "endless_loop", "async", 1)

    bad, others = await run_among_neighbours(tmp_path)

    assert (bad.status, bad.reason, bad.crashes) == (State.DEAD, "worker_lost", 1)
    assert others == {State.SUCCEEDED}
    await asyncio.to_thread(supervisor.wait_for, "the event loop has stood still")
    await asyncio.to_thread(supervisor.wait_for, " runs .* at a time", times=3)

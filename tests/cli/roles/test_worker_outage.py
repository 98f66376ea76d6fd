"""A process that had to start afresh during an outage is there when the outage is over."""

import asyncio
import signal

import pytest

from daybell.client import Client
from daybell.core.execution import State
from tests.chaos.places import migrate
from tests.cli.terminal import Running
from tests.postgres import Postgres
from tests.sdk.waiting import eventually

# A thread that sleeps in C hears of nothing: only the end of its process ends it.
SHOP = """
import time
from daybell import App, Context

app = App()


@app.task(max_crashes=10)
def bake(ctx: Context) -> None:
    print(f"bakes, attempt {ctx.attempt}", flush=True)
    if ctx.attempt == 1:
        time.sleep(3600)
"""


@pytest.mark.postgres
async def test_a_worker_that_starts_afresh_waits_for_its_database(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    server = await asyncio.to_thread(Postgres)
    try:
        await asyncio.to_thread(server.start)
        url = await asyncio.to_thread(server.create_database)
        await migrate(url)
        told = {"DAYBELL_DATABASE_URL": url, "DAYBELL_LEASE": "1s"}
        with Running(
            "worker", "shop.py", "--drain-timeout", "1s", folder=tmp_path, afresh=True, **told
        ) as worker:
            await asyncio.to_thread(worker.wait_for, " runs .* at a time")
            async with Client(url) as client:
                id = (await client.enqueue("bake")).id
                await asyncio.to_thread(worker.wait_for, "bakes, attempt 1")

                await asyncio.to_thread(server.stop, signal.SIGQUIT)
                await asyncio.to_thread(worker.wait_for, "the process ends")
                await asyncio.to_thread(worker.wait_for, "waiting for it")
                await asyncio.to_thread(server.start)

                await asyncio.to_thread(worker.wait_for, "bakes, attempt 2")
                await eventually(
                    lambda: client.execution(id),
                    lambda found: found.status is State.SUCCEEDED,
                )
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.end) == 0
    finally:
        await asyncio.to_thread(server.close)

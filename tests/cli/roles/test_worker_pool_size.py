"""`--pool-size`: how many sessions a process has on PostgreSQL, and what is refused."""

import asyncio

import asyncpg
import pytest

from tests.cli.terminal import Running, daybell
from tests.stores import POSTGRES

SIZE = 6
# What docs/guide/running.md says: the pools, 2 for a moment, 2 for the lease, 1 to listen, and for
# transactions of tasks as many as in the pools.
WORKER_MAX = SIZE + 2 + 2 + 1 + SIZE
TASKS = 40
APP = """\
import asyncio
from daybell import App

app = App()

@app.task
async def small() -> None: ...

@app.task
async def greedy(number: int) -> int:
    client = await app.open()
    looks = [client.executions(limit=1), client.jobs(), client.queues()]
    await asyncio.gather(*looks, *(small.enqueue() for _ in range(3)))
    return number

@app.task
async def write(ctx) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("SELECT pg_sleep(0.01)")
"""


@pytest.fixture
async def url(servers):
    async with servers.live(POSTGRES["postgres"]) as url:
        yield url


async def count_sessions(link):
    return await link.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )


@pytest.mark.postgres
async def test_a_busy_worker_has_no_more_sessions_than_it_may(tmp_path, url):
    (tmp_path / "app.py").write_text(APP)
    link = await asyncpg.connect(url)
    words = ["worker", "app.py", "--pool-size", str(SIZE), "--database-url", url]
    with Running(*words, folder=tmp_path) as running:
        await asyncio.to_thread(running.wait_for, r"worker \S+ \(.*\) runs ")
        for job in ("greedy", "write"):
            args = "'{\"number\": 1}'::jsonb" if job == "greedy" else "'{}'::jsonb"
            await link.execute(
                f"SELECT daybell.enqueue('{job}', {args}) FROM generate_series(1, {TASKS})"
            )
        seen = []
        async with asyncio.timeout(300):
            while await link.fetchval("SELECT count(*) FROM daybell.live"):
                seen.append(await count_sessions(link))
        # Connections stay open for a while, so the most that there were are there now.
        seen.append(await count_sessions(link))
    failed = await link.fetchval("SELECT count(*) FROM daybell.dead")
    await link.close()

    assert max(seen) <= WORKER_MAX
    assert failed == 0, running.said


@pytest.mark.parametrize("command", ["worker", "scheduler", "server", "dev"])
@pytest.mark.parametrize("size", [str(SIZE - 1), "many"])
def test_a_bad_pool_size_is_refused(tmp_path, command, size):
    ended = daybell(command, "--pool-size", size, folder=tmp_path)

    assert ended.code == 2
    assert f"--pool-size: '{size}' is not a whole number from {SIZE} on" in ended.err

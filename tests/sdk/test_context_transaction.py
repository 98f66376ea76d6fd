"""`ctx.transaction()`: writes and the end of a task are one commit; none after a lost lease."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from daybell import App, Context, ExecutionFailed, Retry
from daybell.client.wire import Execution
from daybell.core.execution import State
from daybell.core.views import ExecutionFilter
from daybell.core.worker import LEASE_SECONDS
from tests.sdk.shop import a_shop, sales, user
from tests.sdk.waiting import WAIT, eventually
from tests.stores import POSTGRES

pytestmark = pytest.mark.postgres
AT_ONCE = Retry.fixed(0, retries=3, jitter=0)


@pytest.fixture(params=POSTGRES.values())
async def url(request, servers):
    async with a_shop(servers, request.param) as url:
        yield url


@pytest.fixture
async def app(url):
    app = App(url)
    yield app
    await app.close()


async def test_what_is_written_is_there_with_the_end_and_not_before(app: App, url):
    seen = []

    @app.task
    async def sell(ctx: Context, number: int) -> str:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES ($1)", number)
        seen.append(await sales(url))  # the block is left, the transaction is not
        return "sold"

    async with app, app.worker():
        assert await (await sell.enqueue(7)).result(timeout=WAIT) == "sold"

    assert seen == [[]]
    assert await sales(url) == [7]


async def test_the_connection_has_the_servers_own_settings(app: App):
    @app.task
    async def ask(ctx: Context) -> str:
        async with ctx.transaction() as connection:
            return await connection.fetchval("SELECT current_setting('enable_seqscan')")

    async with app, app.worker():
        assert await (await ask.enqueue()).result(timeout=WAIT) == "on"


async def test_the_server_notices_when_the_machine_of_a_task_is_gone(app: App):
    @app.task
    async def ask(ctx: Context) -> list[str]:
        async with ctx.transaction() as connection:
            row = await connection.fetchrow(
                "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_user_timeout')"
            )
            return list(row)

    async with app, app.worker():
        idle, limit = await (await ask.enqueue()).result(timeout=WAIT)
    assert 0 < int(idle) < LEASE_SECONDS
    assert 0 < int(limit) < LEASE_SECONDS * 1000


async def test_a_task_that_fails_has_written_nothing(app: App, url):
    @app.task(retries=0)
    async def inside(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1)")
            raise ValueError("no")

    @app.task(retries=0)
    async def behind(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (2)")
        raise ValueError("no")

    async with app, app.worker():
        for task in (inside, behind):
            with pytest.raises(ExecutionFailed):
                await (await task.enqueue()).result(timeout=WAIT)

    assert await sales(url) == []


async def test_every_attempt_has_a_transaction_of_its_own(app: App, url):
    @app.task(retries=AT_ONCE)
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES ($1)", ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")

    async with app, app.worker():
        await (await sell.enqueue()).result(timeout=WAIT)

    assert await sales(url) == [3]


async def test_a_task_that_catches_an_error_of_the_block_ends_without_its_writes(app: App, url):
    @app.task
    async def sell(ctx: Context) -> None:
        try:
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO sale VALUES (1)")
                raise ValueError("no")
        except ValueError:
            pass

    async with app, app.worker():
        await (await sell.enqueue()).result(timeout=WAIT)

    assert await sales(url) == []


async def test_an_error_caught_inside_is_no_reason_to_run_for_ever(app: App, url):
    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1)")
            with suppress(asyncpg.DivisionByZeroError):
                await connection.execute("SELECT 1/0")

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="savepoint"):
            await (await sell.enqueue()).result(timeout=WAIT)

    assert await sales(url) == []


async def test_a_constraint_that_is_checked_at_the_commit_fails_the_attempt(app: App, url):
    async with user(url) as connection:
        await connection.execute(
            "ALTER TABLE sale ADD CONSTRAINT once UNIQUE (number) DEFERRABLE INITIALLY DEFERRED"
        )

    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1), (1)")

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="once"):
            await (await sell.enqueue()).result(timeout=WAIT)

    assert await sales(url) == []


async def test_an_error_at_the_commit_fails_the_attempt_and_keeps_its_log(app: App, url):
    async with user(url) as connection:
        await connection.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
            CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON sale
              DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
        """)

    @app.task(retries=1)
    async def sell(ctx: Context) -> None:
        ctx.log.warning("selling")
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1)")

    async with app, app.worker():
        handle = await sell.options(retries=0).enqueue()
        with pytest.raises(ExecutionFailed, match="not today"):
            await handle.result(timeout=WAIT)
        ended = await handle.execution()
        parts = await app.client().store.catalog.read_log("default", handle.id)

    assert (ended.failures, ended.attempt) == (1, 1)
    assert [line.message for part in parts for line in part.lines] == ["selling"]
    assert await sales(url) == []


async def test_what_it_has_shown_is_kept_with_the_end(app: App, url):
    @app.task
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1)")
        ctx.progress(100, "sold")
        ctx.checkpoint["number"] = 1

    async with app, app.worker():
        handle = await sell.enqueue()
        await handle.result(timeout=WAIT)
        ended = await handle.execution()

    assert (ended.progress, ended.note, ended.checkpoint) == (100.0, "sold", {"number": 1})


async def test_of_two_that_begin_at_once_one_is_refused(app: App, url):
    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        async def one(number: int) -> None:
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO sale VALUES ($1)", number)

        await asyncio.gather(one(1), one(2))

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="one transaction"):
            await (await sell.enqueue()).result(timeout=WAIT)
        # Other transactions of the worker are idle for a moment; an abandoned one would stay so.
        async with user(url) as connection, asyncio.timeout(WAIT):
            while await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                " AND datname = current_database()"
            ):
                pass
    assert await sales(url) == []


async def test_a_thread_with_a_loop_of_its_own_has_none(app: App, url):
    @app.task(retries=0)
    def sell(ctx: Context) -> None:
        async def inside() -> None:
            async with ctx.transaction():
                pass

        asyncio.run(inside())

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="for async tasks"):
            await (await sell.enqueue()).result(timeout=WAIT)


async def test_a_block_without_async_is_told_what_to_write(app: App, url):
    @app.task(retries=0)
    def sell(ctx: Context) -> None:
        with ctx.transaction():  # pyright: ignore
            pass

    @app.task(retries=0)
    async def give(ctx: Context) -> None:
        await ctx.transaction()  # pyright: ignore

    async with app, app.worker():
        for task in (sell, give):
            with pytest.raises(ExecutionFailed, match=r"write `async with ctx\.transaction"):
                await (await task.enqueue()).result(timeout=WAIT)


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
async def test_a_task_that_ends_the_transaction_itself_has_failed(app: App, url, word):
    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(word)

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="has ended the transaction itself"):
            await (await sell.enqueue()).result(timeout=WAIT)


async def test_one_transaction_for_each_execution(app: App, url):
    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        for number in (1, 2):
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO sale VALUES ($1)", number)

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="one transaction"):
            await (await sell.enqueue()).result(timeout=WAIT)

    assert await sales(url) == []


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
async def test_other_stores_say_that_they_have_none(store, tmp_path):
    app = App(store if store == "memory://" else f"sqlite:///{tmp_path / 'daybell.db'}")

    @app.task(retries=0)
    async def sell(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with app, app.worker():
        with pytest.raises(ExecutionFailed, match="needs a PostgreSQL store"):
            await (await sell.enqueue()).result(timeout=WAIT)


# `ctx.transaction()` of those who lost the execution meanwhile: they have written nothing.

END_LEASE = "UPDATE daybell.worker SET lease_until = 0 WHERE id = $1"


async def test_what_was_cancelled_meanwhile_has_written_nothing(app: App, url):
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES (1)")
        started.set()
        await go_on.wait()

    async with app, app.worker():
        handle = await sell.enqueue()
        await asyncio.wait_for(started.wait(), WAIT)
        await handle.cancel()
        go_on.set()  # long before the worker hears of it
        await eventually(handle.status, lambda status: status == State.CANCELLED)

    assert await sales(url) == []


async def test_a_worker_that_lost_its_lease_has_written_nothing(app: App, url):
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES ($1)", ctx.attempt)
        if ctx.attempt == 1:
            started.set()
            await go_on.wait()

    async with app, app.worker():
        handle = await sell.enqueue()
        await asyncio.wait_for(started.wait(), WAIT)
        async with user(url) as connection:

            async def look() -> Execution:
                # Without waiting for a lease; the worker may be about to renew it.
                await connection.execute(END_LEASE, first)
                return await handle.execution()

            first = await connection.fetchval("SELECT id FROM daybell.worker")
            reaped = await eventually(look, lambda found: found.attempt == 2)
        assert reaped.crashes == 1
        go_on.set()
        await handle.result(timeout=WAIT)

    assert await sales(url) == [2]


async def test_a_connection_that_breaks_at_the_commit_leads_to_another_attempt(app: App, url):
    @app.task
    async def sell(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES ($1)", ctx.attempt)
            if ctx.attempt == 1:
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                async with user(url) as other:
                    await other.execute("SELECT pg_terminate_backend($1)", pid)

    async with app, app.worker():
        handle = await sell.enqueue()
        await handle.result(timeout=WAIT)
        assert (await handle.execution()).failures == 0

    assert await sales(url) == [2]


WORKER = """
import asyncio, sys
from daybell import App, Context

app = App(sys.argv[1])

@app.task(retries=50, max_crashes=50)
async def sell(ctx: Context, number: int) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO sale VALUES ($1)", number)
        await connection.execute("SELECT pg_sleep(0.02)")

async def main():
    async with app, app.worker(concurrency=4):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_thousand_writes_while_workers_are_killed_are_a_thousand_rows(url, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    app = App(url)

    @app.task(retries=50, max_crashes=50)
    async def sell(ctx: Context, number: int) -> None: ...

    async with app, workers(script, url) as crew:
        store = (await app.open()).store

        async def reach(count: int) -> None:
            is_there = False
            while not is_there:
                counts = await store.catalog.count_executions(
                    "default", ExecutionFilter(job="sell")
                )
                is_there = counts.get(State.SUCCEEDED, 0) >= count
                await asyncio.sleep(0.01)

        for first in range(0, 1000, 200):
            await sell.enqueue_many([{"number": first + number} for number in range(200)])
            # However fast they are: whoever is killed has some of these in its hands.
            await reach(first + 1)
            await crew.kill_one()
            await reach(first + 200)

    assert await sales(url) == list(range(1000))
    async with user(url) as connection:
        assert await connection.fetchval("SELECT sum(crashes) FROM daybell.history") > 0


FREEZING = """
import asyncio, os, signal, sys
from daybell import App, Context

app = App(sys.argv[1])

@app.task
async def sell(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO sale VALUES ($1)", 7)
        os.kill(os.getpid(), signal.SIGSTOP)

async def main():
    async with app, app.worker():
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_worker_that_is_frozen_in_its_transaction_does_not_keep_the_next_attempt_waiting(
    url, tmp_path, monkeypatch
):
    monkeypatch.setenv("DAYBELL_LEASE", "1s")
    script = tmp_path / "worker.py"
    script.write_text(FREEZING)
    app = App(url)

    @app.task
    async def sell(ctx: Context) -> int:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO sale VALUES ($1)", 7)
        return ctx.attempt

    async with app, user(url) as connection, freezing(script, url) as frozen:
        await connection.execute("CREATE UNIQUE INDEX ON sale (number)")
        handle = await sell.enqueue()
        await eventually(frozen.state, lambda state: state == "T")

        async with app.worker():
            assert await handle.result(timeout=WAIT) == 2
            frozen.wake()
            # It begins anew, under another id, and has nothing to say about the old one.
            query = "SELECT count(DISTINCT id) FROM daybell.worker WHERE pid = $1"
            await eventually(
                lambda: connection.fetchval(query, frozen.pid), lambda count: count == 2
            )
            assert (await handle.execution()).attempt == 2

    assert await sales(url) == [7]


class Frozen:
    """A worker process that stops itself."""

    def __init__(self, process):
        self._process = process
        self.pid = process.pid

    async def state(self):
        """What the system says of the process; T is stopped."""
        return self._read().rpartition(")")[2].split()[0]

    def _read(self):
        return Path(f"/proc/{self.pid}/stat").read_text()

    def wake(self):
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def freezing(script, url):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), WAIT)
        yield Frozen(process)
    finally:
        process.kill()
        await process.wait()


class Crew:
    """Worker processes; one that is killed is followed by another."""

    def __init__(self, script, url):
        self._command = sys.executable, str(script), url
        self._crew = []

    async def hire(self):
        environment = {**os.environ, "DAYBELL_LEASE": "1s"}
        worker = await asyncio.create_subprocess_exec(
            *self._command, env=environment, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdout is not None
        await asyncio.wait_for(worker.stdout.readline(), WAIT)
        self._crew.append(worker)

    async def kill_one(self):
        worker = self._crew.pop(0)
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
        await self.hire()

    async def end(self):
        for worker in self._crew:
            worker.kill()
            await worker.wait()


@asynccontextmanager
async def workers(script, url):
    crew = Crew(script, url)
    try:
        for _ in range(2):
            await crew.hire()
        yield crew
    finally:
        await crew.end()

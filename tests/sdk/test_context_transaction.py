"""`ctx.transaction()`: what a task writes and its end are one commit, or neither is."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg
import pytest

from daybell import App, Context, ExecutionFailed, Retry
from daybell.core.worker import LEASE_SECONDS
from tests.sdk.shop import a_shop, sales, user
from tests.sdk.waiting import WAIT
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
        parts = await app.client().store.read_log("default", handle.id)

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

    assert (ended.progress, ended.note, ended.checkpoint) == (100.0, "sold", '{"number":1}')


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

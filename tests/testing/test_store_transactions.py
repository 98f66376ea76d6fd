"""`ctx.transaction()` on a bench: real writes, and an end that is kept in memory."""

from __future__ import annotations

from contextlib import suppress

import asyncpg
import pytest

from daybell import App, Context, Retry, UsageError
from daybell.testing import Bench, context
from tests.sdk.shop import a_shop, sales, user
from tests.stores import POSTGRES

app = App()


@app.task(retries=Retry.fixed("10s", retries=1))
async def sell(ctx: Context, number: int, fails: bool = False) -> str:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO sale VALUES ($1)", number)
    if fails and ctx.failures == 0:
        raise ValueError("sold out")
    return "sold"


@app.task
async def break_it(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        with suppress(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1 / 0")


@app.task
async def sell_and_cancel(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO sale VALUES (1)")
    await (await app.open()).cancel(ctx.id)


async def numbers(connection) -> list[int]:
    return [row["number"] for row in await connection.fetch("SELECT * FROM sale ORDER BY 1")]


@pytest.fixture(params=list(POSTGRES.values())[:1])
async def url(request, servers):
    async with a_shop(servers, request.param) as url:
        yield url


@pytest.mark.postgres
async def test_a_test_sees_what_a_task_writes_and_can_undo_it(url):
    async with user(url) as connection:
        outer = connection.transaction()
        await outer.start()

        async with Bench(app, connection=connection) as bench:
            assert await bench.run(sell, 7) == "sold"

            assert await numbers(connection) == [7]
            assert await sales(url) == []  # for all others, it is not committed
        await outer.rollback()

        assert await numbers(connection) == []


@pytest.mark.postgres
async def test_a_failed_attempt_leaves_nothing_and_the_next_one_writes(url):
    async with user(url) as connection, connection.transaction():
        await connection.execute("INSERT INTO sale VALUES (1)")
        async with Bench(app, connection=connection) as bench:
            await sell.enqueue(7, fails=True)

            (run,) = await bench.run_due()
            assert (run.state, await numbers(connection)) == ("retrying", [1])

            (run,) = await bench.advance("10s")
            assert (run.state, await numbers(connection)) == ("succeeded", [1, 7])


@pytest.mark.postgres
async def test_a_connection_without_a_transaction_commits_with_each_end(url):
    async with user(url) as connection, Bench(app, connection=connection) as bench:
        await bench.run(sell, 7)

        assert await sales(url) == [7]
        assert not connection.is_in_transaction()


@pytest.mark.postgres
def test_a_url_is_for_tests_without_an_event_loop(url_without_loop):
    url, read = url_without_loop
    with Bench(app, connection=url) as bench:
        assert bench.sync.run(sell, 7) == "sold"

    assert read() == [7]


@pytest.fixture
def url_without_loop(servers):
    import asyncio

    with asyncio.Runner() as runner:
        shop = a_shop(servers, next(iter(POSTGRES.values())))
        url = runner.run(shop.__aenter__())
        yield url, lambda: runner.run(sales(url))
        runner.run(shop.__aexit__(None, None, None))


@pytest.mark.postgres
async def test_what_a_task_has_broken_or_cancelled_is_undone(url):
    async with user(url) as connection, connection.transaction():  # noqa: SIM117
        async with Bench(app, connection=connection) as bench:
            await break_it.options(retries=0).enqueue()
            (run,) = await bench.run_due()
            assert run.state == "dead"
            assert "put what may fail into a savepoint" in (run.execution.error or "")

            await sell_and_cancel.enqueue()
            await bench.run_due()

            assert bench.executions(sell_and_cancel)[0].state == "cancelled"
            assert await numbers(connection) == []


async def test_a_bench_without_a_connection_says_how_to_give_one():
    async with Bench(app) as bench:
        with pytest.raises(UsageError, match=r"Bench\(app, connection=…\), with an asyncpg"):
            await bench.run(sell, 7)


@pytest.mark.parametrize("given", [5, "sqlite:///file.db", object()])
def test_what_is_no_connection_is_refused(given):
    with pytest.raises(UsageError, match="connection"):
        Bench(app, connection=given)
    with pytest.raises(UsageError, match="connection"):
        context(connection=given)


@pytest.mark.postgres
async def test_a_context_writes_to_the_connection_of_the_test(url):
    async with user(url) as connection, connection.transaction():
        ctx = context(connection=connection)
        assert await sell(ctx, 7) == "sold"
        assert await numbers(connection) == [7]

        with pytest.raises(ZeroDivisionError):
            async with ctx.transaction():
                await connection.execute("INSERT INTO sale VALUES (8)")
                _ = 1 / 0
        assert await numbers(connection) == [7]

    with pytest.raises(UsageError, match=r"testing.context\(connection=…\)"):
        await sell(context(), 7)

"""Several durable calls at once, of which perhaps one waits or fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daybell import (
    App,
    Context,
    Retry,
)
from daybell.core.execution import Outcome, State
from daybell.testing import Bench

AT_ONCE = Retry.fixed(0, jitter=0)


async def test_several_steps_at_once_each_have_a_place(app: App, bench: Bench, done):
    async def fetch(n: int) -> int:
        for _ in range(10 - n):  # the last begun ends first
            await asyncio.sleep(0)
        done.append(n)
        return n

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step("fetch", fetch, n) for n in range(5)))
        if ctx.attempt == 1:
            raise ValueError
        async with asyncio.TaskGroup() as group:
            last = group.create_task(ctx.step("last", fetch, 5))
        return [*found, last.result()]

    await order.enqueue()
    runs = await bench.run_due()

    assert runs[-1].result == [0, 1, 2, 3, 4, 5]
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("at_once", ["gather", "group"])
async def test_what_is_at_work_beside_a_sleep_comes_to_its_end(
    app: App, bench: Bench, done, at_once
):
    may_end = asyncio.Event()

    async def slow(n: int) -> int:
        await may_end.wait()
        done.append(n)
        return n

    async def branch(ctx: Context) -> int:
        return await ctx.step("one", slow, 1) + await ctx.step("two", slow, 2)

    @app.task(retries=0)
    async def order(ctx: Context) -> int:
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        if at_once == "gather":
            _, total, _ = await asyncio.gather(ctx.sleep("1d"), branch(ctx), ctx.sleep("2d"))
            return total
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(one) for one in (ctx.sleep("1d"), branch(ctx))]
        return work[1].result()

    handle = await order.enqueue()
    await bench.run_due()
    assert done == [1, 2]
    await bench.advance("1d")
    await bench.advance("1d")

    assert await handle.result() == 3
    assert done == [1, 2]


async def sound(done: list[Any]) -> None:
    done.append("sound")


@pytest.fixture
def flaky(done: list[Any]):
    async def flaky() -> str:
        done.append("flaky")
        for _ in range(50):  # others come to their end first
            await asyncio.sleep(0)
        if done.count("flaky") == 1:
            raise ValueError("no")
        return "at last"

    return flaky


async def test_one_of_several_that_failed_is_run_again_by_the_next_attempt(
    app: App, bench: Bench, done, flaky
):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> str:
        text, _ = await asyncio.gather(ctx.step("flaky", flaky), ctx.step("sound", sound, done))
        return text

    await order.enqueue()
    runs = await bench.run_due()

    assert [run.outcome for run in runs] == [Outcome.FAILED, Outcome.SUCCEEDED]
    assert runs[-1].result == "at last"
    assert sorted(done) == ["flaky", "flaky", "sound"]


async def test_what_was_built_upon_an_error_of_one_of_several_stays(
    app: App, bench: Bench, done, flaky
):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> str:
        steps = ctx.step("flaky", flaky), ctx.step("sound", sound, done)
        error, _ = await asyncio.gather(*steps, return_exceptions=True)
        await ctx.step("undo", done.append, "undo")
        await ctx.sleep("1h")
        return str(error)

    handle = await order.enqueue()
    await bench.advance("1h")

    assert await handle.result() == "no"
    assert sorted(done) == ["flaky", "sound", "undo"]


async def test_an_error_beside_a_sleep_is_the_attempts_own_however_long_it_is_dealt_with(
    app: App, bench: Bench, done, flaky
):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> str:
        try:
            text, _ = await asyncio.gather(ctx.step("flaky", flaky), ctx.sleep("1h"))
        except ValueError:
            for _ in range(50):  # as who tells somebody over the network
                await asyncio.sleep(0)
            raise
        return text

    handle = await order.enqueue()
    runs = await bench.run_due()

    assert runs[0].outcome is Outcome.FAILED and isinstance(runs[0].error, ValueError)
    await bench.advance("1h")
    assert await handle.result() == "at last"
    assert done == ["flaky", "flaky"]


async def test_an_error_that_stands_for_a_suspension_is_found_out(app: App, bench: Bench):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        try:
            await ctx.sleep("1h")
        except BaseException as error:
            raise ValueError("what was that?") from error

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD
    assert "has suspended the execution" in str(run.error)


@pytest.mark.parametrize("turns", range(8))
async def test_an_error_beside_a_sleep_is_dealt_with_at_once_in_a_group(
    app: App, bench: Bench, done, turns
):
    async def fails() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ValueError("no")

    @app.task
    async def order(ctx: Context) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("fails", fails))
                group.create_task(ctx.sleep("1h"))
        except* ValueError:
            await ctx.step("undo", sound, done)
        return "undone"

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.result == "undone" and done == ["sound"]

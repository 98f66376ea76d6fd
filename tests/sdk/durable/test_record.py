"""Durable functions: what is done once stays done, whatever happens in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from daybell import (
    App,
    Context,
    Retry,
)
from daybell.core.execution import Outcome, State
from daybell.testing import Bench

AT_ONCE = Retry.fixed(0, jitter=0)


@dataclass
class Receipt:
    order: int
    at: datetime


async def test_a_step_is_run_once_and_its_result_is_there_after_a_failure(
    app: App, bench: Bench, done
):
    def charge(order: int, *, cents: int) -> dict[str, int]:
        done.append(order)
        return {"order": order, "cents": cents}

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> dict[str, int]:
        receipt = await ctx.step("charge", charge, 7, cents=100)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return receipt

    await order.enqueue()
    runs = await bench.run_due()

    assert done == [7]
    assert [run.attempt for run in runs] == [1, 2, 3]
    assert runs[-1].result == {"order": 7, "cents": 100}


async def test_functions_of_all_kinds_are_steps_of_tasks_of_all_kinds(app: App, bench: Bench, done):
    def plain(n: int) -> int:
        done.append(n)
        return n

    async def coroutine(n: int) -> int:
        await asyncio.sleep(0)
        return plain(n)

    @app.task
    async def task(n: int) -> int:
        return plain(n)

    def steps() -> list[tuple[str, Any, int]]:
        return [
            ("a", plain, 1),
            ("b", coroutine, 2),
            ("c", lambda n: coroutine(n), 3),
            ("d", task, 4),
        ]

    @app.task
    async def on_the_loop(ctx: Context) -> list[int]:
        return [await ctx.step(name, function, n) for name, function, n in steps()]

    @app.task
    def in_a_thread(ctx: Context) -> list[int]:
        return [ctx.step(name, function, n) for name, function, n in steps()]  # type: ignore[return-value]

    @app.task
    def on_a_loop_of_its_own(ctx: Context) -> list[int]:
        async def whole() -> list[int]:
            return [await ctx.step(name, function, n) for name, function, n in steps()]

        return asyncio.run(whole())

    for one in (on_the_loop, in_a_thread, on_a_loop_of_its_own):
        assert await bench.run(one) == [1, 2, 3, 4]
    assert done == 3 * [1, 2, 3, 4]


async def test_a_result_is_what_its_annotation_says_now_and_after_a_crash(
    app: App, bench: Bench, done
):
    now = datetime(2030, 1, 1, tzinfo=UTC)

    def typed() -> Receipt:
        return Receipt(1, now)

    def untyped():
        return (1, now)

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        done.append([await ctx.step("typed", typed), await ctx.step("untyped", untyped)])
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.run_due()

    assert done == 2 * [[Receipt(1, now), [1, "2030-01-01T00:00:00Z"]]]


async def test_a_sleep_holds_no_worker_and_goes_on_where_it_was(app: App, bench: Bench, done):
    @app.task(retries=0)
    async def order(ctx: Context) -> str:
        done.append(await ctx.step("first", lambda: "first"))
        await ctx.sleep("3d")
        done.append(await ctx.step("second", lambda: "second"))
        await ctx.sleep_until(bench_start + timedelta(days=10))
        return "end"

    bench_start = bench.now
    handle = await order.enqueue()
    (run,) = await bench.run_due()
    asleep = await handle.execution()

    assert (run.state, run.outcome, run.error) == (State.SCHEDULED, Outcome.RELEASED, None)
    assert asleep.worker_id is None and asleep.failures == 0
    assert asleep.run_at == bench.now + timedelta(days=3)
    assert await bench.advance("2d23h") == []

    runs = await bench.advance("1h")
    assert [run.state for run in runs] == [State.SCHEDULED]
    assert done == ["first", "first", "second"]

    await bench.advance("7d")
    assert await handle.result() == "end"
    assert bench.now == bench_start + timedelta(days=10)


async def test_who_is_woken_too_early_goes_back_to_sleep(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep("3d"), ctx.sleep("1d"))

    await order.enqueue()
    runs = await bench.advance("3d")

    times = [run.execution.run_at - runs[0].execution.created_at for run in runs]
    assert [run.state for run in runs] == [State.SCHEDULED, State.SCHEDULED, State.SUCCEEDED]
    assert times[:2] == [86_400, 3 * 86_400]


async def test_time_and_chance_are_the_same_again(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    async def order(ctx: Context) -> None:
        seen = [ctx.now(), ctx.random(), ctx.random()]
        await ctx.step("keep", lambda: None)
        seen.append(ctx.now())
        await ctx.step("keep", lambda: None)
        done.append(seen)
        if ctx.attempt < 3:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert len(done) == 3 and done[0] == done[1] == done[2]
    first, chance, other, second = done[0]
    assert first == second == datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert 0 <= chance < 1 and chance != other


async def test_time_that_nothing_was_built_upon_is_told_anew(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    async def order(ctx: Context) -> None:
        done.append(ctx.now())
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert done[1] - done[0] == timedelta(hours=1)


async def test_time_is_the_same_again_in_a_thread(app: App, bench: Bench, done):
    @app.task(retries=Retry.fixed("1h", jitter=0))
    def order(ctx: Context) -> None:
        done.append((ctx.now(), ctx.random()))
        ctx.step("keep", lambda: None)
        if ctx.attempt == 1:
            raise ValueError

    await order.enqueue()
    await bench.advance("1d")

    assert len(done) == 2 and done[0] == done[1]


async def test_a_checkpoint_outlives_a_sleep(app: App, bench: Bench, done):
    @app.task
    async def order(ctx: Context) -> None:
        done.append(dict(ctx.checkpoint))
        ctx.checkpoint["attempt"] = ctx.attempt
        await ctx.sleep("1d")
        await ctx.wait_for_event("go")

    handle = await order.enqueue()
    await bench.advance("1d")
    await app.publish("go")
    await bench.run_due()

    assert await handle.status() is State.SUCCEEDED
    assert done == [{}, {"attempt": 1}, {"attempt": 2}]

"""What cannot work in a durable function is said, with a way out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

import pytest

from daybell import (
    App,
    Context,
    PermanentError,
    Retry,
    StepsChanged,
    Suspended,
    UsageError,
)
from daybell.core.execution import State
from daybell.testing import Bench

AT_ONCE = Retry.fixed(0, jitter=0)


async def test_code_that_goes_on_after_a_suspension_is_told_so(app: App, bench: Bench, done):
    @app.task(retries=3)
    async def returns(ctx: Context) -> str:
        with suppress(BaseException):
            await ctx.sleep("1d")
        return "slept?"

    @app.task(retries=3)
    async def raises(ctx: Context) -> None:
        try:
            await ctx.sleep("1d")
        except Suspended:
            raise ValueError("mine") from None

    await returns.enqueue()
    await raises.enqueue()
    runs = await bench.run_due()

    assert [run.state for run in runs] == [State.DEAD, State.DEAD]
    for run in runs:
        assert "sleep 'sleep' has suspended the execution, and its code went on" in str(run.error)


async def test_code_may_clean_up_on_its_way_out(app: App, bench: Bench, done):
    @app.task(retries=0)
    async def order(ctx: Context) -> None:
        try:
            await ctx.sleep("1d")
        finally:
            done.append("out")
            await ctx.step("release", done.append, "released")

    handle = await order.enqueue()
    await bench.run_due()
    assert done == ["out"]
    await bench.advance("1d")

    await handle.result()
    assert done == ["out", "out", "released"]


async def test_a_call_that_is_not_awaited_is_missed(app: App, bench: Bench):
    @app.task(retries=3)
    async def order(ctx: Context) -> None:
        ctx.step("forgotten", lambda: None).close()

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD
    assert "step 'forgotten' (call 1) was begun and its end was not waited for" in str(run.error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("name", "step 'two' is on record as its call 2, but the code does step 'zwei' there now"),
        ("kind", "step 'two' is on record as its call 2, but the code does sleep 'two' there now"),
        ("gone", "step 'two' is on record as its call 2, but the function returns before it"),
        ("order", "step 'one' is on record as its call 1, but the code does step 'two' there now"),
    ],
)
async def test_code_that_was_changed_between_attempts_is_found_out(
    app: App, bench: Bench, change, said
):
    def nothing() -> None: ...

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        names = ["one", "two"]
        if ctx.attempt == 1:
            for name in names:
                await ctx.step(name, nothing)
            raise ValueError
        if change == "order":
            names.reverse()
        await ctx.step(names[0], nothing)
        if change == "name":
            await ctx.step("zwei", nothing)
        if change == "kind":
            await ctx.sleep("1d", name="two")

    await order.enqueue()
    runs = await bench.run_due()

    assert isinstance(runs[-1].error, StepsChanged) and runs[-1].state is State.DEAD
    assert said in str(
        runs[-1].error
    ) and "put the code back that it began with, and retry it" in str(runs[-1].error)


async def test_what_makes_no_sense_is_refused_with_a_way_out(app: App, bench: Bench):
    async def inner(ctx: Context) -> None:
        await ctx.step("inner", print)

    refused: list[str] = []

    @app.task(retries=0)
    async def order(ctx: Context) -> None:
        for call in (
            lambda: ctx.step("outer", inner, ctx),
            lambda: ctx.step("called", inner(ctx)),  # type: ignore[arg-type]
            lambda: ctx.step("", print),
            lambda: ctx.sleep("soon"),
            lambda: ctx.sleep_until("tomorrow"),
            lambda: ctx.wait_for_event("x", match={"a": [1]}),
            lambda: ctx.wait_for_event("x", timeout=0),
            lambda: ctx.wait_for_event("x", match=["a"]),  # type: ignore[arg-type]
            lambda: ctx.step("unkept", object),
        ):
            try:
                await call()
            except UsageError as error:
                refused.append(str(error))

    await order.enqueue()
    await bench.run_due()

    wanted = [
        "inside of step 'outer'",
        "is given a function and its arguments",
        "step",
        "a duration is",
        "is not a time",
        "match compares plain values",
        "no time at all",
        "match is a dictionary",
        "the result of step 'unkept': cannot be stored as JSON: object",
    ]
    assert len(refused) == len(wanted)
    for said, part in zip(refused, wanted, strict=True):
        assert part in said


async def test_results_of_all_steps_together_have_a_limit(
    app: App, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("daybell.sdk.durable.STEPS_CHARS_MAX", 10)

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("first", lambda: "12345")
        await ctx.sleep("1h")
        await ctx.step("second", lambda: "67890")

    await order.enqueue()
    await bench.run_due()
    (run,) = await bench.advance("1h")

    assert run.state is State.DEAD and "the limit is 10" in str(run.error)
    assert "with the result of step 'second', those of all steps" in str(run.error)


async def test_run_says_that_one_attempt_is_not_enough(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.sleep("3d")

    with pytest.raises(UsageError, match=r"scheduled, due in 3d.*advance"):
        await bench.run(order)


MISUSES = {
    "step in a step": lambda ctx: ctx.step("outer", lambda: ctx.step("inner", print)),
    "time in a step": lambda ctx: ctx.step("outer", ctx.now),
    "a transaction in a step": lambda ctx: ctx.step("outer", ctx.transaction),
    "a value as a step": lambda ctx: ctx.step("called", 42),
    "no name": lambda ctx: ctx.step("", print),
    "no retries": lambda ctx: ctx.step("step", print, retries="often"),
    "no result": lambda ctx: ctx.step("step", object),
    "no duration": lambda ctx: ctx.sleep("soon"),
    "a sleep without a name": lambda ctx: ctx.sleep(1, name=""),
    "a time without a zone": lambda ctx: ctx.sleep_until(datetime(2026, 1, 1)),  # noqa: DTZ001
    "an event without a name": lambda ctx: ctx.wait_for_event(""),
    "a list in match": lambda ctx: ctx.wait_for_event("x", match={"a": [1]}),
    "no match": lambda ctx: ctx.wait_for_event("x", match=42),
    "no time to wait": lambda ctx: ctx.wait_for_event("x", timeout=0),
    "an approval without a name": lambda ctx: ctx.wait_for_approval(""),
    "no time to approve": lambda ctx: ctx.wait_for_approval(timeout="soon"),
}


@pytest.mark.parametrize("call", MISUSES.values(), ids=MISUSES)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_mistake_in_the_code_is_not_tried_again(app: App, bench: Bench, call, is_async):
    async def wait_for_dependencies(ctx: Context) -> None:
        await call(ctx)

    def blocks(ctx: Context) -> None:
        call(ctx)

    task = app.task(name="order", retries=AT_ONCE)(wait_for_dependencies if is_async else blocks)
    await task.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD and isinstance(run.error, UsageError)


@pytest.mark.parametrize("error", [None, PermanentError("never")], ids=["misuse", "permanent"])
async def test_one_such_mistake_of_several_calls_is_enough(app: App, bench: Bench, error):
    async def fails(ctx: Context) -> None:
        if error is not None:
            raise error
        await ctx.sleep("soon")

    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(ctx))

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD and isinstance(run.error, ExceptionGroup)


async def test_a_step_with_such_a_mistake_is_not_tried_again_either(app: App, bench: Bench, done):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> None:
        async def outer() -> None:
            done.append("outer")
            await ctx.sleep("1h")

        await ctx.step("outer", outer, retries=AT_ONCE)

    await order.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.DEAD and done == ["outer"]


async def test_a_mistake_that_was_caught_is_forgiven(app: App, bench: Bench):
    @app.task(retries=AT_ONCE)
    async def order(ctx: Context) -> str:
        with suppress(UsageError):
            await ctx.sleep("soon")
        if ctx.attempt == 1:
            raise ValueError("something else")
        return "done"

    handle = await order.enqueue()
    await bench.run_due()

    assert await handle.result() == "done"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_what_a_steps_own_function_is_refused_is_tried_again(
    app: App, bench: Bench, is_async
):
    def asks() -> None:
        raise UsageError("no job of this name yet")

    async def wait_for_dependencies(ctx: Context) -> None:
        await ctx.step("ask", asks)

    def blocks(ctx: Context) -> None:
        ctx.step("ask", asks)

    task = app.task(name="order", retries=Retry.fixed("1h", retries=2))(
        wait_for_dependencies if is_async else blocks
    )
    await task.enqueue()
    (run,) = await bench.run_due()

    assert run.state is State.RETRYING


async def test_what_cannot_be_read_is_called_as_it_was_written(app: App, bench: Bench):
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.sleep("soon")

    await order.enqueue()
    (run,) = await bench.run_due()

    assert str(run.error).startswith("sleep 'soon' cannot be read; a duration is")

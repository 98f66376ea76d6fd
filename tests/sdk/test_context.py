"""The context: what a running task can say and ask."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

import daybell
from daybell import App, Context, ExecutionFailed, Retry, RetryLater, UsageError
from daybell.core.execution import State
from daybell.runners.python import Interrupted
from daybell.sdk.context import context_names
from tests.engine.virtual import until
from tests.sdk.waiting import WAIT, eventually

if TYPE_CHECKING:
    from somewhere import Nothing  # type: ignore[import-not-found]

    from daybell.sdk.context import Context as OnlyForTypes

AT_ONCE = Retry.fixed(0, jitter=0)


async def test_progress_is_shown_while_it_runs(app: App, short_lease):
    may_end = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(50, "half\0way")
        await may_end.wait()

    async with app, app.worker():
        handle = await work.enqueue()
        execution = await eventually(handle.execution, lambda found: found.progress is not None)
        may_end.set()
        await handle.result(timeout=WAIT)

    assert (execution.progress, execution.note) == (50.0, "half way")


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
async def test_progress_is_a_percentage(app: App, percent):
    @app.task(retries=0)
    async def work(ctx: Context, percent: float | None) -> None:
        ctx.progress(float("nan") if percent is None else percent)

    async with app, app.worker():
        handle = await work.enqueue(None if percent != percent else percent)
        with pytest.raises(ExecutionFailed, match="must be a number from 0 to 100"):
            await handle.result(timeout=WAIT)


async def test_a_checkpoint_survives_a_failed_attempt(app: App):
    seen = []

    @app.task(retries=AT_ONCE)
    async def work(ctx: Context) -> int:
        seen.append((ctx.attempt, ctx.failures, dict(ctx.checkpoint)))
        ctx.checkpoint["offset"] = 100 * ctx.attempt
        ctx.checkpoint["gone"] = True
        del ctx.checkpoint["gone"]
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.checkpoint["offset"]

    async with app, app.worker():
        assert await (await work.enqueue()).result(timeout=WAIT) == 300

    assert seen == [(1, 0, {}), (2, 1, {"offset": 100}), (3, 2, {"offset": 200})]


async def test_a_checkpoint_survives_being_put_off_and_that_is_no_failure(app: App):
    seen = []

    @app.task(retries=0)
    def work(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.failures, ctx.checkpoint.get("page")))
        if ctx.attempt == 1:
            ctx.checkpoint["page"] = 7
            raise RetryLater("busy", delay=0)

    async with app, app.worker():
        await (await work.enqueue()).result(timeout=WAIT)

    assert seen == [(1, 0, None), (2, 0, 7)]


async def test_a_checkpoint_holds_only_what_json_can(app: App):
    @app.task
    async def work(ctx: Context) -> list[str]:
        said = []
        for key, value in ((1, "a"), ("a", object())):
            try:
                ctx.checkpoint[key] = value  # type: ignore[index]
            except UsageError as error:
                said.append(str(error))
        with pytest.raises(KeyError):
            del ctx.checkpoint["missing"]
        assert len(ctx.checkpoint) == 0
        return said

    async with app, app.worker():
        first, second = await (await work.enqueue()).result(timeout=WAIT)

    assert "keys are text" in first
    assert "checkpoint.a: cannot be stored as JSON: object" in second


async def test_the_context_says_who_runs(app: App, caplog):
    @app.task(name="reports.daily")
    async def work(ctx: Context) -> list[str | None]:
        ctx.log.warning("hello from %s", ctx.job)
        return [str(ctx.id), ctx.job, None if ctx.scheduled_for is None else "at"]

    with caplog.at_level(logging.WARNING):
        async with app, app.worker():
            handle = await work.enqueue()
            assert await handle.result(timeout=WAIT) == [str(handle.id), "reports.daily", None]

    assert ("daybell.task.reports.daily", logging.WARNING, "hello from reports.daily") in (
        caplog.record_tuples
    )


async def test_a_cancelled_coroutine_is_told(app: App, short_lease):
    running, seen = asyncio.Event(), []

    @app.task
    async def endless(ctx: Context) -> None:
        seen.append(ctx.is_cancelled)
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.is_cancelled)

    async with app, app.worker():
        handle = await endless.enqueue()
        await until(running.is_set, within=WAIT)
        await handle.cancel()
        with pytest.raises(ExecutionFailed, match="is cancelled"):
            await handle.result(timeout=WAIT)

    assert seen == [False, True]


@pytest.mark.parametrize("watches", [True, False])
async def test_a_cancelled_thread_is_told(app: App, short_lease, watches):
    running, seen = threading.Event(), []

    @app.task
    def endless(ctx: Context) -> None:
        running.set()
        try:
            while not (watches and ctx.is_cancelled):
                threading.Event().wait(0.001)
            seen.append("ended")
        except Interrupted:
            seen.append("interrupted")
            raise
        finally:
            seen.append(ctx.is_cancelled)

    async with app, app.worker():
        handle = await endless.enqueue()
        await until(running.is_set, within=WAIT)
        await handle.cancel()
        await eventually(handle.status, lambda state: state is not State.RUNNING)
        assert await handle.status() == "cancelled"

    assert seen == ["ended" if watches else "interrupted", True]


async def test_a_blocking_step_of_a_coroutine_is_told_that_it_is_cancelled(app: App, short_lease):
    running, seen = threading.Event(), []

    @app.task
    async def endless(ctx: Context) -> None:
        def poll() -> None:
            running.set()
            while not ctx.is_cancelled:
                threading.Event().wait(0.001)
            seen.append("ended")

        await ctx.step("poll", poll)

    async with app, app.worker():
        handle = await endless.enqueue()
        await until(running.is_set, within=WAIT)
        await handle.cancel()
        await eventually(handle.status, lambda state: state is not State.RUNNING)

    assert seen == ["ended"]


def by_annotation(context: Context, number: int): ...
def by_name(ctx, number): ...
def by_both(ctx: Context): ...
def optional(number: int, ctx: Context | None = None): ...
def in_full(c: daybell.Context): ...
def only_for_the_type_checker(ctx: OnlyForTypes): ...
def beside_what_does_not_resolve(context: Context, other: Nothing): ...
def a_name_that_is_taken(ctx: int): ...
def neither(number: int, other: Nothing): ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (by_annotation, {"context"}),
        (by_name, {"ctx"}),
        (by_both, {"ctx"}),
        (optional, {"ctx"}),
        (in_full, {"c"}),
        (only_for_the_type_checker, {"ctx"}),
        (beside_what_does_not_resolve, {"context"}),
        (a_name_that_is_taken, set()),
        (neither, set()),
    ],
)
def test_a_parameter_for_the_context_is_found(function, names):
    assert context_names(function) == names


async def test_the_context_is_the_workers_to_give(app: App):
    task = app.task(by_annotation)

    with pytest.raises(UsageError, match="'context' is filled by the worker; leave it out"):
        await task.enqueue(context=1, number=2)  # type: ignore[call-arg]

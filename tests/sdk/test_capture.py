"""What tasks print and log is kept with the execution that said it."""

# ruff: noqa: T201

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading

import pytest

from daybell import App, Context, ExecutionFailed
from daybell.sdk.capture import Tee, capture_output
from tests.sdk.waiting import WAIT

shop = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def informed():
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


async def log_of(app: App, handle) -> list[tuple[str, str, str]]:
    client = await app.open()
    parts = await client.store.catalog.read_log("default", handle.id)
    return [(line.level, line.source, line.message) for part in parts for line in part.lines]


async def test_prints_and_records_of_coroutines_and_threads_are_kept_in_order(app: App):
    @app.task
    async def on_the_loop(ctx: Context) -> None:
        print("printed")
        shop.info("logged %d", 1)
        ctx.log.warning("through the context")
        print("to stderr", file=sys.stderr)
        shop.debug("too small")

    @app.task
    def in_a_thread() -> None:
        print("one", end="")
        print("two")
        shop.error("logged")

    async with app, app.worker():
        async_handle, sync_handle = await on_the_loop.enqueue(), await in_a_thread.enqueue()
        await async_handle.result(timeout=WAIT)
        await sync_handle.result(timeout=WAIT)
        assert await log_of(app, async_handle) == [
            ("stdout", "", "printed"),
            ("info", "shop", "logged 1"),
            ("warning", "daybell.task.on_the_loop", "through the context"),
            ("stderr", "", "to stderr"),
        ]
        assert await log_of(app, sync_handle) == [
            ("stdout", "", "onetwo"),
            ("error", "shop", "logged"),
        ]


async def test_what_several_say_at_once_is_not_mixed_up(app: App):
    barrier = threading.Barrier(4)

    @app.task
    def talk(name: str) -> None:
        for number in range(20):
            barrier.wait(WAIT)
            print(f"{name} {number}")

    async with app, app.worker():
        handles = [await talk.enqueue(name) for name in "abcd"]
        for name, handle in zip("abcd", handles, strict=True):
            await handle.result(timeout=WAIT)
            messages = [message for _, _, message in await log_of(app, handle)]
            assert messages == [f"{name} {number}" for number in range(20)]


async def test_a_traceback_that_is_logged_is_kept(app: App):
    @app.task
    async def work() -> None:
        try:
            raise ValueError("no money")
        except ValueError:
            shop.exception("cannot pay")

    async with app, app.worker():
        handle = await work.enqueue()
        await handle.result(timeout=WAIT)
        [(level, _, message)] = await log_of(app, handle)
    assert level == "error"
    assert message.startswith("cannot pay\nTraceback")
    assert message.endswith("ValueError: no money")


async def test_a_record_that_cannot_be_formatted_is_kept_as_far_as_possible(app: App, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    @app.task
    async def work() -> None:
        shop.info("%d items", "many")
        shop.info("%s", Unprintable())

    async with app, app.worker():
        handle = await work.enqueue()
        await handle.result(timeout=WAIT)
        assert [message for _, _, message in await log_of(app, handle)] == [
            "'%d items' (cannot be formatted: TypeError)",
            "'%s' (cannot be formatted: RuntimeError)",
        ]


async def test_a_mask_takes_out_what_must_not_be_kept(app: App, capsys):
    @app.mask
    def passwords(line: str) -> str:
        return line.replace("hunter2", "***")

    @app.task
    async def work() -> None:
        print("logging in with hunter2")

    async with app, app.worker():
        handle = await work.enqueue()
        await handle.result(timeout=WAIT)
        assert await log_of(app, handle) == [("stdout", "", "logging in with ***")]
    assert "logging in with hunter2" in capsys.readouterr().out


async def test_errors_and_notes_are_masked_too(app: App):
    app.mask(lambda text: text.replace("hunter2", "***"))

    @app.task(retries=0)
    async def work(ctx: Context) -> None:
        ctx.progress(50, "with hunter2")
        raise ValueError("hunter2 is wrong")

    async with app, app.worker():
        handle = await work.enqueue()
        with pytest.raises(ExecutionFailed, match=r"\*\*\* is wrong"):
            await handle.result(timeout=WAIT)
        ended = await handle.execution()
    assert ended.note == "with ***"
    assert "hunter2" not in str(ended.error).replace('raise ValueError("hunter2', "")


async def test_an_app_may_keep_nothing():
    app = App("memory://", logs=False)

    @app.task
    async def work() -> None:
        print("hello")

    async with app, app.worker():
        handle = await work.enqueue()
        await handle.result(timeout=WAIT)
        assert await log_of(app, handle) == []


async def test_what_is_said_outside_of_tasks_belongs_to_none(app: App):
    @app.task
    async def work() -> None:
        await asyncio.to_thread(print, "inside")

    async with app, app.worker():
        print("outside")
        shop.info("outside")
        handle = await work.enqueue()
        await handle.result(timeout=WAIT)
        assert await log_of(app, handle) == [("stdout", "", "inside")]


def test_streams_are_given_back_when_the_last_user_has_gone(monkeypatch):
    out, handlers = io.StringIO(), logging.getLogger().handlers[:]
    monkeypatch.setattr(sys, "stdout", out)
    with capture_output():
        with capture_output():
            assert isinstance(sys.stdout, Tee)
        assert isinstance(sys.stdout, Tee)
        sys.stdout.writelines(["a", "b"])
        assert sys.stdout.getvalue() == "ab"  # whatever the real one can do

    assert sys.stdout is out
    assert logging.getLogger().handlers == handlers

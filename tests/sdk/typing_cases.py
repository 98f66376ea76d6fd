"""What an editor must flag, and what it must not; tests/sdk/test_task_typing.py has it checked.

`# error` stands on every line with a mistake, and on no other.
"""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from daybell import App, Context
from daybell.sdk.task import Handle, SyncHandle

app = App("memory://")


@app.task
async def send(to: str, subject: str = "Hi") -> int:
    return len(to + subject)


@app.task(retries=5, timeout="30s", queue="mail", priority="high")
def add(left: int, right: int) -> float:
    return left + right


@app.task
async def report(ctx: Context, day: str) -> list[str]:
    ctx.progress(50, "halfway")
    return [day]


@app.task(name="tidy-up")
def tidy(ctx: Context) -> None:
    ctx.checkpoint["offset"] = 1200


@app.task
def loose(value, other: int = 1):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return other


@app.task
def load(url: str) -> Any:
    return url


async def right() -> None:
    handle = await send.enqueue("ada@example.org", subject="Hello")
    assert_type(handle, Handle[int])
    assert_type(await handle.result(timeout=30), int)
    assert_type(await (await send.options(delay="1h").enqueue("a")).result(), int)
    assert_type(await (await add.enqueue(1, right=2)).result("5s"), float)
    assert_type(await (await report.enqueue("monday")).result(), list[str])
    assert_type(await (await report.enqueue(day="monday")).result(), list[str])
    assert_type(await (await tidy.enqueue()).result(), None)
    assert_type(await add.enqueue_many([{"left": 1, "right": 2}]), list[Handle[float]])
    await loose.enqueue(1, other=2)
    await loose.enqueue(value=1)


def right_without_a_loop() -> None:
    assert_type(add.sync.enqueue(1, 2), SyncHandle[float])
    assert_type(send.sync.enqueue("a").result(timeout=1), int)
    assert_type(send.options(priority="low", tenant="b").sync.enqueue("a").created, bool)


async def calls(ctx: Context) -> None:
    assert_type(add(1, 2), float)
    assert_type(await send("a"), int)
    assert_type(await report(ctx, "monday"), list[str])
    assert_type(load("https://example.org"), Any)
    assert_type(await ctx.enqueue(add, 1, right=2), Handle[float])
    as_function: Callable[[int, int], float] = add
    as_coroutine: Callable[[str], Coroutine[Any, Any, int]] = send
    as_function(1, 2)
    await as_coroutine("a")


async def wrong(ctx: Context) -> None:
    await send.enqueue(5)  # error
    await send.enqueue("a", subjet="b")  # error
    await send.enqueue()  # error
    await send.enqueue("a", "b", "c")  # error
    await add.enqueue(1, right="2")  # error
    await report.enqueue(ctx, "monday")  # error
    await report.enqueue(3)  # error
    await tidy.enqueue(1)  # error
    await load.enqueue(1)  # error
    await ctx.enqueue(add, 1, right="2")  # error
    send.options(dealy="1h")  # error
    send.options(priority=None, delay=["1h"])  # error
    add.sync.enqueue("1", 2)  # error
    text: str = await (await send.enqueue("a")).result()  # error
    add(1, "2")  # error
    number: int = send("a")  # error
    print(text, number)  # noqa: T201


@app.task(retires=5)  # error
def misspelt() -> None: ...


@app.task(on_lost="ignore")  # error
def impossible() -> None: ...


async def workflows() -> None:
    with app.workflow("mails", max_running=2, fail_fast=True) as mails:
        _ = report.bind("monday") >> [send.bind(report.output), add.bind(1, 2)] >> tidy
        _ = [send, add] >> tidy.node(rule="all_done", retries=2)
        _ = send.when("result > 0") >> add.map([1, 2])
    assert_type(await mails.enqueue(), Handle[Any])
    app.workflow("other", max_runing=2)  # error
    tidy.node(rul="all_done")  # error

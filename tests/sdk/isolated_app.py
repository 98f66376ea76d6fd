"""An app whose tasks run in child processes, which import this file to find it."""

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from daybell import App, Context, PermanentError, Retry, RetryLater

app = App()  # DAYBELL_DATABASE_URL, which children inherit


class Flaky(Exception):
    pass


class Hopeless(Flaky):
    pass


@app.task(isolation="process")
def double(number: int) -> int:
    return 2 * number


@app.task(isolation="process")
def when_in_child(ctx: Context) -> list[str]:
    return when_in_thread(ctx)


@app.task
def when_in_thread(ctx: Context) -> list[str]:
    return [str(time and time.isoformat()) for time in (ctx.scheduled_for, ctx.previous_success)]


@app.task(isolation="process")
async def fan_out(ctx: Context) -> list[str]:
    by_task = await double.enqueue(1)
    by_context = await ctx.enqueue(double, 2)
    return [str(by_task.id), str(by_context.id)]


@app.task(isolation="process")
def fan_out_sync() -> str:
    return str(double.sync.enqueue(3).id)


@app.task(isolation="process", retries=Retry.fixed(0, retries=1))
def resume(ctx: Context) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "attempt": ctx.attempt,
        "failures": ctx.failures,
        "offset": ctx.checkpoint.get("offset"),
    }
    ctx.progress(40, "halfway")
    ctx.log.warning("at %s", ctx.job)
    if ctx.attempt == 1:
        ctx.checkpoint["offset"] = 1200
        raise Flaky("once")
    return seen | {"job": ctx.job, "id": str(ctx.id)}


@app.task(isolation="process", retries=Retry.fixed(0, retries=3, never_on=[Hopeless]))
def never() -> None:
    raise Hopeless("it is no use")


@app.task(isolation="process")
def permanent() -> None:
    raise PermanentError("no such thing")


@app.task(isolation="process")
def later(ctx: Context, way: str) -> int:
    if ctx.attempt == 1:
        match way:
            case "delay":
                raise RetryLater("not yet", delay=0)
            case "at":
                raise RetryLater(at=datetime.now(UTC) - timedelta(seconds=1))
            case _:
                raise RetryLater(delay="nonsense")
    return ctx.failures


@app.task(isolation="process", store_result=False)
def forgotten() -> str:
    return "x" * 100_000_000


@app.task(isolation="process", memory_limit="1GiB")
def whoami() -> int:
    return os.getpid()


@app.task(isolation="process", retries=0, queue="patience")
def wait_for(ctx: Context, file: str) -> str:
    """Until there is such a file."""
    ctx.progress(1)
    while not os.path.exists(file):
        signal.sigtimedwait([], 0.01)
    return "it came"


@app.task(isolation="process", retries=0)
def durable(ctx: Context) -> None:
    ctx.step("step", print)

"""The tasks that are run under fire. Each is told the number of the enqueue that asked for it."""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path
from typing import Final

from daybell.chaos.effects import EXIT, Effects, Nuisance
from daybell.core.retry import Retry
from daybell.core.when import every
from daybell.engine.clock import SystemClock
from daybell.sdk.app import App
from daybell.sdk.context import Context

TENANT: Final = "daybell-chaos"
QUEUE: Final = "daybell-chaos"
EXITS: Final = "daybell-chaos-exits"  # of tasks that end their process; only a fleet runs these
FOLDER: Final = "DAYBELL_CHAOS_FOLDER"  # where the processes are told to write to
# Nobody is to end dead because its workers were killed on purpose.
CRASHES_MAX: Final = 1000
STEP_SECONDS: Final = 0.1
SLICE_SECONDS: Final = 0.02
TICKING: Final = 40  # schedules of a job that may run beside itself
ALONE: Final = 10  # of one that may not
NO_NUMBER: Final = 0  # what no enqueue has: a schedule asked for it

app = App(tenant=TENANT, logs=False)
clock = SystemClock()


@cache
def effects() -> Effects:
    return Effects(Path(os.environ[FOLDER]))


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def quick(ctx: Context, number: int) -> None:
    """Does nothing."""
    with effects().told(ctx, number):
        pass


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    retries=Retry.fixed(0.2, retries=5, jitter=0),
)
async def flaky(ctx: Context, number: int, fails: int) -> None:
    """Fails so often, then succeeds."""
    with effects().told(ctx, number):
        if ctx.failures < fails:
            raise Nuisance(f"{ctx.failures + 1} of {fails}")


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def long(ctx: Context, number: int, seconds: float) -> None:
    """Takes its time, and shows how far it is."""
    with effects().told(ctx, number):
        steps = max(1, round(seconds / STEP_SECONDS))
        for step in range(steps):
            await clock.sleep(STEP_SECONDS)
            ctx.progress(100 * (step + 1) / steps)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
def threaded(ctx: Context, number: int, seconds: float) -> None:
    """The same in a thread, which can be interrupted between two slices."""
    with effects().told(ctx, number):
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            threading.Event().wait(SLICE_SECONDS)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, store_result=False)
async def keyed(ctx: Context, number: int) -> None:
    """Enqueued under a unique key: no two of a key are unfinished at a time."""
    with effects().told(ctx, number):
        await clock.sleep(STEP_SECONDS)


@app.task(queue=EXITS, max_crashes=CRASHES_MAX, store_result=False)
async def vanish(ctx: Context, number: int) -> None:
    """End the process at the first attempt, as if all were well."""
    with effects().told(ctx, number):
        if ctx.attempt == 1:
            effects().tell(EXIT, ctx, number)
            os._exit(0)


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    schedule=[every(1 + n % 2, anchor=n / TICKING) for n in range(TICKING)],
    overlap="allow",
)
async def ticking(ctx: Context) -> None:
    """Does nothing, again and again."""
    with effects().told(ctx, NO_NUMBER):
        pass


@app.task(
    queue=QUEUE,
    max_crashes=CRASHES_MAX,
    store_result=False,
    schedule=[every(2, anchor=2 * n / ALONE) for n in range(ALONE)],
)
async def alone(ctx: Context) -> None:
    """Takes some time, again and again, and never twice at a time."""
    with effects().told(ctx, NO_NUMBER):
        await clock.sleep(STEP_SECONDS)


SCHEDULED: Final = (ticking.name, alone.name)

"""The tasks that workflows run under fire, and a durable function, as a node or beside them.

A node returns one more than all that it was given. So a result tells whether everything that comes
before it has come, and once.
"""

from __future__ import annotations

from typing import Any, Final, cast

from daybell.chaos.app import CRASHES_MAX, NO_NUMBER, QUEUE, app, clock, effects
from daybell.chaos.effects import STEP, Nuisance
from daybell.core.retry import Retry
from daybell.sdk.context import Context

AGAIN: Final = Retry.fixed(0.2, retries=5, jitter=0)
STEPS: Final = ("first", "second", "third")  # of the durable function
BETWEEN_SECONDS: Final = 0.03  # a step's effect and its end: here it may be killed
SLEEP_SECONDS: Final = 0.2
EVENT: Final = "chaos.went_on"


def weight(given: Any) -> int:
    """What results add up to. A node that did not run has none."""
    if isinstance(given, list):
        return sum(map(weight, cast("list[Any]", given)))
    if isinstance(given, dict):
        return cast("dict[str, int]", given)["weight"]
    return given or 0


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX, retries=AGAIN)
async def part(ctx: Context, ups: list[Any], fails: int = 0, seconds: float = 0) -> int:
    """Takes its time, fails so often, then adds one."""
    with effects().told(ctx, NO_NUMBER):
        await clock.sleep(seconds)
        if ctx.failures < fails:
            raise Nuisance(f"{ctx.failures + 1} of {fails}")
        return 1 + weight(ups)


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def choose(ctx: Context, names: list[str]) -> list[str]:
    """Says which nodes come next."""
    with effects().told(ctx, NO_NUMBER):
        return names


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def spread(ctx: Context, ups: list[Any], count: int) -> list[int]:
    """Makes a list for a mapped node: all that it was given, in its first item."""
    with effects().told(ctx, NO_NUMBER):
        return [weight(ups), *[0] * (count - 1)]


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def durable(
    ctx: Context, number: int = NO_NUMBER, ups: list[Any] | None = None
) -> dict[str, Any]:
    """Does some steps, and sleeps in between. Each says which attempt has done it."""
    with effects().told(ctx, number):
        attempts: list[int] = []
        for place, name in enumerate(STEPS):
            attempts.append(await ctx.step(name, _leave, ctx, place))
            if place == 1:
                await ctx.sleep(SLEEP_SECONDS)
        return {"weight": 1 + weight(ups), "attempts": attempts}


@app.task(queue=QUEUE, max_crashes=CRASHES_MAX)
async def durable_waiting(ctx: Context, number: int) -> dict[str, Any]:
    """Waits for two events that look alike, and then for a person; does a step before each. Says
    what it was told, too.
    """
    with effects().told(ctx, number):
        attempts: list[int] = []
        tokens: list[str | None] = []
        for place, name in enumerate(STEPS):
            attempts.append(await ctx.step(name, _leave, ctx, place))
            if place < 2:
                event = await ctx.wait_for_event(EVENT, match={"number": number})
                tokens.append(event.data["note"])
            else:
                tokens.append((await ctx.wait_for_approval()).note)
        return {"weight": 1, "attempts": attempts, "tokens": tokens}


async def _leave(ctx: Context, place: int) -> int:
    """A step's effect."""
    effects().tell(STEP, ctx, place)
    await clock.sleep(BETWEEN_SECONDS)
    return ctx.attempt

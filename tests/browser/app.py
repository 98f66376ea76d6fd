"""The app whose jobs the tests look at."""

import asyncio
import time
from pathlib import Path

from daybell import App, Context

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

app = App()


def repeat(text: str) -> str:
    return text


@app.task
async def greet(name: str, times: int = 1) -> str:
    """Return a greeting."""
    return " ".join([f"Hello, {name}"] * times)


@app.task
async def nap(seconds: float) -> None:
    """Take a while."""
    await asyncio.sleep(seconds)


@app.task(concurrency=1)
async def in_turn(seconds: float) -> None:
    """Take a while, one at a time."""
    await asyncio.sleep(seconds)


@app.task(retries=0)
async def fail(text: str) -> None:
    """Fail with a text."""
    raise ValueError(text)


@app.task(retries=0, queue="bulk")
async def break_down() -> None:
    """Fail, as thousands of others do."""
    raise ValueError("there is no disk")


@app.task
def talk(ctx: Context) -> None:
    """Say a line, and the next one as soon as a file says that it was read."""
    for number in range(1, 4):
        ctx.log.log(30 if number == 2 else 20, "line %s of 3", number)
        while not Path(f"heard-{number}").exists():
            time.sleep(0.02)


@app.task
async def order(ctx: Context, number: int) -> str:
    """Wait for a person."""
    ctx.log.info("%s", f"order {number} {EVIL}")
    _ = await ctx.step("repeat", repeat, EVIL)
    decision = await ctx.wait_for_approval()
    return "shipped" if decision else "sent back"


@app.task
async def receive(event: dict[str, object]) -> object:
    """Return what was posted."""
    return event["data"]


@app.task
async def first() -> int:
    return 1


@app.task
async def second(first: int) -> int:
    return first + 1


with app.workflow("chain"):
    _ = first >> second

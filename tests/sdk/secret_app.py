"""An app whose tasks use a secret wherever they can, which children import, too."""

# ruff: noqa: T201

import asyncio
import base64
import html
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

from daybell import App, Context, RetryLater

app = App()  # DAYBELL_DATABASE_URL, which children inherit
log = logging.getLogger("shop")


class Colour(Enum):
    RED = "red"


def tell(ctx: Context, token: str) -> dict[str, Any]:
    """Say a secret in all ways that there are."""
    print("printed", token, {"token": token}, base64.b64encode(f"user:{token}".encode()).decode())
    print("changed", html.escape(token), token.lower())
    print("to stderr", token, file=sys.stderr)
    print(token[:5], end="")
    print(token[5:])
    log.warning("logged %s", token)
    try:
        raise ValueError(token)
    except ValueError:
        log.exception("in a record: %r", token)
    ctx.progress(50, f"halfway with {token}")
    ctx.checkpoint["token"] = token
    return {"token": token, token: [token, f"Bearer {token}"], "length": len(token)}


@app.task
async def on_the_loop(ctx: Context, token: str, is_failing: bool = False) -> dict[str, Any]:
    told = tell(ctx, token)
    if is_failing:
        raise RuntimeError(f"{token} was refused")
    return told


@app.task
def in_a_thread(ctx: Context, token: str, is_failing: bool = False) -> dict[str, Any]:
    other = threading.Thread(target=print, args=("from another thread", token))
    other.start()
    other.join()
    told = tell(ctx, token)
    if is_failing:
        raise RuntimeError(f"{token} was refused")
    return told


@app.task(isolation="process")
def in_a_process(ctx: Context, token: str, is_failing: bool = False) -> dict[str, Any]:
    os.write(1, f"past Python {token}\n".encode())
    told = tell(ctx, token)
    if is_failing:
        raise RuntimeError(f"{token} was refused")
    return told


@app.task
async def later(token: str) -> None:
    raise RetryLater(f"{token} is not there yet", delay="1h")


@app.task
async def echo(value: Any) -> Any:
    return {"value": value, "lengths": lengths(value)}


@app.task(isolation="process")
def echo_in_a_process(value: Any) -> Any:
    return {"value": value, "lengths": lengths(value)}


def lengths(value: Any) -> Any:
    """What a value is like, without telling it."""
    if isinstance(value, dict):
        return {key: lengths(one) for key, one in value.items()}
    return [lengths(one) for one in value] if isinstance(value, list) else len(str(value))


@app.task
async def read_setting(name: str) -> Any:
    """Read the environment of the worker, as code in it can."""
    print("first\nit is", os.environ[name], "\nlast")
    return [os.environ[name], "rest"]


@app.task
async def guess_on_the_loop(
    ctx: Context, guess: Any, token: str = "", is_failing: bool = False
) -> Any:
    return repeat(ctx, guess, is_failing=is_failing)


@app.task
def guess_in_a_thread(ctx: Context, guess: Any, token: str, is_failing: bool = False) -> Any:
    return repeat(ctx, guess, is_failing=is_failing)


@app.task(isolation="process")
def guess_in_a_process(ctx: Context, guess: Any, token: str, is_failing: bool = False) -> Any:
    return repeat(ctx, guess, is_failing=is_failing)


def repeat(ctx: Context, guess: Any, *, is_failing: bool) -> Any:
    """Say what a caller has sent in all ways that there are, and not the secret."""
    said = "".join(guess) if isinstance(guess, list) else str(guess)
    print("printed", said, base64.b64encode(said.encode()).decode())
    print(said)
    print(f"{said} …", f"… {said}")
    log.warning("logged %s", said)
    ctx.progress(50, said)
    ctx.checkpoint["guess"] = said
    if is_failing:
        raise RuntimeError(f"{said} was refused")
    return {"guess": guess, "said": said, said: said.upper()}


@app.task
async def wait_for_guess(ctx: Context, token: str) -> Any:
    event = await ctx.wait_for_event("guessed", timeout="1m")
    assert event is not None
    print(event.data)
    return event.data


met: dict[str, str] = {}  # what executions of `meet` were called with, by their own names
are_here = threading.Event()


def meet(name: str, token: str) -> Any:
    """Wait for another execution, then say both of their secrets."""
    met[name] = token
    if len(met) == 2:
        are_here.set()
    are_here.wait(60)
    for key in sorted(met):
        print(key, met[key])
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: dict(sorted(met.items()))).result()


@app.task
def meet_in_a_thread(name: str, token: str) -> Any:
    return meet(name, token)


@app.task
async def meet_on_the_loop(name: str, token: str) -> Any:
    return await asyncio.to_thread(meet, name, token)


@app.task
async def paint(colour: Colour) -> None: ...


@app.task(isolation="process")
def paint_in_a_process(colour: Colour) -> None: ...

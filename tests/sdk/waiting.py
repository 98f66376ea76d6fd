"""Waiting for what a store says to become right, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT = 60.0


async def eventually(ask: Callable[[], Awaitable[T]], is_right: Callable[[T], object]) -> T:
    """Ask again and again until the answer is right, and return it."""
    async with asyncio.timeout(WAIT):
        while not is_right(answer := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return answer

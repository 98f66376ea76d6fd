"""Wake-ups within one process, for stores without a server that notifies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

Wake = Callable[[], None]

SOON_SECONDS: Final = 1.0  # a worker without work asks that often by itself


class Signal(Enum):
    """A signal that a transaction sends to others after its commit."""

    ASK = "a worker has something to hear"
    CLAIM = "something can be claimed that could not before"
    SCHEDULES = "a schedule may be due earlier than was known"


class Listeners:
    """The callers that wait in this process."""

    def __init__(self) -> None:
        self._wakes: dict[object, Wake] = {}
        self._asks: dict[object, Wake] = {}

    def __len__(self) -> int:
        return len(self._wakes)

    def add(self, wake: Wake, ask: Wake | None = None) -> Callable[[], Awaitable[None]]:
        """Call these functions from now on; return a function that stops this."""
        key = object()
        self._wakes[key] = wake
        if ask is not None:
            self._asks[key] = ask

        async def stop() -> None:
            self._wakes.pop(key, None)
            self._asks.pop(key, None)

        return stop

    def wake(self) -> None:
        for wake in list(self._wakes.values()):
            wake()

    def ask(self) -> None:
        for ask in list(self._asks.values()):
            ask()


async def pause(seconds: float) -> None:
    """Wait a moment on the event loop."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _end, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

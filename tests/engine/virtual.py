"""An event loop whose time passes only while everything waits, and then at once.

Intervals, timeouts and outages of minutes are exact and cost nothing. Not for what happens in
threads: time would run away while they work.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

EPOCH = 1_700_000_000.0
MOMENT = 0.01
PATIENCE = 600.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps by moving its clock."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        selector: Any = self._selector  # pyright: ignore[reportAttributeAccessIssue]
        really_select = selector.select

        def select(seconds: float | None = None) -> Any:
            events = really_select(0)
            if not events:
                assert seconds is not None, "everything waits, and nothing will ever happen"
                self._moment += seconds
            return events

        selector.select = select

    def time(self) -> float:
        return self._moment


class VirtualClock:
    """The engine's and a store's clock on such a loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    def correct(self, now: float, sent: float) -> None:
        pass

    def steady_since(self) -> float:
        return float("-inf")

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on such a loop. Its fixtures must not be asynchronous."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Wait for something to become true, in whatever time the loop has."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, "it did not happen in time"
        await asyncio.sleep(MOMENT)


async def turns(count: int = 20) -> None:
    """Let everything that can go on go on, without any time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


def seconds() -> float:
    """The time by the loop that runs the test."""
    return asyncio.get_running_loop().time()

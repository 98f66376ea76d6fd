"""News for who waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol


class Wakeups(Protocol):
    """News for who waits. Losing all of it costs latency, never an execution."""

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        """Call `wake` when something there may be claimable, and `ask` when a renewal may have news
        for a worker: something it runs is to be cancelled, or it is to drain. Returns what ends it.
        Best effort.
        """
        ...

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `wake` when a schedule of any tenant may be due earlier than was known. Returns what
        ends it. Best effort.
        """
        ...

"""A small lease for upkeep that one node should do. Losing it delays upkeep, never an execution."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.worker import UPKEEP
from daybell.engine.clock import Clock
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.leader")

TERM_SECONDS: Final = 15.0
DUTY_SECONDS: Final = 3600.0
MORE_SECONDS: Final = 0.1  # a breath between two rounds of a duty, for everybody else

Duty = Callable[[], Awaitable[bool]]  # True: there is more to do


class Leader:
    """Holds the lease if nobody else does, and does its duties from time to time while it does."""

    def __init__(self, store: Store, *, holder: UUID, clock: Clock, duties: Sequence[Duty]) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._duties = tuple(duties)
        self._due_at = clock.monotonic()
        self.epoch: int | None = None  # None: somebody else leads

    async def tick(self) -> Seconds | None:
        leadership = await self._store.lead(UPKEEP, holder=self._holder, lease=TERM_SECONDS)
        if leadership is None:
            self.epoch = None
            return None
        if self.epoch != leadership.epoch:
            logger.info("leading, epoch %d", leadership.epoch)
            self.epoch = leadership.epoch
        if self._clock.monotonic() >= self._due_at:
            more = [await duty() for duty in self._duties]
            if any(more):
                return MORE_SECONDS
            self._due_at = self._clock.monotonic() + DUTY_SECONDS
        return None

    async def resign(self) -> None:
        """Let another lead at once."""
        if self.epoch is not None:
            await self._store.resign(UPKEEP, holder=self._holder)
            self.epoch = None

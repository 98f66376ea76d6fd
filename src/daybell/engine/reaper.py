"""Taking work out of dead workers' hands. Any node does it; the store lets one of them win."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.lifecycle import Ruling, after_loss
from daybell.core.limits import REAP_BATCH_MAX
from daybell.engine.clock import JUMP_SECONDS, Clock
from daybell.engine.events import Events, WorkerLost
from daybell.engine.leases import LEASE_SECONDS
from daybell.engine.loop import AGAIN
from daybell.errors import Unavailable
from daybell.store.outcomes import Lost
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.reaper")

CLOCK_AGE_SECONDS: Final = 60.0  # on a node without workers, whose claims would tell the time


class Reaper:
    """Finds dead workers, and decides what becomes of what they held.

    While the store was away nobody could renew. So after that the living are given a lease's time
    to be heard of before anybody is declared dead; and likewise when the store's clock has jumped,
    which ends all leases at once without anybody having been silent.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        events: Events,
        lease: Seconds = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._lease = lease
        self._is_store_away = False
        self._reaps_at = clock.monotonic()

    async def tick(self) -> Seconds | None:
        try:
            return await self._tick()
        except Unavailable:
            self._is_store_away = True
            raise

    async def _tick(self) -> Seconds | None:
        if self._is_store_away:
            await self._learn_time()
            self._is_store_away = False
            self._reaps_at = self._clock.monotonic() + self._lease
        elif self._clock.age() > CLOCK_AGE_SECONDS:
            await self._learn_time()
        if self._clock.monotonic() < self._reaps_at or self._clock.steady() < self._lease:
            return None
        not_after = self._clock.now() + JUMP_SECONDS
        lost = await self._store.lost(limit=REAP_BATCH_MAX, not_after=not_after)
        moved = 0
        for (tenant, worker), group in groupby(sorted(lost, key=_owner), key=_owner):
            moved += await self._reap(tenant, worker, list(group))
        return AGAIN if moved and len(lost) >= REAP_BATCH_MAX else None

    async def _learn_time(self) -> None:
        """Ask, and bury nobody."""
        sent = self._clock.monotonic()
        self._clock.correct((await self._store.health()).now, sent)

    async def _reap(self, tenant: str, worker: UUID, lost: list[Lost]) -> int:
        moves = [
            after_loss(entry.claimed, max_crashes=entry.max_crashes, retry=entry.retry)
            for entry in lost
        ]
        verdicts = await self._store.apply(tenant, worker=worker, transitions=moves, wait=False)
        left = {
            (verdict.id, verdict.attempt)
            for verdict in verdicts
            if verdict.ruling is not Ruling.CANCELLED  # it was taken, too, and is over
        }
        for entry, move in zip(lost, moves, strict=True):
            if (move.id, move.attempt) not in left:
                self._events.emit(WorkerLost, entry.claimed, move)
        moved = len(moves) - len(left)
        if moved:
            logger.warning("worker %s is gone; %d executions were taken from it", worker, moved)
        return moved


def _owner(lost: Lost) -> tuple[str, UUID]:
    return lost.claimed.tenant, lost.worker

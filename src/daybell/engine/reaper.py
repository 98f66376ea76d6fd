"""Taking work out of dead workers' hands. Any node does it; the store lets one of them win."""

from __future__ import annotations

import logging
from itertools import groupby
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.lifecycle import after_loss
from daybell.core.limits import REAP_BATCH_MAX
from daybell.engine.events import Events, WorkerLost
from daybell.engine.loop import AGAIN
from daybell.store.outcomes import Lost
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.reaper")


class Reaper:
    """Finds dead workers, and decides what becomes of what they held."""

    def __init__(self, store: Store, *, events: Events) -> None:
        self._store = store
        self._events = events

    async def tick(self) -> Seconds | None:
        lost = await self._store.lost(limit=REAP_BATCH_MAX)
        moved = 0
        for (tenant, worker), group in groupby(sorted(lost, key=_owner), key=_owner):
            moved += await self._reap(tenant, worker, list(group))
        return AGAIN if moved and len(lost) >= REAP_BATCH_MAX else None

    async def _reap(self, tenant: str, worker: UUID, lost: list[Lost]) -> int:
        moves = [
            after_loss(entry.claimed, max_crashes=entry.max_crashes, retry=entry.retry)
            for entry in lost
        ]
        verdicts = await self._store.apply(tenant, worker=worker, transitions=moves, wait=False)
        left = {(verdict.id, verdict.attempt) for verdict in verdicts}
        for entry, move in zip(lost, moves, strict=True):
            if (move.id, move.attempt) not in left:
                self._events.emit(WorkerLost, entry.claimed, move)
        moved = len(moves) - len(left)
        if moved:
            logger.warning("worker %s is gone; %d executions were taken from it", worker, moved)
        return moved


def _owner(lost: Lost) -> tuple[str, UUID]:
    return lost.claimed.tenant, lost.worker

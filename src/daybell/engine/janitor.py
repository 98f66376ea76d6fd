"""Removing what is over and old, a bounded amount at a time."""

from __future__ import annotations

import logging

from daybell.core.view import Retention
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.janitor")


class Janitor:
    """Keeps history as long as the policy says, and has room ready for the days to come."""

    def __init__(self, store: Store, policy: Retention) -> None:
        self._store = store
        self._policy = policy

    async def clean(self) -> bool:
        """One round. True: there is more."""
        removed = await self._store.retain(self._policy)
        rows = removed.executions + removed.attempts + removed.ticks + removed.workers
        rows += removed.gates + removed.jobs
        if rows or removed.partitions:
            logger.info("removed %d old rows and %d whole days", rows, removed.partitions)
        if not removed.is_complete:
            return True
        for one in await self._store.recount_gates(mend=True):
            logger.error(
                "gate %s of tenant %s counted %d inside, there were %d; put right, but please"
                " report it",
                one.gate,
                one.tenant,
                one.counted,
                one.inside,
            )
        return False

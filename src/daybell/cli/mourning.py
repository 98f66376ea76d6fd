"""Telling the store of workers that are known to be dead, so that nobody waits for their leases."""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.engine.clock import SystemClock
from daybell.engine.events import Events
from daybell.engine.reaper import Reaper
from daybell.errors import DaybellError
from daybell.store.open import store_for

logger = logging.getLogger("daybell.supervisor")

PATIENCE_SECONDS: Final = 5.0  # with the store; without it, the lease ends by itself


async def bury(workers: list[UUID], *, url: str, tenant: str, lease: Seconds) -> None:
    """Declare them dead, and give to others what they ran.

    Only for workers whose process was seen to end. A statement of theirs that is still under way is
    refused or comes first, as with any other end of a lease.
    """
    try:
        await asyncio.wait_for(_bury(workers, url, tenant, lease), PATIENCE_SECONDS)
    except (DaybellError, TimeoutError) as error:
        said = str(error) or "it does not answer"
        logger.warning("the store was not told; what ran waits for the lease to end: %s", said)


async def _bury(workers: list[UUID], url: str, tenant: str, lease: Seconds) -> None:
    store = store_for(url, lease=lease)
    await store.open()
    try:
        for worker in workers:
            await store.retire(tenant, worker)
        # It has just begun, so it takes others for dead only by what is on record in the store.
        await Reaper(store, clock=SystemClock(), events=Events(), lease=lease).tick()
    finally:
        await store.close()

"""`/stats`: all that goes on, at a glance. And what time it is."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fastapi import APIRouter, Request, Response

from daybell.api import sights
from daybell.api.answers import answer
from daybell.api.caller import Caller, Viewer
from daybell.api.contract import operation
from daybell.api.stream import stats
from daybell.client import wire
from daybell.client.overview import Overview
from daybell.core.instant import to_iso

TENANTS_MAX: Final = 1_000  # whose last look is remembered
LOOK_SECONDS: Final = (1.0, 60.0)  # looks that are so far apart are compared

router = APIRouter(tags=["stats"])


class Looks:
    """The last look at each tenant, which rates are counted from."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, Overview] = OrderedDict()

    async def look(self, caller: Caller) -> Overview:
        """Look at everything."""
        last = self._last.get(caller.tenant)
        seen = await caller.client.overview(earlier=last)
        least, most = LOOK_SECONDS
        since = most if last is None else seen.now - last.now
        if since >= least:
            self._last[caller.tenant] = seen
            self._last.move_to_end(caller.tenant)
            if len(self._last) > TENANTS_MAX:
                self._last.popitem(last=False)
        return seen


@router.get("/stats", **operation("get_stats", answers=sights.Stats, says="What goes on."))
async def get_stats(request: Request, caller: Viewer) -> Response:
    """Show queues, workers, rates and the last dead letters.

    Rates are those since this process was last asked; null when it was not.
    """
    state = request.app.state
    if not hasattr(state, "looks"):
        state.looks = Looks()
    return answer(stats(await state.looks.look(caller)))


@router.get("/status", **operation("get_status", answers=sights.Status, says="The store's time."))
async def get_status(caller: Viewer) -> Response:
    """Say what time it is by the store's clock, and which process does the upkeep."""
    health = await caller.client.health()
    leaders = await caller.client.leaders()
    return answer({"now": to_iso(health.now), "leaders": [wire.leader(one) for one in leaders]})

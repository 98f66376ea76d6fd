"""Routes of `/healthz`, `/readyz`, `/stats` and `/status`."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from daybell.api import responses
from daybell.api.caller import Caller, Viewer
from daybell.api.contract import operation
from daybell.api.encoding import answer_json
from daybell.api.responses import Health
from daybell.api.stream import overview_payload
from daybell.client import wire
from daybell.client.workers import Overview
from daybell.core.units import to_iso
from daybell.errors import DaybellError, Unavailable

TENANTS_MAX: Final = 1_000  # whose last look is remembered
LOOK_SECONDS: Final = (1.0, 60.0)  # looks that are so far apart are compared

router = APIRouter(tags=["stats"])


class RecentOverviews:
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


@router.get("/stats", **operation("get_stats", answers=responses.Stats, says="What goes on."))
async def get_stats(request: Request, caller: Viewer) -> Response:
    """Show queues, workers, rates and the last dead letters.

    Rates are those since this process was last asked; null when it was not.
    """
    state = request.app.state
    if not hasattr(state, "looks"):
        state.looks = RecentOverviews()
    return answer_json(overview_payload(await state.looks.look(caller)))


@router.get(
    "/status", **operation("get_status", answers=responses.Status, says="The store's time.")
)
async def get_status(caller: Viewer) -> Response:
    """Say what time it is by the store's clock, and which process does the upkeep."""
    health = await caller.client.health()
    leaders = await caller.client.leaders()
    return answer_json(
        {"now": to_iso(health.now), "leaders": [wire.leader(one) for one in leaders]}
    )


# `/healthz` and `/readyz`: whether this process and its store are well. Open to all.
#
# Whoever asks learns that, and not where the store is.

logger = logging.getLogger("daybell.api")

STORE_SECONDS_MAX: Final = 8.0  # longer than the store needs to notice silence by itself
# Probes of many machines together cost the store one small write a second.
READY_SECONDS: Final = 1.0

NO_STORE: Final = {"Cache-Control": "no-store"}

Ask = Callable[[], Awaitable[object]]


class Readiness:
    """Whether the store can be read and written, checked at most once a second."""

    def __init__(self, ask: Ask, *, monotonic: Callable[[], float] | None = None) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._asked_at: float | None = None
        self._error: str | None = None

    async def error(self) -> str | None:
        """What is wrong; None: nothing is."""
        now = self._monotonic or asyncio.get_running_loop().time
        async with self._lock:
            if self._asked_at is None or now() - self._asked_at >= READY_SECONDS:
                self._error = await self._find_out()
                self._asked_at = now()
            return self._error

    async def _find_out(self) -> str | None:
        try:
            async with asyncio.timeout(STORE_SECONDS_MAX):
                await self._ask()
        except TimeoutError:
            return f"the store does not answer within {STORE_SECONDS_MAX:g} s"
        except DaybellError as refusal:
            logger.warning("not ready: %s", refusal)
            is_read_only = isinstance(refusal, Unavailable) and refusal.is_read_only
            return f"the store cannot be {'written' if is_read_only else 'used'}; see the log"
        return None


def make_health_router(readiness: Readiness) -> APIRouter:
    """The two routes."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/healthz",
        operation_id="healthz",
        responses={200: {"model": Health, "description": "It answers."}},
    )
    async def healthz() -> Response:
        """Whether this process answers."""
        return answer_json({"status": "ok"}, headers=NO_STORE)

    @routes.get(
        "/readyz",
        operation_id="readyz",
        responses={
            200: {"model": Health, "description": "It can work."},
            503: {"model": Health, "description": "Its store cannot be read or written."},
        },
    )
    async def readyz() -> Response:
        """Check that the store can be read and written, too."""
        error = await readiness.error()
        if error is None:
            return answer_json({"status": "ready"}, headers=NO_STORE)
        return answer_json(
            {"status": "unavailable", "error": error},
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            headers=NO_STORE,
        )

    assert healthz and readyz
    return routes

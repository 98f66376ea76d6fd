"""`/healthz` and `/readyz`: whether this process and its store are well. Open to all.

Whoever asks learns that, and not where the store is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Response

from daybell.api.answers import answer
from daybell.api.sights import Health
from daybell.errors import DaybellError, Unavailable

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


def router(readiness: Readiness) -> APIRouter:
    """The two routes."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/healthz",
        operation_id="healthz",
        responses={200: {"model": Health, "description": "It answers."}},
    )
    async def healthz() -> Response:
        """Whether this process answers."""
        return answer({"status": "ok"}, headers=NO_STORE)

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
            return answer({"status": "ready"}, headers=NO_STORE)
        return answer(
            {"status": "unavailable", "error": error},
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            headers=NO_STORE,
        )

    assert healthz and readyz
    return routes

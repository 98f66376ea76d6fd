"""`daybell bridge --receive`: outgoing events that arrive by HTTP go to a broker.

A subscription delivers to this address. A delivery is answered when the broker has the event, and
is sent again otherwise, so that none is lost, and those of one execution stay in order.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from daybell.api.app import Application
from daybell.api.caller import HookRefused
from daybell.api.requests import receive_body
from daybell.api.router import Routes
from daybell.api.server import ApiServer, ServerOptions, is_loopback
from daybell.client.hooks import check_delivery
from daybell.core.access import Hook
from daybell.core.limits import ARGS_BYTES_MAX
from daybell.engine.loop import SystemClock
from daybell.errors import PayloadTooLarge, Unavailable, UsageError, shown

logger = logging.getLogger("daybell.bridge")


@asynccontextmanager
async def serve_receiver(
    address: str, send: Callable[[bytes, str, str], Awaitable[Any]], *, key: bytes | None
) -> AsyncGenerator[str]:
    """Serve an address until the context ends; yield its URL."""
    host, port = read_address(address)
    if key is None and not is_loopback(host):
        raise UsageError(
            f"anyone who reaches {host} could send events; set DAYBELL_BRIDGE_SECRET to the secret"
            " of the subscription",
            field="receive",
        )
    hook = Hook(job="", signature=None if key is None else "standard", secret="bridge")
    clock = SystemClock()
    routes = Routes("", tag="bridge", base="")

    @routes.post(
        "/", id="receive_event", role=None, action=None, answers=None, status=204, says="Sent."
    )
    async def receive(request: Request) -> Response:
        """Send an event to the broker."""
        raw = await receive_body(request)
        if len(raw) > ARGS_BYTES_MAX:
            raise PayloadTooLarge(
                f"the body has {len(raw):,} bytes; the limit is {ARGS_BYTES_MAX:,}"
            )
        headers = {name.lower(): value for name, value in request.headers.items()}
        found = check_delivery(hook, key, headers, raw, clock.now())
        if found is None:
            raise HookRefused("the signature of this request is not valid")
        try:
            kind = headers.get("content-type", "application/cloudevents+json")
            await send(raw, kind, found.event_id or headers.get("webhook-id", ""))
        except Exception as error:  # brokers raise errors of many kinds
            logger.warning("the broker takes no event: %s", error)
            raise Unavailable("the broker is away; try again") from error
        return Response(status_code=204)

    server = ApiServer(Application(routes), ServerOptions(host=host, port=port))
    server.bind()
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


def read_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(
            f"{shown(text)} is not an address; write HOST:PORT, as 127.0.0.1:8090", field="receive"
        )
    return host.strip("[]"), int(port)

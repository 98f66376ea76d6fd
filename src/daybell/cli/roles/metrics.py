"""`--metrics-port` of workers and schedulers: metrics and health of one process."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from daybell.api.app import Application
from daybell.api.routes.workers import Readiness, health_routes, own_metrics
from daybell.api.server import ApiServer, ServerOptions
from daybell.engine.metrics import Meter
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.cli")


@asynccontextmanager
async def serve_metrics(meter: Meter, store: Store, *, host: str, port: int) -> AsyncGenerator[str]:
    """Serve `/metrics`, `/healthz` and `/readyz` until the context ends; yield the address.

    No key is needed: the metrics name no job and no tenant, and health is open anyway.
    """
    probes = health_routes(Readiness(store.check_writable))
    app = Application([*probes, *own_metrics(meter.readings)])
    server = ApiServer(app, ServerOptions(host=host, port=port))
    server.bind()
    meter.loop.start()
    await server.start()
    logger.info("metrics at %s/metrics, health at %s/readyz", server.url, server.url)
    try:
        yield server.url
    finally:
        await server.stop()
        await meter.loop.stop()

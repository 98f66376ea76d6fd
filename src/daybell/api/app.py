"""The application: its routes, and what they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from daybell import __version__
from daybell.api import (
    audit,
    bulk,
    dead_letters,
    events,
    executions,
    health,
    job_actions,
    jobs,
    keys,
    openapi,
    problems,
    queues,
    schedules,
    secrets,
    stats,
    stream,
    templates,
    tenants,
    workers,
)
from daybell.api.auth import authenticate
from daybell.api.caller import Api, Authenticate
from daybell.api.heads import Heads
from daybell.api.health import Readiness
from daybell.api.naming import JobIds
from daybell.api.options import ApiOptions
from daybell.client import Client

BASE: Final = "/api/v1"
# What is asked for most comes first: paths are looked for in this order.
ROUTERS: Final = (
    job_actions.router,
    bulk.router,
    jobs.router,
    executions.router,
    events.router,
    dead_letters.router,
    queues.router,
    workers.router,
    schedules.router,
    stats.router,
    stream.router,
    templates.router,
    secrets.router,
    tenants.router,
    keys.router,
    audit.router,
)


def create_api(
    client: Client,
    *,
    options: ApiOptions | None = None,
    authenticated_by: Authenticate = authenticate,
    readiness: Readiness | None = None,
) -> FastAPI:
    """An application that serves the tenants of a client's store.

    The client is opened and closed by whoever made it. Without `readiness`, the store is ready when
    the client can read from it and write to it.
    """
    app = FastAPI(
        title="Daybell",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.api = Api(
        client=client,
        options=options or ApiOptions(),
        authenticate=authenticated_by,
        job_ids=JobIds(),
    )
    problems.install(app)
    app.add_middleware(Heads)
    alive = health.router(readiness or Readiness(client.check_ready))
    prefixed = [("", alive), ("", openapi.router), *((BASE, one) for one in ROUTERS)]
    for prefix, router in prefixed:
        app.include_router(router, prefix=prefix)
    app.state.methods = _methods_of(prefixed)
    app.state.roles = openapi.roles_of(ROUTERS)
    app.openapi = lambda: openapi.document(app)
    return app


def _methods_of(prefixed: Iterable[tuple[str, APIRouter]]) -> dict[str, set[str]]:
    """What can be done at each path."""
    found: dict[str, set[str]] = {}
    for prefix, router in prefixed:
        for route in router.routes:
            if isinstance(route, APIRoute):
                found.setdefault(prefix + route.path, set()).update(route.methods or ())
    return found

"""The ASGI application: it finds the route of a request, and answers errors and HEAD."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from starlette.datastructures import State
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from daybell.api import openapi, stream
from daybell.api.auth import PATTERN, Authenticator, authenticate
from daybell.api.caller import Api, ApiOptions, answer_error, answer_unexpected
from daybell.api.router import Route, Router
from daybell.api.routes import (
    admin,
    alerts,
    bulk,
    events,
    executions,
    hooks,
    jobs,
    leases,
    limits,
    schedules,
    session,
    subscriptions,
    workers,
)
from daybell.api.routes.workers import Readiness
from daybell.client import Client
from daybell.errors import DaybellError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAM: Final = b"text/event-stream"
# In the order of the document.
ROUTES: Final = (
    jobs.job_actions_router,
    bulk.router,
    jobs.router,
    executions.router,
    events.router,
    bulk.dead_letters_router,
    workers.queues_router,
    limits.router,
    workers.router,
    leases.router,
    schedules.preview_router,
    schedules.router,
    workers.status_router,
    workers.metrics_router,
    stream.router,
    jobs.templates_router,
    alerts.router,
    alerts.incidents_router,
    subscriptions.router,
    hooks.of_job_router,
    hooks.router,
    admin.secrets_router,
    admin.tenants_router,
    admin.keys_router,
    session.router,
    admin.audit_router,
    admin.exports_router,
)
logger = logging.getLogger("daybell.api")


class Application:
    """The ASGI application with its routes. `state` holds the objects that its handlers share."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.router: Final = Router(routes)
        self.state: Final = State()
        self._document: dict[str, Any] | None = None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is created once."""
        if self._document is None:
            self._document = openapi.document(self.router.routes)
        return self._document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http":
            raise ValueError(f"there are no routes for {scope['type']}")
        scope["app"] = self
        method = scope["method"]
        if method == "HEAD" and not _is_stream(scope):
            # The response to GET, without its body. A stream has no end.
            method, send = "GET", _without_body(send)
        try:
            response = await self._answer(method, Request(scope, receive))
        except ClientDisconnect:
            logger.debug("a client left in the middle of its request")
            return
        await response(scope, receive, send)

    async def _answer(self, method: str, request: Request) -> Response:
        scope = request.scope
        found = self.router.find(method, scope["path"].removeprefix(scope.get("root_path", "")))
        if isinstance(found, Response):
            return found
        route, values = found
        scope[PATTERN] = route.path
        try:
            return await route.answer(request, values)
        except ClientDisconnect:
            raise
        except DaybellError as error:
            return answer_error(error)
        except Exception as error:
            return answer_unexpected(error)


def _is_stream(scope: Scope) -> bool:
    wants = any(name == b"accept" and STREAM in value for name, value in scope["headers"])
    return wants or scope["path"].endswith("/stream")


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message["body"] = b""
        await send(message)

    return send_head


async def _live(receive: Receive, send: Send) -> None:
    """Confirm the start and the stop of a server: the application prepares nothing."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def create_api(
    client: Client,
    *,
    options: ApiOptions | None = None,
    gatekeeper: Authenticator | None = None,
    readiness: Readiness | None = None,
) -> Application:
    """Return an application that serves the tenants of a client's store.

    The caller opens and closes the client. Without `readiness`, the store is ready when the client
    can read from it and write to it.
    """
    probes = workers.health_routes(readiness or Readiness(client.check_ready))
    routes = (route for some in (probes, openapi.router, *ROUTES) for route in some)
    app = Application(routes)
    app.state.api = Api(client=client, options=options or ApiOptions(), authenticate=authenticate)
    if gatekeeper is not None:
        app.state.gatekeeper = gatekeeper
    return app

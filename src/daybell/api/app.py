"""The ASGI application: its routes, the fast path for enqueue requests, and answers to HEAD."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute

from daybell.api import caller, openapi, stream
from daybell.api.auth import CALLER, authenticate
from daybell.api.caller import Api, ApiOptions, Authenticate, Caller
from daybell.api.routes import admin, bulk, events, executions, jobs, schedules, workers
from daybell.api.routes.bulk import enqueue
from daybell.api.routes.executions import trigger_execution
from daybell.api.routes.workers import Readiness
from daybell.client import Client
from daybell.core.access import Role
from daybell.core.limits import REQUEST_KEY_CHARS_MAX
from daybell.version import VERSION

# HEAD: what GET would answer, without its body.

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STREAM: Final = b"text/event-stream"


class HeadMiddleware:
    """Around an application: has HEAD answered like GET.

    What may be a stream is left alone: it has no end to answer with.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or _is_stream(scope):
            return await self._app(scope, receive, send)

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, send_head)


def _is_stream(scope: Scope) -> bool:
    wants = any(name == b"accept" and STREAM in value for name, value in scope["headers"])
    return wants or scope["path"].endswith("/stream")


BASE: Final = "/api/v1"
# What is asked for most comes first: paths are looked for in this order.
ROUTERS: Final = (
    jobs.job_actions_router,
    bulk.router,
    jobs.router,
    executions.router,
    events.router,
    bulk.dead_letters_router,
    workers.queues_router,
    workers.router,
    jobs.schedules_router,
    schedules.router,
    workers.status_router,
    stream.router,
    jobs.templates_router,
    admin.secrets_router,
    admin.tenants_router,
    admin.keys_router,
    admin.audit_router,
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
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.api = Api(
        client=client,
        options=options or ApiOptions(),
        authenticate=authenticated_by,
    )
    caller.install(app)
    app.add_middleware(HeadMiddleware)
    alive = workers.make_health_router(readiness or Readiness(client.check_ready))
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


# A short way for the two requests that come in great numbers: one trigger, and bulk enqueues.
#
# The application's own way through its routes costs several times what such a request does. Here
# are the same functions behind a plain look at the path. Whatever is unusual about a request, or
# might be refused before its body is read, goes the long way: so this knows no rules of its own.

BULK_PATH: Final = b"/api/v1/executions"
# Names that need no escape, and ids.
_TRIGGER: Final = re.compile(rb"/api/v1/jobs/([A-Za-z0-9_.:@+-]{1,200})/trigger")
_KEY: Final = re.compile(rb"[!-~]{1,%d}" % REQUEST_KEY_CHARS_MAX)


class FastPath:
    """In front of an application, behind whoever finds out who asks."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _match_path(scope)
        key = None if name is None else _read_key(scope)
        if name is None or key is None:
            return await self._app(scope, receive, send)
        raw = await _read_body(receive)
        if raw is not None:
            response = await _perform(
                Request(scope), scope[CALLER], name, raw, key.decode() or None
            )
            await response(scope, receive, send)


async def _perform(
    request: Request, caller: Caller, name: bytes, raw: bytes, key: str | None
) -> Response:
    if name == BULK_PATH:
        return await enqueue(request, caller, raw, key)
    return await trigger_execution(request, caller, name.decode(), raw, key)


def _match_path(scope: Scope) -> bytes | None:
    """The job that is triggered, or BULK_PATH; None for everything else."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    caller: Caller | None = scope.get(CALLER)
    if caller is None or not caller.role.may(Role.OPERATOR) or caller.scope is not None:
        return None
    path = scope["raw_path"]
    if path == BULK_PATH:
        return path
    found = _TRIGGER.fullmatch(path)
    return None if found is None else found[1]


def _read_key(scope: Scope) -> bytes | None:
    """The Idempotency-Key, empty if there is none; None if the headers need a closer look."""
    kinds: list[bytes] = []
    keys: list[bytes] = []
    for name, value in scope["headers"]:
        if name == b"content-type":
            kinds.append(value)
        elif name == b"idempotency-key":
            keys.append(value)
    if kinds != [b"application/json"] or len(keys) > 1:
        return None
    if not keys:
        return b""
    return keys[0] if _KEY.fullmatch(keys[0]) else None


async def _read_body(receive: Receive) -> bytes | None:
    """All of the body; None if whoever sent it is gone."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)

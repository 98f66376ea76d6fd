"""A short way for the two requests that come in great numbers: one trigger, and bulk enqueues.

The application's own way through its routes costs several times what such a request does. Here are
the same functions behind a plain look at the path. Whatever is unusual about a request, or might be
refused before its body is read, goes the long way: so this knows no rules of its own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fastapi import Request, Response

from daybell.api.auth import CALLER
from daybell.api.bulk import enqueue
from daybell.api.caller import Caller
from daybell.api.triggering import trigger
from daybell.core.access import Role
from daybell.core.limits import REQUEST_KEY_CHARS_MAX

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BULK_PATH: Final = b"/api/v1/executions"
# Names that need no escape, and ids.
_TRIGGER: Final = re.compile(rb"/api/v1/jobs/([A-Za-z0-9_.:@+-]{1,200})/trigger")
_KEY: Final = re.compile(rb"[!-~]{1,%d}" % REQUEST_KEY_CHARS_MAX)


class Lane:
    """In front of an application, behind whoever finds out who asks."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _recognised(scope)
        key = None if name is None else _key(scope)
        if name is None or key is None:
            return await self._app(scope, receive, send)
        raw = await _body(receive)
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
    return await trigger(request, caller, name.decode(), raw, key)


def _recognised(scope: Scope) -> bytes | None:
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


def _key(scope: Scope) -> bytes | None:
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


async def _body(receive: Receive) -> bytes | None:
    """All of the body; None if whoever sent it is gone."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)

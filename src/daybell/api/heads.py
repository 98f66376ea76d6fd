"""HEAD: what GET would answer, without its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STREAM: Final = b"text/event-stream"


class Heads:
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

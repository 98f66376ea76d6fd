"""`/healthz` and `/readyz` over HTTP, and nothing else.

Small on purpose: one request per connection, GET only, a few kilobytes of header, seconds to send
it. Whoever asks learns whether this process and its store are well, not where the store is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from daybell.engine.clock import Clock
from daybell.errors import Conflict, DaybellError, UsageError
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.server")

HEADER_BYTES_MAX: Final = 8 * 1024
REQUEST_SECONDS_MAX: Final = 5.0
STORE_SECONDS_MAX: Final = 3.0
CONNECTIONS_MAX: Final = 200
# Probes of many machines together cost the store one question a second.
READY_SECONDS: Final = 1.0

Answer = tuple[HTTPStatus, dict[str, str]]


class Readiness:
    """Whether the store answers; asked at most once a second, whoever wants to know."""

    def __init__(self, store: Store, *, clock: Clock, is_open: bool = True) -> None:
        self._store = store
        self._clock = clock
        self._is_open = is_open
        self._lock = asyncio.Lock()
        self._asked_at = clock.monotonic() - READY_SECONDS
        self._answer: Answer = (HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting"})

    async def __call__(self) -> Answer:
        async with self._lock:
            if self._clock.monotonic() - self._asked_at >= READY_SECONDS:
                self._answer = await self._ask()
                self._asked_at = self._clock.monotonic()
            return self._answer

    async def _ask(self) -> Answer:
        try:
            async with asyncio.timeout(STORE_SECONDS_MAX):
                if not self._is_open:
                    await self._store.open()
                    self._is_open = True
                await self._store.list_tenants()
        except TimeoutError:
            error = f"the store does not answer within {STORE_SECONDS_MAX:g} s"
        except DaybellError as refusal:
            logger.warning("not ready: %s", refusal)
            error = "the store cannot be used; see the log"
        else:
            return HTTPStatus.OK, {"status": "ready"}
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "error": error}


class HealthServer:
    """Answers probes until it is closed."""

    def __init__(self, ready: Callable[[], Awaitable[Answer]]) -> None:
        self._ready = ready
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises Conflict if the port is taken, UsageError for a host that is not here."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=HEADER_BYTES_MAX, backlog=CONNECTIONS_MAX
            )
        except OSError as error:
            raise _refusal(error, host, port) from error
        bound = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"

    async def stop(self) -> None:
        """Close the door, and cut off who is still talking."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    answer = await self._answer(reader)
                    writer.write(answer)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # nobody is left to be told; only `stop` cancels, and it waits for the rest
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target, _, version = rest.rpartition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST)
        path = target.partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz"):
            return _response(HTTPStatus.NOT_FOUND)
        if method != b"GET":
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, extra="Allow: GET\r\n")
        if path == b"/healthz":
            return _response(HTTPStatus.OK, {"status": "ok"})
        return _response(*await self._ready())


def _response(status: HTTPStatus, body: dict[str, str] | None = None, *, extra: str = "") -> bytes:
    content = json.dumps(body or {"status": status.phrase.lower()}).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode() + content


def _refusal(error: OSError, host: str, port: int) -> DaybellError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(f"port {port} of {host} is in use; choose another with --port")
    if error.errno == errno.EACCES:
        return Conflict(f"port {port} of {host} is not for you; choose one above 1023 with --port")
    return UsageError(f"cannot listen on {host}: {error.strerror or error}", field="host")

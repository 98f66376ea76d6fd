"""Connections that know when to end: too much of a head, too slow, too many.

uvicorn's protocol over llhttp leaves these open: a head may be of any size, and take any time.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from daybell.api.guard import ABORT, LINGER, PEER
from daybell.api.peer import find_user
from daybell.core.limits import HEADER_BYTES_MAX, HEADER_SECONDS_MAX, HEADERS_MAX

_REFUSAL: Final = (
    "HTTP/1.1 {status.value} {status.phrase}\r\n"
    "content-type: application/problem+json\r\n"
    "content-length: {length}\r\n"
    "x-content-type-options: nosniff\r\n"
    "cache-control: no-store\r\n"
    "connection: close\r\n\r\n{body}"
)
_PROBLEM: Final = '{"type":"urn:daybell:problem:%s","title":"%s","status":%d,"detail":"%s"}'
_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE

NOT_ASKED: Final = -1


class HeadTooLarge(Exception):
    """There is too much before the body."""


class Connection(HttpToolsProtocol):
    """One connection, with limits to what comes before a body."""

    header_seconds: float = HEADER_SECONDS_MAX
    connections_max: int = 0  # 0: any number; see `limited`
    # Those without a request, by the address of the peer, oldest first.
    waiting: ClassVar[dict[str, dict[Connection, None]]] = {}

    _timer: asyncio.TimerHandle | None = None
    _head_bytes: int = 0
    _is_too_large = False
    _has_ended_one = False  # a message ended in what came last
    _peer: int | None = NOT_ASKED
    _is_lingering = False  # all is said; what still comes is thrown away
    _address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.appear(transport)
        self.begin(transport)

    def appear(self, transport: asyncio.Transport) -> None:
        """Count from now on, and make way if there are too many."""
        self.transport = transport
        self.connections.add(self)
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if self.connections_max and len(self.connections) > self.connections_max:
            self._make_room()
        self._start_waiting()
        self._start_timer()

    def begin(self, transport: asyncio.Transport) -> None:
        """Be ready for requests."""
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            # Blank lines are allowed before a request: they are not the beginning of one.
            self._start_timer()
        self._has_ended_one = False
        super().data_received(data)
        if self._timer is not None and not self.transport.is_closing():
            # How much of this is the head is not known if another message ended before it. What is
            # passed over then is one piece at most.
            self._head_bytes += 0 if self._has_ended_one else len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self._is_too_large = True
                self.send_400_response("")

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        self.scope[LINGER] = self._linger  # type: ignore[typeddict-unknown-key]
        self.scope[PEER] = self._find_peer  # type: ignore[typeddict-unknown-key]
        self._start_timer()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEADER_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self._is_too_large = True
            raise HeadTooLarge  # the parser stops, and the request is refused
        self._stop_timer()
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._has_ended_one = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_idle and not self.transport.is_closing():
            self._start_waiting()

    def send_400_response(self, msg: str) -> None:
        """Say that this was not a request, or too much of one, and close."""
        if self._is_lingering:
            return self.transport.close()
        if self._timer is not None and not self.is_idle:
            # The next answer is expected to be that of a request before this one. It is the last.
            self.cycle.keep_alive = False
            return self.transport.pause_reading()
        status = _TOO_LARGE if self._is_too_large else HTTPStatus.BAD_REQUEST
        detail = (
            f"there are more than {HEADER_BYTES_MAX:,} bytes or {HEADERS_MAX} headers"
            if self._is_too_large
            else "this is not a request of HTTP/1.1"
        )
        kind = "request-header-fields-too-large" if self._is_too_large else "bad-request"
        body = _PROBLEM % (kind, status.phrase, status.value, detail)
        self.transport.write(_REFUSAL.format(status=status, length=len(body), body=body).encode())
        self.transport.close()

    def _linger(self) -> None:
        """Be among those that make way: nobody waits for anything but the end."""
        self._is_lingering = True
        self._start_waiting()

    def _start_waiting(self) -> None:
        self.waiting.setdefault(self._address, {})[self] = None

    def _stop_waiting(self) -> None:
        neighbours = self.waiting.get(self._address)
        if neighbours is not None:
            neighbours.pop(self, None)
            if not neighbours:
                del self.waiting[self._address]

    def _find_peer(self) -> int | None:
        """Return the uid of the local user at the other end; the kernel is asked once."""
        if self._peer == NOT_ASKED:
            self._peer = find_user(self.transport.get_extra_info("socket"))
        return self._peer

    def _make_room(self) -> None:
        """Of the address with the most connections without a request, close the one that has been
        without for longest; this one if there is none.
        """
        most = max(self.waiting.values(), key=len, default={self: None})
        oldest = next(iter(most))
        oldest._stop_waiting()
        oldest.transport.abort()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._head_bytes = 0
            self._timer = self.loop.call_later(self.header_seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.is_idle:
            self.transport.abort()
        else:
            # Others of its requests are being answered: this one will not be.
            self.cycle.keep_alive = False


def limited(kind: type[Connection], **limits: Any) -> type[Connection]:
    """A kind of connection with other limits."""
    return type(f"Limited{kind.__name__}", (kind,), {"waiting": {}, **limits})

"""How much a PostgreSQL server may send at once.

One value can be as large as a gigabyte, and the driver takes whatever comes before it is asked what
is to be kept. So what comes is looked at on its way, and the line is cut before it is too much.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

# Of all rows that come for one request: far more than are kept. Short elements of an array take
# up to 25 times as much in Python, on each of a few connections.
RECEIVED_BYTES_MAX: Final = 8 * 1024 * 1024
_HEAD_BYTES: Final = 5  # of a message: its kind, and a length that counts itself but not the kind
_ROW: Final = ord("D")
_READY: Final = ord("Z")  # for the next request

_driver = cast("Any", asyncpg)  # it has no types of its own


class Meter(asyncio.Protocol):
    """Stands before a connection's protocol, and cuts the line when too much comes."""

    def __init__(self, protocol: Any, transport: Any) -> None:
        self._protocol = protocol
        self._transport = transport
        self._head = bytearray()
        self._left = 0  # of the message at hand
        self._rows = 0  # bytes of them since the last request was answered
        self.is_over = False
        self.connection_lost = protocol.connection_lost
        self.eof_received = protocol.eof_received
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self._look(data)
        if self.is_over:
            self._transport.abort()
        else:
            self._protocol.data_received(data)

    def _look(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = min(_HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == _HEAD_BYTES:
                    self._begin(self._head[0], int.from_bytes(self._head[1:]) - 4)
                    self._head.clear()
            at += step

    def _begin(self, kind: int, size: int) -> None:
        self._left = size
        if kind == _READY:
            self._rows = 0
        elif kind == _ROW:
            self._rows += size
        if size > RECEIVED_BYTES_MAX or self._rows > RECEIVED_BYTES_MAX:
            self.is_over = True


class MeteredConnection(_driver.Connection):
    """A connection behind a meter."""

    def __init__(self, protocol: Any, transport: Any, *args: Any, **options: Any) -> None:
        super().__init__(protocol, transport, *args, **options)  # pyright: ignore[reportUnknownMemberType]
        self.meter = Meter(protocol, transport)
        transport.set_protocol(self.meter)

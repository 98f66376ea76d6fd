"""TLS on connections that count from the moment they are accepted.

The event loop's own servers tell nobody of a connection before its handshake is done, and wait a
minute for that: whoever opens many and says nothing would take all the files that a process has.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from daybell.api.connections import Connection

PAUSE_SECONDS: Final = 0.1  # when the machine has nothing left to accept one with


class Handshake:
    """Stands for a connection's transport until it has one."""

    def __init__(self, call: socket.socket) -> None:
        self._call = call
        self._is_over = False

    def get_extra_info(self, name: str) -> Any:
        """Return the peer's address, as a transport does."""
        with suppress(OSError):  # it has left already
            return self._call.getpeername() if name == "peername" else None

    def is_closing(self) -> bool:
        return self._is_over

    def close(self) -> None:
        """Break it off; whoever waits for the handshake hears of it and cleans up."""
        self._is_over = True
        with suppress(OSError):  # the other side was quicker
            self._call.shutdown(socket.SHUT_RDWR)

    abort = close


class SecureConnection(Connection):
    """A connection whose first words are a handshake, within the time that a head has."""

    _is_lost = False

    async def shake_hands(self, call: socket.socket, tls: ssl.SSLContext) -> None:
        """Become one that can be used, or count no more."""
        self.appear(cast("asyncio.Transport", Handshake(call)))
        try:
            await self.loop.connect_accepted_socket(
                lambda: self,
                call,
                ssl=tls,
                ssl_handshake_timeout=self.header_seconds,
                ssl_shutdown_timeout=self.header_seconds,
            )
        except Exception as error:  # whatever it is, nobody else would hear of it
            self.connection_lost(error)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # Of one that ends with its handshake, the event loop may tell or not.
        if not self._is_lost:
            self._is_lost = True
            super().connection_lost(exc)


class Porter:
    """Accepts connections, and sees them through their handshakes."""

    def __init__(self, make: Callable[[], SecureConnection], tls: ssl.SSLContext) -> None:
        self._make = make
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()  # nobody else keeps them
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, listener: socket.socket) -> None:
        """Begin to accept."""
        self._accepting.append(asyncio.create_task(self._accept(listener), name="tls"))

    def stop(self) -> None:
        """Accept no more."""
        for task in self._accepting:
            task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                call, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            task = loop.create_task(self._make().shake_hands(call, self._tls))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # a crowd at the door does not keep the others waiting

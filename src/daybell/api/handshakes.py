"""TLS on connections that count from the moment they are accepted.

The event loop's own servers tell nobody of a connection before its handshake is done, and wait a
minute for that: whoever opens many and says nothing would take all the files that a process has.
"""

from __future__ import annotations

import asyncio
import ssl

from daybell.api.connections import Connection


class SecureConnection(Connection):
    """A connection whose first words are a handshake, within the time that a head has."""

    tls: ssl.SSLContext

    _handshake: asyncio.Task[None] | None = None
    _early: list[bytes] | None = None  # came with the end of the handshake
    _is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # until somebody is there who understands it
        self._early = []
        self.appear(transport)
        self._handshake = self.loop.create_task(self._shake_hands(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        # Of one that ends during its handshake, the event loop may tell or not.
        if not self._is_lost:
            self._is_lost = True
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._early is None:
            super().data_received(data)
        else:
            self._early.append(data)

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        if plain.is_closing():  # there were too many
            return
        try:
            secure = await self.loop.start_tls(
                plain,
                self,
                self.tls,
                server_side=True,
                ssl_handshake_timeout=self.header_seconds,
                ssl_shutdown_timeout=self.header_seconds,
            )
        except Exception as error:  # whatever it is, nobody else would hear of it
            plain.abort()
            return self.connection_lost(error)
        if secure is None or plain.is_closing():
            return self.connection_lost(None)
        if self._is_lost:
            return
        self.begin(secure)
        early, self._early = self._early or [], None
        for data in early:
            self.data_received(data)

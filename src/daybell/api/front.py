"""A request's whole way, from a socket to a client of the store: what `server` and `dev` run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from typing import Any, Final

from daybell.api.app import create_api
from daybell.api.auth import Gatekeeper
from daybell.api.checks import host_name
from daybell.api.guard import Guard, Limits
from daybell.api.health import Readiness
from daybell.api.lane import Lane
from daybell.api.options import ApiOptions
from daybell.api.server import ApiServer, ServerOptions, connections_max
from daybell.api.streaming import Streams
from daybell.client import Client, Holder
from daybell.core.instant import Seconds
from daybell.errors import DaybellError, Unavailable, UsageError, shown

GOODBYE_SECONDS: Final = 2.0  # for the last word to the store


class Front:
    """An API that listens.

    `ask` finds out whether the store answers. `is_there` says whether it has been opened: before
    that, the API answers that it is unavailable.
    """

    def __init__(
        self,
        client: Client,
        *,
        options: ServerOptions,
        api: ApiOptions,
        monotonic: Callable[[], Seconds],
        ask: Callable[[], Awaitable[object]],
        is_there: Callable[[], bool] = lambda: True,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self._is_there = is_there
        self.gatekeeper = Gatekeeper(client, api, monotonic=monotonic)
        self.streams = Streams(
            monotonic=monotonic,
            is_welcome=self.gatekeeper.is_welcome,
            streams_max=options.streams,
        )
        app = create_api(
            client,
            options=api,
            authenticated_by=self.gatekeeper.authenticate,
            readiness=Readiness(ask, monotonic=monotonic),
        )
        app.state.streams = self.streams
        self._server = ApiServer(
            Guard(
                Lane(app),
                hosts=read_hosts([options.host, *allowed_hosts]),
                admit=self._admit,
                told=self.gatekeeper.hear,
                limits=Limits(
                    connections=connections_max(options),
                    requests=options.requests,
                    bodies_bytes=options.bodies_bytes,
                ),
                is_tls=options.tls_cert is not None,
            ),
            options,
        )

    @property
    def url(self) -> str:
        return self._server.url

    def bind(self, *, listening: bool = True) -> None:
        """Take the port. Raises Conflict if others have it, UsageError for a host not here."""
        self._server.bind(listening=listening)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Answer what is being answered, and end the streams."""
        self.streams.close()
        await self._server.stop()
        if self._is_there():
            # Nobody waits for a store that is away only to say when a key was last used.
            with suppress(DaybellError, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.gatekeeper.tick()
                    await self.gatekeeper.note_use()

    async def _admit(self, scope: MutableMapping[str, Any]) -> Holder:
        if not self._is_there():
            raise Unavailable("the store has not been opened yet")
        return await self.gatekeeper.admit(scope)


def read_hosts(names: Collection[str]) -> set[str]:
    """Names that requests may be addressed to. Raises UsageError for what is none."""
    found: set[str] = set()
    for name in names:
        plain = host_name(f"[{name}]" if ":" in name and not name.startswith("[") else name)
        if plain is None:
            raise UsageError(
                f"--allowed-host {shown(name)} is not a host name; write it as jobs.example.org",
                field="allowed_host",
            )
        found.add(plain)
    return found

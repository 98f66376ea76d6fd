"""The API server: guard and application, run by uvicorn in the current event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
import uvicorn

from daybell.api.app import FastPath, create_api
from daybell.api.auth import Authenticator
from daybell.api.caller import ApiOptions
from daybell.api.connections import (
    BACKLOG,
    Connection,
    SecureConnection,
    TlsAcceptor,
    bind,
    limit_connections,
    listen,
    tls_context,
)
from daybell.api.guard import Guard, Limits, host_name
from daybell.api.routes.status import Readiness
from daybell.api.stream import Streams
from daybell.client import Client, Holder
from daybell.core.limits import (
    BODIES_BYTES_MAX,
    CONNECTIONS_MAX,
    HEADER_SECONDS_MAX,
    REQUESTS_MAX,
    STREAMS_MAX,
)
from daybell.core.units import Seconds
from daybell.errors import DaybellError, Unavailable, UsageError, shown

KEEP_ALIVE_SECONDS: Final = 75  # longer than the proxies in front keep theirs, 60 as a rule
STOP_SECONDS: Final = 5  # for requests that are being answered
FILES_LEFT: Final = 200  # for the store and everything else

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to listen, and how much of each resource callers share."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: str | None = None
    tls_key: str | None = None
    # Proxies whose word on where a request came from is taken; "*" takes everybody's.
    forwarded_allow_ips: str = ""
    header_seconds: Seconds = HEADER_SECONDS_MAX
    connections: int = CONNECTIONS_MAX
    requests: int = REQUESTS_MAX
    bodies_bytes: int = BODIES_BYTES_MAX
    streams: int = STREAMS_MAX
    stop_seconds: int = STOP_SECONDS


class ApiServer:
    """Serves an application from `start` to `stop`."""

    def __init__(self, app: AsgiApp, options: ServerOptions) -> None:
        self._options = options
        self._tls = tls_context(options.tls_cert, options.tls_key)
        self._server = uvicorn.Server(_config(app, options, self._tls))
        self._sockets: list[socket.socket] = []
        self._main: asyncio.Task[None] | None = None
        self._porter: TlsAcceptor | None = None  # with TLS
        self.url = ""

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._server.server_state.connections)

    def bind(self, *, listening: bool = True) -> None:
        """Take the port. Raises Conflict if others have it, UsageError for a host not here.

        Who comes before the start waits for it, or without `listening`, is refused.
        """
        options = self._options
        self._sockets = bind(options.host, options.port)
        port = self._sockets[0].getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"{'http' if self._tls is None else 'https'}://{host}:{port}"
        if listening:
            listen(self._sockets, options.host)

    async def start(self) -> None:
        """Begin to answer. Raises Conflict if others listen on the port by now."""
        if not self._sockets:
            self.bind()
        listen(self._sockets, self._options.host)
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=self._sockets if self._tls is None else [])
        if self._tls is not None:
            self._porter = TlsAcceptor(self._make_secure, self._tls)
            for one in self._sockets:
                self._porter.start(one)
        self._main = asyncio.create_task(self._server.main_loop(), name="http")

    async def stop(self) -> None:
        """Close the door, let requests be answered for a while, and cut off who is left.

        Streams are ended by whoever sends them, and before this: they would take all of the time.
        """
        if self._main is None:
            for one in self._sockets:
                one.close()
            return
        if self._porter is not None:
            self._porter.stop()
        self._server.should_exit = True
        await self._main
        self._main = None
        # uvicorn would wait for all who have a request, but not end what is left after that.
        await self._server.shutdown(sockets=self._sockets)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    def _make_secure(self) -> SecureConnection:
        server = self._server
        kind = cast("type[SecureConnection]", server.config.http_protocol_class)
        state = server.lifespan.state
        return kind(config=server.config, server_state=server.server_state, app_state=state)


def _config(app: AsgiApp, options: ServerOptions, tls: ssl.SSLContext | None) -> uvicorn.Config:
    # What comes in is answered and counted by us; of uvicorn's own words none are of use to people.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    proxies = read_proxies(options.forwarded_allow_ips)
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=_connections(options, tls),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.stop_seconds,
    )


def read_proxies(text: str) -> list[str]:
    """Addresses and networks, separated by commas; "*" is all. Raises UsageError."""
    proxies = [one.strip() for one in text.split(",") if one.strip()]
    for one in proxies:
        try:
            if one != "*":
                ipaddress.ip_network(one)
        except ValueError:
            raise UsageError(
                f"--forwarded-allow-ips {shown(one)} is not an address or a network; write it as"
                " 10.0.0.7 or 10.0.0.0/24",
                field="forwarded_allow_ips",
            ) from None
    return proxies


def connections_max(options: ServerOptions) -> int:
    """Return how many connections there may be, with the files that this process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(10, min(options.connections, files - FILES_LEFT))


def _connections(options: ServerOptions, tls: ssl.SSLContext | None) -> type[Connection]:
    kind = Connection if tls is None else SecureConnection
    return limit_connections(
        kind, connections_max=connections_max(options), header_seconds=options.header_seconds
    )


# A request's whole way, from a socket to a client of the store: what `server` and `dev` run.

FLUSH_SECONDS: Final = 2.0  # for the last word to the store


class ApiService:
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
        self.gatekeeper = Authenticator(client, api, monotonic=monotonic)
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
                FastPath(app),
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
                async with asyncio.timeout(FLUSH_SECONDS):
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

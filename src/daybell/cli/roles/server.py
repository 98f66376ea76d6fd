"""`daybell server`: the HTTP API, also while the store is unavailable."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from daybell.api.caller import ApiOptions
from daybell.api.server import ApiService, ServerOptions, is_loopback
from daybell.cli.roles import logs
from daybell.cli.roles.startup import describe_names, is_everywhere, tune_garbage_collector
from daybell.cli.runtime import DONE, with_flag
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.client import Client
from daybell.client.admin import login_link
from daybell.core.access import LOGIN_SECONDS, Role
from daybell.core.units import Seconds
from daybell.engine.loop import Clock, Loop, SystemClock
from daybell.errors import SchemaError, Unavailable, UsageError
from daybell.settings import Settings, masked_url

logger = logging.getLogger("daybell.server")

OPEN_SECONDS_MAX: Final = 3.0  # for one try to open the store
OPEN_PAUSE_SECONDS: Final = 2.0
TELL_SECONDS: Final = 5.0  # between two reports to the store

FIRST_KEY: Final = "`daybell keys create first --role admin`"


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `daybell server`."""

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    has_dashboard: bool = True
    tls_cert: str | None = None
    tls_key: str | None = None
    forwarded_allow_ips: str = ""
    read_only: bool = False
    flag: str | None = None  # a --database-url

    def server(self, settings: Settings) -> ServerOptions:
        """Return the address to listen on, and the shares that the settings specify."""
        return ServerOptions(
            connections=settings.server_connections,
            requests=settings.server_requests,
            bodies_bytes=settings.server_bodies,
            streams=settings.server_streams,
            host=self.host,
            port=self.port,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            forwarded_allow_ips=self.forwarded_allow_ips,
            has_dashboard=self.has_dashboard,
        )


class StoreOpener:
    """Opens a client's store when it can be opened, and logs that."""

    def __init__(self, client: Client, url: str, on_open: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._url = url
        self._on_open = on_open
        self._lock = asyncio.Lock()
        self._reason = ""  # why it is not open
        self.is_open = False
        self.is_empty = False  # it is there, without a schema

    async def tick(self) -> Seconds | None:
        """Try to open it, if it is not open."""
        async with self._lock:
            if not self.is_open:
                await self._try()
        return None

    async def ask(self) -> None:
        """Check that the store can be read and written. Raises Unavailable and others."""
        await self.tick()
        if not self.is_open:
            raise Unavailable(self._reason)
        await self._client.check_ready()

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                await self._client.store.open()
        except (SchemaError, Unavailable, TimeoutError) as error:
            self.is_empty = isinstance(error, SchemaError)
            if not self._reason:
                logger.warning(
                    "%s cannot be used yet: %s", masked_url(self._url), _describe_open_error(error)
                )
            self._reason = _describe_open_error(error)
            return
        if self._reason:
            logger.info("%s is there", masked_url(self._url))
        self.is_open = True
        with suppress(SchemaError, Unavailable):  # it may be away again
            await self._on_open()


def _describe_open_error(error: Exception) -> str:
    return str(error) or f"no answer within {OPEN_SECONDS_MAX:g} s"


async def serve(settings: Settings, *, request: ServeRequest) -> int:
    """Answer requests until an end is requested, with or without a reachable store."""
    logs.configure(settings)
    refuse_memory(settings.database_url)
    clock = SystemClock()
    client = Client(
        settings.database_url,
        secrets_key=settings.secrets_key,
        lease=settings.lease,
        pool_size=settings.pool_size,
    )
    is_public = not is_loopback(request.host)

    async def greet() -> None:
        if not await client.has_keys():
            if is_public:
                return  # it does not start
            advice = with_flag(FIRST_KEY, request.flag)
            logger.warning("there is no API key yet, so nobody is let in; %s makes one", advice)
        if request.has_dashboard:
            await announce_dashboard(client, front.url, request)

    door = StoreOpener(client, settings.database_url, greet)
    front = ApiService(
        client,
        options=request.server(settings),
        api=ApiOptions(key_rate=settings.server_key_rate, read_only=request.read_only),
        monotonic=clock.monotonic,
        ask=door.ask,
        is_there=lambda: door.is_open,
        allowed_hosts=request.allowed_hosts,
    )
    opening = Loop("opening", door.tick, interval=OPEN_PAUSE_SECONDS, clock=clock)
    with StopSignals() as stop:
        try:
            front.bind(listening=not is_public)
            with stop.heeding():
                if is_public:
                    await wait_for_key(door, client, request, clock)
                await door.tick()
            opening.start()
            await serve_until_stopped(front, stop, clock, names=names_suffix(request))
        except StartInterrupted:
            return stop.code
        finally:
            await opening.stop()
            await front.stop()
            await client.close()
    logger.info("stopped")
    return DONE


async def announce_dashboard(client: Client, url: str, request: ServeRequest) -> None:
    """Log the address of the dashboard. Only a terminal gets a link: other logs are kept."""
    if not sys.stderr.isatty():
        command = with_flag("`daybell login`", request.flag)
        logger.info("dashboard: %s/; %s prints a link that logs a browser in", url, command)
        return
    role = Role.VIEWER if request.read_only else Role.ADMIN
    made = await client.create_login(role=role, created_by="server")
    minutes = round(LOGIN_SECONDS / 60)
    logger.info(
        "dashboard: %s logs a browser in, once, within %d min", login_link(url, made.token), minutes
    )


def refuse_memory(url: str) -> None:
    """Refuse a memory store: no client could create its keys or run its jobs. Raises UsageError."""
    if url.startswith("memory:"):
        raise UsageError(
            "memory:// is seen by one process alone, so a server would have no keys and no workers;"
            " use sqlite:///jobs.db, or `daybell dev`, which is all in one process",
            field="database_url",
        )


def names_suffix(request: ServeRequest) -> str:
    """Describe the server's names for a log line; empty if `--host` is one address."""
    return f"; {describe_names(request.allowed_hosts)}" if is_everywhere(request.host) else ""


async def serve_until_stopped(
    front: ApiService, stop: StopSignals, clock: SystemClock, *, names: str = ""
) -> None:
    """Serve until an end is requested."""
    telling = key_usage_loop(front, clock)
    await front.start()
    telling.start()
    tune_garbage_collector()
    logger.info("listening: %s/api/v1, and /, /docs, /healthz, /readyz%s", front.url, names)
    try:
        await stop.wait()
    finally:
        await telling.stop()


def key_usage_loop(front: ApiService, clock: SystemClock) -> Loop:
    """Return the loop that reports used keys, and requests refused to them, to the store."""
    loop = Loop("keys", front.gatekeeper.tick, interval=TELL_SECONDS, clock=clock)
    front.gatekeeper.on_denial = loop.wake
    return loop


async def wait_for_key(
    door: StoreOpener, client: Client, request: ServeRequest, clock: Clock
) -> None:
    """Wait until the store can report if there is a key. Raises UsageError if there is none."""
    is_told = False
    while True:
        with suppress(Unavailable):
            await door.tick()
            if door.is_empty:
                raise _no_key(request.host, request.flag)
            if door.is_open:
                return await require_key(client, host=request.host, flag=request.flag)
        if not is_told:
            logger.warning(
                "--host %s lets other machines in, so this listens once the store says that there"
                " is an API key",
                request.host,
            )
        is_told = True
        await clock.sleep(OPEN_PAUSE_SECONDS)


async def require_key(client: Client, *, host: str, flag: str | None) -> None:
    """Refuse to listen for other machines while there is no key to tell callers apart."""
    if not await client.has_keys():
        raise _no_key(host, flag)


def _no_key(host: str, flag: str | None) -> UsageError:
    return UsageError(
        f"--host {host} lets other machines in, and there is no API key to know anybody by; make"
        f" one with {with_flag(FIRST_KEY, flag)}, or listen on 127.0.0.1",
        field="host",
    )

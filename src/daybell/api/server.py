"""The API server: guard and application, run by uvicorn in the current event loop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from daybell.api.app import create_api
from daybell.api.auth import Authenticator
from daybell.api.caller import ApiOptions
from daybell.api.dashboard import Dashboard, is_page
from daybell.api.guard import ABORT, LINGER, OPEN_PATHS, PEER, Guard, Limits, host_name
from daybell.api.routes.workers import Readiness
from daybell.api.stream import Streams
from daybell.client import Client, Holder
from daybell.client.leases.polls import Polls
from daybell.core.limits import (
    BODIES_BYTES_MAX,
    CONNECTIONS_MAX,
    HEADER_BYTES_MAX,
    HEADER_SECONDS_MAX,
    HEADERS_MAX,
    REQUESTS_MAX,
    STREAMS_MAX,
)
from daybell.core.monitoring.metrics import Reading
from daybell.core.units import Seconds
from daybell.errors import Conflict, DaybellError, Unavailable, UsageError, shown

# Listening sockets, TLS handshakes, limits per connection, and the local user of a peer.

# The local user at the other end of a TCP connection, as the kernel knows it (Linux only).

# See sock_diag(7). One request for one connection is answered from a hash table. To search
# /proc/net/tcp instead takes milliseconds, since the kernel walks through the whole table.
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = struct.Struct("=IHHIIBBBBI2s2s16s16sIII")
_ANSWER: Final = struct.Struct("=IHHIIBBBB48sIIIII")
_ANY: Final = 0xFFFFFFFF
_OVERFLOW_UID: Final = 65534  # stands for users that this user namespace does not have


def find_user(connection: socket.socket) -> int | None:
    """Return the uid of the process that opened a connection to this machine.

    None: it cannot be determined. A socket that its process has closed belongs to no user any more,
    and the kernel reports 0 for it, which would be root.
    """
    try:
        local, remote = connection.getsockname(), connection.getpeername()
        answer = _ask_kernel(connection.family, of=remote, to=local)
        # Only while the connection exists, no other one can have these addresses.
        connection.getpeername()
    except OSError:
        return None
    if len(answer) < _ANSWER.size:
        return None
    _, kind, *_, uid, inode = _ANSWER.unpack_from(answer)
    if kind != _BY_FAMILY or inode == 0:
        return None
    return None if uid == _OVERFLOW_UID and not _knows_all_users() else uid


def _ask_kernel(family: int, *, of: tuple[str, int], to: tuple[str, int]) -> bytes:
    """Ask the kernel for the socket with the address `of` that is connected to `to`."""
    request = _REQUEST.pack(
        _REQUEST.size, _BY_FAMILY, 1, 1, 0,
        family, socket.IPPROTO_TCP, 0, 0, _ANY,
        of[1].to_bytes(2), to[1].to_bytes(2),
        socket.inet_pton(family, of[0]), socket.inet_pton(family, to[0]),
        0, _ANY, _ANY,
    )  # fmt: skip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(request)
        return kernel.recv(4096)


def _knows_all_users() -> bool:
    """Return True if each user has a uid of its own in this process."""
    try:
        return Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(_ANY)]
    except OSError:
        return False


_RESPONSE: Final = (
    "HTTP/1.1 {status.value} {status.phrase}\r\n"
    "content-type: application/problem+json\r\n"
    "content-length: {length}\r\n"
    "x-content-type-options: nosniff\r\n"
    "cache-control: no-store\r\n"
    "connection: close\r\n\r\n{body}"
)
_PROBLEM: Final = (
    '{"type":"urn:daybell:problem:%s","code":"%s","title":"%s","status":%d,"detail":"%s"}'
)
_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE

NOT_ASKED: Final = -1


class HeadTooLarge(Exception):
    """The head of a request is too large."""


class Connection(HttpToolsProtocol):
    """One connection, with limits to the size and time of the head of a request."""

    header_seconds: float = HEADER_SECONDS_MAX
    connections_max: int = 0  # 0: any number; see `limit_connections`
    # Connections without a request, by the address of the peer, oldest first.
    waiting: ClassVar[dict[str, dict[Connection, None]]] = {}

    _timer: asyncio.TimerHandle | None = None
    _head_bytes: int = 0
    _is_too_large = False
    _has_ended_one = False  # a message ended in the last data
    _peer: int | None = NOT_ASKED
    _is_lingering = False  # all but the end of the response is sent; further data is discarded
    _address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.appear(transport)
        self.begin(transport)

    def appear(self, transport: asyncio.Transport) -> None:
        """Count this connection; close one if there are too many."""
        self.transport = transport
        self.connections.add(self)
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        if self.connections_max and len(self.connections) > self.connections_max:
            self._make_room()
        self._start_waiting()
        self._start_timer()

    def begin(self, transport: asyncio.Transport) -> None:
        """Start to read requests."""
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            # Blank lines are allowed before a request; they do not start one.
            self._start_timer()
        self._has_ended_one = False
        super().data_received(data)
        if self._timer is not None and not self.transport.is_closing():
            # If another message ended in this data, the size of the head in it is unknown. At most
            # one piece of data is not counted then.
            self._head_bytes += 0 if self._has_ended_one else len(data)
            if self._head_bytes > HEADER_BYTES_MAX:
                self._is_too_large = True
                self.send_400_response("")

    @property
    def is_idle(self) -> bool:
        """Return True if no request of this connection is in progress."""
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
        """Answer that the data is no request, or that its head is too large, and close."""
        if self._is_lingering:
            return self.transport.close()
        if self._timer is not None and not self.is_idle:
            # The next response must be that of the request before this one. It is the last one.
            self.cycle.keep_alive = False
            return self.transport.pause_reading()
        status = _TOO_LARGE if self._is_too_large else HTTPStatus.BAD_REQUEST
        detail = (
            f"there are more than {HEADER_BYTES_MAX:,} bytes or {HEADERS_MAX} headers"
            if self._is_too_large
            else "this is not a request of HTTP/1.1"
        )
        kind = "request-header-fields-too-large" if self._is_too_large else "bad-request"
        body = _PROBLEM % (kind, kind, status.phrase, status.value, detail)
        self.transport.write(_RESPONSE.format(status=status, length=len(body), body=body).encode())
        self.transport.close()

    def _linger(self) -> None:
        """Let this connection be closed for a new one: only the end of its response is unsent."""
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
        """Find the address with the most connections without a request, and close the one that has
        waited longest; this connection if there is none.
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
            # Earlier requests of this connection are in progress; this one gets no response.
            self.cycle.keep_alive = False


def limit_connections(kind: type[Connection], **limits: Any) -> type[Connection]:
    """Return a class of connections with other limits."""
    return type(f"Limited{kind.__name__}", (kind,), {"waiting": {}, **limits})


# TLS on connections that count from the moment they are accepted.
#
# The event loop's own servers report a connection only after its handshake, and wait a minute for
# that. A peer that opens many connections and sends nothing would take all files of the process.

PAUSE_SECONDS: Final = 0.1  # when the machine has no resources to accept a connection


class HandshakeTransport:
    """The transport of a connection during its handshake."""

    def __init__(self, call: socket.socket) -> None:
        self._call = call
        self._is_over = False

    def get_extra_info(self, name: str) -> Any:
        """Return the peer's address, as a transport does."""
        with suppress(OSError):  # the peer has disconnected
            return self._call.getpeername() if name == "peername" else None

    def is_closing(self) -> bool:
        return self._is_over

    def close(self) -> None:
        """Shut the socket down; the task of the handshake gets an error and cleans up."""
        self._is_over = True
        with suppress(OSError):  # the peer has closed it first
            self._call.shutdown(socket.SHUT_RDWR)

    abort = close


class SecureConnection(Connection):
    """A connection that starts with a TLS handshake, in the time limit of a head."""

    _is_lost = False

    async def shake_hands(self, call: socket.socket, tls: ssl.SSLContext) -> None:
        """Complete the handshake; after a failure, stop counting the connection."""
        self.appear(cast("asyncio.Transport", HandshakeTransport(call)))
        try:
            await self.loop.connect_accepted_socket(
                lambda: self,
                call,
                ssl=tls,
                ssl_handshake_timeout=self.header_seconds,
                ssl_shutdown_timeout=self.header_seconds,
            )
        except Exception as error:  # of any kind: no other code would see it
            self.connection_lost(error)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # If a connection ends in its handshake, the event loop may call this or not.
        if not self._is_lost:
            self._is_lost = True
            super().connection_lost(exc)


class TlsAcceptor:
    """The acceptor of TLS connections, which runs their handshakes."""

    def __init__(self, make: Callable[[], SecureConnection], tls: ssl.SSLContext) -> None:
        self._make = make
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()  # no other references keep them alive
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, listener: socket.socket) -> None:
        """Start to accept connections."""
        self._accepting.append(asyncio.create_task(self._accept(listener), name="tls"))

    def stop(self) -> None:
        """Stop accepting connections."""
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
            await asyncio.sleep(0)  # many new connections do not delay the open ones


# Listening sockets and TLS, and messages for their errors.

PEM_BYTES_MAX: Final = 1_000_000  # read of a certificate file
BACKLOG: Final = 1024
# This machine has no address of this kind, although its name service returns one.
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

Address = tuple[socket.AddressFamily, tuple[str, int]]


def addresses_of(host: str) -> list[Address]:
    """Return the addresses of a host from the command line. Raises UsageError."""
    if not host.strip():
        raise UsageError("--host is empty; say 127.0.0.1, or 0.0.0.0 for all addresses")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot listen on {shown(host)}: {reason}", field="host") from error
    return list({(family, (str(name[0]), 0)): None for family, _, _, _, name in found})


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host. Raises UsageError."""
    return all(
        ipaddress.ip_address(name.partition("%")[0]).is_loopback
        for _, (name, _) in addresses_of(host)
    )


def bind(host: str, port: int) -> list[socket.socket]:
    """Return sockets on all addresses of a host, on one port; 0 takes a free one.

    They do not listen yet: the kernel refuses connections.

    Raises Conflict if the port is taken, UsageError for a host that is not here.
    """
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    for family, (name, _) in addresses_of(host):
        # asyncio turns off Nagle's algorithm only for a socket that declares TCP. Without that a
        # response takes 40 ms.
        one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((name, port))
            one.setblocking(False)
        except OSError as error:
            one.close()
            refused = error
            if error.errno not in _NOT_HERE:
                break
        else:
            sockets.append(one)
            port = one.getsockname()[1]
    if refused is not None and (not sockets or refused.errno not in _NOT_HERE):
        for one in sockets:
            one.close()
        raise _bind_error(refused, host, port) from refused
    return sockets


def listen(sockets: Sequence[socket.socket], host: str) -> None:
    """Accept connections. Raises Conflict if another process listens on that port first."""
    for one in sockets:
        try:
            one.listen(BACKLOG)
        except OSError as error:
            raise _bind_error(error, host, one.getsockname()[1]) from error


def _bind_error(error: OSError, host: str, port: int) -> DaybellError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(f"port {port} of {host} is in use; choose another")
    if error.errno == errno.EACCES:
        return Conflict(f"port {port} of {host} is not for you; choose one above 1023")
    return UsageError(f"cannot listen on {host}: {error.strerror or error}", field="host")


def tls_context(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the TLS context; None without a certificate. Raises UsageError for unusable files."""
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key needs --tls-cert, the certificate that it belongs to")
        return None
    for flag, file in (("--tls-cert", cert), ("--tls-key", key)):
        _check_file(flag, file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        raise UsageError(_tls_fault(error, cert, key)) from error
    return context


def _check_file(flag: str, file: str | None) -> None:
    if file is None:
        return
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        raise UsageError(f"{flag} {shown(file)} cannot be read: {error.strerror}") from error


def _refuse_passphrase() -> str:
    raise UsageError("the key of --tls-key has a passphrase; give one that has none")


def _tls_fault(error: ssl.SSLError, cert: str, key: str | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--tls-key {shown(key)} does not belong to the certificate in {shown(cert)}"
    if key is None and _is_certificate(cert):
        return f"--tls-key is missing: {shown(cert)} holds a certificate and no key"
    files = shown(cert) if key is None else f"{shown(cert)} and {shown(key)}"
    what = "a certificate and a key, both in PEM" if key is None else "a certificate and its key"
    return f"{files} cannot be used for TLS: they must hold {what} ({error.reason or error})"


def _is_certificate(file: str) -> bool:
    with open(file, "rb") as opened:
        text = opened.read(PEM_BYTES_MAX)
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY-----" not in text


KEEP_ALIVE_SECONDS: Final = 75  # longer than proxies keep their connections, usually 60
STOP_SECONDS: Final = 5  # for requests in progress
FILES_LEFT: Final = 200  # for the store and everything else

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the server, its TLS, and the amount of each resource that callers share."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: str | None = None
    tls_key: str | None = None
    # Proxies that are trusted about the address of a client; "*" trusts all of them.
    forwarded_allow_ips: str = ""
    header_seconds: Seconds = HEADER_SECONDS_MAX
    connections: int = CONNECTIONS_MAX
    requests: int = REQUESTS_MAX
    bodies_bytes: int = BODIES_BYTES_MAX
    streams: int = STREAMS_MAX
    stop_seconds: int = STOP_SECONDS
    has_dashboard: bool = True


class ApiServer:
    """The server of an application, from `start` to `stop`."""

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
        """The number of open connections."""
        return len(self._server.server_state.connections)

    def bind(self, *, listening: bool = True) -> None:
        """Bind the port. Raises Conflict if it is in use, UsageError for a host not here.

        A connection before the start waits for the start; without `listening` it is refused.
        """
        options = self._options
        self._sockets = bind(options.host, options.port)
        port = self._sockets[0].getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"{'http' if self._tls is None else 'https'}://{host}:{port}"
        if listening:
            listen(self._sockets, options.host)

    async def start(self) -> None:
        """Start to answer. Raises Conflict if another process listens on the port by now."""
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
        """Stop accepting, wait a while for requests in progress, and drop the other connections.

        The sender of a stream ends it before this: an open stream would take all of the time.
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
        # uvicorn waits for connections with a request, but does not close the rest after that.
        await self._server.shutdown(sockets=self._sockets)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    def _make_secure(self) -> SecureConnection:
        server = self._server
        kind = cast("type[SecureConnection]", server.config.http_protocol_class)
        state = server.lifespan.state
        return kind(config=server.config, server_state=server.server_state, app_state=state)


def _config(app: AsgiApp, options: ServerOptions, tls: ssl.SSLContext | None) -> uvicorn.Config:
    # Daybell answers and counts all requests itself; the log lines of uvicorn help no operator.
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
    """Return addresses and networks from a list with commas; "*" is all. Raises UsageError."""
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
    """Return the maximum of connections, given the files that this process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(10, min(options.connections, files - FILES_LEFT))


def _connections(options: ServerOptions, tls: ssl.SSLContext | None) -> type[Connection]:
    kind = Connection if tls is None else SecureConnection
    return limit_connections(
        kind, connections_max=connections_max(options), header_seconds=options.header_seconds
    )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or is_page(path)


# The whole service, from a socket to a client of the store: `server` and `dev` run it.

FLUSH_SECONDS: Final = 2.0  # for the last write to the store


class ApiService:
    """The API with its server.

    `ask` checks that the store answers. `is_there` returns True when the store has been opened:
    before that, the API answers that it is unavailable.
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
        own_readings: Callable[[], Iterable[Reading]] = tuple,
    ) -> None:
        self._is_there = is_there
        self.gatekeeper = Authenticator(client, api, monotonic=monotonic)
        self.streams = Streams(
            monotonic=monotonic,
            is_welcome=self.gatekeeper.is_welcome,
            streams_max=options.streams,
        )
        self.polls = Polls(monotonic)
        app = create_api(
            client,
            options=api,
            gatekeeper=self.gatekeeper,
            readiness=Readiness(ask, monotonic=monotonic),
        )
        app.state.streams = self.streams
        app.state.polls = self.polls
        app.state.own_readings = own_readings  # metrics of this process
        has_dashboard = options.has_dashboard
        self._server = ApiServer(
            Guard(
                Dashboard(app) if has_dashboard else app,
                hosts=read_hosts([options.host, *allowed_hosts]),
                admit=self._admit,
                told=self.gatekeeper.hear,
                limits=Limits(
                    connections=connections_max(options),
                    requests=options.requests,
                    bodies_bytes=options.bodies_bytes,
                ),
                is_tls=options.tls_cert is not None,
                is_open=_is_open if has_dashboard else OPEN_PATHS.__contains__,
            ),
            options,
        )

    @property
    def url(self) -> str:
        return self._server.url

    def bind(self, *, listening: bool = True) -> None:
        """Bind the port. Raises Conflict if it is in use, UsageError for a host not here."""
        self._server.bind(listening=listening)

    async def start(self) -> None:
        """Start to answer requests."""
        await self._server.start()

    async def stop(self) -> None:
        """End the streams and waits, and finish the requests in progress."""
        self.streams.close()
        await self.polls.close()
        await self._server.stop()
        if self._is_there():
            # The last use of keys is not worth a wait for an unavailable store.
            with suppress(DaybellError, TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self.gatekeeper.tick()
                    await self.gatekeeper.note_use()

    async def _admit(self, scope: MutableMapping[str, Any]) -> Holder:
        if not self._is_there():
            raise Unavailable("the store has not been opened yet")
        return await self.gatekeeper.admit(scope)


def read_hosts(names: Collection[str]) -> set[str]:
    """Return the names that requests may be addressed to. Raises UsageError for a wrong name."""
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

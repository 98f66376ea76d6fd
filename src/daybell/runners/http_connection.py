"""Requests of HTTP jobs, and connections that are made only to addresses of the public internet.

The network of a worker trusts it, so a request of a worker may reach services that are closed to
the outside: those of the machine and of the network, a cloud's metadata with its keys. A name or
a number in a URL has many spellings (127.1, 0x7f000001, localhost). So names are resolved first,
the addresses are checked, and the connection is made to exactly these. The check is part of
connecting, so redirects and changing DNS answers cannot bypass it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import os
import socket
import ssl
import threading
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpcore
import httpx
import msgspec

from daybell.core import payload
from daybell.core.execution import Claimed
from daybell.core.kinds.settings import check_header_value, check_url, why_not_public
from daybell.core.monitoring import observers
from daybell.core.units import Instant, Seconds
from daybell.errors import UsageError
from daybell.version import VERSION

# The request of an HTTP job: from its settings, and from redirects.

WITH_BODY: Final = ("POST", "PUT", "PATCH")
# A repetition does these twice, unless the server recognises it.
NOT_IDEMPOTENT: Final = ("POST", "PATCH")
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# Headers that every server may see. All others are for the host that the job names.
FOR_ANYBODY: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent",
     "daybell-attempt", "daybell-execution-id", "idempotency-key"}
)  # fmt: skip
_PATH_CHARS_SHOWN: Final = 200


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes | None = None
    is_secret: bool = False  # the address has a secret in it
    has_secret_body: bool = False
    has_secrets: bool = False  # any network

    @property
    def place(self) -> str:
        """Return the address for people, without secret parts. An address with a secret is not
        shown at all: hosts are in lower case, where no mask would find it.
        """
        if self.is_secret:
            return f"{self.url.scheme}://…"
        path = _cut(self.url.raw_path.decode().partition("?")[0])
        return f"{self.url.scheme}://{self.url.netloc.decode()}{path}"

    @property
    def title(self) -> str:
        """The method and the address: `GET http://host/path`."""
        return f"{self.method} {self.place}"

    def lines(self) -> list[tuple[bytes, bytes]]:
        """The headers as they are sent."""
        own = {"Host": self.url.netloc.decode(), "Connection": "close"}
        said = own | dict(self.headers)
        return [(name.encode(), value.encode()) for name, value in said.items()]

    def redirected(self, status: int, location: str) -> HttpRequest:
        """Return the request for the target of a redirect. Raises UsageError for an invalid one.

        Method and body are kept or dropped as browsers do.
        """
        try:
            url = self.url.join(location)
        except httpx.InvalidURL:
            raise UsageError("the place that it points to cannot be read") from None
        url = read_url(str(url))
        method, body, headers = self.method, self.body, dict(self.headers)
        is_posted = status in (301, 302) and method == "POST"
        if is_posted or (status == 303 and method != "HEAD"):
            method, body = "GET", None
            headers = _drop_headers(headers, {"content-type"})
        if not _is_same_origin(self.url, url):
            if body is not None and self.has_secret_body:
                raise UsageError("its body has a secret in it, which is for the first place only")
            headers = {name: headers[name] for name in headers if name.lower() in FOR_ANYBODY}
        return msgspec.structs.replace(self, method=method, url=url, headers=headers, body=body)


def read_url(text: str) -> httpx.URL:
    """Read an address that a request can be sent to. Raises UsageError, which does not show it."""
    check_url(text)
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise UsageError(
            "url cannot be read; its host must be a name, or an address as it is usually written",
            field="http.url",
        ) from None
    if url.userinfo or not url.host or "%" in url.host:
        raise UsageError("url has a login or a zone in it, or names no host", field="http.url")
    return url


def read_headers(given: Mapping[str, Any]) -> dict[str, str]:
    """Return headers with their secrets."""
    headers: dict[str, str] = {}
    for name, value in given.items():
        text = check_header_value(name, value if isinstance(value, str) else str(value))
        text = text.strip(" \t")
        if not text.replace("\t", " ").isprintable():
            raise UsageError(f"header {name} has a character in it that cannot be printed")
        headers[name] = text
    return headers


def add_default_headers(
    headers: Mapping[str, str], claimed: Claimed, *, method: str, content_type: str | None
) -> dict[str, str]:
    """Return the headers of the job, and the defaults for missing ones."""
    usual = {
        "User-Agent": f"daybell/{VERSION}",
        "Accept": "*/*",
        "Accept-Encoding": "gzip",
        "Daybell-Execution-Id": str(claimed.id),
        "Daybell-Attempt": str(claimed.attempt),
    }
    if observers.active:
        usual |= observers.headers()
    if method in NOT_IDEMPOTENT:
        usual["Idempotency-Key"] = str(claimed.id)  # the same for all attempts
    if content_type is not None:
        usual["Content-Type"] = content_type
    given = {name.lower() for name in headers}
    return _drop_headers(usual, given) | dict(headers)


KEY_PREFIX: Final = "whsec_"


def sign(key: str, claimed: Claimed, body: bytes, now: Instant) -> dict[str, str]:
    """Return the headers of Standard Webhooks. All attempts have one id, and each its own time.
    Raises UsageError, which does not show the key.
    """
    try:
        coded = key.removeprefix(KEY_PREFIX)
        secret = key.encode() if coded is key else b64decode(coded, validate=True)
    except ValueError:
        secret = b""
    if not secret:
        raise UsageError("the key that signs it is no base64 after whsec_", field="http.sign")
    id, at = str(claimed.id), str(int(now))
    digest = hmac.digest(secret, b".".join((id.encode(), at.encode(), body)), "sha256")
    signature = f"v1,{b64encode(digest).decode()}"
    return {"webhook-id": id, "webhook-timestamp": at, "webhook-signature": signature}


def encode_body(method: str, body: Any, args: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    """Return the body and its content type: that of the settings, else the arguments as JSON."""
    if args:
        if body is not None:
            raise UsageError("it has a body of its own, so it takes no arguments", field="args")
        if method not in WITH_BODY:
            raise UsageError(
                f"arguments cannot be sent with {method}; they are the body of a POST, PUT or"
                " PATCH",
                field="args",
            )
        body = dict(args)
    if body is None:
        return (b"" if method in WITH_BODY else None), None
    if isinstance(body, str):
        return body.encode(errors="replace"), "text/plain; charset=utf-8"
    return payload.encode(body, what="http.body").encode(), "application/json"


def _is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    if one.host != other.host:
        return False
    if (one.scheme, one.port) == (other.scheme, other.port):
        return True
    # The address without the part after the host.
    is_plain = (one.scheme, one.port) == ("http", None)
    return is_plain and (other.scheme, other.port) == ("https", None)


def _drop_headers(headers: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _cut(path: str) -> str:
    # All or nothing: a redirect may have a secret in it, which a cut would divide.
    return path if len(path) <= _PATH_CHARS_SHOWN else "/…"


# More than a completely kept answer takes: its headers, and its body in tiny chunks.
RECEIVED_BYTES_MAX: Final = 512 * 1024
# Parsed at once. Chunks of one byte take long enough to delay other work.
READ_BYTES_MAX: Final = 16 * 1024


class UnknownHost(Exception):
    """The host has no address at the moment. `unnamed` is the message without the host, which may
    be a secret.
    """

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host} {why}")
        self.unnamed = f"its host {why}"


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to hosts at checked addresses, one after the other."""

    def __init__(self, *, allow_private: bool, resolve: Resolve) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        # Another class stands for it where anyio is missing; types know no more.
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the interface is not ours)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout) as limit:
                addresses = await resolve_checked(
                    host, port, allow_private=self._allow_private, resolve=self._resolve
                )
        except TimeoutError:
            raise UnknownHost(
                host, f"was not found within {timeout:g} s: the name service does not answer"
            ) from None
        except UnicodeError:  # of the encoder of the system, for an invalid name
            raise UnknownHost(host, "cannot be a name") from None
        except OSError as error:
            raise UnknownHost(host, f"was not found: {error.strerror or error}") from None
        return await self._connect_any(addresses, port, limit.when())

    async def _connect_any(
        self, addresses: list[str], port: int, until: float | None
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        for left in range(len(addresses), 0, -1):
            # Each address has a part of the time: a silent one must not use up all of it.
            share = None if until is None else max(0.0, until - loop.time()) / left
            try:
                return await self._network.connect_tcp(addresses[-left], port, timeout=share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
        raise AssertionError("a host has an address at least")


class _Connection(httpcore.AsyncNetworkBackend):
    """The connection of one request, which can be ended at any moment: also during the TLS
    handshake, when httpcore does not know it yet.
    """

    def __init__(self, network: CheckedNetwork) -> None:
        self._network = network
        self._stream: httpcore.AsyncNetworkStream | None = None
        self.came = 0

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self._stream = await self._network.connect_tcp(*args, **options)
        return _MeteredStream(self._stream, self)

    async def hang_up(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    def count(self, part: bytes) -> bytes:
        """Count received bytes: endless informational answers or empty chunks would keep a worker
        busy.
        """
        self.came += len(part)
        if self.came > RECEIVED_BYTES_MAX:
            raise httpcore.RemoteProtocolError(
                f"{RECEIVED_BYTES_MAX:,} bytes have come, with far less in them"
            )
        return part


class _MeteredStream(httpcore.AsyncNetworkStream):
    """A stream that counts its bytes."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, line: _Connection) -> None:
        self._stream = stream
        self._line = line
        self.write = stream.write
        self.aclose = stream.aclose
        self.get_extra_info = stream.get_extra_info

    async def read(self, max_bytes: int, *args: Any, **options: Any) -> bytes:
        part = await self._stream.read(min(max_bytes, READ_BYTES_MAX), *args, **options)
        return self._line.count(part)

    async def start_tls(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _MeteredStream(await self._stream.start_tls(*args, **options), self._line)


@asynccontextmanager
async def send_request(
    request: HttpRequest, network: CheckedNetwork, tls: ssl.SSLContext | None, seconds: Seconds
) -> AsyncGenerator[httpcore.Response]:
    """Connect and send a request; the caller reads the answer. The connection ends with this
    context, even if more was to come.
    """
    url = request.url
    target = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    line = _Connection(network)
    connection = httpcore.AsyncHTTPConnection(target.origin, tls, network_backend=line)
    extensions = {
        "timeout": {"connect": seconds},
        # A certificate names a host without the final dot.
        "sni_hostname": url.raw_host.decode("ascii").rstrip("."),
    }
    try:
        async with connection.stream(
            request.method,
            target,
            headers=request.lines(),
            content=request.body,
            extensions=extensions,
        ) as response:
            yield response
    finally:
        await line.hang_up()


def make_tls_context() -> ssl.SSLContext:
    """Make a TLS context with the authorities of SSL_CERT_FILE, else the public ones."""
    return httpx.create_ssl_context()


def describe_cause(error: BaseException, *, names_host: bool = True) -> str:
    """Return the message of the innermost cause."""
    said = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = cause.verify_message
            said = said if names_host else said.partition(",")[0]  # the name of the host
            return f"its certificate is not trusted here: {said}"
        if isinstance(cause, ssl.SSLError):
            return f"it does not speak TLS as it should: {cause.reason}"
        if isinstance(cause, OSError) and (cause.errno or 0) > 0:
            said = os.strerror(cause.errno or 0)  # an event loop has messages of its own
        cause = cause.__cause__ or cause.__context__
    return said or type(error).__name__


# Lookups of hosts in separate threads. The system may need half a minute for a name with silent
# servers, and cannot be stopped. The few threads of an event loop for such work are needed
# elsewhere.

THREADS_MAX: Final = 32

Ask = Callable[[str], list[str]]  # all addresses of a host. Raises OSError, or UnicodeError


def ask_system(host: str) -> list[str]:
    """Return all addresses that the system has for a host, in its order of preference."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[4][0]) for place in found))


class Lookups:
    """Runs a bounded number of lookups at a time, and one per host for all its callers. Others wait
    for a thread; the callers decide how long.
    """

    def __init__(self, ask: Ask = ask_system, *, threads_max: int = THREADS_MAX) -> None:
        self._ask = ask
        self._threads_max = threads_max
        self._lock = threading.Lock()  # of all below
        self._lookups: dict[str, _Lookup] = {}
        self._waiting: deque[_Lookup] = deque()  # for a thread
        self._threads = 0

    async def find(self, host: str) -> list[str]:
        """Return the addresses of a host. A cancellation does not stop the lookup."""
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._join(host, answer)
        try:
            return await answer
        finally:
            self._leave(host, answer)

    def _join(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is not None:
                lookup.answers.append(answer)
                return
            lookup = self._lookups[host] = _Lookup(host, answer)
            self._waiting.append(lookup)
            if self._threads < self._threads_max:
                # Under the lock, so that a thread which could not be started is not counted.
                try:
                    threading.Thread(target=self._work, name="daybell-lookup", daemon=True).start()
                except RuntimeError:
                    if self._threads == 0:
                        del self._lookups[host]
                        self._waiting.remove(lookup)
                        raise OSError("there is no thread to look it up in") from None
                else:
                    self._threads += 1

    def _leave(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        """Drop a lookup that has not started and has no caller any more."""
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is None or answer not in lookup.answers:
                return
            lookup.answers.remove(answer)
            if not lookup.answers and lookup in self._waiting:
                self._waiting.remove(lookup)
                del self._lookups[host]

    def _work(self) -> None:
        """Run lookups in a thread, until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                lookup = self._waiting.popleft()
            found, error = list[str](), None
            try:
                found = self._ask(lookup.host)
            except Exception as raised:
                error = raised
            with self._lock:
                del self._lookups[lookup.host]
            lookup.end(found, error)


class _Lookup:
    """The lookup of one host, with its callers."""

    def __init__(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        self.host = host
        self.answers = [answer]

    def end(self, found: list[str], error: Exception | None) -> None:
        for answer in self.answers:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                answer.get_loop().call_soon_threadsafe(_deliver, answer, found, error)


def _deliver(answer: asyncio.Future[list[str]], found: list[str], error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(list(found))
    else:
        answer.set_exception(error)


# Resolves a host and a port to addresses, as texts. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]

# Ports of other protocols, for which a request could look like a command; the list of the Fetch
# standard, as in browsers.
_OTHER_PROTOCOL_PORTS: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
     103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
     512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
     995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
     6669, 6679, 6697, 10080}
)  # fmt: skip


class AddressRefused(Exception):
    """The address is not allowed. The message names the host and the flag that would allow it;
    `unnamed` is the same without the host, which may be a secret.
    """

    def __init__(self, message: str, *, unnamed: str) -> None:
        super().__init__(message)
        self.unnamed = unnamed


_lookups: Final = Lookups()  # one per process, since there is one system resolver


async def system_resolve(host: str, _: int) -> list[str]:
    """Return all addresses that the system has for a host, in its order of preference."""
    try:
        return [str(ipaddress.ip_address(host))]  # an address needs no lookup
    except ValueError:
        return await _lookups.find(host)


async def resolve_checked(
    host: str, port: int, *, allow_private: bool, resolve: Resolve = system_resolve
) -> list[str]:
    """Return the addresses of a host after checking all of them. Raises AddressRefused, and OSError
    if the host has none.

    One private address refuses all: its owner could choose which of them is tried.
    """
    if not allow_private:
        check_port(port)
    addresses = await resolve(host, port)
    if not addresses:
        raise OSError("it has no address")
    if not allow_private:
        for address in addresses:
            check_address(host, address)
    return addresses


def check_address(host: str, address: str) -> None:
    """Refuse a host with an address that is not public."""
    why = why_not_public(address)
    if why is not None:
        named = host if host == address else f"{host} is {address}, which"
        fact = (
            f"is not on the public internet ({why}); only a worker started with"
            " --allow-private-http sends requests there"
        )
        raise AddressRefused(f"{named} {fact}", unnamed=f"it {fact}")


def check_port(port: int) -> None:
    """Refuse a port of another protocol."""
    if port in _OTHER_PROTOCOL_PORTS:
        fact = (
            "belongs to another protocol; only a worker started with --allow-private-http sends"
            " requests there"
        )
        raise AddressRefused(f"port {port} {fact}", unnamed=f"its port {fact}")

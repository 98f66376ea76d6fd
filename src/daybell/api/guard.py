"""ASGI middleware that checks the head of each request and bounds its size and time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from starlette.responses import Response

from daybell.api import caller
from daybell.client import Holder, Shares, set_holder
from daybell.core.limits import (
    BODIES_BYTES_MAX,
    BODY_SECONDS_MAX,
    BULK_BYTES_MAX,
    CONNECTIONS_MAX,
    LARGE_BODY_BYTES,
    LARGE_BYTES_MAX,
    LINGER_BYTES_MAX,
    LINGER_SECONDS_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    REQUESTS_MAX,
)
from daybell.core.units import Seconds
from daybell.errors import DaybellError, shown

# Checks of the head of a request alone: its host, origin, address and content type.
#
# Pure functions of the head. Each returns None, or the reason for a refusal.

SESSION_PATH: Final = "/api/v1/session"
EVENTS_PATH: Final = "/api/v1/events"
HOOKS_PATH: Final = "/api/v1/hooks/"
WEBHOOK_ORIGIN: Final = b"webhook-request-origin"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SECRET_NAMES: Final = frozenset(
    {"key", "api_key", "apikey", "api-key", "token", "access_token", "authorization"}
)
KEY_PREFIX: Final = "dbk_"
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*[a-z0-9_-])\.?)(?::[0-9]+)?")

# The scope of an ASGI server: `headers` are pairs of bytes, with names in lower case.
HeadScope = Mapping[str, Any]
HeaderFields = Mapping[bytes, Sequence[str]]


class Refusal(msgspec.Struct, frozen=True):
    """The reason for refusing a request, and its response."""

    status: HTTPStatus
    kind: str  # ends the problem's type
    detail: str
    headers: tuple[tuple[str, str], ...] = ()


def check_head(scope: HeadScope, fields: HeaderFields, hosts: Collection[str]) -> Refusal | None:
    """Return the first error in the head of a request.

    `hosts` are the names that a request may be addressed to.
    """
    return (
        check_host(scope, fields, hosts)
        or check_query(scope)
        or check_origin(scope, fields)
        or check_content(scope, fields)
    )


def read_fields(scope: HeadScope) -> HeaderFields:
    """Return all headers by name, each with all values that were sent."""
    fields: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        fields.setdefault(name, []).append(value.decode("latin-1"))
    return fields


def check_host(scope: HeadScope, fields: HeaderFields, hosts: Collection[str]) -> Refusal | None:
    """Refuse a host that is not this server's. A page of any site can have its own name resolve
    to this machine, and is the same origin then; but it cannot hide that name.
    """
    sent = fields.get(b"host", [])
    if not sent and scope["http_version"] == "1.0" and scope["path"] in OPEN_PATHS:
        return None  # a load balancer's probe
    name = host_name(sent[0]) if len(sent) == 1 else None
    if name is None:
        return Refusal(
            HTTPStatus.BAD_REQUEST,
            "bad-host",
            "the Host header is missing, repeated or not a host; send the one of this server",
        )
    own = (scope.get("server") or ("",))[0]  # the address that the connection was made to
    if name in hosts or name == own:
        return None
    return Refusal(
        HTTPStatus.MISDIRECTED_REQUEST,
        "wrong-host",
        f"this server does not go by the name {shown(name)}, which the Host header has; start it"
        " with --allowed-host for each name that it is reached by",
    )


def host_name(text: str) -> str | None:
    """Return the name in a Host header, without its port; None if the header is not a host."""
    found = _HOST.fullmatch(text.strip().lower())
    return None if found is None else found[1] or found[2]


def check_query(scope: HeadScope) -> Refusal | None:
    """Refuse a key in an address: it would end up in histories and logs of other systems."""
    text = scope["query_string"].decode("latin-1")
    in_path = KEY_PREFIX in scope["path"] and any(
        part.startswith(KEY_PREFIX) for part in scope["path"].split("/")
    )
    if not in_path and not _has_secret(text):
        return None
    return Refusal(
        HTTPStatus.BAD_REQUEST,
        "key-in-address",
        "a key does not belong into an address; send it as Authorization: Bearer dbk_…, and"
        " replace this one: it may have been logged on its way",
    )


def _has_secret(query: str) -> bool:
    if not query:
        return False
    if KEY_PREFIX in unquote(query):
        # Under any name, and however the query is split.
        values_sent = (value for _, value in parse_qsl(query, keep_blank_values=True))
        bare = (unquote(part) for part in query.split("&"))
        if any(value.lstrip().startswith(KEY_PREFIX) for value in (*values_sent, *bare)):
            return True
    names = (part.partition("=")[0] for part in query.split("&"))
    return any(unquote(name).lower() in _SECRET_NAMES for name in names)


def check_origin(scope: HeadScope, fields: HeaderFields) -> Refusal | None:
    """Refuse requests from other sites. Browsers specify the site that a request comes from; the
    server does nothing for other sites, and shows them nothing.
    """
    origins = fields.get(b"origin", [])
    if not origins and b"sec-fetch-site" not in fields:
        return None  # no browser
    host = fields.get(b"host", [""])[0]
    is_foreign = len(origins) > 1 or not all(_is_same(one, host, scope) for one in origins)
    site = fields.get(b"sec-fetch-site", ["none"])
    if site[0] not in ("same-origin", "none"):
        # A link from another site to this server is allowed.
        is_link = fields.get(b"sec-fetch-mode") == ["navigate"] and scope["method"] in SAFE
        is_foreign = is_foreign or not is_link
    if not is_foreign:
        return None
    return Refusal(
        HTTPStatus.FORBIDDEN,
        "foreign-origin",
        "this request comes from another site; only pages of this server may send it",
    )


def _is_same(origin: str, host: str, scope: HeadScope) -> bool:
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    # Behind a proxy that does the TLS, the page is https and this server is not.
    if scope["scheme"] == "https" and parts.scheme != "https":
        return False
    # The default port may be written or not.
    default = 443 if parts.scheme == "https" else 80
    own_port = host.rpartition("]")[2].partition(":")[2]
    is_same_port = (port or default) == (int(own_port) if own_port.isdigit() else default)
    return parts.username is None and parts.hostname == host_name(host) and is_same_port


def check_content(scope: HeadScope, fields: HeaderFields) -> Refusal | None:
    """Refuse a body that is not declared as JSON: a form of another site cannot send JSON."""
    if fields.get(b"content-encoding", ["identity"]) != ["identity"]:
        return _unsupported("send the body without a Content-Encoding")
    has_body = announces_body(fields)
    if has_body and is_handshake(scope):
        return Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "payload-too-large",
            "the handshake of webhooks has no body; send OPTIONS without one",
        )
    if not has_body or scope["method"] in SAFE:
        return None
    types = fields.get(b"content-type", [])
    if (len(types) == 1 and is_json(types[0])) or is_hook(scope):
        return None
    # The data of an event, with a header that a form cannot send. Without a type it is JSON.
    if b"ce-specversion" in fields and scope["path"] == EVENTS_PATH:
        is_fine = not types or (len(types) == 1 and is_text(types[0]))
        return None if is_fine else _unsupported("send JSON, or text in UTF-8 as text/plain")
    return _unsupported("send JSON, with Content-Type: application/json")


def announces_body(fields: HeaderFields) -> bool:
    """Return True if the head of a request announces a body."""
    return b"transfer-encoding" in fields or fields.get(b"content-length", ["0"]) != ["0"]


def is_handshake(scope: HeadScope) -> bool:
    """Return True if a sender of events asks for permission to send them here.

    CloudEvents calls this the abuse protection of webhooks. The question needs no key, since its
    answer is the same for every sender; the events themselves need one.
    """
    return (
        scope["method"] == "OPTIONS"
        and scope["path"] == EVENTS_PATH
        and any(name == WEBHOOK_ORIGIN for name, _ in scope["headers"])
    )


def is_login(scope: HeadScope) -> bool:
    """Return True if a browser sends the key that opens a session in the body, not a header."""
    return scope["method"] == "POST" and scope["path"] == SESSION_PATH


def is_hook(scope: HeadScope) -> bool:
    """Return True if a request goes to the address of a webhook, whose token is in the path."""
    return scope["method"] == "POST" and scope["path"].startswith(HOOKS_PATH)


def is_json(content_type: str) -> bool:
    """Return True if a content type is JSON in UTF-8."""
    if content_type == "application/json":
        return True
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    main, _, sub = kind.partition("/")
    if main != "application" or not (sub == "json" or sub.endswith("+json")):
        return False
    charsets = [one for one in parameters if one.startswith("charset=")]
    return all(one[8:].strip('"') in ("utf-8", "utf8") for one in charsets)


def is_text(content_type: str) -> bool:
    """Return True if a content type is text in UTF-8; XML is."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    main, _, sub = kind.partition("/")
    is_xml = main == "application" and (sub == "xml" or sub.endswith("+xml"))
    charsets = [one for one in parameters if one.startswith("charset=")]
    known = ("utf-8", "utf8", "us-ascii")
    return (main == "text" or is_xml) and all(one[8:].strip('"') in known for one in charsets)


def _unsupported(detail: str) -> Refusal:
    return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported", detail)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BULK_PATHS: Final = frozenset({"/api/v1/executions"})
SMALL_BODY_BYTES: Final = 4096  # not counted: the limit of connections bounds them, too
LEASES: Final = "/api/v1/leases/"  # the paths of workers, which report results with logs
TRIGGER: Final = "/trigger"  # the end of the path of a trigger
LARGE_PARTS: Final = 8  # a large body counts for at most one of these parts of `large_bytes`
REQUEST_UNITS: Final = 6  # of any other request: it occupies the event loop several times as long
REST_SECONDS_MAX: Final = 1.0  # after a large body, before the next of the same key
SEND_SECONDS_MAX: Final = 20.0  # for a part of an answer that the client does not read
LINGER_PAUSE_SECONDS: Final = 2.0  # without a part: the client has stopped sending
ABORT: Final = "daybell.abort"  # in a scope: drops the connection without an answer
PEER: Final = (
    "daybell.peer"  # likewise: returns the uid of the local user at the other end, or None
)
# Likewise: a context in which the request waits without the shares of one in progress.
IDLE: Final = "daybell.idle"
LINGER: Final = "daybell.linger"  # likewise: lets the connection be closed for a new one

_STREAM: Final = b"text/event-stream"
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
        b" object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_TLS_HEADER: Final = (b"strict-transport-security", b"max-age=31536000")
_HEADER_NAMES: Final = frozenset(name for name, _ in (*_HEADERS, _TLS_HEADER))
_CLOSE: Final = (b"connection", b"close")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the guard; tests lower them."""

    request_bytes: int = REQUEST_BYTES_MAX
    bulk_bytes: int = BULK_BYTES_MAX
    bodies_bytes: int = BODIES_BYTES_MAX
    body_seconds: Seconds = BODY_SECONDS_MAX
    request_seconds: Seconds = REQUEST_SECONDS_MAX
    send_seconds: Seconds = SEND_SECONDS_MAX
    linger_bytes: int = LINGER_BYTES_MAX
    linger_seconds: Seconds = LINGER_SECONDS_MAX
    requests: int = REQUESTS_MAX
    connections: int = CONNECTIONS_MAX
    large_bytes: int = LARGE_BYTES_MAX


class RequestRefused(Exception):
    """The guard refuses a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


async def admit_by_address(scope: Scope) -> Holder:
    """Admit all requests. They have the share of one tenant, each address the share of a key."""
    return Holder("", (scope.get("client") or ("",))[0])


def ignore_response(_scope: Scope, _status: int) -> None:
    """Ignore the status of a response."""


Admit = Callable[[Scope], Awaitable[Holder]]
OnResponse = Callable[[Scope, int], None]


class Guard:
    """The ASGI middleware around the application.

    `admit` returns the holder of the shares that a request takes, or raises a DaybellError. It is
    not called for open paths, and not for the handshake of webhooks.
    `told` is called with the status of each response.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str] = LOOPBACK_NAMES,
        admit: Admit = admit_by_address,
        told: OnResponse = ignore_response,
        limits: Limits | None = None,
        is_tls: bool = False,
        is_open: Callable[[str], bool] = OPEN_PATHS.__contains__,
    ) -> None:
        self._app = app
        self._is_open = is_open
        self.told = told
        self.hosts = frozenset(LOOPBACK_NAMES | set(hosts))
        self._admit = admit
        self._limits = limits = limits or Limits()
        self._headers = (*_HEADERS, _TLS_HEADER) if is_tls else _HEADERS
        self.connections = Shares(limits.connections)  # with a request, from its head to its end
        self.bodies = Shares(limits.bodies_bytes)  # bytes received of their bodies
        # Bytes of large bodies in progress; a key has one body of the largest size at a time.
        self.large = Shares(limits.large_bytes, holder_max=limits.large_bytes // LARGE_PARTS)
        self.requests = Shares(limits.requests)  # in progress; streams count while they start

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        fields = read_fields(scope)
        passage = GuardedRequest(self, self._limits, self._headers, scope, fields, receive, send)
        scope[IDLE] = passage.idle
        try:
            if refusal := check_head(scope, fields, self.hosts):
                raise RequestRefused(refusal)
            admit = None if self._is_open(scope["path"]) else self._admit
            await passage.through(self._app, admit_by_address if is_handshake(scope) else admit)
        except RequestRefused as refused:
            await passage.refuse(refused.refusal)
        finally:
            passage.leave()


class GuardedRequest:
    """A request that passes the guard."""

    def __init__(
        self,
        guard: Guard,
        limits: Limits,
        headers: tuple[tuple[bytes, bytes], ...],
        scope: Scope,
        fields: HeaderFields,
        receive: Receive,
        send: Send,
    ) -> None:
        self._guard = guard
        self._limits = limits
        self._headers = headers
        self._scope = scope
        self._receive = receive
        self._send = send
        is_bulk = scope["method"] == "POST" and (
            scope["path"] in BULK_PATHS or scope["path"].startswith(LEASES)
        )
        self._bytes_max = limits.bulk_bytes if is_bulk else limits.request_bytes
        self._body: bytes | None = None  # received, and not yet passed on
        self._taken: list[tuple[Shares, Holder, int]] = []
        self._has_body = announces_body(fields)
        self._length = fields.get(b"content-length", (None,))[-1]
        self._is_body_read = not self._has_body
        self._is_reading = False
        self._began: Seconds = 0.0  # start of the work on a large body
        self._is_stream = False
        self._is_started = False
        self._is_complete = False
        self._deadline: asyncio.Timeout | None = None  # while there is one
        self._refusal: Refusal | None = None
        self._is_refused = False
        self._is_to_close = False  # a part of the body was not read

    def leave(self) -> None:
        """Release all shares that the request took, the last first."""
        self._leave_large()
        while self._taken:
            shares, holder, amount = self._taken.pop()
            shares.give_back(holder, amount)

    def _leave_large(self) -> None:
        """Release the share of a large body, if this request has one."""
        if not self._began:
            return
        large = self._guard.large
        for place, (shares, holder, amount) in enumerate(self._taken):
            if shares is large:
                del self._taken[place]
                if not self._guard.connections.is_alone(holder):
                    self._rest(holder, amount)
                else:
                    large.give_back(holder, amount)
                return

    def _rest(self, holder: Holder, amount: int) -> None:
        """Release the share of a large body later. Other tenants have requests in progress, which
        this one may have delayed: they get twice the time that it took.
        """
        loop = asyncio.get_running_loop()
        seconds = min(REST_SECONDS_MAX, 2 * (loop.time() - self._began))
        loop.call_later(seconds, self._guard.large.give_back, holder, amount)

    async def through(self, app: App, admit: Admit | None) -> None:
        """Have the application answer in time, and answer any failure. Without `admit` the
        request takes no shares.
        """
        limits = self._limits
        seconds = limits.request_seconds if self._is_body_read else limits.body_seconds
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                if admit is None or await self._enter(await admit(self._scope)):
                    await app(self._scope, self.receive, self.send)
        except RequestRefused:
            raise
        except DaybellError as error:
            self._deadline = None
            await self.answer(caller.answer_error(error))
        except ReaderStalled:
            await self._drop()
        except Exception as error:
            # The application answers an unexpected error first; then the error arrives here.
            if self._deadline is not None and self._deadline.expired():
                self._refusal = SLOW if self._is_reading else LATE
            elif self._refusal is None and not self._is_complete:
                self._deadline = None
                await self.answer(caller.answer_unexpected(error))
        self._deadline = None
        if self._refusal is not None:
            raise RequestRefused(self._refusal)

    async def _enter(self, holder: Holder) -> bool:
        """Wait for the body, then for shares. False: the client has disconnected."""
        guard = self._guard
        self._check_length()
        self._take(guard.connections, holder, 1, CROWDED)
        if not self._is_body_read and not await self._read_body(holder):
            return False
        size = len(self._body or b"")
        if size > LARGE_BODY_BYTES:
            await self._wait(
                guard.large, holder, min(size, self._limits.large_bytes // LARGE_PARTS)
            )
            self._began = asyncio.get_running_loop().time()
        units = 1 if self._scope["path"].endswith(TRIGGER) else REQUEST_UNITS
        if guard.requests.take(holder, units):
            self._taken.append((guard.requests, holder, units))
        else:
            await self._wait(guard.requests, holder, units)
        set_holder(holder)
        return True

    def _take(self, shares: Shares, holder: Holder, amount: int, refusal: Refusal) -> None:
        if not shares.take(holder, amount):
            raise RequestRefused(refusal if shares.held_by_tenant(holder.tenant) else BUSY)
        self._taken.append((shares, holder, amount))

    async def _wait(self, shares: Shares, holder: Holder, amount: int) -> None:
        await shares.wait(holder, amount)
        self._taken.append((shares, holder, amount))

    def _check_length(self) -> None:
        """Refuse a body by its announced length, before the client sends any of it."""
        if self._length is None:
            return
        if not _DIGITS.fullmatch(self._length) or int(self._length) > self._bytes_max:
            raise RequestRefused(too_large(self._bytes_max))

    async def _read_body(self, holder: Holder) -> bool:
        """Read the body and count its bytes. False: the client has disconnected."""
        parts: list[bytes] = []
        size = counted = 0
        while not self._is_body_read:
            self._is_reading = True
            message = await self._receive()
            self._is_reading = False
            if message["type"] != "http.request":
                return False
            self._is_body_read = not message.get("more_body", False)
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._bytes_max:
                raise RequestRefused(too_large(self._bytes_max))
            if part and size > SMALL_BODY_BYTES:
                self._take(self._guard.bodies, holder, size - counted, FULL)
                counted = size
        self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._prolong(self._limits.request_seconds)
        return True

    async def receive(self) -> Message:
        """Return the body first, then the messages after it."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Pass a response on, with the headers that every response has."""
        if self._refusal is not None and not self._is_refused:
            return
        if message["type"] == "http.response.start":
            self._start(message)
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and self._is_to_close and self._refusal is not SLOW and LINGER in self._scope:
            await self._hand_on({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body"}
        has_deadline = self._deadline is not None and not self._is_stream
        await (self._send if has_deadline else self._hand_on)(message)
        self._is_complete = self._is_complete or is_last

    async def _hand_on(self, message: Message) -> None:
        """Send a part of a response that has no deadline as a whole."""
        try:
            async with asyncio.timeout(self._limits.send_seconds):
                await self._send(message)
        except TimeoutError:
            raise ReaderStalled from None

    async def _linger(self) -> None:
        """Discard the rest of the body, up to a limit. A close would reset the connection of a
        client that still sends, and most clients do not read a response then.
        """
        self.leave()
        self._scope[LINGER]()
        loop = asyncio.get_running_loop()
        left, until = self._limits.linger_bytes, loop.time() + self._limits.linger_seconds
        while left > 0:
            seconds = min(LINGER_PAUSE_SECONDS, until - loop.time())
            try:
                message = await asyncio.wait_for(self._receive(), seconds)
            except TimeoutError:
                return
            if message["type"] != "http.request" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

    def _start(self, message: Message) -> None:
        self._is_started = True
        self._leave_large()  # the work is done, however slowly the client reads the response
        self._guard.told(self._scope, message["status"])
        own: dict[bytes, bytes] = dict(message["headers"])
        headers = [*message["headers"]]
        if own.keys().isdisjoint(_HEADER_NAMES):
            headers += self._headers
        else:
            headers += [pair for pair in self._headers if pair[0] not in own]
        if self._has_body and not self._is_body_read:
            headers.append(_CLOSE)
            self._is_to_close = True
        message["headers"] = headers
        if own.get(b"content-type", b"").startswith(_STREAM):
            # A stream may last as long as its client reads; streams have a limit of their own.
            self._is_stream = True
            self._prolong(None)
            self._release_work()

    @asynccontextmanager
    async def idle(self) -> AsyncGenerator[None]:
        """Hold no share but that of a connection, and have no deadline, while this is open."""
        holder = self._taken[0][1] if self._taken else None
        self._prolong(None)
        self._release_work()
        try:
            yield
        finally:
            self._prolong(self._limits.request_seconds)
            if holder is not None:
                await self._wait(self._guard.requests, holder, REQUEST_UNITS)

    def _release_work(self) -> None:
        """Release all shares but the first, that of a connection."""
        connection = self._taken[:1]
        del self._taken[:1]
        self.leave()
        self._taken = connection

    def _prolong(self, seconds: Seconds | None) -> None:
        if self._deadline is not None:
            now = asyncio.get_running_loop().time()
            self._deadline.reschedule(None if seconds is None else now + seconds)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal."""
        self._is_refused = True
        await self.answer(refusal_response(refusal))

    async def answer(self, response: Response) -> None:
        """Answer in place of the application; drop the connection if a response has started."""
        if not self._is_started:
            with suppress(ReaderStalled):
                return await response(self._scope, self._receive, self.send)
        await self._drop()

    async def _drop(self) -> None:
        abort = self._scope.get(ABORT)
        if abort is None:
            return
        abort()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class ReaderStalled(Exception):
    """The client has stopped reading."""


CROWDED: Final = Refusal(
    HTTPStatus.TOO_MANY_REQUESTS,
    "too-many-requests",
    "this key or its tenant has as many requests under way as its share of this server allows; wait"
    " for an answer before the next one is sent",
    (("Retry-After", "1"),),
)
FULL: Final = Refusal(
    HTTPStatus.TOO_MANY_REQUESTS,
    "too-many-requests",
    "the bodies that this key or its tenant sends at the same time take its share of this server's"
    " memory; send fewer or smaller ones at once",
    (("Retry-After", "1"),),
)
BUSY: Final = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "busy",
    "this server has more to do than it can; ask again in a moment",
    (("Retry-After", "1"),),
)
LATE: Final = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too-late",
    "this took too long and was given up; ask again, for a change with the same Idempotency-Key",
    (("Retry-After", "5"),),
)
SLOW: Final = Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    "request-timeout",
    "the rest of the body did not come in time; send it again",
)


def too_large(bytes_max: int) -> Refusal:
    """Return the refusal of a body that is too large."""
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "payload-too-large",
        f"the body has more than {bytes_max:,} bytes, which is the limit here; send less at once",
    )


def refusal_response(refusal: Refusal) -> Response:
    """Return the response of a refusal."""
    headers = dict(refusal.headers)
    return caller.problem(refusal.status, refusal.kind, refusal.detail, headers=headers)

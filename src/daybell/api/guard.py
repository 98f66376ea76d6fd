"""The first to see every request: refuses what it should, and bounds what the rest may cost.

A pure ASGI middleware around the API. It knows nothing of jobs: hosts, origins, sizes, times and
numbers are checked here, headers that protect browsers are set on every answer, and who asks is
found out before anything of a body is read. A request is worked on when its body is there; until
then it holds a connection and the bytes that have come, both of its key's share.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import Response

from daybell.api import problems
from daybell.api.checks import LOOPBACK_NAMES, OPEN_PATHS, Refusal, check_head, is_handshake
from daybell.client import Holder, Shares, set_holder
from daybell.core.instant import Seconds
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
from daybell.errors import DaybellError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BULK_PATHS: Final = frozenset({"/api/v1/executions"})
SMALL_BODY_BYTES: Final = 4096  # not counted: the number of connections bounds them, too
TRIGGER: Final = "/trigger"  # how the path of a trigger ends
LARGE_PARTS: Final = 8  # a large body counts for at most one of these parts of all of them
REQUEST_UNITS: Final = 6  # of any other request: it takes the event loop several times as long
REST_SECONDS_MAX: Final = 1.0  # after a large body, before the next of the same key
SEND_SECONDS_MAX: Final = 20.0  # for a piece of an answer that nobody takes
LINGER_PAUSE_SECONDS: Final = 2.0  # without a piece: it has stopped to send
ABORT: Final = "daybell.abort"  # in a scope: drops the connection without a word
PEER: Final = (
    "daybell.peer"  # likewise: returns the uid of the local user at the other end, or None
)
LINGER: Final = "daybell.linger"  # likewise: tells it that from now on it may make way for others

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
_CLOSE: Final = (b"connection", b"close")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each; tests lower them."""

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


class Refused(Exception):
    """A request goes no further."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


async def anybody(scope: Scope) -> Holder:
    """Let everybody in. All of them share the part of one tenant, each address that of a key."""
    return Holder("", (scope.get("client") or ("",))[0])


def unheard(_scope: Scope, _status: int) -> None:
    """Tell nobody."""


Admit = Callable[[Scope], Awaitable[Holder]]
Told = Callable[[Scope, int], None]


class Guard:
    """Around the application.

    `admit` finds out who asks, whose shares the request takes, and raises a DaybellError; it is not
    asked about the open paths and about the handshake of webhooks.
    `told` hears how each request was answered.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str] = LOOPBACK_NAMES,
        admit: Admit = anybody,
        told: Told = unheard,
        limits: Limits | None = None,
        is_tls: bool = False,
    ) -> None:
        self._app = app
        self.told = told
        self.hosts = frozenset(LOOPBACK_NAMES | set(hosts))
        self._admit = admit
        self._limits = limits = limits or Limits()
        self._headers = (*_HEADERS, _TLS_HEADER) if is_tls else _HEADERS
        self.connections = Shares(limits.connections)  # with a request, from its head to its end
        self.bodies = Shares(limits.bodies_bytes)  # bytes that have come of their bodies
        # Bytes of large bodies that are worked on; of the largest ones, a key has one at a time.
        self.large = Shares(limits.large_bytes, holder_max=limits.large_bytes // LARGE_PARTS)
        self.requests = Shares(limits.requests)  # worked on; streams count while they begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        passage = Passage(self, self._limits, self._headers, scope, receive, send)
        try:
            await self._pass(passage, scope)
        except Refused as refused:
            await passage.refuse(refused.refusal)
        finally:
            passage.leave()

    async def _pass(self, passage: Passage, scope: Scope) -> None:
        refusal = check_head(scope, self.hosts)
        if refusal is not None:
            raise Refused(refusal)
        admit = None if scope["path"] in OPEN_PATHS else self._admit
        await passage.through(self._app, anybody if is_handshake(scope) else admit)


class Passage:
    """One request on its way."""

    def __init__(
        self,
        guard: Guard,
        limits: Limits,
        headers: tuple[tuple[bytes, bytes], ...],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._guard = guard
        self._limits = limits
        self._headers = headers
        self._scope = scope
        self._receive = receive
        self._send = send
        is_bulk = scope["path"] in BULK_PATHS and scope["method"] == "POST"
        self._bytes_max = limits.bulk_bytes if is_bulk else limits.request_bytes
        self._body: bytes | None = None  # of one that has come and was not passed on
        self._taken: list[tuple[Shares, Holder, int]] = []
        self._has_body, self._length = _announced(scope["headers"])
        self._is_body_read = not self._has_body
        self._is_reading = False
        self._began: Seconds = 0.0  # the work on a large body
        self._is_stream = False
        self._is_started = False
        self._is_complete = False
        self._deadline: asyncio.Timeout | None = None  # while there is one
        self._refusal: Refusal | None = None
        self._is_refused = False
        self._is_to_close = False  # a part of the body was not read

    def leave(self) -> None:
        """Give back all that was taken, the last first."""
        self._leave_large()
        while self._taken:
            shares, holder, amount = self._taken.pop()
            shares.give_back(holder, amount)

    def _leave_large(self) -> None:
        """Give back the turn of a large body, if this one has it."""
        large = self._guard.large
        for place, (shares, holder, amount) in enumerate(self._taken):
            if shares is large:
                del self._taken[place]
                if self._began and not self._guard.connections.is_alone(holder):
                    self._rest(holder, amount)
                else:
                    large.give_back(holder, amount)
                return

    def _rest(self, holder: Holder, amount: int) -> None:
        """Give back a turn of a large body later. Other tenants have requests under way, perhaps
        held up by this one: they get twice the time that it took.
        """
        loop = asyncio.get_running_loop()
        seconds = min(REST_SECONDS_MAX, 2 * (loop.time() - self._began))
        loop.call_later(seconds, self._guard.large.give_back, holder, amount)

    async def through(self, app: App, admit: Admit | None) -> None:
        """Have it answered in time, and whatever happens, have it answered. Without `admit` it
        takes no shares.
        """
        limits = self._limits
        seconds = limits.request_seconds if self._is_body_read else limits.body_seconds
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                if admit is None or await self._enter(await admit(self._scope)):
                    await app(self._scope, self.receive, self.send)
        except Refused:
            raise
        except DaybellError as error:
            self._deadline = None
            await self.answer(problems.of_error(error))
        except Unread:
            await self._drop()
        except Exception as error:
            # What is not understood is answered inside, and comes here after that.
            if self._deadline is not None and self._deadline.expired():
                self._refusal = SLOW if self._is_reading else LATE
            elif self._refusal is None and not self._is_complete:
                self._deadline = None
                await self.answer(problems.unexpected(error))
        self._deadline = None
        if self._refusal is not None:
            raise Refused(self._refusal)

    async def _enter(self, holder: Holder) -> bool:
        """Wait for the body, then for a turn. False: the client has left."""
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
            raise Refused(refusal if shares.held_by_tenant(holder.tenant) else BUSY)
        self._taken.append((shares, holder, amount))

    async def _wait(self, shares: Shares, holder: Holder, amount: int) -> None:
        await shares.wait(holder, amount)
        self._taken.append((shares, holder, amount))

    def _check_length(self) -> None:
        """Refuse by what is announced, before any of it is sent."""
        if self._length is None:
            return
        if not _DIGITS.fullmatch(self._length) or int(self._length) > self._bytes_max:
            raise Refused(too_large(self._bytes_max))

    async def _read_body(self, holder: Holder) -> bool:
        """Read all of the body, counted. False: the client has left."""
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
                raise Refused(too_large(self._bytes_max))
            if part and size > SMALL_BODY_BYTES:
                self._take(self._guard.bodies, holder, size - counted, FULL)
                counted = size
        self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._prolong(self._limits.request_seconds)
        return True

    async def receive(self) -> Message:
        """The body, then what comes after it."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Pass an answer on, with the headers that every answer has."""
        if self._refusal is not None and not self._is_refused:
            return
        if message["type"] == "http.response.start":
            self._start(message)
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and self._is_to_close and self._refusal is not SLOW and LINGER in self._scope:
            await self._hand_on({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body"}
        await self._hand_on(message)
        self._is_complete = self._is_complete or is_last

    async def _hand_on(self, message: Message) -> None:
        if self._deadline is not None and not self._is_stream:
            await self._send(message)  # the whole answer has a time to end by
        else:
            try:
                async with asyncio.timeout(self._limits.send_seconds):
                    await self._send(message)
            except TimeoutError:
                raise Unread from None

    async def _linger(self) -> None:
        """Throw away what still comes of the body, up to a limit. To close the connection of a
        client that sends would reset it, and most do not look for an answer then.
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
        self._leave_large()  # the work is done, however slowly the answer is read
        self._guard.told(self._scope, message["status"])
        headers: list[tuple[bytes, bytes]] = [
            (name.lower(), value) for name, value in message.get("headers", ())
        ]
        own = dict(headers)
        headers += [pair for pair in self._headers if pair[0] not in own]
        if self._has_body and not self._is_body_read:
            headers.append(_CLOSE)
            self._is_to_close = True
        message["headers"] = headers
        if own.get(b"content-type", b"").startswith(_STREAM):
            # It may last, as long as somebody reads it, and there is another limit to their number.
            self._is_stream = True
            self._prolong(None)
            connection = self._taken[:1]
            del self._taken[:1]
            self.leave()
            self._taken = connection

    def _prolong(self, seconds: Seconds | None) -> None:
        if self._deadline is not None:
            now = asyncio.get_running_loop().time()
            self._deadline.reschedule(None if seconds is None else now + seconds)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer that it goes no further."""
        self._is_refused = True
        await self.answer(answer_to(refusal))

    async def answer(self, response: Response) -> None:
        """Answer in the application's place; drop the connection if it has begun to."""
        if not self._is_started:
            with suppress(Unread):
                return await response(self._scope, self._receive, self.send)
        await self._drop()

    async def _drop(self) -> None:
        abort = self._scope.get(ABORT)
        if abort is None:
            return
        abort()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Unread(Exception):
    """Somebody has stopped to read."""


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
    """The refusal of a body."""
    return Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "payload-too-large",
        f"the body has more than {bytes_max:,} bytes, which is the limit here; send less at once",
    )


def answer_to(refusal: Refusal) -> Response:
    """What is sent instead of an answer."""
    headers = dict(refusal.headers)
    return problems.problem(refusal.status, refusal.kind, refusal.detail, headers=headers)


def _announced(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bool, bytes | None]:
    """Return whether there is a body, and its length as it was sent, if it was."""
    has_body, length = False, None
    for name, value in headers:
        if name == b"content-length":
            length = value
            has_body = has_body or value != b"0"
        elif name == b"transfer-encoding":
            has_body = True
    return has_body, length

"""HTTP jobs: send a request, follow redirects, classify errors, and keep a bounded part of the
response.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterable, Callable, Sequence
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import Any, Final

import httpcore
import msgspec

from daybell.core import payload
from daybell.core.execution import DescribedError
from daybell.core.job import JobDefinition
from daybell.core.kinds.settings import PRIVATE, HttpSettings
from daybell.core.limits import (
    HTTP_BODY_BYTES_MAX,
    HTTP_SECONDS_DEFAULT,
    PAYLOAD_DEPTH_MAX,
    RETRY_AFTER_SECONDS_MAX,
)
from daybell.core.masking import CUT_CHARS
from daybell.core.references import names_in, names_in_args
from daybell.core.units import Instant, Seconds
from daybell.errors import PayloadError, UsageError
from daybell.runners.http_connection import (
    REDIRECTS,
    AddressRefused,
    CheckedNetwork,
    HttpRequest,
    Resolve,
    UnknownHost,
    add_default_headers,
    describe_cause,
    encode_body,
    make_tls_context,
    read_headers,
    read_url,
    send_request,
    sign,
    system_resolve,
)
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.python import MaskedAttempt

CONNECT_SECONDS: Final = 10.0  # to resolve the host and connect, and the same for TLS


class Http:
    """The state that the requests of an event loop share, opened by the first of them.

    Every request has a connection of its own, which ends with it.
    """

    def __init__(
        self,
        allow_private: bool = False,
        *,
        resolve: Resolve = system_resolve,
        tls: ssl.SSLContext | None = None,
        seconds: Seconds = HTTP_SECONDS_DEFAULT,
        connect_seconds: Seconds = CONNECT_SECONDS,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self.clock: Final = clock  # which receivers of signatures compare with theirs
        self.seconds: Final = seconds  # for a whole request, if its job has no timeout
        self.connect_seconds: Final = connect_seconds
        self._allow_private = allow_private
        self._resolve = resolve
        self._tls = tls
        self._network: CheckedNetwork | None = None

    @property
    def network(self) -> CheckedNetwork:
        """The network, with the permission for private addresses."""
        if self._network is None:
            self._network = CheckedNetwork(allow_private=self._allow_private, resolve=self._resolve)
        return self._network

    def find_tls(self) -> ssl.SSLContext:
        """Return the TLS context, with the trusted authorities."""
        if self._tls is None:
            self._tls = make_tls_context()
        return self._tls

    async def close(self) -> None:
        """Do nothing: no connection stays open."""


class HttpHandler(KindHandler):
    """Handler of one version of an HTTP job."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, http: Http) -> None:
        super().__init__(definition, reveal)
        self._settings = HttpSettings.parse(msgspec.json.decode(definition.settings))
        self._http = http

    async def perform(self, running: MaskedAttempt) -> Any:
        """Send the request; return the kept part of the answer."""

        request = await self._request(running)
        exchange = Exchange(
            request,
            self._settings,
            self._http.network,
            find_tls=self._http.find_tls,
            connect_seconds=self._http.connect_seconds,
            say=lambda level, message: running.say(level, "http", message),
            mask=running.mask,
        )
        has_timeout = self.timeout is not None or running.claimed.timeout is not None
        try:
            answer = await exchange.run(None if has_timeout else self._http.seconds)
        except RequestFailed as error:
            running.is_hopeless = running.is_hopeless or error.is_lasting
            running.lacking = error.lacking
            raise DescribedError.as_text(
                error.type, str(error), retry_after=error.retry_after
            ) from None
        return answer.result()

    async def _request(self, running: MaskedAttempt) -> HttpRequest:
        """Build the request with its secrets. An invalid one fails permanently."""
        asked, claimed = self._settings, running.claimed
        url = await self.reveal.value(running, asked.url)
        headers = await self.revealed(running, asked.headers)
        body = await self.reveal.value(running, asked.body)
        args = await self.reveal.args(running)
        key = await self.reveal.value(running, asked.sign)
        args_secrets = names_in_args(payload.decode(claimed.args, what="args"))
        try:
            sent, content_type = encode_body(asked.method, body, args)
            given = read_headers(headers)
            if key is not None:
                given |= sign(str(key), claimed, sent or b"", self._http.clock())
            return HttpRequest(
                method=asked.method,
                url=read_url(url),
                headers=add_default_headers(
                    given, claimed, method=asked.method, content_type=content_type
                ),
                body=sent,
                is_secret=bool(names_in(asked.url)),
                has_secret_body=bool(names_in(asked.body) or args_secrets),
                has_secrets=bool(
                    names_in([asked.url, *asked.headers.values(), asked.body]) or args_secrets
                ),
            )
        except UsageError as error:
            running.is_hopeless = True
            raise DescribedError.as_text(
                "HttpFailed", f"the request cannot be sent: {error}"
            ) from None


# The answer to an HTTP job, and the part of it that is kept.

# Honest servers pack the kept part into less than this.
RAW_BYTES_MAX: Final = 2 * HTTP_BODY_BYTES_MAX
KEPT_HEADERS: Final = (
    "content-type", "content-length", "etag", "last-modified", "location", "retry-after",
    "x-request-id", "x-correlation-id",
)  # fmt: skip
_HEADER_CHARS_KEPT: Final = 1_000
_EXCERPT_CHARS: Final = 500
_RETRIED: Final = frozenset({408, 425, 429})
_GZIP: Final = zlib.MAX_WBITS | 16
_PACKINGS: Final = frozenset({"gzip", "x-gzip"})
_DATE_CHARS_MAX: Final = 64
# Not all codecs of Python: some need minutes for a malicious text.
_CHARSETS: Final = frozenset(
    {"utf-8", "utf8", "us-ascii", "iso-8859-1", "latin-1", "iso-8859-15", "windows-1252", "utf-16"}
)
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w-]{1,20})", re.ASCII)
_BETWEEN_WORDS: Final = frozenset(" \t\r\n\f\v\"'<>,;&=")
_DIGITS: Final = re.compile(r"[0-9]+")


class HttpResponse(msgspec.Struct, kw_only=True):
    """The received part of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    is_whole: bool = False
    left_out: str | None = None  # the reason why the body is not kept
    problem: str | None = None  # the error in it
    mask: Callable[[str], str] = str  # of secrets, before a cut
    has_secrets: bool = False  # in the request

    @classmethod
    def of(
        cls,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        mask: Callable[[str], str] = str,
        has_secrets: bool = False,
    ) -> HttpResponse:
        """Read the head of an answer. Of a duplicate header the first counts."""
        said: dict[str, str] = {}
        for name, value in headers:
            said.setdefault(name.decode(errors="replace").lower(), value.decode(errors="replace"))
        return cls(status=status, headers=said, mask=mask, has_secrets=has_secrets)

    @property
    def words(self) -> str:
        """The status with its meaning: `404 Not Found`."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def size(self) -> str:
        """The number of bytes of the body."""
        counted = f"{len(self.body):,} bytes"
        return counted if self.is_whole else f"more than {counted}"

    @property
    def is_passing(self) -> bool:
        """True if a repetition of the request may be answered differently."""
        return self.status >= 500 or self.status in _RETRIED

    @property
    def text(self) -> str:
        """The body as text, whatever its encoding."""
        named = _CHARSET.search(self.headers.get("content-type", "").lower())
        charset = named[1] if named and named[1] in _CHARSETS else "utf-8"
        text = self.body.decode(charset, errors="replace")
        if self.is_whole:
            return text
        # The cut may be inside of a secret.
        return _drop_half_word(self.mask(text)[:-CUT_CHARS] if self.has_secrets else text)

    @property
    def excerpt(self) -> str:
        """Return the beginning of the body, for a message."""
        return cut_text(self.mask(self.text.strip()), _EXCERPT_CHARS)

    def result(self) -> dict[str, Any]:
        """Return the kept part as the result of the job."""
        kept = {
            name: cut_text(self.mask(self.headers[name]), _HEADER_CHARS_KEPT)
            for name in KEPT_HEADERS
            if name in self.headers
        }
        said: dict[str, Any] = {"status": self.status, "headers": kept, "body": self._value()}
        if not self.is_whole:
            said["truncated"] = True
        return said

    def _value(self) -> Any:
        if not self.body:
            return None
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.is_whole and (kind.endswith("+json") or kind in ("application/json", "text/json")):
            try:
                # One level is the object around it.
                return payload.decode(self.text, what="body", depth_max=PAYLOAD_DEPTH_MAX - 1)
            except PayloadError:
                pass
        return self.text

    def retry_after(self) -> Seconds | None:
        """Return the requested delay in seconds; None: there is no valid one.

        A date is compared with the date of the answer, so that no clock has to be right.
        """
        said = self.headers.get("retry-after", "").strip()
        if _DIGITS.fullmatch(said):
            seconds = float(said)
        else:
            until, now = _parse_date(said), _parse_date(self.headers.get("date", ""))
            if until is None or now is None:
                return None
            seconds = until - now
        return min(seconds, RETRY_AFTER_SECONDS_MAX) if seconds > 0 else None

    async def read(self, parts: AsyncIterable[bytes]) -> None:
        """Read the kept part of the body. The caller ends the connection."""
        packing = self.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "") and packing not in _PACKINGS:
            self.left_out = f"it is encoded as {packing[:40]}, which is not known here"
            return
        body = _Body(is_packed=packing in _PACKINGS)
        try:
            async for part in parts:
                body.add(part)
                if body.is_full or body.is_complete:
                    break
            else:
                self.problem = "it ends too early" if body.is_begun else None
        except zlib.error:
            self.problem = f"it is not the {packing} that it says"
        finally:  # the part received before the timeout is useful, too
            self.body = bytes(body.kept[:HTTP_BODY_BYTES_MAX])
        self.is_whole = not body.is_full and self.problem is None


class _Body:
    """The body while it arrives. It takes no more memory than the kept part and one chunk."""

    def __init__(self, *, is_packed: bool) -> None:
        self.kept = bytearray()
        self._came = 0
        self._unpack = zlib.decompressobj(_GZIP) if is_packed else None

    @property
    def is_full(self) -> bool:
        """True if there is more than the kept part; a packed body may be endless."""
        return len(self.kept) > HTTP_BODY_BYTES_MAX or self._came > RAW_BYTES_MAX

    @property
    def is_complete(self) -> bool:
        """True if the packed body has reached its own end."""
        return self._unpack is not None and self._unpack.eof

    @property
    def is_begun(self) -> bool:
        """True if more should be read."""
        return self._unpack is not None and self._came > 0 and not self._unpack.eof

    def add(self, part: bytes) -> None:
        """Add a chunk. Raises zlib.error."""
        self._came += len(part)
        room = HTTP_BODY_BYTES_MAX + 1 - len(self.kept)
        if self._unpack is None:
            self.kept += part[:room]
        elif room > 0:  # zlib takes 0 as no limit
            self.kept += self._unpack.decompress(part, room)


def cut_text(text: str, chars_max: int) -> str:
    """Return the beginning of a text, in whole words."""
    if len(text) <= chars_max:
        return text
    return f"{_drop_half_word(text[:chars_max])}…"


def _drop_half_word(text: str) -> str:
    """Drop the word at the cut, however long it is."""
    end = len(text)
    while end and text[end - 1] not in _BETWEEN_WORDS:
        end -= 1
    return text[:end]


def _parse_date(text: str) -> Instant | None:
    """Parse a date of HTTP."""
    parts = parsedate_tz(text[:_DATE_CHARS_MAX])
    if parts is None:
        return None
    try:
        return float(mktime_tz(parts))
    except (ValueError, OverflowError):
        return None


# One request of a job with its answer and its errors.

_REASON_CHARS_SHOWN: Final = 300
_BROKEN: Final = (
    AddressRefused, UnknownHost, OSError, httpcore.NetworkError, httpcore.ProtocolError,
    httpcore.TimeoutException,
)  # fmt: skip


class RequestFailed(Exception):
    """The reason why there is no accepted answer. A lasting one is not retried."""

    def __init__(
        self,
        message: str,
        *,
        type: str = "HttpFailed",
        is_lasting: bool = False,
        retry_after: Seconds | None = None,
        lacking: str | None = None,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.is_lasting = is_lasting
        self.retry_after = retry_after
        self.lacking = lacking  # the capability that another worker may have; nothing has been sent


class Exchange:
    """A request, its redirects, and the answer."""

    def __init__(
        self,
        request: HttpRequest,
        settings: HttpSettings,
        network: CheckedNetwork,
        *,
        find_tls: Callable[[], ssl.SSLContext],
        connect_seconds: Seconds,
        say: Callable[[str, str], None],
        mask: Callable[[str], str],
    ) -> None:
        self._request = request  # the present one
        self._is_first = True  # nothing has been sent before it
        self._answer: HttpResponse | None = None  # to the present one, as far as received
        self._settings = settings
        self._network = network
        self._find_tls = find_tls
        self._connect_seconds = connect_seconds
        self._say = say
        self._mask = mask  # before a cut

    async def run(self, seconds: Seconds | None) -> HttpResponse:
        """Send the request and read the answer, within so many seconds. Raises RequestFailed."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                answer = await self._follow()
        except _BROKEN as error:
            if self._answer is not None:
                self._check_status(self._answer)  # more important than the broken body
            if limit.expired():
                raise RequestFailed(
                    f"{self._request.title} was not answered in full within {seconds:g} s; give the"
                    " job a timeout if it may take longer"
                ) from None
            raise self._explained(error) from None
        self._check_status(answer)
        if answer.problem is not None:
            raise self._failed(f"its body cannot be read: {answer.problem}")
        return answer

    async def _follow(self) -> HttpResponse:
        followed = 0
        while True:
            place = await self._ask()
            if place is None:
                assert self._answer is not None
                return self._answer
            if followed == self._settings.redirects:
                raise self._failed(
                    f"it leads to more redirects than the {followed} that the job allows",
                    is_lasting=True,
                )
            followed += 1
            self._redirect(place)

    async def _ask(self) -> str | None:
        """Send the present request; return the next one after a redirect, or None."""
        self._answer = None
        request = self._request
        tls = self._find_tls() if request.url.scheme == "https" else None
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with send_request(request, self._network, tls, self._connect_seconds) as response:
            answer = self._answer = HttpResponse.of(
                response.status,
                response.headers,
                mask=self._mask,
                has_secrets=request.has_secrets,
            )
            place = answer.headers.get("location")
            is_followed = self._settings.redirects > 0 and not self._settings.expects(answer.status)
            if place and is_followed and answer.status in REDIRECTS:
                self._say("info", f"{request.title} → {answer.words}")
                return place
            await answer.read(response.aiter_stream())
        took = round(1000 * (loop.time() - start))
        self._say("info", f"{request.title} → {answer.words} in {took:,} ms, {answer.size}")
        if answer.left_out is not None:
            self._say("warning", f"the body of the answer is not kept: {answer.left_out}")
        return None

    def _redirect(self, place: str) -> None:
        assert self._answer is not None
        self._is_first = False
        status, self._answer = self._answer.status, None
        try:
            self._request = self._request.redirected(status, place)
        except UsageError as error:
            raise RequestFailed(
                f"{self._request.title} answered with a redirect that is not followed: {error}",
                type="AddressRefused",
                is_lasting=True,
            ) from None

    def _check_status(self, answer: HttpResponse) -> None:
        if self._settings.expects(answer.status):
            return
        message = f"{self._request.title} answered {answer.words}"
        if answer.status in REDIRECTS and not self._settings.redirects:
            message += ", a redirect, which is followed if the job's settings say redirects"
        if excerpt := answer.excerpt:
            message += f": {excerpt}"
        if not answer.is_passing:
            raise RequestFailed(message, is_lasting=True)
        raise RequestFailed(message, retry_after=answer.retry_after())

    def _explained(self, error: Exception) -> RequestFailed:
        is_secret = self._request.is_secret
        match error:
            case AddressRefused():
                why = error.unnamed if is_secret else str(error)
                message = f"{self._request.title} is refused: {why}"
                lacking = PRIVATE if self._is_first else None
                return RequestFailed(
                    message, type="AddressRefused", is_lasting=True, lacking=lacking
                )
            case UnknownHost():
                return self._failed(error.unnamed if is_secret else str(error))
            case httpcore.ConnectTimeout():
                return self._failed(f"no connection within {self._connect_seconds:g} s")
            case httpcore.ConnectError():
                return self._failed(
                    f"no connection: {describe_cause(error, names_host=not is_secret)}"
                )
            case httpcore.LocalProtocolError():  # the error quotes the text, with its secrets
                return self._failed("it has something in it that HTTP cannot say", is_lasting=True)
            case httpcore.RemoteProtocolError():
                reason = cut_text(self._mask(str(error)), _REASON_CHARS_SHOWN)
                return self._failed(f"the answer is not as HTTP/1.1 has it: {reason}")
            case _:
                return self._failed(f"the connection broke: {describe_cause(error)}")

    def _failed(self, why: str, *, is_lasting: bool = False) -> RequestFailed:
        return RequestFailed(f"{self._request.title} failed: {why}", is_lasting=is_lasting)

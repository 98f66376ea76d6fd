"""HTTP requests to a Daybell server, and the errors that its problem documents stand for."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlsplit
from uuid import UUID

import msgspec

from daybell import errors
from daybell.client import wire
from daybell.core.ids import mint
from daybell.core.limits import PAGE_ITEMS_MAX, REQUEST_SECONDS_MAX
from daybell.core.monitoring import observers
from daybell.core.units import Seconds
from daybell.core.views import Page, read_pages
from daybell.errors import (
    AccessDenied,
    DaybellError,
    NotFound,
    SchemaError,
    Unavailable,
    UsageError,
    shown,
)
from daybell.settings import masked_url
from daybell.version import VERSION

if TYPE_CHECKING:
    import httpx


# What a server says went wrong, as the error that the same call on the database would raise.

# What a gateway in front of a server answers while that is away.
AWAY: Final = frozenset({502, 503, 504})


def error_from_response(
    status: int, problem: object, *, place: str, has_key: bool, retry_after: str | None = None
) -> DaybellError:
    """The error that an answer tells of. `place` is the server's address as people may see it."""
    said: Mapping[str, Any] = (
        cast("dict[str, Any]", problem) if isinstance(problem, dict) else dict[str, Any]()
    )
    detail = said.get("detail")
    if not isinstance(detail, str) or not isinstance(said.get("type"), str):
        return _foreign_error(status, place)
    code = str(said.get("code", ""))
    kind = _KINDS.get(code)
    if status == 401:
        return AccessDenied(_key_advice(place, has_key=has_key))
    if kind is SchemaError or status in AWAY:
        return Unavailable(f"{place}: {detail}")
    error = _build_error(kind or _by_status(status), detail, said, retry_after)
    if code:
        error.code = code  # of a class that only the server has, too
    return error


def _foreign_error(status: int, place: str) -> DaybellError:
    """What is not a problem of ours was not answered by a Daybell server."""
    if status in AWAY:
        return Unavailable(f"{place} answers {status}: the server behind it is away; try again")
    if 300 <= status < 400:
        return UsageError(
            f"{place} answers {status}, another address; give that one, redirects are not followed:"
            " a key goes only where it was meant to",
            field="api_url",
        )
    return UsageError(
        f"{place} answers {status}, but not as Daybell does; is DAYBELL_API_URL the address of a"
        " `daybell server`?",
        field="api_url",
    )


def _key_advice(place: str, *, has_key: bool) -> str:
    if not has_key:
        return (
            f"{place} takes a key: set DAYBELL_API_KEY; without one yet, make it beside the"
            " database: daybell keys create NAME --role ROLE --database-url …"
        )
    return (
        f"{place} does not know this key, or it was revoked or has expired; set DAYBELL_API_KEY to"
        " another, which `daybell keys create` makes"
    )


def _by_status(status: int) -> type[DaybellError]:
    """For kinds that a newer server may have."""
    if status == 408:
        return Unavailable
    if status in (403, 421):
        return AccessDenied
    if status == 404:
        return errors.NotFound
    if status in (409, 412, 429):
        return errors.Conflict
    return UsageError if 400 <= status < 500 else DaybellError


def _build_error(
    kind: type[DaybellError], detail: str, said: Mapping[str, Any], retry_after: str | None
) -> DaybellError:
    if issubclass(kind, errors.InvalidFields):
        return kind(_faults(said.get("errors")) or [UsageError(detail)])
    if issubclass(kind, UsageError):
        return kind(detail, field=_field(said.get("errors")))
    if issubclass(kind, errors.ExecutionInTheWay):
        return kind(detail, execution=_identity(said.get("execution_id")))
    if issubclass(kind, errors.QuotaExceeded):
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 60.0
        return kind(detail, quota=str(said.get("quota", "")), retry_after=seconds)
    return kind(detail)


def _field(found: object) -> str | None:
    """The input that is wrong; the first, if there are several."""
    first = next(iter(cast("list[Any]", found)), None) if isinstance(found, list) else None
    field = cast("dict[str, Any]", first).get("field") if isinstance(first, dict) else None
    return field if isinstance(field, str) and field else None


def _faults(found: object) -> list[UsageError]:
    """Return the errors of all fields that were refused."""
    listed = cast("list[dict[str, Any]]", found) if isinstance(found, list) else []
    return [UsageError(str(one.get("message")), field=one.get("field")) for one in listed]


def _identity(said: object) -> UUID | None:
    try:
        return UUID(str(said)) if said is not None else None
    except ValueError:
        return None


def _all_of(kind: type[DaybellError]) -> Iterator[type[DaybellError]]:
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from _all_of(one)


_KINDS: Final[Mapping[str, type[DaybellError]]] = {
    **{one.code: one for one in _all_of(DaybellError)},
    # The API's own, which are kinds of ours.
    "invalid": UsageError,
    "unsupported": UsageError,
    "precondition-failed": errors.VersionConflict,
}


def not_json(place: str, said: str) -> UsageError:
    """An answer that should be JSON and is not."""
    return UsageError(
        f"{place} answers {shown(said)}, which is no JSON; is DAYBELL_API_URL the address of a"
        " `daybell server`?",
        field="api_url",
    )


def not_understood(place: str) -> UsageError:
    """An answer in JSON that says something else than was asked for."""
    return UsageError(
        f"{place} gives an answer that this version does not understand; is it a `daybell server`,"
        " and of a version that is not far from this one?",
        field="api_url",
    )


BASE: Final = "/api/v1"
CONNECT_SECONDS_MAX: Final = 10.0
# The server answers before, if only to say that it took too long.
ANSWER_SECONDS_MAX: Final = 2 * REQUEST_SECONDS_MAX
# A page of executions with arguments and results of the usual size is far below this.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
# A proxy of the company's has no business with this machine's own addresses.
_LOOPBACK: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")

T = TypeVar("T")
Parameters = Mapping[str, Any]


class _Request(msgspec.Struct, frozen=True):
    """What is asked for."""

    method: str
    path: str
    body: Any = None
    parameters: Parameters = {}
    headers: Mapping[str, str] = {}


class Transport:
    """One server, asked under one key. It is opened by its first request."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        seconds: Seconds = ANSWER_SECONDS_MAX,
    ) -> None:
        self._root = check_url(url)
        self._key = None if key is None else _check_key(key)
        self._tenant = tenant
        self._seconds = seconds
        self.place: Final = masked_url(self._root)  # for messages
        self._http: httpx.AsyncClient | None = None
        self._is_known = False  # whether it has ever answered

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: Any = None,
        *,
        parameters: Parameters | None = None,
        version: int | None = None,
        once: bool = False,
    ) -> T:
        """Send a request and decode its answer. Parameters that are None are left out.

        With a `version`, only that version is changed. After a lost answer, a GET is sent again,
        and with `once` any request: under a key by which the server recognizes it.
        """
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        if once:
            headers["Idempotency-Key"] = str(mint())
        request = _Request(method, path, body, parameters or {}, headers)
        is_repeatable = once or method == "GET"
        raw = await (self._repeated(request) if is_repeatable else self._ask(request))
        try:
            return wire.decode(raw or b"null", answer)
        except msgspec.ValidationError as error:
            raise not_understood(self.place) from error
        except ValueError:
            raise not_json(self.place, raw[:100].decode(errors="replace")) from None

    async def page(self, path: str, item: type[T], parameters: Parameters) -> Page[T]:
        """Get a page of a list. Items without their large values are read one by one."""
        kind: Any = Page
        found: Page[Any] = await self.ask("GET", path, kind[item], parameters=parameters)
        items: list[T] = []
        for one in found.items:
            if getattr(one, "link", None) is None:
                items.append(one)
                continue
            with suppress(NotFound):  # it was deleted since
                items.append(await self.ask("GET", one.link.removeprefix(BASE), item))
        return Page(items=tuple(items), next_cursor=found.next_cursor)

    async def all(self, path: str, item: type[T], parameters: Parameters | None = None) -> list[T]:
        """Get all items of a list, page by page."""
        asked = {**(parameters or {}), "limit": PAGE_ITEMS_MAX}
        pages = read_pages(lambda at: self.page(path, item, {**asked, "cursor": at}))
        return [one async for page in pages for one in page]

    async def _repeated(self, request: _Request) -> bytes:
        try:
            return await self._ask(request)
        except Unreachable:
            raise  # nothing was sent, so no answer can be lost
        except Unavailable:
            return await self._ask(request)

    async def _ask(self, request: _Request) -> bytes:
        status, headers, raw = await self._exchange(request)
        if status < 300:
            return raw
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        raise error_from_response(
            status,
            value,
            place=self.place,
            has_key=self._key is not None,
            retry_after=headers.get("retry-after"),
        )

    async def _exchange(self, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; answers with the status, the headers and the body."""
        _load_httpx()
        import httpx

        try:
            async with asyncio.timeout(self._seconds), self._sent(request) as response:
                self._is_known = True
                parts: list[bytes] = []
                size = 0
                async for part in response.aiter_bytes():
                    size += len(part)
                    if size > ANSWER_BYTES_MAX:
                        raise UsageError(
                            f"{self.place} answers with more than {ANSWER_BYTES_MAX:,} bytes; ask"
                            " for less at a time, with a smaller limit"
                        )
                    parts.append(part)
                return response.status_code, response.headers, b"".join(parts)
        except httpx.ConnectTimeout:
            late = TimeoutError(f"no connection within {CONNECT_SECONDS_MAX:g} s")
            raise _unreachable(self.place, late) from None
        except httpx.ConnectError as error:
            raise _unreachable(self.place, error) from error
        except TimeoutError:
            raise Unavailable(
                f"{self.place}: no answer within {self._seconds:g} s; it may have been done all the"
                " same"
            ) from None
        except httpx.RequestError as error:
            is_plain = self._root.lower().startswith("http://")
            # A server that expects TLS answers with something else, or nothing.
            hint = "; is it https://?" if is_plain and not self._is_known else ""
            raise Unavailable(
                f"{self.place}: the connection broke: {_reason(error)}{hint}"
            ) from error
        except httpx.InvalidURL as error:
            raise UsageError(f"{self.place} is not an address: {error}", field="api_url") from None

    def _sent(self, request: _Request) -> AbstractAsyncContextManager[httpx.Response]:
        http = self._http = self._http or self._opened()
        named = {key: value for key, value in request.parameters.items() if value is not None}
        if self._tenant is not None:
            named["tenant"] = self._tenant
        headers = dict(request.headers)
        if observers.active:
            headers |= observers.headers()
        content = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            content = encode_body(request.body)
        return http.stream(
            request.method, BASE + request.path, params=named, content=content, headers=headers
        )

    def _opened(self) -> httpx.AsyncClient:
        import httpx  # takes longer to import than all else together

        headers = {"User-Agent": f"daybell/{VERSION}", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        is_plain = self._root.lower().startswith("http://")
        return httpx.AsyncClient(
            base_url=self._root,
            headers=headers,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS_MAX),
            mounts=dict.fromkeys(_LOOPBACK),
            # Reading the certificates of all authorities takes a moment that http:// need not wait.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else _trusted(),
        )


def _load_httpx() -> None:
    """Import httpx without its command, which would import click, rich and pygments: a quarter of
    the time of `daybell executions list`.
    """
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = cast("Any", None)  # an ImportError, which httpx provides for
        try:
            import_module("httpx")
        finally:
            del sys.modules["httpx._main"]


def _trusted() -> ssl.SSLContext:
    """Whose certificates count: those of the variables that OpenSSL knows, else of all the world's
    authorities.
    """
    import httpx

    named = os.environ.get("SSL_CERT_FILE")
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # an SSLError for what is no certificate
        if not named:
            raise
        reason = "it is no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(
            f"SSL_CERT_FILE {named!r} cannot be read: {reason}", field="api_url"
        ) from None


class Unreachable(Unavailable):
    """There is no connection to the server, so nothing was sent. It is lasting if the server is not
    trusted.
    """

    code = "unreachable"
    remedy = "Check the address and the network, then try again."

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


def build_path(*parts: object) -> str:
    """A path of names and ids, each as one part of it."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def check_url(url: str) -> str:
    """A server's address without what would be added to it, if it is one."""
    shown_url = masked_url(url)
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_fine, parts = False, urlsplit("")
    if not is_fine:
        raise UsageError(
            f"{shown_url} is not the address of a server, which begins with http:// or https://,"
            " such as https://daybell.example.org",
            field="api_url",
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{shown_url}: a login does not belong into the address; give the key as"
            " DAYBELL_API_KEY",
            field="api_url",
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{shown_url} has more than an address in it", field="api_url")
    return url.rstrip("/").removesuffix(BASE)


def _check_key(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            "the API key has characters that no key has; it begins with dbk_", field="api_key"
        )
    return key


def encode_body(body: Any) -> bytes:
    """JSON of what a request says."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, in arguments. Only escapes can carry it.
        return json.dumps(body, allow_nan=False, separators=(",", ":"), default=_unfolded).encode()


def _unfolded(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))


def _unreachable(place: str, error: Exception) -> Unreachable:
    causes = list(_causes(error))
    tls = next((one for one in causes if isinstance(one, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return Unreachable(
            f"{place} has a certificate that is not trusted here ({tls.verify_message});"
            " SSL_CERT_FILE names the certificate of an authority of your own",
            is_lasting=True,
        )
    if tls is not None:
        wrong = f"{place} does not speak TLS as it should ({tls.reason}); is it http://?"
        return Unreachable(wrong, is_lasting=True)
    return Unreachable(
        f"{place} cannot be reached: {_reason(error)}; is `daybell server` running there, and is"
        " DAYBELL_API_URL right?"
    )


def _reason(error: Exception) -> str:
    """What was wrong in the first place, if the system has a word for it."""
    words = [one.strerror for one in _causes(error) if isinstance(one, OSError) and one.strerror]
    return words[-1] if words else str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

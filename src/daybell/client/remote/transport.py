"""Asking a Daybell server over HTTP, and what may go wrong with that."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from daybell import __version__
from daybell.client.remote import problems
from daybell.core.instant import Seconds
from daybell.core.limits import REQUEST_SECONDS_MAX
from daybell.errors import Unavailable, UsageError
from daybell.settings import masked_url
from daybell.store.ids import mint

if TYPE_CHECKING:
    import httpx

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

    async def get(
        self, path: str, parameters: Parameters | None = None, *, read: Callable[[Any], T]
    ) -> T:
        """What is at a path, as `read` makes it of JSON. Parameters that are None are left out."""
        asked = _Request("GET", path, parameters=parameters or {})
        return self._understood(await self._repeated(asked), read)

    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        read: Callable[[Any], T],
        once: bool = False,
        version: int | None = None,
    ) -> T:
        """Have something done; to what is at this version, if one is given.

        With `once` it is sent again if the answer is lost, under a key by which the server knows
        that it is the same.
        """
        headers = _if_at(version)
        if not once:
            answer = await self._ask(_Request("POST", path, body, headers=headers))
        else:
            headers["Idempotency-Key"] = str(mint())
            answer = await self._repeated(_Request("POST", path, body, headers=headers))
        return self._understood(answer, read)

    async def patch(
        self, path: str, body: Any, *, read: Callable[[Any], T], version: int | None = None
    ) -> T:
        """Change what is at a path; with a version, only if it still is at that one."""
        asked = _Request("PATCH", path, body, headers=_if_at(version))
        return self._understood(await self._ask(asked), read)

    async def put(
        self,
        path: str,
        body: Any,
        *,
        read: Callable[[Any], T],
        parameters: Parameters | None = None,
        version: int | None = None,
    ) -> T:
        """Have what is at a path be this; with a version, only if it still is at that one."""
        asked = _Request("PUT", path, body, parameters=parameters or {}, headers=_if_at(version))
        return self._understood(await self._ask(asked), read)

    async def delete(
        self,
        path: str,
        *,
        read: Callable[[Any], T],
        parameters: Parameters | None = None,
        version: int | None = None,
    ) -> T:
        """Have what is at a path deleted; with a version, only if it still is at that one."""
        asked = _Request("DELETE", path, parameters=parameters or {}, headers=_if_at(version))
        return self._understood(await self._ask(asked), read)

    def _understood(self, answer: Any, read: Callable[[Any], T]) -> T:
        try:
            return read(answer)
        except (LookupError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise problems.not_understood(self.place) from error

    async def _repeated(self, request: _Request) -> Any:
        try:
            return await self._ask(request)
        except Unreachable:
            raise  # nothing was sent, so no answer can be lost
        except Unavailable:
            return await self._ask(request)

    async def _ask(self, request: _Request) -> Any:
        status, headers, raw = await self._exchange(request)
        try:
            value = _decoded(raw) if raw else None
        except ValueError:
            if status < 300:
                raise problems.not_json(self.place, raw[:100].decode(errors="replace")) from None
            value = None
        if status < 300:
            return value
        raise problems.of_answer(
            status,
            value,
            place=self.place,
            has_key=self._key is not None,
            retry_after=headers.get("retry-after"),
        )

    async def _exchange(self, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request; answers with the status, the headers and the body."""
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
            # Who expects TLS answers with something else, or nothing.
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
        content = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            content = encoded(request.body)
        return http.stream(
            request.method, BASE + request.path, params=named, content=content, headers=headers
        )

    def _opened(self) -> httpx.AsyncClient:
        import httpx  # takes longer to import than all else together

        headers = {"User-Agent": f"daybell/{__version__}", "Accept": "application/json"}
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


def _if_at(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


class Unreachable(Unavailable):
    """There is no connection, so nothing was sent."""


class Untrusted(Unreachable):
    """There is no connection that could be trusted."""

    is_lasting = True


def path_of(*parts: object) -> str:
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


def encoded(body: Any) -> bytes:
    """JSON of what a request says."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, in arguments. Only escapes can carry it.
        return json.dumps(body, allow_nan=False, separators=(",", ":"), default=_unfolded).encode()


def _unfolded(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        return json.loads(raw)  # halves of surrogate pairs, in what somebody sent so


def _unreachable(place: str, error: Exception) -> Unreachable:
    causes = list(_causes(error))
    tls = next((one for one in causes if isinstance(one, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return Untrusted(
            f"{place} has a certificate that is not trusted here ({tls.verify_message});"
            " SSL_CERT_FILE names the certificate of an authority of your own"
        )
    if tls is not None:
        return Untrusted(f"{place} does not speak TLS as it should ({tls.reason}); is it http://?")
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

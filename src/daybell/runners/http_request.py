"""What an HTTP job asks: made of its settings, and of where redirects lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from daybell import __version__
from daybell.core import payload
from daybell.core.execution import Claimed
from daybell.core.kinds.http import check_header_value, check_url
from daybell.errors import UsageError

WITH_BODY: Final = ("POST", "PUT", "PATCH")
# Done twice by a repeated request, unless the other side knows that it is the same.
NOT_IDEMPOTENT: Final = ("POST", "PATCH")
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# What every server may know. All else that a job sends is for the one that it names.
FOR_ANYBODY: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent",
     "daybell-attempt", "daybell-execution-id", "idempotency-key"}
)  # fmt: skip
_PATH_CHARS_SHOWN: Final = 200


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with all that it says."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes | None = None
    is_secret: bool = False  # the address has a secret in it
    has_secret_body: bool = False
    has_secrets: bool = False  # anywhere

    @property
    def place(self) -> str:
        """The address for people, without what may be secret in it. Of one with a secret nothing
        is shown: hosts come in small letters, in which no mask would find it.
        """
        if self.is_secret:
            return f"{self.url.scheme}://…"
        path = _cut(self.url.raw_path.decode().partition("?")[0])
        return f"{self.url.scheme}://{self.url.netloc.decode()}{path}"

    @property
    def title(self) -> str:
        """What is asked where: `GET http://host/path`."""
        return f"{self.method} {self.place}"

    def lines(self) -> list[tuple[bytes, bytes]]:
        """The headers as they are sent."""
        own = {"Host": self.url.netloc.decode(), "Connection": "close"}
        said = own | dict(self.headers)
        return [(name.encode(), value.encode()) for name, value in said.items()]

    def redirected(self, status: int, location: str) -> Request:
        """What is asked of the place that an answer points to. Raises UsageError for one that
        nothing may be sent to.

        Methods and bodies are kept or not as browsers do it.
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
            headers = _without(headers, {"content-type"})
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
    """Headers with their secrets put in."""
    headers: dict[str, str] = {}
    for name, value in given.items():
        text = check_header_value(name, value if isinstance(value, str) else str(value))
        text = text.strip(" \t")
        if not text.replace("\t", " ").isprintable():
            raise UsageError(f"header {name} has a character in it that cannot be printed")
        headers[name] = text
    return headers


def with_usual_headers(
    headers: Mapping[str, str], claimed: Claimed, *, method: str, content_type: str | None
) -> dict[str, str]:
    """The headers that a job gives, and those that every request has unless it says otherwise."""
    usual = {
        "User-Agent": f"daybell/{__version__}",
        "Accept": "*/*",
        "Accept-Encoding": "gzip",
        "Daybell-Execution-Id": str(claimed.id),
        "Daybell-Attempt": str(claimed.attempt),
    }
    if method in NOT_IDEMPOTENT:
        usual["Idempotency-Key"] = str(claimed.id)  # the same however often it is tried
    if content_type is not None:
        usual["Content-Type"] = content_type
    given = {name.lower() for name in headers}
    return _without(usual, given) | dict(headers)


def body_of(method: str, body: Any, args: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    """What is sent, and what it is: the body of the settings, else the arguments as JSON."""
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
    # The same place, with the door closed behind.
    is_plain = (one.scheme, one.port) == ("http", None)
    return is_plain and (other.scheme, other.port) == ("https", None)


def _without(headers: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _cut(path: str) -> str:
    # All or nothing: a redirect may have a secret in it, which a cut would split.
    return path if len(path) <= _PATH_CHARS_SHOWN else "/…"

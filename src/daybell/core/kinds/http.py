"""HTTP jobs: their settings, and the address ranges that are not public."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from daybell.core import payload
from daybell.core.limits import HEADERS_MAX, REDIRECTS_MAX, URL_CHARS_MAX
from daybell.core.references import check_text, read_fields
from daybell.errors import UsageError, shown

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# They belong to the connection, or say what the body is really like.
OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
     "proxy-authorization", "proxy-connection", "keep-alive", "expect"}
)  # fmt: skip
# What a worker offers beside "http" that may send requests where only its network can reach.
PRIVATE: Final = "http:private"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_EXPECTED: Final = re.compile(r"[1-5]xx")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, and which answers are good ones."""

    url: Any  # a text, or what stands for one
    method: str = "GET"
    headers: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    body: Any = None  # a text as it is; all else as JSON
    expect: tuple[int | str, ...] = ("2xx",)
    redirects: int = 0  # how many are followed

    @classmethod
    def parse(cls, value: Any) -> HttpSettings:
        """Read an address, or an object with `url` and the rest."""
        given = read_fields({"url": value} if isinstance(value, str) else value, cls, "http")
        if "url" not in given:
            raise UsageError("http has no url; say where to send the request", field="http.url")
        has_body = "body" in given
        return cls(
            url=_read_url(given["url"]),
            method=_read_method(given.get("method", "POST" if has_body else "GET")),
            headers=_read_headers(given.get("headers")),
            body=_read_body(given.get("body")),
            expect=_read_expected(given.get("expect", ("2xx",))),
            redirects=_read_redirects(given.get("redirects", 0)),
        )

    def expects(self, status: int) -> bool:
        """Whether an answer with this status is a good one."""
        return status in self.expect or f"{status // 100}xx" in self.expect


def check_url(url: str, *, field: str = "http.url") -> str:
    """Return an address that a request can be sent to, as far as it shows by itself."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"url {why}", field=field)  # not shown: it may have a secret in it

    if len(url) > URL_CHARS_MAX:
        raise refuse(f"has {len(url):,} characters; the limit is {URL_CHARS_MAX:,}")
    if not url.isprintable() or " " in url or "\\" in url:
        raise refuse(
            "has a space, a backslash or a character that cannot be printed in it; what is put into"
            " it is not quoted: give it as addresses have it, a space as %20"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refuse(f"cannot be read: {str(error).lower()}") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise refuse("must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise refuse("names no host" if not parts.hostname else "has port 0")
    if "@" in parts.netloc:
        raise refuse("has a login in it; send it as a header, from a secret")
    return url


def _read_url(value: Any) -> Any:
    check_text(value, "url", field="http.url")
    return check_url(value) if isinstance(value, str) else value


def _read_method(value: Any) -> str:
    method = value.upper() if isinstance(value, str) else ""
    if method not in METHODS:
        raise UsageError(
            f"method={shown(value)} is not one of {', '.join(METHODS)}", field="http.method"
        )
    return method


def _read_headers(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"headers={shown(value)} must be given by name, as an object", field="http.headers"
        )
    headers = dict(cast("Mapping[str, Any]", value))
    if len(headers) > HEADERS_MAX:
        raise UsageError(
            f"there are {len(headers):,} headers; the limit is {HEADERS_MAX}", field="http.headers"
        )
    for name, one in headers.items():
        where = f"http.headers.{name}"
        if _TOKEN.fullmatch(name) is None:
            raise UsageError(f"{shown(name)} cannot name a header", field="http.headers")
        if name.lower() in OWN_HEADERS:
            raise UsageError(f"header {name} cannot be set: it is the connection's", field=where)
        check_text(one, f"header {name}", field=where)
        if isinstance(one, str):
            check_header_value(name, one)
    return headers


def check_header_value(name: str, value: str) -> str:
    """Return what a header may have as its value: one line of it."""
    if any(character in value for character in "\r\n\0") or not value.isascii():
        raise UsageError(f"header {name} must be one line of ASCII", field=f"http.headers.{name}")
    return value


def _read_body(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        payload.encode(value, what="http.body")
    return value


def _read_expected(value: Any) -> tuple[int | str, ...]:
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    for one in listed:
        is_code = isinstance(one, int) and not isinstance(one, bool) and 100 <= one <= 599
        if not is_code and not (isinstance(one, str) and _EXPECTED.fullmatch(one)):
            raise UsageError(
                f'expect={shown(one)} must be statuses such as 204 or "2xx", or a list of them',
                field="http.expect",
            )
    if not listed:
        raise UsageError("expect is empty, so it could never succeed", field="http.expect")
    return tuple(listed)


def _read_redirects(value: Any) -> int:
    if value is True:
        return REDIRECTS_MAX
    if value is False:
        return 0
    if not isinstance(value, int) or not 0 <= value <= REDIRECTS_MAX:
        raise UsageError(
            f"redirects={shown(value)} must be a number from 0 to {REDIRECTS_MAX}, or true or"
            " false",
            field="http.redirects",
        )
    return value


# Which addresses are on the public internet, and what the others are for.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")  # nothing else is given to anybody
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
# After IANA's registries of special addresses. They are listed here because `is_global` of the
# standard library has not said the same in all versions.
_NOT_PUBLIC: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's own network"),
        ("127.0.0.0/8", "this machine"),
        ("168.63.129.16/32", "a cloud's metadata"),  # Azure's; it looks like any other
        ("169.254.0.0/16", "the local link, with a cloud's metadata"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "protocols, with a cloud's metadata"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "relays that are no more"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "measurements"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "groups"),
        ("255.255.255.255/32", "everybody on the local link"),
        ("240.0.0.0/4", "later use"),
        ("::/128", "this machine"),
        ("::1/128", "this machine"),
        ("64:ff9b:1::/48", "a private network"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "the local link"),
        ("ff00::/8", "groups"),
        ("2001::/23", "protocols and tunnels"),  # Teredo among them
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
    )
)


def why_not_public(address: str) -> str | None:
    """What an address is for, if it is none of the public internet: `127.0.0.0/8, this machine`."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "no address"
    return _why_not_public(parsed)


def _why_not_public(address: Address) -> str | None:
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return "the local link"
        for network in (_MAPPED, _NAT64, _6TO4):
            if address in network:
                return _why_not_public(_inside(address, network))
    for network, what in _NOT_PUBLIC:
        if address.version == network.version and address in network:
            return f"{network}, {what}"
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return "no address that is given to anybody"
    return None


def _inside(address: ipaddress.IPv6Address, network: ipaddress.IPv6Network) -> Address:
    """The IPv4 address that comes right after the prefix: packets are sent on to it."""
    below = 128 - network.prefixlen - 32
    return ipaddress.IPv4Address((int(address) >> below) & 0xFFFF_FFFF)


def why_private(url: str) -> str | None:
    """Why the host that an address names is none of the public internet, if that shows without
    asking anybody: a number, or this machine's own name. All others only a worker can look up.
    """
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return f"{host} is this machine"
    try:
        why = _why_not_public(ipaddress.ip_address(host))
    except ValueError:
        return None
    return None if why is None else f"{host} is in {why}"

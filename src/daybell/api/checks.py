"""What can be refused by the head of a request alone: its host, origin, address and content type.

Pure functions of what was sent. Each answers None, or why it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from daybell.errors import shown

EVENTS_PATH: Final = "/api/v1/events"
WEBHOOK_ORIGIN: Final = b"webhook-request-origin"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SECRET_NAMES: Final = frozenset(
    {"key", "api_key", "apikey", "api-key", "token", "access_token", "authorization"}
)
KEY_PREFIX: Final = "dbk_"

# As an ASGI server hands it over: `headers` are pairs of bytes, with names in lower case.
Scope = Mapping[str, Any]
Fields = Mapping[bytes, Sequence[str]]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request goes no further."""

    status: HTTPStatus
    kind: str  # ends the problem's type
    detail: str
    headers: tuple[tuple[str, str], ...] = ()


def check_head(scope: Scope, hosts: Collection[str]) -> Refusal | None:
    """The first thing that is wrong with the head of a request.

    `hosts` are the names that it may be addressed to.
    """
    fields = read_fields(scope)
    return (
        check_host(scope, fields, hosts)
        or check_query(scope)
        or check_origin(scope, fields)
        or check_content(scope, fields)
    )


def read_fields(scope: Scope) -> Fields:
    """All headers by their names, each with all values that were sent."""
    fields: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        fields.setdefault(name, []).append(value.decode("latin-1"))
    return fields


def check_host(scope: Scope, fields: Fields, hosts: Collection[str]) -> Refusal | None:
    """A page of any site can have its own name resolve to this machine, and be the same origin
    then; but it cannot hide that name.
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
    """The name in a Host header, without its port; None if that is not one."""
    text = text.strip().lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        is_fine = bool(bracket) and set(name) <= set("0123456789abcdef:.")
    else:
        name, colon, port = text.partition(":")
        port = colon + port
        is_fine = name.isascii() and all(char.isalnum() or char in "-._" for char in name)
    is_fine = is_fine and (not port or (port[0] == ":" and port[1:].isdigit()))
    return name.removesuffix(".") if is_fine and name else None


def check_query(scope: Scope) -> Refusal | None:
    """A key in an address ends up in histories and logs of others; it is not accepted there."""
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
        # Whatever it is called, and however it is split.
        values_sent = (value for _, value in parse_qsl(query, keep_blank_values=True))
        bare = (unquote(part) for part in query.split("&"))
        if any(value.lstrip().startswith(KEY_PREFIX) for value in (*values_sent, *bare)):
            return True
    names = (part.partition("=")[0] for part in query.split("&"))
    return any(unquote(name).lower() in _SECRET_NAMES for name in names)


def check_origin(scope: Scope, fields: Fields) -> Refusal | None:
    """Browsers say which site a request comes from; nothing is done for other sites, and nothing
    is shown to them.
    """
    origins = fields.get(b"origin", [])
    host = fields.get(b"host", [""])[0]
    is_foreign = len(origins) > 1 or not all(_is_same(one, host, scope) for one in origins)
    site = fields.get(b"sec-fetch-site", ["none"])
    if site[0] not in ("same-origin", "none"):
        # Somebody who follows a link to this server is welcome.
        is_link = fields.get(b"sec-fetch-mode") == ["navigate"] and scope["method"] in _SAFE
        is_foreign = is_foreign or not is_link
    if not is_foreign:
        return None
    return Refusal(
        HTTPStatus.FORBIDDEN,
        "foreign-origin",
        "this request comes from another site; only pages of this server may send it",
    )


def _is_same(origin: str, host: str, scope: Scope) -> bool:
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    # Behind a proxy that speaks TLS for us, a page of ours is https and we are not.
    if scope["scheme"] == "https" and parts.scheme != "https":
        return False
    # The default port may be written or not.
    default = 443 if parts.scheme == "https" else 80
    own_port = host.rpartition("]")[2].partition(":")[2]
    is_same_port = (port or default) == (int(own_port) if own_port.isdigit() else default)
    return parts.username is None and parts.hostname == host_name(host) and is_same_port


def check_content(scope: Scope, fields: Fields) -> Refusal | None:
    """A body is JSON, and says so: what a form of another site can send is not."""
    if fields.get(b"content-encoding", ["identity"]) != ["identity"]:
        return _unsupported("send the body without a Content-Encoding")
    has_body = b"transfer-encoding" in fields or fields.get(b"content-length", ["0"]) != ["0"]
    if has_body and is_handshake(scope):
        return Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "payload-too-large",
            "the handshake of webhooks has no body; send OPTIONS without one",
        )
    if not has_body or scope["method"] in _SAFE:
        return None
    types = fields.get(b"content-type", [])
    if len(types) == 1 and is_json(types[0]):
        return None
    # The data of an event, with a header that no form can send. Without a type it is JSON.
    if b"ce-specversion" in fields and scope["path"] == EVENTS_PATH:
        is_fine = not types or (len(types) == 1 and is_text(types[0]))
        return None if is_fine else _unsupported("send JSON, or text in UTF-8 as text/plain")
    return _unsupported("send JSON, with Content-Type: application/json")


def is_handshake(scope: Scope) -> bool:
    """True if a sender of events asks whether it may send them here.

    CloudEvents calls this the abuse protection of webhooks. The question needs no key, since its
    answer is the same for every sender; the events themselves need one.
    """
    return (
        scope["method"] == "OPTIONS"
        and scope["path"] == EVENTS_PATH
        and any(name == WEBHOOK_ORIGIN for name, _ in scope["headers"])
    )


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON in UTF-8."""
    if content_type == "application/json":
        return True
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    main, _, sub = kind.partition("/")
    if main != "application" or not (sub == "json" or sub.endswith("+json")):
        return False
    charsets = [one for one in parameters if one.startswith("charset=")]
    return all(one[8:].strip('"') in ("utf-8", "utf8") for one in charsets)


def is_text(content_type: str) -> bool:
    """Whether a content type is text in UTF-8; XML is."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    main, _, sub = kind.partition("/")
    is_xml = main == "application" and (sub == "xml" or sub.endswith("+xml"))
    charsets = [one for one in parameters if one.startswith("charset=")]
    known = ("utf-8", "utf8", "us-ascii")
    return (main == "text" or is_xml) and all(one[8:].strip('"') in known for one in charsets)


def _unsupported(detail: str) -> Refusal:
    return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported", detail)

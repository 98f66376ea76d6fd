"""Sessions of browsers: the cookie, and the proof that a page of this server sends a change."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from daybell.api.caller import CsrfTokenNeeded
from daybell.api.guard import SAFE
from daybell.core.access import SESSION_SECONDS

COOKIE: Final = "daybell_session"
CSRF_HEADER: Final = b"x-csrf-token"
_TOKEN: Final = re.compile(r"dbk_[A-Za-z0-9_-]{20,100}")
_PORT: Final = re.compile(r":([0-9]{1,5})$")

Scope = Mapping[str, Any]


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie at the address of a request. Browsers send the cookies of a
    host to all of its ports, so that two servers on one machine need two names.
    """
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    port = _PORT.search(host.decode("latin-1"))
    prefix = "__Host-" if scope["scheme"] == "https" else ""
    return f"{prefix}{COOKIE}{'' if port is None else f'_{port[1]}'}"


def read_cookie(scope: Scope) -> str | None:
    """Return the token in the cookie; None: there is none."""
    if not any(name == b"cookie" for name, _ in scope["headers"]):
        return None
    token = Request(dict(scope)).cookies.get(cookie_name(scope), "")
    return token if _TOKEN.fullmatch(token) else None


def set_cookie(response: Response, scope: Scope, token: str) -> None:
    """Set the cookie of a session, or remove it with an empty token.

    Pages cannot read it. Requests from other sites do not carry it. A cookie that was set over TLS
    is not sent in clear text.
    """
    response.set_cookie(
        cookie_name(scope),
        token,
        max_age=round(SESSION_SECONDS) if token else 0,
        httponly=True,
        samesite="strict",
        secure=scope["scheme"] == "https",
        path="/",
    )


def csrf_token(token: str) -> str:
    """Return the proof that this server has served a page. It grants no access."""
    return hmac.new(token.encode(), b"csrf", sha256).hexdigest()[:32]


def check_origin(scope: Scope, token: str) -> None:
    """Raise CsrfTokenNeeded unless a page of this server sends the change. The guard has refused
    foreign origins before this; here the request must name its origin.
    """
    if scope["method"] in SAFE:
        return
    headers = dict(scope["headers"])
    sent = headers.get(CSRF_HEADER, b"")
    if not hmac.compare_digest(sent, csrf_token(token).encode()):
        raise CsrfTokenNeeded("a change with a session's cookie takes its CSRF token")
    if b"origin" not in headers and headers.get(b"sec-fetch-site") != b"same-origin":
        raise CsrfTokenNeeded("a change with a session's cookie names the origin of its page")

"""The dashboard: the files of its build, at every path that is not one of the API."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from daybell.api.caller import problem
from daybell.api.router import refuse_method

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FOLDER: Final = Path(__file__).parent.parent / "dashboard"
API_NAMES: Final = frozenset({"api", "docs", "healthz", "metrics", "openapi.json", "readyz"})
PAGE: Final = "index.html"
# The names of assets have a digest of their content in them.
ASSETS: Final = "assets/"
FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
BRIEFLY: Final = {"Cache-Control": "public, max-age=3600"}
MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
ENCODINGS: Final = (("br", ".br"), ("gzip", ".gz"))
BUILD_FILES: Final = frozenset({"digest", "status.json", "status.new"})


class BuildStatus(msgspec.Struct, frozen=True):
    """The state of a build, as the build hook of the package writes it."""

    state: str = "missing"
    pid: int = 0
    of: int = 1
    step: str = ""
    number: int = 0
    detail: str = ""


class Dashboard:
    """The ASGI middleware that answers requests for pages and assets, and passes all others on.

    It needs no key: it holds no data of a tenant.
    """

    def __init__(self, app: App, *, folder: Path = FOLDER) -> None:
        self._app = app
        self._folder = folder
        self._built_at: int | None = None
        self._files: Mapping[str, Path] = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or not is_page(scope["path"]):
            return self._app(scope, receive, send)
        response = self._answer(scope)
        if scope["method"] == "HEAD":
            response.body = b""
        return response(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return refuse_method(scope["method"], {"GET"})
        self._look()
        name = scope["path"].lstrip("/")
        if name in self._files and name != PAGE:
            return self._send(name, scope, FOREVER if name.startswith(ASSETS) else BRIEFLY)
        if name.startswith(ASSETS):
            return problem(HTTPStatus.NOT_FOUND, "not-found", "the dashboard has no such file")
        if PAGE in self._files:
            return self._send(PAGE, scope, {})
        return waiting_page(read_status(self._folder))

    def _look(self) -> None:
        """List the files again if the dashboard was built since the last time."""
        try:
            built_at = (self._folder / PAGE).stat().st_mtime_ns
        except OSError:
            built_at = None
        if built_at == self._built_at:
            return
        self._built_at = built_at
        found = (one for one in self._folder.rglob("*") if one.is_file())
        files = {one.relative_to(self._folder).as_posix(): one for one in found}
        self._files = {} if built_at is None else {
            name: file for name, file in files.items() if name not in BUILD_FILES
        }  # fmt: skip

    def _send(self, name: str, scope: Scope, headers: Mapping[str, str]) -> Response:
        accepted = _accepted(scope)
        more = {**headers, "Vary": "Accept-Encoding"}
        file = self._files[name]
        for encoding, suffix in ENCODINGS:
            if encoding in accepted and name + suffix in self._files:
                file = self._files[name + suffix]
                more["Content-Encoding"] = encoding
                break
        media_type = MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")
        try:
            content = file.read_bytes()
        except OSError:  # replaced by a new build a moment ago
            self._built_at = None
            return problem(HTTPStatus.NOT_FOUND, "not-found", "the dashboard has no such file")
        return Response(content, headers=more, media_type=media_type)


def is_page(path: str) -> bool:
    """Return True if a path is one of the dashboard and not one of the API."""
    return path.startswith("/") and path.split("/", 2)[1] not in API_NAMES


def _accepted(scope: Scope) -> set[str]:
    sent = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    parts = (one.replace(" ", "").partition(";") for one in sent.decode("latin-1").split(","))
    return {name.lower() for name, _, weight in parts if weight not in ("q=0", "q=0.0")}


def read_status(folder: Path) -> BuildStatus:
    """Read the status of a build. If its process has ended, the build has failed."""
    try:
        status = msgspec.json.decode((folder / "status.json").read_bytes(), type=BuildStatus)
    except (OSError, msgspec.MsgspecError):
        return BuildStatus()
    if status.state == "building" and not _is_alive(status.pid):
        return BuildStatus(state="failed", detail="the build was interrupted")
    return status


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# The page until the dashboard is built. It has no script: it reloads itself.

_STYLE: Final = (
    "body{font:15px/1.6 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem;"
    "color-scheme:light dark}progress{width:100%;height:.5rem;accent-color:#5b5bd6}"
    "pre{white-space:pre-wrap;font-size:13px;opacity:.8}h1{font-size:1.25rem}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'"


def waiting_page(status: BuildStatus) -> Response:
    """Return the page with the progress of a build, or the way to a dashboard."""
    seconds = 1
    if status.state == "building":
        body = (
            "<h1>The dashboard is being built</h1>"
            f'<p><progress value="{status.number}" max="{status.of + 1}"></progress></p>'
            f"<p>Step {status.number} of {status.of}: {escape(status.step)}."
            " Daybell runs already; this page opens by itself.</p>"
        )
    elif status.state == "failed":
        seconds = 5
        body = (
            "<h1>The dashboard could not be built</h1><p>All else works. It needs the packages"
            " of npm once: connect this machine, then run <code>make web</code>. This page opens by"
            f" itself when it is there.</p><pre>{escape(status.detail)}</pre>"
        )
    else:
        seconds = 5
        body = (
            "<h1>This copy of Daybell has no dashboard</h1><p>In a clone, <code>make web</code>"
            " builds it; packages from PyPI contain it. All else works:"
            " <code>daybell top</code> shows the same in a terminal.</p>"
        )
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f'<meta http-equiv=refresh content="{seconds}"><title>Daybell</title>'
        f'<style>{_STYLE}</style><body><main>{body}<p>The API is at <a href="/docs">/docs</a>.</p>'
        "</main>"
    )
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": _POLICY})

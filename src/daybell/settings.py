"""What a program is told from outside, read once at the edge and passed down.

Flags win over the environment, the environment wins over `daybell.toml` in the working directory.
Passwords and keys never show: not in a repr, not in a message.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

from daybell.core.limits import (
    BODIES_BYTES_MAX,
    CONNECTIONS_MAX,
    KEY_RATE_DEFAULT,
    POOL_SIZE,
    POOL_SIZE_LEAST,
    REQUESTS_MAX,
    STREAMS_MAX,
)
from daybell.core.units import parse_duration
from daybell.errors import DaybellError, UsageError, shown

PREFIX: Final = "DAYBELL_"
CONNECTION: Final = "DAYBELL_CONNECTION_"  # and the name of one, in capital letters
FILE_NAME: Final = "daybell.toml"
LEASE_SECONDS_LEAST: Final = 1.0
LEASE_SECONDS_MOST: Final = 3600.0
MASK: Final = "***"
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS: Final = ("text", "json")
TRACES: Final = ("none", "otlp")

# Shorter ones would be found inside ordinary words; nobody keeps a secret with three letters.
_SECRET_CHARS_LEAST: Final = 4
_WORD_CHARS_LEAST: Final = 8  # where jobs say anything, and not only what a program complains of
_NAMED_SECRET: Final = re.compile(r"(?:^|[?&\s])\w*(?:password|secret|key)\s*=\s*([^&\s]+)", re.I)
# What a URL may begin with to be believed; anything else may be a name and a password already.
_SCHEME: Final = re.compile(r"(?:postgres|postgresql|https?|sqlite|memory)(?:\+\w+)?://", re.I)
# A URL without a login in which nothing can be a password: a port has digits, few of them, and no
# other colon is in sight.
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^:/?#\[\],]*)(?::[0-9]{1,5})?"
_BARE: Final = re.compile(
    rf"(?:[A-Za-z][\w+.\-]*://)?{_HOST}(?:,{_HOST})*(?:/[^:?#]*)?(?:[?#].*)?", re.S
)
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
# What jobs of the kind sql can use: a server, or a file.
_CONNECTION: Final = re.compile(r"(?:postgres(?:ql)?://|sqlite:///)[^\s]", re.I)
# A module or a file, as sdk/loading.py tells them apart, and perhaps the app's name in it.
_APP: Final = re.compile(r"(?:[A-Za-z_][\w.]*|[^:]*/[^:]*|[^:]+\.py)(?::[A-Za-z_][\w.]*)?")


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """Every setting that Daybell has; its names in the environment are the same with DAYBELL_."""

    database_url: str = "sqlite:///daybell.db"
    app: str | None = None  # "module:app" or "path/to/file.py", what a worker loads
    api_url: str | None = None
    api_key: str | None = None
    lease: float = 15.0  # seconds that a worker may be silent before its work is given to others
    listen_url: str | None = None  # a direct connection for wake-ups, past a pooler
    pool_size: int = POOL_SIZE  # connections to PostgreSQL in the pools of a process
    secrets_key: str | None = None  # seals and opens secrets; several: with commas between them
    # Databases that jobs of the kind sql know by name: a table in the file, and one variable each.
    connections: Mapping[str, str] = field(default_factory=dict[str, str])
    keep: str | None = None  # retention of the cluster: core.options.Keep as text
    # What the callers of one server process share, and how many requests a second a key may send.
    server_connections: int = CONNECTIONS_MAX
    server_requests: int = REQUESTS_MAX
    server_bodies: int = BODIES_BYTES_MAX
    server_streams: int = STREAMS_MAX
    server_key_rate: int = KEY_RATE_DEFAULT  # 0: no limit
    log_level: str | None = None  # None: info for Daybell's own lines, warning for others'
    log_format: str = "text"
    traces: str = "none"  # or "otlp": sent as the variables OTEL_… say
    sentry_dsn: str | None = None

    @classmethod
    def load(
        cls,
        flags: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Settings:
        """Read all sources. A flag that is None and a variable that is empty were not given."""
        return cls(**_found(flags or {}, environ, folder))

    @staticmethod
    def given(flags: Mapping[str, object] | None = None) -> frozenset[str]:
        """The names of the settings that are given anywhere, and so are not what they are by
        default.
        """
        return frozenset(_found(flags or {}, None, None))

    @staticmethod
    def is_key_misdirected(
        flags: Mapping[str, object] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> bool:
        """True if the environment has the key, and only a file in the working folder the server.

        A folder that was downloaded must not decide where the key of its user is sent.
        """
        given = _from_environment(os.environ if environ is None else environ)
        is_named = "api_url" in given or (flags or {}).get("api_url") is not None
        return "api_key" in given and not is_named and "api_url" in _found({}, environ, folder)

    def mask(self, text: str) -> str:
        """Return `text` without the secrets that these settings hold."""
        for secret in self._secrets():
            if len(secret) >= _SECRET_CHARS_LEAST:
                text = text.replace(secret, MASK)
        return text

    @property
    def secrets(self) -> frozenset[str]:
        """What is to be masked in all that jobs say and answer.

        Unlike in a line of our own, a password like that of root:root@db/test must not be taken
        out of it wherever that word stands: it is told by what is around it.
        """
        found = {self.api_key or "", *(self.secrets_key or "").replace(" ", "").split(",")}
        for url in self._urls:
            for start, end in _secret_parts(url):
                secret, rest = url[start:end], f"{url[:start]}\n{url[end:]}"
                found.add(url[max(start - 1, 0) : end + 1])
                if len(secret) >= _WORD_CHARS_LEAST and secret not in rest:
                    found |= {secret, unquote(secret)}
        return frozenset(secret for secret in found if len(secret) >= _SECRET_CHARS_LEAST)

    def __repr__(self) -> str:
        shown_values = {
            name: masked_url(value) if name.endswith("_url") and isinstance(value, str) else value
            for name, value in vars(self).items()
        }
        for name in ("api_key", "secrets_key"):
            if shown_values[name] is not None:
                shown_values[name] = MASK
        urls = self.connections.items()
        shown_values["connections"] = {name: masked_url(url) for name, url in urls}
        inside = ", ".join(f"{name}={value!r}" for name, value in shown_values.items())
        return f"Settings({inside})"

    @property
    def _urls(self) -> list[str]:
        urls = (self.database_url, self.listen_url, self.api_url, *self.connections.values())
        return [url for url in urls if url is not None]

    def _secrets(self) -> list[str]:
        secrets = [self.api_key or "", *(self.secrets_key or "").replace(" ", "").split(",")]
        for url in self._urls:
            secrets += [url[start:end] for start, end in _secret_parts(url)]
        secrets += [unquote(secret) for secret in secrets]  # as a server would repeat it
        # The longest first: one may contain another.
        return sorted(filter(None, secrets), key=len, reverse=True)


def masked_url(url: str) -> str:
    """Return a URL as it may be shown: without its password, even one that was not encoded.

    Where that cannot be told apart, too much is hidden rather than too little.
    """
    shown_url, done = "", 0
    for start, end in sorted(_secret_parts(url)):
        if end > done:
            # Parts that overlap are one.
            shown_url += url[done:start] + MASK if start >= done else ""
            done = end
    return shown_url + url[done:]


def _secret_parts(url: str) -> list[tuple[int, int]]:
    """Where a URL, or what was meant as one, holds what may be a password. They may overlap."""
    parts = [found.span(1) for found in _NAMED_SECRET.finditer(url)]
    scheme = _SCHEME.match(url)
    begin = scheme.end() if scheme else 0
    at = url.rfind("@")
    colon = url.find(":", begin, max(at, begin))
    if colon >= 0:
        parts.append((colon + 1, at))
    # The path of a file may have any colons. Elsewhere, what follows one and is no port is what
    # somebody wrote who forgot the host.
    is_file = url[:begin].lower() == "sqlite://" and url[begin:].startswith("/")
    if not is_file and not _BARE.fullmatch(url, at + 1):
        colon = url.find(":", max(at + 1, begin))
        if colon >= 0:
            parts.append((colon + 1, len(url)))
    return parts


def _found(
    flags: Mapping[str, object], environ: Mapping[str, str] | None, folder: Path | None
) -> dict[str, Any]:
    found = _from_file((folder or Path()) / FILE_NAME)
    named = found.get("connections", {})
    found |= _from_environment(os.environ if environ is None else environ)
    if "connections" in found:
        found["connections"] = named | found["connections"]
    for name, value in flags.items():
        if value is not None:
            found[name] = _read(name, value, where=f"--{name.replace('_', '-')}")
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _READERS:
        variable = PREFIX + name.upper()
        text = environ.get(variable, "").strip()
        if text and name != "connections":
            found[name] = _read(name, text, where=variable)
    if named := _connections_in(environ):
        found["connections"] = named
    return found


def _connections_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that have a variable of their own."""
    found: dict[str, str] = {}
    for variable, text in environ.items():
        if variable.startswith(CONNECTION) and text.strip():
            named = variable.removeprefix(CONNECTION).lower()
            if named in found:
                raise UsageError(f"{variable}: {named} is given twice", field="connections")
            found |= _read("connections", {named: text}, where=variable)
    return found


def _from_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
        import tomllib  # few have such a file

        content = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise UsageError(f"{file} is not a TOML file: {error}") from error
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name not in _READERS:
            raise UsageError(
                f"{file}: there is no setting {shown(name)}; {_hint(name)}", field=name
            )
        found[name] = _read(name, value, where=f"{file}: {name}")
    return found


def _hint(name: str) -> str:
    plain = name.lower().removeprefix(PREFIX.lower())
    closest = difflib.get_close_matches(plain, _READERS, n=1)
    return f"did you mean {closest[0]}?" if closest else f"there are {', '.join(_READERS)}"


def _read(name: str, value: object, *, where: str) -> Any:
    try:
        return _READERS[name](value)
    except DaybellError as error:
        raise UsageError(f"{where}: {error}", field=name) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"must be text, not {type(value).__name__}")
    if not value.strip():
        raise UsageError("is empty; give a value, or leave it out")
    if not value.isprintable():
        raise UsageError("has characters that cannot be printed; is there a line break in it?")
    return value.strip()


def _app(value: object) -> str:
    text = _text(value)
    if _APP.fullmatch(text) is None:
        raise UsageError(
            f"{shown(text)} is not of the form module:app, such as shop.jobs:app; nor is it a file,"
            " such as path/to/file.py"
        )
    return text


def _url_of(*schemes: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = _text(value)
        if text.partition("://")[0].lower() not in schemes or "://" not in text:
            known = " or ".join(f"{one}://" for one in schemes)
            raise UsageError(f"{shown(masked_url(text))} does not begin with {known}")
        return text

    return read


def _lease(value: object) -> float:
    seconds = parse_duration(value, what="lease")  # pyright: ignore[reportArgumentType]
    if not LEASE_SECONDS_LEAST <= seconds <= LEASE_SECONDS_MOST:
        raise UsageError(
            f"{seconds:g} s is not a usable lease; it is from {LEASE_SECONDS_LEAST:g} s to 1 h"
        )
    return seconds


def _count_from(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise UsageError(f"{shown(value)} is not a whole number from {least:,} on")
        return number

    return read


def _one_of(what: str, *words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        word = _text(value).lower()
        if word not in words:
            raise UsageError(f"{shown(value)} is not a {what}; there are {', '.join(words)}")
        return word

    return read


def _connections(value: object) -> dict[str, str]:
    from daybell.core.kinds.settings import (
        check_connection_name,  # not paid for by those without any
    )

    if not isinstance(value, dict):
        raise UsageError(
            'must be a table: [connections], and lines such as shop = "postgresql://…"'
        )
    found: dict[str, str] = {}
    for name, url in cast("dict[str, object]", value).items():
        check_connection_name(name)
        try:
            found[name] = _connection(url)
        except UsageError as error:
            raise UsageError(f"{name} {error}") from None
    return found


def _connection(value: object) -> str:
    text = _text(value)
    if _CONNECTION.match(text) is None:
        raise UsageError(
            f"is {shown(masked_url(text))}, which statements cannot run in; write"
            " postgresql://user@host/database, or sqlite:///file.db"
        )
    return text


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "database_url": _text,  # store/open.py knows which there are
    "app": _app,
    "api_url": _url_of("https", "http"),
    "api_key": _text,
    "lease": _lease,
    "listen_url": _url_of("postgresql", "postgres"),
    "pool_size": _count_from(POOL_SIZE_LEAST),
    "secrets_key": _text,  # client/admin.py knows what a key is
    "connections": _connections,
    "keep": _text,  # core/options.py knows its times
    # At least what one key can work with, since it gets a third.
    "server_connections": _count_from(30),
    "server_requests": _count_from(30),
    "server_bodies": _count_from(1_000_000),
    "server_streams": _count_from(3),
    "server_key_rate": _count_from(0),
    "log_level": _one_of("level", *LOG_LEVELS),
    "log_format": _one_of("format", *LOG_FORMATS),
    "traces": _one_of("exporter", *TRACES),
    "sentry_dsn": _url_of("https", "http"),
}
assert list(_READERS) == [one.name for one in fields(Settings)]

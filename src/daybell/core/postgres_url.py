"""URLs of PostgreSQL: their hosts, and the requirement of encryption.

By default the driver asks for TLS and continues without it if the server refuses. An attacker on
the network could refuse for the server and get the password. So connections over a network require
TLS, unless `sslmode` specifies otherwise.
"""

from __future__ import annotations

import configparser
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from daybell.errors import UsageError

PORT: Final = 5432
# Options of other drivers. PostgreSQL would treat them as its own settings.
_FOREIGN_OPTIONS: Final = frozenset({"ssl", "tls", "ssl_mode", "ssl-mode", "use_ssl", "usessl"})
# Modes in which a server that refuses TLS gets the password.
WEAK_MODES: Final = frozenset({"allow", "prefer"})
_REFUSED: Final = "rejected SSL upgrade"  # part of the driver's message


def read_hosts(url: str) -> list[tuple[str, int]]:
    """Return the hosts of a URL with their ports."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    named = parts.netloc.partition("@")[2] if "@" in parts.netloc else parts.netloc
    hosts = (named or ",".join(asked.get("host", []))).split(",")  # as the driver does
    ports = ",".join(asked.get("port", [str(PORT)])).split(",")
    found: list[tuple[str, int]] = []
    for place, host in enumerate(hosts):
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):  # [::1] is an address without a port
            name, port = host, ports[place] if len(ports) == len(hosts) else ports[0]
        found.append((unquote(name.strip("[]")), int(port)))
    return found


def check_options(url: str) -> None:
    """Reject options of other drivers. Raises UsageError, without the URL in it."""
    for name in parse_qs(urlsplit(url).query, keep_blank_values=True):
        if name.lower() in _FOREIGN_OPTIONS:
            raise UsageError(
                f"PostgreSQL knows no option {name}; TLS is chosen with sslmode, such as"
                " ?sslmode=require or ?sslmode=verify-full"
            )


def ssl_mode(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the mode of the URL, its service or the environment, in the driver's order. Raises
    UsageError for an unusable service file.
    """
    [mode] = parse_qs(urlsplit(url).query).get("sslmode", [""])[-1:]
    return mode or _service_mode(url, environ) or environ.get("PGSSLMODE") or None


def is_local(url: str, environ: Mapping[str, str]) -> bool:
    """Return True if every host is this machine, by the URL alone: the result of a name lookup may
    change.
    """
    if _service(url):
        return False  # the service file may name any host
    names = [name for name, _ in read_hosts(url)]
    if names == [""]:  # as the driver: PGHOST, else a socket or localhost
        names = environ.get("PGHOST", "localhost").split(",")
    return all(map(_is_this_machine, names))


def tls_options(url: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments for the driver that require TLS where it is needed. They override settings
    that the driver reads itself, so they never contradict a specified mode.
    """
    mode = ssl_mode(url, environ)
    if mode is None:
        return {} if is_local(url, environ) else {"ssl": "require"}
    # Not every version of the driver reads service files.
    return {"ssl": mode} if _service(url) else {}


def explain_refusal(url: str, environ: Mapping[str, str], said: str) -> str | None:
    """Explain a refusal of TLS; None if the message `said` is another error."""
    if _REFUSED not in said:
        return None
    mode = ssl_mode(url, environ)
    if mode is not None:
        return f"the server offers no TLS, and sslmode={mode} demands it: enable ssl on the server"
    return (
        "the server offers no TLS, and the URL has no sslmode. Over a network nothing is sent"
        " unencrypted unless the URL asks for it: enable ssl on the server, or write"
        " ?sslmode=disable if everything between the two can be trusted"
    )


def is_same_login(one: str, other: str) -> bool:
    """Return True if two URLs name the same user and database on the same server, by their text."""
    return _login(one) == _login(other) and bool(_servers(one) & _servers(other))


def _service(url: str) -> str:
    """Return the service of the URL. The driver ignores PGSERVICE."""
    return parse_qs(urlsplit(url).query).get("service", [""])[-1]


def _service_mode(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the mode in the service file, which is found and read as the driver does."""
    if not (service := _service(url)):
        return None
    named = environ.get("PGSERVICEFILE")
    try:
        path = Path.home() / ".pg_service.conf" if named is None else Path(named)
    except RuntimeError:  # no home directory
        return None
    parser = configparser.ConfigParser()
    try:
        parser.read(path)
        return (
            parser.get(service, "sslmode", fallback=None) if parser.has_section(service) else None
        )
    except (configparser.Error, UnicodeDecodeError) as error:
        # The error's message may contain a line with a password.
        raise UsageError(
            f"the PostgreSQL service file {path} cannot be read ({type(error).__name__}); correct"
            " it, or write the options into the URL"
        ) from None


def _login(url: str) -> tuple[str, str]:
    parts, asked = urlsplit(url), parse_qs(urlsplit(url).query)
    user = unquote(parts.username or "") or asked.get("user", [""])[0]
    names = [*asked.get("dbname", []), *asked.get("database", []), user]
    return user, unquote(parts.path.lstrip("/")) or names[0]


def _servers(url: str) -> set[tuple[str, int]]:
    return {
        ("localhost" if not name or _is_this_machine(name) else name.lower(), port)
        for name, port in read_hosts(url)
    }


def _is_this_machine(name: str) -> bool:
    if name.startswith(("/", "@")) or name.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback

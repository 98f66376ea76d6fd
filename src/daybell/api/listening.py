"""Where to listen: sockets, TLS, and messages for what goes wrong with either."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from daybell.errors import Conflict, DaybellError, UsageError, shown

PEM_BYTES_MAX: Final = 1_000_000  # of a file that is looked into
BACKLOG: Final = 1024
# This machine has no such kind of address, although its name service knows one.
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

Address = tuple[socket.AddressFamily, tuple[str, int]]


def addresses_of(host: str) -> list[Address]:
    """What a host given on the command line stands for. Raises UsageError."""
    if not host.strip():
        raise UsageError("--host is empty; say 127.0.0.1, or 0.0.0.0 for all addresses")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot listen on {shown(host)}: {reason}", field="host") from error
    return list({(family, (str(name[0]), 0)): None for family, _, _, _, name in found})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. Raises UsageError."""
    return all(
        ipaddress.ip_address(name.partition("%")[0]).is_loopback
        for _, (name, _) in addresses_of(host)
    )


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets on all addresses of a host, on one port; 0 takes one that is free.

    They do not listen yet: whoever comes is refused.

    Raises Conflict if the port is taken, UsageError for a host that is not here.
    """
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    for family, (name, _) in addresses_of(host):
        # Only of one that says it is TCP asyncio turns off waiting for more to send: without that
        # an answer takes 40 ms.
        one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((name, port))
            one.setblocking(False)
        except OSError as error:
            one.close()
            refused = error
            if error.errno not in _NOT_HERE:
                break
        else:
            sockets.append(one)
            port = one.getsockname()[1]
    if refused is not None and (not sockets or refused.errno not in _NOT_HERE):
        for one in sockets:
            one.close()
        raise _refusal(refused, host, port) from refused
    return sockets


def listen(sockets: Sequence[socket.socket], host: str) -> None:
    """Let others come. Raises Conflict if somebody else was quicker to listen on that port."""
    for one in sockets:
        try:
            one.listen(BACKLOG)
        except OSError as error:
            raise _refusal(error, host, one.getsockname()[1]) from error


def _refusal(error: OSError, host: str, port: int) -> DaybellError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(f"port {port} of {host} is in use; choose another with --port")
    if error.errno == errno.EACCES:
        return Conflict(f"port {port} of {host} is not for you; choose one above 1023 with --port")
    return UsageError(f"cannot listen on {host}: {error.strerror or error}", field="host")


def tls_context(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """What TLS needs; None without a certificate. Raises UsageError for files that will not do."""
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key needs --tls-cert, the certificate that it belongs to")
        return None
    for flag, file in (("--tls-cert", cert), ("--tls-key", key)):
        _check_file(flag, file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=_ask_nobody)
    except ssl.SSLError as error:
        raise UsageError(_tls_fault(error, cert, key)) from error
    return context


def _check_file(flag: str, file: str | None) -> None:
    if file is None:
        return
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        raise UsageError(f"{flag} {shown(file)} cannot be read: {error.strerror}") from error


def _ask_nobody() -> str:
    raise UsageError("the key of --tls-key has a passphrase; give one that has none")


def _tls_fault(error: ssl.SSLError, cert: str, key: str | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--tls-key {shown(key)} does not belong to the certificate in {shown(cert)}"
    if key is None and _is_certificate(cert):
        return f"--tls-key is missing: {shown(cert)} holds a certificate and no key"
    files = shown(cert) if key is None else f"{shown(cert)} and {shown(key)}"
    what = "a certificate and a key, both in PEM" if key is None else "a certificate and its key"
    return f"{files} cannot be used for TLS: they must hold {what} ({error.reason or error})"


def _is_certificate(file: str) -> bool:
    with open(file, "rb") as opened:
        text = opened.read(PEM_BYTES_MAX)
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY-----" not in text

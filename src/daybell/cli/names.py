"""By which names this machine is reached."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence


def allowed_names(host: str, given: Sequence[str]) -> tuple[str, ...]:
    """The names that requests may be addressed to, besides `host`, this machine's addresses and
    localhost: those given, and who listens everywhere goes by the machine's own names, too.
    """
    return tuple(dict.fromkeys([*given, *(_own_names() if is_everywhere(host) else ())]))


def is_everywhere(host: str) -> bool:
    """Whether that means all addresses that this machine has."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == ""


def told(names: Sequence[str]) -> str:
    """What somebody who listens everywhere is told of these names."""
    listed = ", ".join(["localhost", *names])
    return f"reached as {listed}, and by this machine's addresses; --allowed-host adds others"


def _own_names() -> list[str]:
    names = [socket.gethostname(), socket.getfqdn()]
    return [name for name in names if _is_name(name)]


def _is_name(name: str) -> bool:
    """Whether a Host header can have it; a machine may be called anything."""
    return bool(name) and name.isascii() and all(char.isalnum() or char in "-._" for char in name)

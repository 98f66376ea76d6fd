"""Which addresses are on the public internet, and what the others are for."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

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

"""Which addresses a job may send requests to: those of the public internet.

A worker stands where its network trusts it, so a request in its name may reach what nobody outside
may: other services of the machine, the network's own, a cloud's metadata with its keys. What a
name or a number stands for is for the system to say, in all spellings that it knows (127.1,
0x7f000001, localhost, a name that somebody has pointed there): so names are resolved first, what
comes of it is looked at, and the connection is made to exactly that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final

from daybell.runners.lookups import Lookups

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# A host and a port to the addresses that it has, as texts. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]

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
# Ports of other protocols, which could be made to take a request for what they speak; the list is
# that of the Fetch standard, which browsers keep to.
_PORTS_OF_OTHERS: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
     103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
     512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
     995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
     6669, 6679, 6697, 10080}
)  # fmt: skip


class AddressRefused(Exception):
    """No request is sent there from here. Its message names the host, and what would allow it;
    `unnamed` says the same without the host, which may be a secret.
    """

    def __init__(self, message: str, *, unnamed: str) -> None:
        super().__init__(message)
        self.unnamed = unnamed


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


_lookups: Final = Lookups()  # of this process: there is one system to ask


async def system_resolve(host: str, _: int) -> list[str]:
    """All addresses that the system has for a host, in the order in which it would try them."""
    try:
        return [str(ipaddress.ip_address(host))]  # nobody has to be asked
    except ValueError:
        return await _lookups.find(host)


async def checked_addresses(
    host: str, port: int, *, allow_private: bool, resolve: Resolve = system_resolve
) -> list[str]:
    """The addresses to connect to for a host, all of them looked at. Raises AddressRefused, and
    OSError if the host has none.

    One that is not public spoils the others: whoever can add it to a name can choose which of them
    is tried.
    """
    if not allow_private:
        check_port(port)
    addresses = await resolve(host, port)
    if not addresses:
        raise OSError("it has no address")
    if not allow_private:
        for address in addresses:
            check_address(host, address)
    return addresses


def check_address(host: str, address: str) -> None:
    """Refuse a host that has an address which is not public."""
    why = why_not_public(address)
    if why is not None:
        named = host if host == address else f"{host} is {address}, which"
        fact = (
            f"is not on the public internet ({why}); only a worker started with"
            " --allow-private-http sends requests there"
        )
        raise AddressRefused(f"{named} {fact}", unnamed=f"it {fact}")


def check_port(port: int) -> None:
    """Refuse a port that is known to belong to another protocol."""
    if port in _PORTS_OF_OTHERS:
        fact = (
            "belongs to another protocol; only a worker started with --allow-private-http sends"
            " requests there"
        )
        raise AddressRefused(f"port {port} {fact}", unnamed=f"its port {fact}")

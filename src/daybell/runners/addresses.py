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

from daybell.core.addresses import why_not_public as why_not_public
from daybell.runners.lookups import Lookups

# A host and a port to the addresses that it has, as texts. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]

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

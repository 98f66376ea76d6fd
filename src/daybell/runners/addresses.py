"""Which addresses a job may send requests to: those of the public internet.

A worker stands where its network trusts it, so a request in its name may reach what nobody outside
may: other services of the machine, the network's own, a cloud's metadata with its keys. What a
name or a number stands for is for the system to say, in all spellings that it knows (127.1,
0x7f000001, localhost, a name that somebody has pointed there): so names are resolved first, what
comes of it is looked at, and the connection is made to exactly that.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from daybell.core.kinds.http import why_not_public

# Names of hosts, looked up in threads of their own.
#
# The system may take half a minute over a name whose servers are silent, and cannot be stopped.
# The few threads that an event loop has for such things are needed by others, which would wait
# with it.

THREADS_MAX: Final = 32

Ask = Callable[[str], list[str]]  # all addresses of a host. Raises OSError, or UnicodeError


def ask_system(host: str) -> list[str]:
    """All addresses that the system has for a host, in the order in which it would try them."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[4][0]) for place in found))


class Lookups:
    """Looks up so many hosts at a time, and each only once for all who want to know. Others wait
    for a thread: for how long is up to them.
    """

    def __init__(self, ask: Ask = ask_system, *, threads_max: int = THREADS_MAX) -> None:
        self._ask = ask
        self._threads_max = threads_max
        self._lock = threading.Lock()  # of all below
        self._lookups: dict[str, _Lookup] = {}
        self._waiting: deque[_Lookup] = deque()  # for a thread
        self._threads = 0

    async def find(self, host: str) -> list[str]:
        """The addresses of a host. Cancelling this leaves the lookup to itself."""
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._join(host, answer)
        try:
            return await answer
        finally:
            self._leave(host, answer)

    def _join(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is not None:
                lookup.answers.append(answer)
                return
            lookup = self._lookups[host] = _Lookup(host, answer)
            self._waiting.append(lookup)
            if self._threads < self._threads_max:
                # Under the lock, so that none is counted which could not be started.
                try:
                    threading.Thread(target=self._work, name="daybell-lookup", daemon=True).start()
                except RuntimeError:
                    if self._threads == 0:
                        del self._lookups[host]
                        self._waiting.remove(lookup)
                        raise OSError("there is no thread to look it up in") from None
                else:
                    self._threads += 1

    def _leave(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        """What has not begun and nobody waits for is not looked up any more."""
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is None or answer not in lookup.answers:
                return
            lookup.answers.remove(answer)
            if not lookup.answers and lookup in self._waiting:
                self._waiting.remove(lookup)
                del self._lookups[host]

    def _work(self) -> None:
        """In a thread, until nothing waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                lookup = self._waiting.popleft()
            found, error = list[str](), None
            try:
                found = self._ask(lookup.host)
            except Exception as raised:
                error = raised
            with self._lock:
                del self._lookups[lookup.host]
            lookup.end(found, error)


class _Lookup:
    """One host, and who wants to know."""

    def __init__(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        self.host = host
        self.answers = [answer]

    def end(self, found: list[str], error: Exception | None) -> None:
        for answer in self.answers:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                answer.get_loop().call_soon_threadsafe(_deliver, answer, found, error)


def _deliver(answer: asyncio.Future[list[str]], found: list[str], error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(list(found))
    else:
        answer.set_exception(error)


# A host and a port to the addresses that it has, as texts. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]

# Ports of other protocols, which could be made to take a request for what they speak; the list is
# that of the Fetch standard, which browsers keep to.
_OTHER_PROTOCOL_PORTS: Final = frozenset(
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


async def resolve_checked(
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
    if port in _OTHER_PROTOCOL_PORTS:
        fact = (
            "belongs to another protocol; only a worker started with --allow-private-http sends"
            " requests there"
        )
        raise AddressRefused(f"port {port} {fact}", unnamed=f"its port {fact}")

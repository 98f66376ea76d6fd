"""Names of hosts, looked up in threads of their own.

The system may take half a minute over a name whose servers are silent, and cannot be stopped. The
few threads that an event loop has for such things are needed by others, which would wait with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

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

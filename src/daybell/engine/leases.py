"""The claims that a worker knows of, for its heartbeat to name."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from uuid import UUID

from daybell.core.worker import LEASE_SECONDS as LEASE_SECONDS


class Leases:
    """A lease is known from before its claim is sent until the last of its executions has left.

    The store takes back what it finds under a lease that a renewal does not name. So no new lease
    is asked for while a renewal is under way, which could not know of it. Renewals may be made in
    another thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_naming = False
        self._is_awaited = False  # somebody wanted to claim meanwhile
        self._open: dict[UUID, int] = {}  # executions left; -1 while the claim is under way
        self.named: Callable[[], object] = _nothing  # told when claims can be asked for again

    @contextmanager
    def naming(self) -> Generator[list[UUID]]:
        """All leases that are known, for a renewal to name; until it is answered, none is added."""
        with self._lock:
            self._is_naming = True
            known = list(self._open)
        try:
            yield known
        finally:
            with self._lock:
                self._is_naming = False
                is_awaited, self._is_awaited = self._is_awaited, False
            if is_awaited:
                self.named()

    def ask(self, lease: UUID) -> bool:
        """A claim under this lease is about to be sent. False: not before `named` is told."""
        with self._lock:
            if self._is_naming:
                self._is_awaited = True
                return False
            self._open[lease] = -1
            return True

    def answer(self, lease: UUID, count: int) -> None:
        """The claim was answered with so many executions."""
        if count:
            self._open[lease] = count
        else:
            self._open.pop(lease, None)

    def leave(self, leases: Iterable[UUID]) -> None:
        """One execution of each is over for this worker; the same lease may come many times."""
        for lease, count in Counter(leases).items():
            left = self._open.get(lease, 0) - count
            if left > 0:
                self._open[lease] = left
            else:
                self._open.pop(lease, None)

    def known(self) -> list[UUID]:
        return list(self._open)


def _nothing() -> None:
    pass

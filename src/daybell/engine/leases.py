"""The claims that a worker knows of, for its heartbeat to name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final
from uuid import UUID

LEASE_SECONDS: Final = 15.0  # how long a worker that is not heard of counts as alive


class Leases:
    """A lease is known from before its claim is sent until the last of its executions has left.

    The store takes back what it finds under a lease that a renewal does not name. So no new lease
    is asked for while a renewal is under way, which could not know of it: whoever does either of
    the two holds `naming`.
    """

    def __init__(self) -> None:
        self.naming = asyncio.Lock()
        self._open: dict[UUID, int] = {}  # executions left; -1 while the claim is under way

    def ask(self, lease: UUID) -> None:
        """A claim under this lease is about to be sent; under `naming`."""
        self._open[lease] = -1

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

"""Shares of a resource that all callers use: connections, memory, places, turns.

One rule applies to all. A tenant may take more while it holds less than is free. A key of the
tenant may take more while it holds less than the tenant may still take. So a key gets at most a
third and a tenant at most half of an idle resource, n tenants with a key each get 1/(n+2) each, and
a part is always left for the next tenant. No tenant has to be known beforehand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final, NamedTuple


class Holder(NamedTuple):
    """The key that a request was sent with, and its tenant."""

    tenant: str
    key: str = ""


_holder: Final[ContextVar[Holder | None]] = ContextVar("holder", default=None)


def current_holder() -> Holder | None:
    """Return the holder that this task works for; None: it works for the process itself."""
    return _holder.get()


def set_holder(holder: Holder | None) -> None:
    """Charge all that the task takes from now on to this holder."""
    _holder.set(holder)


class Shares:
    """A resource, and how much of it each holder has. Belongs to one event loop.

    A single amount should be at most an eighth of the capacity: the last one that a holder takes
    may exceed its share. A holder that has `holder_max` takes no more, even of an idle resource.
    """

    def __init__(self, capacity: int, *, holder_max: int | None = None) -> None:
        self.capacity = capacity
        self._holder_max = capacity if holder_max is None else holder_max
        self.used = 0
        self._held: dict[Holder, int] = {}
        self._by_tenant: dict[str, int] = {}
        # Those that wait, the holder that was served longest ago first.
        self._lines: dict[Holder, deque[tuple[int, asyncio.Future[None]]]] = {}

    def held(self, holder: Holder) -> int:
        """Return how much a holder has."""
        return self._held.get(holder, 0)

    def held_by_tenant(self, tenant: str) -> int:
        """Return how much all keys of a tenant have."""
        return self._by_tenant.get(tenant, 0)

    def is_alone(self, holder: Holder) -> bool:
        """Return True if no other tenant has any of it."""
        return self.used == self._by_tenant.get(holder.tenant, 0)

    def take(self, holder: Holder, amount: int = 1) -> bool:
        """Take an amount, if the holder may take more now; the last amount may exceed its share."""
        # This runs several times for every request, hence its form.
        tenant = holder[0]
        held, by_tenant = self._held.get(holder, 0), self._by_tenant.get(tenant, 0)
        if held >= self.capacity - self.used - by_tenant or held >= self._holder_max:
            return False
        self.used += amount
        self._held[holder] = held + amount
        self._by_tenant[tenant] = by_tenant + amount
        return True

    async def wait(self, holder: Holder, amount: int = 1) -> None:
        """Take an amount as soon as the holder may. Of those that wait, the tenant that holds the
        least is first.
        """
        if self.take(holder, amount):  # not while it waits in a line: the line is served first
            return
        place = (amount, asyncio.get_running_loop().create_future())
        self._lines.setdefault(holder, deque()).append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place[1].cancelled():
                self._leave_line(holder, place)
            else:
                self.give_back(holder, amount)  # it was taken for a cancelled caller
            raise

    def give_back(self, holder: Holder, amount: int = 1) -> None:
        """Return an amount that was taken, and hand it out to those that wait."""
        tenant = holder[0]
        held, by_tenant = self._held.pop(holder) - amount, self._by_tenant.pop(tenant) - amount
        self.used -= amount
        if held:
            self._held[holder] = held
        if by_tenant:
            self._by_tenant[tenant] = by_tenant
        while self._lines and self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Serve one of those that wait. False: none of them may take more."""
        for holder in sorted(self._lines, key=self._standing):
            line = self._lines[holder]
            if line[0][1].done():
                self._leave_line(holder, line[0])  # it has been cancelled
            elif self.take(holder, line[0][0]):
                _, future = line.popleft()
                del self._lines[holder]
                if line:
                    self._lines[holder] = line  # behind the other holders
                future.set_result(None)
            else:
                continue
            return True
        return False

    def _standing(self, holder: Holder) -> tuple[int, int]:
        return self._by_tenant.get(holder.tenant, 0), self._held.get(holder, 0)

    def _leave_line(self, holder: Holder, place: tuple[int, asyncio.Future[None]]) -> None:
        line = self._lines.get(holder)
        if line is not None and place in line:
            line.remove(place)
            if not line:
                del self._lines[holder]

"""Buckets of tokens, in bounded memory: for wrong keys of an address, for requests of a key."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from daybell.core.instant import Seconds

WRONG_KEYS_MAX: Final = 20  # that an address may try at once
REFILL_PER_SECOND: Final = 0.5
ADDRESSES_MAX: Final = 10_000  # that are remembered
BUCKET_SECONDS: Final = 10.0  # a key may send as much at once as it may in this time


def neighbourhood(address: str) -> str:
    """The addresses that one customer of a provider has: for IPv6 that is a whole network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((int(parsed), 64), strict=False))


class Throttle:
    """A bucket for each address, full at first. `place_of` names the bucket of an address.

    When more addresses come than are remembered, the one that was wrong longest ago is forgotten:
    an attacker with that many of them gets as many new buckets, and no more memory.
    """

    def __init__(
        self,
        *,
        size: float = WRONG_KEYS_MAX,
        refill: float = REFILL_PER_SECOND,
        addresses_max: int = ADDRESSES_MAX,
        place_of: Callable[[str], str] | None = neighbourhood,
    ) -> None:
        self._place_of = place_of
        self._size = size
        self._refill = refill
        self._addresses_max = addresses_max
        self._buckets: dict[str, tuple[float, Seconds]] = {}

    def take(self, address: str, now: Seconds) -> Seconds:
        """Take a token; answers 0, or how long to wait until there is one."""
        place = address if self._place_of is None else self._place_of(address)
        buckets = self._buckets
        tokens = self._tokens(place, now)
        is_there = tokens >= 1
        # Put in anew, it is the last.
        buckets.pop(place, None)
        buckets[place] = (tokens - 1 if is_there else tokens, now)
        if len(buckets) > self._addresses_max:
            del buckets[next(iter(buckets))]
        return 0.0 if is_there else (1 - tokens) / self._refill

    def is_empty(self, address: str, now: Seconds) -> bool:
        """Whether there is no token left for an address."""
        return self._tokens(address if self._place_of is None else self._place_of(address), now) < 1

    def __len__(self) -> int:
        return len(self._buckets)

    def _tokens(self, place: str, now: Seconds) -> float:
        tokens, since = self._buckets.get(place, (self._size, now))
        return min(self._size, tokens + (now - since) * self._refill)


def key_throttle(rate: float) -> Throttle:
    """A bucket for each key, which is filled at this rate per second."""
    return Throttle(size=max(1.0, rate * BUCKET_SECONDS), refill=rate, place_of=None)

"""Ids made by the caller: UUID version 7, rising within a process.

An id that its maker knows before anything is sent makes every write repeatable after a lost
answer. The time inside is for reading order and index locality only; nothing is ever decided by
it.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.units import Instant, Seconds

# Between the time in an id and the moment when others see its row: clocks that differ, and batches.
LATE_SECONDS: Final[Seconds] = 10.0

RANDOMS: Final = 256  # drawn at a time

_lock = threading.Lock()
_last = 0
_randoms: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_randoms.clear)  # or two processes would use the same


def mint() -> UUID:
    """A new id, greater than every earlier one of this process."""
    # 48 bits of milliseconds and 12 of a fraction make one counter, so that a burst within a
    # millisecond still rises; 62 random bits keep processes apart.
    stamp = _take(1)
    random = _random()
    return UUID(int=(stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random)


def mint_many(count: int) -> list[UUID]:
    """So many new ids, rising, for less than as many single ones."""
    first = _take(count)
    randoms = struct.unpack(f">{count}Q", os.urandom(8 * count))
    numbers = (
        (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random >> 2
        for stamp, random in zip(range(first, first + count), randoms, strict=True)
    )
    # The constructor alone would take longer than all of this.
    return msgspec.convert([number.to_bytes(16) for number in numbers], list[UUID])


def _random() -> int:
    """62 random bits. The system is asked for many at a time: each time, other threads cut in."""
    try:
        return _randoms.pop()
    except IndexError:
        first, *rest = struct.unpack(f">{RANDOMS}Q", os.urandom(8 * RANDOMS))
        _randoms.extend(number >> 2 for number in rest)
        return first >> 2


def _take(count: int) -> int:
    """The first of so many stamps in a row that nobody else gets."""
    global _last
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    stamp = (milliseconds << 12) | (rest * 4096 // 1_000_000)
    with _lock:
        first = max(stamp, _last + 1)
        _last = first + count - 1
    return first


def first_id_at(instant: Instant) -> UUID:
    """The least id that could be made at this moment or later."""
    return UUID(int=max(0, int(instant * 1000)) << 80)


def first_id_since(instant: Instant) -> UUID:
    """The least id of what is stored at this moment or later. A walk that has read so far, newest
    first, may end: only ids of a wrong clock can follow.
    """
    return first_id_at(instant - LATE_SECONDS)


def id_in(value: UUID | str) -> UUID | None:
    """Return the id that a text may be; None: the text is no id."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except ValueError:
        return None

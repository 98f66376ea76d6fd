"""Ids made by the caller: UUID version 7, rising within a process.

An id that its maker knows before anything is sent makes every write repeatable after a lost
answer. The time inside is for reading order and index locality only; nothing is ever decided by
it.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final
from uuid import UUID

from daybell.core.instant import Instant, Seconds

# Between the time in an id and the moment when others see its row: clocks that differ, and batches.
LATE_SECONDS: Final[Seconds] = 10.0

_lock = threading.Lock()
_last = 0


def mint() -> UUID:
    """A new id, greater than every earlier one of this process."""
    # 48 bits of milliseconds and 12 of a fraction make one counter, so that a burst within a
    # millisecond still rises; 62 random bits keep processes apart.
    global _last
    nanoseconds = time.time_ns()
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    stamp = (milliseconds << 12) | (rest * 4096 // 1_000_000)
    with _lock:
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
    random = int.from_bytes(os.urandom(8)) >> 2
    return UUID(int=(stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random)


def first_at(instant: Instant) -> UUID:
    """The least id that could be made at this moment or later."""
    return UUID(int=max(0, int(instant * 1000)) << 80)

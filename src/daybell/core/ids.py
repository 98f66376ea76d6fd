"""Ids made by the caller: UUID version 7, ascending within a process.

Because the caller knows the id before it sends a row, it can repeat the write after a lost answer.
The time in an id serves the order of lists and the locality of indexes; no decision depends on it.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.units import Instant, Seconds

# Maximum time between the time in an id and its commit, from clock differences and batches.
LATE_SECONDS: Final[Seconds] = 10.0

RANDOMS: Final = 256  # numbers drawn at a time
# A byte with 10 as its first two bits, and the others as they are.
_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))

_lock = threading.Lock()
_last = 0
_randoms: list[int] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_randoms.clear)  # both processes would use them


def mint() -> UUID:
    """Make an id that is greater than all earlier ones of this process."""
    # 48 bits of milliseconds and 12 bits of a fraction are one counter, which ascends also within
    # a millisecond; 62 random bits make ids of different processes distinct.
    stamp = _take(1)
    random = _random()
    number = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random
    return msgspec.convert(number.to_bytes(16), UUID)  # in half the time of the constructor


_OWNED: Final = 8  # the version of ids that tell their owner: a format of our own


def mint_owned(secret: str) -> UUID:
    """Make a random id that only the holder of a secret can have made; see `is_owned`."""
    return _owned(os.urandom(8), secret)


def is_owned(id: UUID, secret: str) -> bool:
    """Return True if an id was made with this secret."""
    return id == _owned(id.bytes[:8], secret)


def _owned(head: bytes, secret: str) -> UUID:
    """Return the id with this first half; the second half is a digest of it and the secret."""
    number = int.from_bytes(head) & ~(0xF << 12) | _OWNED << 12
    tail = int.from_bytes(sha256(number.to_bytes(8) + secret.encode()).digest()[:8])
    return UUID(int=number << 64 | 0b10 << 62 | tail >> 2)


def mint_many(count: int) -> list[UUID]:
    """Make several ascending ids, at a lower cost than single ones."""
    first = _take(count)
    # Numbers of 128 bits would take longer: each half is a column of 64-bit words.
    stamps = range(first, first + count)
    upper = [(stamp >> 12) << 16 | 0x7000 | (stamp & 0xFFF) for stamp in stamps]
    lower = bytearray(os.urandom(8 * count))
    lower[::8] = lower[::8].translate(_VARIANT)
    both = bytearray(16 * count)
    words = memoryview(both).cast("Q")
    words[::2] = memoryview(struct.pack(f">{count}Q", *upper)).cast("Q")
    words[1::2] = memoryview(lower).cast("Q")
    raw = bytes(both)
    # Calling the constructor would take longer than all of this.
    return msgspec.convert([raw[at : at + 16] for at in range(0, len(raw), 16)], list[UUID])


def _random() -> int:
    """Return 62 random bits. They are drawn in bulk, as each draw lets other threads run."""
    try:
        return _randoms.pop()
    except IndexError:
        first, *rest = struct.unpack(f">{RANDOMS}Q", os.urandom(8 * RANDOMS))
        _randoms.extend(number >> 2 for number in rest)
        return first >> 2


def _take(count: int) -> int:
    """Reserve consecutive stamps; return the first."""
    global _last
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    stamp = (milliseconds << 12) | (rest * 4096 // 1_000_000)
    with _lock:
        first = max(stamp, _last + 1)
        _last = first + count - 1
    return first


def first_id_at(instant: Instant) -> UUID:
    """Return the lowest id that can be made at this time or later."""
    return UUID(int=max(0, int(instant * 1000)) << 80)


def first_id_since(instant: Instant) -> UUID:
    """Return the lowest id of rows stored at this time or later. A scan, newest first, can stop
    there: only ids of a wrong clock can follow.
    """
    return first_id_at(instant - LATE_SECONDS)


def id_in(value: UUID | str) -> UUID | None:
    """Return the id that a text may be; None: the text is no id."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except ValueError:
        return None

"""What a worker and its child processes say to each other: JSON, each message after its length.

Never a pickle: a child runs code that nobody vouches for, and the worker reads what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from daybell.core.execution import Claimed
from daybell.core.failure import Account
from daybell.core.instant import Instant, Seconds

LENGTH_BYTES: Final = 4
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # arguments, results and checkpoints are far below


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a function is found by who may import it."""

    module: str
    file: str | None
    name: str  # within the module, with dots


class Setup(msgspec.Struct, tag="setup", array_like=True, frozen=True):
    """To a new child: the world as its worker sees it."""

    path: list[str]  # sys.path
    argv: list[str]
    levels: dict[str, int]  # of loggers, by name


class Order(msgspec.Struct, tag="run", array_like=True, frozen=True):
    """To a child: run this."""

    place: Place
    claimed: Claimed
    store_result: bool = True
    memory_limit: int | None = None
    is_revealed: bool = False  # there are secrets in what it is called with


class Halt(msgspec.Struct, tag="halt", array_like=True, frozen=True):
    """To a child, just before SIGTERM: that it comes from the worker."""


class Begun(msgspec.Struct, tag="begun", array_like=True, frozen=True):
    """From a child: it has the order, and whatever happens from now on is the task's doing."""


class News(msgspec.Struct, tag="news", array_like=True, frozen=True):
    """From a child: how far the task is."""

    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None


class Said(msgspec.Struct, tag="said", array_like=True, frozen=True):
    """From a child: a record of a logger."""

    level: str
    source: str
    message: str
    length: int | None = None  # of the whole message, if this is only its beginning


class Later(msgspec.Struct, array_like=True, frozen=True):
    """What a task asked for with RetryLater."""

    reason: str
    delay: Seconds | None = None
    at: Instant | None = None


class Done(msgspec.Struct, tag="done", array_like=True, frozen=True):
    """From a child: how the task ended, in one of three ways."""

    result: str | None = None
    failure: Account | None = None  # masks are in the worker, so it is not cut yet
    later: Later | None = None
    is_hopeless: bool = False
    is_spent: bool = False  # the child should not run another


class WireError(Exception):
    """Something else than we wrote was on the line."""


_encoder: Final = msgspec.json.Encoder()
_from_worker: Final = msgspec.json.Decoder(Setup | Order | Halt)
_from_child: Final = msgspec.json.Decoder(Begun | News | Said | Done)


def framed(message: Setup | Order | Halt | Begun | News | Said | Done) -> bytes:
    """A message as it is sent."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_order(body: bytes) -> Setup | Order | Halt:
    """What a child is told."""
    return _from_worker.decode(body)


def read_answer(body: bytes) -> Begun | News | Said | Done:
    """What a child tells. Raises WireError: whatever runs there can write to the line as well."""
    try:
        return _from_child.decode(body)
    except (ValueError, RecursionError) as error:
        raise WireError(str(error)) from error


class Frames:
    """Cuts what comes in into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what has come, and yield the messages that are complete."""
        self._buffer += data
        while len(self._buffer) >= LENGTH_BYTES:
            size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if size > MESSAGE_BYTES_MAX:
                raise WireError(f"a message of {size:,} bytes")
            end = LENGTH_BYTES + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[LENGTH_BYTES:end])
            del self._buffer[:end]
            yield body

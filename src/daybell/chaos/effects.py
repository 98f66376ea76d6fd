"""What tasks have really done, told by themselves: a line for each start and each end.

Each process appends to a file of its own. A line is one write, and only processes die, never the
machine: nothing has to be synced. Monotonic time is the same for all processes of a machine.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant, Seconds
from daybell.engine.clock import SystemClock
from daybell.sdk.context import Context

START: Final = "start"
END: Final = "end"  # it ran to its end, whatever was reported of that
FAIL: Final = "fail"  # it failed on purpose
STOP: Final = "stop"  # it was made to stop, or was suspended
EXIT: Final = "exit"  # it ended its process, with all that ran there
STEP: Final = "step"  # of a durable function; its number is its place
ENDS: Final = frozenset({END, FAIL, STOP})
SUFFIX: Final = ".effects"


class Effect(msgspec.Struct, frozen=True, gc=False):
    """One line."""

    what: str
    execution: UUID
    attempt: int
    pid: int
    at: Seconds  # monotonic
    now: Instant  # as this machine has it; for people
    number: int  # of the enqueue that asked for it; of a step: its place


class Nuisance(Exception):
    """What a task raises that is meant to fail."""


class Effects:
    """The file of one process."""

    def __init__(self, folder: Path) -> None:
        self._clock = SystemClock()
        # A process that starts afresh keeps its id.
        name = f"{os.getpid()}-{self._clock.monotonic():.6f}{SUFFIX}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, what: str, ctx: Context, number: int) -> None:
        at, now = self._clock.monotonic(), self._clock.now()
        line = f"{what} {ctx.id} {ctx.attempt} {os.getpid()} {at:.6f} {now:.6f} {number}\n"
        os.write(self._file, line.encode())

    @contextmanager
    def told(self, ctx: Context, number: int) -> Generator[None]:
        """Write down that a task starts, and how it ends, if it does."""
        self.tell(START, ctx, number)
        try:
            yield
        except Nuisance:
            self.tell(FAIL, ctx, number)
            raise
        except BaseException:
            self.tell(STOP, ctx, number)
            raise
        self.tell(END, ctx, number)


def read(folder: Path) -> list[Effect]:
    """All that was written, in the order in which it happened."""
    lines = (line for file in folder.glob(f"*{SUFFIX}") for line in _lines(file))
    return sorted(_parsed(lines), key=lambda effect: effect.at)


def _lines(file: Path) -> Iterator[str]:
    with file.open() as lines:
        yield from lines


def _parsed(lines: Iterable[str]) -> Iterator[Effect]:
    for line in lines:
        what, execution, attempt, pid, at, now, number = line.split()
        yield Effect(
            what, UUID(execution), int(attempt), int(pid), float(at), float(now), int(number)
        )

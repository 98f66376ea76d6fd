"""Keeping what tasks print and log, each line with the execution that said it.

Whatever a task says also goes where it would have gone without this. Who says it is known by a
context variable, which asyncio's tasks and our threads carry along.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from daybell.runners.python import Running
from daybell.sdk.context import current

LEVELS: Final = {number: logging.getLevelName(number).lower() for number in (10, 20, 30, 40, 50)}

_users = 0  # of the one capture that a process has


@contextmanager
def captured() -> Generator[None]:
    """Capture in this process until the block ends; blocks may overlap."""
    global _users
    _users += 1
    if _users == 1:
        _begin()
    try:
        yield
    finally:
        _users -= 1
        if _users == 0:
            _end()


def _begin() -> None:
    logging.getLogger().addHandler(_handler)
    sys.stdout = cast("TextIO", Tee(sys.stdout, "stdout"))
    sys.stderr = cast("TextIO", Tee(sys.stderr, "stderr"))


def _end() -> None:
    logging.getLogger().removeHandler(_handler)
    # Whoever has put something in front of ours keeps it, and ours passes everything on.
    if isinstance(sys.stdout, Tee):
        sys.stdout = sys.stdout.original
    if isinstance(sys.stderr, Tee):
        sys.stderr = sys.stderr.original


class LogCapture(logging.Handler):
    """Records of stdlib logging, into the log of the execution that made them."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the lock that handlers take around this: every task has a log of its own.
        running = current.get()
        if running is not None:
            self.keep(record, running)
        return True

    def keep(self, record: logging.LogRecord, running: Running) -> None:
        try:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{_formatter.formatException(record.exc_info)}"
        except Exception as error:
            # A wrong number of arguments, or one that cannot be printed.
            message = f"{record.msg!r:.200} (cannot be formatted: {type(error).__name__})"
        level = LEVELS.get(record.levelno) or record.levelname.lower()
        running.say(level, record.name, message)


class Tee:
    """A stream that also hands on what is written while an execution runs."""

    def __init__(self, original: TextIO, name: str) -> None:
        self.original = original
        self._name = name

    def write(self, text: str) -> int:
        running = current.get()
        if running is not None:
            running.print(self._name, text)
        return self.original.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_handler = LogCapture()
_formatter = logging.Formatter()

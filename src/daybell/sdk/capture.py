"""Keeping what tasks print and log, each line with the execution that said it.

Whatever a task says also goes where it would have gone without this, but for the secrets in it. Who
says it is known by a context variable, which asyncio's tasks and our threads carry along.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, cast

from daybell.core.execution import MASKED_CHARS_MAX
from daybell.core.masking import CUT_CHARS, NO_MASKS, VALUES_REMEMBERED, Masks, mask_forms
from daybell.runners.python import RunningAttempt
from daybell.sdk.context import current

LEVELS: Final = {number: logging.getLevelName(number).lower() for number in (10, 20, 30, 40, 50)}

_users = 0  # of the one capture that a process has
_keepers = 0  # of them those that keep what they capture


@contextmanager
def capture_output(*, keeps_logs: bool = True) -> Generator[None]:
    """Capture in this process until the block ends; blocks may overlap. If no block `keeps_logs`,
    secrets are masked and nothing is kept.
    """
    global _users, _keepers
    _users += 1
    _keepers += keeps_logs
    if _users == 1:
        _install()
    if keeps_logs and _keepers == 1:
        logging.getLogger().addHandler(_handler)
    try:
        yield
    finally:
        _users -= 1
        _keepers -= keeps_logs
        if keeps_logs and _keepers == 0:
            logging.getLogger().removeHandler(_handler)
        if _users == 0:
            _uninstall()


def _install() -> None:
    sys.stdout = cast("TextIO", Tee(sys.stdout, "stdout"))
    sys.stderr = cast("TextIO", Tee(sys.stderr, "stderr"))
    _records.install()


def _uninstall() -> None:
    _records.remove()
    # Whoever has put something in front of ours keeps it, and ours passes everything on.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, Tee):
            with suppress(OSError, ValueError):  # nobody listens any more
                stream.flush()
            setattr(sys, name, stream.original)


class LogCapture(logging.Handler):
    """Records of stdlib logging, into the log of the execution that made them."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the lock that handlers take around this: every task has a log of its own.
        running = current.get()
        if running is not None:
            self.keep(record, running)
        return True

    def keep(self, record: logging.LogRecord, running: RunningAttempt) -> None:
        try:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{_formatter.formatException(record.exc_info)}"
        except Exception as error:
            # A wrong number of arguments, or one that cannot be printed.
            message = f"{record.msg!r:.200} (cannot be formatted: {type(error).__name__})"
        level = LEVELS.get(record.levelno) or record.levelname.lower()
        running.say(level, record.name, message)


class MaskedRecords:
    """Makes records of stdlib logging without secrets, for whichever handlers there are."""

    def __init__(self) -> None:
        self._make: Callable[..., logging.LogRecord] = logging.LogRecord

    def install(self) -> None:
        if logging.getLogRecordFactory() is not self:
            self._make = logging.getLogRecordFactory()
            logging.setLogRecordFactory(self)

    def remove(self) -> None:
        # Whoever has put something in front of ours keeps it.
        if logging.getLogRecordFactory() is self:
            logging.setLogRecordFactory(self._make)

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        if masks:
            self._mask(record, current.get())
        return record

    @staticmethod
    def _mask(record: logging.LogRecord, running: RunningAttempt | None) -> None:
        try:
            message = record.getMessage()
        except Exception:
            # Its handlers will say that it cannot be formatted, and show the parts.
            message = f"{record.msg!r} {record.args!r}"
        masked = masks(message, running)
        if masked != message:
            record.msg, record.args = masked, None
        if record.exc_info:
            # Formatters write this instead of the exception.
            record.exc_text = masks(_formatter.formatException(record.exc_info), running)


class Tee:
    """A stream without secrets, which also hands on what is written while an execution runs.

    Where there are secrets, a line goes out as a whole, or when it is flushed: its parts may be
    those of a secret.
    """

    def __init__(self, original: TextIO, name: str) -> None:
        self.original = original
        self._name = name
        self._lock = threading.RLock()
        self._begun = ""  # a line without its end
        self._by: RunningAttempt | None = None  # who has begun it

    def write(self, text: str) -> int:
        running = current.get()
        if running is not None and _keepers:
            running.print(self._name, text)
        if not masks:
            self.original.write(text)
            return len(text)
        with self._lock:
            if running is not self._by:
                self._let_go()
                self._by = running
            self._begun += text
            if "\n" in text:
                lines, end, self._begun = self._begun.rpartition("\n")
                self.original.write(masks(lines + end, running))
            if len(self._begun) > MASKED_CHARS_MAX:
                # Its end may be the beginning of a secret, and stays until it goes on.
                self._begun = masks(self._begun, running)
                self.original.write(self._begun[:-CUT_CHARS])
                self._begun = self._begun[-CUT_CHARS:]
        return len(text)

    def _let_go(self) -> None:
        begun, self._begun = self._begun, ""
        if begun:
            self.original.write(masks(begun, self._by))

    def flush(self) -> None:
        with self._lock:
            self._let_go()
        self.original.flush()

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_handler = LogCapture()
_formatter = logging.Formatter()
_records = MaskedRecords()


class WorkerMasks:
    """The settings of this process, and the secrets that its executions have opened lately."""

    def __init__(self) -> None:
        self.settings = NO_MASKS
        self._values: frozenset[str] = frozenset()
        self._opened: dict[str, Masks] = {}  # the last one was opened last
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.settings or self._opened)

    def add(self, values: Iterable[str]) -> None:
        """Mask these secrets."""
        with self._lock:
            for value in values:
                known = self._opened.pop(value, None)
                self._opened[value] = known or Masks.of(frozenset({value}))
            while len(self._opened) > VALUES_REMEMBERED:
                del self._opened[next(iter(self._opened))]

    def add_settings(self, values: Iterable[str]) -> None:
        """Mask these settings."""
        with self._lock:
            self._values |= frozenset(values)
            self.settings = Masks.of(self._values)

    def forget(self) -> None:
        """Mask nothing any more."""
        with self._lock:
            self.settings, self._values, self._opened = NO_MASKS, frozenset(), {}

    def __call__(self, text: str, running: RunningAttempt | None = None) -> str:
        """Return a text without settings and secrets. One that an execution has written is masked
        as in the log of that execution, which the same records go into.
        """
        if running is not None:
            return running.without_secrets(text)
        all_masks = (self.settings, *tuple(self._opened.values()))
        found = [form for masks in all_masks for form in masks.find(text)]
        return mask_forms(text, found) if found else text


masks: Final = WorkerMasks()  # of this process

"""Capture of output and log records of tasks, each with its execution.

Output still goes to its original stream, without secrets. A context variable, which asyncio tasks
and worker threads inherit, tells the execution.
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

_users = 0  # blocks of `capture_output` in this process
_keepers = 0  # those that store the output


@contextmanager
def capture_output(*, keeps_logs: bool = True) -> Generator[None]:
    """Capture output in this process until the block ends; blocks may overlap. If no block
    `keeps_logs`, secrets are masked and nothing is stored.
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
    # A stream that replaced ours stays, and ours passes everything on.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, Tee):
            with suppress(OSError, ValueError):  # the stream is closed
                stream.flush()
            setattr(sys, name, stream.original)


class LogCapture(logging.Handler):
    """A logging handler that adds records to the log of their execution."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the handler's lock: every execution has its own log.
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
            # Wrong arguments of the record.
            message = f"{record.msg!r:.200} (cannot be formatted: {type(error).__name__})"
        level = LEVELS.get(record.levelno) or record.levelname.lower()
        running.say(level, record.name, message)


class MaskedRecords:
    """A factory of log records that masks secrets for all handlers."""

    def __init__(self) -> None:
        self._make: Callable[..., logging.LogRecord] = logging.LogRecord

    def install(self) -> None:
        if logging.getLogRecordFactory() is not self:
            self._make = logging.getLogRecordFactory()
            logging.setLogRecordFactory(self)

    def remove(self) -> None:
        # A factory that replaced ours stays.
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
            # The logging handlers will report the error and print the parts.
            message = f"{record.msg!r} {record.args!r}"
        masked = masks(message, running)
        if masked != message:
            record.msg, record.args = masked, None
        if record.exc_info:
            # Formatters prefer this text to the exception.
            record.exc_text = masks(_formatter.formatException(record.exc_info), running)


class Tee:
    """A stream that masks secrets, and passes output to the running execution.

    While there are secrets, it writes whole lines or at a flush, because a part of a line may be a
    part of a secret.
    """

    def __init__(self, original: TextIO, name: str) -> None:
        self.original = original
        self._name = name
        self._lock = threading.RLock()
        self._begun = ""  # an incomplete line
        self._by: RunningAttempt | None = None  # the execution that wrote it

    def write(self, text: str) -> int:
        running = current.get()
        if running is not None and _keepers:
            running.print(self._name, text)
        if not masks:
            self.original.write(text)
            return len(text)
        with self._lock:
            if running is not self._by:
                self._write_rest()
                self._by = running
            self._begun += text
            if "\n" in text:
                lines, end, self._begun = self._begun.rpartition("\n")
                self.original.write(masks(lines + end, running))
            if len(self._begun) > MASKED_CHARS_MAX:
                # The end may be the start of a secret: keep it.
                self._begun = masks(self._begun, running)
                self.original.write(self._begun[:-CUT_CHARS])
                self._begun = self._begun[-CUT_CHARS:]
        return len(text)

    def _write_rest(self) -> None:
        begun, self._begun = self._begun, ""
        if begun:
            self.original.write(masks(begun, self._by))

    def flush(self) -> None:
        with self._lock:
            self._write_rest()
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
    """The secret settings of this process, and recently opened secrets of its executions."""

    def __init__(self) -> None:
        self.settings = NO_MASKS
        self._values: frozenset[str] = frozenset()
        self._opened: dict[str, Masks] = {}  # ordered by last use
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
        """Mask nothing."""
        with self._lock:
            self.settings, self._values, self._opened = NO_MASKS, frozenset(), {}

    def __call__(self, text: str, running: RunningAttempt | None = None) -> str:
        """Remove settings and secrets from a text. For a running execution, mask as in its log."""
        if running is not None:
            return running.without_secrets(text)
        all_masks = (self.settings, *tuple(self._opened.values()))
        found = [form for masks in all_masks for form in masks.find(text)]
        return mask_forms(text, found) if found else text


masks: Final = WorkerMasks()  # of this process

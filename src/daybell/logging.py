"""For the logging configuration of programs with tasks: which execution a record is of, and JSON.

{"filters": {"execution": {"()": "daybell.logging.ExecutionFilter", "default": "-"}}}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from daybell.sdk.capture import masks
from daybell.sdk.context import current, current_execution

__all__ = ["ExecutionFilter", "JsonFormatter"]

FIELDS: Final = ("job", "execution_id", "attempt")
# The attributes that every record has, and those that formatters add.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class ExecutionFilter(logging.Filter):
    """Gives each record `job`, `execution_id` and `attempt` of the task that made it.

    It lets all records pass. In records of other code they are `default`. Use it on handlers, or on
    loggers if their handlers write in another thread.
    """

    def __init__(self, default: object = None) -> None:
        super().__init__()
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        running = current_execution()
        for name in FIELDS:
            if not hasattr(record, name):  # else it was in `extra`, or another filter was first
                value = self._default if running is None else getattr(running, name)
                setattr(record, name, str(value) if name == "execution_id" and running else value)
        return True


class JsonFormatter(logging.Formatter):
    """One record, one line of JSON: `time`, `level`, `logger`, `message`, `job`, `execution_id`,
    `attempt` and `exception`, then what was in `extra`. What does not apply is null. A record with
    `stack_info` has a `stack`.

    Secrets that tasks have opened are masked.
    """

    def __init__(self, **constants: str) -> None:
        super().__init__()
        self._constants = constants  # the same in every line
        self._execution = ExecutionFilter()

    def format(self, record: logging.LogRecord) -> str:
        self._execution.filter(record)
        running = current.get()
        try:
            message = record.getMessage()
        except Exception as error:  # a wrong number of arguments
            message = f"{record.msg!r:.200} (cannot be formatted: {type(error).__name__})"
        exception = record.exc_text
        if exception is None and record.exc_info:
            exception = self.formatException(record.exc_info)
        said: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masks(message, running),
            **{name: _plain(getattr(record, name), running) for name in FIELDS},
            "exception": None if exception is None else masks(exception, running),
            **self._constants,
        }
        if record.stack_info:
            said["stack"] = masks(self.formatStack(record.stack_info), running)
        for name, value in vars(record).items():
            if name not in _USUAL and name not in said:
                said[name] = _plain(value, running)
        # In ASCII: half a character, as in the name of a file, cannot be written as UTF-8.
        return json.dumps(said, default=str)


def _time(created: float) -> str:
    at = datetime.fromtimestamp(created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object, running: Any) -> object:
    """A value of `extra`; what is not a number or a text is shown as text, and so are NaN and
    infinity, which JSON does not have.
    """
    if value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    try:
        return masks(str(value), running)
    except Exception as error:
        return f"(cannot be shown: {type(error).__name__})"

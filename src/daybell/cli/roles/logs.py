"""Logging configuration of a long-running process: one line per record, on stderr."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

from daybell.cli.output import printable
from daybell.cli.runtime import use_logger
from daybell.logging import JsonFormatter
from daybell.sdk.capture import masks
from daybell.sdk.context import current, current_execution
from daybell.settings import Settings

logger = logging.getLogger("daybell.cli")


class Lines(logging.Formatter):
    """One record, one line, without secrets; a traceback follows as it is. A record of a task names
    its execution.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.of_execution = _named(record)
        return printable(masks(super().format(record), current.get()), keep="\n")


def is_not_abandoned(record: logging.LogRecord) -> bool:
    """Return false for a connection to PostgreSQL that its owner had given up before it was lost.

    The driver leaves a future behind then, which asyncio logs when it is collected. The owner has
    logged that the server is away.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_connection = type(error).__name__ == "ConnectionDoesNotExistError"
    return record.name != "asyncio" or not is_connection


def _named(record: logging.LogRecord) -> str:
    running = current_execution()
    if running is None:
        return ""
    job = "" if record.name == f"daybell.task.{running.job}" else f"{running.job} "
    return f" [{job}{running.execution_id} attempt {running.attempt}]"


def level_of(settings: Settings) -> int:
    """Return the least level that is written; NOTSET if none was given."""
    word = settings.log_level
    return logging.NOTSET if word is None else logging.getLevelNamesMapping()[word.upper()]


def observe(settings: Settings) -> None:
    """Send traces and errors, if the settings say so."""
    if settings.traces == "otlp":
        import_module("daybell.otel").export()
    if settings.sentry_dsn is not None:
        import_module("daybell.sentry").enable(settings.sentry_dsn)


def configure(
    settings: Settings | None = None, *, level: int = logging.WARNING, who: str = ""
) -> None:
    """Send logs to stderr: from the level of the settings on; without one, Daybell's from INFO on
    and others' from `level` on.

    `who` is printed in each line where several processes share a stream.

    Everything from INFO on can be kept with the execution that logs it. A program that has set up
    its own logging keeps it.
    """
    settings = settings or Settings()
    observe(settings)
    own = level_of(settings) or logging.INFO
    level = level_of(settings) or level
    logging.getLogger("daybell").setLevel(min(own, logging.INFO))
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    said = f"{who} ".replace("%", "%%").lstrip()
    form = f"%(asctime)s {said}%(levelname)-7s %(name)s%(of_execution)s: %(message)s"
    handler.setFormatter(Lines(form, "%H:%M:%S"))
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(**({"process": who} if who else {})))
        use_logger(logger)
    handler.addFilter(
        lambda record: record.levelno >= (own if record.name.startswith("daybell") else level)
    )
    handler.addFilter(is_not_abandoned)
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO))

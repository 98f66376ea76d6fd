"""What a running process says of itself: a line per event, on stderr."""

from __future__ import annotations

import logging
import sys

from daybell.cli.show import printable
from daybell.sdk.context import current
from daybell.sdk.masking import masks


class Lines(logging.Formatter):
    """One record, one line, without secrets; a traceback follows as it is."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(masks(super().format(record), current.get()), keep="\n")


def is_not_abandoned(record: logging.LogRecord) -> bool:
    """False for a connection to PostgreSQL that its owner had given up before it was lost.

    The driver leaves a future behind then, which asyncio logs when it is collected. The owner has
    logged that the server is away.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_connection = type(error).__name__ == "ConnectionDoesNotExistError"
    return record.name != "asyncio" or not is_connection


def configure(*, level: int = logging.WARNING, who: str = "") -> None:
    """Send logs to stderr: Daybell's from INFO on, others' from `level` on.

    `who` is said in each line where several processes share a stream.

    Everything from INFO on can be kept with the execution that says it. A program that has set up
    its own logging keeps it.
    """
    logging.getLogger("daybell").setLevel(logging.INFO)
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    said = f"{who} ".replace("%", "%%").lstrip()
    form = f"%(asctime)s {said}%(levelname)-7s %(name)s: %(message)s"
    handler.setFormatter(Lines(form, "%H:%M:%S"))
    handler.addFilter(lambda record: record.levelno >= level or record.name.startswith("daybell"))
    handler.addFilter(is_not_abandoned)
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO))

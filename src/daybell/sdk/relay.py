"""Records of stdlib logging in a child process, on their way to its worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from daybell.runners.python import Running
from daybell.sdk.capture import LogCapture


class Relay(LogCapture):
    """Hands records to the execution that runs here, from whichever thread they come."""

    running: Running | None = None

    def install(self, levels: Mapping[str, int]) -> None:
        """Listen to all loggers, from the levels on that the worker has set."""
        logging.getLogger().addHandler(self)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    def handle(self, record: logging.LogRecord) -> bool:
        if self.running is not None:
            self.keep(record, self.running)
        return True

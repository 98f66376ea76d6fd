"""Records of stdlib logging in a child process, on their way to its worker."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager

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

    @contextmanager
    def kept(self) -> Generator[None]:
        """Have the next task find the root logger as this one did, and this handler in it."""
        root = logging.getLogger()
        if self not in root.handlers:  # a module that was imported has set up logging as it likes
            root.addHandler(self)
        handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.disable(disabled)

    def handle(self, record: logging.LogRecord) -> bool:
        if self.running is not None:
            self.keep(record, self.running)
        return True

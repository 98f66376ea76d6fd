"""Jobs that tell somebody, through apprise."""

from __future__ import annotations

from typing import Any

from daybell.core.job import JobDefinition
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.running import Stoppable


class Notifier:
    """Sends messages, a few at a time, in processes of its own; for one event loop."""

    def __init__(self, allow_private: bool = False) -> None:
        self.allow_private = allow_private

    async def close(self) -> None:
        """End the processes, with what they are sending."""


class NotifyHandler(KindHandler):
    """One message to some places."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, notifier: Notifier) -> None:
        super().__init__(definition, reveal)
        self._notifier = notifier

    async def perform(self, running: Stoppable) -> Any:
        """Send the message; answers how many were told."""
        raise NotImplementedError

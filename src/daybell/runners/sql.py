"""Jobs that are a statement in a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daybell.core.job import JobDefinition
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.running import Stoppable


class Connections:
    """The databases that a worker knows by name, for one event loop. Each is opened when it is
    first needed. Raises UsageError for a URL that names no database.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.urls = dict(urls)

    async def close(self) -> None:
        """Close all that was opened. What runs is cut off."""


class SqlHandler(KindHandler):
    """One statement with its parameters."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, connections: Connections) -> None:
        super().__init__(definition, reveal)
        self._connections = connections

    async def perform(self, running: Stoppable) -> Any:
        """Run the statement; answers its rows, or how many it has changed."""
        raise NotImplementedError

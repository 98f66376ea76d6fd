"""What the runners of jobs without code are given."""

from __future__ import annotations

from typing import Protocol

from daybell.core.instant import Seconds
from daybell.runners.python import Running as Running


class Stoppable(Running, Protocol):
    """An execution that is told how much time it has left when it is stopped."""

    @property
    def patience(self) -> Seconds:
        """See `engine.handlers.Running`, which this must fit."""
        ...

    def mask(self, text: str) -> str: ...

"""What the runners of jobs without code are given."""

from __future__ import annotations

from typing import Protocol

from daybell.runners.python import Running as Running


class Stoppable(Running, Protocol):
    """An execution whose secrets can be taken out of a text that is cut before it is kept."""

    lacking: str | None

    def mask(self, text: str) -> str: ...

"""The trace of a run, in order: for the search of a cause, and to compare two runs of a seed."""

from __future__ import annotations

from typing import Any
from uuid import UUID


class Trace:
    """Lines of a run. Ids get small numbers, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self._numbers: dict[UUID, int] = {}

    def add(self, time: float, who: str, what: str, *details: Any) -> None:
        self._lines.append((time, who, what, details))
        for detail in details:
            if isinstance(detail, UUID):
                self.number(detail)

    def number(self, id: UUID) -> int:
        return self._numbers.setdefault(id, len(self._numbers) + 1)

    def name(self, value: Any) -> str:
        """Format a detail for people."""
        if isinstance(value, UUID):
            return f"#{self.number(value)}"
        if isinstance(value, list | tuple):
            return "[" + " ".join(self.name(one) for one in value) + "]"
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    def lines(self, last: int | None = None) -> list[str]:
        lines = self._lines if last is None else self._lines[-last:]
        return [
            f"{time:9.3f} {who:<14} {what} {' '.join(map(self.name, details))}".rstrip()
            for time, who, what, details in lines
        ]

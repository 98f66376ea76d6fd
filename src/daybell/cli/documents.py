"""What was read from a file: plain data, with the line of each part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from daybell.core.limits import PAYLOAD_DEPTH_MAX

Path = tuple[str | int, ...]  # the way to a part: fields by name, items by number
Lines = dict[Path, int]


@dataclass(frozen=True)
class Document:
    """One of the documents of a file. Lines count from 1; not every format knows them."""

    value: Any
    line: int | None = None
    lines: Lines = field(default_factory=Lines)
    file: str = ""

    def line_of(self, path: Path) -> int | None:
        """Where a part begins, or the nearest thing around it that is there."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return self.line

    def place(self, path: Path = ()) -> str:
        """Where a part is, for messages: `jobs/a.yaml:12`."""
        line = self.line_of(path)
        return self.file if line is None else f"{self.file}:{line}"


class Fault(Exception):
    """A text that cannot be read, and in which line of it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def too_deep(line: int | None) -> Fault:
    """What is said of data within data within data."""
    return Fault(f"nested deeper than {PAYLOAD_DEPTH_MAX} levels", line)

"""Search in logs: places, parts of several executions, and conditions on lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.execution import LAST, Line, LogPart, lines_of
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.units import Instant
from daybell.core.views import Page, bytes_of, cut_page


class LogPlace(NamedTuple):
    """A place in the logs of several executions: a part of one, and some of its lines."""

    execution: UUID
    attempt: int = 0
    number: int = 0
    lines: int = 0  # that come before it

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @property
    def after(self) -> tuple[int, int]:
        """The pair of attempt and number behind which its part is the first."""
        return self.attempt, self.number - 1

    @classmethod
    def parse(cls, text: str) -> LogPlace:
        """Parse the text of a place. Raises ValueError."""
        id, *numbers = text.split(".")
        if any(not 0 <= int(number) <= LAST for number in numbers):
            raise ValueError(text)
        return cls(UUID(id), *map(int, numbers))


class FoundPart(msgspec.Struct, frozen=True, gc=False):
    """A part of the log of one of several executions."""

    execution: UUID
    part: LogPart


class FoundLine(msgspec.Struct, frozen=True, gc=False):
    """A log line that a search found."""

    execution: UUID
    job: str
    attempt: int
    line: Line


# The least level of a search includes higher ones. Output is not told apart by level: what a
# program prints counts as information, what it prints to stderr as a warning.
LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_STREAMS: Final = {"stdout": 20, "stderr": 30}


class LinePattern(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on log lines; all must hold."""

    text: str = ""  # a part of the message, in any case of letters
    level: str = "debug"  # of LEVELS: this one or a higher one
    since: Instant = -inf  # by the clock of the worker
    until: Instant = inf

    def find(self, part: LogPart, skip: int = 0) -> Iterator[tuple[int, Line]]:
        """Yield the lines of a part that match, each with the number of lines before it."""
        wanted, least = self.text.casefold(), LEVELS[self.level]
        # A line of JSON has the message with escapes: only few lines need be parsed.
        escaped = msgspec.json.encode(wanted).decode()[1:-1]
        for number, text in enumerate(part.text.split("\n")):
            if number < skip or escaped not in text.casefold():
                continue
            (line,) = lines_of(text)
            level = LEVELS.get(line.level) or _STREAMS.get(line.level, LEVELS["info"])
            if (
                level >= least
                and self.since <= line.at < self.until
                and wanted in line.message.casefold()
            ):
                yield number, line


def cut_parts(found: Iterable[FoundPart]) -> Page[FoundPart]:
    """Take a page of log parts: PAGE_BYTES_MAX bytes, and at least one part."""
    return cut_page(
        found,
        SCAN_ITEMS_MAX,
        size=lambda one: bytes_of(one.part.text),
        cursor=lambda one: str(LogPlace(one.execution, one.part.attempt, one.part.number)),
    )

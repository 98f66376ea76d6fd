"""What a task said while it ran: lines, and the text in which stores keep them.

Lines gather while a task runs and are written in parts: one whenever the worker looks round, and
the last one together with the end, which costs next to nothing. Nearly every task is over before
the worker looks round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.limits import LOG_LINE_CHARS_MAX

# What a mask is given of a line. It finds only what is there as a whole, so it sees more than is
# kept; and of what it could not see to the end, so much is dropped that no half of a secret shows.
MASKED_CHARS_MAX: Final = 2 * LOG_LINE_CHARS_MAX

_encode: Final = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line that a task said."""

    at: Instant  # by the clock of its worker: for people, nothing is decided by it
    level: str  # as `logging` calls it, in small letters; "stdout" and "stderr" for what is printed
    source: str  # the logger's name; empty for what is printed
    message: str


_decoder: Final = msgspec.json.Decoder(Line)


LAST: Final = 2**31 - 1  # the number of the part that came with the end


class NewLogPart(msgspec.Struct, frozen=True, gc=False):
    """A part of a running execution's log, as its worker writes it."""

    id: UUID
    attempt: int
    lease: UUID
    number: int  # of the part within the attempt, from 1; written twice, it is kept once
    text: str


class LogPart(msgspec.Struct, frozen=True, order=True, gc=False):
    """A part of an execution's log, as it is kept."""

    attempt: int
    number: int
    text: str

    @property
    def lines(self) -> Iterator[Line]:
        return lines_of(self.text)


def line_text(
    at: Instant, level: str, source: str, message: str, *, cut_from: int | None = None
) -> str:
    """A `Line` as it is kept: JSON, so that whatever was said, it stays one line.

    `cut_from` is how long the message was, if it is not all there.
    """
    if cut_from is None and len(message) > LOG_LINE_CHARS_MAX:
        cut_from = len(message)
    if cut_from is not None:
        message = f"{message[:LOG_LINE_CHARS_MAX]}… ({cut_from:,} characters)"
    try:
        return _encode((at, level, source, message)).decode()
    except UnicodeEncodeError:  # halves of surrogate pairs, which no text in a store can have
        sound = (text.encode("utf-8", "replace").decode() for text in (level, source, message))
        return _encode((at, *sound)).decode()


def joined(lines: Iterable[str]) -> str:
    """The text of a part."""
    return "\n".join(lines)


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a part."""
    return (_decoder.decode(line) for line in text.split("\n"))

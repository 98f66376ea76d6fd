"""What a task said while it ran: lines, and the text in which stores keep them.

Lines gather while a task runs and are written in parts: a part whenever the worker looks round, the
last one together with the end. Nearly every task that says anything has one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.instant import Instant
from daybell.core.limits import LOG_LINE_CHARS_MAX

_encoder: Final = msgspec.json.Encoder()


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line that a task said."""

    at: Instant  # by the clock of its worker: for people, nothing is decided by it
    level: str  # as `logging` calls it, in small letters; "stdout" and "stderr" for what is printed
    source: str  # the logger's name; empty for what is printed
    message: str


_decoder: Final = msgspec.json.Decoder(Line)


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


def text_of(line: Line) -> str:
    """A line as it is kept: JSON, so that whatever was said, it stays one line."""
    if len(line.message) > LOG_LINE_CHARS_MAX:
        cut = f"{line.message[:LOG_LINE_CHARS_MAX]}… ({len(line.message):,} characters)"
        line = msgspec.structs.replace(line, message=cut)
    try:
        return _encoder.encode(line).decode()
    except UnicodeEncodeError:  # halves of surrogate pairs, which no text in a store can have
        message = line.message.encode("utf-8", "replace").decode()
        return text_of(msgspec.structs.replace(line, message=message))


def joined(lines: Iterable[str]) -> str:
    """The text of a part."""
    return "\n".join(lines)


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a part."""
    return (_decoder.decode(line) for line in text.split("\n"))

"""What a child process prints, line by line.

The streams are pipes at the level of file descriptors, so that what C code and programs started by
a task print is heard, too.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from daybell.core.limits import LOG_LINE_CHARS_MAX

CHUNK_BYTES: Final = 65536  # what a pipe holds: one read takes all that was written before
LINE_CHARS_MAX: Final = 65536  # of a longer line the rest is dropped: it cannot all be in memory


class Output:
    """One stream of a child. Each line goes to `say` and on to the worker's own stream.

    Of a line that is too long nothing comes after the cut, not even as another line: a secret that
    lies across it would get past the masks in two halves. What goes on is masked here, what is said
    by who hears it.
    """

    def __init__(
        self,
        name: str,
        *,
        say: Callable[[str, str, str, int], None],
        mask: Callable[[str], str] = str,
    ) -> None:
        self.name = name  # stdout or stderr
        self._say = say
        self._mask = mask
        self._fd, self.writer = os.pipe()
        os.set_blocking(self._fd, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""  # of what was read: a line without its end
        self._dropped = 0  # characters of that line

    def start(self) -> None:
        """Hear what comes. The child has its end of the pipe by now."""
        self.close_writer()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.read)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Hear no more, whoever may still hold the other end."""
        self.close_writer()
        if self._fd >= 0:
            with suppress(AttributeError):  # it was never started
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def read(self) -> None:
        """Take what is there, if anything."""
        if self._fd < 0:
            return
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._fd)
            return
        *ends, rest = self._decoder.decode(data).split("\n")
        lines: list[str] = []
        for end in ends:
            self._gather(end)
            lines.append(self._line())
        self._gather(rest)
        self._pass_on(lines)

    def end_line(self) -> None:
        """A task has ended: what comes next is another's."""
        if self._rest:
            self._pass_on([self._line()])

    def _gather(self, text: str) -> None:
        kept = text[: LINE_CHARS_MAX - len(self._rest)]
        self._rest += kept
        self._dropped += len(text) - len(kept)

    def _line(self) -> str:
        """The line that is complete now, said, and as it goes on to the worker's stream."""
        line, dropped = self._rest, self._dropped
        self._rest, self._dropped = "", 0
        self._say(self.name, "", line, len(line) + dropped)
        masked = self._mask(line)
        if dropped:
            # It may end with half a secret, which no mask knows.
            masked = f"{masked[:-LOG_LINE_CHARS_MAX]}… ({len(line) + dropped:,} characters)"
        return masked

    def _pass_on(self, lines: list[str]) -> None:
        if not lines:
            return
        stream = getattr(sys, self.name)
        with suppress(AttributeError, OSError, ValueError):  # there is none, or nobody listens
            stream.write("\n".join(lines) + "\n")
            stream.flush()

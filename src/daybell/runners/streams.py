"""What a command prints, as it comes, and how that ended."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from typing import Final

# Read at a time. It may be thousands of lines, and others have to wait while they are looked at.
CHUNK_BYTES: Final = 16 * 1024


class Stream:
    """One stream of a command. All of it goes to `heard`; its end is kept, too."""

    def __init__(self, name: str, heard: Callable[[str, str], None], *, chars_max: int) -> None:
        self.name = name  # stdout or stderr
        self._heard = heard
        self._chars_max = chars_max
        self._tail = ""
        self._is_cut = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._fd, self.writer = os.pipe()
        os.set_blocking(self._fd, False)

    def start(self) -> None:
        """Hear what comes. The command has its end of the pipe by now."""
        self._close_writer()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Hear no more, whoever may still hold the other end."""
        self._close_writer()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def tail(self) -> str:
        """How it ended, in whole lines if it was long: what is cut in two, no mask would find."""
        if not self._is_cut:
            return self._tail
        for end in ("\n", " "):
            _, found, rest = self._tail.partition(end)
            if found:
                return rest
        return ""

    def _read(self) -> None:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        text = self._decoder.decode(data, final=not data)
        if text:
            self._keep(text)
            self._heard(self.name, text)
        if not data:
            self.close()

    def _keep(self, text: str) -> None:
        room = self._chars_max
        self._is_cut = self._is_cut or len(self._tail) + len(text) > room
        self._tail = text[-room:] if len(text) >= room else (self._tail + text)[-room:]

    def _close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

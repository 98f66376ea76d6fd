"""What a command prints, as it comes, and how that ended."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from typing import Final

import msgspec

# Read at a time. It may be thousands of lines, and others have to wait while they are looked at.
CHUNK_BYTES: Final = 16 * 1024
# Of what was cut, as much as may be the rest of a secret: half of one, no mask would find.
HALF_CHARS: Final = 16 * 1024


class Said(msgspec.Struct, frozen=True):
    """How a stream ended, as it came: with secrets, the first of which may be cut in two."""

    text: str = ""
    is_cut: bool = False

    def end(self, mask: Callable[[str], str], chars_max: int) -> tuple[str, bool]:
        """Its last characters without secrets, and whether there was more before them."""
        text = mask(self.text)
        if self.is_cut:
            text = text[HALF_CHARS:]
        if self.is_cut or len(text) > chars_max:
            return "…" + text[1 - chars_max :], True
        return text, False


class Stream:
    """One stream of a command. All of it goes to `heard`; its last `chars_max` characters are kept
    as well, and some more to cut from.
    """

    def __init__(self, name: str, heard: Callable[[str, str], None], *, chars_max: int) -> None:
        self.name = name  # stdout or stderr
        self._heard = heard
        self._kept_max = chars_max + HALF_CHARS
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
    def said(self) -> Said:
        """How it ended."""
        return Said(self._tail, self._is_cut)

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
        room = self._kept_max
        self._is_cut = self._is_cut or len(self._tail) + len(text) > room
        self._tail = text[-room:] if len(text) >= room else (self._tail + text)[-room:]

    def _close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

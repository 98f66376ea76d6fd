"""What a command prints, as it comes, and how that ended."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

# Read at a time. It may be thousands of lines, and others have to wait while they are looked at.
CHUNK_BYTES: Final = 16 * 1024
# Of what was cut, as much as may be the rest of a secret: half of one, no mask would find.
HALF_CHARS: Final = 16 * 1024
# Of progress. A write of no more than this to a pipe is not mixed with those of others.
LINE_BYTES_MAX: Final = 4096
LINES_MAX: Final = 20  # the last ones of a read that are looked at; only one of them is shown
PAUSE_SECONDS: Final = 0.1  # between two reads: what writes faster has to wait
# How a line begins. Only one part may repeat without a bound, so that no line takes long to match.
_NUMBER: Final = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?(?:\s|\Z)")


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


class ProgressPipe:
    """A named pipe that a command reports its progress to, in lines such as `50 halfway`.

    `report` is given what a line says, `refuse` is called once if one says something else. Only the
    last line of a read is shown, and there are few reads in a second: a command that writes more
    waits, and the worker does not.
    """

    def __init__(
        self,
        path: str,
        report: Callable[[float, str | None], None],
        refuse: Callable[[], None],
    ) -> None:
        os.mkfifo(path, 0o600)
        self._fd = open_pipe(path)
        self.path = path
        self._report = report
        self._refuse = refuse
        self._is_refused = False
        self._rest = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Read what comes, on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Read what is there, and no more. What writes to it from now on fails."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._timer is not None:
                self._timer.cancel()
            try:
                data = os.read(self._fd, 4 * CHUNK_BYTES)  # which is what a pipe holds
            except OSError:
                data = b""
            self._take(data + b"\n")
        os.close(self._fd)

    def remove(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def _read(self) -> None:
        assert self._loop is not None
        with suppress(OSError):
            self._take(os.read(self._fd, CHUNK_BYTES))
        self._loop.remove_reader(self._fd)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        assert self._loop is not None
        self._loop.add_reader(self._fd, self._read)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_BYTES_MAX + 1]  # the end of a longer one need not be kept
        for line in reversed(lines[-LINES_MAX:]):
            if not line.strip():
                continue
            said = read_progress(line)
            if said is not None:
                self._report(*said)
                return
            if not self._is_refused:
                self._is_refused = True
                self._refuse()


def open_pipe(path: str) -> int:
    """Open a named pipe of this user. Raises OSError if the path has become something else."""
    # Also for writing: without a writer of its own, it would be at its end again and again.
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():
        os.close(fd)
        raise OSError(f"{path} is not the pipe that the worker made")
    return fd


def read_progress(line: bytes) -> tuple[float, str | None] | None:
    """What a line says: a percentage, and perhaps a note. None: neither."""
    if len(line) > LINE_BYTES_MAX:
        return None
    text = line.decode("utf-8", "replace").replace("\0", " ").strip()
    found = _NUMBER.match(text)
    if found is None or float(found[1]) > 100:
        return None
    return float(found[1]), text[found.end() :].strip() or None

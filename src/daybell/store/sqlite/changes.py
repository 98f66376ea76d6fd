"""Whether somebody may have committed to the file, told by its log, from outside and for next to
nothing.

Every commit is written to the log, so where that has not moved there is nothing new. It tells no
more than that: it moves before a commit can be seen, and not twice within a tick of the file
system's clock. So a move is followed by closer looks until they have found something, and one more.

That is a poll, and its interval is the latency between processes. On Linux, `Bell` shortens it: a
process that has committed work opens the log and closes it again, and the kernel reports that to
all processes that watch the log (inotify). No socket or file is left behind by a crash, and a lost
report costs only the interval. Opening changes nothing in the file: a new time stamp would make the
next commit write the file's metadata as well, which took 15 % of a single enqueue.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from math import inf
from typing import Any, Final

from daybell.core.instant import Seconds

# Time between two answers to rings. A process that enqueues without a pause would otherwise keep
# all idle processes busy.
ANSWER_SECONDS: Final = 0.005
EVENTS_BYTES: Final = 4096
WATCHED: Final = 0x20 | 0x400 | 0x800  # IN_OPEN, IN_DELETE_SELF, IN_MOVE_SELF
LOOKS_MAX: Final = 40  # in vain, after a move: it was undone, or an earlier look has found it


class Log:
    """The log of a database file, as it looks from outside."""

    def __init__(self, path: str) -> None:
        self._path = f"{os.path.realpath(path)}-wal"  # SQLite follows links, too
        self._seen: tuple[int, int] | None = None
        self._looks = 0  # that are still to be made

    def is_worth_a_look(self) -> bool:
        """Whether a look into the database may find something new. Waits for no disk."""
        stamp = self._stamp()
        if stamp is None or stamp != self._seen:
            self._looks = LOOKS_MAX
        self._seen = stamp
        return self._looks > 0

    def looked(self, *, is_new: bool) -> None:
        """Such a look was made, and has found something new or not."""
        self._looks = 1 if is_new else self._looks - 1

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None  # nothing is known, so every look is worth it
        return found.st_mtime_ns, found.st_size


class Bell:
    """The log of a database file as a bell: `ring` is heard by all processes that wait for it."""

    def __init__(self, path: str) -> None:
        self._path = f"{os.path.realpath(path)}-wal"
        self._descriptor = -1
        self._is_watched = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_rung = False  # while nothing waited
        self._answer: asyncio.TimerHandle | None = None  # that is due
        self._answered_at = -inf  # by the clock of the loop

    def ring(self) -> None:
        """Have other processes check the database now. Waits for no disk and never fails.

        Closing a file drops the locks that this process has on it. SQLite locks the database file
        and its shared memory, never the log.
        """
        with suppress(OSError):
            os.close(
                os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            )

    def open(self) -> None:
        """Watch the log from now on. Where that cannot be, `wait` only lets the time pass."""
        if sys.platform == "linux" and self._descriptor < 0:
            self._descriptor = _inotify().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._hear)

    def close(self) -> None:
        descriptor, self._descriptor, self._is_watched = self._descriptor, -1, False
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    async def wait(self, seconds: Seconds) -> None:
        """Wait for a ring of another process, or so long."""
        loop = asyncio.get_running_loop()
        if not self._is_watched and self._descriptor >= 0:
            path = os.fsencode(self._path)
            watch = _inotify().inotify_add_watch(self._descriptor, path, WATCHED)
            self._is_watched = watch >= 0
        self._waiter = loop.create_future()
        timer = loop.call_later(0.0 if self._is_rung else seconds, self._stop_waiting)
        self._is_rung = False
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _hear(self) -> None:
        with suppress(OSError):
            os.read(self._descriptor, EVENTS_BYTES)
        self._is_watched = False  # the log may be another one now; to watch the same again is cheap
        if self._answer is None:
            loop = asyncio.get_running_loop()
            pause = self._answered_at + ANSWER_SECONDS - loop.time()
            self._answer = loop.call_later(max(0.0, pause), self._answer_ring)

    def _answer_ring(self) -> None:
        self._answer = None
        self._answered_at = asyncio.get_running_loop().time()
        self._is_rung = self._waiter is None
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _inotify() -> Any:
    """The C library. Only processes that listen load it."""
    import ctypes

    return ctypes.CDLL(None)

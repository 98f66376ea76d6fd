"""Whether somebody may have committed to the file, told by its log, from outside and for next to
nothing.

Every commit is written to the log, so where that has not moved there is nothing new. It tells no
more than that: it moves before a commit can be seen, and not twice within a tick of the file
system's clock. So a move is followed by closer looks until they have found something, and one more.
"""

from __future__ import annotations

import os
from typing import Final

LOOKS_MAX: Final = 40  # in vain, after a move: it was undone, or an earlier look has found it


class Log:
    """The log of a database file, as it looks from outside. It is never opened: closing it again
    would take away the locks that SQLite has on it in this process.
    """

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

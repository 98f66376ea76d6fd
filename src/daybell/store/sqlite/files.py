"""The database file: where it may be, how it is opened, and what its errors mean."""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote

from daybell.core.kinds.sql import STORE_FILE_ID
from daybell.errors import SchemaError, Unavailable, UsageError, shown

T = TypeVar("T")

SQLITE_LEAST: Final = (3, 37, 0)  # STRICT tables
FILE_MODE: Final = 0o600  # arguments and results are nobody else's business
APPLICATION_ID: Final = STORE_FILE_ID

# A writer that finds the file locked asks again at these pauses, a minute in all. They are short
# because SQLite wakes nobody: whoever asks most often is served first.
BUSY_SECONDS_MAX: Final = 60.0
PAUSE_SECONDS_FIRST: Final = 0.0005
PAUSE_SECONDS_MAX: Final = 0.016

PRAGMAS: Final = (
    # Every commit is on the disk before it is answered. Group commit is what pays for it.
    "PRAGMA synchronous = FULL",
    "PRAGMA cache_size = -65536",  # 64 MiB
    "PRAGMA mmap_size = 1073741824",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
    # The log goes back into the file at about 16 MiB, by whichever commit passes that mark. It
    # starts over only when no reader needs it, so our readers never stay; after a long one, or a
    # load, the log file is cut to 64 MiB.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
)


def check_path(path: str) -> None:
    """Refuse a place where no database can be. Whether there is one is another question."""
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        raise UsageError(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; Daybell needs"
            f" {'.'.join(map(str, SQLITE_LEAST))} or newer"
        )
    if not path or path.startswith(":memory:") or "\0" in path:
        raise UsageError(
            f"{shown(path)} is not the path of a file; for a store that lives in memory use memory://"
        )
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; give the path of a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is not an ordinary file; give the path of one")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"the folder {folder} does not exist; create it, or give another path")


def create(path: str) -> None:
    """Make the file, readable by its owner only whatever the umask says, unless it exists.

    SQLite gives its companions, -wal and -shm, the mode of the file itself.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        pass  # another process was first, or an operator chose a mode: leave it
    except OSError as error:
        barred = Unavailable(f"cannot create {path}: {error.strerror}")
        barred.is_lasting = True
        raise barred from error


def unwritable(path: str) -> str | None:
    """What this user may not write of all that SQLite has to; None if there is nothing.

    SQLite does not say so when it opens: it would read on, and fail at the first write.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK | os.X_OK):  # -wal and -shm come and go there
        return folder
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK):
            return file
    return None


def connect(path: str) -> sqlite3.Connection:
    """Open a file that exists. Transactions are ours to begin and end."""
    connection = sqlite3.connect(
        # By URI, because only so a missing file stays missing. One slash: two begin a host's name.
        f"file:/{quote(os.fsencode(os.path.abspath(path))).lstrip('/')}?mode=rw",
        uri=True,
        timeout=0,  # see `patiently`
        isolation_level=None,
        cached_statements=512,  # more than there are: a statement is parsed once
    )
    try:
        for pragma in PRAGMAS:
            patiently(lambda pragma=pragma: connection.execute(pragma))
    except BaseException:
        connection.close()
        raise
    return connection


def use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Write ahead from now on: readers and the writer do not wait for each other."""
    (mode,) = patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    if mode != "wal":
        raise UsageError(
            f"{path} cannot be opened in WAL mode, only in {mode!r}; is it on a network file"
            " system? Move it to a local disk"
        )


def patiently(step: Callable[[], T]) -> T:
    """Do a step that fails without harm while somebody else has the file locked.

    SQLite's own busy_timeout is not enough: it does not cover every case (switching to WAL, or
    recovering the log of a process that was killed) and backs off to a tenth of a second, which
    starves one writer among several.
    """
    pause, waited = PAUSE_SECONDS_FIRST, 0.0
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or waited >= BUSY_SECONDS_MAX:
                raise
        threading.Event().wait(pause)
        waited += pause
        pause = min(2 * pause, PAUSE_SECONDS_MAX)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether it is only that somebody else has the lock."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: sqlite3.Error) -> int:
    """The kind of an error; 0 for one that the Python module made up."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: f"another program has kept it locked for {BUSY_SECONDS_MAX:g} s",
    sqlite3.SQLITE_LOCKED: f"another program has kept it locked for {BUSY_SECONDS_MAX:g} s",
    sqlite3.SQLITE_FULL: "there is no room left to write; make some",
    sqlite3.SQLITE_READONLY: "it may not be written; check its permissions and its folder's",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that it exists, and its permissions",
    sqlite3.SQLITE_PERM: "it may not be opened; check its permissions",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a backup",
}

_LASTING: Final = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CORRUPT,
}


def translated(error: BaseException, path: str) -> BaseException:
    """The error as Daybell tells it."""
    if isinstance(error, sqlite3.Error):
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            return UsageError(
                f"{path} is not a SQLite database; give another path, or move it away"
            )
        return unavailable(error, path)
    if isinstance(error, UnicodeEncodeError):
        return UsageError(f"{shown(error.object)} contains half a surrogate pair, not a character")
    if isinstance(error, OverflowError):
        return UsageError("a number is too large to be kept")
    return error


def unavailable(error: BaseException, path: str) -> Unavailable:
    """What to tell somebody whose request was fine."""
    code = primary_code(error) if isinstance(error, sqlite3.Error) else 0
    meaning = _MEANINGS.get(code, "SQLite failed")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and (barred := unwritable(path)):
        meaning = f"{barred} may not be written by this user; chmod u+rwX {shlex.quote(barred)}"
    away = Unavailable(f"{path}: {meaning} ({error})")
    away.is_lasting = code in _LASTING
    return away


def missing(path: str) -> SchemaError:
    """What to say of a database that nobody has made yet; the whole path, because it may be that
    of another folder. The cause tells it from other errors of a schema.
    """
    place = os.path.abspath(path)
    error = SchemaError(
        f"there is no database at {place} yet. Run `daybell migrate --database-url"
        f" sqlite:///{quote(place)}`, or open it with migrate=True"
    )
    error.__cause__ = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    return error

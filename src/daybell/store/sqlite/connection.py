"""The database: its connections, with or without threads, and wake-ups by other processes."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import quote

from daybell.core.kinds.settings import STORE_FILE_ID
from daybell.core.units import Instant, Seconds
from daybell.errors import SchemaError, Unavailable, UsageError, shown
from daybell.store.admin import PendingEntry
from daybell.store.shares import Holder, Shares, current_holder
from daybell.store.sqlite.transaction import AuditedOperation, Names, Transaction
from daybell.store.wakeups import Signal

T = TypeVar("T")

IN_MEMORY: Final = ":memory:"  # in place of the path of a file
SQLITE_LEAST: Final = (3, 37, 0)  # STRICT tables
FILE_MODE: Final = 0o600  # arguments and results are private
APPLICATION_ID: Final = STORE_FILE_ID

# A writer that finds the file locked retries at these pauses, for a minute in all. They are short
# because SQLite wakes no writer: the one that asks most often is served first.
BUSY_SECONDS_MAX: Final = 60.0
PAUSE_SECONDS_FIRST: Final = 0.0005
PAUSE_SECONDS_MAX: Final = 0.016

PRAGMAS: Final = (
    # Every commit is on the disk before it is answered. Group commit pays for it.
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
    """Refuse a place where no database can be. Does not check that a database exists."""
    if sqlite3.sqlite_version_info < SQLITE_LEAST:
        raise UsageError(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; Daybell needs"
            f" {'.'.join(map(str, SQLITE_LEAST))} or newer"
        )
    if not path or path.startswith(IN_MEMORY) or "\0" in path:
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


def create_file(path: str) -> None:
    """Create the file, unless it exists. Only its owner can read it, regardless of the umask.

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


def find_unwritable(path: str) -> str | None:
    """Return a path that SQLite has to write and this user may not write; None if there is none.

    SQLite does not report this when it opens: it would read on, and fail at the first write.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK | os.X_OK):  # SQLite creates and removes -wal and -shm there
        return folder
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK):
            return file
    return None


def connect(path: str) -> sqlite3.Connection:
    """Open a file that exists. The caller begins and ends transactions."""
    connection = sqlite3.connect(
        # Only a URI keeps a missing file missing. One slash: two begin a host's name.
        f"file:/{quote(os.fsencode(os.path.abspath(path))).lstrip('/')}?mode=rw",
        uri=True,
        timeout=0,  # see `retry_while_busy`
        isolation_level=None,
        cached_statements=512,  # more than there are: a statement is parsed once
    )
    try:
        for pragma in PRAGMAS:
            retry_while_busy(lambda pragma=pragma: connection.execute(pragma))
    except BaseException:
        connection.close()
        raise
    return connection


def connect_memory() -> sqlite3.Connection:
    """Open a new database in memory, for one connection in any thread."""
    return sqlite3.connect(
        IN_MEMORY, isolation_level=None, cached_statements=512, check_same_thread=False
    )


def use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch to write-ahead logging: readers and the writer do not wait for each other."""
    (mode,) = retry_while_busy(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    if mode != "wal":
        raise UsageError(
            f"{path} cannot be opened in WAL mode, only in {mode!r}; is it on a network file"
            " system? Move it to a local disk"
        )


def retry_while_busy(step: Callable[[], T]) -> T:
    """Run a step that fails without harm, and retry it while another connection locks the file.

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
    """Return True if the error is only that another connection has the lock."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: sqlite3.Error) -> int:
    """Return the kind of an error; 0 for one that the Python module made up."""
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


def translate_error(error: BaseException, path: str) -> BaseException:
    """Return the error that Daybell reports for this one."""
    if isinstance(error, sqlite3.Error):
        if primary_code(error) == sqlite3.SQLITE_NOTADB:
            return UsageError(
                f"{path} is not a SQLite database; give another path, or move it away"
            )
        return unavailable_error(error, path)
    if isinstance(error, UnicodeEncodeError):
        return UsageError(f"{shown(error.object)} contains half a surrogate pair, not a character")
    if isinstance(error, OverflowError):
        return UsageError("a number is too large to be kept")
    return error


def unavailable_error(error: BaseException, path: str) -> Unavailable:
    """Return the error for a valid request that the database could not serve."""
    code = primary_code(error) if isinstance(error, sqlite3.Error) else 0
    meaning = _MEANINGS.get(code, "SQLite failed")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and (
        barred := find_unwritable(path)
    ):
        meaning = f"{barred} may not be written by this user; chmod u+rwX {shlex.quote(barred)}"
    away = Unavailable(f"{path}: {meaning} ({error})")
    away.is_lasting = code in _LASTING
    return away


def missing_file_error(path: str) -> SchemaError:
    """Return the error for a database that does not exist yet. It names the whole path, because
    that may be in another folder. The cause tells it from other errors of a schema.
    """
    place = os.path.abspath(path)
    error = SchemaError(
        f"there is no database at {place} yet. Run `daybell migrate --database-url"
        f" sqlite:///{quote(place)}`, or open it with migrate=True"
    )
    error.__cause__ = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
    return error


# A store has two threads, one that writes and one that reads, each with its own connection.
#
# An operation is a function of a transaction. It is sent to a thread as a whole, and its answer
# is sent back: the event loop never waits for the disk.
#
# **Group commit.** The writing thread takes all operations that were queued while it was busy
# and runs them in one transaction. They share one commit, which with `synchronous = FULL` is
# most of their price. On an idle store an operation finds the thread waiting and is committed
# alone, at once. Each operation of a group has a savepoint: one that raises is undone, without
# effect on the others. No operation is answered before the commit; if that fails, all fail.
#
# **Several processes.** Every write begins with BEGIN IMMEDIATE, so its reads stay true until
# it commits. A writer that finds the lock taken waits, see `retry_while_busy`.

Clock: TypeAlias = Callable[[], Instant]
Operation: TypeAlias = Callable[[Transaction], T]

READS_MAX: Final = 4  # on their way to the thread that reads, in shares of tenants and keys
GROUP_MAX: Final = 1000  # operations that share a commit; bounds how long the first one waits


class ThreadRequest(NamedTuple):
    """An operation on its way to a thread. None: the thread ends."""

    operation: Operation[Any] | None
    future: asyncio.Future[Any]
    is_alone: bool = False  # never share a transaction


class Answer(NamedTuple):
    """The result of an operation, on its way back."""

    future: asyncio.Future[Any]
    value: object = None
    error: BaseException | None = None


class Session:
    """The connection of one thread, and the names that were read through it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.names = Names()

    def connect(self, prepare: Callable[[sqlite3.Connection], object]) -> None:
        connection = connect(self.path)
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        self.connection = connection

    def begin(self, statement: str) -> Transaction:
        connection = self.connection
        retry_while_busy(lambda: connection.execute(statement))
        self.names.begin(self.connection)
        return Transaction(connection, self.names, self.clock())

    def roll_back(self) -> None:
        self.names.forget()  # names of rows that are rolled back
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


class Server(Protocol):
    """The work of a connection thread."""

    @property
    def session(self) -> Session: ...

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Set up a new connection."""
        ...

    def next_group(self, requests: SimpleQueue[ThreadRequest]) -> list[ThreadRequest]:
        """Wait for requests that are served together. The request to end comes alone."""
        ...

    def serve(self, group: list[ThreadRequest]) -> list[Answer]:
        """Run the operations. Never raises: an exception would leave all callers waiting."""
        ...


class ConnectionThread:
    """A thread with a connection of its own, for one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._requests: SimpleQueue[ThreadRequest] = SimpleQueue()
        self._thread = threading.Thread(
            # A program that forgets to close its store can still end.
            target=self._run,
            name=f"daybell-{type(server).__name__}",
            daemon=True,
        )

    async def start(self) -> None:
        """Connect. The thread ends by itself if that fails."""
        started = self._send(None)
        self._thread.start()
        await started

    def ask(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        """Run an operation. Cancelling the future does not undo an operation under way."""
        return self._send(operation, is_alone)

    def stop(self) -> asyncio.Future[None]:
        """Finish the requests, disconnect, and end the thread."""
        return self._send(None, is_alone=True)

    def _send(
        self, operation: Operation[Any] | None, is_alone: bool = False
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests.put(ThreadRequest(operation, future, is_alone))
        return future

    def _run(self) -> None:
        server, requests, session = self._server, self._requests, self._server.session
        started = requests.get()
        try:
            session.connect(server.prepare)
        except BaseException as error:
            deliver([Answer(started.future, error=translate_error(error, session.path))])
            return
        deliver([Answer(started.future)])
        while True:
            group = server.next_group(requests)
            if group[0].operation is None:
                break
            deliver(server.serve(group))
        session.connection.close()
        deliver([Answer(group[0].future)])


class Writer:
    """The server of writes: operations that wait at the same time share a transaction."""

    def __init__(
        self,
        session: Session,
        give: Callable[[Signal], None],
        settle: Callable[[Transaction], object],
    ) -> None:
        self.session = session
        self._give = give
        self._settle = settle  # called at the end of every operation
        self._held_back: ThreadRequest | None = None

    def prepare(self, connection: sqlite3.Connection) -> None:
        use_wal(connection, self.session.path)

    def next_group(self, requests: SimpleQueue[ThreadRequest]) -> list[ThreadRequest]:
        group = [self._held_back or requests.get()]
        self._held_back = None
        while not (group[0].is_alone or requests.empty() or len(group) == GROUP_MAX):
            request = requests.get()
            if request.is_alone:
                self._held_back = request
                break
            group.append(request)
        return group

    def serve(self, group: list[ThreadRequest]) -> list[Answer]:
        session = self.session
        try:
            transaction = session.begin("BEGIN IMMEDIATE")
            if len(group) == 1:
                answers = [self._do(group[0], transaction)]
            else:
                answers = [self._do_shielded(request, transaction) for request in group]
            retry_while_busy(lambda: session.connection.execute("COMMIT"))
        except BaseException as error:
            return self._fail(group, error)
        for signal in transaction.signals:
            self._announce(signal, group[0])
        return answers

    def _announce(self, signal: Signal, request: ThreadRequest) -> None:
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            request.future.get_loop().call_soon_threadsafe(self._give, signal)

    def _do(self, request: ThreadRequest, transaction: Transaction) -> Answer:
        operation, future, _ = request
        if operation is None or future.cancelled():
            return Answer(future)
        value = operation(transaction)
        self._settle(transaction)
        return Answer(future, value)

    def _do_shielded(self, request: ThreadRequest, transaction: Transaction) -> Answer:
        connection = self.session.connection
        connection.execute("SAVEPOINT operation")
        try:
            answer = self._do(request, transaction)
        except BaseException as error:
            if not connection.in_transaction:
                raise  # a full disk, for one, undoes everything at once
            self.session.names.forget()
            transaction.forget()
            connection.execute("ROLLBACK TO operation")
            answer = Answer(request.future, error=translate_error(error, self.session.path))
        connection.execute("RELEASE operation")
        return answer

    def _fail(self, group: list[ThreadRequest], error: BaseException) -> list[Answer]:
        path = self.session.path
        # If even this fails, nothing was committed, which is all that counts.
        with suppress(sqlite3.Error):
            self.session.roll_back()
        if len(group) == 1:
            return [Answer(group[0].future, error=translate_error(error, path))]
        # The commit failed, not one of the operations: each of them was correct.
        return [Answer(request.future, error=unavailable_error(error, path)) for request in group]


class InlineWriter(Writer):
    """The server of writes in the thread of their caller: a signal is given at once."""

    def _announce(self, signal: Signal, request: ThreadRequest) -> None:
        del request
        self._give(signal)


class Reader:
    """The server of reads. Each operation sees one state of the file, start to end."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")

    def next_group(self, requests: SimpleQueue[ThreadRequest]) -> list[ThreadRequest]:
        return [requests.get()]

    def serve(self, group: list[ThreadRequest]) -> list[Answer]:
        (request,) = group
        try:
            return [Answer(request.future, retry_while_busy(lambda: self._read(request)))]
        except BaseException as error:
            return [Answer(request.future, error=translate_error(error, self.session.path))]

    def _read(self, request: ThreadRequest) -> object:
        assert request.operation is not None, "an ending is not served"
        if request.future.cancelled():
            return None
        transaction = self.session.begin("BEGIN")
        try:
            return request.operation(transaction)
        finally:
            self.session.connection.execute("ROLLBACK")


def deliver(answers: list[Answer]) -> None:
    """Deliver answers to their futures, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.future.get_loop(), []).append(answer)
    for loop, group in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(set_results, group)


def set_results(answers: list[Answer]) -> None:
    """Set answers as the results of their futures, except for cancelled ones."""
    for future, value, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class InlineConnection:
    """Runs operations on a database in memory at once, in the thread of their caller."""

    def __init__(self, server: Server, lock: threading.RLock) -> None:
        self.session = server.session
        self._server = server
        self._lock = lock

    def ask(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        """Run an operation; the answer is there when this returns."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            answers = self._server.serve([ThreadRequest(operation, future, is_alone)])
        set_results(answers)
        return future

    def run(self, operation: Operation[T]) -> T:
        """Run an operation for a caller without an event loop."""
        with self._lock:
            (answer,) = self._server.serve([ThreadRequest(operation, cast("Any", Future()))])
        if answer.error is not None:
            raise answer.error
        return cast("T", answer.value)

    def stop(self) -> asyncio.Future[None]:
        """Return at once: the connection stays, with all that is in memory."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


def _note_commit(answer: asyncio.Future[Any], recorded: AuditedOperation) -> None:
    if not answer.cancelled() and answer.exception() is None:
        recorded.committed()


class Database:
    """A database: a file behind a thread that writes and a thread that reads, or one in memory."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.writer: ConnectionThread | InlineConnection | None = None
        self.reader: ConnectionThread | InlineConnection | None = None
        self._reads = Shares(READS_MAX)

    @property
    def is_open(self) -> bool:
        return self.writer is not None

    @property
    def is_in_memory(self) -> bool:
        return self.path == IN_MEMORY

    async def open(
        self, give: Callable[[Signal], None], settle: Callable[[Transaction], object]
    ) -> None:
        """Start the threads. `settle` ends every write; `give` gets signals after a commit."""
        writer = ConnectionThread(Writer(Session(self.path, self.clock), give, settle))
        reader = ConnectionThread(Reader(Session(self.path, self.clock)))
        await writer.start()
        try:
            await reader.start()
        except BaseException:
            await writer.stop()
            raise
        self.writer, self.reader = writer, reader

    def open_inline(
        self,
        connection: sqlite3.Connection,
        give: Callable[[Signal], None],
        settle: Callable[[Transaction], object],
    ) -> None:
        """Serve a database in memory on its one connection, without threads."""
        session, lock = Session(self.path, self.clock), threading.RLock()
        session.connection = connection
        self.writer = InlineConnection(InlineWriter(session, give, settle), lock)
        self.reader = InlineConnection(Reader(session), lock)

    async def close(self) -> None:
        threads = [thread for thread in (self.reader, self.writer) if thread is not None]
        self.writer = self.reader = None
        # They end even if the caller stops waiting.
        await asyncio.shield(stop_threads(threads))

    def write(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        if self.writer is None:
            raise UsageError("the store is not open; call open() first")
        return self.writer.ask(operation, is_alone=is_alone)

    def read(self, operation: Operation[T]) -> asyncio.Future[T]:
        if self.reader is None:
            raise UsageError("the store is not open; call open() first")
        holder = current_holder()
        if holder is None:
            return self.reader.ask(operation)
        if not self._reads.take(holder):
            return asyncio.ensure_future(self._read_in_turn(operation, holder))
        answer = self.reader.ask(operation)
        answer.add_done_callback(lambda _: self._reads.give_back(holder))
        return answer

    async def _read_in_turn(self, operation: Operation[T], holder: Holder) -> T:
        await self._reads.wait(holder)
        try:
            if self.reader is None:
                raise UsageError("the store is closed")
            return await self.reader.ask(operation)
        finally:
            self._reads.give_back(holder)


class AuditedDatabase(Database):
    """A database that adds an audit entry with its first change. It opens and closes nothing."""

    def __init__(self, database: Database, pending: PendingEntry) -> None:
        is_view = isinstance(database, AuditedDatabase)
        self._database: Database = database._database if is_view else database
        self._pending = pending
        self.path, self.clock = database.path, database.clock

    def write(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        if self._pending.is_on_record:
            return self._database.write(operation, is_alone=is_alone)
        recorded = AuditedOperation(operation, self._pending)
        answer = self._database.write(recorded, is_alone=is_alone)
        if answer.done():
            _note_commit(answer, recorded)
        else:  # added first, so called before the task that waits for the answer continues
            answer.add_done_callback(lambda done: _note_commit(done, recorded))
        return cast("asyncio.Future[T]", answer)

    def read(self, operation: Operation[T]) -> asyncio.Future[T]:
        return self._database.read(operation)


async def stop_threads(threads: list[ConnectionThread | InlineConnection]) -> None:
    """Stop one thread after the other: SQLite removes the log when the last connection closes."""
    for thread in threads:
        await thread.stop()


# The probe detects that a process may have committed to the file. It checks the log from outside,
# at almost no cost.
#
# Every commit is written to the log: while the log has not changed, there is nothing new. A change
# means no more than that: it comes before a commit can be seen, and not twice within a tick of the
# file system's clock. So closer looks follow a change until they have found something, and one
# more.
#
# That is a poll, and its interval is the latency between processes. On Linux, `Bell` shortens it:
# a process that has committed work opens the log and closes it again, and the kernel reports that
# to all processes that watch the log (inotify). No socket or file is left behind by a crash, and
# a lost report costs only the interval. Opening changes nothing in the file: a new time stamp
# would make the next commit write the file's metadata as well, which took 15 % of a single
# enqueue.

# Time between two answers to rings. A process that enqueues without a pause would otherwise keep
# all idle processes busy. It rings no more often either: a ring takes 5 % of a single enqueue.
ANSWER_SECONDS: Final = 0.005
EVENTS_BYTES: Final = 4096
WATCHED: Final = 0x20 | 0x400 | 0x800  # IN_OPEN, IN_DELETE_SELF, IN_MOVE_SELF
LOOKS_MAX: Final = 40  # in vain, after a change: it was undone, or an earlier look has found it


class CommitProbe:
    """The log of a database file, as it looks from outside."""

    def __init__(self, path: str) -> None:
        self._path = f"{os.path.realpath(path)}-wal"  # SQLite follows links, too
        self._seen: tuple[int, int] | None = None
        self._looks = 0  # looks still to be made

    def is_worth_a_look(self) -> bool:
        """Return True if a look into the database may find something new. Waits for no disk."""
        stamp = self._stamp()
        if stamp is None or stamp != self._seen:
            self._looks = LOOKS_MAX
        self._seen = stamp
        return self._looks > 0

    def looked(self, *, is_new: bool) -> None:
        """Record that a look was made, and if it has found something new."""
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
        self._rung_at = -inf
        self._next_ring: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Have other processes check the database, now or when the last ring was answered."""
        loop = asyncio.get_running_loop()
        pause = self._rung_at + ANSWER_SECONDS - loop.time()
        if pause <= 0:
            self._ring()
        elif self._next_ring is None:
            self._next_ring = loop.call_later(pause, self._ring)

    def flush(self) -> None:
        """Ring now if a ring is due later."""
        if self._next_ring is not None:
            self._ring()

    def _ring(self) -> None:
        """Open the log and close it. Waits for no disk and never fails.

        Closing a file drops the locks that this process has on it. SQLite locks the database file
        and its shared memory, never the log.
        """
        if self._next_ring is not None:
            self._next_ring.cancel()
            self._next_ring = None
        self._rung_at = asyncio.get_running_loop().time()
        with suppress(OSError):
            os.close(
                os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            )

    def open(self) -> None:
        """Watch the log from now on. Where that is not possible, `wait` only lets the time pass."""
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
    """Return the C library. Only processes that listen load it."""
    import ctypes

    return ctypes.CDLL(None)

"""Two threads per store, one that writes and one that reads, each with its own connection.

An operation is a function of a transaction. It travels to a thread as a whole and its answer
travels back: the event loop never waits for the disk.

**Group commit.** The writing thread takes all operations that have queued up while it was busy and
runs them in one transaction, so that they share one commit, which with `synchronous = FULL` is
most of their price. On an idle store an operation finds the thread waiting and is committed
alone, at once. Each operation of a group has a savepoint: one that raises is undone and its
neighbours never know. Nobody is answered before the commit; if that fails, all are told.

**Several processes.** Every write begins with BEGIN IMMEDIATE, so what it reads stays true until
it commits. Finding the lock taken is waited out, see `files.patiently`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from daybell.core.instant import Instant
from daybell.errors import UsageError
from daybell.store import recording
from daybell.store.shares import Holder, Shares, current_holder
from daybell.store.sqlite import files
from daybell.store.sqlite.files import patiently, translated
from daybell.store.sqlite.names import Names, Transaction
from daybell.store.sqlite.recorded import Recorded
from daybell.store.wakeups import Signal

T = TypeVar("T")
Clock: TypeAlias = Callable[[], Instant]
Operation: TypeAlias = Callable[[Transaction], T]

READS_MAX: Final = 4  # on their way to the thread that reads, in shares of tenants and keys
GROUP_MAX: Final = 1000  # operations that share a commit; bounds how long the first one waits


class Request(NamedTuple):
    """An operation on its way to a thread. None: the thread shall end."""

    operation: Operation[Any] | None
    future: asyncio.Future[Any]
    is_alone: bool = False  # never share a transaction


class Answer(NamedTuple):
    """What became of it, on its way back."""

    future: asyncio.Future[Any]
    value: object = None
    error: BaseException | None = None


class ConnectionThread:
    """A thread with a connection that nobody else touches."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._names = Names()
        self._requests: SimpleQueue[Request] = SimpleQueue()
        self._thread = threading.Thread(
            # A program that forgets to close its store can still end.
            target=self._run,
            name=f"daybell-{type(self).__name__}",
            daemon=True,
        )

    async def start(self) -> None:
        """Connect. The thread ends by itself if that fails."""
        started = self._send(None)
        self._thread.start()
        await started

    def ask(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        """Have an operation done. Cancelling the future does not undo what is under way."""
        return self._send(operation, is_alone)

    def stop(self) -> asyncio.Future[None]:
        """Finish what was asked for, disconnect, and end the thread."""
        return self._send(None, is_alone=True)

    def _send(
        self, operation: Operation[Any] | None, is_alone: bool = False
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests.put(Request(operation, future, is_alone))
        return future

    def _run(self) -> None:
        started = self._requests.get()
        try:
            self._connection = self._connect()
        except BaseException as error:
            deliver([Answer(started.future, error=translated(error, self._path))])
            return
        deliver([Answer(started.future)])
        while True:
            group = self._next_group()
            if group[0].operation is None:
                break
            deliver(self._serve(group))
        self._connection.close()
        deliver([Answer(group[0].future)])

    def _connect(self) -> sqlite3.Connection:
        connection = files.connect(self._path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Set up what is particular to this connection."""
        raise NotImplementedError

    def _next_group(self) -> list[Request]:
        """Wait for requests that can be served together. An ending comes alone."""
        raise NotImplementedError

    def _serve(self, group: list[Request]) -> list[Answer]:
        """Do what was asked. Must not raise, or nobody will ever be answered again."""
        raise NotImplementedError

    def _begin(self, statement: str) -> Transaction:
        connection = self._connection
        patiently(lambda: connection.execute(statement))
        self._names.begin()
        return Transaction(connection, self._names, self._clock())

    def _roll_back(self) -> None:
        # What was learned in a transaction that never happened is not true.
        self._names.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class Writer(ConnectionThread):
    """The thread that writes."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        give: Callable[[Signal], None],
        settle: Callable[[Transaction], object],
    ) -> None:
        super().__init__(path, clock)
        self._give = give
        self._settle = settle  # what is done at the end of every operation
        self._held_back: Request | None = None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        files.use_wal(connection, self._path)

    def _next_group(self) -> list[Request]:
        group = [self._held_back or self._requests.get()]
        self._held_back = None
        while not (group[0].is_alone or self._requests.empty() or len(group) == GROUP_MAX):
            request = self._requests.get()
            if request.is_alone:
                self._held_back = request
                break
            group.append(request)
        return group

    def _serve(self, group: list[Request]) -> list[Answer]:
        try:
            transaction = self._begin("BEGIN IMMEDIATE")
            if len(group) == 1:
                answers = [self._do(group[0], transaction)]
            else:
                answers = [self._do_shielded(request, transaction) for request in group]
            patiently(lambda: self._connection.execute("COMMIT"))
        except BaseException as error:
            return self._fail(group, error)
        for signal in transaction.signals:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                group[0].future.get_loop().call_soon_threadsafe(self._give, signal)
        return answers

    def _do(self, request: Request, transaction: Transaction) -> Answer:
        operation, future, _ = request
        if operation is None or future.cancelled():
            return Answer(future)
        value = operation(transaction)
        self._settle(transaction)
        return Answer(future, value)

    def _do_shielded(self, request: Request, transaction: Transaction) -> Answer:
        connection = self._connection
        connection.execute("SAVEPOINT operation")
        try:
            answer = self._do(request, transaction)
        except BaseException as error:
            if not connection.in_transaction:
                raise  # a full disk, for one, undoes everything at once
            self._names.forget()
            transaction.forget()
            connection.execute("ROLLBACK TO operation")
            answer = Answer(request.future, error=translated(error, self._path))
        connection.execute("RELEASE operation")
        return answer

    def _fail(self, group: list[Request], error: BaseException) -> list[Answer]:
        # Should even this fail: nothing was committed, which is all that counts.
        with suppress(sqlite3.Error):
            self._roll_back()
        if len(group) == 1:
            return [Answer(group[0].future, error=translated(error, self._path))]
        # Whatever it was, it was not what each of them asked for that was wrong.
        return [
            Answer(request.future, error=files.unavailable(error, self._path)) for request in group
        ]


class Reader(ConnectionThread):
    """The thread that reads. Each operation sees one state of the file, start to end."""

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")

    def _next_group(self) -> list[Request]:
        return [self._requests.get()]

    def _serve(self, group: list[Request]) -> list[Answer]:
        (request,) = group
        try:
            return [Answer(request.future, patiently(lambda: self._read(request)))]
        except BaseException as error:
            return [Answer(request.future, error=translated(error, self._path))]

    def _read(self, request: Request) -> object:
        assert request.operation is not None, "an ending is not served"
        if request.future.cancelled():
            return None
        transaction = self._begin("BEGIN")
        try:
            return request.operation(transaction)
        finally:
            self._connection.execute("ROLLBACK")


def deliver(answers: list[Answer]) -> None:
    """Bring answers to where they are awaited, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.future.get_loop(), []).append(answer)
    for loop, group in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, group)


def settle(answers: list[Answer]) -> None:
    """Hand answers to their futures; who was cancelled meanwhile wants none."""
    for future, value, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


def _is_made(answer: asyncio.Future[Any]) -> bool:
    return not answer.cancelled() and answer.exception() is None


class Part:
    """What the parts of the store share: the way to the two threads."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._reads = Shares(READS_MAX)

    def _write(self, operation: Operation[T], *, is_alone: bool = False) -> asyncio.Future[T]:
        if self._writer is None:
            raise UsageError("the store is not open; call open() first")
        wanted = recording.wanted(self)
        if wanted is None:
            return self._writer.ask(operation, is_alone=is_alone)
        recorded = Recorded(operation, wanted)
        answer = self._writer.ask(recorded, is_alone=is_alone)
        # Before whoever waits for the answer goes on, because it is asked for first.
        answer.add_done_callback(lambda done: _is_made(done) and recorded.committed())
        return cast("asyncio.Future[T]", answer)

    def _read(self, operation: Operation[T]) -> asyncio.Future[T]:
        if self._reader is None:
            raise UsageError("the store is not open; call open() first")
        holder = current_holder()
        if holder is None:
            return self._reader.ask(operation)
        if not self._reads.take(holder):
            return asyncio.ensure_future(self._read_in_turn(operation, holder))
        answer = self._reader.ask(operation)
        answer.add_done_callback(lambda _: self._reads.give_back(holder))
        return answer

    async def _read_in_turn(self, operation: Operation[T], holder: Holder) -> T:
        await self._reads.wait(holder)
        try:
            if self._reader is None:
                raise UsageError("the store is closed")
            return await self._reader.ask(operation)
        finally:
            self._reads.give_back(holder)

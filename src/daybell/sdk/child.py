"""The program of a child process: it runs tasks for a worker, one at a time, until the worker
closes the connection. The parent's side is in `runners/`.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import logging
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import thread as pools
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TextIO, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import MASKED_CHARS_MAX, Account, Claimed, Excerpt
from daybell.core.retry import Retry, read_retry_time
from daybell.core.units import format_size
from daybell.errors import RetryLater, UsageError, is_permanent
from daybell.runners.processes import (
    FrameReader,
    FunctionLocation,
    LogLine,
    ProgressReport,
    RetryRequest,
    Setup,
    StopNotice,
    TaskEnded,
    TaskOrder,
    TaskStarted,
    encode_frame,
    read_order,
)
from daybell.runners.python import Interrupted, PythonHandler, RunningAttempt, StepLedger, Threads
from daybell.sdk.capture import LogCapture
from daybell.sdk.context import Context, context_names, current
from daybell.sdk.isolation import MAIN, process_info
from daybell.sdk.modules import load_main, load_module
from daybell.sdk.task import JobApp, Task

# A child's end of the line to its worker.


class Line:
    """Sends whole messages or none, whatever signals and threads do meanwhile.

    After a fork it belongs to the parent alone: what the other process sends goes nowhere.
    """

    def __init__(self, number: int) -> None:
        self._socket: socket.socket | None = socket.socket(fileno=number)
        self._socket.set_inheritable(False)
        self._frames = FrameReader()
        self._orders: deque[Setup | TaskOrder | StopNotice] = deque()
        self._lock = threading.RLock()
        self._is_sending = False
        self._afterwards: Callable[[], None] | None = None
        os.register_at_fork(after_in_child=self._cut)

    def receive(self) -> Setup | TaskOrder | StopNotice | None:
        """The next order; None when the worker has hung up."""
        assert self._socket is not None
        while not self._orders:
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._orders.extend(map(read_order, self._frames.feed(data)))
        return self._orders.popleft()

    @property
    def is_ringing(self) -> bool:
        """Whether the worker has said something that was not heard yet, or has hung up."""
        if self._socket is None:
            return True  # after a fork: whatever comes is for this process
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send(self, message: TaskStarted | ProgressReport | LogLine | TaskEnded) -> None:
        """Send it, from any thread. If the worker is gone, this process ends."""
        if self._socket is None:
            return
        data = _encode_message(message)
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                self._write(data)
            return
        # An exception out of a signal handler, ours or the task's, would leave half a message.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._is_sending = True
        try:
            with self._lock:
                self._write(data)
        finally:
            self._is_sending = False
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        act, self._afterwards = self._afterwards, None
        if act is not None:
            act()

    def when_sent(self, act: Callable[[], None]) -> None:
        """Do something in the main thread, but not in the middle of a message.

        Signals are blocked there; but another thread may have caught one.
        """
        if self._is_sending:
            self._afterwards = act
        else:
            act()

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except OSError:
            os._exit(1)

    def _cut(self) -> None:
        if self._socket is not None:
            self._lock = threading.RLock()  # another thread may have held it
            self._socket.close()
            self._socket = None


def _encode_message(message: TaskStarted | ProgressReport | LogLine | TaskEnded) -> bytes:
    if not isinstance(message, LogLine):
        return encode_frame(message)
    text, length = message.message, message.length
    if len(text) > MASKED_CHARS_MAX:  # which the masks are given; they are in the worker
        text, length = text[:MASKED_CHARS_MAX], length or len(text)
    return encode_frame(
        LogLine(message.level, _make_storable(message.source), _make_storable(text), length)
    )


def _make_storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


_SIGNALS = signal.valid_signals()


# What a task leaves behind in its process, and must not do to the next one there.

JOIN_SECONDS: Final = 0.001  # between looks at threads of a task that has ended
JOINS_MAX: Final = 100  # so that they may end as well
CANCEL_SECONDS: Final = 1.0  # for what is left on the loop to end
OWN_THREADS: Final = "daybell-"  # connections that the next task uses again
# The connection that a child enqueues through has tasks of its own, which stay.
_HOME: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OWN_TASKS: Final = (
    os.path.join(_HOME, "store", ""),
    os.path.join(_HOME, "client", "coalescer.py"),
)
DRIVER: Final = f"{os.sep}asyncpg{os.sep}"


def have_threads_ended(before: set[threading.Thread]) -> bool:
    """Whether no thread does anything that a task has begun: it would do it to the next one.

    Pools, such as that of `asyncio.to_thread`, may keep their threads for it.
    """
    for _ in range(JOINS_MAX):
        new = [thread for thread in threading.enumerate() if thread not in before]
        if not new:
            return True
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        busy = [thread for thread in new if not _is_harmless(thread, frames)]
        if not busy:
            return True
        busy[0].join(JOIN_SECONDS)
    return False


def _is_harmless(thread: threading.Thread, frames: dict[int, FrameType]) -> bool:
    if thread.name.startswith(OWN_THREADS):
        return True
    frame = frames.get(thread.ident or 0)
    return (
        frame is not None
        and frame.f_code.co_filename == pools.__file__
        and frame.f_code.co_name == "_worker"
    )


def cancel_leftover_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel what a coroutine has left on the loop, as `asyncio.run` does in the end.

    False if some of it does not end: it would go on as soon as the next one runs there.
    """
    left = _leftover_tasks(loop)
    if not left:
        return True
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SECONDS))
    for task in left:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            what = "what a task has left on the event loop failed when it was cancelled"
            loop.call_exception_handler({"message": what, "exception": error, "task": task})
    return not _leftover_tasks(loop)


def _leftover_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks(loop) if not _is_own(task)]


def _is_own(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    file: str = "" if code is None else code.co_filename
    return file.startswith(OWN_TASKS) or DRIVER in file


# Records of stdlib logging in a child process, on their way to its worker.


class Relay(LogCapture):
    """Hands records to the execution that runs here, from whichever thread they come."""

    running: RunningAttempt | None = None

    def install(self, levels: Mapping[str, int]) -> None:
        """Listen to all loggers, from the levels on that the worker has set."""
        logging.getLogger().addHandler(self)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    @contextmanager
    def kept(self) -> Generator[None]:
        """Have the next task find the root logger as this one did, and this handler in it."""
        root = logging.getLogger()
        if self not in root.handlers:  # a module that was imported has set up logging as it likes
            root.addHandler(self)
        handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
        try:
            yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.disable(disabled)

    def handle(self, record: logging.LogRecord) -> bool:
        if self.running is not None:
            self.keep(record, self.running)
        return True


PR_SET_PDEATHSIG: Final = 1
ALIAS: Final = "__mp_main__"  # what multiprocessing calls a script that is not the program
PAGE_BYTES: Final = resource.getpagesize()


class ChildRunning:
    """One execution while it runs here. What it says goes to the worker."""

    def __init__(self, claimed: Claimed, line: Line) -> None:
        self.claimed = claimed
        self.is_hopeless = False
        self.durable: Any = None
        self.ledger: StepLedger | None = None  # the store is the worker's, and so are its steps
        self.is_cancelled = False
        self.is_watchful = False
        self.patience = 0.0  # the worker's to have
        self._line = line

    def hide(self, values: Iterable[str]) -> None:
        """The worker has opened them, and masks them."""

    def without_secrets(self, text: str) -> str:
        return text

    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self._line.send(ProgressReport(progress, note, checkpoint))

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        self._line.send(LogLine(level, source, message, length))

    def print(self, stream: str, text: str) -> None:
        """Heard through the pipe that the stream is."""

    async def begin(self) -> Any:
        """The worker ends an execution on a connection of its own, which is not in this process."""
        raise UsageError(
            "ctx.transaction() cannot be used by a task in a process of its own; leave out"
            ' isolation="process"'
        )

    async def undo(self) -> None:
        """There is nothing to undo."""


class Interruption:
    """SIGTERM: what runs is to stop. Told by an exception where the function is; to one that looks
    by itself, by the second signal, which the worker sends later.

    Only the worker's: systemd, for one, sends it to all processes of a service, while the worker
    still lets what runs come to its end.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        signal.signal(signal.SIGTERM, self._hear)
        self._running: ChildRunning | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_over = False  # it was interrupted

    @contextmanager
    def around(self, running: ChildRunning) -> Generator[None]:
        if signal.getsignal(signal.SIGTERM) != self._hear:  # the last task has set another
            signal.signal(signal.SIGTERM, self._hear)
        self._running, self._is_over = running, False
        try:
            yield
        finally:
            self._running = self._task = None

    def cancels(self, task: asyncio.Task[Any]) -> None:
        """Have a coroutine cancelled instead: an exception in the loop itself would break it."""
        self._task = task

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        running = self._running
        if running is None or self._is_over or not self._line.is_ringing:
            return
        is_first, running.is_cancelled = not running.is_cancelled, True
        if self._task is not None:
            self._is_over = True
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        elif not (is_first and running.is_watchful):
            self._is_over = True
            self._line.when_sent(_interrupt)


def _interrupt() -> None:
    raise Interrupted


class Program:
    """Takes orders and carries them out."""

    def __init__(self, line: Line, libc: ctypes.CDLL) -> None:
        self._line = line
        self._libc = libc
        self._pid = os.getpid()
        self._interruption = Interruption(line)
        self._handlers: dict[tuple[FunctionLocation, bool], PythonHandler] = {}
        self._apps: set[JobApp] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_loop_free = True  # of what the last task has left there
        self._relay = Relay()
        self._streams = Streams()
        os.register_at_fork(before=self._flush)  # or both processes would print what is buffered

    def serve(self) -> None:
        """Until the worker hangs up."""
        while (order := self._line.receive()) is not None:
            if isinstance(order, Setup):
                self._set_up(order)
            elif isinstance(order, TaskOrder):
                self._line.send(TaskStarted())
                self._line.send(self._perform(order))
        if self._loop is not None:
            for app in self._apps:
                self._loop.run_until_complete(app.close())
            self._loop.close()

    def _set_up(self, setup: Setup) -> None:
        sys.path[:] = setup.path
        sys.argv[:] = setup.argv
        self._relay.install(setup.levels)

    def _perform(self, order: TaskOrder) -> TaskEnded:
        running = ChildRunning(order.claimed, self._line)
        done = TaskEnded()
        threads = set(threading.enumerate())
        try:
            with self._interruption.around(running):
                known = self._handlers.get((order.place, order.store_result))
                handler = known or self._find(order)
                threads.update(threading.enumerate())  # those of its module, which stays
                self._relay.running = running
                with self._relay.kept(), limit_memory(order.memory_limit):
                    done = TaskEnded(
                        contextvars.copy_context().run(self._run, handler, running, order)
                    )
        except BaseException as error:
            self._end_if_forked(error)
            done = describe_error(error, order, running)
        self._end_if_forked(None)
        self._relay.running = None
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm of this task would hit the next one
        is_whole = self._streams.restore() and self._is_loop_free and have_threads_ended(threads)
        self._flush()
        return done if is_whole else msgspec.structs.replace(done, is_spent=True)

    def _find(self, order: TaskOrder) -> PythonHandler:
        function = find_task(order.place)
        if isinstance(function, Task):
            task = cast("Task[..., Any, Any]", function)
            function = task.function
            task.app.tenant = order.claimed.tenant  # the worker may have been told another
            self._apps.add(task.app)
        handler = PythonHandler(
            function,
            retry=Retry(),
            timeout=None,
            store_result=order.store_result,
            context_names=context_names(function),
            enter=current.set,
            make_context=Context,
            threads=Threads(),  # which are never asked: see _run
        )
        # Jobs of several names may run it, of which not all keep what it returns.
        self._handlers[order.place, order.store_result] = handler
        return handler

    def _run(self, handler: PythonHandler, running: ChildRunning, order: TaskOrder) -> str | None:
        revealed = payload.decode(order.claimed.args) if order.is_revealed else None
        value = handler.bind(running, revealed)()
        if inspect.isawaitable(value):
            value = self._awaited(value)
        return handler.keep(running, value)

    def _awaited(self, value: Any) -> Any:
        async def whole() -> tuple[Any, BaseException | None]:
            try:
                return await value, None
            except BaseException as error:  # SystemExit would end the loop, too
                return None, error

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(whole())
        self._interruption.cancels(task)
        result, error = self._loop.run_until_complete(task)
        self._is_loop_free = cancel_leftover_tasks(self._loop)
        if error is not None:
            raise error
        return result

    def _end_if_forked(self, error: BaseException | None) -> None:
        """What a task has forked ends where the task does; only its parent answers."""
        if os.getpid() == self._pid:
            return
        if error is not None:
            traceback.print_exception(error)
        self._flush()
        os._exit(0 if error is None else 1)

    def _flush(self) -> None:
        """Have what was printed on its way before the end is told; C has a buffer of its own."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self._libc.fflush(None)


class Streams:
    """sys.stdout and sys.stderr as they were at first, and what is behind them."""

    def __init__(self) -> None:
        self._streams = (sys.stdout, sys.stderr)
        self._files = self._look()

    def restore(self) -> bool:
        """Put them back; answers whether they still lead to the worker."""
        for stream in (sys.stdout, sys.stderr):
            if stream not in self._streams:
                with suppress(Exception):
                    stream.flush()
        sys.stdout, sys.stderr = self._streams
        return self._files == self._look() and all(map(_is_open, self._streams))

    def _look(self) -> list[tuple[int, int] | None]:
        return [_file_of(number) for number in (1, 2)]


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_open(stream: TextIO) -> bool:
    try:
        return not stream.closed
    except ValueError:  # it is detached
        return False


def find_task(place: FunctionLocation) -> Any:
    """Import what a place says. It is a Task, or the function itself if that was made one later."""
    process_info.importing = place.file if place.module == MAIN else place.module
    try:
        if place.module == MAIN:
            assert place.file is not None
            module = load_main(place.file, ALIAS)
        else:
            module = load_module(place.module, place.file)
    finally:
        process_info.importing = None
    found: object = module
    for part in place.name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(
            f"there is no {place.name} in {place.module} when a process imports it; a task that"
            " runs in a process of its own is found by the name of its function"
        )
    return found


@contextmanager
def limit_memory(memory_limit: int | None) -> Generator[None]:
    """Let this process grow by so much and no more."""
    if memory_limit is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:
        wanted = int(file.read().split()[0]) * PAGE_BYTES + memory_limit
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def describe_error(error: BaseException, order: TaskOrder, running: ChildRunning) -> TaskEnded:
    """An exception as the worker is told of it."""
    hopeless, spent = running.is_hopeless, running.is_cancelled
    if isinstance(error, RetryLater):
        try:
            delay, at = read_retry_time(error)
            return TaskEnded(later=RetryRequest(error.reason, delay if at is None else None, at))
        except UsageError as refused:
            error = refused
    account = Account.of(error)
    # Rules in the worker know the script's own classes by its name there.
    names = tuple(name.replace(f"{ALIAS}.", f"{MAIN}.", 1) for name in account.names)
    kind, message = account.type.replace(f"{ALIAS}.", f"{MAIN}.", 1), account.message
    if isinstance(error, MemoryError) and order.memory_limit is not None:
        spent = True
        kind, names = "MemoryLimit", ("MemoryLimit", *names)
        limit = format_size(order.memory_limit)
        message = Excerpt(f"the task needed more memory than its memory_limit of {limit}")
    account = msgspec.structs.replace(account, type=kind, message=message, names=names)
    hopeless = hopeless or is_permanent(error)
    return TaskEnded(failure=account, is_hopeless=hopeless, is_spent=spent)


def die_with_parent(parent: int, libc: ctypes.CDLL) -> None:
    """Have this process killed when its worker is gone, whatever a task is doing."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory is short, a task goes before its worker
    if os.getppid() != parent:  # it was quicker than we were
        os._exit(1)


def main() -> None:
    """Run for the worker that started this process, and told it how to reach it."""
    number, parent = sys.argv[1:]
    libc = ctypes.CDLL(None)
    die_with_parent(int(parent), libc)
    process_info.is_child = True
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # pyright: ignore
    Program(Line(int(number)), libc).serve()


if __name__ == "__main__":
    main()

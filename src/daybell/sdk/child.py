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
from daybell.core.flow import LimitPause
from daybell.core.placement import device_variables
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

# The connection to the worker.


class ChildLine:
    """Sends whole messages or none, in spite of signals and threads.

    After a fork, only the parent can use it.
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
        """Return the next order; None after the worker has closed the connection."""
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
        """True if there is an unread order, or the worker has closed the connection."""
        if self._socket is None:
            return True  # after a fork: every signal is for this process
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send(self, message: TaskStarted | ProgressReport | LogLine | TaskEnded) -> None:
        """Send a message, from any thread. End the process if the worker is gone."""
        if self._socket is None:
            return
        data = _encode_message(message)
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                self._write(data)
            return
        # An exception from a signal handler would leave half a message.
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
        """Call a function in the main thread, but not during a message.

        Signals are blocked during a message, but another thread may have received one.
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
    if len(text) > MASKED_CHARS_MAX:  # the limit of the masks, which are in the worker
        text, length = text[:MASKED_CHARS_MAX], length or len(text)
    return encode_frame(
        LogLine(message.level, _make_storable(message.source), _make_storable(text), length)
    )


def _make_storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


_SIGNALS = signal.valid_signals()


# State that a task leaves in its process, and that must not affect the next one.

JOIN_SECONDS: Final = 0.001  # between checks of remaining threads
JOINS_MAX: Final = 100  # checks, to let threads end
CANCEL_SECONDS: Final = 1.0  # for remaining tasks of the event loop to end
OWN_THREADS: Final = "daybell-"  # connections that the next task uses again
# Tasks of the connection that a child enqueues through; they stay.
_HOME: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OWN_TASKS: Final = (
    os.path.join(_HOME, "store", ""),
    os.path.join(_HOME, "client", "coalescer.py"),
)
DRIVER: Final = f"{os.sep}asyncpg{os.sep}"


def have_threads_ended(before: set[threading.Thread]) -> bool:
    """Return True if no thread of the ended task is busy.

    Idle threads of pools, such as that of `asyncio.to_thread`, may stay.
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
    """Cancel tasks that a coroutine left on the loop, as `asyncio.run` does.

    Return False if some do not end: they would continue with the next coroutine.
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


# Log records of a child process.


class Relay(LogCapture):
    """A logging handler that passes records of all threads to the running execution."""

    running: RunningAttempt | None = None

    def install(self, levels: Mapping[str, int]) -> None:
        """Listen to all loggers with the worker's levels."""
        logging.getLogger().addHandler(self)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    @contextmanager
    def preserve(self) -> Generator[None]:
        """Restore the root logger after a task."""
        root = logging.getLogger()
        if self not in root.handlers:  # an imported module has set up logging
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
ALIAS: Final = "__mp_main__"  # multiprocessing's name of a script that is not the program
PAGE_BYTES: Final = resource.getpagesize()


class ChildRunning:
    """The running execution of this process. Its reports go to the worker."""

    def __init__(self, claimed: Claimed, line: ChildLine) -> None:
        self.claimed = claimed
        self.is_hopeless = False
        self.durable: Any = None
        self.devices: dict[str, list[int]] | None = None
        self.ledger: StepLedger | None = None  # only the worker has the store
        self.is_cancelled = False
        self.is_watchful = False
        self.patience = 0.0  # the worker applies it
        self._line = line

    def hide(self, values: Iterable[str]) -> None:
        """Do nothing: the worker opened the secrets, and masks them."""

    def without_secrets(self, text: str) -> str:
        return text

    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
        pause: LimitPause | None = None,
    ) -> None:
        self._line.send(ProgressReport(progress, note, checkpoint, pause))

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        self._line.send(LogLine(level, source, message, length))

    def print(self, stream: str, text: str) -> None:
        """Do nothing: the worker reads the stream through a pipe."""

    async def begin(self) -> Any:
        """Refuse: the transaction is on a connection of the worker."""
        raise UsageError(
            "ctx.transaction() cannot be used by a task in a process of its own; leave out"
            ' isolation="process"'
        )

    async def undo(self) -> None:
        """Do nothing: there is no transaction."""


class Interruption:
    """The handler of SIGTERM, which stops the running function with an exception. A function that
    polls `is_cancelled` gets the exception with the second signal, which the worker sends later.

    Signals of other senders are ignored: systemd sends SIGTERM to all processes of a service, while
    the worker still drains.
    """

    def __init__(self, line: ChildLine) -> None:
        self._line = line
        signal.signal(signal.SIGTERM, self._hear)
        self._running: ChildRunning | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_over = False  # the exception was raised

    @contextmanager
    def around(self, running: ChildRunning) -> Generator[None]:
        if signal.getsignal(signal.SIGTERM) != self._hear:  # replaced by the last task
            signal.signal(signal.SIGTERM, self._hear)
        self._running, self._is_over = running, False
        try:
            yield
        finally:
            self._running = self._task = None

    def cancels(self, task: asyncio.Task[Any]) -> None:
        """Cancel this task instead: an exception would break the event loop."""
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
    """The main loop of the child process."""

    def __init__(self, line: ChildLine, libc: ctypes.CDLL) -> None:
        self._line = line
        self._libc = libc
        self._pid = os.getpid()
        self._interruption = Interruption(line)
        self._handlers: dict[tuple[FunctionLocation, bool], PythonHandler] = {}
        self._apps: set[JobApp] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_loop_free = True  # the last task left nothing on the event loop
        self._relay = Relay()
        self._streams = Streams()
        os.register_at_fork(before=self._flush)  # otherwise both processes print the buffer

    def serve(self) -> None:
        """Execute orders until the worker closes the connection."""
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
        running.devices = order.devices
        os.environ.update(device_variables(order.devices))
        done = TaskEnded()
        threads = set(threading.enumerate())
        try:
            with self._interruption.around(running):
                known = self._handlers.get((order.place, order.store_result))
                handler = known or self._find(order)
                for app in self._apps:
                    app.tenant = order.claimed.tenant  # that of the worker, or one of its tenants
                threads.update(threading.enumerate())  # threads of the module may stay
                self._relay.running = running
                with self._relay.preserve(), limit_memory(order.memory_limit):
                    done = TaskEnded(
                        contextvars.copy_context().run(self._run, handler, running, order)
                    )
        except BaseException as error:
            self._end_if_forked(error)
            done = describe_error(error, order, running)
        self._end_if_forked(None)
        self._relay.running = None
        signal.setitimer(signal.ITIMER_REAL, 0)  # cancels an alarm of this task
        is_whole = self._streams.restore() and self._is_loop_free and have_threads_ended(threads)
        self._flush()
        # Libraries read the numbers of devices once: each task with devices has a child of its own.
        is_whole = is_whole and not order.devices
        return done if is_whole else msgspec.structs.replace(done, is_spent=True)

    def _find(self, order: TaskOrder) -> PythonHandler:
        function = find_task(order.place)
        if isinstance(function, Task):
            task = cast("Task[..., Any, Any]", function)
            function = task.function
            self._apps.add(task.app)
        handler = PythonHandler(
            function,
            retry=Retry(),
            timeout=None,
            store_result=order.store_result,
            context_names=context_names(function),
            enter=current.set,
            make_context=Context,
            threads=Threads(),  # unused: see _run
        )
        # Jobs with different `store_result` may share a function.
        self._handlers[order.place, order.store_result] = handler
        return handler

    def _run(self, handler: PythonHandler, running: ChildRunning, order: TaskOrder) -> str | None:
        revealed = payload.decode(order.claimed.args) if order.is_revealed else None
        value = handler.bind(running, revealed)()
        if inspect.isawaitable(value):
            value = self._await(value)
        return handler.keep(running, value)

    def _await(self, value: Any) -> Any:
        async def whole() -> tuple[Any, BaseException | None]:
            try:
                return await value, None
            except BaseException as error:  # SystemExit would end the event loop
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
        """End a process that the task has forked; only its parent reports."""
        if os.getpid() == self._pid:
            return
        if error is not None:
            traceback.print_exception(error)
        self._flush()
        os._exit(0 if error is None else 1)

    def _flush(self) -> None:
        """Flush Python's and C's output buffers before the end is reported."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self._libc.fflush(None)


class Streams:
    """The original sys.stdout and sys.stderr, and their files."""

    def __init__(self) -> None:
        self._streams = (sys.stdout, sys.stderr)
        self._files = self._look()

    def restore(self) -> bool:
        """Restore the streams; return True if they still lead to the worker."""
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
    except ValueError:  # detached
        return False


def find_task(place: FunctionLocation) -> Any:
    """Import a function: the Task, or the function itself if it became a task later."""
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
    """Limit the growth of this process's memory."""
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
    """Describe an exception for the worker."""
    hopeless, spent = running.is_hopeless, running.is_cancelled
    if isinstance(error, RetryLater):
        try:
            delay, at = read_retry_time(error)
            delay = delay if at is None else None
            return TaskEnded(later=RetryRequest(error.reason, delay, at, error.limit))
        except UsageError as refused:
            error = refused
    account = Account.of(error)
    # In the worker, classes of the script have another module name.
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
    """Have the kernel kill this process when its worker ends."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # the kernel kills tasks before their worker
    if os.getppid() != parent:  # the worker has already ended
        os._exit(1)


def main() -> None:
    """Run the child with the arguments of the worker."""
    number, parent = sys.argv[1:]
    libc = ctypes.CDLL(None)
    die_with_parent(int(parent), libc)
    process_info.is_child = True
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # pyright: ignore
    Program(ChildLine(int(number)), libc).serve()


if __name__ == "__main__":
    main()

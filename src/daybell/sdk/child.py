"""The program of a child process: runs tasks for a worker, one at a time, until that hangs up.

The parent's side is in `runners/`. A function is run as in a script: without `async` in the main
thread, where signals and C extensions work, with it on an event loop that is kept.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TextIO, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import Claimed
from daybell.core.failure import Account, Excerpt
from daybell.core.retry import Retry, when
from daybell.core.size import format_size
from daybell.errors import RetryLater, UsageError, is_permanent
from daybell.runners.durable import Ledger
from daybell.runners.python import PythonHandler
from daybell.runners.threads import Interrupted, Threads
from daybell.runners.wire import Begun, Done, Later, News, Order, Place, Said, Setup
from daybell.sdk.app import App
from daybell.sdk.context import Context, context_names, current
from daybell.sdk.isolation import MAIN, here
from daybell.sdk.leftovers import are_over, cancel_left
from daybell.sdk.line import Line
from daybell.sdk.loading import load_main, load_module
from daybell.sdk.relay import Relay
from daybell.sdk.task import Task

PR_SET_PDEATHSIG: Final = 1
ALIAS: Final = "__mp_main__"  # what multiprocessing calls a script that is not the program
PAGE_BYTES: Final = resource.getpagesize()


class ChildRunning:
    """One execution while it runs here. What it says goes to the worker."""

    def __init__(self, claimed: Claimed, line: Line) -> None:
        self.claimed = claimed
        self.is_hopeless = False
        self.durable: Any = None
        self.ledger: Ledger | None = None  # the store is the worker's, and so are its steps
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
        self._line.send(News(progress, note, checkpoint))

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        self._line.send(Said(level, source, message, length))

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
        self._handlers: dict[tuple[Place, bool], PythonHandler] = {}
        self._apps: set[App] = set()
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
            elif isinstance(order, Order):
                self._line.send(Begun())
                self._line.send(self._perform(order))
        if self._loop is not None:
            for app in self._apps:
                self._loop.run_until_complete(app.close())
            self._loop.close()

    def _set_up(self, setup: Setup) -> None:
        sys.path[:] = setup.path
        sys.argv[:] = setup.argv
        self._relay.install(setup.levels)

    def _perform(self, order: Order) -> Done:
        running = ChildRunning(order.claimed, self._line)
        done = Done()
        threads = set(threading.enumerate())
        try:
            with self._interruption.around(running):
                known = self._handlers.get((order.place, order.store_result))
                handler = known or self._find(order)
                threads.update(threading.enumerate())  # those of its module, which stays
                self._relay.running = running
                with self._relay.kept(), limited(order.memory_limit):
                    done = Done(contextvars.copy_context().run(self._run, handler, running, order))
        except BaseException as error:
            self._end_if_forked(error)
            done = described(error, order, running)
        self._end_if_forked(None)
        self._relay.running = None
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm of this task would hit the next one
        is_whole = self._streams.restore() and self._is_loop_free and are_over(threads)
        self._flush()
        return done if is_whole else msgspec.structs.replace(done, is_spent=True)

    def _find(self, order: Order) -> PythonHandler:
        function = find(order.place)
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

    def _run(self, handler: PythonHandler, running: ChildRunning, order: Order) -> str | None:
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
        self._is_loop_free = cancel_left(self._loop)
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


def find(place: Place) -> Any:
    """Import what a place says. It is a Task, or the function itself if that was made one later."""
    here.importing = place.file if place.module == MAIN else place.module
    try:
        if place.module == MAIN:
            assert place.file is not None
            module = load_main(place.file, ALIAS)
        else:
            module = load_module(place.module, place.file)
    finally:
        here.importing = None
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
def limited(memory_limit: int | None) -> Generator[None]:
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


def described(error: BaseException, order: Order, running: ChildRunning) -> Done:
    """An exception as the worker is told of it."""
    hopeless, spent = running.is_hopeless, running.is_cancelled
    if isinstance(error, RetryLater):
        try:
            delay, at = when(error)
            return Done(later=Later(error.reason, delay if at is None else None, at))
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
    return Done(failure=account, is_hopeless=hopeless, is_spent=spent)


def end_with(parent: int, libc: ctypes.CDLL) -> None:
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
    end_with(int(parent), libc)
    here.is_child = True
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # pyright: ignore
    Program(Line(int(number)), libc).serve()


if __name__ == "__main__":
    main()

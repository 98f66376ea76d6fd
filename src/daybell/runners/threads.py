"""Threads for functions that block, one function at a time in each.

The standard pool joins its threads when the interpreter ends, so one function that never returns
would keep a stopping worker alive for ever. These are daemons, and can be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from daybell.core.instant import Seconds

T = TypeVar("T")

LOOK_SECONDS: Final = 0.1  # patience may end before its time: when a lease is lost


class Interrupted(BaseException):
    """Raised inside a task's thread when the task is to stop. Not to be caught by the task."""


class Call:
    """One function on its way through a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._thread: int | None = None  # set while the function runs
        self._has_begun = False
        self._is_unwanted = False  # it was interrupted, or never begins
        self._news: asyncio.Future[None] | None = None
        self.outcome: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        """In the thread."""
        result, error = None, None
        try:
            try:
                if not self._begin():
                    return
                result = self._context.run(self._function)
            except BaseException as raised:
                error = raised
            self._end()
        except Interrupted:  # it came when the function had ended already
            self._end()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, result, error)

    async def wait(self) -> None:
        """Until there is an outcome. Cancelling this leaves the function alone."""
        if self.outcome is None:
            self._news = self._loop.create_future()
            await self._news

    @property
    def is_interrupted(self) -> bool:
        return self._is_unwanted

    def interrupt(self) -> None:
        """Raise Interrupted at the function's next step in Python. What blocks in C goes on; what
        still waits for a thread is over, and never begins.

        Only once: `run` could not get out of the way of two.
        """
        with self._lock:
            if self._is_unwanted:
                return
            self._is_unwanted = True
            if self._thread is not None:
                _raise_in(self._thread, Interrupted)
            elif not self._has_begun:
                self.outcome = None, Interrupted()
                del self._function, self._context  # this stays in the queue for who knows how long

    def _begin(self) -> bool:
        with self._lock:
            if self._is_unwanted:
                return False
            self._has_begun = True
            self._thread = threading.get_ident()
            return True

    def _end(self) -> None:
        """Let no interruption come any more: it would hit whatever this thread does next."""
        with self._lock:
            self._thread = None
        if self._is_unwanted:
            _raise_in(threading.get_ident(), None)

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        self.outcome = result, error
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def none() -> Seconds:
    """No patience."""
    return 0.0


class Threads:
    """As many threads as are busy at once, up to a limit; idle ones wait for more."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    async def run(self, function: Callable[[], T], *, patience: Callable[[], Seconds] = none) -> T:
        """Run it in a thread. Cancelling interrupts it, and still waits until it has ended, if it
        has begun. Cancelling once more, as an event loop does that is closed, leaves it to itself.

        Once it is cancelled, `patience` is asked how long it may take to end uninterrupted.
        """
        call = Call(function)
        self._submit(call)
        while call.outcome is None:
            try:
                await call.wait()
            except asyncio.CancelledError:
                if call.is_interrupted:
                    raise
                try:
                    await _bear(call, patience)
                finally:
                    call.interrupt()
        result, error = call.outcome
        if error is None:
            return result
        try:
            if isinstance(error, Interrupted):
                raise asyncio.CancelledError
            if isinstance(error, StopIteration):
                # A coroutine cannot raise it; as RuntimeError it means the same to who reads it.
                raise RuntimeError("the task raised StopIteration") from error
            raise error
        finally:
            del error, call  # which hold on to this frame, through the traceback

    def _submit(self, call: Call) -> None:
        with self._lock:
            if self._idle == 0 and self._count < self._limit:
                self._count += 1
                name = f"daybell-task-{self._count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            else:
                self._idle -= 1 if self._idle else 0
        self._calls.put(call)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            call.run()
            del call
            with self._lock:
                self._idle += 1


async def _bear(call: Call, patience: Callable[[], Seconds]) -> None:
    """Wait for the outcome for as long as there is patience."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while call.outcome is None and (left := begun + patience() - loop.time()) > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.wait(), min(left, LOOK_SECONDS))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise an error at its next step; None takes back what it has not raised yet."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

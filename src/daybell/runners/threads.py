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
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(BaseException):
    """Raised inside a task's thread when the task is to stop. Not to be caught by the task."""


class Call:
    """One function on its way through a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._thread: int | None = None  # set while the function runs

    def run(self) -> None:
        """In the thread."""
        with self._lock:
            self._thread = threading.get_ident()
        try:
            result, error = self._context.run(self._function), None
        except BaseException as raised:
            result, error = None, raised
        finally:
            with self._lock:
                self._thread = None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, result, error)

    def interrupt(self) -> None:
        """Raise Interrupted at the function's next step in Python. What blocks in C goes on."""
        with self._lock:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted)
                )

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future cannot carry it; as RuntimeError it means the same to whoever reads it.
            self.future.set_exception(RuntimeError("the task raised StopIteration"))
        else:
            self.future.set_exception(error)


class Threads:
    """As many threads as are busy at once, up to a limit; idle ones wait for more."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Run it in a thread. Cancelling interrupts it, and still waits until it has ended."""
        call = Call(function)
        self._submit(call)
        is_cancelled = False
        while True:
            try:
                result = await asyncio.shield(call.future)
            except asyncio.CancelledError:
                is_cancelled = True
                call.interrupt()
                continue
            except Interrupted:
                raise asyncio.CancelledError from None
            if is_cancelled and call.future.cancelled():
                raise asyncio.CancelledError
            return result

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

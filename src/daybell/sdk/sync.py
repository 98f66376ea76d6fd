"""The background event loop of code that has none: the `sync` side of tasks, workflows and apps."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from daybell.errors import UsageError

if TYPE_CHECKING:
    pass


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_left_behind: list[asyncio.AbstractEventLoop] = []


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it. Not from within an event loop."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C: nobody waits for it any more
        raise


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """The same without waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise UsageError(
            "this code runs in an event loop: await the task's own methods, without .sync"
        )
    return asyncio.run_coroutine_threadsafe(work, _background())


def _background() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="daybell-sync", daemon=True).start()
        return _loop


def _reset_after_fork() -> None:
    """In a child process after a fork: the thread is gone, and with it all that the loop held.

    The loop is kept, though: with it would go the connections, which are still the parent's.
    """
    global _lock, _loop
    _lock = threading.Lock()  # another thread may have held it
    if _loop is not None:
        _left_behind.append(_loop)
        _loop = None


os.register_at_fork(after_in_child=_reset_after_fork)

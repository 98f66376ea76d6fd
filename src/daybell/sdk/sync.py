"""The background event loop for code without one: the `sync` side of tasks, workflows and apps."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from daybell.errors import UsageError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_left_behind: list[asyncio.AbstractEventLoop] = []


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it. Raises in an event loop."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # after Ctrl-C
        raise


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the background loop. Raises in an event loop."""
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
    """Drop the loop in a child process after a fork, as its thread does not exist there.

    A reference keeps the loop alive: collecting it would close connections of the parent.
    """
    global _lock, _loop
    _lock = threading.Lock()  # another thread may have held it
    if _loop is not None:
        _left_behind.append(_loop)
        _loop = None


os.register_at_fork(after_in_child=_reset_after_fork)

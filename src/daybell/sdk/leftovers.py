"""What a task leaves behind in its process, and must not do to the next one there."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import thread as pools
from types import FrameType
from typing import Any, Final

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


def are_over(before: set[threading.Thread]) -> bool:
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


def cancel_left(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel what a coroutine has left on the loop, as `asyncio.run` does in the end.

    False if some of it does not end: it would go on as soon as the next one runs there.
    """
    left = _left(loop)
    if not left:
        return True
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SECONDS))
    for task in left:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            what = "what a task has left on the event loop failed when it was cancelled"
            loop.call_exception_handler({"message": what, "exception": error, "task": task})
    return not _left(loop)


def _left(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks(loop) if not _is_own(task)]


def _is_own(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    file: str = "" if code is None else code.co_filename
    return file.startswith(OWN_TASKS) or DRIVER in file

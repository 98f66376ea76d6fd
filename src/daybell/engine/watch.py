"""Noticing a task that blocks the event loop, and naming it.

One coroutine that computes for seconds or calls a blocking function stops every other task of its
worker, heartbeats included. A thread looks at the loop from outside: if it has not turned for a
while, whatever runs in it at that moment is the one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.engine.clock import Clock

logger = logging.getLogger("daybell.worker")

_PACKAGE: Final = str(Path(__file__).parents[1])

BLOCKED_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.1
FRAMES_MAX: Final = 8
ADVICE: Final = " Make it a plain `def` (it will run in a thread), or await what it waits for."
STUCK_SECONDS: Final = 60.0  # after which nobody hopes for the loop any more


class LoopWatch:
    """Watches the running event loop. `claimed_of` tells what a task executes; `on_stuck` ends
    the process, where it may.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        claimed_of: Callable[[asyncio.Task[object]], Claimed | None],
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        self._on_stuck = on_stuck
        self._clock = clock
        self._claimed_of = claimed_of
        self._turned_at = clock.monotonic()
        self._is_asked = False
        self._is_warned = False
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.blocked = 0  # how often it was found blocked

    def start(self) -> None:
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, ident), name="daybell-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()

    def look(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        """One look from outside."""
        stood: Seconds = self._clock.monotonic() - self._turned_at
        if stood >= BLOCKED_SECONDS and self._is_asked and not self._is_warned:
            self._is_warned = True
            self.blocked += 1
            self._warn(loop, ident, stood)
        if stood >= STUCK_SECONDS and self._is_asked and self._on_stuck is not None:
            logger.error("the event loop has stood still for %.0f s; the process ends", stood)
            self._on_stuck()
        if not self._is_asked:
            self._is_asked = True
            self._turned_at = self._clock.monotonic()
            loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        """In the loop: it turns."""
        self._turned_at = self._clock.monotonic()
        self._is_asked = self._is_warned = False

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._is_stopped.wait(LOOK_SECONDS):
            try:
                self.look(loop, ident)
            except RuntimeError:
                return  # the loop is closed

    def _warn(self, loop: asyncio.AbstractEventLoop, ident: int, stood: Seconds) -> None:
        task = asyncio.current_task(loop)
        claimed = None if task is None else self._claimed_of(task)
        frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]
        where = "".join(traceback.format_list(_own(frame)[-FRAMES_MAX:]))
        logger.warning(
            "%s has blocked the event loop for %.1f s; everything else waits.%s It is here:\n%s",
            _what(claimed),
            stood,
            ADVICE if claimed is None or claimed.kind == "task" else "",
            where,
        )


def _what(claimed: Claimed | None) -> str:
    if claimed is None:
        return "something"
    if claimed.kind == "task":
        return f"the task {claimed.job!r}"
    return f"the job {claimed.job!r} ({claimed.kind})"


def _own(frame: FrameType | None) -> list[traceback.FrameSummary]:
    """The part of a stack that begins with the user's code; all of it if none is in it."""
    stack = traceback.extract_stack(frame)
    ours = [place for place, each in enumerate(stack) if each.filename.startswith(_PACKAGE)]
    return stack[ours[-1] + 1 :] if ours and ours[-1] + 1 < len(stack) else stack
